"""The project's limits. Owns which of them bind launches, and what each speaks of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import Scope
from cloud_dispatch.provider.spi import Quota, QuotaUnit
from cloud_dispatch_gcp import machines
from cloud_dispatch_gcp.settings import GIB

PREEMPTIBLE = "PREEMPTIBLE_CPUS"
EVERYWHERE = {"CPUS_ALL_REGIONS": QuotaUnit.VCPUS, "GPUS_ALL_REGIONS": QuotaUnit.GPUS}
#: GPUs by the names that SKUs have, of which a region tells the quota (`NVIDIA_T4_GPUS`); of newer ones the API's
#: description has none.
_GPUS = frozenset({"t4", "p4", "p100", "v100", "a100", "a100-80gb", "l4"})


def of_project(found: Iterable[Any], *, gpus: bool) -> list[Quota]:
    """What binds all regions together. `gpus`: whether any of the types has some."""
    return [
        Quota(one.metric, Scope(), EVERYWHERE[one.metric], int(one.limit), int(one.usage))
        for one in found
        if one.metric in EVERYWHERE and (gpus or EVERYWHERE[one.metric] is not QuotaUnit.GPUS)
    ]


def of_region(
    region: str, found: Iterable[Any], families: Iterable[str], gpus: Iterable[str], *, addresses: bool
) -> list[Quota]:
    """What binds a region, as far as it counts in VMs, cores or GPUs. `families`: the quotas of the types that are
    rented, `gpus`: theirs, as SKUs call them."""
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
    for gpu in sorted(set(gpus) & _GPUS):
        told += _of_gpu(region, gpu, known)
    counted = ("INSTANCES", *(["IN_USE_ADDRESSES"] if addresses else []))
    told += [_quota(known[one], Scope(region=region), QuotaUnit.INSTANCES) for one in counted if one in known]
    return told


def _of_gpu(region: str, gpu: str, known: Mapping[str, Any]) -> list[Quota]:
    """The limits of one kind of GPU. On demand a VM that is to be deleted within a week may count against either of
    them ("Limit the run time of a VM"), as ours nearly always are: nothing fits once both are used up."""
    card = machines.billed_gpu(gpu)
    of_kind = Scope(gpu=card.name, gpu_memory=card.gib * GIB, region=region)
    metric = f"NVIDIA_{gpu.upper().replace('-', '_')}_GPUS"
    plain, spot = known.get(metric), known.get(f"PREEMPTIBLE_{metric}")
    if spot is None or spot.limit <= 0:
        return [] if plain is None else [_quota(plain, of_kind, QuotaUnit.GPUS)]
    told = [_quota(spot, replace(of_kind, market=str(Market.SPOT)), QuotaUnit.GPUS)]
    if plain is not None:
        limit, used = int(plain.limit + spot.limit), int(plain.usage + spot.usage)
        either = replace(of_kind, market=str(Market.ON_DEMAND))
        told.append(Quota(metric, either, QuotaUnit.GPUS, limit, used))
    return told


def _quota(one: Any, scope: Scope, unit: QuotaUnit) -> Quota:
    return Quota(one.metric, scope, unit, int(one.limit), int(one.usage))
