"""What whoever submits tasks should know at once, though they are taken. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.task import TaskSpec

#: At most so many: they are for people.
MOST = 20


def notes_of(specs: Sequence[TaskSpec], pools: Mapping[PoolName, Pool]) -> list[str]:
    """That tasks name a pool that is not there, or are expected to run for longer than instances live. Both are taken:
    a pool may come to be, a lifetime may become another, and what is expected may be wrong."""
    missing, cut = Counter[str](), Counter[tuple[str, int]]()
    longest = max((pool.end.lifetime_ms for pool in pools.values()), default=0)
    for spec in specs:
        name = PoolName(spec.shape.pool)
        if name and name not in pools:
            missing[name] += 1
        elif spec.expected_runtime_ms and not spec.checkpoint_signal:
            lifetime_ms = pools[name].end.lifetime_ms if name else longest
            if spec.expected_runtime_ms > lifetime_ms > 0:
                cut[name, lifetime_ms] += 1
    known = ", ".join(sorted(pools)) or "none"
    notes = [
        f"there is no pool {name!r} (pools: {known}): {_tasks(count)} waiting until there is"
        for name, count in sorted(missing.items())
    ]
    notes += [
        f"{_tasks(count)} expected to run longer than instances of {f'pool {name}' if name else 'any pool'} live "
        f"({format_duration(lifetime_ms)}): ended with them, and in vain; see `lifetime` of pools"
        for (name, lifetime_ms), count in sorted(cut.items())
    ]
    return notes[:MOST]


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
