"""Hard ends to the second: the hand keeps the end that was asked for, near or far, and every move of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.tags import decode
from cloud_dispatch.provider.spi import HardEnd, Provider
from cloud_dispatch.testing.provider_contract_base import ContractBase, MakeRequest
from cloud_dispatch.testing.provider_contract_truth import Truth

Now = Callable[[], int] | None
_MINUTE_MS, _DAY_MS = 60_000, 86_400_000
#: Of whole seconds a hand may make, upwards or downwards; a second off is off.
_SECOND_MS = 1_000


class HardEndContract(ContractBase):
    """`ahead_ms`: the ends that are asked for, by how far they are off. All of them have to be such as the provider
    takes; none is a whole number of seconds, minutes or hours. Without the fixture `now` they are counted from when a
    VM was made."""

    ahead_ms = (_MINUTE_MS + 501, 329 * _MINUTE_MS + 999, 99 * _DAY_MS + 1)

    async def test_the_hard_end_is_the_one_asked_for(
        self, provider: Provider, truth: Truth, make_request: MakeRequest, now: Now
    ) -> None:
        """A minute or a hundred days from now: to the second. 0 is none."""
        if provider.traits.hard_end is HardEnd.NONE:
            pytest.skip("no hard end")
        (endless,) = await self.launched(provider, await make_request(ends_ms=0))
        assert await truth.hard_end_ms(endless.id) == 0
        for ahead_ms in self.ahead_ms:
            request = await make_request(ends_ms=(now() if now else endless.created_ms) + ahead_ms)
            began_ms = self._spent_ms()
            await provider.launch(request)
            spent_ms = self._spent_ms() - began_ms
            (vm,) = await self.launched(provider, request)
            await self._keeps(truth, vm.id, request.ends_ms, spent_ms)

    async def test_a_moved_hard_end_is_the_one_asked_for(
        self, provider: Provider, truth: Truth, make_request: MakeRequest, now: Now
    ) -> None:
        """Later, or earlier than it was: what `extend` was given last is what the hand heeds and the tags say."""
        if provider.traits.hard_end is not HardEnd.EXTENDABLE:
            pytest.skip("the hard end can't be moved")
        (vm,) = await self.launched(provider, await make_request())
        await self.horizon(provider)
        for ahead_ms in (*reversed(self.ahead_ms), *self.ahead_ms):
            ends_ms, began_ms = (now() if now else vm.created_ms) + ahead_ms, self._spent_ms()
            assert await provider.extend([vm.id], ends_ms) == frozenset()
            await self._keeps(truth, vm.id, ends_ms, self._spent_ms() - began_ms)
            await self.horizon(provider)
            facts = decode((await provider.get(vm.id)).tags)
            assert facts is not None
            assert facts.ends_ms == ends_ms

    async def _keeps(self, truth: Truth, vm: VmId, ends_ms: int, spent_ms: int) -> None:
        """What is told as a time to live counts from when it arrives, which may be as much later as the call took."""
        kept_ms = await truth.hard_end_ms(vm)
        assert kept_ms, "there is no end"
        assert -_SECOND_MS < kept_ms - ends_ms < _SECOND_MS + spent_ms, f"off by {kept_ms - ends_ms} ms"

    def _spent_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)
