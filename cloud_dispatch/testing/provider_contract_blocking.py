"""Calls that wait for their cloud let everything else go on: a driver shares the loop on which it is asked."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.testing.provider_contract_base import Faults, MakeRequest
from cloud_dispatch.testing.provider_contract_calls import CALLS, Ask, CallsContract, skip_without

_SLOW_MS, _MOMENT_S = 1_000, 0.1
#: How often a machine that is busy is given another chance to show that it was not the driver.
_TRIES = 3


class BlockingContract(CallsContract):
    @pytest.mark.parametrize("call", CALLS)
    async def test_a_slow_call_does_not_hold_up_the_loop(
        self, provider: Provider, faults: Faults, make_request: MakeRequest, call: str
    ) -> None:
        """While the cloud takes a second to answer, whoever shares the loop with the driver goes on at once. The time
        is the machine's, also where the loop's is virtual."""
        skip_without(provider.traits, call)
        ask = await self.asking(provider, make_request, call)
        held = [await self._held_s(faults, ask, call)]
        while held[-1] * 1000 >= _SLOW_MS / 2 and len(held) < _TRIES:
            held.append(await self._held_s(faults, ask, call))
        assert min(held) * 1000 < _SLOW_MS / 2, f"nobody else goes on while {call} waits, for {held} s"

    async def _held_s(self, faults: Faults, ask: Ask, call: str) -> float:
        """How long a wait of a moment takes beside the call."""
        faults.delay(call, _SLOW_MS)
        asked = asyncio.ensure_future(ask())
        began = time.monotonic()
        await asyncio.sleep(_MOMENT_S)
        held = time.monotonic() - began
        faults.calm()
        asked.cancel()
        with contextlib.suppress(asyncio.CancelledError, ProviderError):
            await asked
        return held
