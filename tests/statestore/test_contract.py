"""The statestore's contract on each database, and with commits on the loop and on a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cloud_dispatch.adapters.executors import Thread
from cloud_dispatch.testing.store_builders import OpenStore
from cloud_dispatch.testing.store_contract import StoreContract
from tests.statestore.conftest import stores


class TestSqlite(StoreContract):
    @pytest.fixture
    async def open_store(self, migrated_sqlite_url: str) -> AsyncIterator[OpenStore]:
        async with stores(migrated_sqlite_url) as open_one:
            yield open_one


class TestSqliteOnAThread(StoreContract):
    @pytest.fixture
    async def open_store(self, migrated_sqlite_url: str) -> AsyncIterator[OpenStore]:
        async with stores(migrated_sqlite_url, lambda: Thread("commit")) as open_one:
            yield open_one


class TestPostgres(StoreContract):
    @pytest.fixture
    async def open_store(self, migrated_postgres_url: str) -> AsyncIterator[OpenStore]:
        async with stores(migrated_postgres_url) as open_one:
            yield open_one
