"""Drivers with one bug each, and the test of the conformance suite that finds it. Everything else in them is right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cloud_dispatch.domain.ids import BatchId, InstanceId, VmId, instance_id, slot_of
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    InDoubt,
    InvalidRequest,
    ProviderError,
    QuotaExceeded,
    Transient,
    VmNotFound,
)
from cloud_dispatch.provider.spi import (
    Finding,
    Heard,
    LaunchRequest,
    LaunchResult,
    Leftover,
    LeftoverKind,
    Listing,
    Operation,
    Price,
    Quota,
    Traits,
    Vm,
    VmState,
)
from tests.providers.memory import NAMED, TOKENS, MemoryCloud, MemoryProvider, Record, now_ms


@dataclass(frozen=True)
class Planted:
    """A broken driver, the flavour of cloud that it breaks, and the test that must see it: with each of its parameters,
    or with these alone, by their names or values; with the others it passes."""

    test: str
    driver: type[MemoryProvider]
    traits: Traits
    only: tuple[str, ...] = ()


PLANTED: list[Planted] = []


def breaks(
    test: str, traits: Traits = NAMED, only: tuple[str, ...] = ()
) -> Callable[[type[MemoryProvider]], type[MemoryProvider]]:
    def plant(driver: type[MemoryProvider]) -> type[MemoryProvider]:
        PLANTED.append(Planted(test, driver, traits, only))
        return driver

    return plant


# Launches


@breaks("test_offerings_have_distinct_keys_and_whole_prices")
class OffersTwice(MemoryProvider):
    async def offerings(self) -> Sequence[Offering]:
        return [*await super().offerings()] * 2


@breaks("test_a_launch_makes_a_vm_that_is_listed_and_runs")
class LosesATag(MemoryProvider):
    def make(self, request: LaunchRequest, slot: InstanceId) -> None:
        super().make(replace(request, tags=dict(list(request.tags.items())[1:])), slot)


class Forgetful(MemoryProvider):
    """Looks for no VMs of the batch."""

    def present(self, request: LaunchRequest, slots: Sequence[InstanceId]) -> dict[InstanceId, Record]:
        return {}


@breaks("test_a_repeated_launch_makes_nothing_new", TOKENS)
@breaks("test_a_launch_in_doubt_and_repeated_gives_the_same_vms", TOKENS)
class IgnoresTheToken(Forgetful): ...


@breaks("test_a_vm_of_another_batch_is_not_taken_for_the_slots_own")
class GoesByTheNameAlone(MemoryProvider):
    def present(self, request: LaunchRequest, slots: Sequence[InstanceId]) -> dict[InstanceId, Record]:
        return super().present(replace(request, batch=slot_of(slots[0])[0]), slots)


@breaks("test_a_repeat_that_asks_for_something_else_makes_nothing_new", TOKENS)
class TokenOfTheWholeRequest(MemoryProvider):
    def present(self, request: LaunchRequest, slots: Sequence[InstanceId]) -> dict[InstanceId, Record]:
        known = {item.request.offering for item in self.cloud.living()}
        return super().present(request, slots) if request.offering in known else {}


@breaks("test_launches_of_one_batch_at_once_make_it_once", TOKENS)
class LooksThenMakes(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        there = self.present(request, request.instances)
        await asyncio.sleep(0.01)
        if there:
            return await super().launch(request)
        for slot in request.instances:
            self.make(request, slot)
        newest = list(self.cloud.records.values())[-request.slots :]
        return LaunchResult(tuple(map(self.show, newest)))


@breaks("test_a_batch_has_the_slots_asked_for")
class CountsFromOne(MemoryProvider):
    def show(self, record: Record) -> Vm:
        return replace(super().show(record), slot=record.slot + 1)


@breaks("test_a_repeated_launch_makes_only_the_slot_that_is_missing")
class MakesAllAnew(Forgetful): ...


@breaks("test_partial_capacity_gives_what_there_is_and_says_why", TOKENS)
class AlwaysAllOrNothing(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        return await super().launch(replace(request, min_slots=max(request.slots, request.min_slots)))


@breaks("test_all_or_nothing_makes_nothing_where_not_all_fit", TOKENS)
@breaks("test_min_slots_is_refused_where_the_traits_deny_it")
class IgnoresMinSlots(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        return await super().launch(replace(request, min_slots=1))


@breaks("test_a_quota_is_told_apart_from_capacity")
class TakesQuotaForCapacity(MemoryProvider):
    def room(self, offering: Offering) -> tuple[int, ProviderError]:
        room, error = super().room(offering)
        return room, CapacityUnavailable(error.message) if isinstance(error, QuotaExceeded) else error


@breaks("test_nonsense_is_refused_before_anything_is_made", TOKENS)
class ChecksNothing(MemoryProvider):
    def check(self, request: LaunchRequest) -> None: ...


@breaks("test_spot_is_told_from_on_demand")
class HidesSpot(MemoryProvider):
    def show(self, record: Record) -> Vm:
        return replace(super().show(record), spot=False)


@breaks("test_an_operation_can_be_resumed_by_another_driver")
class KeepsOperationsToItself(MemoryProvider):
    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.mine: set[str] = set()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        result = await super().launch(request)
        self.mine |= {operation.token for operation in result.pending}
        return result

    async def resume(self, operation: Operation) -> LaunchResult:
        if operation.token not in self.mine:
            raise InvalidRequest(f"no operation {operation.token}")
        return await super().resume(operation)


@breaks("test_a_failure_inside_an_operation_is_a_shortfall")
class LosesTheReason(MemoryProvider):
    async def resume(self, operation: Operation) -> LaunchResult:
        return replace(await super().resume(operation), shortfall=None)


@breaks("test_a_driver_without_operations_knows_none", TOKENS)
class KnowsEveryOperation(MemoryProvider):
    async def resume(self, operation: Operation) -> LaunchResult:
        return LaunchResult(())


# Listings


@breaks("test_a_listing_shows_one_deployment")
class ListsEverybodys(MemoryProvider):
    async def list(self, deployment: str) -> Listing:
        return Listing(tuple(map(self.show, self.cloud.living())))


@breaks("test_a_listing_has_every_vm_once")
class PagesOverlap(MemoryProvider):
    async def list(self, deployment: str) -> Listing:
        listing = await super().list(deployment)
        return Listing((*listing.vms, *listing.vms[4:]), listing.complete)


@breaks("test_a_listing_that_was_cut_short_is_not_complete")
class AlwaysSaysComplete(MemoryProvider):
    async def list(self, deployment: str) -> Listing:
        return replace(await super().list(deployment), complete=True)


@breaks("test_a_listing_that_fails_on_a_later_page_is_not_complete")
@breaks("test_a_failed_listing_is_an_error_and_not_an_empty_one")
class TakesTroubleForNothing(MemoryProvider):
    async def list(self, deployment: str) -> Listing:
        try:
            return await super().list(deployment)
        except ProviderError:
            return Listing(())


@breaks("test_a_vm_is_missing_from_listings_no_longer_than_the_horizon")
class LaterThanItSays(MemoryProvider):
    async def list(self, deployment: str) -> Listing:
        for record in self.cloud.records.values():
            record.hidden_until_ms *= 2
        return await super().list(deployment)


@breaks("test_get_of_an_unknown_vm_is_not_found")
class UnknownIsTransient(MemoryProvider):
    def find(self, vm: VmId) -> Record:
        try:
            return super().find(vm)
        except VmNotFound as error:
            raise Transient("try again") from error


@breaks("test_a_get_that_fails_is_not_an_absence")
class TakesTroubleForAbsence(MemoryProvider):
    async def get(self, vm: VmId) -> Vm:
        try:
            return await super().get(vm)
        except Transient as error:
            raise VmNotFound(str(error)) from error


@breaks("test_vms_outlive_the_driver")
class TakesItsVmsAlong(MemoryProvider):
    async def close(self) -> None:
        self.cloud.records.clear()


# Ends


@breaks("test_terminate_repeated_ends_in_not_found")
class StopsAndKeeps(MemoryProvider):
    async def terminate(self, vm: VmId) -> None:
        await super().terminate(vm)
        if vm in self.cloud.records:
            self.cloud.records[vm].stop_ms = now_ms()


@breaks("test_a_vm_that_ends_is_not_shown_as_up")
class EndsBehindACurtain(MemoryProvider):
    def show(self, record: Record) -> Vm:
        return replace(super().show(record), state=VmState.RUNNING)


@breaks("test_a_vm_can_be_terminated_as_soon_as_it_is_launched")
class OverlooksPendingVms(MemoryProvider):
    async def terminate(self, vm: VmId) -> None:
        record = self.cloud.records.get(vm)
        if record is not None and record.state(now_ms()) is VmState.PENDING:
            del self.cloud.records[vm]
            asyncio.get_running_loop().call_later(0.5, lambda: self.cloud.records.update({vm: record}))
            return
        await super().terminate(vm)


@breaks("test_an_end_leaves_the_other_vms_alone")
class EndsTheBatch(MemoryProvider):
    async def terminate(self, vm: VmId) -> None:
        doomed = self.cloud.records.get(vm)
        for record in self.cloud.living():
            if doomed is not None and record.request.batch == doomed.request.batch:
                await super().terminate(record.id)


@breaks("test_terminate_of_an_unknown_vm_succeeds")
class MissesWhatIsGone(MemoryProvider):
    async def terminate(self, vm: VmId) -> None:
        self.find(vm)
        await super().terminate(vm)


@breaks("test_a_failed_terminate_says_so_and_can_be_repeated")
@breaks("test_a_terminate_in_doubt_is_repeated")
class SaysNothingOfFailedEnds(MemoryProvider):
    async def terminate(self, vm: VmId) -> None:
        try:
            await super().terminate(vm)
        except ProviderError:
            return


@breaks("test_the_hard_end_comes_by_itself")
@breaks("test_the_hard_end_comes_by_itself", TOKENS)
class ForgetsTheEnd(MemoryProvider):
    def make(self, request: LaunchRequest, slot: InstanceId) -> None:
        super().make(replace(request, ends_ms=0), slot)


@breaks("test_the_hard_end_comes_by_itself")
class EndsTooEarly(MemoryProvider):
    def make(self, request: LaunchRequest, slot: InstanceId) -> None:
        super().make(replace(request, ends_ms=now_ms() + 1_000), slot)


@breaks("test_an_extended_hard_end_comes_later", TOKENS)
class ExtendsTheTagOnly(MemoryProvider):
    def move(self, record: Record, ends_ms: int) -> None:
        record.tags[ENDS_AT] = str(ends_ms)


@breaks("test_hard_ends_are_moved_together", TOKENS)
class MovesTheFirstEnd(MemoryProvider):
    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        return await super().extend(vms[:1], ends_ms)


@breaks("test_hard_ends_are_moved_together", replace(TOKENS, max_tagged=1))
class MovesEveryEnd(MemoryProvider):
    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        for record in self.cloud.living():
            self.move(record, ends_ms)
        return await super().extend(vms, ends_ms)


@breaks("test_a_hard_end_that_can_not_be_moved_says_so")
@breaks("test_a_hard_end_that_can_not_be_moved_says_so", TOKENS)
class ExtendsNothing(MemoryProvider):
    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        return frozenset()


@breaks("test_a_vm_that_was_taken_back_says_so")
class KeepsQuietAboutPreemption(MemoryProvider):
    def show(self, record: Record) -> Vm:
        return replace(super().show(record), preempted=False)


# Trouble


@breaks("test_a_definitive_refusal_makes_nothing")
class TellsNoErrorsApart(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        try:
            return await super().launch(request)
        except ProviderError as error:
            raise ProviderError(error.message) from error


@breaks("test_a_launch_in_doubt_that_was_lost_can_be_repeated")
class DeniesDoubt(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        try:
            return await super().launch(request)
        except InDoubt as error:
            raise Transient(error.message) from error


@breaks("test_a_launch_whose_caller_gave_up_can_be_repeated", TOKENS)
class GoesOnUnderAnotherToken(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        try:
            return await super().launch(request)
        except asyncio.CancelledError:
            other = BatchId("c99999999997")
            self.make(replace(request, batch=other), instance_id(other, 0))
            raise


@breaks("test_a_fault_of_a_later_call_leaves_the_earlier_ones_alone")
class TidiesUpTooMuch(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        try:
            return await super().launch(request)
        except ProviderError:
            self.cloud.records.clear()
            raise


# What only some clouds have


@breaks("test_a_driver_that_looks_for_no_leftovers_has_none", TOKENS)
class DeletesWhatItCanNotHave(MemoryProvider):
    async def delete_leftover(self, leftover: Leftover) -> None: ...


@breaks("test_a_vm_that_lives_has_no_leftovers")
class TakesAttachedDisksForLeft(MemoryProvider):
    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        attached = [Leftover(f"disk-{item.id}", LeftoverKind.DISK, "z", item.tags) for item in self.cloud.living()]
        return [*await super().leftovers(deployment), *attached]


@breaks("test_what_outlives_a_vm_is_found_and_deleted")
class KeepsWhatIsLeft(MemoryProvider):
    async def delete_leftover(self, leftover: Leftover) -> None: ...


@breaks("test_a_preflight_makes_nothing_and_has_no_error")
class TriesLaunches(MemoryProvider):
    async def preflight(self, deployment: str) -> Sequence[Finding]:
        """By making one."""
        (offering, *_) = await self.offerings()
        batch = BatchId("b0000preflight")
        tags = {DEPLOYMENT: deployment}
        await self.launch(LaunchRequest(batch, 1, offering, tags, "#cloud-config\n", 0, (InstanceId(f"{batch}-0"),)))
        return await super().preflight(deployment)


@breaks("test_a_hand_is_heard_or_denied")
class HearsWhatIsNotThere(MemoryProvider):
    async def heard(self, deployment: str) -> Heard:
        return Heard(now_ms())


@breaks("test_quotas_are_told_or_denied")
class CountsNothing(MemoryProvider):
    async def quotas(self) -> Sequence[Quota]:
        return [replace(quota, used=0) for quota in await super().quotas()]


@breaks("test_prices_are_told_or_denied")
class PricesOneThing(MemoryProvider):
    async def prices(self) -> Sequence[Price]:
        return (await super().prices())[:1]


@breaks("test_a_console_is_text_of_a_bounded_length")
class TellsItAll(MemoryProvider):
    async def console(self, vm: VmId) -> str:
        return "x" * 100_000
