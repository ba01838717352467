"""``spend``: what one full check of all budgets costs.

Owns the metric, its target and the scene: instances that end within a day, each counting for the deployment, a driver,
a profile and a pool, under budgets of every window. Everything is added up from nothing, and every window of every
budget is held against its limit. Before that the sums are held against direct ones.
"""

import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.interleave import interleave
from bench.processes import BenchmarkFailed
from bench.report import Metric, Target
from bench.yardsticks import loop
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Commitment, Key, Scope
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.windows import DAY_MS, Window, spans

INSTANCES, DRIVERS, PROFILES, POOLS = 1_000, 4, 15, 30
#: Checks a repetition, and loops: medians are compared.
CHECKS = 21
LOOP = "loop"
TARGETS = (Target(LOOP, 1.0),)
_NOW_MS = 1_798_750_000_000
#: More than can be committed: a check that finds nothing has looked at everything.
_AMPLE = Amount(10**15)


def measure(folder: Path, repeat: int, quick: bool) -> Iterator[Metric]:
    """One metric: milliseconds a check of 1,000 instances and 200 budgets."""
    budgets, commitments = budgets_of_all(), instances(INSTANCES // 10 if quick else INSTANCES)
    _verify(budgets, commitments)

    loops: list[float] = []

    def ours() -> float:
        """A loop between any two checks: a machine whose speed changes within seconds changes both alike."""
        checks = []
        loops.clear()
        for _ in range(CHECKS):
            checks.append(_timed(budgets, commitments))
            loops.append(loop() * 1_000)
        return statistics.median(checks)

    repetitions = interleave(folder, repeat, ours, {LOOP: lambda: statistics.median(loops)})
    yield Metric("spend", "check_1000x200", "ms", False, repetitions, TARGETS)


def budgets_of_all() -> list[Budget]:
    """A budget of each window for everybody: 200."""
    return [Budget(key, window, _AMPLE) for key in _keys() for window in Window]


def instances(count: int) -> list[Commitment]:
    """VMs that began within the last day and end within the next."""
    chance, keys = random.Random(1), _keys()
    drivers, profiles, pools = keys[1 : 1 + DRIVERS], keys[1 + DRIVERS : -POOLS], keys[-POOLS:]
    return [
        Commitment(
            f"vm-{number}",
            (EVERYTHING, drivers[number % DRIVERS], profiles[number % PROFILES], chance.choice(pools)),
            Rate(chance.randint(10_000_000, 40_000_000_000)),
            _NOW_MS - chance.randint(0, DAY_MS),
            _NOW_MS + chance.randint(HOUR_MS // 2, DAY_MS),
            60_000,
            1_000,
        )
        for number in range(count)
    ]


def _keys() -> list[Key]:
    scopes = ((Scope.DRIVER, DRIVERS), (Scope.PROFILE, PROFILES), (Scope.POOL, POOLS))
    return [EVERYTHING, *(Key(scope, f"{scope}-{i}") for scope, count in scopes for i in range(count))]


def _timed(budgets: list[Budget], commitments: list[Commitment]) -> float:
    started = time.perf_counter()
    found = Standing(budgets, {}, commitments, _NOW_MS).overrun()
    seconds = time.perf_counter() - started
    if found:
        raise BenchmarkFailed(f"an ample budget is overrun: {found[0]}")
    return seconds * 1_000


def _verify(budgets: list[Budget], commitments: list[Commitment]) -> None:
    """BenchmarkFailed unless what is committed is what the instances may bill, window for window."""
    standing = Standing(budgets, {}, commitments, _NOW_MS)
    for budget in budgets:
        covered = [one for one in commitments if budget.key in one.keys]
        for span in spans(budget.window, _NOW_MS, _NOW_MS + DAY_MS):
            if standing.committed(budget, span) != sum(one.charge(span) for one in covered):
                raise BenchmarkFailed(f"{budget.name}: {standing.committed(budget, span)} is not what is committed")
