"""GCE's dialect: instances that we name, in one zone, for ever; operations that end later; a maximum life of its own.

- `insert` answers with an operation; a zone without room says so inside it (ZONE_RESOURCE_POOL_EXHAUSTED). A name that
  exists is the VM that was asked for. A VM that is deleted leaves lists at once and its name can be used again.
- Labels are set against a fingerprint; who comes second is refused and reads again.
- `maxRunDuration` with DELETE is the hard end: fixed when the VM is made, kept by the cloud.
- A guest that powers off stops its VM, which waits to be deleted and no longer bills. Spot: no bid, 30 s from the
  notice, in which the VM is shown as stopping; then it is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from cloud_dispatch.domain.ids import InstanceId, ProfileName, VmId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import Transient, VmNotFound
from cloud_dispatch.provider.lacking import bounded
from cloud_dispatch.provider.spi import LaunchRequest, LeftoverKind, Provider
from cloud_dispatch.simulation.clouds.account import Account, Ways
from cloud_dispatch.simulation.clouds.catalogue import sold
from cloud_dispatch.simulation.clouds.driver import common_traits, scope_of
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
    stopped_bills=False,
    stopping_bills=True,
    notice_stops=True,
    failed_stays=False,
    native_end=True,
    made_out=True,
)
_CODES = Codes("QUOTA_EXCEEDED", "ZONE_RESOURCE_POOL_EXHAUSTED")
_LABEL_TRIES = 5


class Gce:
    """The dialect."""

    ways = WAYS

    def connect(self, account: Account, profile: ProfileName) -> Provider:
        return GceDriver(account, profile)


class GceDriver(NamedDriver):
    """The SPI as a GCE driver keeps it."""

    def __init__(self, account: Account, profile: ProfileName) -> None:
        own = {
            "named_slots": True,
            "vm_name": "{zone}/{instance}",
            "operation_poll_ms": 2_000,
            "max_user_data": 262_144,
        }
        super().__init__(account, profile, common_traits(account, WAYS, **own))

    def _ask(self, request: LaunchRequest, slot: InstanceId) -> asyncio.Future[Record]:
        return self._send("launch", lambda: self._insert(request, slot, _CODES), scope_of(request))

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        for vm in bounded(vms, self.traits):
            try:
                await self._label(vm, tags)
            except VmNotFound:
                return frozenset({vm})
        return frozenset()

    async def _label(self, vm: VmId, tags: Mapping[str, str]) -> None:
        for _ in range(_LABEL_TRIES):
            fingerprint = await self._send("get", lambda: self._living(vm, "get").tagged, changes=False)
            if await self._send("tag", partial(self._set_labels, vm, tags, fingerprint), self._scope(vm)):
                return
        raise Transient(f"the labels of {vm} were changed by others, {_LABEL_TRIES} times", code="conditionNotMet")

    def _set_labels(self, vm: VmId, tags: Mapping[str, str], fingerprint: int) -> bool:
        """Whether the labels were still those of the fingerprint (else 412)."""
        record = self._living(vm, "tag")
        if record.tagged != fingerprint:
            return False
        self._account.retag(record, tags)
        return True


def defaults(name: str) -> AccountSettings:
    """A project in us-central1 as GCE usually is. Estimates."""
    return AccountSettings(
        name=name,
        cloud=Cloud.GCE,
        region="us-central1",
        sells=sold(Cloud.GCE),
        quotas=(Quota(500, "n2", Market.ON_DEMAND), Quota(500, "", Market.SPOT)),
        spot=Spot(step_ms=24 * 3_600_000, swing=0.02, notice_ms=30_000),
        life=Life(
            start=Spread(12_000, 0.3, 60_000), boot=Spread(25_000, 0.3, 120_000), stop=Spread(20_000, 0.5, 90_000),
        ),
        reads=Reads(list_ms=4_000, get_ms=0, page=500),
        buckets=(
            Bucket("launch", 100, 20), Bucket("terminate", 100, 20), Bucket("tag", 100, 20), Bucket("list", 50, 25),
            Bucket("get", 100, 25), Bucket("resume", 200, 50),
        ),
        latency=Spread(150, 0.5, 5_000),
        minimum_ms=60_000,
        extras=(Extra(LeftoverKind.DISK, Rate(1_643_836)),),
        max_batch=20,
    )  # fmt: skip
