"""Drivers on the fake, a launch and waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, Provider
from tests.fakes.gce import FakeGce
from tests.providers.gcp import scenes

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
