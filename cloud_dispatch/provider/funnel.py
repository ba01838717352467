"""A provider whose every call goes one way. Owns the spelling of the SPI for hosts and wrappers; decides nothing.

A wrapper that waits, counts or sends calls elsewhere does the same for each of them. It says so once, in `call`, and a
method that the SPI gets later can't slip past it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider.spi import (
    Challenge,
    Finding,
    Heard,
    LaunchRequest,
    LaunchResult,
    Leftover,
    Listing,
    Operation,
    Price,
    Provider,
    Quota,
    Traits,
    Vm,
)


class Call(StrEnum):
    """The calls on a driver, by the names of their methods."""

    OFFERINGS = "offerings"
    LAUNCH = "launch"
    RESUME = "resume"
    LIST = "list"
    GET = "get"
    TERMINATE = "terminate"
    EXTEND = "extend"
    TAG = "tag"
    CONSOLE = "console"
    LEFTOVERS = "leftovers"
    DELETE_LEFTOVER = "delete_leftover"
    QUOTAS = "quotas"
    PRICES = "prices"
    HEARD = "heard"
    PREFLIGHT = "preflight"
    IDENTIFY = "identify"


class Funnel(ABC):
    """`Provider`, with `call` and `close` left to say."""

    traits: Traits

    @abstractmethod
    async def call(self, name: Call, *args: Any) -> Any:
        """Make the call `name` with the arguments of its method; raises provider errors."""

    @abstractmethod
    async def close(self) -> None:
        """Release what is held, the driver's connections too."""

    async def offerings(self) -> Sequence[Offering]:
        offered: Sequence[Offering] = await self.call(Call.OFFERINGS)
        return offered

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        result: LaunchResult = await self.call(Call.LAUNCH, request)
        return result

    async def resume(self, operation: Operation) -> LaunchResult:
        result: LaunchResult = await self.call(Call.RESUME, operation)
        return result

    async def list(self, deployment: str) -> Listing:
        listing: Listing = await self.call(Call.LIST, deployment)
        return listing

    async def get(self, vm: VmId) -> Vm:
        found: Vm = await self.call(Call.GET, vm)
        return found

    async def terminate(self, vm: VmId) -> None:
        await self.call(Call.TERMINATE, vm)

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        missing: frozenset[VmId] = await self.call(Call.EXTEND, vms, ends_ms)
        return missing

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        missing: frozenset[VmId] = await self.call(Call.TAG, vms, tags)
        return missing

    async def console(self, vm: VmId) -> str:
        text: str = await self.call(Call.CONSOLE, vm)
        return text

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        found: Sequence[Leftover] = await self.call(Call.LEFTOVERS, deployment)
        return found

    async def delete_leftover(self, leftover: Leftover) -> None:
        await self.call(Call.DELETE_LEFTOVER, leftover)

    async def quotas(self) -> Sequence[Quota]:
        told: Sequence[Quota] = await self.call(Call.QUOTAS)
        return told

    async def prices(self) -> Sequence[Price]:
        told: Sequence[Price] = await self.call(Call.PRICES)
        return told

    async def heard(self, deployment: str) -> Heard:
        said: Heard = await self.call(Call.HEARD, deployment)
        return said

    async def preflight(self, deployment: str) -> Sequence[Finding]:
        found: Sequence[Finding] = await self.call(Call.PREFLIGHT, deployment)
        return found

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        vm: VmId = await self.call(Call.IDENTIFY, proof, challenge)
        return vm


class Wrapper(Funnel):
    """A funnel around another provider: subclass `call`, and pass on what it is about with `pass_on`."""

    def __init__(self, driver: Provider) -> None:
        self._driver = driver
        self.traits = driver.traits

    async def pass_on(self, name: Call, *args: Any) -> Any:
        return await getattr(self._driver, name)(*args)

    async def close(self) -> None:
        await self._driver.close()
