"""Drivers that answer as they should and do something else: what only the backend's own books, or a clock, show.
Loading them adds them to the list of the other `broken` ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import ClassVar

from cloud_dispatch.domain.ids import BatchId, InstanceId, VmId, slot_of
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.provider.errors import InvalidRequest, Scope
from cloud_dispatch.provider.spi import (
    Challenge,
    Finding,
    LaunchRequest,
    LaunchResult,
    Leftover,
    Level,
    Listing,
    Operation,
    Price,
    Quota,
    QuotaUnit,
    Vm,
)
from tests.providers.broken_amounts import PLANTED, Planted, breaks
from tests.providers.memory import TOKENS, Fault, MemoryProvider, Record, now_ms

__all__ = ["PLANTED", "Planted"]

SLOW = "test_nobody_waits_for_a_slow_launch"
USER_DATA = "test_user_data_arrive_as_they_were_given"
HARD_END, MOVED_END = "test_the_hard_end_is_the_one_asked_for", "test_a_moved_hard_end_is_the_one_asked_for"
CHEAPER, MARKET = "test_spot_is_cheaper_where_both_markets_have_a_price", "test_a_vm_is_of_the_market_asked_for"
CONSOLE, WIDE = "test_a_console_shows_what_was_said_last", "\u6f22\u5b57" * 5
USES, LIMIT = "test_a_launch_uses_the_quotas_that_speak_of_it", "test_a_limit_is_told_in_its_unit"
PREFLIGHT = "test_a_preflight_says_what_is_wrong"
SECOND_MS, HOUR_MS, DAY_MS = 1_000, 3_600_000, 86_400_000


# Waiting


async def to_the_end(driver: MemoryProvider, result: LaunchResult) -> LaunchResult:
    while result.pending:
        await asyncio.sleep(0.05)
        first, *others = result.pending
        look = await MemoryProvider.resume(driver, first)
        vms, shortfall = (*result.vms, *look.vms), result.shortfall or look.shortfall
        result = LaunchResult(vms, shortfall, (*others, *look.pending))
    return result


@breaks(SLOW)
class ResumesToTheEnd(MemoryProvider):
    async def resume(self, operation: Operation) -> LaunchResult:
        return await to_the_end(self, await super().resume(operation))


@breaks(SLOW)
class LaunchesToTheEnd(MemoryProvider):
    async def launch(self, request: LaunchRequest) -> LaunchResult:
        return await to_the_end(self, await super().launch(request))


@breaks(SLOW)
class LooksAWhile(MemoryProvider):
    async def resume(self, operation: Operation) -> LaunchResult:
        await asyncio.sleep(1)
        return await super().resume(operation)


# Blocking


@breaks("test_a_slow_call_does_not_hold_up_the_loop", only=("get",))
class WaitsWithTheLoop(MemoryProvider):
    @asynccontextmanager
    async def guard(self, call: str, offering: Offering | None = None) -> AsyncIterator[Fault]:
        for fault in self.cloud.faults:
            if fault.call == call == "get" and fault.delay_ms:
                fault.times = 0
                time.sleep(fault.delay_ms / 1000)
        async with super().guard(call, offering) as fault:
            yield fault


# User data


def garbling(name: str, garbled: Callable[[LaunchRequest, InstanceId], str], *only: str) -> None:
    """A driver that gives a slot something else."""

    def make(self: MemoryProvider, request: LaunchRequest, slot: InstanceId) -> None:
        MemoryProvider.make(self, replace(request, user_data=garbled(request, slot)), slot)

    breaks(USER_DATA, only=only)(type(name, (MemoryProvider,), {"make": make}))


garbling("LosesUserData", lambda request, slot: "")
garbling("GivesTheFirstSlotAlone", lambda request, slot: "" if slot_of(slot)[1] else request.user_data)
garbling("AddsALine", lambda request, slot: f"{request.user_data}\n")
garbling("CutsUserData", lambda request, slot: request.user_data[:-1])
garbling("CutsLongUserData", lambda request, slot: request.user_data[: TOKENS.max_user_data - 4], "_longest")
garbling("StripsUserData", lambda request, slot: request.user_data.rstrip() + "\n", "_odd", "_unended")
garbling("EndsLinesAsUnix", lambda request, slot: request.user_data.replace("\r\n", "\n"), "_odd")
garbling("KeepsAsciiAlone", lambda request, slot: request.user_data.encode("ascii", "ignore").decode(), "_odd")
garbling("FillsInTemplates", lambda request, slot: request.user_data.replace("{{ x }}", "x"), "_odd")


# Hard ends


def misending(name: str, ends_ms: Callable[[int], int]) -> None:
    """A driver that has VMs ended at another time, whenever that is told."""

    def make(self: MemoryProvider, request: LaunchRequest, slot: InstanceId) -> None:
        MemoryProvider.make(self, replace(request, ends_ms=ends_ms(request.ends_ms) if request.ends_ms else 0), slot)

    def move(self: MemoryProvider, record: Record, ends: int) -> None:
        record.ends_ms, record.tags[ENDS_AT] = ends_ms(ends), str(ends)

    breaks(HARD_END)(type(f"{name}AtFirst", (MemoryProvider,), {"make": make}))
    breaks(MOVED_END, TOKENS)(type(f"{name}Later", (MemoryProvider,), {"move": move}))


misending("EndsASecondEarly", lambda ends: ends - SECOND_MS)
misending("EndsASecondLate", lambda ends: ends + SECOND_MS)
misending("EndsInWholeMinutes", lambda ends: -(-ends // 60_000) * 60_000)
misending("EndsADayLate", lambda ends: ends + DAY_MS)
misending("KeepsThirtyDaysAtMost", lambda ends: min(ends, now_ms() + 30 * DAY_MS))
misending("KeepsAnHourAtLeast", lambda ends: max(ends, now_ms() + HOUR_MS))


@breaks(HARD_END)
class EndsTheEndless(MemoryProvider):
    def make(self, request: LaunchRequest, slot: InstanceId) -> None:
        super().make(replace(request, ends_ms=request.ends_ms or now_ms() + 365 * DAY_MS), slot)


@breaks(MOVED_END, TOKENS)
class MovesLaterOnly(MemoryProvider):
    def move(self, record: Record, ends_ms: int) -> None:
        super().move(record, max(ends_ms, record.ends_ms))


@breaks(MOVED_END, TOKENS)
class MovesEarlierOnly(MemoryProvider):
    def move(self, record: Record, ends_ms: int) -> None:
        super().move(record, min(ends_ms, record.ends_ms))


@breaks(MOVED_END, TOKENS)
class MovesTheEndAlone(MemoryProvider):
    def move(self, record: Record, ends_ms: int) -> None:
        record.ends_ms = ends_ms


# Markets


@breaks(CHEAPER)
class AsksAsOnDemand(MemoryProvider):
    async def offerings(self) -> Sequence[Offering]:
        return [replace(offer, rate=offer.max_rate) for offer in await super().offerings()]


@breaks(CHEAPER)
class TakesOneMarketForTheOther(MemoryProvider):
    async def offerings(self) -> Sequence[Offering]:
        other = {Market.SPOT: Market.ON_DEMAND, Market.ON_DEMAND: Market.SPOT}
        return [replace(offer, market=other[offer.market]) for offer in await super().offerings()]


@breaks(CHEAPER)
class TellsOnePriceForBoth(MemoryProvider):
    async def prices(self) -> Sequence[Price]:
        return [replace(price, rate=Rate(1_000_000)) for price in await super().prices()]


class MakesAnother(MemoryProvider):
    """Makes a VM of this market, whatever was asked for, and says what was asked for."""

    makes: Market
    asked: ClassVar[dict[BatchId, bool]] = {}  # of all drivers, as a tag would be

    def make(self, request: LaunchRequest, slot: InstanceId) -> None:
        self.asked[request.batch] = request.offering.market is Market.SPOT
        super().make(replace(request, offering=replace(request.offering, market=self.makes)), slot)

    def show(self, record: Record) -> Vm:
        return replace(super().show(record), spot=self.asked[record.request.batch])


@breaks(MARKET, only=("spot",))
class MakesOnDemandAlone(MakesAnother):
    makes = Market.ON_DEMAND


@breaks(MARKET, only=("on-demand",))
class MakesSpotAlone(MakesAnother):
    makes = Market.SPOT


@breaks(MARKET, only=("spot",))
class ListsNoSpot(MemoryProvider):
    async def list(self, deployment: str) -> Listing:
        listing = await super().list(deployment)
        return replace(listing, vms=tuple(replace(vm, spot=False) for vm in listing.vms))


# Consoles


@breaks(CONSOLE)
class TellsTheHead(MemoryProvider):
    async def console(self, vm: VmId) -> str:
        return (await super().console(vm) and self.cloud.said.get(vm, ""))[:10_000]


@breaks(CONSOLE)
class TellsNothing(MemoryProvider):
    async def console(self, vm: VmId) -> str:
        return (await super().console(vm))[:0]


@breaks(CONSOLE)
class TellsTheLastLine(MemoryProvider):
    async def console(self, vm: VmId) -> str:
        return (await super().console(vm)).rstrip().rpartition("\n")[2]


@breaks(CONSOLE, only=(WIDE,))
class CountsCharacters(MemoryProvider):
    async def console(self, vm: VmId) -> str:
        return (await super().console(vm) and self.cloud.said.get(vm, ""))[-65_536:]


@breaks(CONSOLE, only=(WIDE,))
class TakesBytesForCharacters(MemoryProvider):
    async def console(self, vm: VmId) -> str:
        return (await super().console(vm)).encode().decode("latin-1")


@breaks(CONSOLE, only=(WIDE,))
class CutsCharacters(MemoryProvider):
    async def console(self, vm: VmId) -> str:
        text = await super().console(vm) and self.cloud.said.get(vm, "")
        return text.encode()[-65_536:].decode(errors="replace")


# What is left


@breaks("test_what_a_vm_has_is_not_deleted")
class SwallowsRefusals(MemoryProvider):
    async def delete_leftover(self, leftover: Leftover) -> None:
        with suppress(InvalidRequest):
            await super().delete_leftover(leftover)


@breaks("test_what_a_vm_has_is_not_deleted")
class ListsWhatIsInUse(MemoryProvider):
    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        in_use = [one for one in self.cloud.left.values() if one.id in self.cloud.attached]
        return [*await super().leftovers(deployment), *in_use]


# Quotas


class Misquotes(MemoryProvider):
    """Tells each quota otherwise."""

    def misquoted(self, quota: Quota) -> Quota:
        return quota

    async def quotas(self) -> Sequence[Quota]:
        return [self.misquoted(quota) for quota in await super().quotas()]


@breaks(USES)
class TakesVcpusForVms(Misquotes):
    def misquoted(self, quota: Quota) -> Quota:
        return replace(quota, unit=QuotaUnit.INSTANCES)


@breaks(USES)
class TakesVmsForVcpus(Misquotes):
    def misquoted(self, quota: Quota) -> Quota:
        return replace(quota, unit=QuotaUnit.VCPUS)


@breaks(USES)
class TakesAnotherRegion(Misquotes):
    def misquoted(self, quota: Quota) -> Quota:
        return replace(quota, scope=replace(quota.scope, region="s"))


@breaks(USES)
class TakesAnotherFamily(Misquotes):
    def misquoted(self, quota: Quota) -> Quota:
        return replace(quota, scope=replace(quota.scope, family="g"))


@breaks(USES)
class CountsMarketsTogether(MemoryProvider):
    async def quotas(self) -> Sequence[Quota]:
        vms, *vcpus = await super().quotas()
        every = sum(quota.used or 0 for quota in vcpus)
        return [vms, *(replace(quota, used=every) for quota in vcpus)]


@breaks(USES)
class CountsNoLaunches(MemoryProvider):
    async def quotas(self) -> Sequence[Quota]:
        return [Quota("vms", Scope(), QuotaUnit.INSTANCES, self.cloud.limit, 0)]


@breaks(LIMIT)
class LimitsVmsByVcpus(Misquotes):
    def misquoted(self, quota: Quota) -> Quota:
        return replace(quota, limit=2 * (quota.limit or 0))


@breaks(LIMIT)
class LimitsAnotherRegion(Misquotes):
    def misquoted(self, quota: Quota) -> Quota:
        return replace(quota, scope=Scope(region="s"))


# Proofs


@breaks("test_proofs_are_checked_without_the_cloud")
class AsksTheCloudForProofs(MemoryProvider):
    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        async with self.guard("identify"):
            return await super().identify(proof, challenge)


@breaks("test_proofs_are_checked_without_the_cloud")
class AsksForWhatIsProven(MemoryProvider):
    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        vm = await super().identify(proof, challenge)
        return (await self.get(vm)).id


# Preflights


@breaks(PREFLIGHT)
class SaysThatAllIsWell(MemoryProvider):
    async def preflight(self, deployment: str) -> Sequence[Finding]:
        return [Finding(Level.OK, "credentials", "they will do")]


@breaks(PREFLIGHT)
class FindsNothing(MemoryProvider):
    async def preflight(self, deployment: str) -> Sequence[Finding]:
        return ()


@breaks(PREFLIGHT)
class RaisesWhatItFinds(MemoryProvider):
    async def preflight(self, deployment: str) -> Sequence[Finding]:
        await self.offerings()
        return await super().preflight(deployment)


@breaks(PREFLIGHT)
class TakesErrorsForWarnings(MemoryProvider):
    async def preflight(self, deployment: str) -> Sequence[Finding]:
        return [replace(one, level=Level.WARNING) for one in await super().preflight(deployment)]
