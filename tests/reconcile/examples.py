"""Values that several tests of the loop start from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName, VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Machine

#: When the clocks of these tests begin.
NOW = 1_700_000_000_000
CAPACITY = Resources(2000, 4 * GIB, 10 * GIB)

INSTANCE = Instance(
    id=InstanceId("batch-0"), batch=BatchId("batch"), pool=PoolName("p"), profile=ProfileName("local"), type="t",
    zone="z", market=Market.ON_DEMAND, machine=Machine(CAPACITY, pool="p"), vcpus=2, rate=Rate(1000),
    state=InstanceState.IDLE, intended_ms=0, ends_ms=10**9, boot_deadline_ms=60_000, vm=VmId("vm-0"), launched_ms=1,
)  # fmt: skip


def instance(state: InstanceState, **more: Any) -> Instance:
    return replace(INSTANCE, state=state, **more)


def offering(name: str = "t", zone: str = "z", rate: int = 1000, **more: Any) -> Offering:
    kind = InstanceType(name, more.pop("capacity", CAPACITY), family=more.pop("family", "f"))
    more.setdefault("priced_ms", NOW)
    return Offering(ProfileName("local"), kind, zone, more.pop("market", Market.ON_DEMAND), Rate(rate), **more)
