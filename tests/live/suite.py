"""What a real cloud says to a driver: one small VM of each market at a time, for minutes.

Owns all but which cloud it is. It needs a configuration with a profile of that cloud in CLOUD_DISPATCH_LIVE_CONFIG, the
profile's name in CLOUD_DISPATCH_LIVE_PROFILE (default: the driver's), and credentials where the profile says or the SDK
looks. It makes nothing that costs more than `most_rate`, and ends all that it finds of its own deployment.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.domain.ids import BatchId, PoolName, ProfileName, instance_id
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.host import hosted
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, Level, ProfileContext, Provider, Vm, VmState

DEPLOYMENT, STORE = "cloud-dispatch-live", "live-suite"
PATIENCE_S = 600


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll every few seconds until `condition` holds; its value."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        await asyncio.sleep(0.2 if "CLOUD_DISPATCH_LIVE_FAKE" in os.environ else 5)
    return value


async def followed(provider: Provider, result: LaunchResult) -> Vm:
    """The VM of a launch, its operation asked for to its end."""

    async def done() -> bool:
        nonlocal result
        result = await provider.resume(result.pending[0]) if result.pending else result
        return not result.pending

    await until(done, "its operation ends")
    assert result.vms, result.shortfall
    return result.vms[0]


class LiveSuite:
    """The tests; `driver` by its name."""

    driver: ClassVar[str]
    #: In nano-dollars an hour: five cents.
    most_rate: ClassVar[Rate] = Rate(50_000_000)
    #: A VM that nobody ends is cut off by itself after so long.
    user_data: ClassVar[str] = "#cloud-config\nruncmd:\n  - [sh, -c, 'sleep 900; systemctl poweroff']\n"

    @pytest.fixture
    async def provider(self, tmp_path: Path) -> AsyncIterator[Provider]:
        """The driver as a dispatcher has it, in a process of its own. What a test leaves is ended."""
        path = os.environ.get("CLOUD_DISPATCH_LIVE_CONFIG")
        name = os.environ.get("CLOUD_DISPATCH_LIVE_PROFILE", self.driver)
        assert path, f"say which account: CLOUD_DISPATCH_LIVE_CONFIG is a configuration with a profile of {self.driver}"
        profile = load(TomlFile(Path(path)), registry.plugin).profiles[name]
        context = ProfileContext(ProfileName(name), profile.settings, tmp_path, now=now_ms)
        made = hosted(registry.plugin(self.driver), context)
        try:
            yield made
        finally:
            for vm in (await made.list(DEPLOYMENT)).vms:
                await made.terminate(vm.id)
            await made.close()

    async def cheapest(self, provider: Provider, market: Market) -> Offering:
        offered = [one for one in await provider.offerings() if one.market is market and one.rate is not None]
        assert offered, f"nothing is offered on the market {market}, or no price is known"
        found = min(offered, key=lambda one: one.rate or 0)
        assert found.rate is not None
        assert found.rate <= self.most_rate, (
            f"{found.type.name} costs more than this suite may spend: name a smaller type"
        )
        return found

    async def launched(self, provider: Provider, market: Market) -> tuple[LaunchRequest, Vm]:
        offering = await self.cheapest(provider, market)
        batch = BatchId(SystemEntropy().name("batch", 12))
        assert offering.rate is not None
        tags = VmTags(DEPLOYMENT, STORE, PoolName("live"), batch, offering.rate, now_ms() + 1_800_000).encode()
        request = LaunchRequest(
            batch, 1, offering, tags, self.user_data, now_ms() + 1_800_000, instances=(instance_id(batch, 0),)
        )
        return request, await followed(provider, await provider.launch(request))

    async def test_a_preflight_finds_no_error(self, provider: Provider) -> None:
        """Credentials, rights, image, network and quotas are good for launches, by the cloud's own word."""
        found = await provider.preflight(DEPLOYMENT)
        assert [one for one in found if one.level is Level.ERROR] == []

    @pytest.mark.parametrize("market", list(Market), ids=str)
    async def test_a_vm_comes_is_found_and_goes_with_all_that_is_its(self, provider: Provider, market: Market) -> None:
        """Asked for twice it is one; it carries its tags, takes others, and leaves neither disk nor interface."""
        request, vm = await self.launched(provider, market)
        assert (await followed(provider, await provider.launch(request))).id == vm.id

        async def listed() -> list[Vm]:
            return [one for one in (await provider.list(DEPLOYMENT)).vms if one.id == vm.id]

        (found,) = await until(listed, "it is listed")
        assert request.tags.items() <= dict(found.tags).items()
        assert found.spot is (market is Market.SPOT)

        async def runs() -> bool:
            return (await provider.get(vm.id)).state is VmState.RUNNING

        await until(runs, "it runs")
        await provider.tag([vm.id], {"cloud-dispatch-behaviour": "hold"})

        async def tagged() -> bool:
            return (await provider.get(vm.id)).tags.get("cloud-dispatch-behaviour") == "hold"

        await until(tagged, "it has its new tag")
        assert isinstance(await provider.console(vm.id), str)
        await provider.terminate(vm.id)
        await provider.terminate(vm.id)

        async def gone() -> bool:
            return all(one.state is VmState.GONE for one in await listed())

        await until(gone, "it is gone")

        async def clean() -> bool:
            return not await provider.leftovers(DEPLOYMENT)

        await until(clean, "nothing of it is left")
