"""Why tasks wait: every shape that does not start now is told, and what can never run is told what is nearest."""

import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner import plan
from tests.planner.scenes import (
    AWS,
    GCP,
    MAIN,
    MINUTE,
    busy,
    demand,
    instance,
    launched,
    offering,
    pool,
    shape,
    snapshot,
)  # fmt: skip

S = InstanceState


def test_tasks_that_start_now_are_not_said_to_wait() -> None:
    """A free slot for each: the next claim takes them."""
    assert plan(snapshot([demand(shape(), 1)], supply=[instance()])).waiting == ()


def test_waiting_names_each_way_in_which_tasks_will_be_served() -> None:
    """Some follow on what runs, some on what boots, some on what is launched now."""
    supply = [instance(0, state=S.BUSY, load=busy(shape(), 1)), instance(1, state=S.BOOTING)]
    found = plan(snapshot([demand(shape(), 30, expected_ms=MINUTE)], supply=supply))
    (waits,) = found.waiting
    assert waits.count == 30
    assert waits.reason == (
        "9 follow on instances that run: all is busy, and within the target drain;"
        " 10 start on instances that are booting; 11 start on instances that this plan launches"
    )
    assert launched(found) == {"small": 2}


def test_tasks_behind_a_free_slot_are_counted_without_the_one_that_starts() -> None:
    """One of five starts now, four follow."""
    (waits,) = plan(snapshot([demand(shape(), 5, expected_ms=MINUTE)], supply=[instance()])).waiting
    assert waits.count == 4
    assert waits.reason.startswith("4 follow on instances that run")


def test_a_shape_that_nothing_can_run_is_reported_with_what_is_nearest() -> None:
    """The nearest misses least: one thing rather than two, by little rather than by much."""
    offerings = [
        offering("thin", cpus=16, memory=8), offering("near", cpus=16, memory=60), offering("tiny", cpus=1, memory=1),
    ]  # fmt: skip
    found = plan(snapshot([demand(shape(8, 64), 3)], offerings=offerings))
    (never,) = found.unsatisfiable
    assert never.count == 3
    assert never.reason == "no offering of any pool can run 8 cpu, 64GiB memory"
    assert never.nearest == "aws/near/a/on-demand in pool main: asks for 64GiB memory, has 60GiB"
    assert found.waiting == ()


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [
        (shape(20, 60), "tall"),  # a fifth and a fifteenth are two things, nine tenths are one
        (shape(20, 32), "wide"),  # a fifth of one thing, not a half
        (shape(8, 32, gpus=1, gpu_type="a100"), "card"),
        (shape(8, 32, gpus=1, gpu_type="h100", gpu_memory=40 * 2**30), "card"),
    ],
)
def test_what_misses_least_is_nearest_however_much_it_costs(wanted: Shape, nearest: str) -> None:
    """First the number of things that it lacks, then how much of each, as a part of what is asked for."""
    offerings = [
        offering("card", cpus=8, memory=32, price=900, gpus=1, gpu="t4", gpu_memory=80 * GIB),
        offering("tall", cpus=2, memory=128, price=800), offering("wide", cpus=16, memory=56, price=700),
        offering("tiny", cpus=1, memory=1, price=1),
    ]  # fmt: skip
    (never,) = plan(snapshot([demand(wanted, 1)], offerings=offerings)).unsatisfiable
    assert never.nearest.startswith(f"aws/{nearest}/")


def test_missing_labels_and_markets_are_named_in_what_is_nearest() -> None:
    """What misses is not always an amount."""
    spot = [pool(markets=(Market.SPOT,))]
    cheap = [offering(market=Market.SPOT)]
    (never,) = plan(snapshot([demand(shape(preemptible=False), 1)], pools=spot, offerings=cheap)).unsatisfiable
    assert never.nearest.endswith("must not be preempted, this is a spot machine")
    (never,) = plan(snapshot([demand(shape(labels=(("zone", "z"),)), 1)])).unsatisfiable
    assert never.nearest.endswith("asks for label zone=z")


def test_a_pool_that_does_not_exist_is_named() -> None:
    """The likely cause is a typing error, so that the known pools are listed."""
    (never,) = plan(snapshot([demand(shape(pool="gpu"), 1)])).unsatisfiable
    assert never.reason == "pool gpu is not configured (pools: main)"


def test_a_cap_never_makes_a_shape_unsatisfiable() -> None:
    """Capped, blocked or dear are reasons to wait; only nature is a reason never to run."""
    found = plan(snapshot([demand(shape(), 1)], pools=[pool(caps=pool().caps.__class__(instances=0))]))
    assert found.unsatisfiable == ()
    assert "cap of pool main" in found.waiting[0].reason


def test_a_profile_that_is_not_known_yet_keeps_verdicts_back() -> None:
    """Before the first listing nobody can say that nothing fits."""
    pools = [pool(MAIN, AWS, GCP)]
    found = plan(snapshot([demand(shape(64), 1)], pools=pools))
    assert found.unsatisfiable == ()
    assert found.waiting[0].reason == "no offerings are known yet of gcp"


def test_what_runs_on_an_existing_instance_only_is_not_unsatisfiable() -> None:
    """Its type is offered no more, but it is there and will serve."""
    rented = offering("gone", cpus=8, memory=32)
    supply = [instance(rented=rented, state=S.BUSY, load=busy(shape(8), 1))]
    found = plan(snapshot([demand(shape(8), 1)], supply=supply))
    assert found.unsatisfiable == ()
    assert found.waiting[0].reason


def test_an_impossible_task_does_not_hold_up_the_possible_ones() -> None:
    """However urgent it is."""
    found = plan(snapshot([demand(shape(1000), 5, priority=9), demand(shape(), 2)]))
    assert launched(found) == {"small": 2}


def test_gpu_memory_is_compared_a_device() -> None:
    """Two devices of 16 GiB are not one of 32."""
    two = offering("two", cpus=8, memory=64, gpus=2, gpu="t4", gpu_memory=16 * GIB)
    (never,) = plan(snapshot([demand(shape(gpus=1, gpu_memory=32 * GIB), 1)], offerings=[two])).unsatisfiable
    assert never.nearest.endswith("asks for 32GiB a gpu, has 16GiB")
