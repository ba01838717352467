"""Scenarios in which things are shared, as troubles for `generate`: an account by two profiles, a cap by the profiles
of a driver, limits by the users and projects whose work it is. Owns who shares what with whom.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import HOUR_MS, Amount
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.planner.snapshot import DriverCaps
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.settings import Quota
from cloud_dispatch.simulation.dispatcher import DEPLOYMENT
from cloud_dispatch.simulation.money import first_lease
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import OF_PAYERS, Key, Scope
from cloud_dispatch.spend.windows import DAY_MS, Window

_TROUBLE_MS = 240_000
_USERS, _PROJECTS = ("ada", "bo"), ("", "moon")


def shared_account(scenario: Scenario, chance: Stream) -> Scenario:
    """One of the accounts has a second profile, with caps of its own or none: each of the two lists the VMs of both."""
    first = chance.pick(scenario.accounts)
    caps = chance.pick((Caps(), Caps(instances=2), Caps(vcpus=6)))
    second = msgspec.structs.replace(first, profile=ProfileName(f"{first.profile}-too"), faults=(), caps=caps)

    def shared(pool: Pool) -> Pool:
        if first.profile not in pool.profiles:
            return pool
        others = tuple(one for one in pool.profiles if one != first.profile)
        both = chance.pick(((first.profile, second.profile), (second.profile, first.profile), (second.profile,)))
        return replace(pool, profiles=(*both, *others) if chance.chance(0.5) else (*others, *both))

    return msgspec.structs.replace(
        scenario, accounts=(*scenario.accounts, second), pools=tuple(map(shared, scenario.pools))
    )


def neighbours(scenario: Scenario, chance: Stream) -> Scenario:
    """Others have VMs in the accounts: a deployment whose name begins as ours, one in capitals, ours on another
    statestore, people. Some were there before; where quotas are short, all of them go, and where caps or limits are
    those that count. Listings show by prefix, or not."""
    counted = scenario.caps != Caps() or bool(scenario.driver_caps) or bool(scenario.budgets)
    return msgspec.structs.replace(
        scenario, accounts=tuple(_beside(one, counted or one.caps != Caps(), chance) for one in scenario.accounts)
    )


def _beside(account: CloudAccount, counted: bool, chance: Stream) -> CloudAccount:
    faults = [Fault(FaultKind.LEFTOVER, until_ms=_TROUBLE_MS)] if chance.chance(0.5) else []
    short = chance.chance(0.3)
    for _ in range(chance.between(1, 4)):
        begins_ms, lasts_ms = chance.pick((0, chance.below(_TROUBLE_MS))), chance.pick((0, 30_000, 200_000))
        whose = chance.pick((f"{DEPLOYMENT}-2", DEPLOYMENT.upper(), DEPLOYMENT, DEPLOYMENT, ""))
        stays = not (lasts_ms or short or (counted and whose == DEPLOYMENT))
        there = Fault(
            FaultKind.NEIGHBOUR, from_ms=begins_ms, until_ms=0 if stays else begins_ms + (lasts_ms or _TROUBLE_MS),
            times=chance.between(1, 3), code=whose, amount=chance.below(2),
        )  # fmt: skip
        faults.append(there)
    settings = replace(account.settings, reads=replace(account.settings.reads, loose=chance.chance(0.5)))
    if short:
        settings = replace(settings, quotas=(Quota(16),))
    return msgspec.structs.replace(account, settings=settings, faults=(*account.faults, *faults))


def caps_of_drivers(scenario: Scenario, chance: Stream) -> Scenario:
    """Caps of drivers, each with all of its profiles; some drivers have the accounts of several clouds."""
    one_for_all = chance.chance(0.5)
    accounts = tuple(msgspec.structs.replace(one, driver="any") if one_for_all else one for one in scenario.accounts)
    drivers = msgspec.structs.replace(scenario, accounts=accounts).drivers
    caps = tuple(
        DriverCaps(
            driver,
            tuple(profile for profile, own in drivers.items() if own == driver),
            chance.pick((Caps(instances=chance.between(1, 3)), Caps(vcpus=chance.pick((4, 8, 12))))),
        )
        for driver in sorted(set(drivers.values()))
    )
    return msgspec.structs.replace(scenario, accounts=accounts, driver_caps=caps)


def limits_of_payers(scenario: Scenario, chance: Stream) -> Scenario:
    """All work is somebody's; users and projects have limits in total, some hardly any, some as good as none."""
    work = tuple(
        msgspec.structs.replace(one, user=chance.pick(_USERS), project=chance.pick(_PROJECTS)) for one in scenario.work
    )
    least = min(first_lease(one.settings, scenario.pace) for one in scenario.accounts)
    keys = [Key(Scope.USER, name) for name in _USERS] + [Key(Scope.PROJECT, "moon")]
    budgets = []
    for key in keys:
        percent = chance.pick((50, 100, 300, 1_000, 5_000)) + chance.below(100)
        if chance.chance(0.7):
            budgets.append(Budget(key, Window.TOTAL, Amount(least * percent // 100)))
    return msgspec.structs.replace(scenario, work=work, budgets=(*scenario.budgets, *budgets))


def windows_of_payers(scenario: Scenario, chance: Stream) -> Scenario:
    """The limits of users and projects are for an hour or a day each, and one of both ends while they work."""
    budgets = tuple(
        replace(one, window=chance.pick((Window.HOUR, Window.HOUR, Window.DAY))) if one.key.scope in OF_PAYERS else one
        for one in scenario.budgets
    )
    begins_ms = chance.pick((HOUR_MS, HOUR_MS, DAY_MS)) - chance.below(_TROUBLE_MS)
    return msgspec.structs.replace(scenario, budgets=budgets, begins_ms=begins_ms)
