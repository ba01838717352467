"""What the configured profiles offer now, at the prices that count, and what quotas bound them. Owns asking the real
drivers, for that and for nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.config import Config
from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.priced import Priced
from cloud_dispatch.provider.spi import ProfileContext, Provider, Quota

Offers = Mapping[ProfileName, Sequence[Offering]]
#: By profile; None where the driver could not tell.
Quotas = Mapping[ProfileName, Sequence[Quota] | None]
T = TypeVar("T")


async def offers(config: Config, now: int) -> Offers:
    """By profile, what it could rent now and its `types` admit. Unavailable when a driver can't tell, InvalidInput when
    a profile has nothing."""
    found: dict[ProfileName, Sequence[Offering]] = {}
    filters = config.profile_types()
    for name in config.profiles:
        profile = ProfileName(name)
        all_of_it = await _offerings(config, profile, now)
        found[profile] = [own for own in all_of_it if profile not in filters or filters[profile].admits(own.type.name)]
        if not found[profile]:
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


async def _offerings(config: Config, profile: ProfileName, now: int) -> Sequence[Offering]:
    try:
        return await _asked(config, profile, now, lambda provider: provider.offerings())
    except ProviderError as error:
        raise Unavailable(
            f"the driver can't tell what it offers: {error}", place=f"profiles.{profile}", hint="try again later"
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
