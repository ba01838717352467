"""Whom caps let go for others: nobody in vain."""

from typing import Any

import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.snapshot import QuotaUse, Supply
from tests.planner.scenes import (
    AWS,
    MAIN,
    OTHER,
    applied,
    busy,
    demand,
    drained,
    instance,
    offering,
    pool,
    shape,
    snapshot,
)  # fmt: skip

S = InstanceState
SMALL, MEDIUM, LARGE = offering(), offering("medium", 4, 16, 400), offering("large", 8, 32, 800)
OFFERINGS = [SMALL, MEDIUM, LARGE]


def full(rented: Any, **more: Any) -> Supply:
    return instance("full", rented, S.BUSY, load=busy(shape(rented.type.vcpus), 1), **more)


def test_nobody_goes_where_another_cap_still_forbids_it() -> None:
    """The pool of the tasks is full too: what idles in the other pool helps as little as it hinders."""
    pools = [pool(MAIN, caps=Caps(instances=1)), pool(OTHER)]
    supply = [full(SMALL, pools=pools), instance(1, of=OTHER, pools=pools)]
    scene = snapshot([demand(shape(pool="main"), 5)], pools=pools, supply=supply, caps=Caps(instances=2))
    found = plan(scene)
    assert found.waiting[0].left == 5
    assert drained(found) == {}


def test_nobody_goes_where_too_few_vcpus_come_free() -> None:
    """One idle cpu beside eight in use: of ten not even four would be left."""
    idle = instance(1)
    scene = snapshot([demand(shape(4), 5)], supply=[full(LARGE), idle], offerings=OFFERINGS, caps=Caps(vcpus=10))
    assert drained(plan(scene)) == {}


@pytest.mark.parametrize(("limit", "gone"), [(8, 1), (7, 0)])
def test_nobody_goes_where_a_quota_forbids_what_would_come(limit: int, gone: int) -> None:
    quota = QuotaUse(AWS, "L-1", limit, 0, type="large")
    scene = snapshot(
        [demand(shape(8), 1)], supply=[instance()], offerings=OFFERINGS, quotas=(quota,), caps=Caps(instances=1)
    )
    assert len(drained(plan(scene))) == gone


def test_as_many_go_as_hold_what_one_needs_and_none_beside() -> None:
    """Six cpus are lacking: the dearest first, and who is not needed besides them stays."""
    idle = [instance("m1", MEDIUM), instance("m2", MEDIUM), *(instance(f"s{n}", SMALL) for n in range(4))]
    scene = snapshot([demand(shape(8), 1)], supply=idle, offerings=OFFERINGS, caps=Caps(vcpus=14))
    found = plan(scene)
    assert set(drained(found)) == {"batch-m1", "batch-m2"}
    assert drained(plan(applied(scene, found))) == {}
    dear = instance("dear", offering("dear", 1, 4, 900))
    scene = snapshot([demand(shape(8), 1)], supply=[dear, *idle[:2]], offerings=OFFERINGS, caps=Caps(vcpus=9))
    assert set(drained(plan(scene))) == {"batch-m1", "batch-m2"}


def test_who_has_idled_for_long_enough_makes_the_room() -> None:
    """It goes anyway: nobody else has to."""
    idle = [instance(0, asks_end=True), instance(1, offering("dear", 1, 4, 900))]
    scene = snapshot([demand(shape(8), 1)], supply=idle, offerings=OFFERINGS, caps=Caps(instances=2))
    assert drained(plan(scene)) == {"batch-0": "idle"}


@pytest.mark.parametrize(
    ("caps", "gone"), [(Caps(instances=5), 5), (Caps(vcpus=20), 4), (Caps(vcpus=23), 4), (Caps(vcpus=24), 5)]
)
def test_where_many_wait_as_many_go_as_there_can_be_instead(caps: Caps, gone: int) -> None:
    """Of ten that would be launched: one for each, or one of eight cpus for two of four."""
    idle = [instance(n, MEDIUM) for n in range(5)]
    scene = snapshot([demand(shape(8, 16), 10)], supply=idle, offerings=[MEDIUM, LARGE], caps=caps)
    found = plan(scene)
    assert len(drained(found)) == gone
    assert drained(plan(applied(scene, found))) == {}
