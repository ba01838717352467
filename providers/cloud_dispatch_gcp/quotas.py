"""The project's limits. Owns which of them bind launches, and what each speaks of. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import Scope
from cloud_dispatch.provider.spi import Quota, QuotaUnit

PREEMPTIBLE = "PREEMPTIBLE_CPUS"
EVERYWHERE = "CPUS_ALL_REGIONS"


def of_project(found: Iterable[Any]) -> list[Quota]:
    """What binds all regions together."""
    return [
        Quota(one.metric, Scope(), QuotaUnit.VCPUS, int(one.limit), int(one.usage))
        for one in found
        if one.metric == EVERYWHERE
    ]


def of_region(region: str, found: Iterable[Any], families: Iterable[str], *, addresses: bool) -> list[Quota]:
    """What binds a region, as far as it counts in VMs or cores. `families`: the quotas of the types that are rented."""
    known = {one.metric: one for one in found}
    spot = known.get(PREEMPTIBLE)
    # Without a limit of its own, spot counts against the same quota as everything else.
    apart = spot is not None and spot.limit > 0
    told = []
    if spot is not None and apart:
        told.append(_quota(spot, Scope(market=str(Market.SPOT), region=region), QuotaUnit.VCPUS))
    for family in sorted(set(families)):
        if family in known:
            market = str(Market.ON_DEMAND) if apart else ""
            told.append(_quota(known[family], Scope(family=family, market=market, region=region), QuotaUnit.VCPUS))
    counted = ("INSTANCES", *(["IN_USE_ADDRESSES"] if addresses else []))
    told += [_quota(known[one], Scope(region=region), QuotaUnit.INSTANCES) for one in counted if one in known]
    return told


def _quota(one: Any, scope: Scope, unit: QuotaUnit) -> Quota:
    return Quota(one.metric, scope, unit, int(one.limit), int(one.usage))
