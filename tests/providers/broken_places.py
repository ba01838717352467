"""Drivers that are somewhere else than they say. Loading them adds them to the list of the other `broken` ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider.spi import Listing
from tests.providers.broken_promises import PLANTED, Planted, breaks
from tests.providers.memory import MemoryCloud, MemoryProvider

__all__ = ["PLANTED", "Planted"]

SAME = "test_a_place_is_the_same_whoever_says_it"
HELD = "test_zones_hold_all_that_is_offered"
APART = "test_another_place_is_told_apart"
_numbers = itertools.count()


@breaks(SAME)
class NamesItsProcess(MemoryProvider):
    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.traits = replace(self.traits, place=(*self.traits.place, ("client", f"c{next(_numbers)}")))


@breaks(SAME)
class KnowsItOnceItHasAsked(MemoryProvider):
    async def offerings(self) -> Sequence[Offering]:
        self.traits = replace(self.traits, place=(*self.traits.place, ("number", "123456789012")))
        return await super().offerings()


@breaks(SAME)
class SaysItTwice(MemoryProvider):
    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.traits = replace(self.traits, place=self.traits.place * 2)


@breaks(SAME)
class SaysNothingOfIt(MemoryProvider):
    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.traits = replace(self.traits, place=(("account", ""),))


@breaks(HELD)
class HasFewerZones(MemoryProvider):
    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.traits = replace(self.traits, zones=("y",))


@breaks(APART)
class IsNowhere(MemoryProvider):
    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.traits = replace(self.traits, place=())


@breaks(APART)
class LeavesTheAccountOut(MemoryProvider):
    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.traits = replace(self.traits, place=self.traits.place[1:])


@breaks(APART)
class NamesItsPartsByWhatTheyAre(MemoryProvider):
    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.traits = replace(self.traits, place=tuple((value, value) for _, value in self.traits.place))


@breaks(APART)
class ListsEverywhere(MemoryProvider):
    clouds: ClassVar[list[MemoryCloud]] = []

    def __init__(self, cloud: MemoryCloud) -> None:
        super().__init__(cloud)
        self.clouds.append(cloud)

    async def list(self, deployment: str) -> Listing:
        found = {vm.id: vm for cloud in self.clouds for vm in (await MemoryProvider(cloud).list(deployment)).vms}
        return Listing(tuple(found.values()))
