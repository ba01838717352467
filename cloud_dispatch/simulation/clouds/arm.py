"""ARM's dialect: resources that we name, each created by a call of its own; creates that are accepted and fail later.

- A NIC comes first, then the VM with `If-None-Match: *`. Spot without room is refused at once; on demand the accepted
  create fails (AllocationFailed) and leaves a VM in state Failed, its disk and its NIC: whoever asked has to delete
  them. A dispatcher that dies between the two calls leaves a NIC.
- 429 says when to come again. Lists come in short pages from a cache.
- A guest that powers off stops its VM, which bills on until it is deleted (or deallocated, which nobody does here).
- Spot has a bid; the notice of 30 s does not always come. A hard end is kept by a reaper that reads tags.
"""

from __future__ import annotations

import contextlib
from functools import partial

from cloud_dispatch.domain.ids import InstanceId, ProfileName, VmId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import InDoubt, NotProven, ProviderError
from cloud_dispatch.provider.spi import Challenge, LaunchRequest, LeftoverKind, Provider, VmState
from cloud_dispatch.simulation.clouds.account import Account, Ways
from cloud_dispatch.simulation.clouds.catalogue import sold
from cloud_dispatch.simulation.clouds.driver import TaggedEnds, common_traits, scope_of
from cloud_dispatch.simulation.clouds.named import Codes, NamedDriver
from cloud_dispatch.simulation.clouds.records import Record
from cloud_dispatch.simulation.clouds.settings import (
    AccountSettings,
    Bucket,
    Cloud,
    Extra,
    Life,
    Quota,
    Reads,
    Spot,
    Spread,
)

WAYS = Ways(
    power_off_ends=False,
    stopped_bills=True,
    stopping_bills=True,
    notice_stops=False,
    failed_stays=True,
    native_end=False,
    made_out=True,
)
_CODES = Codes("QuotaExceeded", "AllocationFailed", at_once=(Market.SPOT,))


class Arm:
    """The dialect."""

    ways = WAYS

    def connect(self, account: Account, profile: ProfileName) -> Provider:
        return ArmDriver(account, profile)


class ArmDriver(NamedDriver, TaggedEnds):
    """The SPI as an Azure driver keeps it."""

    def __init__(self, account: Account, profile: ProfileName) -> None:
        own = {"named_slots": True, "operation_poll_ms": 5_000, "max_user_data": 65_536, "spot_bid": True}
        super().__init__(account, profile, common_traits(account, WAYS, **own))
        self._nic = next((extra for extra in account.settings.extras if extra.kind is LeftoverKind.NIC), None)
        self._named: set[VmId] = set()

    async def _ask(self, request: LaunchRequest, slot: InstanceId) -> Record:
        scope = scope_of(request)
        if self._nic is not None:
            await self._send("nic", lambda: self._put_nic(request, slot), scope)
        try:
            return await self._send("launch", lambda: self._insert(request, slot, _CODES), scope)
        except InDoubt:
            raise
        except ProviderError:
            if self._nic is not None:
                with contextlib.suppress(ProviderError):  # what stays is found as a leftover
                    await self._send("delete_leftover", lambda: self._delete_extra(self._nic_of(request, slot)))
            raise

    def _put_nic(self, request: LaunchRequest, slot: InstanceId) -> None:
        """A NIC under the VM's name; the VM's own where it has one."""
        account, zone = self._account, request.offering.zone
        name = self._name(slot, zone)
        existing = account.register.find(name)
        if self._nic is not None and (existing is None or (existing.state is VmState.GONE and not existing.shell)):
            account.extras.make(self._nic, name, request.batch, zone, request.tags, account.clock.now())

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        """Azure signs an id that is not the VM's name, so that its cloud is asked for the VM, once."""
        vm = await super().identify(proof, challenge)
        if vm in self._named:
            return vm
        if await self._send("get", lambda: self._seen(vm, "get"), self._scope(vm), changes=False) is None:
            raise NotProven("there is no such VM any more")
        self._named.add(vm)
        return vm

    def _nic_of(self, request: LaunchRequest, slot: InstanceId) -> str:
        return f"{self._name(slot, request.offering.zone)}-{LeftoverKind.NIC}"

    async def _clear_away(self, record: Record) -> None:
        await self._send("terminate", lambda: self._end(record.id))
        for extra in self._settings.extras:
            await self._send("delete_leftover", partial(self._delete_extra, f"{record.id}-{extra.kind}"))


def defaults(name: str) -> AccountSettings:
    """A subscription in eastus as Azure usually is. Estimates."""
    return AccountSettings(
        name=name,
        cloud=Cloud.ARM,
        region="eastus",
        sells=sold(Cloud.ARM),
        quotas=(Quota(350, "dsv5", Market.ON_DEMAND), Quota(350, "", Market.SPOT), Quota(1000)),
        spot=Spot(step_ms=3_600_000, swing=0.03, notice_ms=30_000, unannounced=0.1),
        life=Life(
            start=Spread(35_000, 0.3, 180_000), boot=Spread(40_000, 0.3, 240_000), stop=Spread(45_000, 0.4, 180_000),
            refuse=Spread(20_000, 0.5, 120_000),
        ),
        reads=Reads(list_ms=15_000, get_ms=0, page=50),
        buckets=(
            Bucket("launch", 60, 4), Bucket("nic", 200, 20), Bucket("terminate", 60, 4), Bucket("tag", 60, 4),
            Bucket("list", 300, 10), Bucket("get", 300, 20), Bucket("resume", 300, 20),
        ),
        latency=Spread(300, 0.5, 8_000),
        retry_after_ms=15_000,
        minimum_ms=60_000,
        extras=(
            Extra(LeftoverKind.DISK, Rate(6_600_000)), Extra(LeftoverKind.NIC),
            Extra(LeftoverKind.ADDRESS, Rate(5_000_000)),
        ),
        max_batch=20,
    )  # fmt: skip
