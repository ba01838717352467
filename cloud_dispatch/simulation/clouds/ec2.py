"""EC2's dialect: launches of several VMs at once under a client token, ids of the cloud's own, reads that are late.

- `RunInstances` gives what there is between MinCount and MaxCount; the same token gives the same VMs within its window,
  also when they have ended, as long as it shows as many as were asked for, and a mismatch of parameters is refused.
- A new VM may be missing from lists and gets for a while; then terminating or tagging it finds nothing either. A VM
  that is gone lingers, as terminated.
- Throttling does not say when to come again. Spot has quotas of its own, a bid, and two minutes' notice.
- A guest that powers off ends its VM. A hard end is kept by a reaper that reads tags.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.domain.money import HOUR_MS, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import InDoubt, InvalidRequest
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, LeftoverKind, Provider, VmState
from cloud_dispatch.simulation.clouds.account import Account, Order, Ways
from cloud_dispatch.simulation.clouds.catalogue import sold
from cloud_dispatch.simulation.clouds.driver import TaggedEnds, bid_of, common_traits, scope_of, settled
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
    power_off_ends=True,
    stopped_bills=False,
    stopping_bills=False,
    notice_stops=False,
    failed_stays=False,
    native_end=False,
    made_out=False,
)
#: Resources that one CreateTags names at most.
_MAX_TAGGED = 1_000


@dataclass(frozen=True, slots=True)
class _Token:
    at_ms: int
    fingerprint: tuple[object, ...]
    records: tuple[Record, ...]


class Ec2:
    """The dialect, with the client tokens that the cloud remembers."""

    ways = WAYS

    def __init__(self) -> None:
        self.tokens: dict[str, _Token] = {}

    def connect(self, account: Account, profile: ProfileName) -> Provider:
        return Ec2Driver(account, profile, self.tokens)


class Ec2Driver(TaggedEnds):
    """The SPI as an EC2 driver keeps it."""

    def __init__(self, account: Account, profile: ProfileName, tokens: dict[str, _Token]) -> None:
        own = {
            "token_window_ms": account.settings.token_window_ms, "all_or_nothing": True, "spot_bid": True,
            "max_tagged": _MAX_TAGGED,
        }  # fmt: skip
        super().__init__(account, profile, common_traits(account, WAYS, **own))
        self._tokens = tokens

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        self._check(request)
        records = await self._send("launch", lambda: self._run_instances(request), scope_of(request))
        vms = [record.view(record.state) for record in records]
        if len(vms) == request.slots:
            return settled(vms, ())
        pool = self._account.stock.pool(*scope_of(request))
        return settled(vms, (self._account.stock.sold_out(pool, "InsufficientInstanceCapacity"),))

    def _run_instances(self, request: LaunchRequest) -> tuple[Record, ...]:
        """What EC2 does when the request arrives."""
        account, now = self._account, self._account.clock.now()
        fingerprint = (
            request.offering.type.name, request.offering.zone, request.offering.market, request.slots,
            request.min_slots, tuple(sorted(request.tags.items())), request.user_data, bid_of(request),
        )  # fmt: skip
        self._expire(now)
        known = self._tokens.get(request.batch)
        if known is not None:
            if known.fingerprint != fingerprint:
                raise InvalidRequest(
                    f"client token {request.batch} was used with other parameters", code="IdempotentParameterMismatch"
                )
            gone = any(record.state is VmState.GONE for record in known.records)
            shown = sum(record.as_of(now) is not None for record in known.records)
            if gone and shown < request.slots:
                raise InDoubt(f"a VM of client token {request.batch} is gone", code="IdempotentInstanceTerminated")
            return known.records
        pool = account.stock.pool(*scope_of(request))
        spot = pool.market is Market.SPOT
        over = account.stock.over_quota(
            pool, request.slots, now, "MaxSpotInstanceCountExceeded" if spot else "VcpuLimitExceeded"
        )
        if over is not None:
            raise over
        if spot:
            account.stock.check_bid(pool, bid_of(request), now, "SpotMaxPriceTooLow")
        granted = min(request.slots, account.stock.room(pool, now))
        if granted < max(request.min_slots, 1):
            raise account.stock.sold_out(pool, "InsufficientInstanceCapacity")
        records = tuple(account.create(self._order(request, number)) for number in range(granted))
        self._tokens[request.batch] = _Token(now, fingerprint, records)
        return records

    def _order(self, request: LaunchRequest, number: int) -> Order:
        account = self._account
        lot = (request.batch, number)
        return Order(
            name=VmId(f"i-{account.streams.stream('vm-id', account.name, *lot).below(16**17):017x}"),
            lot=lot, profile=self._profile, batch=request.batch, slot=-1,
            pool=account.stock.pool(*scope_of(request)), tags=request.tags, user_data=request.user_data,
            ends_ms=request.ends_ms, bid=bid_of(request),
        )  # fmt: skip

    def _expire(self, now: int) -> None:
        while self._tokens:
            oldest = next(iter(self._tokens))
            if now - self._tokens[oldest].at_ms < self._settings.token_window_ms:
                return
            del self._tokens[oldest]

    def _end(self, vm: VmId) -> None:
        """What is not seen yet is not found, which looks like success."""
        record = self._account.register.find(vm)
        if record is not None and self._seen(vm, "terminate") is not None:
            self._account.asked_to_end(record)


def defaults(name: str) -> AccountSettings:
    """An account in us-east-1 as EC2 usually is. Estimates."""
    return AccountSettings(
        name=name,
        cloud=Cloud.EC2,
        region="us-east-1",
        sells=sold(Cloud.EC2),
        quotas=(
            Quota(1152, "standard", Market.ON_DEMAND),
            Quota(1152, "standard", Market.SPOT),
            Quota(64, "g", Market.ON_DEMAND),
            Quota(64, "g", Market.SPOT),
        ),
        spot=Spot(step_ms=300_000, swing=0.05, notice_ms=120_000),
        life=Life(
            start=Spread(9_000, 0.4, 60_000), boot=Spread(35_000, 0.3, 180_000), stop=Spread(15_000, 0.6, 120_000),
            linger_ms=HOUR_MS,
        ),
        reads=Reads(list_ms=20_000, get_ms=10_000, page=1000),
        buckets=(
            Bucket("launch", 50, 2), Bucket("terminate", 100, 5), Bucket("tag", 100, 10), Bucket("list", 100, 20),
            Bucket("get", 100, 20),
        ),
        latency=Spread(120, 0.6, 5_000),
        minimum_ms=60_000,
        extras=(Extra(LeftoverKind.DISK, Rate(2_191_781)),),
    )  # fmt: skip
