"""The conformance suite of statestores, version 1: every sentence of `ports.store`. Owns no store and knows none.

A store's own tests make it run by subclassing `StoreContract` and giving one fixture:

    class TestMine(StoreContract):
        @pytest.fixture
        async def open_store(self, ...):   # async (clock) -> Store; called again after close it opens the same store

Needs pytest and pytest-asyncio. What a test leaves open is closed by `open_store`'s own tear-down.
"""

from __future__ import annotations

import pytest

from cloud_dispatch.ports.store import Store
from cloud_dispatch.testing.store_builders import ManualClock, OpenStore
from cloud_dispatch.testing.store_contract_claims import ClaimsContract
from cloud_dispatch.testing.store_contract_costs import CostContract
from cloud_dispatch.testing.store_contract_fleet import FleetContract
from cloud_dispatch.testing.store_contract_last_work import LastWorkContract
from cloud_dispatch.testing.store_contract_matching import MatchingContract
from cloud_dispatch.testing.store_contract_money import MoneyContract
from cloud_dispatch.testing.store_contract_payers import PayersContract
from cloud_dispatch.testing.store_contract_tasks import TasksContract

VERSION = 1


@pytest.mark.asyncio
class StoreContract(
    TasksContract,
    ClaimsContract,
    MatchingContract,
    LastWorkContract,
    FleetContract,
    MoneyContract,
    CostContract,
    PayersContract,
):
    """Subclass it, give `open_store`."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, open_store: OpenStore, clock: ManualClock) -> Store:
        return await open_store(clock)


__all__ = ["VERSION", "ManualClock", "OpenStore", "StoreContract"]
