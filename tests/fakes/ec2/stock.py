"""What can be had in a region: offerings, capacity, quotas, spot prices. Counts what is there, changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.fakes.ec2 import catalogue
from tests.fakes.ec2.records import ALIVE, Instance
from tests.fakes.ec2.settings import Settings
from tests.fakes.faults import Fault, FaultBook, FaultKind, Market

_AMPLE = 1_000_000


class Stock:
    """A region's, at one moment."""

    def __init__(
        self, settings: Settings, book: FaultBook, types: Mapping[str, dict[str, Any]],
        instances: Mapping[str, Instance], used: Counter[tuple[str, str]], now: int,
    ) -> None:  # fmt: skip
        self._settings, self._book, self._types = settings, book, types
        self._instances, self._used, self._now = instances, used, now

    def offers(self, type_name: str, zone: str) -> bool:
        """Whether the type exists in the zone at all."""
        return type_name in self._types and (type_name, zone) not in self._settings.unoffered

    def room(self, type_name: str, zone: str, market: str) -> int:
        """How many more instances of it there is capacity for."""
        room = _AMPLE
        limit = self._settings.capacity.get((type_name, zone, market))
        if limit is not None:
            room = limit - self._alive(lambda vm: (vm.type_name, vm.zone, vm.market) == (type_name, zone, market))
        for fault in self._book.all_standing(FaultKind.CAPACITY, self._now):
            if fault.speaks_of(type_name, zone, Market(market)):
                room = min(room, fault.amount - self._taken(fault))
        return max(room, 0)

    def quota(self, type_name: str, market: str) -> int:
        """The vCPU limit that the type counts against."""
        family = catalogue.quota_class(type_name)
        code = catalogue.QUOTAS[family][market == "spot"]
        limit = self._settings.quotas.get(code, catalogue.AMPLE)
        for fault in self._book.all_standing(FaultKind.QUOTA, self._now):
            same = not fault.type or catalogue.quota_class(fault.type) == family
            if same and fault.market in (None, Market(market)):
                limit = min(limit, fault.amount)
        return limit

    def used_vcpus(self, type_name: str, market: str) -> int:
        """What counts against that limit now."""
        return self._used[catalogue.quota_class(type_name), market]

    def _taken(self, fault: Fault) -> int:
        return self._alive(lambda vm: fault.speaks_of(vm.type_name, vm.zone, Market(vm.market)))

    def _alive(self, counts: Callable[[Instance], bool]) -> int:
        return sum(1 for vm in self._instances.values() if vm.state in ALIVE and counts(vm))

    def spot_nano(self, type_name: str, zone: str) -> int:
        """The spot price now, nano-dollars an hour."""
        fault = self._book.standing(FaultKind.PRICE, self._now, type_name, zone, Market.SPOT)
        return fault.amount if fault else catalogue.spot_nano(self._types[type_name], zone)
