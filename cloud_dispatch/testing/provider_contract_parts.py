"""Launches of a part of a batch: later slots, room for some, limits for some; and what a repeat answers much later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_dispatch.provider.errors import CapacityUnavailable, QuotaExceeded
from cloud_dispatch.provider.spi import LaunchResult, Provider
from cloud_dispatch.testing.provider_contract_base import Connect, ContractBase, Faults, MakeRequest


class PartsContract(ContractBase):
    """`tells_quotas_of_parts`: False for a cloud that makes the part of a batch that a quota allows without saying that
    it was the quota; then it may be taken for capacity."""

    tells_quotas_of_parts = True

    async def test_a_slot_keeps_its_name_whoever_is_launched_before_it(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """`instances` says which slots: the second alone is the second, and once it can be seen, both are answered."""
        if not provider.traits.named_slots or provider.traits.max_batch < 2:
            pytest.skip("the driver does not name slots, or launches one at a time")
        both = await make_request(slots=2)
        (second,) = await self.launched(provider, replace(both, slots=1, instances=both.instances[1:]))
        assert (second.id, second.slot) == (provider.traits.vm_id(both.instances[1], both.offering.zone), 1)
        await self.horizon(provider)
        answered = {vm.slot: vm.id for vm in await self.launched(provider, both)}
        assert set(answered) == {0, 1}
        assert answered[1] == second.id
        assert await self.known(provider) == set(answered.values())

    async def test_a_launch_repeated_later_answers_the_same_vms(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """Also when there is nothing left to make, and the VMs run: all of them are the answer."""
        request = await make_request(slots=min(2, provider.traits.max_batch))
        first = await self.launched(provider, request)
        for vm in first:
            await self.running(provider, vm.id)
        again = await self.launched(provider, request)
        assert sorted(vm.id for vm in again) == sorted(vm.id for vm in first)
        assert await self.known(provider) == {vm.id for vm in first}

    async def test_room_for_the_least_that_is_wanted_is_enough(
        self, provider: Provider, connect: Connect, faults: Faults, make_request: MakeRequest
    ) -> None:
        """With room for two of three, of which two are needed, there are two; `min_slots` is not all."""
        if not provider.traits.all_or_nothing or provider.traits.max_batch < 3:
            pytest.skip("the driver can't launch all or nothing, or no three")
        request = await make_request(slots=3, min_slots=2)
        faults.capacity(request.offering.type.name, 2)
        limited = connect()
        try:
            result = await self.settled(limited, request)
            assert len(result.vms) == 2
            assert isinstance(result.shortfall, CapacityUnavailable)
        finally:
            await limited.close()

    async def test_a_quota_for_a_part_is_told_apart_from_capacity(
        self, provider: Provider, connect: Connect, faults: Faults, make_request: MakeRequest
    ) -> None:
        """With a limit of one of two there is that one, or none; why the other is missing is the quota, where the cloud
        tells."""
        if provider.traits.max_batch < 2:
            pytest.skip("one VM a launch")
        faults.quota(1)
        limited = connect()
        try:
            request = await make_request(slots=2)
            try:
                result = await self.settled(limited, request)
            except QuotaExceeded as error:
                result = LaunchResult((), error)
            why = result.shortfall
            assert len(result.vms) <= 1
            kinds = (QuotaExceeded,) if self.tells_quotas_of_parts else (QuotaExceeded, CapacityUnavailable)
            assert isinstance(why, kinds)
            assert why.scope.covers(request.offering)
            assert await self.known(limited) == {vm.id for vm in result.vms}
        finally:
            await limited.close()
