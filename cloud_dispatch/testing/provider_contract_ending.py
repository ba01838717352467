"""Ends: deletion repeated until not found, the hard end and its moves, a VM that its provider takes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.instance import Behaviour
from cloud_dispatch.domain.tags import BEHAVIOUR, decode
from cloud_dispatch.provider.errors import InDoubt, InvalidRequest, Transient, VmNotFound
from cloud_dispatch.provider.spi import HardEnd, Provider, Vm, VmState
from cloud_dispatch.testing.provider_contract_base import (
    DEPLOYMENT,
    FAR_FUTURE_MS,
    UP,
    ContractBase,
    Faults,
    Leftovers,
    MakeRequest,
)

Now = Callable[[], int] | None
_STAYS = frozenset({VmState.STOPPING, VmState.STOPPED})
#: So often is no chance: reads that are late show a moment of it at different times, or not at all.
_SEEN_OFTEN = 3


class EndingContract(ContractBase):
    """`lives_ms`: how long a VM of the tests of the hard end lives; they need the fixture `now`."""

    lives_ms = 5_000

    async def test_terminate_repeated_ends_in_not_found(
        self, provider: Provider, make_request: MakeRequest, leftovers: Leftovers
    ) -> None:
        """Terminate is asked until get says not found; then nothing of the VM is left, and asking again succeeds. Tags
        for it are set on what a cloud still shows of it, or it is not found; it does not come back by them."""
        (vm,) = await self.launched(provider, await make_request())
        await self.running(provider, vm.id)
        await self.end(provider, vm.id)
        assert await self.known(provider) == set()
        assert list(leftovers()) == []
        await provider.terminate(vm.id)
        assert await provider.tag([vm.id], {BEHAVIOUR: Behaviour.HOLD}) <= {vm.id}
        assert await self.known(provider) == set()

    async def test_a_vm_that_ends_is_not_shown_as_up(self, provider: Provider, make_request: MakeRequest) -> None:
        """From the first terminate on (and its horizon), a VM is stopping, stopped or gone: nobody counts on it."""
        (vm,) = await self.launched(provider, await make_request())
        await self.running(provider, vm.id)
        await provider.terminate(vm.id)
        await self.horizon(provider)
        assert not [found for found in (await provider.list(DEPLOYMENT)).vms if found.state in UP]

    async def test_a_vm_that_is_stopping_is_still_shown(self, provider: Provider, make_request: MakeRequest) -> None:
        """It bills, and may stay: for as long as it does it is in listings and can be got, whatever its state. It was
        not taken back: that we asked is no doing of the market."""
        (vm,) = await self.launched(provider, await make_request())
        await self.running(provider, vm.id)
        await provider.terminate(vm.id)
        listed, got = 0, 0
        for _ in range(int(self.settle_s / self.poll_s)):
            vms = (await provider.list(DEPLOYMENT)).vms
            here = [found for found in vms if found.id == vm.id and found.state is not VmState.GONE]
            there = await self._found(provider, vm.id)
            if not here and not there:
                break
            assert not [found for found in (*here, *there) if found.preempted]
            listed += any(found.state in _STAYS for found in here)
            got += any(found.state in _STAYS for found in there)
            await asyncio.sleep(self.poll_s)
        assert got or listed < _SEEN_OFTEN, f"{listed} listings show it on its way out, and no get"
        assert listed or got < _SEEN_OFTEN, f"{got} gets show it on its way out, and no listing"

    async def _found(self, provider: Provider, vm: VmId) -> list[Vm]:
        """What a get shows of the VM: nothing once it is gone."""
        try:
            found = await provider.get(vm)
        except VmNotFound:
            return []
        return [found] if found.state is not VmState.GONE else []

    async def test_a_vm_can_be_terminated_as_soon_as_it_is_launched(
        self, provider: Provider, make_request: MakeRequest, leftovers: Leftovers
    ) -> None:
        """A terminate that comes before the VM has started leaves nothing that starts later."""
        (vm,) = await self.launched(provider, await make_request())
        await provider.terminate(vm.id)
        await self.horizon(provider)
        await self.end(provider, vm.id)
        assert await self.known(provider) == set()
        assert list(leftovers()) == []

    async def test_an_end_leaves_the_other_vms_alone(self, provider: Provider, make_request: MakeRequest) -> None:
        """Of two VMs, of one batch where that can be, one is ended and the other runs on."""
        if provider.traits.max_batch > 1:
            first, second = await self.launched(provider, await make_request(slots=2))
        else:
            (first,) = await self.launched(provider, await make_request())
            (second,) = await self.launched(provider, await make_request())
        await self.running(provider, first.id)
        await self.end(provider, first.id)
        assert await self.known(provider) == {second.id}
        assert (await provider.get(second.id)).state in UP

    async def test_terminate_of_an_unknown_vm_succeeds(self, provider: Provider) -> None:
        """What does not exist is terminated already."""
        await provider.terminate(self.unknown_vm)

    async def test_a_failed_terminate_says_so_and_can_be_repeated(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A deletion that was not made is an error, and the VM is still shown as up until it is."""
        (vm,) = await self.launched(provider, await make_request())
        await self.running(provider, vm.id)
        faults.fail("terminate", Transient)
        with pytest.raises(Transient):
            await provider.terminate(vm.id)
        assert (await provider.get(vm.id)).state in UP
        await self.end(provider, vm.id)

    async def test_a_terminate_in_doubt_is_repeated(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A deletion whose answer was lost has been made: the repeats find nothing more to do."""
        (vm,) = await self.launched(provider, await make_request())
        await self.running(provider, vm.id)
        faults.fail("terminate", InDoubt, commit=True)
        with pytest.raises(InDoubt):
            await provider.terminate(vm.id)
        await self.until(lambda: self._ended(provider, vm.id), bool)
        await self.end(provider, vm.id)

    async def _ended(self, provider: Provider, vm: object) -> bool:
        return not [found for found in (await provider.list(DEPLOYMENT)).vms if found.id == vm and found.state in UP]

    async def test_the_hard_end_comes_by_itself(self, provider: Provider, make_request: MakeRequest, now: Now) -> None:
        """Nobody asks, and the VM ends: not before `ends_ms`, and within the hand's period and stop lag after it; one
        with an end of 0 has none."""
        traits = provider.traits
        if traits.hard_end is HardEnd.NONE or now is None:
            pytest.skip("no hard end, or the account's clock is not given")
        (endless,) = await self.launched(provider, await make_request(ends_ms=0))
        ends_ms = now() + self.lives_ms
        (vm,) = await self.launched(provider, await make_request(ends_ms=ends_ms))
        await asyncio.sleep(max(ends_ms - now() - self.lives_ms // 10, 0) / 1000)
        assert (await provider.get(vm.id)).state in UP
        late = ends_ms + traits.hard_end_period_ms + traits.stop_lag_ms + traits.consistency_ms
        await asyncio.sleep((late - now()) / 1000 + self.poll_s)
        assert [found.id for found in (await provider.list(DEPLOYMENT)).vms if found.state in UP] == [endless.id]

    async def test_an_extended_hard_end_comes_later(
        self, provider: Provider, make_request: MakeRequest, now: Now
    ) -> None:
        """Where the end can be moved it is, with its tag; the VM is up when the old one has passed."""
        traits = provider.traits
        if traits.hard_end is not HardEnd.EXTENDABLE or now is None:
            pytest.skip("the hard end can't be moved, or the account's clock is not given")
        ends_ms = now() + self.lives_ms
        (vm,) = await self.launched(provider, await make_request(ends_ms=ends_ms))
        await self.horizon(provider)
        assert await provider.extend([vm.id], FAR_FUTURE_MS) == frozenset()
        late = ends_ms + traits.hard_end_period_ms + traits.stop_lag_ms + traits.consistency_ms
        await asyncio.sleep((late - now()) / 1000 + self.poll_s)
        found = await provider.get(vm.id)
        assert found.state in UP
        facts = decode(found.tags)
        assert facts is not None
        assert facts.ends_ms == FAR_FUTURE_MS
        await provider.extend([vm.id], now() + 1)
        gone_ms = traits.hard_end_period_ms + traits.stop_lag_ms + traits.consistency_ms
        await asyncio.sleep(gone_ms / 1000 + self.poll_s)
        assert not [listed for listed in (await provider.list(DEPLOYMENT)).vms if listed.state in UP]

    async def test_a_hard_end_that_can_not_be_moved_says_so(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """Without an end that can be moved, `extend` is an invalid request; with one, of no VM it is not found."""
        if provider.traits.hard_end is HardEnd.EXTENDABLE:
            assert await provider.extend([self.unknown_vm], FAR_FUTURE_MS) == {self.unknown_vm}
            return
        (vm,) = await self.launched(provider, await make_request())
        await self.horizon(provider)
        with pytest.raises(InvalidRequest):
            await provider.extend([vm.id], FAR_FUTURE_MS - 1)

    async def test_hard_ends_are_moved_together(self, provider: Provider, make_request: MakeRequest) -> None:
        """Of the VMs that one `extend` names each gets the end, but for those that there are not; no other does,
        where none is named none, and where one too many is none."""
        traits = provider.traits
        if traits.hard_end is not HardEnd.EXTENDABLE:
            pytest.skip("the hard end can't be moved")
        several = traits.max_tagged > 2
        made = [(await self.launched(provider, await make_request()))[0].id for _ in range(3)]
        moved = made[:2] if several else made[:1]
        await self.horizon(provider)
        asked = [moved[0], self.unknown_vm, *moved[1:]] if several else moved
        assert await provider.extend(asked, FAR_FUTURE_MS + 1) == set(asked) - set(moved)
        assert await provider.extend([], FAR_FUTURE_MS + 2) == frozenset()
        nobody = [VmId(f"{self.unknown_vm}{number}") for number in range(traits.max_tagged)]
        with pytest.raises(InvalidRequest):
            await provider.extend([made[0], *nobody], FAR_FUTURE_MS + 3)
        await self.horizon(provider)
        worn = {vm: decode((await provider.get(vm)).tags) for vm in made}
        ends = {vm: facts.ends_ms for vm, facts in worn.items() if facts is not None}
        assert ends == {vm: FAR_FUTURE_MS + (vm in moved) for vm in made}

    async def test_a_vm_that_was_taken_back_says_so(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A spot VM that its provider takes back is shown as preempted for as long as it is shown, and ends."""
        (vm,) = await self.launched(provider, await make_request(offering=await self.cheapest_spot(provider)))
        await self.running(provider, vm.id)
        faults.preempt(vm.id)
        await self.horizon(provider)
        shown = [found for found in (await provider.list(DEPLOYMENT)).vms if found.id == vm.id]
        assert all(found.preempted for found in shown)
        await self.until(lambda: self._ended(provider, vm.id), bool)
        await self.horizon(provider)  # one listing may be later than the one before
        assert not [found for found in (await provider.list(DEPLOYMENT)).vms if found.state is VmState.RUNNING]
