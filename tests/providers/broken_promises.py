"""Drivers that answer as they should and do something else: what only the backend's own books, or a clock, show.
Loading them adds them to the list of the other `broken` ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from cloud_dispatch.domain.ids import InstanceId, slot_of
from cloud_dispatch.provider.spi import (
    LaunchRequest,
    LaunchResult,
    Operation,
)
from tests.providers.broken_amounts import PLANTED, Planted, breaks
from tests.providers.memory import TOKENS, MemoryProvider

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
