"""Accounts' quotas in a study. Owns which of them a simulated account can have, and says which it can not.

Pure: the quotas are given. Nothing is used of them when a run begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.provider.errors import Scope
from cloud_dispatch.provider.spi import Quota, QuotaUnit
from cloud_dispatch.simulation.clouds.settings import Quota as SimulatedQuota


@dataclass(frozen=True, slots=True)
class Bounds:
    """What bounds a profile's account: a number of instances as a cap, vCPUs as the account's own quotas."""

    caps: Caps
    quotas: tuple[SimulatedQuota, ...] = ()
    assumptions: tuple[str, ...] = ()


def bounds(profile: ProfileName, caps: Caps, quotas: Sequence[Quota] | None, regions: Sequence[str]) -> Bounds:
    """The bounds of an account with `caps` that sells in `regions`; `quotas` None: the driver could not tell them."""
    if quotas is None:
        return Bounds(caps, (), (f"the quotas of {profile} could not be asked: none is simulated",))
    taken: list[SimulatedQuota] = []
    told: list[str] = []
    for quota in quotas:
        scope = quota.scope
        whole = scope.region == "" or set(regions) <= {scope.region}
        where = Scope(region=scope.region, family=scope.family, market=scope.market)
        if quota.limit is None:
            told.append(f"quota {quota.name} of {profile} is not simulated: its limit is not known")
        elif quota.unit is QuotaUnit.INSTANCES and whole and scope == Scope(region=scope.region):
            most = quota.limit if caps.instances is None else min(caps.instances, quota.limit)
            caps = Caps(instances=most, vcpus=caps.vcpus)
            told.append(f"{profile} has at most {quota.limit} instances (quota {quota.name}), none of them in use yet")
        elif quota.unit is QuotaUnit.VCPUS and whole and scope == where:
            market = Market(scope.market) if scope.market else None
            taken.append(SimulatedQuota(quota.limit, scope.family, market))
            told.append(f"{profile} has at most {quota.limit} vCPUs of quota {quota.name}, none of them in use yet")
        else:
            told.append(f"quota {quota.name} of {profile} ({quota.limit} {quota.unit}) is not simulated")
    return Bounds(caps, tuple(taken), tuple(told))
