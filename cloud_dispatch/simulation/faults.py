"""Faults of the dispatcher, its store, the network and agents, as data. What clouds do wrong is the clouds' own.

A scenario lists faults, a shrinker drops some: none depends on another or on its place in the list.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class FaultKind(StrEnum):
    """What goes wrong. `amount`, `which` and `point` mean what the comment says."""

    # the dispatcher
    CRASH = "crash"  # dies from `at_ms` on, the `which`-th time that it passes `point`; down for `amount` ms
    STOP = "stop"  # is told to stop, is down for `amount` ms
    TERMS = "terms"  # where it starts until `until_ms`, its waits and leases are `amount` times as long
    CLOCK = "clock"  # its wall clock is off by `amount` ms until `until_ms`
    # the statestore
    STORE_FAILS = "store-fails"  # every commit fails until `until_ms`
    STORE_CUT = "store-cut"  # it can't be reached until `until_ms`; the commit under way is carried out, or is not
    STORE_MUTE = "store-mute"  # until `until_ms` `amount` percent of the commits get no answer, and are looked up
    STORE_SLOW = "store-slow"  # every access takes `amount` ms until `until_ms`
    RESTORE = "restore"  # the dispatcher dies, and comes back on a backup that is `amount` ms old
    # It dies, and comes back on an empty store; after `amount` ms an operator has it take over what the lost one made,
    # and users submit anew.
    LOSE = "lose"
    FALL_BACK = "fall-back"  # it loses the commits of the last `amount` ms under the dispatcher, which lives on
    # the network, until `until_ms`
    LOSS = "loss"  # `amount` percent of the requests and answers are lost
    DELAY = "delay"  # `amount` ms more on average, each its own: requests overtake each other
    PARTITION = "partition"  # nothing passes
    # agents; `which` chooses among those that live
    AGENT_CRASH = "agent-crash"
    AGENT_HANG = "agent-hang"
    # what an operator does; `which` chooses
    DRAIN = "drain"
    HOLD = "hold"  # until `until_ms`
    KILL = "kill"
    CANCEL = "cancel"  # one task
    PAUSE = "pause"  # launching, until `until_ms`
    STOP_ALL = "stop-all"  # the kill switch at its level `which`, until `until_ms`
    CONFIGURE = "configure"  # another configuration until `until_ms`: `configurations` has which
    TARGET = "target"  # of one pool: `amount` instances until `until_ms`


#: Points of a crash: at any await, or where the order of two effects matters.
POINTS = ("step", "commit", "launch asked", "launch answered", "list answered", "terminate asked", "terminate answered")


#: Faults that last beyond their moment: for so many milliseconds, 0 for their amount.
_LASTS = {FaultKind.CRASH: 0, FaultKind.STOP: 0, FaultKind.RESTORE: 2_000, FaultKind.AGENT_HANG: 65_000,
          FaultKind.LOSE: 0}  # fmt: skip
#: An operator needs so long to see that the dispatcher writes nothing any more, and why.
NOTICED_MS = 20_000
_LASTS[FaultKind.FALL_BACK] = NOTICED_MS + 2_000


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that goes wrong. Times are virtual milliseconds since the run's start; `until_ms` 0 is at once over."""

    kind: FaultKind
    at_ms: int
    until_ms: int = 0
    amount: int = 0
    which: int = 0
    point: str = "step"

    @property
    def ends_ms(self) -> int:
        """When nothing of it is left, as far as it says so itself."""
        return max(self.at_ms + (_LASTS[self.kind] or self.amount if self.kind in _LASTS else 0), self.until_ms)

    def describe(self) -> str:
        """For the journal and for people."""
        said = [str(self.kind), f"at {self.at_ms} ms"]
        if self.until_ms:
            said.append(f"until {self.until_ms} ms")
        if self.amount:
            said.append(f"amount {self.amount}")
        if self.kind is FaultKind.CRASH:
            said.append(f"at {self.point} {self.which}")
        return " ".join(said)
