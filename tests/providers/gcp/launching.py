"""Drivers on the fake, a launch and waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.spi import (
    LaunchRequest,
    LaunchResult,
    Leftover,
    LeftoverKind,
    ProfileContext,
    Provider,
    VmState,
)
from cloud_dispatch_gcp import plugin
from cloud_dispatch_gcp.settings import GcpSettings
from tests.fakes.gce import FakeGce
from tests.providers.gcp import scenes

#: Of settings: what a test need not wait for.
QUICK = {"consistency": "0s", "operation_poll": "100ms"}
#: A driver by its settings.
Connect = Callable[..., Provider]


def asked(fake: FakeGce, slots: int = 1, **more: Any) -> LaunchRequest:
    return replace(scenes.request(slots), ends_ms=fake.clock.now() + 3_600_000, **more)


async def finished(driver: Provider, result: LaunchResult) -> LaunchResult:
    """Its operations asked for to their end."""
    vms, shortfall = list(result.vms), result.shortfall
    for operation in result.pending:
        answer = await driver.resume(operation)
        while answer.pending:
            await asyncio.sleep(0.02)
            answer = await driver.resume(operation)
        vms, shortfall = [*vms, *answer.vms], shortfall or answer.shortfall
    return LaunchResult(tuple(vms), shortfall)


async def everything(fake: FakeGce, said: GcpSettings, folder: Path) -> None:
    """All that a driver ever asks for."""
    driver = plugin.create(ProfileContext(ProfileName("gcp"), said, folder, now=fake.clock.now))
    try:
        await driver.preflight("contract")
        await driver.offerings()
        await driver.prices()
        await driver.quotas()
        spot = scenes.offering(market=Market.SPOT)
        request = replace(scenes.request(), offering=spot, ends_ms=fake.clock.now() + 600_000)
        (operation,) = (await driver.launch(request)).pending
        while (answer := await driver.resume(operation)).pending:
            await asyncio.sleep(0.02)
        (vm,) = answer.vms
        while (await driver.get(vm.id)).state is not VmState.RUNNING:
            await asyncio.sleep(0.02)
        await driver.list("contract")
        await driver.tag([vm.id], {"cloud-dispatch-x": "1"})
        await driver.console(vm.id)
        await driver.leftovers("contract")
        fake.preempt(vm.id.partition("/")[2], notice_ms=60_000)
        await driver.list("contract")
        await driver.get(vm.id)
        await driver.terminate(vm.id)
        for kind in (LeftoverKind.DISK, LeftoverKind.ADDRESS):
            place = scenes.ZONE if kind is LeftoverKind.DISK else scenes.REGION
            await driver.delete_leftover(Leftover(f"{place}/{said.name_prefix}none", kind, place, {}))
    finally:
        await driver.close()
