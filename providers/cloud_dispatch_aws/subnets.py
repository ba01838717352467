"""Which subnet of a zone a launch goes to. Owns the choice, and the memory of what had room and what had none.

The choice is made before the call and not changed after a refusal: EC2 ties a client token to the parameters of the
first request that used it, refused ones too, so that the same batch can't be tried in another subnet. The next batch
goes there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.kept import Kept
from cloud_dispatch_aws.calls import Calls
from cloud_dispatch_aws.errors import Asked
from cloud_dispatch_aws.settings import AwsSettings

#: How long the number of free addresses is believed, and how long a subnet that had none is left alone.
_COUNTED_MS = 60_000
_FULL_MS = 180_000


@dataclass(frozen=True, slots=True)
class Subnet:
    id: str
    zone: str
    free: int


class Subnets:
    """The subnets that the settings name. Without any, launches go to the zone's default subnet."""

    def __init__(self, calls: Calls, settings: AwsSettings, now: Callable[[], int]) -> None:
        self._calls = calls
        self._wanted = settings.subnets
        self._now = now
        self._kept = Kept(self._ask, _COUNTED_MS, now)
        self._good: dict[str, str] = {}
        self._full: dict[str, int] = {}

    async def found(self) -> Mapping[str, Subnet]:
        """Those of the settings, by id, as they were at most a minute ago."""
        return await self._kept.get()

    async def zones(self) -> frozenset[str] | None:
        """Where there are subnets; None for everywhere."""
        return frozenset(one.zone for one in (await self.found()).values()) if self._wanted else None

    async def choose(self, zone: str, slots: int) -> str:
        """The subnet for a launch of `slots`, "" for the default one: the last one that served, while it has room, else
        the one with most free addresses, in the order of the settings."""
        if not self._wanted:
            return ""
        found = await self.found()
        here = [found[name] for name in self._wanted if name in found and found[name].zone == zone]
        if not here:
            raise InvalidRequest(f"subnets: none of them is in {zone}")
        return choose(here, slots, self._good.get(zone, ""), self._standing())

    def served(self, zone: str, subnet: str) -> None:
        """A launch there found room."""
        if subnet:
            self._good[zone] = subnet

    async def refused(self, zone: str, subnet: str) -> bool:
        """A launch there found none. Whether another one of the zone may have some."""
        self._full[subnet] = self._now() + _FULL_MS
        self._good.pop(zone, None)
        found, full = await self.found(), self._standing()
        return any(found[name].zone == zone and name not in full for name in self._wanted if name in found)

    def _standing(self) -> frozenset[str]:
        return frozenset(name for name, until_ms in self._full.items() if until_ms > self._now())

    async def _ask(self) -> Mapping[str, Subnet]:
        answer = await self._calls.patiently(
            Asked("DescribeSubnets"), "ec2", "describe_subnets", SubnetIds=list(self._wanted)
        )
        return {
            one["SubnetId"]: Subnet(one["SubnetId"], one["AvailabilityZone"], one["AvailableIpAddressCount"])
            for one in answer["Subnets"]
        }


def choose(here: list[Subnet], slots: int, good: str, full: frozenset[str]) -> str:
    """One of `here`, which is not empty."""
    roomy = [one for one in here if one.id not in full and one.free >= slots]
    if good in {one.id for one in roomy}:
        return good
    candidates = roomy or [one for one in here if one.id not in full] or here
    return max(candidates, key=lambda one: one.free).id
