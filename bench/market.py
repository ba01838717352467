"""``market``: what it takes to rank a whole market for one task: 3 providers x 500 types x 3 zones x 2 markets.

Owns the metric, its target and the scene. The time is that of the answer to "what could be rented now" as far as the
planner gives it: which offerings are shut, caps, quotas, fit, and the order. Reasons are made for whoever reads them,
and are not in it.
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.processes import BenchmarkFailed
from bench.report import Metric, Repetition, Target
from bench.yardsticks import take
from cloud_dispatch import collector
from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.offers import Ranking
from cloud_dispatch.planner.snapshot import Blocked, QuotaUse, Snapshot

PROVIDERS, TYPES, ZONES = 3, 500, 3
FAMILIES = 25
RANKINGS = 11
LOOP = "loop"
TARGETS = (Target(LOOP, 0.5),)
NOW_MS = 1_700_000_000_000
#: What is asked for: about half of the types are large enough.
WANTED = Shape(Resources(16_000, 64 * GIB))


def market(types: int) -> Snapshot:
    """Three profiles that sell everything, with a failure remembered and a quota told at each."""
    profiles = tuple(ProfileName(f"cloud{number}") for number in range(PROVIDERS))
    return Snapshot(
        now_ms=NOW_MS,
        demand=(),
        targets=(),
        supply=(),
        pools=(Pool(PoolName("pool"), profiles, markets=tuple(Market)),),
        offerings=tuple(one for number, profile in enumerate(profiles) for one in _sold(profile, number, types)),
        caps=Caps(instances=1_000),
        blocked=tuple(Blocked(profile, NOW_MS + 60_000, "none", type="t7.7", zone="a") for profile in profiles),
        quotas=tuple(
            QuotaUse(profile, "L-1", 8, 0, market="spot", family=f"f{number}", region="r")
            for profile in profiles
            for number in range(FAMILIES // 5)
        ),
    )


def _sold(profile: ProfileName, provider: int, types: int) -> Iterator[Offering]:
    for number in range(types):
        cpus, family = 2 ** (number % 8), number % FAMILIES
        ratio = 2 + 2 * (number % 4)
        capacity = Resources(cpus * 1_000, cpus * ratio * GIB, 100 * GIB)
        kind = InstanceType(f"t{family}.{number}", capacity, family=f"f{family}")
        full = 10_000_000 * cpus + 1_000_000 * ratio * cpus + 7_919 * number + 31 * provider
        for zone in "abc"[:ZONES]:
            for kept, rate in ((Market.ON_DEMAND, full), (Market.SPOT, full * 2 // 5 + 17 * ord(zone))):
                yield Offering(profile, kind, zone, kept, Rate(rate), max_rate=Rate(full), priced_ms=NOW_MS, region="r")


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """One metric: milliseconds a ranking, the median of RANKINGS in each repetition."""
    snapshot = market(TYPES // 10 if quick else TYPES)
    _check(snapshot, _ranked(snapshot))
    collector.keep()  # as a dispatcher does with what lives on
    yield Metric("market", "ranking", "ms", False, tuple(_repetition(folder, snapshot) for _ in range(repeat)), TARGETS)


def _ranked(snapshot: Snapshot) -> Ranking:
    return Ranking(snapshot, WANTED)


def _repetition(folder: Path, snapshot: Snapshot) -> Repetition:
    yardsticks = take(folder)
    taken = []
    for _ in range(RANKINGS):
        started = time.perf_counter()
        _ranked(snapshot)
        taken.append(time.perf_counter() - started)
    return Repetition(statistics.median(taken) * 1e3, {LOOP: yardsticks.loop * 1e3}, yardsticks)


def _check(snapshot: Snapshot, ranking: Ranking) -> None:
    """That it is the whole market that is ranked, in order, and that nothing is missing."""
    rates = [one.offering.rate or 0 for one in ranking.offers]
    rest = ranking.excluded()
    if rates != sorted(rates) or not rates or not rest or len(rates) + len(rest) != len(snapshot.offerings):
        raise BenchmarkFailed(f"{len(rates)} offers and {len(rest)} others of {len(snapshot.offerings)} offerings")
