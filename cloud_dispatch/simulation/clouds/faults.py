"""Faults as data, and which of them strike now. Owns matching and counting; what a fault does is the engine's.

A scenario lists faults, a shrinker drops some: none of them depends on another or on its place in the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cloud_dispatch.domain.offering import Market


class FaultKind(StrEnum):
    """What goes wrong. `amount` means what the comment says."""

    # calls of `operation` ("" for any)
    ERROR = "error"  # answered with `error`; nothing is done
    LOST_ANSWER = "lost-answer"  # carried out, then the connection breaks: InDoubt
    NO_ANSWER = "no-answer"  # carried out, and the caller hears nothing, for ever
    SLOW = "slow"  # the answer comes `amount` ms late
    ASYNC_FAILURE = "async-failure"  # a create is accepted and fails with `error` afterwards
    # reads
    STALE = "stale"  # shows the world of `amount` ms ago, at most the account's consistency horizon
    INCOMPLETE = "incomplete"  # a listing breaks off after `amount` pages
    # what can be had
    CAPACITY = "capacity"  # at most `amount` VMs in the scope
    QUOTA = "quota"  # at most `amount` vCPUs of the family of `type` on `market`
    PRICE = "price"  # the spot price in the scope is `amount` nano-dollars an hour
    # VMs that are told to end in the window
    STAYS = "stays"  # the order is accepted and comes to nothing: after `amount` ms the VM is as it was
    # VMs that end in the window
    LEFTOVER = "leftover"  # what came with it stays behind; `code` says which kind, "" for all
    # VMs made in the window
    NEVER_STARTS = "never-starts"
    NEVER_BOOTS = "never-boots"
    USER_DATA_FAILS = "user-data-fails"
    LATE = "late"  # boots `amount` ms later
    DRIFT = "drift"  # the guest's clock runs fast by `amount` parts per million
    WRONG_CLOCK = "wrong-clock"  # the guest's wall clock is fast by `amount` ms when it boots
    # `times` running VMs (at least one) at `from_ms`
    DEATH = "death"  # the VM dies, and the cloud knows
    HANG = "hang"  # the guest dies, and the cloud shows it running
    PREEMPT = "preempt"  # spot VMs only; with `amount` ms of notice; -1 for the cloud's own
    CUT_OFF = "cut-off"  # from then to `until_ms` nothing passes between the VM and the dispatcher
    FREEZE = "freeze"  # until `until_ms` the VM stands still; with `amount` 1 its clock as well
    HIDDEN = "hidden"  # from then on listings leave it out for `amount` ms, at most the consistency horizon
    # the account
    NEIGHBOUR = "neighbour"  # `times` VMs of others live in it, whose tags name the deployment `code` (1: and no more)
    REAPER_DOWN = "reaper-down"  # the hand that ends VMs at their `ends_at` does nothing


NEVER_MS = 32_503_680_000_000
#: Nothing is wrong while they last.
USUAL = (FaultKind.PRICE, FaultKind.NEIGHBOUR)
#: Faults that happen to VMs at a moment.
STRIKES = (
    FaultKind.DEATH, FaultKind.HANG, FaultKind.PREEMPT, FaultKind.CUT_OFF, FaultKind.FREEZE, FaultKind.HIDDEN,
)  # fmt: skip
#: Those that last: who is not there when they begin is spared.
LASTING = (FaultKind.CUT_OFF, FaultKind.FREEZE)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. Times are milliseconds since the account was made; `until_ms` 0 is for ever.

    The first `skip` matches are spared, then `times` are struck (0: all in the window). Empty fields match anything.
    `error` is a class of `provider.errors`, `code` the cloud's word for it.
    """

    kind: FaultKind
    operation: str = ""
    type: str = ""
    zone: str = ""
    market: Market | None = None
    from_ms: int = 0
    until_ms: int = 0
    skip: int = 0
    times: int = 0
    amount: int = 0
    error: str = "Transient"
    code: str = ""
    retry_after_ms: int = 0

    def covers(self, at_ms: int) -> bool:
        """Whether the moment, in ms since the account was made, lies in the window."""
        return self.from_ms <= at_ms and (at_ms < self.until_ms or not self.until_ms)

    def speaks_of(self, type_name: str, zone: str, market: Market | None) -> bool:
        """Whether the scope includes this one."""
        return (
            self.type in ("", type_name) and self.zone in ("", zone) and (self.market is None or self.market is market)
        )


@dataclass(slots=True)
class _Counted:
    fault: Fault
    seen: int = 0


class FaultBook:
    """The faults of one account, with what is left of their counts."""

    def __init__(self, faults: Iterable[Fault], born_ms: int) -> None:
        self._born_ms = born_ms
        self._by_kind: dict[FaultKind, list[_Counted]] = {}
        for fault in faults:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        """One more, for calls and VMs; faults of a moment and of prices are heeded only where listed from the start."""
        self._by_kind.setdefault(fault.kind, []).append(_Counted(fault))

    def drop(self, kind: FaultKind) -> None:
        """No more faults of this kind."""
        self._by_kind.pop(kind, None)

    def of(self, *kinds: FaultKind) -> list[Fault]:
        """All faults of these kinds, in the order of the kinds and of the scenario."""
        return [counted.fault for kind in kinds for counted in self._by_kind.get(kind, ())]

    def begins_ms(self, fault: Fault) -> int:
        """When its window opens, epoch ms."""
        return self._born_ms + fault.from_ms

    def ends_ms(self, fault: Fault) -> int:
        """When its window closes, epoch ms; in the year 3000 where it never does."""
        return self._born_ms + fault.until_ms if fault.until_ms else NEVER_MS

    def take(
        self, kind: FaultKind, now: int, operation: str = "", type_name: str = "", zone: str = "",
        market: Market | None = None,
    ) -> Fault | None:  # fmt: skip
        """The first fault of this kind that strikes here and now, and it counts as having struck."""
        for counted in self._by_kind.get(kind, ()):
            fault = counted.fault
            if fault.operation not in ("", operation) or not fault.covers(now - self._born_ms):
                continue
            if not fault.speaks_of(type_name, zone, market):
                continue
            counted.seen += 1
            if counted.seen > fault.skip and (not fault.times or counted.seen <= fault.skip + fault.times):
                return fault
        return None

    def standing(
        self, kind: FaultKind, now: int, type_name: str = "", zone: str = "", market: Market | None = None
    ) -> Fault | None:
        """The first fault of a state of affairs (capacity, price) that holds now; nothing is counted."""
        for fault in self.all_standing(kind, now):
            if fault.speaks_of(type_name, zone, market):
                return fault
        return None

    def all_standing(self, kind: FaultKind, now: int) -> list[Fault]:
        """Every fault of a state of affairs that holds now, whatever its scope."""
        entries = self._by_kind.get(kind)
        if not entries:
            return []
        return [counted.fault for counted in entries if counted.fault.covers(now - self._born_ms)]
