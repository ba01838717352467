"""What an attempt knows of transfers before it has any: where outputs go, and how a transfer fails.

Apart from `transfers`, whose part of the standard library takes long to load, and which most tasks never need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Optional

if TYPE_CHECKING:
    import ssl


class TransferFailed(Exception):
    """An input is not to be had, or an output can't be stored; the text is for the task's user."""


class TransferStopped(Exception):
    """The attempt is killed: its transfers stop."""


@dataclass(frozen=True)
class Depot:
    """Where outputs without a URL go: the dispatcher, by its URL and a token: the agent's of the moment, or the
    attempt's own."""

    url: str
    token: Callable[[], str]
    tls: Optional[ssl.SSLContext]
    fingerprint: str
