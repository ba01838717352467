"""What is rented where instances end after some tasks."""

import pytest

from cloud_dispatch.domain.pool import EndRules
from cloud_dispatch.planner import plan
from tests.planner.scenes import MINUTE, demand, launched, offering, pool, shape, snapshot


@pytest.mark.parametrize(("most", "seconds", "rented"), [
    (1, 10, {"small": 12}), (1, 0, {"small": 12}), (4, 10, {"small": 3}), (4, 0, {"large": 3}), (4, 600, {"large": 3}),
])  # fmt: skip
def test_no_instance_is_rented_for_room_that_its_end_after_some_tasks_leaves_unused(
    most: int, seconds: int, rented: dict[str, int]
) -> None:
    """The large one is cheaper by its room: of use where so many run side by side before it ends, else it is more than
    twice as dear."""
    pools = [pool(end=EndRules(max_tasks=most))]
    offerings = [offering("small", 1, price=100), offering("large", 4, 16, price=250)]
    items = [demand(shape(), 12, expected_ms=seconds * 1_000)]
    assert launched(plan(snapshot(items, pools=pools, offerings=offerings))) == rented


def test_who_finds_no_task_left_on_an_instance_pays_no_part_of_it() -> None:
    """Room for others is no reason to rent a large instance that ends after the first task."""
    pools = [pool(end=EndRules(max_tasks=1))]
    offerings = [offering("small", 1, price=100), offering("large", 4, 16, price=110)]
    items = [demand(shape(), 1, expected_ms=MINUTE), demand(shape(1, 2), 3, expected_ms=MINUTE)]
    assert launched(plan(snapshot(items, pools=pools, offerings=offerings))) == {"small": 4}


@pytest.mark.parametrize("others", [[(2, 3)], [(2, 1), (3, 1)]])
def test_others_pay_as_far_as_the_tasks_that_are_left_go(others: list[tuple[float, int]]) -> None:
    """Beside the first task an instance takes one more, of whichever shape: three that pay would make it cheap."""
    pools = [pool(end=EndRules(max_tasks=2), price_factor_percent=1_000)]
    offerings = [offering("small", 1, price=100), offering("large", 4, 16, price=250)]
    items = [demand(shape(1, memory), count, expected_ms=20 * MINUTE) for memory, count in others]
    items.append(demand(shape(), 1, expected_ms=20 * MINUTE, priority=1))
    assert launched(plan(snapshot(items, pools=pools, offerings=offerings))).keys() == {"small"}
