"""The drivers of a configuration, put together. Owns what is wrapped around each, and short questions to all of them.

A part of the composition root: who needs no dispatcher but a provider's answer finds the drivers here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from enum import StrEnum

from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.config import Config
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.host import hosted
from cloud_dispatch.provider.metered import Metered
from cloud_dispatch.provider.priced import Priced
from cloud_dispatch.provider.spi import ProfileContext, Provider
from cloud_dispatch.provider.tagfilter import TagFilter
from cloud_dispatch.provider.throttle import Throttled
from cloud_dispatch.reconcile import pricing
from cloud_dispatch.telemetry import log as logging
from cloud_dispatch.telemetry.provider_calls import ProviderCalls


def made(config: Config, clock: SystemClock, calls: ProviderCalls, files: Executor) -> dict[ProfileName, Priced]:
    """A driver a profile, where it wants to run, counted, at its provider's pace, at the prices that count."""
    found: dict[ProfileName, Priced] = {}
    for name, profile in config.profiles.items():
        plugin = registry.plugin(profile.driver)
        context = ProfileContext(
            ProfileName(name), profile.settings, config.state_dir / "providers" / name, now=clock.now
        )
        driver = Metered(hosted(plugin, context), calls.of(name), clock.monotonic)
        found[ProfileName(name)] = Priced(
            Throttled(driver, clock.monotonic), config.own_prices(name), context.state_dir, clock.now, files
        )
    return found


@asynccontextmanager
async def asked(config: Config, deployment: str, clock: SystemClock) -> AsyncIterator[dict[ProfileName, Provider]]:
    """The drivers, for a few questions and no dispatcher."""
    async with for_prices(config, clock) as providers:
        yield {name: TagFilter(provider, deployment) for name, provider in providers.items()}


@asynccontextmanager
async def for_prices(config: Config, clock: SystemClock) -> AsyncIterator[dict[ProfileName, Priced]]:
    """The drivers, for questions about prices alone: no tag filter is between."""
    providers = made(config, clock, ProviderCalls(config.profiles), Inline())
    try:
        yield providers
    finally:
        for provider in providers.values():
            await provider.close()


def prices(config: Config, question: PriceQuestion, profiles: Collection[str] = (), pattern: str = "") -> pricing.Told:
    """What the drivers of `profiles` answer, of all where none is named."""
    logging.to_stderr()
    return asyncio.run(_of_prices(config, question, profiles, pattern))


class PriceQuestion(StrEnum):
    """What may be asked of profiles, with no dispatcher."""

    SHOW = "show"
    REFRESH = "refresh"
    DIFF = "diff"
    QUOTAS = "quotas"


async def _of_prices(config: Config, question: PriceQuestion, profiles: Collection[str], pattern: str) -> pricing.Told:
    async with for_prices(config, SystemClock()) as everyone:
        providers = {name: one for name, one in everyone.items() if not profiles or name in profiles}
        if question is PriceQuestion.REFRESH:
            return await pricing.refreshed(providers)
        if question is PriceQuestion.DIFF:
            return await pricing.differences(providers)
        if question is PriceQuestion.QUOTAS:
            return await pricing.quotas(providers)
        return await pricing.shown(providers, config.profile_types(), pattern)
