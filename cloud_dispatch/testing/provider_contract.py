"""The conformance suite of provider drivers, version 1. Owns what every driver must do; knows no driver.

A driver's own tests make it run by subclassing `ProviderContract` and giving its fixtures:

    class TestMine(ProviderContract):
        @pytest.fixture
        def connect(self): ...        # () -> Provider: a new driver over the same account, each time it is called
        @pytest.fixture
        def user_data(self): ...      # boots a VM that stays up
        @pytest.fixture
        def faults(self): ...         # optional, see `Faults`
        @pytest.fixture
        def leftovers(self): ...      # optional: () -> whatever of terminated VMs still exists

Needs pytest and pytest-asyncio. VMs of a test that failed are terminated by the `provider` fixture.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

import pytest

from cloud_dispatch.domain.ids import BatchId, PoolName, VmId, instance_id
from cloud_dispatch.domain.instance import Behaviour
from cloud_dispatch.domain.tags import BEHAVIOUR, ENDS_AT, VmTags, decode
from cloud_dispatch.provider.errors import DEFINITIVE, CapacityUnavailable, InDoubt, ProviderError, VmNotFound
from cloud_dispatch.provider.spi import LaunchRequest, Provider, Vm, VmState

VERSION = 1
DEPLOYMENT = "contract"
_FAR_FUTURE_MS = 4_102_444_800_000  # 2100
_UP = frozenset({VmState.PENDING, VmState.RUNNING})
_batches = itertools.count()
_T = TypeVar("_T")

MakeRequest = Callable[..., Awaitable[LaunchRequest]]


class Faults(Protocol):
    """How a suite makes the driver's cloud misbehave. Each affects the next calls of `operation` only."""

    def fail(self, operation: str, error: type[ProviderError], *, commit: bool = False, times: int = 1) -> None:
        """Answer with `error`; with `commit` (InDoubt only) the call is carried out and its answer lost."""

    def capacity(self, type_name: str, vms: int) -> None:
        """Let at most `vms` VMs of the type exist, for drivers made from now on."""


@pytest.mark.asyncio
class ProviderContract:
    """Subclass it, give its fixtures. `settle_s` bounds how long a VM may take to come up or to be gone."""

    settle_s = 60.0
    poll_s = 0.05

    @pytest.fixture
    def connect(self) -> Callable[[], Provider]:
        raise NotImplementedError("give a fixture `connect`: () -> Provider")

    @pytest.fixture
    def user_data(self) -> str:
        return "#cloud-config\nruncmd:\n  - [sleep, '3600']\n"

    @pytest.fixture
    def faults(self) -> Faults | None:
        return None

    @pytest.fixture
    def leftovers(self) -> Callable[[], Iterable[object]]:
        return lambda: ()

    @pytest.fixture
    async def provider(self, connect: Callable[[], Provider]) -> AsyncIterator[Provider]:
        driver = connect()
        try:
            yield driver
        finally:
            await driver.close()
            last = connect()  # whatever the test did to its driver
            try:
                for vm in (await last.list(DEPLOYMENT)).vms:
                    await self.end(last, vm.id)
            finally:
                await last.close()

    @pytest.fixture
    async def make_request(self, provider: Provider, user_data: str) -> MakeRequest:
        """`await make_request(slots=1, deployment=...)`: a request for the cheapest offering, as a new batch."""

        async def make(slots: int = 1, deployment: str = DEPLOYMENT, type_name: str = "") -> LaunchRequest:
            offered = [
                offering
                for offering in await provider.offerings()
                if offering.rate is not None and type_name in ("", offering.type.name)
            ]
            cheapest = min(offered, key=lambda offering: (offering.rate or 0, offering.key))
            batch = BatchId(f"c{next(_batches):011d}")
            facts = VmTags(deployment, "store-1", PoolName("default"), batch, cheapest.rate or -1, _FAR_FUTURE_MS)
            return LaunchRequest(
                batch=batch,
                slots=slots,
                offering=cheapest,
                tags=facts.encode(),
                user_data=user_data,
                ends_ms=_FAR_FUTURE_MS,
                instances=tuple(instance_id(batch, slot) for slot in range(slots)),
            )

        return make

    async def until(self, ask: Callable[[], Awaitable[_T]], good: Callable[[_T], bool]) -> _T:
        """The first answer that is good; fails with the last one after `settle_s`."""
        answer = await ask()
        for _ in range(int(self.settle_s / self.poll_s)):
            if good(answer):
                return answer
            await asyncio.sleep(self.poll_s)
            answer = await ask()
        pytest.fail(f"not within {self.settle_s} s; at last {answer!r}")

    async def running(self, provider: Provider, vm: VmId) -> Vm:
        return await self.until(lambda: provider.get(vm), lambda found: found.state is VmState.RUNNING)

    async def end(self, provider: Provider, vm: VmId) -> None:
        """Terminate as the dispatcher does: again and again until the provider says not found."""

        async def gone() -> bool:
            await provider.terminate(vm)
            try:
                return (await provider.get(vm)).state is VmState.GONE
            except VmNotFound:
                return True

        await self.until(gone, bool)

    async def ids(self, provider: Provider, deployment: str = DEPLOYMENT) -> set[VmId]:
        listing = await provider.list(deployment)
        assert listing.complete
        return {vm.id for vm in listing.vms if vm.state is not VmState.GONE}

    async def test_offerings_have_distinct_keys_and_whole_prices(self, provider: Provider) -> None:
        """Every offering can be told apart, and a known price is a non-negative integer below its maximum."""
        offered = await provider.offerings()
        assert offered
        assert len({offering.key for offering in offered}) == len(offered)
        for offering in offered:
            assert offering.type.capacity.cpus_milli > 0
            if offering.rate is not None:
                assert 0 <= offering.rate <= (offering.rate if offering.max_rate is None else offering.max_rate)

    async def test_a_launch_makes_a_vm_that_is_listed_and_runs(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """What a launch answers is what listing and get say too, with the type, zone and tags asked for."""
        request = await make_request()
        result = await provider.launch(request)
        assert result.shortfall is None
        (vm,) = result.vms
        assert vm.state in _UP
        found = await self.running(provider, vm.id)
        assert (found.type, found.zone) == (request.offering.type.name, request.offering.zone)
        assert dict(found.tags) == dict(request.tags)
        assert await self.ids(provider) == {vm.id}

    async def test_a_repeated_launch_makes_nothing_new(self, provider: Provider, make_request: MakeRequest) -> None:
        """The batch id is the idempotency token: the same request gives the same VMs."""
        request = await make_request()
        first = await provider.launch(request)
        second = await provider.launch(request)
        assert [vm.id for vm in second.vms] == [vm.id for vm in first.vms]
        assert await self.ids(provider) == {vm.id for vm in first.vms}

    async def test_launches_of_one_batch_at_once_make_it_once(
        self, provider: Provider, connect: Callable[[], Provider], make_request: MakeRequest
    ) -> None:
        """Two drivers that launch the same batch at the same time make its VMs once."""
        request = await make_request()
        other = connect()
        try:
            results = await asyncio.gather(provider.launch(request), other.launch(request))
        finally:
            await other.close()
        assert {vm.id for result in results for vm in result.vms} == await self.ids(provider)
        assert len(await self.ids(provider)) == 1

    async def test_a_batch_has_the_slots_asked_for(self, provider: Provider, make_request: MakeRequest) -> None:
        """A launch of several slots makes so many VMs; named ones have the ids that the traits foretold."""
        slots = min(3, provider.traits.max_batch)
        request = await make_request(slots=slots)
        result = await provider.launch(request)
        assert len({vm.id for vm in result.vms}) == slots
        if provider.traits.named_slots:
            assert [vm.id for vm in result.vms] == [
                provider.traits.vm_id(slot, request.offering.zone) for slot in request.instances
            ]
            assert [vm.slot for vm in result.vms] == list(range(slots))

    async def test_a_repeated_launch_makes_only_the_slot_that_is_missing(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """Where slots are named, a repeat that asks for more of the batch keeps what is there."""
        if not provider.traits.named_slots or provider.traits.max_batch < 2:
            pytest.skip("the driver does not name slots, or launches one at a time")
        both = await make_request(slots=2)
        one = replace(both, slots=1, instances=both.instances[:1])
        first = await provider.launch(one)
        second = await provider.launch(both)
        assert second.vms[0].id == first.vms[0].id
        assert second.vms[0].created_ms == first.vms[0].created_ms
        assert len(await self.ids(provider)) == 2

    async def test_partial_capacity_gives_what_there_is_and_says_why(
        self, provider: Provider, connect: Callable[[], Provider], faults: Faults | None, make_request: MakeRequest
    ) -> None:
        """With room for one of two, one VM exists and the shortfall is a capacity error; with none, it is raised."""
        if faults is None or provider.traits.max_batch < 2:
            pytest.skip("no way to limit capacity, or one VM a launch")
        request = await make_request(slots=2)
        faults.capacity(request.offering.type.name, 1)
        limited = connect()
        try:
            result = await limited.launch(request)
            assert len(result.vms) == 1
            assert isinstance(result.shortfall, CapacityUnavailable)
            assert result.shortfall.scope.type in ("", request.offering.type.name)
            with pytest.raises(CapacityUnavailable):
                await limited.launch(await make_request(type_name=request.offering.type.name))
            assert len(await self.ids(limited)) == 1
        finally:
            await limited.close()

    async def test_tags_are_whole_and_can_be_changed(self, provider: Provider, make_request: MakeRequest) -> None:
        """A VM can be adopted by its tags; a tag that is set is seen by listing and get, the others stay."""
        request = await make_request()
        (vm,) = (await provider.launch(request)).vms
        facts = decode(vm.tags)
        assert facts is not None
        assert facts.batch == request.batch
        await provider.tag(vm.id, {BEHAVIOUR: Behaviour.DRAIN, ENDS_AT: str(_FAR_FUTURE_MS - 1)})
        for found in (await provider.get(vm.id), (await provider.list(DEPLOYMENT)).vms[0]):
            changed = decode(found.tags)
            assert changed == replace(facts, behaviour=Behaviour.DRAIN, ends_ms=_FAR_FUTURE_MS - 1)

    async def test_a_listing_shows_one_deployment(self, provider: Provider, make_request: MakeRequest) -> None:
        """VMs of another deployment are not listed; an empty deployment lists nothing."""
        (ours,) = (await provider.launch(await make_request())).vms
        (theirs,) = (await provider.launch(await make_request(deployment="contract-other"))).vms
        try:
            assert await self.ids(provider) == {ours.id}
            assert await self.ids(provider, "contract-other") == {theirs.id}
            assert (await provider.list("")).vms == ()
        finally:
            await self.end(provider, theirs.id)

    async def test_terminate_repeated_ends_in_not_found(
        self, provider: Provider, make_request: MakeRequest, leftovers: Callable[[], Iterable[object]]
    ) -> None:
        """Terminate is asked until get says not found; then nothing of the VM is left, and asking again succeeds."""
        (vm,) = (await provider.launch(await make_request())).vms
        await self.running(provider, vm.id)
        await self.end(provider, vm.id)
        assert await self.ids(provider) == set()
        assert list(leftovers()) == []
        await provider.terminate(vm.id)
        with pytest.raises(VmNotFound):
            await provider.tag(vm.id, {BEHAVIOUR: Behaviour.HOLD})

    async def test_a_vm_that_ends_is_not_shown_as_up(self, provider: Provider, make_request: MakeRequest) -> None:
        """From the first terminate on, a VM is stopping, stopped or gone: nobody counts on it again."""
        (vm,) = (await provider.launch(await make_request())).vms
        await self.running(provider, vm.id)
        await provider.terminate(vm.id)
        assert not [found for found in (await provider.list(DEPLOYMENT)).vms if found.state in _UP]

    async def test_a_vm_can_be_terminated_as_soon_as_it_is_launched(
        self, provider: Provider, make_request: MakeRequest, leftovers: Callable[[], Iterable[object]]
    ) -> None:
        """A terminate that comes before the VM has started leaves nothing that starts later."""
        (vm,) = (await provider.launch(await make_request())).vms
        await self.end(provider, vm.id)
        assert await self.ids(provider) == set()
        assert list(leftovers()) == []

    async def test_terminate_of_an_unknown_vm_succeeds(self, provider: Provider) -> None:
        """What does not exist is terminated already."""
        await provider.terminate(VmId("c99999999999-0"))

    async def test_get_of_an_unknown_vm_is_not_found(self, provider: Provider) -> None:
        """Get tells absence apart from every other trouble."""
        with pytest.raises(VmNotFound):
            await provider.get(VmId("c99999999999-0"))

    async def test_vms_outlive_the_driver(
        self, provider: Provider, connect: Callable[[], Provider], make_request: MakeRequest
    ) -> None:
        """A new driver over the same account sees the VMs of a closed one, tags included, and can end them."""
        request = await make_request()
        (vm,) = (await provider.launch(request)).vms
        await self.running(provider, vm.id)
        await provider.close()
        heir = connect()
        try:
            found = await heir.get(vm.id)
            assert (found.state, dict(found.tags)) == (VmState.RUNNING, dict(request.tags))
            await self.end(heir, vm.id)
        finally:
            await heir.close()

    @pytest.mark.parametrize("error", DEFINITIVE, ids=lambda error: error.__name__)
    async def test_a_definitive_refusal_makes_nothing(
        self, provider: Provider, faults: Faults | None, make_request: MakeRequest, error: type[ProviderError]
    ) -> None:
        """Each refusal arrives as its own class and leaves no VM behind; the same request succeeds later."""
        if faults is None:
            pytest.skip("no way to inject faults")
        request = await make_request()
        faults.fail("launch", error)
        with pytest.raises(ProviderError) as caught:
            await provider.launch(request)
        assert type(caught.value) is error
        assert await self.ids(provider) == set()
        assert len((await provider.launch(request)).vms) == 1

    async def test_a_launch_in_doubt_and_repeated_gives_the_same_vms(
        self, provider: Provider, faults: Faults | None, make_request: MakeRequest
    ) -> None:
        """A launch that was carried out and whose answer was lost is found by listing and by asking again."""
        if faults is None:
            pytest.skip("no way to inject faults")
        request = await make_request()
        faults.fail("launch", InDoubt, commit=True)
        with pytest.raises(InDoubt):
            await provider.launch(request)
        made = await self.until(lambda: self.ids(provider), bool)
        again = await provider.launch(request)
        assert {vm.id for vm in again.vms} == made
        assert await self.ids(provider) == made

    async def test_a_failed_listing_is_an_error_and_not_an_empty_one(
        self, provider: Provider, faults: Faults | None, make_request: MakeRequest
    ) -> None:
        """Trouble while listing is never taken for the absence of VMs."""
        if faults is None:
            pytest.skip("no way to inject faults")
        (vm,) = (await provider.launch(await make_request())).vms
        faults.fail("list", DEFINITIVE[-1])
        with pytest.raises(DEFINITIVE[-1]):
            await provider.list(DEPLOYMENT)
        assert await self.ids(provider) == {vm.id}
