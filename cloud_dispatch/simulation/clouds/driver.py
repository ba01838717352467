"""What the three drivers have in common: reads, tags, leftovers, quotas. Owns how late a read is; knows no cloud.

A driver belongs to one incarnation of the dispatcher and holds nothing that outlives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from cloud_dispatch.domain.ids import InstanceId, ProfileName, VmId, instance_id
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from cloud_dispatch.provider.errors import InvalidRequest, NotProven, ProviderError, Transient, VmNotFound
from cloud_dispatch.provider.lacking import Lacking, bounded
from cloud_dispatch.provider.sending import sent
from cloud_dispatch.provider.spi import (
    Challenge,
    HardEnd,
    Identity,
    LaunchRequest,
    LaunchResult,
    Leftover,
    Listing,
    Quota,
    Traits,
    Vm,
    VmState,
)
from cloud_dispatch.simulation.clouds import identity
from cloud_dispatch.simulation.clouds.account import Account, Ways
from cloud_dispatch.simulation.clouds.faults import FaultKind
from cloud_dispatch.simulation.clouds.gate import ANYWHERE, Scope
from cloud_dispatch.simulation.clouds.records import Record

T = TypeVar("T")
MAX_PAGES = 1_000
_CONSOLE_BYTES = 65_536
_Page = tuple[list[Vm], int | None, int]


class CloudDriver(Lacking):
    """The SPI over an account's gate. A dialect adds launches, ends, and what its cloud has beyond that."""

    def __init__(self, account: Account, profile: ProfileName, traits: Traits) -> None:
        self.traits = traits
        self._account, self._profile = account, profile
        self._settings = account.settings
        self._staleness = account.streams.stream("staleness", account.name)
        self._closed = False

    def _send(
        self, operation: str, work: Callable[[], T], scope: Scope = ANYWHERE, *, changes: bool = True
    ) -> asyncio.Future[T]:
        if self._closed:
            raise Transient(f"the driver of {self._account.name} was closed")
        return self._account.gate.send(operation, work, scope=scope, changes=changes)

    async def offerings(self) -> Sequence[Offering]:
        now = self._account.clock.now
        return await self._send("offerings", lambda: self._account.stock.offerings(self._profile, now()), changes=False)

    async def list(self, deployment: str) -> Listing:
        if not deployment:
            return Listing((), complete=False)
        vms: list[Vm] = []
        after: int | None = -1
        pages = MAX_PAGES
        for number in range(MAX_PAGES):
            try:
                page, after, breaks_off = await self._page(deployment, after, first=not number)
            except ProviderError:
                if not number:
                    raise
                return Listing(tuple(vms), complete=False)
            pages = min(pages, breaks_off)
            if number >= pages:
                break
            vms += page
            if after is None:
                return Listing(tuple(vms))
        return Listing(tuple(vms), complete=False)

    async def _page(self, deployment: str, after: int | None, *, first: bool) -> _Page:
        """A page, the number to go on after, and after how many pages the listing breaks off."""

        def read() -> _Page:
            account, now = self._account, self._account.clock.now()
            fault = account.book.take(FaultKind.INCOMPLETE, now, "list") if first else None
            as_of_ms = now - self._late("list", self._settings.reads.list_ms)
            start = -1 if after is None else after
            return (*account.page(deployment, start, as_of_ms), MAX_PAGES if fault is None else fault.amount)

        return await self._send("list", read, changes=False)

    def _late(self, operation: str, most_ms: int) -> int:
        """By how much this read is late: mostly little, never more than the cloud's horizon."""
        late = round(most_ms * self._staleness.fraction() ** 3) if most_ms else 0
        fault = self._account.book.take(FaultKind.STALE, self._account.clock.now(), operation)
        return late if fault is None else min(fault.amount, self._settings.consistency_ms)

    async def get(self, vm: VmId) -> Vm:
        found = await self._send("get", lambda: self._seen(vm, "get"), self._scope(vm), changes=False)
        return self._there(found, vm)

    def _seen(self, vm: VmId, operation: str) -> Vm | None:
        """How a read by id shows the VM now."""
        record = self._account.register.find(vm)
        if record is None:
            return None
        return record.as_of(self._account.clock.now() - self._late(operation, self._settings.reads.get_ms))

    def _there(self, view: Vm | None, vm: VmId) -> Vm:
        if view is None:
            raise VmNotFound(f"there is no VM {vm} in {self._settings.region}", code="NotFound")
        return view

    def _scope(self, vm: VmId) -> Scope:
        record = self._account.register.find(vm)
        return ANYWHERE if record is None else (record.type, record.zone, record.market)

    async def terminate(self, vm: VmId) -> None:
        await self._send("terminate", lambda: self._end(vm), self._scope(vm))

    def _end(self, vm: VmId) -> None:
        record = self._account.register.find(vm)
        if record is not None:
            self._account.asked_to_end(record)

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        wanted = bounded(vms, self.traits)
        if not wanted:
            return frozenset()
        scope = self._scope(wanted[0]) if len(wanted) == 1 else ANYWHERE
        return await self._send("tag", lambda: self._retag(wanted, tags), scope)

    def _retag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        missing = set()
        for vm in vms:
            try:
                self._account.retag(self._living(vm, "tag"), tags)
            except VmNotFound:
                missing.add(vm)
        return frozenset(missing)

    def _living(self, vm: VmId, operation: str) -> Record:
        """The VM that a change is for; VmNotFound where the cloud does not see it (yet)."""
        record, view = self._account.register.find(vm), self._seen(vm, operation)
        if record is None or record.state is VmState.GONE:
            view = None
        self._there(view, vm)
        assert record is not None
        return record

    async def console(self, vm: VmId) -> str:
        def read() -> str:
            record = self._account.register.find(vm)
            return "" if record is None else record.console.encode()[-_CONSOLE_BYTES:].decode(errors="ignore")

        return await self._send("console", read, changes=False)

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        shows = self._settings.reads.shows

        def read() -> list[Leftover]:
            return [
                Leftover(extra.id, extra.kind, extra.zone, extra.tags, extra.since_ms)
                for extra in self._account.extras.loose.values()
                if deployment and shows(deployment, extra.tags.get(DEPLOYMENT, ""))
            ]

        return await self._send("leftovers", read, changes=False)

    async def delete_leftover(self, leftover: Leftover) -> None:
        await self._send("delete_leftover", lambda: self._delete_extra(leftover.id))

    def _delete_extra(self, name: str) -> None:
        if not self._account.delete_extra(name):
            raise InvalidRequest(f"{name} is attached to a VM", code="InUse")

    async def quotas(self) -> Sequence[Quota]:
        account = self._account
        return await self._send("quotas", lambda: account.stock.told(account.clock.now()), changes=False)

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        """With the keys that the driver has: no request is sent."""
        if self.traits.identity is Identity.NONE:
            return await super().identify(proof, challenge)
        said = identity.read(self._account.name, proof)
        if self.traits.identity is Identity.MADE_OUT and said.audience != challenge.audience:
            raise NotProven(f"it is made out to {said.audience}")
        if said.issued_ms < challenge.since_ms:
            raise NotProven("it is older than the launch")
        return said.vm

    async def close(self) -> None:
        self._closed = True

    # -- for launches

    def _check(self, request: LaunchRequest) -> None:
        """InvalidRequest for what every cloud refuses at once."""
        if not 0 < request.slots <= self.traits.max_batch:
            raise InvalidRequest(f"{request.slots} VMs in one launch: 1 to {self.traits.max_batch} are possible")
        if request.min_slots > (request.slots if self.traits.all_or_nothing else 1):
            raise InvalidRequest(f"at least {request.min_slots} of {request.slots} VMs: not possible here")
        if len(sent(request.user_data, self.traits)) > self.traits.max_user_data:
            raise InvalidRequest(f"user data is longer than {self.traits.max_user_data} bytes")


class TaggedEnds(CloudDriver):
    """A cloud whose hard ends are kept by a reaper that reads tags."""

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        return await self.tag(vms, {ENDS_AT: str(ends_ms)})


def scope_of(request: LaunchRequest) -> tuple[str, str, Market]:
    """Type, zone and market of what is asked for: what it is sold by, and what faults are matched by."""
    offering = request.offering
    return offering.type.name, offering.zone, offering.market


def wanted(request: LaunchRequest) -> tuple[InstanceId, ...]:
    """The slots that a launch by name shall fill."""
    return request.instances or tuple(instance_id(request.batch, slot) for slot in range(request.slots))


def bid_of(request: LaunchRequest) -> Rate | None:
    """The most that a spot VM may cost, nano-dollars an hour; None on demand."""
    return request.offering.max_rate if request.offering.market is Market.SPOT else None


def settled(vms: Sequence[Vm], refusals: Sequence[ProviderError]) -> LaunchResult:
    """The answer of a launch without operations: raises the first refusal where no VM was made."""
    if refusals and not vms:
        raise refusals[0]
    return LaunchResult(tuple(vms), refusals[0] if refusals else None)


def common_traits(account: Account, ways: Ways, **own: object) -> Traits:
    """The traits that follow from an account's settings; `own` are the dialect's."""
    settings = account.settings
    # Disks and addresses bill until the VM is gone, also where its time stops with the order.
    stopping_bills = ways.stopping_bills or any(extra.rate for extra in settings.extras)
    hard_end = HardEnd.EXTENDABLE if settings.reaper_period_ms else HardEnd.NONE
    values: dict[str, object] = {
        "consistency_ms": settings.consistency_ms,
        "max_batch": settings.max_batch,
        "hard_end": HardEnd.FIXED if ways.native_end else hard_end,
        "hard_end_period_ms": settings.life.start.longest_ms if ways.native_end else settings.reaper_period_ms,
        "stop_lag_ms": settings.latency.most_ms + (settings.life.stop.most_ms if stopping_bills else 0),
        "spot_notice_ms": settings.spot.notice_ms,
        "leftovers": True,
        "quotas": bool(settings.quotas),
        "console": True,
        "identity": _identity(settings.proves, ways.made_out),
    }
    return Traits(**{**values, **own})  # type: ignore[arg-type]  # the dialects give fields of Traits


def _identity(proves: bool, made_out: bool) -> Identity:
    if not proves:
        return Identity.NONE
    return Identity.MADE_OUT if made_out else Identity.NAMED
