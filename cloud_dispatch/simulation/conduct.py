"""How a simulated task behaves. Owns the form in which its command says so; knows neither agents nor the queue.

The command of a simulated task is `simulated CONDUCT`, where CONDUCT is JSON of `Conduct`: so it travels through the
queue, the wire and the agent as any command does, and is the same for every attempt wherever it runs.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from cloud_dispatch.domain.task import Cause

COMMAND = "simulated"
#: Health checks that fail: always, and one time in ten. All others succeed.
FAILING, FLAKY = "false", "flaky"


class Conduct(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process does. `run_ms` of work, then `cause`: the end that it comes to by itself.

    `fails`: so many attempts end with exit code 1 first. `ignores_term`: only SIGKILL ends it. `unkillable`: not even
    that does. `log_bytes` are printed, half at the start and half at the end. `checkpoint_ms`: so long after its
    checkpoint signal it ends with exit code 75; -1: at once by the signal, as who does not expect it.
    """

    run_ms: int = 1_000
    cause: Cause = Cause.SUCCESS
    exit_code: int = 0
    fails: int = 0
    ignores_term: bool = False
    unkillable: bool = False
    log_bytes: int = 0
    checkpoint_ms: int = -1


_decoder = msgspec.json.Decoder(Conduct)


def command(conduct: Conduct) -> tuple[str, ...]:
    """The argv of a task that behaves so."""
    return COMMAND, msgspec.json.encode(conduct).decode()


@lru_cache(maxsize=65_536)
def conduct_of(argv: tuple[str, ...]) -> Conduct | None:
    """What the command says; None for one that is not simulated: it can't start."""
    if len(argv) != 2 or argv[0] != COMMAND:
        return None
    try:
        return _decoder.decode(argv[1])
    except msgspec.DecodeError:
        return None
