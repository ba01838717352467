"""The drivers of a configuration, put together. Owns what is wrapped around each, and short questions to all of them.

A part of the composition root: who needs no dispatcher but a provider's answer finds the drivers here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from cloud_dispatch import meaning
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.config import Config
from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.ownership import as_owner
from cloud_dispatch.planner.offers import Ranking
from cloud_dispatch.planner.snapshot import Snapshot
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.provider import registry
from cloud_dispatch.provider.host import hosted
from cloud_dispatch.provider.metered import Metered
from cloud_dispatch.provider.priced import Priced
from cloud_dispatch.provider.spi import ProfileContext, Provider
from cloud_dispatch.provider.tagfilter import TagFilter
from cloud_dispatch.provider.throttle import Throttled
from cloud_dispatch.reconcile import everyone, pricing
from cloud_dispatch.reconcile import offers as offer_answers
from cloud_dispatch.reconcile.quotas import use as quota_use
from cloud_dispatch.reconcile.spend import stale_price
from cloud_dispatch.spend.instances import keys_of_place
from cloud_dispatch.telemetry import log as logging
from cloud_dispatch.telemetry.provider_calls import ProviderCalls

#: A profile that has not said by then what it offers has nothing to offer now.
ANSWER_S = 60.0
T = TypeVar("T")


class _OwnersFiles(Inline):
    """Does what a command has to do with files below `state`: with the rights of its owner, where that is not root."""

    def __init__(self, state: Path) -> None:
        self._state = state

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        with as_owner(self._state):
            return work(*args)


def made(config: Config, clock: SystemClock, calls: ProviderCalls, files: Executor) -> dict[ProfileName, Priced]:
    """A driver a profile, where it wants to run, counted, at its provider's pace, at the prices that count."""
    return {ProfileName(name): one(name, config, clock, calls, files) for name in config.profiles}


def one(name: str, config: Config, clock: SystemClock, calls: ProviderCalls, files: Executor) -> Priced:
    """The driver of the profile `name`. It may take seconds, in which nothing else is done."""
    profile = config.profiles[name]
    plugin = registry.plugin(profile.driver)
    context = ProfileContext(ProfileName(name), profile.settings, config.state_dir / "providers" / name, now=clock.now)
    driver = Metered(hosted(plugin, context), calls.of(name), clock.monotonic)
    return Priced(Throttled(driver, clock.monotonic), config.own_prices(name), context.state_dir, clock.now, files)


@asynccontextmanager
async def asked(config: Config, deployment: str, clock: SystemClock) -> AsyncIterator[dict[ProfileName, Provider]]:
    """The drivers, for a few questions and no dispatcher."""
    async with for_prices(config, clock) as providers:
        yield {name: TagFilter(provider, deployment) for name, provider in providers.items()}


@asynccontextmanager
async def for_prices(config: Config, clock: SystemClock) -> AsyncIterator[dict[ProfileName, Priced]]:
    """The drivers, for questions about prices alone: no tag filter is between."""
    providers = made(config, clock, ProviderCalls(config.profiles), _OwnersFiles(config.state_dir))
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
    async with for_prices(config, SystemClock()) as every:
        providers = {name: one for name, one in every.items() if not profiles or name in profiles}
        if question is PriceQuestion.REFRESH:
            return await pricing.refreshed(providers)
        if question is PriceQuestion.DIFF:
            return await pricing.differences(providers)
        if question is PriceQuestion.QUOTAS:
            return await pricing.quotas(providers)
        return await pricing.shown(providers, config.profile_types(), pattern)


def offers(config: Config, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What could be rented now by what the configuration and the providers say; nothing runs and nothing is spent."""
    logging.to_stderr()
    return asyncio.run(_offers(config, asked))


async def _offers(config: Config, asked: Mapping[str, Any]) -> dict[str, Any]:
    clock = SystemClock()
    shape = offer_answers.shape_of(asked)
    if shape.pool and shape.pool not in config.pool_sections:
        known = ", ".join(sorted(config.pool_sections))
        raise NotFound(f"there is no pool {shape.pool[:80]!r}", place="pool", hint=f"pools: {known}")
    async with for_prices(config, clock) as providers:
        offered = await everyone.ask(providers, lambda provider: provider.offerings(), ANSWER_S)
        quotas = await everyone.ask(
            {name: one for name, one in providers.items() if one.traits.quotas}, lambda one: one.quotas(), ANSWER_S
        )
    types = config.profile_types()
    snapshot = Snapshot(
        now_ms=clock.now(),
        demand=(),
        targets=(),
        supply=(),
        pools=config.pools(),
        offerings=tuple(
            one for answer in offered for one in answer.value or () if types[answer.profile].admits(one.type.name)
        ),
        caps=config.caps(),
        profile_caps=tuple(config.profile_caps().items()),
        driver_caps=meaning.driver_caps(config),
        problems=tuple((answer.profile, answer.problem) for answer in offered if answer.problem),
        quotas=tuple(
            use
            for answer in quotas
            for one in answer.value or ()
            if (use := quota_use(answer.profile, one)) is not None
        ),
    )
    ranking = Ranking(snapshot, shape)
    return await offer_answers.answer(
        snapshot, ranking, ranking.excluded(), _old_prices(config, clock.now()), asked["limit"],
        [(answer.profile, answer.problem) for answer in quotas if answer.problem],
    )  # fmt: skip


def _old_prices(config: Config, now_ms: int) -> offer_answers.Refusal:
    """Of money only this is known without a dispatcher: what a limit covers needs a price that is not too old."""
    limited, driver_of = {budget.key for budget in config.budgets()}, meaning.drivers(config)

    def refusal(pool: Pool, offering: Offering) -> str:
        keys = keys_of_place(pool.name, offering.profile, driver_of)
        if limited.isdisjoint(keys):
            return ""
        return offer_answers.UNPRICED if offering.highest_rate is None else stale_price(offering, now_ms)

    return refusal
