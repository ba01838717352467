"""Entry of the agent's package: `CONFIG.json` runs the supervisor, `--agent` (the supervisor's child) the agent.

What follows `--agent` is said between programs of different versions: by a supervisor to the agent that it starts, by
an agent to the program that takes its place.
"""

from __future__ import annotations

import sys
from typing import List  # noqa: UP035


def main(arguments: List[str]) -> int:
    """Exit code: 0 when the end was meant, 1 when the agent failed, 2 for a configuration that can't be used."""
    if arguments[:1] == ["--agent"]:
        from cloud_dispatch.agent.incarnation import run_agent

        return run_agent(arguments[1:])
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python3 agent.pyz CONFIG.json\n")
        return 2
    from cloud_dispatch.agent.supervisor import supervise

    return supervise(arguments[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
