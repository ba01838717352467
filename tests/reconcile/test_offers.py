"""What a dispatcher that runs says could be rented now: by its own memory, its caps, its limits and its quotas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cloud_dispatch.domain.money import Amount, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.stop import StopLevel
from cloud_dispatch.provider.errors import CapacityUnavailable
from cloud_dispatch.provider.errors import Scope as Of
from cloud_dispatch.reconcile.spend import PRICE_GOOD_MS
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.windows import Window
from tests.reconcile.examples import NOW, offering
from tests.reconcile.fake import World, world

SHAPE = Shape(Resources(1_000, GIB))
DEAR, CHEAP = offering("dear", rate=2_000_000_000), offering("cheap", rate=1_000_000)


async def told(
    w: World, limit: int = 20, shape: Shape = SHAPE
) -> tuple[list[str], dict[str, list[str]], dict[str, Any]]:
    """Types that could be rented, the others' by their reasons, and the whole answer."""
    found = await w.fleet.offers(shape, limit)
    excluded = {one["reason"]: [key.split("/")[1] for key in one["offerings"]] for one in found["excluded"]}
    return [one["type"] for one in found["offers"]], excluded, found


async def test_the_cheapest_first_with_what_it_costs_and_who_may_rent_it(tmp_path: Path) -> None:
    """Nothing is launched or changed by asking; with a limit the rest is counted."""
    async with world(tmp_path) as w:
        w.cloud.offers = (DEAR, CHEAP, offering("small", capacity=Resources(500, GIB, GIB)))
        await w.passes(2)
        types, excluded, found = await told(w)
        assert types == ["cheap", "dear"]
        assert excluded == {"asks for 1 cpu, has 0.5": ["small"]}
        first = found["offers"][0]
        assert (first["rate_nano"], first["pools"], first["priced_ms"]) == (1_000_000, ["p"], NOW)
        types, _, found = await told(w, limit=1)
        assert (types, found["more"]) == (["cheap"], 1)
        assert w.cloud.requests == []


async def test_a_failure_is_told_with_its_scope_and_how_long_it_is_remembered(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.cloud.offers = (CHEAP, replace(DEAR, zone="y"))
        w.cloud.refusals[CHEAP.key] = CapacityUnavailable("none left", scope=Of(zone="z"))
        await w.submit(1)
        await w.passes(2)
        types, excluded, _ = await told(w)
        assert types == ["dear"]
        (why,) = excluded
        assert why.startswith("local/z blocked for another 1")
        assert why.endswith("CapacityUnavailable: none left")


async def test_what_limits_do_not_pay_for_is_no_offer(tmp_path: Path) -> None:
    """Too dear for what is left, a price that is too old, and a machine whose most nobody knows: each in its words. A
    ranking without this would name what is then not launched."""
    async with world(tmp_path) as w:
        old = offering("old", rate=1_000, priced_ms=NOW - PRICE_GOOD_MS - 1)
        endless = offering("endless", rate=1_000, market=Market.SPOT)
        w.cloud.offers = (DEAR, CHEAP, old, endless)
        w.pool = w.context.settings.pools["p"]  # type: ignore[index]
        both = replace(w.pool, markets=(Market.ON_DEMAND, Market.SPOT))
        w.context.settings = replace(w.context.settings, pools={both.name: both})
        await w.passes(2)
        assert (await told(w))[0] == ["old", "endless", "cheap", "dear"]
        await w.fleet.set_limit(EVERYTHING, Window.DAY, Amount(100_000), "")
        types, excluded, _ = await told(w)
        assert types == ["cheap"]
        by_type = {kinds[0]: why for why, kinds in excluded.items()}
        assert by_type["endless"] == "a limit covers it, and what it can cost at most is not known"
        assert "is 7d old" in by_type["old"]
        assert "total day" in by_type["dear"] or "budget" in by_type["dear"]


async def test_asking_takes_nothing_from_what_is_left(tmp_path: Path) -> None:
    """Each is judged as if it were the only one: two that fit one at a time are both there."""
    async with world(tmp_path) as w:
        w.cloud.offers = (offering("a", rate=60_000_000), offering("b", rate=60_000_000))
        await w.fleet.set_limit(EVERYTHING, Window.DAY, Amount(1_600_000), "")
        await w.passes(2)
        assert (await told(w))[0] == ["a", "b"]
        assert (await told(w))[0] == ["a", "b"]


async def test_caps_silence_and_the_kill_switch_are_told(tmp_path: Path) -> None:
    async with world(tmp_path, caps=Caps(instances=0)) as w:
        w.cloud.offers = (CHEAP,)
        await w.passes(2)
        assert list((await told(w))[1]) == ["cap of everything reached (instances 0 of 0)"]
        w.cloud.silent = True
        await w.passes(2)
        types, excluded, found = await told(w)
        assert types == []
        assert "profile local can't be listed: ProviderError: no answer" in str(found["unseen"]) + str(excluded)
        await w.fleet.stop(StopLevel.LAUNCHES, "holidays")
        assert "holidays" in (await told(w))[2]["stopped"]


async def test_a_spot_price_counts_only_for_those_who_ask_for_spot_or_for_any(tmp_path: Path) -> None:
    """A market is asked for as a label, which every offering has."""
    async with world(tmp_path) as w:
        both = replace(w.context.settings.pools[w.pool.name], markets=(Market.ON_DEMAND, Market.SPOT))
        w.context.settings = replace(w.context.settings, pools={both.name: both})
        w.cloud.offers = (CHEAP, replace(CHEAP, market=Market.SPOT, rate=Rate(5), max_rate=Rate(9)))
        await w.passes(2)
        spot, full = replace(SHAPE, labels=(("market", "spot"),)), replace(SHAPE, labels=(("market", "on-demand"),))
        for shape, markets in ((SHAPE, ["spot", "on-demand"]), (spot, ["spot"]), (full, ["on-demand"])):
            assert [one["market"] for one in (await told(w, shape=shape))[2]["offers"]] == markets
