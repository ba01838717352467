"""Whether a task fits: an empty machine, a loaded one, and the reasons when it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.resources import GIB, Resources, format_bytes, format_cpus, parse_bytes, parse_cpus
from cloud_dispatch.domain.shape import Load, Machine, Shape, room_for

MACHINE = Machine(Resources(4000, 8 * GIB, 100 * GIB, 0), labels=(("zone", "a"),), pool="p")


def shape(cpus: int = 1000, memory: int = GIB, **more: object) -> Shape:
    return Shape(Resources(cpus, memory), **more)  # type: ignore[arg-type]


def test_room_is_bounded_by_the_scarcest_resource() -> None:
    """Memory runs out before cpus do."""
    assert room_for(MACHINE, Load(), shape(memory=3 * GIB), 10) == 2


def test_an_exclusive_task_wants_an_empty_machine_and_keeps_others_off() -> None:
    """Exclusive in both directions."""
    exclusive = shape(exclusive=True)
    assert room_for(MACHINE, Load(), exclusive, 10) == 1
    assert room_for(MACHINE, Load().plus(shape()), exclusive, 10) == 0
    assert room_for(MACHINE, Load().plus(exclusive), shape(), 10) == 0


def test_limits_per_instance_count_only_their_own_shape() -> None:
    """Two of the limited shape at most, others unaffected."""
    limited = shape(cpus=100, max_per_instance=2)
    load = Load().plus(limited).plus(limited)
    assert room_for(MACHINE, load, limited, 10) == 0
    assert room_for(MACHINE, load, shape(), 10) == 3


def test_a_pool_limit_on_tasks_at_once_holds() -> None:
    """max_tasks of the machine bounds all shapes together."""
    machine = Machine(MACHINE.capacity, max_tasks=2)
    assert room_for(machine, Load().plus(shape()), shape(), 10) == 1


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (shape(cpus=5000), "asks for 5 cpu, has 4"),
        (shape(memory=9 * GIB), "asks for 9GiB memory, has 8GiB"),
        (shape(labels=(("zone", "b"),)), "asks for label zone=b"),
        (shape(pool="q"), "asks for pool q, this is pool p"),
        (Shape(Resources(1, 1, 0, 1)), "asks for 1 gpu, has 0"),
    ],
)
def test_a_misfit_says_why(wanted: Shape, words: str) -> None:
    """The reason names what is asked for and what there is."""
    assert MACHINE.misfit(wanted) == words
    assert room_for(MACHINE, Load(), wanted, 1) == 0


def test_a_task_that_must_not_be_preempted_stays_off_spot() -> None:
    """preemptible False and spot never meet."""
    assert "preempted" in Machine(MACHINE.capacity, spot=True).misfit(shape(preemptible=False))


@given(st.integers(1, 10_000), st.integers(0, 20 * GIB), st.integers(0, 50))
def test_room_really_fits(cpus: int, memory: int, bound: int) -> None:
    """As many tasks as there is said to be room for can be put on one after the other, and not one more."""
    wanted = shape(cpus, memory)
    load = Load()
    for _ in range(room_for(MACHINE, Load(), wanted, bound)):
        assert room_for(MACHINE, load, wanted, 1) == 1
        load = load.plus(wanted)
    assert load.used.fits(MACHINE.capacity)
    assert load.tasks == bound or room_for(MACHINE, load, wanted, 1) == 0


def test_shape_keys_are_stable_and_distinct() -> None:
    """The key is the same in every process: it is written down here."""
    assert Shape().key == "ad9c15d829829fe7"
    assert len({Shape().key, shape().key, shape(exclusive=True).key, shape(preemptible=False).key}) == 4


def test_quantities_are_read_and_written() -> None:
    """Text of sizes and cpus, both ways."""
    assert parse_bytes("8GiB") == parse_bytes("8G") == 8 * GIB
    assert parse_bytes("1.5GB") == 1_500_000_000
    assert parse_cpus("0.5") == 500
    assert (format_bytes(3 * GIB // 2), format_cpus(1500)) == ("1.5GiB", "1.5")
    for bad in ("8 apples", -1, "x", ""):
        with pytest.raises(ValueError, match=r"size|negative"):
            parse_bytes(bad)
    for bad_cpus in (0, -1, "0.0001", "nan", "two"):
        with pytest.raises(ValueError, match="cpus"):
            parse_cpus(bad_cpus)


@pytest.mark.parametrize(
    ("wanted", "machine", "gives_way"),
    [
        (shape(), MACHINE, False),
        (shape(exclusive=True), MACHINE, True),
        (shape(exclusive=True), Machine(MACHINE.capacity, max_tasks=1), False),
        (shape(cpus=2000, exclusive=True), MACHINE, False),
        (shape(memory=4 * GIB, exclusive=True), MACHINE, False),
        (shape(), Machine(Resources(4000, 8 * GIB, 0, 1)), True),
        (Shape(Resources(1000, GIB, 0, 1)), Machine(Resources(4000, 8 * GIB, 0, 4)), False),
        (Shape(Resources(1000, GIB, 0, 1), exclusive=True), Machine(Resources(4000, 8 * GIB, 0, 4)), True),
        (Shape(Resources(1000, GIB, 0, 2), exclusive=True), Machine(Resources(4000, 8 * GIB, 0, 4)), False),
    ],
)
def test_what_leaves_idle_what_others_could_use_gives_way(wanted: Shape, machine: Machine, gives_way: bool) -> None:
    """GPUs that it does not ask for, or more than half of what it wants for itself."""
    assert machine.gives_way(wanted) is gives_way
