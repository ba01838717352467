"""What the tests of the Azure driver do again and again: launch, wait, look whether all is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.spi import (
    LaunchRequest,
    LaunchResult,
    Vm,
)
from cloud_dispatch_azure.driver import AzureProvider
from tests.providers.azure import scenes

Connect = Callable[..., AzureProvider]
VM = VmId("b1-0")


async def until(ask: Callable[[], Awaitable[object]]) -> None:
    for _ in range(500):
        if await ask():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not become so")


async def settled(driver: AzureProvider, result: LaunchResult) -> LaunchResult:
    vms, pending, shortfall = list(result.vms), list(result.pending), result.shortfall
    for _ in range(500):
        if not pending:
            return LaunchResult(tuple(vms), shortfall)
        answer = await driver.resume(pending.pop(0))
        vms += answer.vms
        pending += answer.pending
        shortfall = shortfall or answer.shortfall
        await asyncio.sleep(0.02)
    raise AssertionError("operations are still pending")


async def launched(driver: AzureProvider, request: LaunchRequest | None = None) -> tuple[Vm, ...]:
    result = await settled(driver, await driver.launch(request or scenes.request()))
    assert result.shortfall is None
    return result.vms


async def gone(driver: AzureProvider) -> bool:
    return not (await driver.list("contract")).vms


async def clean(driver: AzureProvider) -> bool:
    return not await driver.leftovers("contract")
