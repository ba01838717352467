"""A driver that is let go while it is at work."""

from __future__ import annotations

import asyncio

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.errors import Transient
from cloud_dispatch.provider.lent import PATIENCE_S, Lent
from tests.providers.memory import NAMED, MemoryCloud, MemoryProvider

VIRTUAL_TIME = True


class Watched(MemoryProvider):
    closed = False

    async def close(self) -> None:
        self.closed = True


def lent(cloud: MemoryCloud) -> tuple[Watched, Lent]:
    driver = Watched(cloud)
    return driver, Lent(driver)


async def test_it_is_closed_when_its_calls_have_ended() -> None:
    """However they end."""
    cloud = MemoryCloud(NAMED)
    driver, own = lent(cloud)
    cloud.delay("list", 2_000)
    cloud.fail("get", Transient)
    with pytest.raises(Transient):
        await own.get(VmId("v"))
    listing = asyncio.create_task(own.list("d"))
    await asyncio.sleep(1)
    closing = asyncio.create_task(own.close())
    await asyncio.sleep(0.5)
    assert not driver.closed
    assert (await listing).complete
    await closing
    assert driver.closed


async def test_one_that_does_not_answer_is_not_waited_for_without_an_end() -> None:
    """Nor where nobody waits any more: it is closed all the same."""
    cloud = MemoryCloud(NAMED)
    cloud.delay("list", 10_000_000)
    for impatient in (False, True):
        driver, own = lent(cloud)
        listing = asyncio.create_task(own.list("d"))
        await asyncio.sleep(1)
        closing = asyncio.create_task(own.close())
        await asyncio.sleep(1)
        if impatient:
            closing.cancel()
        else:
            await asyncio.sleep(PATIENCE_S)
        await asyncio.wait({closing})
        assert driver.closed
        listing.cancel()
