"""What a configuration comes to for a dispatcher: its rules, with a driver for each profile. Owns how they are made
from one, at the start and later, and which settings hold from the start to the end alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from cloud_dispatch import drivers, meaning, userdata
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.api.services import AgentBundle
from cloud_dispatch.assembly import Rules
from cloud_dispatch.config import Config
from cloud_dispatch.config.schema import Profile
from cloud_dispatch.demand.settings import configured_targets
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.provider.lent import Lent
from cloud_dispatch.provider.tagfilter import TagFilter
from cloud_dispatch.reconcile.settings import Settings
from cloud_dispatch.telemetry.provider_calls import ProviderCalls
from cloud_dispatch.userdata import PACE, Trusted

#: Of the sections that hold from the start to the end, the settings that may become others meanwhile. Agents and
#: dispatcher go by the leases together: a shorter one would have tasks given to others before their agents let go.
_LIVE = {
    "dispatcher": frozenset({"pause"}),
    "store": frozenset({"retain_tasks", "retain_events", "retain_plans", "retain_logs"}),
    "timing": frozenset({"pass_interval", "list_interval", "doubt", "kill_grace"}),
    "limits": frozenset[str](),
}


@dataclass(frozen=True)
class Ground:
    """What no configuration changes while a dispatcher runs. `aside`: where drivers are made that come later."""

    clock: SystemClock
    tokens: Tokens
    deployment: str
    calls: ProviderCalls
    files: Executor
    aside: Executor
    agent: AgentBundle
    trusted: Trusted


@dataclass(frozen=True)
class Driver:
    """The driver of a profile, as it was made for it. `prices_ms`: when the prices were told that it had then."""

    profile: Profile
    provider: Lent
    prices_ms: int


Drivers = Mapping[ProfileName, Driver]


def make_drivers(found: dict[ProfileName, Driver], config: Config, ground: Ground, before: Drivers) -> None:
    """Put a driver for each profile into `found`: that of `before` where it was made for the same. Blocks for seconds
    where one is to be made; where one can't be, the caller has those that were."""
    for name, profile in config.profiles.items():
        known = before.get(ProfileName(name))
        if known is None or _made_by(known.profile) != _made_by(profile):
            priced = drivers.one(name, config, ground.clock, ground.calls, ground.files)
            known = Driver(profile, Lent(TagFilter(priced, ground.deployment)), priced.told.told_ms)
        found[ProfileName(name)] = known


def _made_by(profile: Profile) -> tuple[Any, ...]:
    """What a driver is made from."""
    return profile.driver, profile.settings, profile.pricing


def rules_of(config: Config, ground: Ground, made: Drivers) -> Rules:
    """What the dispatcher shall do. InvalidInput for what no driver can do, and files that can't be used."""
    policy = config.policy(next(iter(config.pool_sections)))
    providers = {name: one.provider for name, one in made.items()}
    traits = {name: one.provider.traits for name, one in made.items()}
    settings = Settings(
        deployment=ground.deployment,
        pools={pool.name: pool for pool in config.pools()},
        caps=config.caps(),
        profile_caps=config.profile_caps(),
        providers=providers,
        user_data=userdata.maker(config, traits, ground.tokens, ground.trusted, ground.clock),
        profile_types=config.profile_types(),
        timing=meaning.timing_of(config),
        drivers=meaning.drivers(config),
        driver_caps=meaning.driver_caps(config),
        pace=PACE,
        guest_enforced=meaning.guest_enforced(config, {name: one.traits.hard_end for name, one in providers.items()}),
        prices_ms={name: one.prices_ms for name, one in made.items()},
    )
    return Rules(
        settings=settings,
        policy=replace(policy, ca=ground.trusted.ca),
        agent=ground.agent,
        limits=meaning.limits(config),
        targets=configured_targets(config),
        retention=config.retention(),
        retain_logs_ms=config.store.retain_logs_ms,
        stop=Stop(StopLevel.LAUNCHES, "dispatcher.pause is set") if config.dispatcher.pause else Stop(),
        url=config.advertise_url,
        scripts=userdata.scripts(config),
        budgets=config.budgets(),
    )


def fixed(before: Config, after: Config) -> list[str]:
    """The settings that differ and hold from the start to the end of a dispatcher."""
    return [name for name in changed(before, after) if _is_fixed(*name.split(".", 2)[:2])]


def _is_fixed(section: str, setting: str = "") -> bool:
    return section in _LIVE and setting not in _LIVE[section]


def changed(before: Config, after: Config) -> list[str]:
    """The settings that differ, in order, by their names in the file; never what they are."""
    return sorted(set(_differing(before, after)))


def _differing(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if type(one) is not type(other):
        yield path
    elif isinstance(one, BaseModel):
        for name, field in type(one).model_fields.items():
            if (path, name) == ("", "origin"):
                continue
            own = path if name == "settings" else ".".join(filter(None, (path, field.alias or name)))
            yield from _differing(getattr(one, name), getattr(other, name), own)
    elif isinstance(one, Mapping):
        for name in {**one, **other}:
            own = ".".join(filter(None, (path, str(name))))
            if name in one and name in other:
                yield from _differing(one[name], other[name], own)
            else:
                yield own
    elif one != other:
        yield path
