"""Tags: whole from the first moment, changed one by one, whatever characters they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_dispatch.domain.instance import Behaviour
from cloud_dispatch.domain.tags import BATCH, BEHAVIOUR, POOL, decode
from cloud_dispatch.provider.errors import Transient, VmNotFound
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.testing.provider_contract_base import DEPLOYMENT, ContractBase, Faults, MakeRequest


class TagContract(ContractBase):
    async def test_tags_are_whole_and_can_be_changed(self, provider: Provider, make_request: MakeRequest) -> None:
        """A VM can be adopted by its tags; a tag that is set is seen by listing and get, the others stay."""
        request = await make_request()
        (vm,) = await self.launched(provider, request)
        facts = decode(vm.tags)
        assert facts is not None
        assert facts.batch == request.batch
        await self.horizon(provider)
        await provider.tag(vm.id, {BEHAVIOUR: Behaviour.DRAIN})
        await self.horizon(provider)
        for found in (await provider.get(vm.id), *(await provider.list(DEPLOYMENT)).vms):
            assert decode(found.tags) == replace(facts, behaviour=Behaviour.DRAIN)

    async def test_tags_of_one_batch_are_told_apart(self, provider: Provider, make_request: MakeRequest) -> None:
        """VMs are born with one set of tags a batch; a change is of one VM."""
        if provider.traits.max_batch < 2:
            pytest.skip("one VM a launch")
        first, second = await self.launched(provider, await make_request(slots=2))
        await self.horizon(provider)
        await provider.tag(first.id, {BEHAVIOUR: Behaviour.HOLD})
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

    async def test_tags_of_no_vm_are_not_found(self, provider: Provider) -> None:
        """A tag for a VM that is not there is not set somewhere else, and not lost in silence."""
        with pytest.raises(VmNotFound):
            await provider.tag(self.unknown_vm, {BEHAVIOUR: Behaviour.HOLD})

    async def test_a_failed_tag_changes_nothing(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A change of tags that failed is an error; repeated, it is made."""
        (vm,) = await self.launched(provider, await make_request())
        await self.horizon(provider)
        faults.fail("tag", Transient)
        with pytest.raises(Transient):
            await provider.tag(vm.id, {BEHAVIOUR: Behaviour.HOLD})
        assert (await provider.get(vm.id)).tags[BEHAVIOUR] == Behaviour.RUN
        await provider.tag(vm.id, {BEHAVIOUR: Behaviour.HOLD})
        await self.horizon(provider)
        assert (await provider.get(vm.id)).tags[BEHAVIOUR] == Behaviour.HOLD
