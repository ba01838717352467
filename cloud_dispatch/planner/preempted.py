"""What preemptions make of a price. Owns the estimate of how often VMs of an offering are preempted, and by how much
that makes useful work dearer there.

A preference and nothing else: what may be launched, limits, caps and price factors know real prices alone. Pure; must
not know where the counts come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.preemptions import Preemptions

MINUTE_MS = 60_000
#: Weights are in this fraction: so much is a price as it is.
EVEN = 1024
#: How much running time it takes until what was seen of an offering counts as much as what is thought of its zone; the
#: same of the zone and its profile, and of the profile, of which nothing bad is thought beforehand.
OFFERING_MS, ZONE_MS, PROFILE_MS = 10 * MINUTE_MS, 2 * HOUR_MS, 8 * HOUR_MS
#: Preemptions in a thousand hours; what is rarer is none.
RAREST = 20
#: So many leading bits of a rate are told apart: offerings of about the same rate are one stock.
BITS = 3
#: So long a task is taken to be that does not say it.
WORK_MS = 10 * MINUTE_MS
#: How many preemptions in the time of one task are reckoned with at most.
MOST = 16

K = TypeVar("K")


class Passed(NamedTuple):
    """A cheaper offering that is not rented, since its VMs are `preempted` (in a thousand hours), which makes work of
    `work_ms` (0: unknown) cost as many times its price as its `weight` says, in `EVEN`."""

    offering: Offering
    preempted: int
    work_ms: int
    weight: int


#: Preemptions in thousandths, and the running time in which they came.
_Counts = tuple[int, int]


class PreemptionRates:
    """How often the spot VMs of an offering are preempted, in a thousand hours. What little was seen of an offering is
    made up for by what was seen in its zone, what of that by its profile."""

    def __init__(self, seen: Iterable[Preemptions]) -> None:
        seen = tuple(seen)
        profiles = _summed((one.profile, one) for one in seen)
        zones = _summed(((one.profile, one.zone), one) for one in seen)
        places = _summed(((one.profile, one.type, one.zone), one) for one in seen)
        self._profiles = {profile: _rate(counts, 0, PROFILE_MS) for profile, counts in profiles.items()}
        self._zones = {(p, z): _rate(counts, self._profiles[p], ZONE_MS) for (p, z), counts in zones.items()}
        self._places = {
            (p, t, z): _rate(counts, self._zones[p, z], OFFERING_MS) for (p, t, z), counts in places.items()
        }

    def __bool__(self) -> bool:
        return bool(self._places)

    def of(self, offering: Offering) -> int:
        """About how often; 0 where it is too seldom to matter."""
        if offering.market is not Market.SPOT:
            return 0
        profile, zone = offering.profile, offering.zone
        rate = self._places.get((profile, offering.type.name, zone))
        if rate is None:
            rate = self._zones.get((profile, zone))
        if rate is None:
            rate = self._profiles.get(profile, 0)
        if rate < RAREST:
            return 0
        shift = max(rate.bit_length() - BITS, 0)
        return rate >> shift << shift


def _summed(counted: Iterable[tuple[K, Preemptions]]) -> dict[K, _Counts]:
    found: dict[K, _Counts] = {}
    for key, one in counted:
        preempted, ran_ms = found.get(key, (0, 0))
        found[key] = (preempted + one.preempted, ran_ms + one.ran_ms)
    return found


def _rate(counts: _Counts, thought: int, worth_ms: int) -> int:
    """What was seen, and `thought` beforehand as if that had been seen for `worth_ms`."""
    preempted, ran_ms = counts
    return (preempted * HOUR_MS + thought * worth_ms) // (ran_ms + worth_ms)


@lru_cache(maxsize=4096)
def weight(rate: int, work_ms: int, boot_ms: int) -> int:
    """What useful work costs where VMs are preempted at `rate`, as a multiple of the price, in `EVEN`.

    A task that takes L, begun anew each time, takes (e^x - 1) / x times as long in all, where x is how often a VM is
    preempted in L; and each time another VM boots, which is paid for as well.
    """
    x = min(rate * (work_ms or WORK_MS) * EVEN // (1000 * HOUR_MS), MOST * EVEN)
    total = term = EVEN
    step = 1
    while term:
        step += 1
        term = term * x // (step * EVEN)
        total += term
    return total + total * rate * boot_ms // (1000 * HOUR_MS)
