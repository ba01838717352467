"""Drivers that are wrong about amounts, parts of batches and who may see what. Loading them adds them to the list of
the other `broken` ones."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cloud_dispatch.domain.ids import InstanceId, VmId, instance_id
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.tags import POOL
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    InvalidRequest,
    ProviderError,
    QuotaExceeded,
    Scope,
    Transient,
    VmNotFound,
)
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, Leftover, Listing, Operation, Vm, VmState
from tests.providers.broken_errors import PLANTED, Planted, breaks
from tests.providers.memory import NAMED, TOKENS, MemoryCloud, MemoryProvider, Record, now_ms

__all__ = ["PLANTED", "Planted", "breaks"]

OFFERINGS = "test_offerings_have_distinct_keys_and_whole_prices"
LAUNCHED = "test_a_launch_makes_a_vm_that_is_listed_and_runs"
STOPPING = "test_a_vm_that_is_stopping_is_still_shown"
FORGOTTEN = "test_a_forgotten_operation_is_answered_with_what_there_is"
SECRETS = "test_user_data_are_told_to_nobody_but_the_vm"


# Units


class Miscounts(MemoryProvider):
    """Tells an amount of each offering in another unit."""

    def miscounted(self, offering: Offering) -> Offering:
        return offering

    async def offerings(self) -> Sequence[Offering]:
        return [self.miscounted(offering) for offering in await super().offerings()]


def in_another_unit(miscount: Callable[[Offering], Offering]) -> None:
    name = f"TellsWrong{miscount.__name__.title()}"
    breaks(OFFERINGS)(type(name, (Miscounts,), {"miscounted": lambda self, offering: miscount(offering)}))


@in_another_unit
def rates(offering: Offering) -> Offering:
    return replace(offering, rate=(offering.rate or 0) // 1_000_000)


@in_another_unit
def cpus(offering: Offering) -> Offering:
    capacity = offering.type.capacity
    fewer = replace(capacity, cpus_milli=capacity.cpus_milli // 1_000)
    return replace(offering, type=replace(offering.type, capacity=fewer))


@in_another_unit
def memory(offering: Offering) -> Offering:
    return replace(offering, type=replace(offering.type, capacity=replace(offering.type.capacity, memory=2_048)))


@in_another_unit
def minimums(offering: Offering) -> Offering:
    return replace(offering, minimum_ms=60)


@in_another_unit
def times(offering: Offering) -> Offering:
    return replace(offering, priced_ms=offering.priced_ms // 1_000)


@breaks(LAUNCHED)
class CreatedInSeconds(MemoryProvider):
    def show(self, record: Record) -> Vm:
        return replace(super().show(record), created_ms=record.created_ms // 1_000)


@breaks(LAUNCHED)
class CreatedLongAgo(MemoryProvider):
    def show(self, record: Record) -> Vm:
        return replace(super().show(record), created_ms=record.created_ms - 86_400_000)


@breaks("test_what_outlives_a_vm_is_found_and_deleted")
class LeftInSeconds(MemoryProvider):
    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        return [replace(one, created_ms=one.created_ms // 1_000) for one in await super().leftovers(deployment)]


# Parts of batches


@breaks("test_a_slot_keeps_its_name_whoever_is_launched_before_it")
class NumbersSlotsAnew(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        slots = tuple(instance_id(request.batch, slot) for slot in range(request.slots))
        return await super().launch(replace(request, instances=slots))


class AnswersWhatIsNew(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        old = {record.id for record in self.cloud.living() if record.created_ms + 300 <= now_ms()}
        result = await super().launch(request)
        return replace(result, vms=tuple(vm for vm in result.vms if vm.id not in old))


@breaks("test_a_slot_keeps_its_name_whoever_is_launched_before_it")
@breaks("test_a_launch_repeated_later_answers_the_same_vms")
@breaks("test_a_launch_repeated_later_answers_the_same_vms", TOKENS)
class ForgetsWhatThereWas(AnswersWhatIsNew): ...


@breaks("test_room_for_the_least_that_is_wanted_is_enough", TOKENS)
class TakesTheLeastForAll(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        least = request.slots if request.min_slots > 1 else 1
        return await super().launch(replace(request, min_slots=least))


@breaks("test_a_quota_for_a_part_is_told_apart_from_capacity", TOKENS)
class TakesAPartForCapacity(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        result = await super().launch(request)
        fewer = CapacityUnavailable("fewer", scope=Scope(type=request.offering.type.name))
        return replace(result, shortfall=fewer if result.shortfall else None)


class Misplaces(MemoryProvider):
    """Says of a refusal of this class that it speaks of this."""

    kind: type[ProviderError]

    def misplaced(self, offering: Offering) -> Scope:
        return Scope()

    def room(self, offering: Offering) -> tuple[int, ProviderError]:
        room, error = super().room(offering)
        if isinstance(error, self.kind):
            error.scope = self.misplaced(offering)
        return room, error


@breaks("test_partial_capacity_gives_what_there_is_and_says_why", TOKENS)
class TakesOneTypeForAll(Misplaces):
    kind = CapacityUnavailable


@breaks("test_a_quota_is_told_apart_from_capacity")
class TakesAllForOneType(Misplaces):
    kind = QuotaExceeded

    def misplaced(self, offering: Offering) -> Scope:
        return Scope(type=offering.type.name)


@breaks("test_user_data_are_measured_as_they_are_sent", replace(NAMED, gzips_user_data=True))
class MeasuresWhatItDoesNotSend(MemoryProvider):
    """As it is written, and not packed."""


@breaks(FORGOTTEN)
class RefusesWhatIsForgotten(MemoryProvider):
    def forgotten(self, operation: Operation, there: tuple[Vm, ...]) -> LaunchResult:
        raise InvalidRequest(f"no operation {operation.token}")


@breaks(FORGOTTEN)
class WaitsForEver(MemoryProvider):
    def forgotten(self, operation: Operation, there: tuple[Vm, ...]) -> LaunchResult:
        return LaunchResult((), pending=(operation,))


@breaks(FORGOTTEN)
class TakesForgottenForFailed(MemoryProvider):
    def forgotten(self, operation: Operation, there: tuple[Vm, ...]) -> LaunchResult:
        return LaunchResult((), Transient(f"no operation {operation.token}"))


@breaks(FORGOTTEN)
class LosesForgottenSlots(MemoryProvider):
    def forgotten(self, operation: Operation, there: tuple[Vm, ...]) -> LaunchResult:
        return LaunchResult(there)


# Ends and tags


@breaks("test_the_hard_end_comes_by_itself")
class TakesNoEndForNow(MemoryProvider):
    def make(self, request: LaunchRequest, slot: InstanceId) -> None:
        super().make(replace(request, ends_ms=request.ends_ms or now_ms()), slot)


@breaks(STOPPING)
class ListsNoneThatStops(MemoryProvider):
    async def list(self, deployment: str) -> Listing:
        listing = await super().list(deployment)
        return replace(listing, vms=tuple(vm for vm in listing.vms if vm.state is not VmState.STOPPING))


@breaks(STOPPING)
class FindsNoneThatStops(MemoryProvider):
    async def get(self, vm: VmId) -> Vm:
        found = await super().get(vm)
        if found.state is VmState.STOPPING:
            raise VmNotFound(vm)
        return found


@breaks(STOPPING)
class TakesEndsForTheMarkets(MemoryProvider):
    def show(self, record: Record) -> Vm:
        return replace(super().show(record), preempted=record.stop_ms > 0)


@breaks("test_hard_ends_are_moved_together", TOKENS)
class MovesAnyNumberOfEnds(MemoryProvider):
    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        missing = [await super(MovesAnyNumberOfEnds, self).extend([vm], ends_ms) for vm in vms]
        return frozenset().union(*missing)


@breaks("test_hard_ends_are_moved_together", TOKENS)
class TakesNoneForAll(MemoryProvider):
    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        for record in () if vms else self.cloud.living():
            self.move(record, ends_ms)
        return await super().extend(vms, ends_ms)


@breaks("test_tags_are_whole_and_can_be_changed", TOKENS)
class TagsAllWhereNoneIsNamed(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        for record in () if vms else self.cloud.living():
            record.tags.update(tags)
        return await super().tag(vms, tags)


@breaks("test_tags_are_whole_and_can_be_changed", TOKENS)
class WritesWhatItReadLate(MemoryProvider):
    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.read: dict[VmId, dict[str, str]] = {}

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        for record in self.among(vms):
            record.tags = {**self.read.setdefault(record.id, dict(record.tags)), **tags}
        return frozenset()


@breaks("test_tags_are_whole_and_can_be_changed", TOKENS)
class LowersWhatItSets(MemoryProvider):
    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        return await super().tag(vms, {**tags, **{key: tags[key].lower() for key in tags if key == POOL}})


@breaks("test_a_console_is_text_of_a_bounded_length")
class HasNoConsoleOfNobody(MemoryProvider):
    async def console(self, vm: VmId) -> str:
        self.find(vm)
        return await super().console(vm)


# Secrets


@breaks(SECRETS)
class LogsItAll(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        logging.getLogger("acme").debug("launching with %s", request.user_data)
        return await super().launch(request)


@breaks(SECRETS)
class ShowsItself(MemoryProvider):
    last = ""

    def __repr__(self) -> str:
        return f"ShowsItself({self.last!r})"

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        self.last = request.user_data
        return await super().launch(request)


@breaks(SECRETS)
class PutsItIntoTheError(MemoryProvider):
    def check(self, request: LaunchRequest) -> None:
        try:
            super().check(request)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error}: {request.user_data}") from error


class PutsItIntoTheToken(MemoryProvider):
    def written(self, text: str) -> str:
        return text.encode().hex()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        result = await super().launch(request)
        told = self.written(request.user_data)
        return replace(result, pending=tuple(replace(one, token=f"{one.token}/{told}") for one in result.pending))


@breaks(SECRETS)
class PutsItIntoTheTokenInHex(PutsItIntoTheToken): ...


@breaks(SECRETS)
class PutsItIntoTheTokenInBase64(PutsItIntoTheToken):
    def written(self, text: str) -> str:
        return base64.b64encode(text.encode()).decode()
