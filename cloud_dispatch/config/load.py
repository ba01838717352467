"""From a source to a checked configuration. Owns the whole configuration, its cross checks and its domain values.

Knows drivers only through the `plugins` callable that it is given.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, Field, PrivateAttr, Secret, ValidationError

from cloud_dispatch.config import secrets
from cloud_dispatch.config.checks import GUEST_ENFORCED, check_money, check_store, check_tls, cross_check, money_notes
from cloud_dispatch.config.problems import InvalidConfig, Problem, from_validation
from cloud_dispatch.config.schema import (
    BackupSettings,
    BudgetSection,
    CapsSection,
    Dispatcher,
    DriverSection,
    EndSection,
    Limits,
    Name,
    PayerName,
    PayerSection,
    PoolSection,
    Profile,
    Section,
    StoreSettings,
    Timing,
    TypesSection,
)
from cloud_dispatch.config.source import DEFAULTS, ConfigSource, Raw, default_state_dir
from cloud_dispatch.domain.errors import DispatchError, InvalidInput
from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import Caps, EndRules, HealthCheck, Pool, TypeFilter
from cloud_dispatch.domain.pricing import OwnPrice, parse_own_price
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.ports.store import Retention
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.wire.messages import HealthCheck as WireHealthCheck
from cloud_dispatch.wire.messages import Policy


class DriverPlugin(Protocol):
    """What the configuration asks of a driver."""

    bills: bool  # whether its VMs cost money
    keeps_ends: bool  # whether a hand that is independent of the guest ends its VMs, as far as the driver can know

    @property
    def settings(self) -> type[Any]: ...

    def check_secret(self, name: str) -> None: ...

    def secret(self, name: str) -> str: ...


#: From the name of a driver to its plugin; DispatchError or LookupError when there is none.
Plugins = Callable[[str], DriverPlugin]

#: The operator's token in the state folder: the dispatcher writes it there, and clients look for it.
OPERATOR_FILE = "operator.token"
#: Its sha256 among the keys, by which the dispatcher knows it.
OPERATOR_HASH = "operator.sha256"
_TOML_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
#: Keys of a dispatcher that say how to reach it.
_ADDRESS_KEYS = frozenset({"listen", "state_dir", "tls", "certificate", "key"})
#: Keys of a profile that are ours; all others are the driver's.
_PROFILE_KEYS = frozenset(Profile.model_fields) - {"settings"}


class Config(Section):
    """The whole configuration, checked. `origin` says where it came from."""

    origin: str = ""
    dispatcher: Dispatcher = Dispatcher()
    store: StoreSettings = StoreSettings()
    backup: BackupSettings = BackupSettings()
    timing: Timing = Timing()
    limits: Limits = Limits()
    overall_caps: CapsSection = Field(default=CapsSection(), alias="caps")
    budget: BudgetSection = BudgetSection()
    drivers: dict[Name, DriverSection] = Field(default_factory=dict)
    profiles: dict[Name, Profile] = Field(default_factory=dict)
    pool_sections: dict[Name, PoolSection] = Field(default_factory=dict, alias="pools")
    projects: dict[PayerName, PayerSection] = Field(default_factory=dict)
    users: dict[PayerName, PayerSection] = Field(default_factory=dict)
    _plugins: Plugins | None = PrivateAttr(default=None)

    @property
    def state_dir(self) -> Path:
        return self.dispatcher.state_dir

    @property
    def token_file(self) -> Path:
        """Where the dispatcher writes the operator's token (mode 0600)."""
        return self.state_dir / OPERATOR_FILE

    @property
    def store_url(self) -> str:
        """The statestore's URL, with its password as it is now; the SQLite file in the state folder unless set."""
        told = self._secret(self.store.url, "store.url")
        password = self._secret(self.store.password, "store.password")
        return (
            secrets.with_password(told, password)
            if password
            else told or f"sqlite:///{self.state_dir / 'store.sqlite'}"
        )

    def _secret(self, named: Secret[str], place: str) -> str:
        return secrets.found(
            named.get_secret_value(), os.environ, place=place,
            folder=secrets.FOLDER, file=secrets.ENVIRONMENT, stores=self._plugins,
        )  # fmt: skip

    @property
    def backups(self) -> Path:
        """The folder of the copies of the state that are kept on this machine."""
        return self.state_dir / "backups" if self.backup.in_bucket or not self.backup.into else Path(self.backup.into)

    @property
    def base_url(self) -> str:
        """Where clients on this machine reach the dispatcher."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.dispatcher.host, self.dispatcher.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{'https' if self.dispatcher.tls else 'http'}://{host}:{self.dispatcher.port}"

    @property
    def tls_folder(self) -> Path:
        """Where the dispatcher keeps the CA and the certificate that it makes."""
        return self.state_dir / "tls"

    @property
    def certificate_file(self) -> Path | None:
        """The certificate that clients on this machine trust; None without TLS."""
        own = self.dispatcher.certificate or self.tls_folder / "server.pem"
        return own if self.dispatcher.tls else None

    @property
    def advertise_url(self) -> str:
        """Where VMs reach the dispatcher."""
        return self.dispatcher.advertise or self.base_url

    def pools(self) -> tuple[Pool, ...]:
        """The pools, in order of name."""
        return tuple(_pool(name, section) for name, section in sorted(self.pool_sections.items()))

    def caps(self) -> Caps:
        """The bounds on everything together."""
        return _caps(self.overall_caps)

    def profile_caps(self) -> dict[ProfileName, Caps]:
        """The bounds of each profile."""
        return {ProfileName(name): _caps(profile.caps) for name, profile in self.profiles.items()}

    def driver_caps(self) -> dict[str, Caps]:
        """The bounds of all profiles of each driver together."""
        return {name: _caps(driver.caps) for name, driver in self.drivers.items()}

    def budgets(self) -> tuple[Budget, ...]:
        """Every spending limit, in the order of the deployment, drivers, profiles, pools, projects and users."""
        sections = [
            (EVERYTHING, self.budget),
            *((Key(Scope.DRIVER, name), driver.budget) for name, driver in sorted(self.drivers.items())),
            *((Key(Scope.PROFILE, name), profile.budget) for name, profile in sorted(self.profiles.items())),
            *((Key(Scope.POOL, name), pool.budget) for name, pool in sorted(self.pool_sections.items())),
            *((Key(Scope.PROJECT, name), project.budget) for name, project in sorted(self.projects.items())),
            *((Key(Scope.USER, name), user.budget) for name, user in sorted(self.users.items())),
        ]
        return tuple(
            Budget(key, window, Amount(limit), section.notify_percent, section.no_launch_percent, section.drain_percent)
            for key, section in sections
            for window, limit in section.limits.items()
        )

    def notes(self) -> list[str]:
        """What is good and yet worth knowing: what limits do not cover, and where they hang on guests' own timers."""
        pools = self.guest_enforced_pools()
        return [*(f"pool {pool}: {GUEST_ENFORCED}" for pool in pools), *money_notes(self.budgets())]

    def guest_enforced_pools(self) -> tuple[str, ...]:
        """The pools with a profile whose VMs may have no hand but their own timer to end them, as accepted."""
        accepted = {name for name, profile in self.profiles.items() if profile.guest_enforced}
        return tuple(name for name, pool in sorted(self.pool_sections.items()) if accepted.intersection(pool.profiles))

    def profile_types(self) -> dict[ProfileName, TypeFilter]:
        """What each profile may rent at all, whatever its pools allow."""
        return {ProfileName(name): _types(profile.types) for name, profile in self.profiles.items()}

    def own_prices(self, profile: str) -> tuple[OwnPrice, ...]:
        """What the operator says that he pays at a profile."""
        return tuple(parse_own_price(types, price) for types, price in self.profiles[profile].pricing.items())

    def retention(self) -> Retention:
        """How long the store keeps what has ended; instances as long as tasks."""
        kept = self.store
        return Retention(kept.retain_tasks_ms, kept.retain_events_ms, kept.retain_plans_ms, kept.retain_tasks_ms)

    def policy(self, pool: str) -> Policy:
        """How agents in `pool` shall behave, capacities left to the instance; KeyError for a pool that is not there."""
        section, timing = self.pool_sections[pool], self.timing
        return Policy(
            heartbeat_ms=timing.heartbeat_ms,
            lease_ms=timing.lease_ms,
            poll_ms=timing.poll_ms,
            kill_grace_ms=timing.kill_grace_ms,
            silence_ms=timing.silence_ms,
            idle_ms=section.end.idle_ms,
            max_tasks=section.end.max_tasks,
            empty_claims=section.end.empty_claims,
            lifetime_ms=section.end.lifetime_ms,
            log_limit=self.limits.log_bytes_per_attempt,
            max_tasks_at_once=section.max_tasks_per_instance,
            health_checks=[
                WireHealthCheck(list(c.command), c.interval_ms, c.timeout_ms, c.failures) for c in section.health_checks
            ],
        )

    def describe(self, *, unset: bool = False) -> dict[str, Any]:
        """Every setting with its value as the file would say it; JSON-ready, secrets of drivers masked. With `unset`
        those that are not set too, as None."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"origin"}, exclude_none=not unset)
        for profile in values["profiles"].values():
            profile.update(profile.pop("settings", None) or {})
        return values


def _caps(section: CapsSection) -> Caps:
    return Caps(section.instances, section.vcpus)


def _types(section: TypesSection) -> TypeFilter:
    return TypeFilter(section.allow, section.deny)


def _end(section: EndSection) -> EndRules:
    return EndRules(section.idle_ms, section.max_tasks, section.empty_claims, section.lifetime_ms)


def _pool(name: str, section: PoolSection) -> Pool:
    reserve = section.reserve
    return Pool(
        name=PoolName(name),
        profiles=tuple(ProfileName(profile) for profile in section.profiles),
        types=_types(section.types),
        markets=section.markets,
        labels=tuple(sorted(section.labels.items())),
        caps=_caps(section.caps),
        minimum=section.minimum,
        reserve=Resources(reserve.cpus_milli, reserve.memory, reserve.disk),
        max_tasks_per_instance=section.max_tasks_per_instance,
        price_factor_percent=section.price_factor_percent,
        target_drain_ms=section.target_drain_ms,
        min_work_per_boot_percent=section.min_work_per_boot_percent,
        boot_deadline_ms=section.boot_deadline_ms,
        end=_end(section.end),
        health_checks=tuple(
            HealthCheck(c.command, c.interval_ms, c.timeout_ms, c.failures) for c in section.health_checks
        ),
        template=section.template,
        boot_allowance=section.boot_allowance,
        futility_allowance=section.futility_allowance,
    )


def load(source: ConfigSource, plugins: Plugins) -> Config:
    """Read, parse and check a configuration.

    InvalidConfig (an InvalidInput) names every problem with file, line, key and what was expected; NotFound when the
    source is not there.
    """
    raw = source.read()
    text = raw.content if isinstance(raw.content, str) else None
    values = dict(parsed(raw))
    if "profiles" not in values and "pools" not in values:  # a file that only sets, say, timing
        values |= DEFAULTS
    problems: list[Problem] = []
    billing: set[str] = set()
    unkept: set[str] = set()
    values["profiles"] = _with_settings(values.get("profiles", {}), plugins, problems, billing, unkept)
    values["pools"] = _with_boot_files(values.get("pools", {}), raw)
    values["dispatcher"] = _with_paths(values.get("dispatcher", {}), raw)
    values["backup"] = _with_folder(values.get("backup", {}), raw)
    if "origin" in values:
        problems.append(Problem(("origin",), "no such key"))
    try:
        config = Config.model_validate(values | {"origin": raw.origin})
    except ValidationError as error:
        problems = from_validation(error, Config) + problems
        raise InvalidConfig(raw.origin, text, problems) from None
    problems += check_tls(config.dispatcher)
    problems += check_store(config.store, config.backup, plugins)
    problems += cross_check(config.timing, config.profiles, config.pool_sections)
    problems += check_money(config.profiles, config.drivers, billing, unkept)
    if problems:
        raise InvalidConfig(raw.origin, text, problems)
    config._plugins = plugins
    return config


def load_address(source: ConfigSource) -> Config:
    """What whoever talks to a dispatcher needs to know: where it listens, how it is trusted, where its token is. The
    rest is as if the source did not say it, so that nothing that is wrong there matters; but for a word that is no key
    beside them: it may be one of them with a slip, and the dispatcher another one.

    InvalidConfig where one of these is wrong; InvalidInput where the source can't be read at all.
    """
    raw = source.read()
    text = raw.content if isinstance(raw.content, str) else None
    section = _with_paths(parsed(raw).get("dispatcher", {}), raw)
    if isinstance(section, Mapping):
        others = Dispatcher.model_fields.keys() - _ADDRESS_KEYS
        section = {key: value for key, value in section.items() if key not in others}
    try:
        config = Config.model_validate({"dispatcher": section, "origin": raw.origin})
    except ValidationError as error:
        raise InvalidConfig(raw.origin, text, from_validation(error, Config)) from None
    if problems := check_tls(config.dispatcher):  # the token must not cross a network in the clear
        raise InvalidConfig(raw.origin, text, problems)
    return config


def parsed(raw: Raw) -> Mapping[str, Any]:
    """What a source says, and nothing else. InvalidInput, with its place, for what is no TOML."""
    if not isinstance(raw.content, str):
        return raw.content
    try:
        return tomllib.loads(raw.content)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_LINE.search(str(error))
        place = f"{raw.origin}:{match[1]}" if match else raw.origin
        raise InvalidInput(f"expected TOML: {_TOML_LINE.sub('', str(error))}", place=place) from None


def _with_paths(section: Any, raw: Raw) -> Any:
    """The section with absolute paths; relative ones are relative to the file."""
    if not isinstance(section, Mapping):
        return section
    given = section.get("state_dir") or ""
    if not isinstance(given, str):
        return section
    path = Path(given).expanduser() if given else default_state_dir(raw.origin)
    folder = raw.folder or Path.cwd()
    files = {
        name: folder / Path(section[name]).expanduser()
        for name in ("certificate", "key")
        if isinstance(section.get(name), str) and section[name]
    }
    return {**section, **files, "state_dir": folder / path}


def _with_folder(section: Any, raw: Raw) -> Any:
    """The section with an absolute path, unless it is in a bucket."""
    into = section.get("into") if isinstance(section, Mapping) else None
    if not isinstance(into, str) or not into or "://" in into:
        return section
    return {**section, "into": str((raw.folder or Path.cwd()) / Path(into).expanduser())}


def _with_boot_files(pools: Any, raw: Raw) -> Any:
    """The pools with absolute paths of what their VMs get to run; relative ones are relative to the file."""
    if not isinstance(pools, Mapping):
        return pools
    return {name: _boot_files(pool, raw.folder or Path.cwd()) for name, pool in pools.items()}


def _boot_files(pool: Any, folder: Path) -> Any:
    boot = pool.get("boot") if isinstance(pool, Mapping) else None
    if not isinstance(boot, Mapping):
        return pool
    found = {
        key: [str(folder / Path(item).expanduser()) if isinstance(item, str) else item for item in boot[key]]
        for key in ("cloud_config", "scripts")
        if isinstance(boot.get(key), (list, tuple))
    }
    return {**pool, "boot": {**boot, **found}}


def _with_settings(
    profiles: Any, plugins: Plugins, problems: list[Problem], billing: set[str], unkept: set[str]
) -> Any:
    """Each profile with its driver's keys validated into `settings`; those whose VMs cost money join `billing`, those
    whose VMs no hand of the provider's ends `unkept`."""
    if not isinstance(profiles, Mapping):
        return profiles
    return {name: _split(str(name), profile, plugins, problems, billing, unkept) for name, profile in profiles.items()}


def _split(
    name: str, profile: Any, plugins: Plugins, problems: list[Problem], billing: set[str], unkept: set[str]
) -> Any:
    if not isinstance(profile, Mapping) or not isinstance(profile.get("driver"), str):
        return profile  # the schema says what is missing
    ours = {key: value for key, value in profile.items() if key in _PROFILE_KEYS}
    own = {key: value for key, value in profile.items() if key not in _PROFILE_KEYS}
    try:
        plugin = plugins(profile["driver"])
        model: type[BaseModel] = plugin.settings
    except (DispatchError, LookupError) as error:
        text = error.message if isinstance(error, DispatchError) else f"no such driver {profile['driver']!r}"
        hint = f" ({error.hint})" if isinstance(error, DispatchError) and error.hint else ""
        problems.append(Problem(("profiles", name, "driver"), text + hint))
        return ours
    if plugin.bills:
        billing.add(name)
    if not plugin.keeps_ends:
        unkept.add(name)
    try:
        return {**ours, "settings": model.model_validate(own)}
    except ValidationError as error:
        problems.extend(from_validation(error, model, ("profiles", name)))
        return ours
