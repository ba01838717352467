"""Tags: whole from the first moment, changed one by one or together, whatever characters they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_dispatch.domain.ids import PoolName, VmId
from cloud_dispatch.domain.instance import Behaviour
from cloud_dispatch.domain.tags import BATCH, BEHAVIOUR, POOL, decode
from cloud_dispatch.provider.errors import InvalidRequest, Transient
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.testing.provider_contract_base import DEPLOYMENT, ContractBase, Faults, MakeRequest


class TagContract(ContractBase):
    async def test_tags_are_whole_and_can_be_changed(self, provider: Provider, make_request: MakeRequest) -> None:
        """A VM can be adopted by its tags; a tag that is set is seen by listing and get, the others stay, also one that
        was set just before. Where no VM is named none is tagged."""
        request = await make_request()
        (vm,) = await self.launched(provider, request)
        facts = decode(vm.tags)
        assert facts is not None
        assert facts.batch == request.batch
        await self.horizon(provider)
        assert await provider.tag([vm.id], {POOL: "Another_One"}) == frozenset()
        assert await provider.tag([vm.id], {BEHAVIOUR: Behaviour.DRAIN}) == frozenset()
        assert await provider.tag([], {BEHAVIOUR: Behaviour.HOLD}) == frozenset()
        await self.horizon(provider)
        for found in (await provider.get(vm.id), *(await provider.list(DEPLOYMENT)).vms):
            assert decode(found.tags) == replace(facts, behaviour=Behaviour.DRAIN, pool=PoolName("Another_One"))

    async def test_tags_of_one_batch_are_told_apart(self, provider: Provider, make_request: MakeRequest) -> None:
        """VMs are born with one set of tags a batch; a change is of one VM."""
        if provider.traits.max_batch < 2:
            pytest.skip("one VM a launch")
        first, second = await self.launched(provider, await make_request(slots=2))
        await self.horizon(provider)
        await provider.tag([first.id], {BEHAVIOUR: Behaviour.HOLD})
        await self.horizon(provider)
        assert (await provider.get(first.id)).tags[BEHAVIOUR] == Behaviour.HOLD
        assert (await provider.get(second.id)).tags[BEHAVIOUR] == Behaviour.RUN

    @pytest.mark.parametrize("value", ["Mixed-Case_09", "p" * 63, "a.b"])
    async def test_a_value_comes_back_as_it_went(
        self, provider: Provider, make_request: MakeRequest, value: str
    ) -> None:
        """Case, length and punctuation of a pool's name survive a cloud that allows less: the driver translates."""
        request = await make_request()
        (vm,) = await self.launched(provider, replace(request, tags={**request.tags, POOL: value}))
        await self.horizon(provider)
        found = await provider.get(vm.id)
        assert (found.tags[POOL], found.tags[BATCH]) == (value, request.batch)

    async def test_vms_are_tagged_together(self, provider: Provider, make_request: MakeRequest) -> None:
        """Of the VMs that one call names each gets the tags, however many batches they are of; no other does."""
        if provider.traits.max_tagged < 2:
            pytest.skip("one VM a call")
        made = [(await self.launched(provider, await make_request()))[0].id for _ in range(3)]
        await self.horizon(provider)
        assert await provider.tag([made[0], made[2], made[0]], {BEHAVIOUR: Behaviour.HOLD}) == frozenset()
        await self.horizon(provider)
        behaviours = [(await provider.get(vm)).tags[BEHAVIOUR] for vm in made]
        assert behaviours == [Behaviour.HOLD, Behaviour.RUN, Behaviour.HOLD]

    async def test_tags_of_no_vm_are_not_found(self, provider: Provider) -> None:
        """A tag for a VM that is not there is not set somewhere else, and not lost in silence."""
        assert await provider.tag([self.unknown_vm], {BEHAVIOUR: Behaviour.HOLD}) == {self.unknown_vm}
        assert await provider.tag([], {BEHAVIOUR: Behaviour.HOLD}) == frozenset()

    async def test_a_vm_that_is_not_there_keeps_no_other_from_its_tags(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """Wherever it stands among the others: they are tagged, and it alone is not found."""
        if provider.traits.max_tagged < 3:
            pytest.skip("fewer than three VMs a call")
        first, last = [(await self.launched(provider, await make_request()))[0].id for _ in range(2)]
        await self.horizon(provider)
        missing = await provider.tag([first, self.unknown_vm, last], {BEHAVIOUR: Behaviour.HOLD})
        assert missing == {self.unknown_vm}
        await self.horizon(provider)
        for vm in (first, last):
            assert (await provider.get(vm)).tags[BEHAVIOUR] == Behaviour.HOLD

    async def test_more_vms_than_a_call_may_name_are_refused(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """`max_tagged` holds: one VM more is an invalid request, of which nothing is carried out."""
        (vm,) = await self.launched(provider, await make_request())
        await self.horizon(provider)
        nobody = [VmId(f"{self.unknown_vm}{number}") for number in range(provider.traits.max_tagged)]
        with pytest.raises(InvalidRequest):
            await provider.tag([vm.id, *nobody], {BEHAVIOUR: Behaviour.HOLD})
        await self.horizon(provider)
        assert (await provider.get(vm.id)).tags[BEHAVIOUR] == Behaviour.RUN

    async def test_a_failed_tag_changes_nothing(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A change of tags that failed is an error; repeated, it is made."""
        (vm,) = await self.launched(provider, await make_request())
        await self.horizon(provider)
        faults.fail("tag", Transient)
        with pytest.raises(Transient):
            await provider.tag([vm.id], {BEHAVIOUR: Behaviour.HOLD})
        assert (await provider.get(vm.id)).tags[BEHAVIOUR] == Behaviour.RUN
        await provider.tag([vm.id], {BEHAVIOUR: Behaviour.HOLD})
        await self.horizon(provider)
        assert (await provider.get(vm.id)).tags[BEHAVIOUR] == Behaviour.HOLD
