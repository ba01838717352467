"""Scenarios in which money is short, as troubles for `generate`. Owns what is likely to go wrong about it together.

Limits pay for minutes to hours of a few VMs, in windows whose edges the run crosses. What clouds bill is drawn too: a
minimum, an increment, disks, moving prices, hands that are slow. What else goes wrong is chosen for what it costs:
guests that hang, dispatchers that stay dead, clocks that are as far apart as they may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate, cost
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.provider.spi import LeftoverKind
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Cloud, Extra
from cloud_dispatch.simulation.faults import POINTS, Fault, FaultKind
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.windows import DAY_MS, Window

_MINUTE_MS = 60_000
_TROUBLE_MS = 25 * _MINUTE_MS
#: How long after the epoch an hour, a day and a month end.
_EDGES = (HOUR_MS, DAY_MS, 31 * DAY_MS)
#: Clocks may be two minutes apart.
CLOCKS_MS = 120_000
_C = CloudFaultKind


def short_of_money(scenario: Scenario, chance: Stream) -> Scenario:
    """Limits, prices, paces and work; nothing goes wrong."""
    accounts = tuple(msgspec.structs.replace(one, settings=_bills(one.settings, chance)) for one in scenario.accounts)
    markets = chance.pick(((Market.ON_DEMAND,), (Market.ON_DEMAND, Market.SPOT), (Market.SPOT, Market.ON_DEMAND)))
    lifetime_ms = chance.pick((20 * _MINUTE_MS, HOUR_MS, 3 * HOUR_MS))
    pools = tuple(
        replace(
            one, markets=markets, end=replace(one.end, lifetime_ms=lifetime_ms), caps=Caps(), target_drain_ms=60_000
        )
        for one in scenario.pools
    )
    begins_ms = chance.pick(_EDGES) - chance.below(15 * _MINUTE_MS) if chance.chance(0.7) else chance.below(DAY_MS)
    pace = chance.pick((Pace(120_000, 20_000), Pace(120_000, 20_000), Pace(300_000, 60_000), Pace()))
    work = tuple(_longer(one, chance) for one in scenario.work)
    return msgspec.structs.replace(
        scenario,
        accounts=accounts,
        pools=pools,
        work=work,
        caps=Caps(instances=20),
        budgets=_budgets(scenario, accounts, pools, pace, chance),
        pace=pace,
        begins_ms=begins_ms,
        # Where one VM is paid for at a time, an hour of it now and then, one task may follow the other.
        horizon_ms=max(12 * HOUR_MS, 2 * sum(one.count * one.conduct.run_ms for one in work)),
    )


def _bills(settings: AccountSettings, chance: Stream) -> AccountSettings:
    """The account, billing in another way. A period of 0 stays: then the cloud keeps hard ends itself."""
    extras = tuple(_dearer(extra, chance) for extra in settings.extras)
    period_ms = chance.pick((15_000, 60_000, 300_000))
    return replace(
        settings,
        minimum_ms=chance.pick((0, 60_000, 60_000, 600_000, HOUR_MS)),
        increment_ms=chance.pick((1, 1_000, 1_000, 60_000, HOUR_MS)),
        extras=extras,
        spot=replace(settings.spot, step_ms=chance.pick((30_000, 300_000)), swing=chance.pick((0.05, 0.6))),
        reaper_period_ms=settings.reaper_period_ms and period_ms,
        mishaps=replace(settings.mishaps, death_mean_ms=chance.pick((0, 0, 20 * _MINUTE_MS))),
    )


def _dearer(extra: Extra, chance: Stream) -> Extra:
    rate = chance.pick((extra.rate, Rate(20_000_000), Rate(333_333_333)))
    return extra if extra.kind is LeftoverKind.NIC else Extra(extra.kind, rate)


def _longer(work: Work, chance: Stream) -> Work:
    run_ms = chance.pick((10_000, 60_000, 4 * _MINUTE_MS, 15 * _MINUTE_MS))
    told_ms = chance.pick((0, 0, run_ms, run_ms, run_ms // 10))
    conduct = msgspec.structs.replace(work.conduct, run_ms=run_ms, log_bytes=0)
    return msgspec.structs.replace(
        work, count=work.count * chance.pick((1, 3, 6)), conduct=conduct, expected_ms=told_ms, max_runtime_ms=0,
        max_attempts=10,
    )  # fmt: skip


def _budgets(
    scenario: Scenario, accounts: Sequence[CloudAccount], pools: tuple[Pool, ...], pace: Pace, chance: Stream
) -> tuple[Budget, ...]:
    """One to four, from what hardly pays for one VM on."""
    account = chance.pick(accounts)
    keys = (
        EVERYTHING,
        EVERYTHING,
        Key(Scope.DRIVER, scenario.drivers[account.profile]),
        Key(Scope.PROFILE, account.profile),
        Key(Scope.POOL, chance.pick(pools).name),
    )
    least = min(first_lease(one.settings, pace) for one in accounts)
    found: dict[tuple[Key, Window], Budget] = {}
    for _ in range(chance.between(1, 4)):
        key = chance.pick(keys)
        window = chance.pick((Window.TOTAL, Window.TOTAL, Window.HOUR, Window.HOUR, Window.DAY, Window.MONTH))
        percent = chance.pick((100, 200, 300, 400, 600, 1_500)) + chance.below(100)
        stops = chance.pick((0, 0, 60))
        found[key, window] = Budget(key, window, Amount(least * percent // 100), 80, stops)
    return tuple(found.values())


def first_lease(settings: AccountSettings, pace: Pace) -> int:
    """About what the cheapest VM there is committed to when it is launched, micro-dollars."""
    slowness_ms = settings.reaper_period_ms + settings.life.stop.most_ms + CLOCKS_MS
    known_ms = pace.lease_ms + settings.life.boot.median_ms + slowness_ms
    return cost(full_rate(settings), known_ms, minimum_ms=settings.minimum_ms, increment_ms=settings.increment_ms)


def full_rate(settings: AccountSettings) -> Rate:
    """Of the cheapest VM on demand, with what comes with it."""
    return Rate(min(sold.rate for sold in settings.sells) + sum(extra.rate for extra in settings.extras))


#: What costs: kind, operation, amounts, how long it lasts.
_COSTLY: tuple[tuple[CloudFaultKind, str, tuple[int, ...], int], ...] = (
    (_C.HANG, "", (0,), 600_000),
    (_C.USER_DATA_FAILS, "", (0,), 300_000),
    (_C.NEVER_BOOTS, "", (0,), 300_000),
    (_C.NEVER_STARTS, "", (0,), 300_000),
    (_C.LATE, "", (60_000, 600_000), 300_000),
    (_C.PRICE, "", (1, 10_000_000_000), 600_000),
    (_C.LOST_ANSWER, "launch", (0,), 300_000),
    (_C.NO_ANSWER, "launch", (0,), 300_000),
    (_C.SLOW, "launch", (15_000, 60_000), 300_000),
    (_C.ASYNC_FAILURE, "", (0,), 300_000),
    (_C.ERROR, "terminate", (0,), 900_000),
    (_C.ERROR, "tag", (0,), 900_000),
    (_C.LOST_ANSWER, "tag", (0,), 900_000),
    (_C.ERROR, "list", (0,), 300_000),
    (_C.STALE, "list", (30_000,), 300_000),
    (_C.HIDDEN, "", (20_000,), 0),
    (_C.CUT_OFF, "", (0,), 900_000),
    (_C.PREEMPT, "", (-1, 0), 0),
    (_C.DEATH, "", (0,), 0),
    (_C.LEFTOVER, "", (0,), 120_000),
    (_C.DRIFT, "", (-50_000, 50_000), 600_000),
    (_C.WRONG_CLOCK, "", (-86_400_000, 86_400_000), 600_000),
    (_C.STAYS, "", (60_000,), 300_000),
)


def costly_faults(scenario: Scenario, chance: Stream) -> Scenario:
    """Guests that hang, machines that bill and never serve, calls that are lost, a network that is cut."""
    accounts = []
    for account in scenario.accounts:
        faults = []
        for _ in range(chance.between(1, 5)):
            kind, operation, amounts, lasts = chance.pick(_COSTLY)
            at = chance.below(_TROUBLE_MS)
            faults.append(
                CloudFault(
                    kind, operation=operation, from_ms=at, until_ms=at + max(lasts, 1), times=chance.between(1, 4),
                    amount=chance.pick(amounts),
                )
            )  # fmt: skip
        accounts.append(msgspec.structs.replace(account, faults=account.faults + tuple(faults)))
    own = []
    for trouble, lasting in (
        (FaultKind.PARTITION, 900_000),
        (FaultKind.AGENT_HANG, 0),
        (FaultKind.STORE_FAILS, 60_000),
    ):
        if chance.chance(0.4):
            at, which = chance.below(_TROUBLE_MS), chance.below(9)
            own.append(Fault(trouble, at, at + chance.between(1, lasting) if lasting else 0, which=which))
    return msgspec.structs.replace(scenario, accounts=tuple(accounts), faults=(*scenario.faults, *own))


def left_alone(scenario: Scenario, chance: Stream) -> Scenario:
    """All at once every guest hangs and the dispatcher dies, for longer than VMs may live: only hard ends are left."""
    if chance.chance(0.4):
        return scenario
    at_ms = chance.pick((_MINUTE_MS, 90_000, 150_000, 5 * _MINUTE_MS, 15 * _MINUTE_MS))
    hang = CloudFault(_C.HANG, from_ms=at_ms, until_ms=at_ms + 5 * _MINUTE_MS, times=1_000)
    accounts = tuple(msgspec.structs.replace(one, faults=(*one.faults, hang)) for one in scenario.accounts)
    died = Fault(FaultKind.CRASH, at_ms + chance.pick((0, 0, 100, 60_000)), amount=4 * HOUR_MS)
    return _longer_by(
        died.amount, msgspec.structs.replace(scenario, accounts=accounts, faults=(*scenario.faults, died))
    )


def left_to_guests(scenario: Scenario, chance: Stream) -> Scenario:
    """At EC2 no hand keeps hard ends: VMs end by their own timers, or not at all. So nothing may go wrong that stops a
    whole guest. (At the others what a guest has stopped goes on billing, itself or its disks.)"""
    accounts = tuple(
        msgspec.structs.replace(one, settings=replace(one.settings, reaper_period_ms=0), guest_enforced=True)
        if one.settings.cloud is Cloud.EC2
        else one
        for one in scenario.accounts
    )
    return msgspec.structs.replace(scenario, accounts=accounts)


def wrong_clocks(scenario: Scenario, chance: Stream) -> Scenario:
    """The dispatcher's clock is off, one way and then perhaps the other, by at most what the promise allows."""
    faults, at = [], chance.below(5 * _MINUTE_MS)
    for _ in range(chance.between(1, 3)):
        lasts_ms = chance.between(_MINUTE_MS, 20 * _MINUTE_MS)
        off_ms = chance.pick((-CLOCKS_MS, -CLOCKS_MS, -30_000, 30_000, CLOCKS_MS, CLOCKS_MS))
        faults.append(Fault(FaultKind.CLOCK, at, at + lasts_ms, off_ms))
        at += lasts_ms + chance.pick((1, 60_000))
    return msgspec.structs.replace(scenario, faults=(*scenario.faults, *faults))


def long_deaths(scenario: Scenario, chance: Stream) -> Scenario:
    """The dispatcher dies where order matters, and stays dead for a while, or for longer than any VM may live."""
    faults = [
        Fault(
            FaultKind.CRASH, chance.below(_TROUBLE_MS),
            amount=chance.pick((500, 15_000, 120_000, 20 * _MINUTE_MS, 4 * HOUR_MS)),
            point=chance.pick(POINTS), which=chance.between(0, 40) if chance.chance(0.5) else chance.below(3),
        )
        for _ in range(chance.between(1, 4))
    ]  # fmt: skip
    lost_ms = sum(fault.amount for fault in faults)
    return _longer_by(lost_ms, msgspec.structs.replace(scenario, faults=(*scenario.faults, *faults)))


def _longer_by(lost_ms: int, scenario: Scenario) -> Scenario:
    """For so long nobody is there who could get anything done: that much longer it may take."""
    return msgspec.structs.replace(scenario, horizon_ms=scenario.horizon_ms + lost_ms)


def old_backups(scenario: Scenario, chance: Stream) -> Scenario:
    """The store comes back older than it was, often shortly before a window ends. Nobody reconciles it."""
    edge_ms = next((edge - scenario.begins_ms for edge in _EDGES if edge > scenario.begins_ms), 0)
    late = 0 < edge_ms - 5_000 < _TROUBLE_MS and chance.chance(0.5)
    at_ms = max(edge_ms - chance.between(1, 60_000), 5_000) if late else chance.between(30_000, _TROUBLE_MS)
    older_ms = chance.pick((1_000, 20_000, 60_000, 300_000))
    restored = Fault(FaultKind.RESTORE, at_ms, amount=older_ms)
    return msgspec.structs.replace(scenario, faults=(*scenario.faults, restored))
