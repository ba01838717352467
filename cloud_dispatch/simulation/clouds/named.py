"""What GCE and ARM share against EC2: VMs that we name, one call a slot, and creates that are accepted first and end
later. Owns operations; a dialect says how a slot is asked for and what a failure leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from cloud_dispatch.domain.ids import InstanceId, VmId, slot_of
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import InDoubt, InvalidRequest, ProviderError, RateLimited, Transient
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, Operation, VmState
from cloud_dispatch.simulation.clouds.account import Order
from cloud_dispatch.simulation.clouds.driver import CloudDriver, bid_of, scope_of, wanted
from cloud_dispatch.simulation.clouds.faults import FaultKind
from cloud_dispatch.simulation.clouds.gate import told
from cloud_dispatch.simulation.clouds.records import Record


class NamedDriver(CloudDriver):
    """Launches slot by slot."""

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        self._check(request)
        slots = wanted(request)
        answers = await asyncio.gather(*(self._ask(request, slot) for slot in slots), return_exceptions=True)
        refusals: list[ProviderError] = []
        records: list[tuple[InstanceId, Record]] = []
        for slot, answer in zip(slots, answers, strict=True):
            if isinstance(answer, InDoubt) or (
                isinstance(answer, BaseException) and not isinstance(answer, ProviderError)
            ):
                raise answer
            if isinstance(answer, ProviderError):
                refusals.append(answer)
            else:
                records.append((slot, answer))
        if refusals and not records:
            raise refusals[0]
        result = self._result([(slot, self._operation(request, slot, record), record) for slot, record in records])
        return LaunchResult(result.vms, result.shortfall or (refusals[0] if refusals else None), result.pending)

    def _ask(self, request: LaunchRequest, slot: InstanceId) -> Awaitable[Record]:
        """Have the slot's VM made; the one that exists where it does."""
        raise NotImplementedError

    def _insert(self, request: LaunchRequest, slot: InstanceId, codes: Codes) -> Record:
        """What the cloud does when the request for one slot arrives. Raises what it refuses at once."""
        account, now = self._account, self._account.clock.now()
        name = self._name(slot, request.offering.zone)
        existing = account.register.find(name)
        if existing is not None and (existing.state is not VmState.GONE or existing.shell):
            if existing.batch != request.batch:
                raise InvalidRequest(f"{name} is of another batch than {request.batch}", code="alreadyExists")
            return existing
        scope = scope_of(request)
        pool = account.stock.pool(*scope)
        over = account.stock.over_quota(pool, 1, now, codes.quota)
        if over is not None:
            raise over
        if pool.market is Market.SPOT and self.traits.spot_bid:
            account.stock.check_bid(pool, bid_of(request), now, codes.capacity)
        refused: ProviderError | None = None
        if not account.stock.room(pool, now):
            refused = account.stock.sold_out(pool, codes.capacity)
            if codes.refused_at_once(scope[2]):
                raise refused
        fault = account.book.take(FaultKind.ASYNC_FAILURE, now, "launch", *scope)
        if fault is not None:
            refused = told(fault, f"the creation of {name} failed")
        order = Order(
            name=name, lot=(slot,), profile=self._profile, batch=request.batch, slot=slot_of(slot)[1], pool=pool,
            tags=request.tags, user_data=request.user_data, ends_ms=request.ends_ms,
            bid=bid_of(request) if self.traits.spot_bid else None,
        )  # fmt: skip
        return account.create(order, refused)

    def _name(self, slot: InstanceId, zone: str) -> VmId:
        name = self.traits.vm_id(slot, zone)
        assert name is not None
        return name

    def _operation(self, request: LaunchRequest, slot: InstanceId, record: Record) -> Operation:
        return Operation(f"{record.id} {record.number}", request.batch, (slot,))

    async def resume(self, operation: Operation) -> LaunchResult:
        record = await self._send("resume", lambda: self._operated(operation), changes=False)
        if record is None:
            return LaunchResult((), Transient(f"there is no VM of operation {operation.token}", code="NotFound"))
        result = self._result([(operation.instances[0], operation, record)])
        if record.refused is not None and result.shortfall is not None:
            try:
                await self._clear_away(record)
            except (RateLimited, Transient, InDoubt):
                return LaunchResult((), pending=(operation,))  # not refused before nothing is left of it
        return result

    def _operated(self, operation: Operation) -> Record | None:
        name, _, number = operation.token.rpartition(" ")
        made = self._account.register.numbered(int(number)) if number.isdecimal() else None
        if made is not None and made.id == name:
            return made
        return self._account.register.find(VmId(name))

    async def _clear_away(self, record: Record) -> None:
        """Delete what a failed create has left."""

    def _result(self, asked: Sequence[tuple[InstanceId, Operation, Record]]) -> LaunchResult:
        vms, pending = [], []
        shortfall: ProviderError | None = None
        for _, operation, record in asked:
            if record.state is VmState.PENDING:
                pending.append(operation)
            elif record.state is not VmState.GONE:
                vms.append(record.view(record.state))
            else:
                gone = record.refused or Transient(f"{record.id} is gone: {record.why}", code="Failed")
                shortfall = shortfall or gone
        return LaunchResult(tuple(vms), shortfall, tuple(pending))


class Codes:
    """A cloud's words for refusals, and whether lack of room on a market is told at once."""

    def __init__(self, quota: str, capacity: str, at_once: tuple[str, ...] = ()) -> None:
        self.quota, self.capacity, self._at_once = quota, capacity, at_once

    def refused_at_once(self, market: str) -> bool:
        return market in self._at_once
