"""What the configured profiles offer now, at the prices that count, what quotas bound them, and whether a hand keeps
the hard ends of their VMs. Owns asking the real drivers, for that and for nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.config import Config
from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.errors import CredentialsRejected, InvalidRequest, ProviderError
from cloud_dispatch.provider.priced import Priced
from cloud_dispatch.provider.spi import HardEnd, ProfileContext, Provider, Quota


@dataclass(frozen=True, slots=True)
class Offered:
    """What a profile could rent, whether a hand ends its VMs at their hard end, and how often that looks."""

    offerings: Sequence[Offering]
    hard_end: HardEnd = HardEnd.NONE
    period_ms: int = 0


Offers = Mapping[ProfileName, Offered]
#: By profile; None where the driver could not tell.
Quotas = Mapping[ProfileName, Sequence[Quota] | None]
T = TypeVar("T")
#: What to do about an error that goes away by no waiting.
_HINTS: Mapping[type[ProviderError], str] = {
    CredentialsRejected: "a study asks as `up` does, with the profile's own credentials",
    InvalidRequest: "see the profile's settings",
}


async def offers(config: Config, now: int) -> Offers:
    """By profile, what it could rent now and its `types` admit. Unavailable when a driver can't tell, InvalidInput when
    a profile has nothing."""
    found: dict[ProfileName, Offered] = {}
    filters = config.profile_types()
    for name in config.profiles:
        profile = ProfileName(name)
        offered = await _offered(config, profile, now)
        admitted = [
            own for own in offered.offerings if profile not in filters or filters[profile].admits(own.type.name)
        ]
        found[profile] = replace(offered, offerings=admitted)
        if not admitted:
            raise InvalidInput("expected something to rent, the driver offers nothing", place=f"profiles.{profile}")
    return found


async def quotas(config: Config, now: int) -> Quotas:
    """By profile, the limits of its account, of drivers that know of any."""
    found: dict[ProfileName, Sequence[Quota] | None] = {}
    for name in map(ProfileName, config.profiles):
        try:
            found[name] = await _asked(config, name, now, lambda one: one.quotas() if one.traits.quotas else _none())
        except ProviderError:  # a right of its own at some clouds
            found[name] = None
    return found


async def _none() -> Sequence[Quota]:
    return ()


async def _offered(config: Config, profile: ProfileName, now: int) -> Offered:
    async def ask(provider: Provider) -> Offered:
        traits = provider.traits
        return Offered(await provider.offerings(), traits.hard_end, traits.hard_end_period_ms)

    try:
        return await _asked(config, profile, now, ask)
    except ProviderError as error:
        hint = _HINTS.get(type(error), "try again later")
        raise Unavailable(
            f"the driver can't tell what it offers: {error}", place=f"profiles.{profile}", hint=hint
        ) from None


async def _asked(config: Config, profile: ProfileName, now: int, question: Callable[[Provider], Awaitable[T]]) -> T:
    section = config.profiles[profile]
    with tempfile.TemporaryDirectory(prefix="cloud-dispatch-") as folder:  # not the dispatcher's own: it may be running
        context = ProfileContext(profile, section.settings, Path(folder), now=lambda: now)
        driver = registry.plugin(section.driver).create(context)
        # What `prices refresh` has kept is the dispatcher's; it is read here and not written.
        kept = config.state_dir / "providers" / profile
        provider = Priced(driver, config.own_prices(profile), kept, lambda: now, Inline())
        try:
            return await question(provider)
        finally:
            await provider.close()
