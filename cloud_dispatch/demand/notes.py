"""What whoever submits tasks should know at once, though they are taken. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.shape import Labels
from cloud_dispatch.domain.task import TaskSpec

#: At most so many: they are for people.
MOST = 20
#: Labels that instances have whatever their pool: which values there are, offerings alone say.
_OF_OFFERINGS = frozenset({"arch", "market", "type", "zone"})


def notes_of(specs: Sequence[TaskSpec], pools: Mapping[PoolName, Pool]) -> list[str]:
    """That tasks name a pool that is not there, or labels that no pool has, or are expected to run for longer than
    instances live. All are taken: a pool may come to be, a lifetime may become another, what is expected may be wrong,
    and offerings may have labels of their own."""
    missing, cut = Counter[str](), Counter[tuple[str, int]]()
    asked, bare = Counter[tuple[PoolName, Labels]](), Counter[tuple[PoolName, Labels]]()
    longest = max((pool.end.lifetime_ms for pool in pools.values()), default=0)
    for spec in specs:
        name = PoolName(spec.shape.pool)
        if name and name not in pools:
            missing[name] += 1
        elif spec.expected_runtime_ms and not spec.checkpoint_signal:
            lifetime_ms = pools[name].end.lifetime_ms if name else longest
            if spec.expected_runtime_ms > lifetime_ms > 0:
                cut[name, lifetime_ms] += 1
        if spec.shape.labels and (not name or name in pools):
            asked[name, spec.shape.labels] += 1
    for (name, labels), count in asked.items():  # of a great many tasks few differ
        own = frozenset(label for label in labels if label[0] not in _OF_OFFERINGS)
        if own and not any(own.issubset(one.labels) for one in ([pools[name]] if name else pools.values())):
            bare[name, tuple(sorted(own))] += count
    known = ", ".join(sorted(pools)) or "none"
    labels_known = _labels(sorted({label for pool in pools.values() for label in pool.labels})) or "none"
    notes = [
        f"there is no pool {name!r} (pools: {known}): {_tasks(count)} waiting until there is"
        for name, count in sorted(missing.items())
    ]
    notes += [
        f"{_tasks(count)} expected to run longer than instances of {f'pool {name}' if name else 'any pool'} live "
        f"({format_duration(lifetime_ms)}): ended with them, and in vain; see `lifetime` of pools"
        for (name, lifetime_ms), count in sorted(cut.items())
    ]
    notes += [
        f"{f'pool {name} lacks' if name else 'no pool has'} {_labels(labels)}"
        f" (labels of pools: {labels_known}):"
        f" {_tasks(count)} waiting until {'it' if name else 'one'} has, or an offering does"
        for (name, labels), count in sorted(bare.items())
    ]
    return notes[:MOST]


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels)


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
