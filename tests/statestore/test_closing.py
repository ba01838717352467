"""A store that is closed gives its lock back, also when somebody lost patience the first time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.statestore import open_store
from cloud_dispatch.testing.store_builders import ManualClock, spec
from tests.statestore.conftest import CountingEntropy

T = TypeVar("T")


class Stalling(Inline):
    """A disk that does not answer while `stalls`."""

    def __init__(self) -> None:
        self.stalls = False

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        if self.stalls:
            await asyncio.Event().wait()
        return await super().run(work, *args)


async def test_a_close_that_was_interrupted_can_be_repeated(migrated_sqlite_url: str) -> None:
    """The simulator found it: a dispatcher was killed while it closed its store, and no other could open it."""
    disk, clock = Stalling(), ManualClock()
    store = await open_store(migrated_sqlite_url, clock=clock, entropy=CountingEntropy(), executor=disk)
    disk.stalls = True
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(store.close(), 0.05)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.submit([spec()])
    disk.stalls = False
    await store.close()
    again = await open_store(migrated_sqlite_url, clock=clock, entropy=CountingEntropy(), executor=disk)
    await again.close()
