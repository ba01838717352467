"""A simulated account with somebody attached who writes down what the cloud tells, and short ways to use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cloud_dispatch.domain.ids import BatchId, PoolName, ProfileName, VmId, instance_id
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, Vm, VmState
from cloud_dispatch.simulation.clock import VirtualClock
from cloud_dispatch.simulation.clouds.faults import Fault
from cloud_dispatch.simulation.clouds.make import defaults, open_account
from cloud_dispatch.simulation.clouds.records import Record
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Cloud, Life, Mishaps, Reads, Spread
from cloud_dispatch.simulation.entropy import SeededStreams
from cloud_dispatch.simulation.ports import EndCause, TrueVm

DEPLOYMENT = "d"
HOUR_MS = 3_600_000
#: Every VM: 10 s to running, 20 s more to its user data, 5 s to power off.
STEADY = Life(start=Spread(10_000), boot=Spread(20_000), stop=Spread(5_000), refuse=Spread(3_000))


def steady(cloud: Cloud, **changes: Any) -> AccountSettings:
    """An account without chance: fixed durations, reads that are never late, no clock that drifts."""
    usual = defaults(cloud)
    life = replace(STEADY, linger_ms=usual.life.linger_ms)
    plain = replace(
        usual, life=life, reads=Reads(), mishaps=Mishaps(drift_ppm=0), latency=Spread(100, most_ms=1_000),
        spot=replace(usual.spot, unannounced=0.0), buckets=(),
    )  # fmt: skip
    return replace(plain, **changes)


class Scene:
    """`told` holds what the account told its guests: `(ms since the account was made, what, VM, more)`."""

    def __init__(self, settings: AccountSettings, faults: Iterable[Fault] = (), seed: int = 1) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())  # type: ignore[arg-type]  # the tests' loop is virtual
        self.account = open_account(self.clock, SeededStreams(seed), settings, faults)
        self.told: list[tuple[int, str, VmId, object]] = []
        self.account.attach(self)
        self.driver = self.account.driver(ProfileName("test"))
        self.batches = 0

    # -- as guests
    def on_boot(self, vm: TrueVm, user_data: str) -> None:
        self._note("boot", vm, user_data)

    def on_end(self, vm: TrueVm, cause: EndCause) -> None:
        self._note("end", vm, cause)

    def on_notice(self, vm: TrueVm, ends_ms: int) -> None:
        self._note("notice", vm, ends_ms - self.clock.now())

    def on_freeze(self, vm: TrueVm, until_ms: int, unaware: bool) -> None:
        self._note("freeze", vm, (until_ms - self.clock.now(), unaware))

    def on_change(self, vm: TrueVm) -> None:
        self._note("change", vm, vm.state)

    def _note(self, what: str, vm: TrueVm, more: object) -> None:
        self.told.append((self.clock.now() - self.account.born_ms, what, vm.id, more))

    def of(self, what: str) -> list[tuple[int, VmId, object]]:
        """When what happened to whom."""
        return [(at_ms, vm, more) for at_ms, kind, vm, more in self.told if kind == what]

    # -- as a dispatcher
    async def offering(self, type_name: str = "", market: Market = Market.ON_DEMAND, zone: str = "") -> Offering:
        """The first that is asked for."""
        for offering in await self.driver.offerings():
            if offering.market is market and type_name in ("", offering.type.name) and zone in ("", offering.zone):
                return offering
        raise AssertionError(f"no {type_name} in {zone} on {market}")

    async def request(
        self, slots: int = 1, market: Market = Market.ON_DEMAND, ends_ms: int = 0, **changes: Any
    ) -> LaunchRequest:
        """A launch of the first offering, as a new batch."""
        self.batches += 1
        batch = BatchId(f"b{self.batches:011d}")
        offering = changes.pop("offering", None) or await self.offering(market=market)
        facts = VmTags(DEPLOYMENT, "store", PoolName("p"), batch, offering.rate or -1, ends_ms)
        made = LaunchRequest(
            batch, slots, offering, facts.encode(), f"#cloud-config {batch}", ends_ms,
            tuple(instance_id(batch, slot) for slot in range(slots)),
        )  # fmt: skip
        return replace(made, **changes)

    async def settle(self, request: LaunchRequest) -> LaunchResult:
        """Launch, and follow the operations to their end."""
        result = await self.driver.launch(request)
        vms, shortfall, pending = list(result.vms), result.shortfall, list(result.pending)
        while pending:
            await asyncio.sleep(1)
            operation = pending.pop(0)
            answer = await self.driver.resume(operation)
            vms += answer.vms
            pending += answer.pending
            shortfall = shortfall or answer.shortfall
        return LaunchResult(tuple(vms), shortfall)

    async def launch(self, slots: int = 1, **changes: Any) -> list[Record]:
        """A batch, made at once; the cloud's own records of it."""
        request = await self.request(slots, **changes)
        before = len(self.account.register.all)
        await self.driver.launch(request)
        return self.account.register.all[before:]

    async def up(self, slots: int = 1, **changes: Any) -> list[Record]:
        """A batch whose guests have started."""
        records = await self.launch(slots, **changes)
        while not all(record.guest_lives for record in records):
            await asyncio.sleep(1)
        return records

    async def vms(self) -> tuple[Vm, ...]:
        listing = await self.driver.list(DEPLOYMENT)
        assert listing.complete
        return listing.vms

    async def states(self) -> list[VmState]:
        return [vm.state for vm in await self.vms()]

    def bill(self) -> dict[str, int]:
        """Micro-dollars by line."""
        return {line.vm: line.amount for line in self.account.bill()}
