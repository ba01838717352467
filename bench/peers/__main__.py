"""``python -m bench.peers NAME FOLDER [TASKS]``: measure one peer in this process, print one line of JSON."""

import json
import signal
import sys
from pathlib import Path

from bench.peers import measure_here
from bench.processes import BenchmarkFailed


def main(arguments: list[str]) -> int:
    """Exit code 0 and {"peer", "tasks_per_second"} on standard output, or 1 and the reason on standard error."""
    # A SIGTERM from the harness must unwind the context managers that end the peer's servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name, folder = arguments[0], Path(arguments[1])
    try:
        rate = measure_here(name, folder, int(arguments[2]) if len(arguments) > 2 else None)
    except BenchmarkFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"peer": name, "tasks_per_second": rate}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
