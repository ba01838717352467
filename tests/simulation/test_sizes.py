"""What VMs cost against an optimum worked out by hand: large ones do not outlive what they were rented for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import HOUR_MS, Rate, cost, parse_rate
from cloud_dispatch.domain.offering import InstanceType
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud, Room, Sold
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work

MINUTE_MS = 60_000
SMALL = parse_rate("0.05")


def sold(cpus: int, zones: tuple[str, ...]) -> Sold:
    """At five cents a cpu and hour."""
    kind = InstanceType(f"c{cpus}", Resources(cpus * 1_000, cpus * 4 * GIB, 100 * GIB))
    return Sold(kind, zones, Rate(SMALL * cpus))


def work(at_minutes: float, minutes: int, cpus: int) -> Work:
    run_ms = minutes * MINUTE_MS
    return Work(int(at_minutes * MINUTE_MS), 1, Shape(Resources(cpus * 1_000, GIB)), Conduct(run_ms), run_ms)


def trickle(sizes: tuple[int, ...], **rest: Any) -> Scenario:
    """One task wants sixteen cpus for a quarter of an hour; beside it a small one of two minutes comes every 90 s, for
    three hours."""
    told = defaults(Cloud.EC2)
    types = tuple(sold(cpus, told.sells[0].zones) for cpus in sizes)
    profile = ProfileName("ec2")
    small = [work(1 + 1.5 * number, 2, 1) for number in range(120)]
    return Scenario(
        name="sizes",
        seed=1,
        accounts=(CloudAccount(profile, replace(told, sells=types, extras=(), **rest)),),
        pools=(Pool(PoolName("pool"), (profile,)),),
        work=(work(0, 15, 16), *small),
        horizon_ms=6 * HOUR_MS,
    )


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8, 16), (1, 16)])
def test_small_tasks_that_keep_coming_keep_no_large_vm(sizes: tuple[int, ...]) -> None:
    """The best that can be done is to pay for the one, its boot, and for what the others use."""
    outcome = run(trickle(sizes), keep=20)
    assert outcome.ok, outcome.findings
    best = cost(Rate(16 * SMALL), 16 * MINUTE_MS) + cost(SMALL, 120 * 2 * MINUTE_MS)
    assert sum(line.amount for line in outcome.bill) <= 1.3 * best


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8, 16), (1, 16)])
def test_a_large_vm_is_left_once_for_small_ones_that_are_sold_out(sizes: tuple[int, ...]) -> None:
    """That nobody knows before they are asked for. It was left, and rented again, each time that it was asked once
    more, and those that came meanwhile had to wait for what the price factor allows."""
    outcome = run(trickle(sizes, rooms=tuple(Room(0, f"c{cpus}") for cpus in sizes[:-1])), keep=20)
    assert outcome.ok, outcome.findings
    assert len(outcome.bill) <= 2
