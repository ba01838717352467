"""What a configuration means to the parts of a dispatcher: their own values, made from its sections. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from cloud_dispatch.api.services import Limits
from cloud_dispatch.config import Config
from cloud_dispatch.config.checks import UNKEPT, is_loopback
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.planner.snapshot import DriverCaps
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.spi import HardEnd
from cloud_dispatch.reconcile.settings import Timing


def timing_of(config: Config) -> Timing:
    """The loop's intervals as configured."""
    timing = config.timing
    return Timing(
        heartbeat_ms=timing.heartbeat_ms,
        poll_ms=timing.poll_ms,
        lease_ms=timing.lease_ms,
        pass_interval_ms=timing.pass_interval_ms,
        list_interval_ms=timing.list_interval_ms,
        doubt_ms=timing.doubt_ms,
    )


def limits(config: Config) -> Limits:
    """The bounds on what callers may send."""
    return Limits(
        request_bytes=config.limits.request_bytes,
        tasks_per_submission=config.limits.tasks_per_submission,
        task_bytes_per_submission=config.limits.task_bytes_per_submission,
        environment_bytes=config.limits.environment_bytes,
    )


def check_reachable(config: Config) -> None:
    """InvalidInput where VMs that are machines of their own would look for the dispatcher on themselves."""
    if not is_loopback(urlsplit(config.advertise_url).hostname or ""):
        return
    for name, profile in sorted(config.profiles.items()):
        if registry.plugin(profile.driver).template_variables().get("whole_machine", True):
            message = f"VMs of profile {name} can't reach the dispatcher at {config.advertise_url}: that is themselves"
            hint = 'advertise = "https://HOST:PORT" as VMs reach it, and `listen` accordingly'
            raise InvalidInput(message, place="dispatcher.advertise", hint=hint)


def drivers(config: Config) -> dict[ProfileName, str]:
    """Which driver each profile is of."""
    return {ProfileName(name): profile.driver for name, profile in config.profiles.items()}


def driver_caps(config: Config) -> tuple[DriverCaps, ...]:
    """The caps that profiles of one driver share."""
    of_profiles = drivers(config)
    return tuple(
        DriverCaps(name, tuple(profile for profile, driver in of_profiles.items() if driver == name), caps)
        for name, caps in config.driver_caps().items()
    )


def guest_enforced(config: Config, hard_ends: Mapping[ProfileName, HardEnd]) -> frozenset[ProfileName]:
    """The profiles whose VMs only their own timer ends, as accepted. InvalidInput where it is not and they cost money:
    what a driver can do may depend on its settings, so that only the driver itself knows."""
    alone = [name for name, hard_end in hard_ends.items() if hard_end is HardEnd.NONE]
    for name in alone:
        profile = config.profiles[name]
        if not profile.guest_enforced and registry.plugin(profile.driver).bills:
            raise InvalidInput(UNKEPT, place=f"profiles.{name}.guest_enforced", hint="config check says more")
    return frozenset(name for name in alone if config.profiles[name].guest_enforced)
