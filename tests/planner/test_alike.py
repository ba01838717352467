"""Instances that are the same to a plan are looked at once; nothing that tells them apart is left out of their kind."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Load, Machine
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.planner.plan import Terminate
from cloud_dispatch.planner.planner import plan
from cloud_dispatch.planner.snapshot import Supply
from tests.planner.scenes import NOW, instance, shape, snapshot

#: What may differ within a kind: the name and moments, which are asked of each instance where they matter.
APART = {"instance", "intended_ms", "since_ms", "idle_since_ms", "slack_since_ms", "spot_since_ms", "work_ms"}
OTHER: dict[str, Any] = {
    "state": InstanceState.BUSY, "behaviour": Behaviour.HOLD, "in_doubt": True, "asks_end": True, "stale": "no more",
    "rate": None, "vcpus": 64, "load": Load(Resources(500), 1), "stays": Load(Resources(500), 1),
    "machine": Machine(Resources(7)), "shapes": (shape(),),
}  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in fields(Supply)])
def test_a_kind_is_all_but_names_and_moments(name: str) -> None:
    """Every field of an instance makes another kind, except those that are listed here."""
    one = instance()
    other = replace(one, **{name: OTHER.get(name, 17 if name in APART else "other")})
    assert (other.kind == one.kind) is (name in APART)


@pytest.mark.parametrize("name", [field.name for field in fields(Machine)])
def test_the_key_of_a_machine_tells_it_from_any_other(name: str) -> None:
    """Machines that differ in one field have different keys, equal ones the same."""
    one = Machine(Resources(1, 2, 3, 4), "a", 5, (("zone", "b"),), False, "main", 6)
    values: dict[str, Any] = {"capacity": Resources(1, 2, 4, 3), "labels": (("zone", "c"),), "spot": True}
    assert replace(one).key == one.key != replace(one, **{name: values.get(name, "other")}).key


def test_what_is_alike_keeps_its_order_and_loses_nobody() -> None:
    """Kinds in the order in which they first come, with all of their instances."""
    supply = [instance(n, state=InstanceState.FAILED if n % 3 == 0 else InstanceState.IDLE) for n in range(7)]
    groups = snapshot(supply=supply).alike
    assert [[s.instance[-1] for s in group] for group in groups] == [["0", "3", "6"], ["1", "2", "4", "5"]]
    ended = [action.instance for action in plan(snapshot(supply=supply)).actions if isinstance(action, Terminate)]
    assert ended == [InstanceId(f"batch-{n}") for n in (0, 3, 6)]


def test_booting_ones_of_a_kind_are_judged_by_their_own_moment() -> None:
    """Two that boot and are otherwise alike: the one that is past its deadline is no capacity."""
    late = instance("late", state=InstanceState.BOOTING, intended_ms=NOW - 3_600_000)
    fresh = instance("fresh", state=InstanceState.BOOTING)
    assert late.kind == fresh.kind
    missing = [shortfall.missing for shortfall in plan(_with_minimum(2, late, fresh)).shortfalls]
    assert missing == [1]


def _with_minimum(count: int, *supply: Supply) -> Any:
    usual = snapshot(supply=supply)
    pools = (replace(usual.pools[0], minimum=count),)
    return replace(usual, pools=pools, stop=Stop(StopLevel.LAUNCHES))
