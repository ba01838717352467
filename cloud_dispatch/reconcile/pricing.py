"""Prices and quotas for people and JSON. Owns what is told of them; what counts is `provider.pricebook`'s to say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import TypeFilter
from cloud_dispatch.provider.pricebook import Source, changes
from cloud_dispatch.provider.priced import Priced
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.reconcile.everyone import Answer, ask

#: As JSON-ready values, one for each profile; where it could not be asked with the `problem`.
Told = list[dict[str, Any]]


async def shown(providers: Mapping[ProfileName, Priced], types: Mapping[ProfileName, TypeFilter], pattern: str) -> Told:
    """What each profile would pay now for the types that it may rent and that match, and who says so."""
    answers = await ask(providers, lambda provider: provider.sourced())

    def rows(name: ProfileName, found: Iterable[tuple[Offering, Source]]) -> list[dict[str, Any]]:
        admits = types.get(name, TypeFilter()).admits
        return [
            _row(one, source)
            for one, source in found
            if admits(one.type.name) and fnmatchcase(one.type.name, pattern or "*")
        ]

    return [_told(one, {"prices": rows(one.profile, one.value or ())}) for one in answers]


def _row(one: Offering, source: Source) -> dict[str, Any]:
    return {
        "type": one.type.name,
        "zone": one.zone,
        "market": str(one.market),
        "rate_nano": one.rate,
        "highest_rate_nano": one.highest_rate,
        "extra_rate_nano": one.extra_rate,
        "source": str(source),
        "estimated": one.estimated,
        "priced_ms": one.priced_ms,
    }


async def refreshed(providers: Mapping[ProfileName, Priced]) -> Told:
    """What the price services say now, kept: how many prices each has told."""

    async def question(provider: Priced) -> int | None:
        return len(await provider.prices()) if provider.traits.prices else None

    return [
        _told(one, {"service": one.value is not None or bool(one.problem), "prices": one.value or 0})
        for one in await ask(providers, question)
    ]


async def differences(providers: Mapping[ProfileName, Priced]) -> Told:
    """What the price services say now that is not what is kept; keeps nothing."""

    async def question(provider: Priced) -> list[dict[str, Any]] | None:
        if not provider.traits.prices:
            return None
        found = changes(provider.told.prices, (await provider.asked()).prices)
        return [
            {
                "type": one.type, "place": one.place, "market": str(one.market),
                "before_nano": one.before, "after_nano": one.after,
            }
            for one in found
        ]  # fmt: skip

    return [
        _told(one, {
            "service": one.value is not None or bool(one.problem),
            "kept_ms": providers[one.profile].told.told_ms,
            "changes": one.value or [],
        })
        for one in await ask(providers, question)
    ]  # fmt: skip


async def quotas(providers: Mapping[ProfileName, Provider]) -> Told:
    """The limits of each profile's account and what is used of them."""

    async def question(provider: Provider) -> list[dict[str, Any]] | None:
        if not provider.traits.quotas:
            return None
        return [
            {
                "name": one.name, "scope": str(one.scope), "unit": str(one.unit), "limit": one.limit, "used": one.used,
                "left": None if one.limit is None or one.used is None else max(one.limit - one.used, 0),
            }
            for one in await provider.quotas()
        ]  # fmt: skip

    return [
        _told(one, {"told": one.value is not None or bool(one.problem), "quotas": one.value or []})
        for one in await ask(providers, question)
    ]


def _told(answer: Answer[Any], values: dict[str, Any]) -> dict[str, Any]:
    return {"profile": answer.profile, "problem": answer.problem, **values}
