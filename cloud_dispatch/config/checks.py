"""Checks across sections of the configuration. Owns the rules that no single value can break alone."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from cloud_dispatch.config.problems import Path, Problem
from cloud_dispatch.config.schema import (
    BackupSettings,
    Dispatcher,
    DriverSection,
    PoolSection,
    Profile,
    StoreSettings,
    Timing,
)
from cloud_dispatch.config.secrets import Stores, is_reference, wrong
from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.spend.budget import Budget

#: Why a profile is refused whose VMs nobody but themselves ends.
UNKEPT = (
    "expected `true`: its VMs cost money and no hand but their own timer ends them, so that a spending limit fails if"
    " that timer never runs"
)
#: What to remember of a pool for which that was accepted.
GUEST_ENFORCED = "guest-enforced: its ceiling fails if the guest's timer never runs"
#: An agent may miss two heartbeats in a row and still renew its lease in time.
HEARTBEATS_PER_LEASE = 3


def cross_check(timing: Timing, profiles: Mapping[str, Profile], pools: Mapping[str, PoolSection]) -> list[Problem]:
    """Everything that contradicts something else, in a stable order."""
    problems = list(_timing(timing))
    for name, pool in sorted(pools.items()):
        problems.extend(_pool(name, pool, profiles))
    return problems


def check_tls(dispatcher: Dispatcher) -> list[Problem]:
    """That nothing crosses a network in the clear, and that what was given for TLS is whole and used."""
    problems = []
    if not dispatcher.tls and not is_loopback(dispatcher.host):
        expected = "expected `true` where other machines can connect: plain HTTP is for a loopback address alone"
        problems.append(Problem(("dispatcher", "tls"), f"{expected}, and `listen` is {dispatcher.listen}"))
    address = urlsplit(dispatcher.advertise)
    if address.scheme == "http" and (dispatcher.tls or not is_loopback(address.hostname or "")):
        why = "the dispatcher speaks TLS" if dispatcher.tls else "tokens must not cross a network in the clear"
        problems.append(Problem(("dispatcher", "advertise"), f"expected https://..., since {why}"))
    if (dispatcher.certificate is None) != (dispatcher.key is None):
        missing = "key" if dispatcher.key is None else "certificate"
        problems.append(Problem(("dispatcher", missing), "expected `certificate` and `key` together"))
    if dispatcher.names and (dispatcher.certificate is not None or not dispatcher.tls):
        expected = "expected nothing: they go into the certificate that the dispatcher makes, and it makes none"
        problems.append(Problem(("dispatcher", "names"), expected))
    if not dispatcher.tls:
        problems += [
            Problem(("dispatcher", name), "expected nothing where `tls` is false")
            for name in ("certificate", "key")
            if getattr(dispatcher, name) is not None
        ]
    return problems


def check_store(store: StoreSettings, backup: BackupSettings, stores: Stores) -> list[Problem]:
    """That its secrets can be looked for, that there is one password at most, of something that has any, and that what
    is on this machine alone is copied."""
    url, password = store.url.get_secret_value(), store.password.get_secret_value()
    found = [
        Problem(("store", name), told)
        for name, text in (("url", url), ("password", password))
        if (told := wrong(text, stores))
    ]
    if backup.what == "keys" and not url.startswith("postgresql") and not is_reference(url):
        expected = "expected `everything`: the statestore is on this machine, and nowhere else"
        found.append(Problem(("backup", "what"), expected))
    if password and not is_reference(url):
        parts = urlsplit(url)
        if not url.startswith("postgresql"):
            found.append(Problem(("store", "password"), "expected nothing: an SQLite file has no password"))
        elif parts.password is not None:
            found.append(Problem(("store", "password"), "expected nothing, since `url` has a password in it"))
        elif parts.username is None:
            found.append(Problem(("store", "url"), "expected a user in it (postgresql://USER@HOST/DATABASE)"))
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_money(
    profiles: Mapping[str, Profile],
    drivers: Mapping[str, DriverSection],
    billing: Collection[str],
    unkept: Collection[str] = (),
) -> list[Problem]:
    """That every profile of `billing`, whose VMs cost money, is bounded in number and in dollars, by itself or with all
    profiles of its driver; and that it was accepted where no hand keeps the hard ends of its VMs (`unkept`)."""
    used = {profile.driver for profile in profiles.values()}
    problems = [
        Problem(("drivers", name), f"no profile uses this driver (used: {', '.join(sorted(used))})")
        for name in sorted(set(drivers) - used)
    ]
    for name, profile in sorted(profiles.items()):
        of_driver = drivers.get(profile.driver, DriverSection())
        if name not in billing:
            continue
        if not any((own.instances, own.vcpus) != (None, None) for own in (profile.caps, of_driver.caps)):
            expected = f"expected `instances` or `vcpus`, here or in [drivers.{profile.driver}.caps]"
            problems.append(Problem(("profiles", name, "caps"), f"{expected}: its VMs cost money"))
        if not (profile.budget.limits or of_driver.budget.limits):
            expected = f"expected a limit such as `month`, here or in [drivers.{profile.driver}.budget]"
            problems.append(Problem(("profiles", name, "budget"), f"{expected}: its VMs cost money"))
        if name in unkept and not profile.guest_enforced:
            problems.append(Problem(("profiles", name, "guest_enforced"), UNKEPT))
    return problems


def _timing(timing: Timing) -> Iterator[Problem]:
    least = HEARTBEATS_PER_LEASE * timing.heartbeat_ms
    if timing.lease_ms < least:
        yield Problem(
            ("timing", "lease"),
            f"expected at least {HEARTBEATS_PER_LEASE} heartbeats ({format_duration(least)}),"
            f" got {format_duration(timing.lease_ms)}",
        )
    if timing.poll_ms >= timing.lease_ms:
        yield Problem(
            ("timing", "poll"),
            f"expected less than the lease ({format_duration(timing.lease_ms)}), got {format_duration(timing.poll_ms)}",
        )
    if timing.silence_ms < timing.lease_ms:
        yield Problem(
            ("timing", "silence"),
            f"expected at least the lease ({format_duration(timing.lease_ms)}),"
            f" got {format_duration(timing.silence_ms)}",
        )


def _pool(name: str, pool: PoolSection, profiles: Mapping[str, Profile]) -> Iterator[Problem]:
    for index, profile in enumerate(pool.profiles):
        if profile not in profiles:
            near = difflib.get_close_matches(profile, profiles, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"profiles: {', '.join(sorted(profiles)) or 'none'}"
            yield Problem(("pools", name, "profiles", index), f"no such profile {profile!r} ({hint})")
    most = pool.caps.instances
    if most is not None:
        wanted: list[tuple[Path, int]] = [(("min",), pool.minimum), (("target",), pool.target or 0)]
        wanted += [(("schedule", i, "target"), rule.target) for i, rule in enumerate(pool.schedule)]
        for path, count in wanted:
            if count > most:
                yield Problem(("pools", name, *path), f"expected at most caps.instances ({most}), got {count}")
    for index, rule in enumerate(pool.schedule):
        if rule.from_minute == rule.to_minute:
            yield Problem(("pools", name, "schedule", index), "expected `from` and `to` to differ")
    for index, check in enumerate(pool.health_checks):
        if check.timeout_ms > check.interval_ms:
            yield Problem(
                ("pools", name, "health_checks", index, "timeout"),
                f"expected at most the interval ({format_duration(check.interval_ms)}),"
                f" got {format_duration(check.timeout_ms)}",
            )


def money_notes(budgets: Collection[Budget]) -> list[str]:
    """What the spending limits do not cover, for whoever relies on them."""
    if not budgets:
        return ["no spending limit is set: only caps bound what is spent"]
    outside = "egress, taxes, support and discounts, nor disks that outlive their VM"
    return [f"spending limits cover VMs with their disks and addresses, not {outside}"]
