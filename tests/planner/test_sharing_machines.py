"""What is rented where some ask for GPUs, and others could use what these leave of their machines."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from cloud_dispatch.domain.instance import InstanceState as S
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot
from tests.planner.scenes import (
    MINUTE,
    NOW,
    applied,
    demand,
    instance,
    launched,
    launches,
    offering,
    pool,
    shape,
    snapshot,
)

PLAIN = offering("plain", cpus=2, memory=4, price=400)
WITH_GPUS = offering("with-gpus", cpus=4, memory=16, price=1_600, gpus=2, gpu="a100", gpu_memory=40 * GIB)


@pytest.mark.parametrize("first", ["cpus", "gpus"])
def test_what_gpu_machines_have_left_is_used_before_others_are_rented(first: str) -> None:
    """Two machines with GPUs have room for four of the eight: two others are enough, whoever came first."""
    ages = (60_000, 0) if first == "cpus" else (0, 60_000)
    items = [
        demand(shape(), 8, expected_ms=10 * MINUTE, oldest_ms=NOW - ages[0]),
        demand(shape(gpus=1), 4, expected_ms=10 * MINUTE, oldest_ms=NOW - ages[1]),
    ]
    found = plan(snapshot(items, offerings=[PLAIN, WITH_GPUS], pools=[pool(price_factor_percent=400)]))
    assert launched(found) == {"plain": 2, "with-gpus": 2}


@pytest.mark.parametrize("state", [S.BOOTING, S.IDLE])
def test_what_wants_a_machine_for_itself_is_not_given_a_large_one(state: S) -> None:
    """That is for the others, as it is when work is claimed; a small one is rented for it. Without others it has it."""
    large, small = offering("large", cpus=16, memory=64, price=800), offering("small", cpus=2, memory=8, price=110)
    alone, others = demand(shape(exclusive=True), 1), demand(shape(), 16)
    there = {"supply": [instance(rented=large, state=state)], "offerings": [large, small]}
    assert launched(plan(snapshot([alone, others], **there))) == {"small": 1}
    assert launched(plan(snapshot([alone], **there))) == {}
    old = replace(alone, oldest_ms=NOW - 10 * MINUTE)
    assert launched(plan(snapshot([old, others], **there))) == {"large": 1}
    urgent = replace(alone, priority=1)
    assert launched(plan(snapshot([urgent, others], **there))) == {"large": 1} if state is S.IDLE else {"small": 1}


def mixed(seed: int, alone: float = 0.0) -> Snapshot:
    """Shapes of all kinds, some with GPUs, before up to ten types, some with GPUs; `alone`, of one, for themselves."""
    chance = random.Random(seed)
    offered = []
    for number in range(chance.randint(2, 10)):
        cpus, ratio, gpus = (
            chance.choice([1, 2, 4, 8, 16, 32]),
            chance.choice([2, 4, 8]),
            chance.choice([0, 0, 1, 2, 4]),
        )
        price = chance.randint(80, 120) * cpus * (2 + ratio) // 6 + gpus * chance.randint(500, 900)
        card = {"gpus": gpus, "gpu": "a100", "gpu_memory": 40 * GIB} if gpus else {}
        offered.append(offering(f"t{number}", cpus, cpus * ratio, price, **card))
    factor = pool(price_factor_percent=chance.choice([100, 150, 400]))
    return snapshot([_item(chance, alone) for _ in range(chance.randint(1, 6))], offerings=offered, pools=[factor])


def _item(chance: random.Random, alone: float) -> DemandItem:
    wanted = shape(
        chance.choice([0.25, 0.5, 1, 2, 4]), chance.choice([0.5, 1, 2, 4, 8, 16]), gpus=chance.choice([0, 0, 0, 1])
    )
    if alone:
        wanted = replace(wanted, exclusive=chance.random() < alone)
    expected_ms, oldest_ms = chance.choice([0, 1, 5, 10, 60, 200]) * MINUTE, NOW - chance.randint(0, 600) * 1_000
    return demand(wanted, chance.randint(1, 60), expected_ms=expected_ms, oldest_ms=oldest_ms)


@pytest.mark.parametrize(("alone", "mixtures"), [(0.0, 1_000), (0.4, 300)])
def test_the_next_plan_launches_nothing(alone: float, mixtures: int) -> None:
    """Of so many mixtures none: what is rented is what the next plan finds booting, and enough of it."""
    for seed in range(mixtures):
        seen = mixed(seed, alone)
        again = launches(plan(applied(seen, plan(seen))))
        assert not again, f"mixture {seed}: {[(one.offering.type.name, one.slots) for one in again]}"
