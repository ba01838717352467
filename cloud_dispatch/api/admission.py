"""Who may stay connected. Owns the count of connections and which of them goes when there are too many.

A connection is a stranger's until a request on it carries a token that was made here; then it is that caller's. Either
kind has its bound, so that no crowd of strangers takes the place of agents. Nobody is turned away at the door: where a
kind has too many, whoever holds most of it loses the oldest of theirs, strangers by their address. So one who opens
connections without end pushes out nobody but themselves.

Must not know sockets, HTTP or tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address

from cloud_dispatch.ports.clock import Clock

#: Descriptors that are not for connections: the statestore's, drivers' processes, and what is opened for a moment.
RESERVE = 256
STRANGERS, CALLERS = "strangers", "callers"
#: So long after a connection was cut off the dispatcher's health says so.
_TOLD_MS = 60_000
_CUT = "whoever has most of them loses the oldest"


def descriptors_for(connections: int) -> int:
    """How many descriptors so many connections may take: each may have a file that is sent or received."""
    return 2 * connections + RESERVE


def connections_for(descriptors: int) -> int:
    """How many connections there may be with so many descriptors; a few at least."""
    return max((descriptors - RESERVE) // 2, 16)


def origin(address: str) -> str:
    """Whose `address` is, for the count of strangers: of IPv6 whoever has one has a whole /64 of them."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)


class Guest:
    """One connection. Who serves it says when it speaks for somebody, and when it is over. `show_out` closes it."""

    __slots__ = ("_admission", "_party", "holder", "show_out")

    def __init__(self, admission: Admission, party: _Party, holder: str, show_out: Callable[[], object]) -> None:
        self._admission = admission
        self._party: _Party | None = party
        self.holder = holder
        self.show_out = show_out

    def speaks_for(self, caller: str) -> None:
        """A token of `caller` was shown on it."""
        callers = self._admission.callers
        if self._party is None or (self._party is callers and self.holder == caller):
            return
        self._party.remove(self)
        self.holder, self._party = caller, callers
        callers.add(self)

    def left(self) -> None:
        """The connection is over."""
        party, self._party = self._party, None
        if party is not None:
            party.remove(self)


class _Party:
    """The connections of one kind, by who holds them, the oldest first."""

    def __init__(self, most: int, clock: Clock) -> None:
        self.most = most
        self.size = self.cut = 0
        self._clock = clock
        self._cut_ms: int | None = None
        self._held: dict[str, dict[Guest, None]] = {}

    def add(self, guest: Guest) -> None:
        self._held.setdefault(guest.holder, {})[guest] = None
        self.size += 1
        if self.size > self.most:
            greediest = max(self._held.values(), key=len)
            one = next(iter(greediest))
            self.cut, self._cut_ms = self.cut + 1, self._clock.monotonic()
            one.left()
            one.show_out()

    def remove(self, guest: Guest) -> None:
        held = self._held[guest.holder]
        del held[guest]
        self.size -= 1
        if not held:
            del self._held[guest.holder]

    def is_full(self) -> bool:
        """Whether one was cut off a short while ago."""
        return self._cut_ms is not None and self._clock.monotonic() - self._cut_ms < _TOLD_MS


class Admission:
    """All connections, at most `most`, of which `strangers` are for those who have shown no token."""

    def __init__(self, most: int, strangers: int, clock: Clock) -> None:
        strangers = min(strangers, max(most // 4, 1))
        self.strangers = _Party(strangers, clock)
        self.callers = _Party(most - strangers, clock)

    def enter(self, address: str, show_out: Callable[[], object]) -> Guest:
        """A connection that `address` has opened. It, or another one, may be shown out at once."""
        guest = Guest(self, self.strangers, origin(address), show_out)
        self.strangers.add(guest)
        return guest

    def counts(self) -> Mapping[str, tuple[int, int]]:
        """By kind: how many there are, and how many were cut off for others since the start."""
        return {STRANGERS: (self.strangers.size, self.strangers.cut), CALLERS: (self.callers.size, self.callers.cut)}

    def troubles(self) -> list[str]:
        """What is wrong, for the dispatcher's health."""
        told = []
        if self.strangers.is_full():
            why = "a flood, or too low a limits.connections_without_token; let a firewall admit your VMs alone"
            told.append(f"of connections without a token there are more than {self.strangers.most:,}: {_CUT} ({why})")
        if self.callers.is_full():
            why = "limits.connections, or the limit of open files, is too low; or a VM opens them without end"
            told.append(f"of connections with a token there are more than {self.callers.most:,}: {_CUT} ({why})")
        return told
