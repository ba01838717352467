"""Complaints about asking again: for machines that never register, where there are none, and far too often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.provider.errors import CapacityUnavailable, QuotaExceeded, Scope
from cloud_dispatch.provider.funnel import Call as Asked
from cloud_dispatch.reconcile.failures import FailureMemory
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as Trouble
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Bucket, Cloud, Quota
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.scenario import Work
from cloud_dispatch.simulation.world import World
from tests.simulation.complaints import plants
from tests.simulation.complaints.staging import ALONE, FOR_ONE, HOUR_MS, MINUTE, with_account, with_pool
from tests.simulation.complaints.story import Evidence, Story
from tests.simulation.scenes import scene

_SOLD = scene(Cloud.EC2).accounts[0].settings.sells

# -- 8: nodes that never register are relaunched for ever

_BROKEN_MS = 2 * HOUR_MS


def _never_registered(found: Evidence) -> Iterator[str]:
    if sum(1 for vm in found.vms if vm.id not in found.registered) < 3:
        yield "hardly a machine failed to register"
    if not found.starts:
        yield "nothing ran once boots worked again"


def _relaunches_are_bounded(found: Evidence) -> Iterator[str]:
    """One place only: after each failure it is left alone for twice as long."""
    failed = [vm for vm in found.vms if vm.id not in found.registered]
    most = _BROKEN_MS // (10 * MINUTE)
    if len(failed) > most:
        yield f"{len(failed)} machines that never registered were made in two hours, at most {most} make sense"
    deadline = found.scenario.pools[0].boot_deadline_ms
    for vm in failed:
        ended = found.ended_ms(vm)
        if ended is None or ended - found.made_ms(vm) > deadline + 2 * MINUTE:
            yield f"machine {vm.id} never registered and was kept beyond its deadline"


def _no_memory_of_boots(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer ends what does not register, and asks for the same again at once."""
    patch.setattr(FailureMemory, "boot_failed", lambda *args: None)


NEVER_REGISTERS = Story(
    8,
    "never-registering-machines-are-not-relaunched-for-ever",
    with_pool(
        with_account(
            scene(Cloud.EC2, work=FOR_ONE, horizon_ms=5 * HOUR_MS),
            CloudFault(Trouble.USER_DATA_FAILS, until_ms=_BROKEN_MS),
            sells=tuple(replace(sold, zones=sold.zones[:1]) for sold in _SOLD if sold.type.name == "c7i.large"),
        ),
        boot_deadline_ms=180_000,
    ),
    _never_registered,
    _relaunches_are_bounded,
    _no_memory_of_boots,
    "that never registered were made",
)

# -- 9: endless retry where there is no capacity

_NO_ROOM_MS = 10 * MINUTE


def _sold_out(found: Evidence) -> Iterator[str]:
    if not any(call.at_ms < _NO_ROOM_MS for call in found.launches()) or not found.starts:
        yield "nobody asked while there was no room, or nothing ran once there was"


def _asks_are_bounded(found: Evidence) -> Iterator[str]:
    """Each type in each zone is asked for with pauses that double: after 0, 3 and 9 minutes."""
    places = sum(len(sold.zones) for sold in found.scenario.accounts[0].settings.sells)
    asked = sum(call.at_ms < _NO_ROOM_MS for call in found.launches())
    if asked > 3 * places:
        yield f"{asked} launches were tried in {places} places while there was room for none"


def _forgetful(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer asks again whenever it looks at its queue."""
    patch.setattr(FailureMemory, "blocked", lambda *args: ())


NO_CAPACITY = Story(
    9,
    "no-endless-retry-without-capacity",
    with_account(
        scene(Cloud.EC2, work=FOR_ONE, horizon_ms=2 * HOUR_MS),
        CloudFault(Trouble.CAPACITY, until_ms=_NO_ROOM_MS, amount=0),
    ),
    _sold_out,
    _asks_are_bounded,
    _forgetful,
    "launches were tried in",
    planted_ms=3 * MINUTE,
)

# -- 10: minutes burnt in regions where the quota is zero


def _cheapest_has_no_quota(found: Evidence) -> Iterator[str]:
    if not found.launches("ec2"):
        yield "the region without quota was never asked: it costs nothing to leave it out"


def _no_minutes_lost(found: Evidence) -> Iterator[str]:
    if len(found.launches("ec2")) > 1:
        yield f"the region without quota was asked {len(found.launches('ec2'))} times within minutes"
    made = min((found.made_ms(vm) for vm in found.vms), default=10**9)
    if made > 10_000:
        yield f"the first machine was made after {made} ms"


def _zone_by_zone(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer takes a quota for a lack of room here, and tries type after type, zone after zone."""

    async def answer(driver: plants.Driver, name: Asked, *args: Any) -> Any:
        try:
            return await driver.pass_on(name, *args)
        except QuotaExceeded as error:
            offering = args[0].offering
            scope = Scope(type=offering.type.name, zone=offering.zone, market=str(offering.market))
            raise CapacityUnavailable(error.message, scope=scope) from None

    plants.driver(world, answer)


def _tells_no_quotas(world: World, evidence: Evidence) -> None:
    """As an account of which the right to read them is withheld: a dispatcher that knows its quotas never asks."""

    async def answer(driver: plants.Driver, name: Asked, *args: Any) -> Any:
        return () if name is Asked.QUOTAS else await driver.pass_on(name, *args)

    plants.driver(world, answer)


ZERO_QUOTA = Story(
    10,
    "a-region-without-quota-costs-no-minutes",
    with_account(scene(Cloud.EC2, Cloud.GCE, work=FOR_ONE), quotas=(Quota(0),)),
    _cheapest_has_no_quota,
    _no_minutes_lost,
    _zone_by_zone,
    "was asked",
    stage=_tells_no_quotas,
)

# -- 11: polling exhausts rate limits

_MANY = 25
_BY_THE_CLOCK = ("list", "leftovers")
_USUAL = Timing()


def _many_ran_for_an_hour(found: Evidence) -> Iterator[str]:
    if found.most_alive != _MANY or found.result.virtual_ms < HOUR_MS:
        yield f"{found.most_alive} machines for {found.result.virtual_ms} ms"


def _calls_are_few(found: Evidence) -> Iterator[str]:
    """Listings go by the clock, whatever the number of machines; the rest by machines made and ended."""
    due = found.result.virtual_ms // _USUAL.list_interval_ms
    for operation in _BY_THE_CLOCK:
        asked = sum(call.operation == operation for call in found.calls)
        if asked > due * 6 // 5:
            yield f"{operation} was asked for {asked} times, {due} times are due"
    other = sum(call.operation not in _BY_THE_CLOCK for call in found.calls)
    if other > 8 * len(found.vms):
        yield f"{other} other calls for {len(found.vms)} machines in {found.result.virtual_ms // MINUTE} minutes"
    refused = [call for call in found.calls if call.refused == "RateLimited"]
    if refused:
        yield f"{len(refused)} calls were refused as too many, the first {refused[0].operation}"


def _ask_for_each(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer asks for each machine by itself, in every pass."""

    def plant(living: Incarnation) -> None:
        parts: Any = living.parts
        observe = parts.loop._observer.observe

        async def each() -> None:
            await observe()
            for row in list(parts.context.store.instances().values()):
                if row.vm:
                    parts.context.calls.start(f"poll:{row.id}", ask(row), row.profile)

        async def ask(row: Any) -> None:
            await parts.context.settings.providers[row.profile].get(row.vm)

        parts.loop._observer.observe = each

    plants.dispatcher(world, plant)


def _tight(settings: AccountSettings) -> tuple[Bucket, ...]:
    """The account's limits, with a rate for single gets that as many machines would exhaust."""
    others = tuple(bucket for bucket in settings.buckets if bucket.operation != "get")
    return (*others, Bucket("get", 50, 2))


RATE_LIMITS = Story(
    11,
    "polling-stays-under-the-rate-limits",
    with_account(
        scene(
            Cloud.EC2,
            work=(Work(count=_MANY, conduct=Conduct(run_ms=HOUR_MS), shape=ALONE, expected_ms=HOUR_MS),),
            caps=Caps(instances=_MANY),
            timing=_USUAL,
            horizon_ms=2 * HOUR_MS,
        ),
        buckets=_tight(scene(Cloud.EC2).accounts[0].settings),
    ),
    _many_ran_for_an_hour,
    _calls_are_few,
    _ask_for_each,
    "other calls for",
    planted_ms=10 * MINUTE,
)

STORIES = (NEVER_REGISTERS, NO_CAPACITY, ZERO_QUOTA, RATE_LIMITS)
