"""The cloud in memory passes the suite in both flavours: the suite asks for nothing that can't be given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.spi import Challenge, Provider, Traits
from cloud_dispatch.testing.provider_contract import ProviderContract
from tests.providers.memory import NAMED, TOKENS, MemoryCloud, MemoryProvider, MemoryTruth, now_ms

VIRTUAL_TIME = True


class MemoryContract(ProviderContract):
    traits: Traits
    driver: type[MemoryProvider] = MemoryProvider
    settle_s = 10.0
    many = 6

    @pytest.fixture
    def faults(self) -> MemoryCloud:
        return MemoryCloud(self.traits)

    @pytest.fixture
    def truth(self, faults: MemoryCloud) -> MemoryTruth:
        return MemoryTruth(faults)

    @pytest.fixture
    def connect(self, faults: MemoryCloud) -> Callable[[], Provider]:
        return lambda: self.driver(faults)

    @pytest.fixture
    def elsewhere(self) -> Callable[[], list[Provider]]:
        """Another account, and another region."""
        places = ((("account", "other"), ("region", "r")), (("account", "own"), ("region", "q")))
        return lambda: [self.driver(MemoryCloud(replace(self.traits, place=place))) for place in places]

    @pytest.fixture
    def prove(self, faults: MemoryCloud) -> Callable[[VmId, Challenge], Awaitable[str]]:
        async def ask(vm: VmId, challenge: Challenge) -> str:
            return faults.proof(vm, challenge.nonce)

        return ask

    @pytest.fixture
    def now(self) -> Callable[[], int]:
        return now_ms


class TestNamed(MemoryContract):
    """Slots are names, launches are operations, hard ends are fixed, disks outlive VMs."""

    traits = NAMED


class TestTokens(MemoryContract):
    """A batch is a token, launches are answered at once, whole if wanted, hard ends can be moved."""

    traits = TOKENS
