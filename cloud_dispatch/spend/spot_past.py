"""Spot VMs, those that live and those that are gone: how long they ran, and how often one was preempted. Owns the
counts, and how they fade.

What is past counts half after `HALF_LIFE_MS`, half of that after as long again. So a zone that was passed over is tried
again some hours later. Kept as instances come and go: what is asked for does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.preemptions import Preemptions
from cloud_dispatch.spend.clocks import CLOCKS_MS

HALF_LIFE_MS = 2 * HOUR_MS
#: What has run for ever counts as so much.
MEAN_LIFE_MS = HALF_LIFE_MS / log(2)
#: By then next to nothing is left of what was seen.
FADED_MS = 12 * HALF_LIFE_MS
#: As an instance says that its provider took its VM back.
CAUSE = "preempted"
#: So much of a preemption, and of running time, is as good as none.
_LEAST, _LEAST_MS = 0.005, 1_000


class Place(NamedTuple):
    """Whose VMs are counted together."""

    profile: ProfileName
    type: str
    zone: str


@dataclass(slots=True)
class _Count:
    """`preempted` and `ran_ms` of those that are gone, as they count at `at_ms`; how many are `living`, and how much
    still counts, all of them together, of the moments in which they began (`begun`): it fades like the rest, so that
    how long each has run needs not be asked."""

    preempted: float = 0.0
    ran_ms: float = 0.0
    at_ms: int = 0
    living: int = 0
    begun: float = 0.0

    def fade(self, now_ms: int) -> None:
        """Bring it to `now_ms`; earlier than it is already it stays as it is."""
        if now_ms > self.at_ms:
            kept = _kept(now_ms - self.at_ms)
            self.preempted, self.ran_ms, self.begun = self.preempted * kept, self.ran_ms * kept, self.begun * kept
            self.at_ms = now_ms

    def reach(self, now_ms: int) -> None:
        """`fade` by a clock that is right: what was noted while it was ahead would else not fade until then."""
        if self.at_ms > now_ms + CLOCKS_MS:
            self.at_ms = now_ms
        self.fade(now_ms)

    def join(self, since_ms: int) -> None:
        """One more lives, since then."""
        self.fade(since_ms)
        self.living, self.begun = self.living + 1, self.begun + _kept(self.at_ms - since_ms)

    def leave(self, since_ms: int) -> None:
        """One lives no more that did since then; nothing is left over by the last one, however clocks were set."""
        self.living -= 1
        self.begun = max(self.begun - _kept(self.at_ms - since_ms), 0.0) if self.living else 0.0

    @property
    def all_ran_ms(self) -> float:
        """How long all of them have run, in what counts at `at_ms`."""
        return self.ran_ms + MEAN_LIFE_MS * max(self.living - self.begun, 0.0)


class SpotPast:
    """Bounded by how many types in zones VMs were of; those of which nothing counts any more are forgotten."""

    def __init__(self) -> None:
        self._counts: dict[Place, _Count] = {}
        self._preempting: set[Place] = set()

    def see(self, before: Instance | None, after: Instance) -> None:
        """An instance is now `after`; it was `before`, None: it is new."""
        was = None if before is None else _life(before)
        now = _life(after)
        if was != now:
            if was is not None:
                self._count(was[0]).leave(was[1])
            if now is not None:
                self._count(now[0]).join(now[1])
        if before is not None and after.state is InstanceState.GONE:
            self.ended(after)

    def ended(self, gone: Instance) -> None:
        """Count the life of a VM that is gone; in whatever order."""
        if gone.market is not Market.SPOT or not gone.vm or gone.ended_ms is None:
            return
        count = self._count(_place(gone))
        count.fade(gone.ended_ms)
        kept = _kept(count.at_ms - gone.ended_ms)
        count.ran_ms += kept * _counted(gone.ended_ms - gone.intended_ms)
        if gone.cause == CAUSE:
            count.preempted += kept
            self._preempting.add(_place(gone))

    @property
    def living(self) -> Mapping[Place, int]:
        """How many live."""
        return {place: count.living for place, count in self._counts.items() if count.living}

    def seen(self, now_ms: int) -> Sequence[Preemptions]:
        """What counts now; nothing at all as long as nothing is preempted anywhere."""
        for place in sorted(self._preempting):
            count = self._counts[place]
            count.reach(now_ms)
            if count.preempted < _LEAST:
                self._preempting.discard(place)
        if not self._preempting:
            return ()
        found = []
        for place in sorted(self._counts):
            count = self._counts[place]
            count.reach(now_ms)
            ran_ms = count.all_ran_ms
            if place in self._preempting or ran_ms >= _LEAST_MS:
                found.append(Preemptions(*place, round(count.preempted * 1000), round(ran_ms)))
            elif not count.living:
                del self._counts[place]
        return tuple(found)

    def _count(self, place: Place) -> _Count:
        return self._counts.setdefault(place, _Count())


def _place(instance: Instance) -> Place:
    return Place(instance.profile, instance.type, instance.zone)


def _life(own: Instance) -> tuple[Place, int] | None:
    """Of a spot VM that lives, where it is and since when; what has no VM yet does not run."""
    if own.market is not Market.SPOT or not own.vm or own.state is InstanceState.GONE:
        return None
    return _place(own), own.intended_ms


def _kept(age_ms: int) -> float:
    """How much still counts of what is so long past."""
    return float(0.5 ** (max(age_ms, 0) / HALF_LIFE_MS))


def _counted(ran_ms: int) -> float:
    """How much of so long a run counts at its end: its beginning is past by then."""
    return MEAN_LIFE_MS * (1.0 - _kept(ran_ms))
