"""Launches: what is offered, idempotence, partial fills, all or nothing, refusals of nonsense, operations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from cloud_dispatch.domain.ids import BatchId, instance_id
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.tags import BATCH
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    InvalidRequest,
    ProviderError,
    QuotaExceeded,
    Transient,
)
from cloud_dispatch.provider.spi import Operation, Provider, VmState
from cloud_dispatch.testing.provider_contract_base import (
    LONG_AGO_MS,
    UP,
    Connect,
    ContractBase,
    Faults,
    MakeRequest,
)


def _noise(characters: int) -> str:
    """A comment that stays over a quarter of its length when it is gzipped; the same each time."""
    words = (hashlib.sha256(b"%d" % number).hexdigest() for number in range(characters // 64 + 1))
    return "#" + "".join(words)[:characters]


def _shares(one: Offering, other: Offering, *, families: bool) -> bool:
    """Whether a quota of one is surely one of the other too."""
    alike = one.type.family == other.type.family if families else one.type.name == other.type.name
    return alike and (one.market, one.region) == (other.market, other.region)


_CPUS_MILLI, _MEMORY, _SECOND_MS = 50, 64 * 2**20, 1_000
#: A hundredth of a cent to a thousand dollars an hour, in nano-dollars.
_RATES = range(100_000, 1_000_000_000_001)
#: How far the creation of a VM may be from the account's clock.
_AGE_MS = 600_000


class LaunchContract(ContractBase):
    """`quotas_of_families`: False for a cloud whose quotas are of one type."""

    quotas_of_families = True

    async def test_offerings_have_distinct_keys_and_whole_prices(self, provider: Provider) -> None:
        """Every offering can be told apart, and a known price is a non-negative integer below its maximum. Amounts are
        in the units that they should be in: none is off by a factor of a thousand from what is sold anywhere."""
        offered = await provider.offerings()
        assert offered
        assert len({offering.key for offering in offered}) == len(offered)
        for offering in offered:
            capacity = offering.type.capacity
            assert capacity.cpus_milli >= _CPUS_MILLI, "thousandths of a CPU"
            assert capacity.memory == 0 or capacity.memory >= _MEMORY, "bytes"
            assert offering.minimum_ms == 0 or offering.minimum_ms >= _SECOND_MS, "milliseconds"
            assert offering.increment_ms > 0
            if offering.rate is not None:
                assert type(offering.rate) is int
                assert offering.priced_ms > 0, "a price without its time is refused where a limit is set"
                assert offering.priced_ms >= LONG_AGO_MS, "milliseconds since the epoch"
                assert offering.rate == 0 or offering.rate in _RATES, "nano-dollars an hour"
                assert 0 <= offering.rate <= (offering.rate if offering.max_rate is None else offering.max_rate)

    async def test_a_launch_makes_a_vm_that_is_listed_and_runs(
        self, provider: Provider, make_request: MakeRequest, now: Callable[[], int] | None
    ) -> None:
        """What a launch answers is what listing and get say too, with the type, zone and tags asked for, and when it
        was made, in milliseconds."""
        request = await make_request()
        (vm,) = await self.launched(provider, request)
        assert vm.state in UP
        found = await self.running(provider, vm.id)
        assert (found.type, found.zone) == (request.offering.type.name, request.offering.zone)
        assert found.spot == (request.offering.market is Market.SPOT)
        assert dict(found.tags) == dict(request.tags)
        for shown in (vm, found):
            assert shown.created_ms >= LONG_AGO_MS, "milliseconds since the epoch"
            assert now is None or abs(now() - shown.created_ms) < _AGE_MS
        assert await self.known(provider) == {vm.id}

    async def test_a_repeated_launch_makes_nothing_new(self, provider: Provider, make_request: MakeRequest) -> None:
        """The batch id is the idempotency token: the same request gives the same VMs."""
        request = await make_request()
        first = await self.launched(provider, request)
        second = await self.launched(provider, request)
        assert [vm.id for vm in second] == [vm.id for vm in first]
        assert await self.known(provider) == {vm.id for vm in first}

    async def test_a_repeat_that_asks_for_something_else_makes_nothing_new(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """A batch id used again for another type is an invalid request, or gives what is there."""
        request = await make_request()
        others = [offer for offer in await provider.offerings() if offer.type.name != request.offering.type.name]
        if not others:
            pytest.skip("one type only")
        first = await self.launched(provider, request)
        same_place = [offer for offer in others if offer.zone == request.offering.zone] or others
        try:
            again = await self.launched(provider, replace(request, offering=same_place[0]))
        except InvalidRequest:
            again = first
        assert [vm.id for vm in again] == [vm.id for vm in first]
        assert await self.known(provider) == {vm.id for vm in first}

    async def test_launches_of_one_batch_at_once_make_it_once(
        self, provider: Provider, connect: Connect, make_request: MakeRequest
    ) -> None:
        """Two drivers that launch the same batch at the same time make its VMs once."""
        request = await make_request()
        other = connect()
        try:
            results = await asyncio.gather(self.launched(provider, request), self.launched(other, request))
        finally:
            await other.close()
        known = await self.known(provider)
        assert {vm.id for vms in results for vm in vms} == known
        assert len(known) == 1

    async def test_a_batch_has_the_slots_asked_for(self, provider: Provider, make_request: MakeRequest) -> None:
        """A launch of several slots makes so many VMs; named ones have the ids that the traits foretold."""
        slots = min(self.many, provider.traits.max_batch)
        request = await make_request(slots=slots)
        vms = await self.launched(provider, request)
        assert len({vm.id for vm in vms}) == slots
        assert {vm.tags[BATCH] for vm in vms} == {request.batch}
        if provider.traits.named_slots:
            vms = tuple(sorted(vms, key=lambda vm: vm.slot))
            foretold = [provider.traits.vm_id(slot, request.offering.zone) for slot in request.instances]
            assert [vm.id for vm in vms] == foretold
            assert [vm.slot for vm in vms] == list(range(slots))

    async def test_a_repeated_launch_makes_only_the_slot_that_is_missing(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """Where slots are named, a repeat that asks for more of the batch keeps what is there."""
        if not provider.traits.named_slots or provider.traits.max_batch < 2:
            pytest.skip("the driver does not name slots, or launches one at a time")
        both = await make_request(slots=2)
        one = replace(both, slots=1, instances=both.instances[:1])
        (first,) = await self.launched(provider, one)
        second = {vm.slot: vm for vm in await self.launched(provider, both)}
        assert (second[0].id, second[0].created_ms) == (first.id, first.created_ms)
        assert len(await self.known(provider)) == 2

    async def test_a_vm_of_another_batch_is_not_taken_for_the_slots_own(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """A slot's name that another batch's VM has is an invalid request, and that VM stays as it is."""
        if not provider.traits.named_slots:
            pytest.skip("the driver does not name slots")
        request = await make_request()
        (vm,) = await self.launched(provider, request)
        strange = replace(await make_request(), instances=request.instances)
        await self._refused(provider, strange, InvalidRequest)
        found = await self.running(provider, vm.id)
        assert (found.created_ms, dict(found.tags)) == (vm.created_ms, dict(request.tags))
        assert await self.known(provider) == {vm.id}

    async def test_partial_capacity_gives_what_there_is_and_says_why(
        self, provider: Provider, connect: Connect, faults: Faults, make_request: MakeRequest
    ) -> None:
        """With room for one of two, one VM exists and the shortfall is a capacity error of the offering's scope; with
        none, it is raised; of another type that scope says nothing."""
        if provider.traits.max_batch < 2:
            pytest.skip("one VM a launch")
        request = await make_request(slots=2)
        faults.capacity(request.offering.type.name, 1)
        limited = connect()
        try:
            result = await self.settled(limited, request)
            assert len(result.vms) == 1
            assert isinstance(result.shortfall, CapacityUnavailable)
            assert result.shortfall.scope.covers(request.offering)
            more = await make_request(type_name=request.offering.type.name)
            for why in (result.shortfall, await self._refused(limited, more, CapacityUnavailable)):
                others = [offer for offer in await limited.offerings() if offer.type.name != request.offering.type.name]
                assert not [offer.key for offer in others if why.scope.covers(offer)]
            assert len(await self.known(limited)) == 1
        finally:
            await limited.close()

    async def test_all_or_nothing_makes_nothing_where_not_all_fit(
        self, provider: Provider, connect: Connect, faults: Faults, make_request: MakeRequest
    ) -> None:
        """With room for one of two that are wanted together none is made; with room for both, both."""
        if not provider.traits.all_or_nothing:
            pytest.skip("the driver can't launch all or nothing")
        request = await make_request(slots=2, min_slots=2)
        faults.capacity(request.offering.type.name, 1)
        limited = connect()
        try:
            await self._refused(limited, request, CapacityUnavailable)
            assert await self.known(limited) == set()
        finally:
            await limited.close()
        faults.capacity(request.offering.type.name, 2)
        roomy = connect()
        try:
            assert len(await self.launched(roomy, await make_request(slots=2, min_slots=2))) == 2
        finally:
            await roomy.close()

    async def test_a_quota_is_told_apart_from_capacity(
        self, provider: Provider, connect: Connect, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A limit of the account is a quota error whose scope covers all that it is of: the family, market and region
        of what was asked for at least. Its `quotas` tell that it is used up, as far as they tell."""
        faults.quota(1)
        limited = connect()
        try:
            request = await make_request()
            await self.launched(limited, request)
            refusal = await self._refused(limited, await make_request(), QuotaExceeded)
            alike = [
                offer
                for offer in await limited.offerings()
                if _shares(offer, request.offering, families=self.quotas_of_families)
            ]
            assert not [offer.key for offer in alike if not refusal.scope.covers(offer)]
            assert len(await self.known(limited)) == 1
            if limited.traits.quotas:
                told = [quota for quota in await limited.quotas() if quota.scope.covers(request.offering)]
                untold = [quota for quota in told if quota.limit is None or quota.used is None]
                assert untold or any(quota.limit == quota.used for quota in told)
        finally:
            await limited.close()

    async def _refused(self, provider: Provider, request: object, kind: type[ProviderError]) -> ProviderError:
        """The launch makes nothing, for the reason given; at once, or when its operations end."""
        assert hasattr(request, "offering")
        try:
            result = await self.settled(provider, request)  # type: ignore[arg-type]
        except ProviderError as error:
            refusal = error
        else:
            assert result.vms == ()
            assert result.shortfall is not None
            refusal = result.shortfall
        assert type(refusal) is kind
        assert refusal.scope.covers(request.offering)
        return refusal

    @pytest.mark.parametrize("wrong", ["slots", "no slots", "user data", "type", "zone", "min_slots"])
    async def test_nonsense_is_refused_before_anything_is_made(
        self, provider: Provider, make_request: MakeRequest, wrong: str
    ) -> None:
        """Too many slots or none, user data over the limit, a type or zone that is not there: an invalid request."""
        request, traits = await make_request(), provider.traits
        offering, many = request.offering, traits.max_batch + 1
        bad = {
            "slots": replace(
                request, slots=many, instances=tuple(instance_id(request.batch, slot) for slot in range(many))
            ),
            "no slots": replace(request, slots=0, instances=()),
            "user data": replace(request, user_data=_noise(4 * traits.max_user_data)),
            "type": replace(request, offering=replace(offering, type=replace(offering.type, name="no-such-type"))),
            "zone": replace(request, offering=replace(offering, zone="no-such-zone")),
            "min_slots": replace(request, min_slots=2),
        }[wrong]
        with pytest.raises(InvalidRequest):
            await provider.launch(bad)
        assert await self.known(provider) == set()

    async def test_user_data_are_measured_as_they_are_sent(
        self, provider: Provider, user_data: str, make_request: MakeRequest
    ) -> None:
        """What is packed may be longer than the limit before."""
        if not provider.traits.gzips_user_data:
            pytest.skip("user data are sent as they are")
        long = f"{user_data}\n#{'#' * 4 * provider.traits.max_user_data}\n"
        (vm,) = await self.launched(provider, await make_request(user_data=long))
        assert await self.known(provider) == {vm.id}

    async def test_min_slots_is_refused_where_the_traits_deny_it(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """A driver that can't launch all or nothing says so instead of launching a part."""
        if provider.traits.all_or_nothing or provider.traits.max_batch < 2:
            pytest.skip("the driver can, or launches one at a time")
        with pytest.raises(InvalidRequest):
            await provider.launch(await make_request(slots=2, min_slots=2))
        assert await self.known(provider) == set()

    async def test_spot_is_told_from_on_demand(self, provider: Provider, make_request: MakeRequest) -> None:
        """What is launched as spot is shown as spot, whether or not somebody knows what it can cost at most."""
        offering = await self.cheapest_spot(provider)
        (vm,) = await self.launched(provider, await make_request(offering=offering))
        assert (await self.running(provider, vm.id)).spot

    async def test_an_operation_can_be_resumed_by_another_driver(
        self, provider: Provider, connect: Connect, make_request: MakeRequest
    ) -> None:
        """What one driver began another one follows, as often as it likes, to the same VM."""
        result = await provider.launch(await make_request())
        if not result.pending:
            pytest.skip("the launch left no operation")
        (operation,) = result.pending
        assert operation.token.isprintable()
        await provider.close()
        heir = connect()
        try:
            answer = await self.until(lambda: heir.resume(operation), lambda found: not found.pending)
            (vm,) = answer.vms
            assert [found.id for found in (await heir.resume(operation)).vms] == [vm.id]
            assert await self.known(heir) == {vm.id}
        finally:
            await heir.close()

    @pytest.mark.parametrize("error", [CapacityUnavailable, QuotaExceeded], ids=lambda error: error.__name__)
    async def test_a_failure_inside_an_operation_is_a_shortfall(
        self, provider: Provider, faults: Faults, make_request: MakeRequest, error: type[ProviderError]
    ) -> None:
        """A launch that was accepted and failed later says why by the same classes, and leaves nothing."""
        if not provider.traits.operation_poll_ms:
            pytest.skip("launches of this driver end with their answer")
        request = await make_request()
        faults.fail_later(error)
        result = await self.settled(provider, request)
        assert result.vms == ()
        assert type(result.shortfall) is error
        assert result.shortfall.scope.covers(request.offering)
        assert await self.known(provider) == set()

    async def test_a_forgotten_operation_is_answered_with_what_there_is(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """Its VMs while they live, and afterwards a shortfall that lets the slots be launched again; it does not stay
        pending."""
        if not provider.traits.operation_poll_ms:
            pytest.skip("launches of this driver end with their answer")
        result = await provider.launch(await make_request())
        if not result.pending:
            pytest.skip("the launch left no operation")
        (operation,) = result.pending
        (vm,) = (await self.until(lambda: provider.resume(operation), lambda found: not found.pending)).vms
        await self.running(provider, vm.id)
        faults.forget_operations()
        told = await provider.resume(operation)
        assert ([one.id for one in told.vms], told.shortfall, told.pending) == ([vm.id], None, ())
        await self.end(provider, vm.id)
        await self.horizon(provider)
        told = await provider.resume(operation)
        assert ([one for one in told.vms if one.state is not VmState.GONE], told.pending) == ([], ())
        assert isinstance(told.shortfall, Transient)

    async def test_a_driver_without_operations_knows_none(self, provider: Provider) -> None:
        """An operation of somebody else is an invalid request, not a launch."""
        if provider.traits.operation_poll_ms:
            pytest.skip("the driver has operations")
        batch = BatchId("c99999999998")
        with pytest.raises(InvalidRequest):
            await provider.resume(Operation("no-such-operation", batch, (instance_id(batch, 0),)))
