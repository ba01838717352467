"""A plan launches only so much, and says what is left to the next one."""

from cloud_dispatch.planner import plan
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.snapshot import TargetItem
from tests.planner.scenes import AWS, MAIN, applied, demand, launches, shape, snapshot

ONE_BY_ONE = ((AWS, 1),)


def test_what_no_launch_is_left_for_is_told_that_it_waits_for_the_next_plan() -> None:
    """A launch for each instance: a thousand of three."""
    scene = snapshot([demand(shape(), 3_000)], max_batch=ONE_BY_ONE)
    found = plan(scene)
    assert len(launches(found)) == 1_000
    (told,) = found.waiting
    assert (told.left, told.obstacles) == (2_000, (Obstacle.NEXT_PLAN,))
    assert told.reason.startswith("1000 start on instances that this plan launches; 2000: a plan launches at most")
    assert len(launches(plan(applied(scene, found)))) == 1_000


def test_what_a_target_lacks_then_is_reported_short() -> None:
    """Nothing is launched for it yet."""
    found = plan(snapshot(targets=(TargetItem(MAIN, 3_000, "rest"),), max_batch=ONE_BY_ONE))
    assert len(launches(found)) == 1_000
    (short,) = found.shortfalls
    assert short.missing == 2_000
    assert "a plan launches at most" in short.reason


def test_launches_are_counted_by_the_batches_that_providers_take() -> None:
    """Seven at a time: a thousand launches are seven thousand instances."""
    found = plan(snapshot([demand(shape(), 9_000)], max_batch=((AWS, 7),)))
    assert sum(launch.slots for launch in launches(found)) == 7_000
