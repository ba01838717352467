"""Exit codes. Owns the table that the docs render, and which error ends a command with which code."""

from __future__ import annotations

from collections.abc import Mapping

from cloud_dispatch.domain import errors
from cloud_dispatch.domain.errors import DispatchError

OK = 0
TASKS_FAILED = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
UNAVAILABLE = 5
DENIED = 6
INTERNAL = 70
INTERRUPTED = 130
UNREAD = 141

#: The documented meaning of every exit code.
TABLE: Mapping[int, str] = {
    OK: "done; of `run`: every task succeeded",
    TASKS_FAILED: (
        "`run`: some task failed or was cancelled; `simulate`: some had not ended; `reap --yes`: some are not gone yet;"
        " `demo`, `db check`, `cloud-init check`: a check failed; `replay`: it is planned otherwise now"
    ),
    USAGE: (
        "the command line, the task file or the configuration is wrong, or a question was not answered with yes;"
        " nothing was done"
    ),
    NOT_FOUND: "there is no such task, instance, pool or file; `run`: nobody knows any more how some task ended",
    CONFLICT: "refused: its state forbids it, or it is somebody else's (such as the store of another dispatcher)",
    UNAVAILABLE: (
        "no dispatcher answers, or it can't serve now; or the machine refuses (rights of a file, a full disk);"
        " trying again later may help, but where it was said that tasks go on or that it may be done"
    ),
    DENIED: "the operator's token is missing or wrong",
    INTERNAL: "a bug: please report it",
    INTERRUPTED: "interrupted by Ctrl-C; `simulate`: by SIGTERM or SIGHUP too",
    UNREAD: "whoever read the output, such as `head`, ended before all was written: it says nothing of what was done",
}
_BY_ERROR: tuple[tuple[type[DispatchError], int], ...] = (
    (errors.InvalidInput, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.Denied, DENIED),
    (errors.Unavailable, UNAVAILABLE),
)


def code_of(error: DispatchError) -> int:
    """The exit code for an error of the core."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), INTERNAL)
