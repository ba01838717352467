"""Scenarios with all clouds at once, as troubles for `generate`. Owns how a provider as a whole fails, and that each
fault that the clouds know comes up.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work

_TROUBLE_MS = 240_000
_HANGS_MS = 300_000
#: How a provider is wholly down: what each of its calls is answered with. A name that can't be resolved is a Transient
#: error at once; a network that swallows everything is an answer long after nobody waits any more.
WAYS_DOWN: dict[str, Fault] = {
    "credentials": Fault(FaultKind.ERROR, error="CredentialsRejected", code="ExpiredToken"),
    "unreachable": Fault(FaultKind.ERROR, error="Transient", code="NameResolutionError"),
    "silent": Fault(FaultKind.SLOW, amount=_HANGS_MS),
    "throttled": Fault(FaultKind.ERROR, error="RateLimited", code="TooManyRequests", retry_after_ms=5_000),
}
#: Every kind, with what it strikes, an amount, and how long it lasts.
_KINDS: dict[FaultKind, tuple[tuple[str, ...], tuple[int, ...], int]] = {
    FaultKind.ERROR: (("launch", "list", "get", "terminate", "resume", "offerings", "tag", ""), (0,), 30_000),
    FaultKind.LOST_ANSWER: (("launch", "terminate"), (0,), 40_000),
    FaultKind.NO_ANSWER: (("launch", "terminate", "list", "offerings"), (0,), 40_000),
    FaultKind.SLOW: (("launch", "list", "offerings", ""), (3_000, 30_000), 60_000),
    FaultKind.ASYNC_FAILURE: (("",), (0,), 60_000),
    FaultKind.STALE: (("list", "get"), (5_000, 20_000), 60_000),
    FaultKind.INCOMPLETE: (("list",), (0, 1), 60_000),
    FaultKind.CAPACITY: (("",), (0, 1), 90_000),
    FaultKind.QUOTA: (("",), (0, 2), 90_000),
    FaultKind.PRICE: (("",), (1, 10_000_000_000), 60_000),
    FaultKind.LEFTOVER: (("",), (0,), 120_000),
    FaultKind.NEVER_STARTS: (("",), (0,), 40_000),
    FaultKind.NEVER_BOOTS: (("",), (0,), 40_000),
    FaultKind.USER_DATA_FAILS: (("",), (0,), 40_000),
    FaultKind.LATE: (("",), (60_000, 300_000), 40_000),
    FaultKind.DRIFT: (("",), (-20_000, 20_000), 120_000),
    FaultKind.DEATH: (("",), (0,), 0),
    FaultKind.HANG: (("",), (0,), 0),
    FaultKind.PREEMPT: (("",), (-1, 0, 2_000), 0),
    FaultKind.CUT_OFF: (("",), (0,), 60_000),
    FaultKind.FREEZE: (("",), (0, 1), 60_000),
    FaultKind.HIDDEN: (("",), (5_000, 30_000), 0),
    FaultKind.WRONG_CLOCK: (("",), (-86_400_000, -60_000, 60_000, 86_400_000), 120_000),
    FaultKind.STAYS: (("",), (1_000, 45_000), 90_000),
    FaultKind.NEIGHBOUR: (("",), (0, 1), 120_000),
    FaultKind.REAPER_DOWN: (("",), (0,), 120_000),
}
_ERRORS = ("Transient", "RateLimited", "CredentialsRejected", "CapacityUnavailable", "QuotaExceeded", "InvalidRequest")


def three_clouds(scenario: Scenario, chance: Stream) -> Scenario:
    """An account of each cloud, a pool over all of them, and work for more VMs than one account is given."""
    accounts = tuple(CloudAccount(_profile(cloud), defaults(cloud), caps=Caps(instances=3)) for cloud in Cloud)
    pool = replace(
        scenario.pools[0],
        profiles=tuple(one.profile for one in accounts),
        markets=chance.pick(((Market.ON_DEMAND,), (Market.SPOT, Market.ON_DEMAND))),
        target_drain_ms=60_000,
        caps=Caps(),
    )
    more = Work(count=chance.between(6, 16), conduct=Conduct(run_ms=chance.pick((8_000, 25_000))), max_attempts=10)
    return msgspec.structs.replace(
        scenario, accounts=accounts, pools=(pool,), work=(*scenario.work, more), caps=Caps(instances=8)
    )


def one_is_down(scenario: Scenario, chance: Stream) -> Scenario:
    """One or two of the providers answer nothing as they should, for minutes; then they do again."""
    accounts = list(scenario.accounts)
    for _ in range(chance.between(1, 2)):
        which, begins_ms = chance.below(len(accounts)), chance.pick((0, chance.below(_TROUBLE_MS)))
        lasts_ms = chance.pick((30_000, 120_000, 400_000))
        fault = replace(WAYS_DOWN[chance.pick(sorted(WAYS_DOWN))], from_ms=begins_ms, until_ms=begins_ms + lasts_ms)
        accounts[which] = _with_faults(accounts[which], fault)
    return msgspec.structs.replace(scenario, accounts=tuple(accounts))


def any_fault(scenario: Scenario, chance: Stream) -> Scenario:
    """Every account has some of all the faults that there are."""
    accounts = []
    for account in scenario.accounts:
        faults = []
        for _ in range(chance.between(1, 4)):
            kind = chance.pick(sorted(_KINDS))
            operations, amounts, lasts_ms = _KINDS[kind]
            begins_ms = chance.between(1_000, _TROUBLE_MS)
            faults.append(
                Fault(
                    kind, operation=chance.pick(operations), from_ms=begins_ms, until_ms=begins_ms + max(lasts_ms, 1),
                    times=chance.between(1, 3), amount=chance.pick(amounts), error=chance.pick(_ERRORS),
                )
            )  # fmt: skip
        accounts.append(_with_faults(account, *faults))
    return msgspec.structs.replace(scenario, accounts=tuple(accounts))


def _profile(cloud: Cloud) -> ProfileName:
    return ProfileName(str(cloud))


def _with_faults(account: CloudAccount, *faults: Fault) -> CloudAccount:
    return msgspec.structs.replace(account, faults=account.faults + faults)
