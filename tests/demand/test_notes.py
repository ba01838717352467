"""What is told to whoever submits tasks that will wait, or run in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cloud_dispatch.demand.notes import MOST, notes_of
from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.pool import EndRules, Pool
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TaskSpec

HOUR = 3_600_000
POOLS = {
    PoolName(name): Pool(PoolName(name), (), end=EndRules(lifetime_ms=hours * HOUR))
    for name, hours in (("short", 2), ("long", 24))
}


def task(hours: int = 0, pool: str = "", **more: object) -> TaskSpec:
    made = TaskSpec(argv=("true",), expected_runtime_ms=hours * HOUR, shape=Shape(pool=pool))
    return replace(made, **more)  # type: ignore[arg-type]


def test_nothing_is_to_be_said_of_tasks_that_will_run() -> None:
    fine = [task(), task(24), task(2, "short"), task(100, checkpoint_signal="SIGUSR1"), task(0, "short")]
    assert notes_of(fine, POOLS) == []
    assert notes_of([task(100)], {}) == []
    labelled = {PoolName("big"): replace(POOLS[PoolName("long")], labels=(("rack", "7"), ("size", "large")))}
    wanted = Shape(labels=(("arch", "arm64"), ("size", "large"), ("zone", "b")))
    assert notes_of([task(shape=wanted), task(shape=replace(wanted, pool="big"))], {**POOLS, **labelled}) == []
    assert notes_of([task(shape=Shape(pool="nope", labels=(("size", "small"),)))], labelled) == [
        "there is no pool 'nope' (pools: big): 1 task waiting until there is"
    ]


def test_labels_that_no_pool_has_are_named_with_those_that_pools_have() -> None:
    """One pool has to have all of them; where one is named, that one. What offerings alone say is not looked at."""
    labels = {"one": (("size", "large"),), "two": (("rack", "7"),)}
    pools = {PoolName(name): Pool(PoolName(name), (), labels=own) for name, own in labels.items()}
    both = Shape(labels=(("rack", "7"), ("size", "large"), ("zone", "b")))
    small = Shape(labels=(("size", "small"),))
    known = "(labels of pools: rack=7, size=large)"
    assert notes_of([task(shape=both), *[task(shape=small)] * 2, task(shape=replace(small, pool="two"))], pools) == [
        f"no pool has rack=7, size=large {known}: 1 task waiting until one has, or an offering does",
        f"no pool has size=small {known}: 2 tasks waiting until one has, or an offering does",
        f"pool two lacks size=small {known}: 1 task waiting until it has, or an offering does",
    ]
    assert "(labels of pools: none)" in notes_of([task(shape=small)], POOLS)[0]


def test_the_labels_of_many_tasks_are_looked_for_once() -> None:
    """A submission has as many tasks as there are in a sweep, and a deployment dozens of pools."""
    looked = []

    class Looked(tuple[tuple[str, str], ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[tuple[str, str]]:
            looked.append(self)
            return super().__iter__()

    pools = {PoolName("one"): Pool(PoolName("one"), (), labels=Looked((("size", "large"),)))}
    wanted = Shape(labels=(("size", "small"),))
    looked.clear()
    (told,) = notes_of([task(shape=wanted)] * 1_000, pools)
    assert "1000 tasks waiting" in told
    assert len(looked) < 10


def test_a_pool_that_is_not_there_is_named_once() -> None:
    assert notes_of([task(pool="nope"), task(99, "gone"), task(pool="nope")], POOLS) == [
        "there is no pool 'gone' (pools: long, short): 1 task waiting until there is",
        "there is no pool 'nope' (pools: long, short): 2 tasks waiting until there is",
    ]
    assert "(pools: none)" in notes_of([task(pool="nope")], {})[0]
    assert len(notes_of([task(pool=f"p{n}") for n in range(100)], POOLS)) == MOST


def test_what_instances_do_not_live_for_is_told_by_pool() -> None:
    """Where none is asked for, the pool counts whose instances live longest."""
    words = "ended with them, and in vain; see `lifetime` of pools"
    assert notes_of([task(25), task(3, "short"), task(4, "short"), task(25, "long")], POOLS) == [
        f"1 task expected to run longer than instances of any pool live (1d): {words}",
        f"1 task expected to run longer than instances of pool long live (1d): {words}",
        f"2 tasks expected to run longer than instances of pool short live (2h): {words}",
    ]
