"""The exception tree of the core, classed by what the caller should do.

DispatchError
├── InvalidInput         the caller's input is wrong: fix it, at `place`; nothing was done
├── NotFound             no such thing; look up the right name
├── Conflict             the thing is in a state that forbids this, or belongs to somebody else
│   ├── StaleLease       the fencing token is not the current one: drop the result, stop the work
│   └── OverBudget       a spending limit does not admit this; nothing was committed
├── Denied               the caller may not do this
├── Unavailable          try again later; nothing was done
│   ├── StoreUnavailable the statestore can't commit (disk full, locked, gone)
│   └── Overloaded       a bound was reached
└── IllegalTransition    a programmer's error: a state machine was asked for an arrow it lacks

Errors of providers are in `cloud_dispatch.provider.errors`.
"""

from __future__ import annotations


class DispatchError(Exception):
    """Base of all errors of the core. `code` is stable and documented; `place` says where in the input, if anywhere."""

    code = "error"

    def __init__(self, message: str, *, place: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text} ({self.hint})" if self.hint else text


class InvalidInput(DispatchError):
    code = "invalid-input"


class NotFound(DispatchError):
    code = "not-found"


class Conflict(DispatchError):
    code = "conflict"


class StaleLease(Conflict):
    code = "stale-lease"


class OverBudget(Conflict):
    code = "over-budget"


class Denied(DispatchError):
    code = "denied"


class Unavailable(DispatchError):
    code = "unavailable"


class StoreUnavailable(Unavailable):
    code = "store-unavailable"


class Overloaded(Unavailable):
    code = "overloaded"


class IllegalTransition(DispatchError):
    code = "illegal-transition"
