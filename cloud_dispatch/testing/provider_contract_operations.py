"""Slow launches: what the cloud has accepted and not finished is told as pending, and nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from cloud_dispatch.provider.spi import LaunchResult, Provider
from cloud_dispatch.testing.provider_contract_base import ContractBase, Faults, MakeRequest


class OperationsContract(ContractBase):
    """`slow_s`: how long an operation lasts that is made to; an answer about it has less time."""

    slow_s = 3.0

    async def test_nobody_waits_for_a_slow_launch(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """`launch` answers once the cloud has accepted, `resume` with one look: pending, for as long as it is, and as
        often as it is asked. A driver that waits holds up all that its caller has to do."""
        if not provider.traits.operation_poll_ms:
            pytest.skip("launches of this driver end with their answer")
        request = await make_request()
        faults.slow_operations(round(self.slow_s * 1000))
        launched = await self._at_once(provider.launch(request), "launch")
        assert (launched.vms, launched.shortfall) == ((), None)
        (operation,) = launched.pending
        looks = [await self._at_once(provider.resume(operation), "resume") for _ in range(2)]
        for look in looks:
            assert (look.vms, look.shortfall) == ((), None)
            assert [pending.instances for pending in look.pending] == [request.instances]

    async def _at_once(self, asked: Coroutine[Any, Any, LaunchResult], call: str) -> LaunchResult:
        """The answer, which may take a quarter of what the operation does: three of them come before it is over."""
        try:
            async with asyncio.timeout(self.slow_s / 4):
                return await asked
        except TimeoutError:
            pytest.fail(f"{call} waits for the operation")
