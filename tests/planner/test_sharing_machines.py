"""What is rented where some ask for GPUs, and others could use what these leave of their machines."""

from __future__ import annotations

import random

import pytest

from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot
from tests.planner.scenes import MINUTE, NOW, applied, demand, launched, launches, offering, pool, shape, snapshot

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


def mixed(seed: int) -> Snapshot:
    """Shapes of all kinds, some with GPUs, before up to ten types, some with GPUs."""
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
    return snapshot([_item(chance) for _ in range(chance.randint(1, 6))], offerings=offered, pools=[factor])


def _item(chance: random.Random) -> DemandItem:
    wanted = shape(
        chance.choice([0.25, 0.5, 1, 2, 4]), chance.choice([0.5, 1, 2, 4, 8, 16]), gpus=chance.choice([0, 0, 0, 1])
    )
    expected_ms, oldest_ms = chance.choice([0, 1, 5, 10, 60, 200]) * MINUTE, NOW - chance.randint(0, 600) * 1_000
    return demand(wanted, chance.randint(1, 60), expected_ms=expected_ms, oldest_ms=oldest_ms)


def test_the_next_plan_launches_nothing() -> None:
    """Of a thousand mixtures none: what is rented is what the next plan finds booting, and enough of it."""
    for seed in range(1_000):
        seen = mixed(seed)
        again = launches(plan(applied(seen, plan(seen))))
        assert not again, f"mixture {seed}: {[(one.offering.type.name, one.slots) for one in again]}"
