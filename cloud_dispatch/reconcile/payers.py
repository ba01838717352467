"""Demand of payers with a limit, before anything is launched for it. Owns how much of it their limits can pay for where
it costs least: for the rest no VM is launched and none is kept.

What claims truly cost is known where they are made; the statestore has the last word, and remembers what it refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.snapshot import DemandItem
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.offered import Offered
from cloud_dispatch.reconcile.spend import lag_ms, stale_price
from cloud_dispatch.spend.commitment import Key
from cloud_dispatch.spend.ends import first_ends
from cloud_dispatch.spend.payers import Place, Wanted, admitted, cheapest, keys_of_payer, room_for, wanted_at
from cloud_dispatch.spend.standing import Standing

_NOWHERE = "a limit covers it, and nothing is offered of which it is known now what it costs at most and when it ends"


def affordable(context: Context, demand: Sequence[DemandItem]) -> Sequence[DemandItem]:
    """`demand`, that of payers with a limit split into what they can pay for now and what is withheld."""
    if not any(_is_asked(item) for item in demand):
        return demand
    standing, market = context.store.standing(), _Market(context)
    tried: set[Key] = set()
    stuck = _stuck(context)
    found: list[DemandItem] = []
    for item in demand:
        place = market.cheapest(item.shape) if _is_asked(item) else ""
        if place is None:
            found.append(_plain(item, market.old_price(item.shape) or _NOWHERE))
        elif isinstance(place, str):
            found.append(_plain(item, "" if _is_asked(item) else item.withheld))
        else:
            trying = context.store.trying(item.payer) or not tried.isdisjoint(keys_of_payer(item.payer))
            share = _Share(item, market, standing, trying=trying)
            found.extend(share.split())
            if share.trying and (item.shape, item.payer) not in stuck:
                tried.update(keys_of_payer(item.payer))
    return found


def _stuck(context: Context) -> Collection[tuple[Shape, Payer]]:
    """Of what the last plan launched nothing, though its payer could pay: whoever else may be tried does not wait for
    that."""
    waiting = context.last[1].waiting if context.last else ()
    return {(one.shape, one.payer) for one in waiting if one.left and Obstacle.BUDGET not in one.obstacles}


def _is_asked(item: DemandItem) -> bool:
    """Whether it is for the market to say: what a claim was refused for somewhere another place may admit."""
    return item.payer != NOBODY and (not item.withheld or bool(item.refused)) and item.count > 0


def _plain(item: DemandItem, withheld: str) -> DemandItem:
    """Without what only this module asks for."""
    return replace(item, withheld=withheld, front=(), refused=()) if item.payer != NOBODY else item


class _Share:
    """What of `item` its payer can pay for where that costs least, counted in `standing`. What is too dear holds up
    nothing that is not, as far into a line as claims look; what is behind is counted by its lengths. What was refused
    where a claim was made is wanted only where it costs less: so each VM that is launched in vain is a cheaper one.
    `trying`: whether the payer has something of unknown length, from before or of this."""

    def __init__(self, item: DemandItem, market: _Market, standing: Standing, *, trying: bool) -> None:
        self.trying = trying
        self._item = item
        self._passing: list[tuple[int, int, int]] = []  # how long, how many, and at which rate at most (0: any)
        self._why = ""
        least_ms = 0  # what takes so long is refused
        for place, (expected_ms, count) in enumerate(self._lengths()):
            if place == len(item.front) and not self._passing:
                break  # no claim comes as far
            work_ms = market.work_ms(item.shape, expected_ms)
            if work_ms and work_ms >= least_ms > 0:
                continue
            wanted = market.wanted(item, work_ms)
            refused = next((one for one in item.refused if one.covers(work_ms)), None)
            most_rate = 0
            if refused is not None:
                if wanted.cost >= refused.cost:
                    least_ms, self._why = work_ms or least_ms, self._why or refused.why
                    continue
                longest_ms = market.longest_ms(item, work_ms)
                most_rate = max((refused.cost - 1) // longest_ms, wanted.least.rate)
            admits = room_for(standing, wanted, count, trying=self.trying)
            if admits:
                self._passing.append((expected_ms, admits, most_rate))
                self.trying = self.trying or wanted.trial is not None
            if admits < count:
                least_ms = work_ms or least_ms
                why = admitted(standing, wanted, trying=self.trying)
                self._why = self._why or (why if isinstance(why, str) else "")

    def _lengths(self) -> Sequence[tuple[int, int]]:
        """How many of each length: of the front, then of what is behind."""
        item = self._item
        if len(item.front) <= 1:
            return [(item.head_expected_ms, item.count)]
        behind = item.count - sum(count for _, count in item.front)
        if behind <= 0:
            return item.front
        told = list(_less(item.lengths, item.front))
        unknown = behind - sum(count for _, count in told)
        return [*item.front, *told, (item.expected_ms, unknown)] if unknown > 0 else [*item.front, *told]

    def split(self) -> Sequence[DemandItem]:
        """What can be paid for anywhere, what only where it costs less than where it was refused, and what can't."""
        item = _plain(self._item, "")
        anywhere = [one for one in self._passing if not one[2]]
        cheaper = [one for one in self._passing if one[2]]
        found = [self._paid(item, passing) for passing in (anywhere, cheaper) if passing]
        left = item.count - sum(one.count for one in found)
        return (*found, replace(item, count=left, withheld=self._why)) if left else found

    def _paid(self, item: DemandItem, passing: Sequence[tuple[int, int, int]]) -> DemandItem:
        count = sum(admits for _, admits, _ in passing)
        item = replace(item, count=count, most_rate=min(most_rate for *_, most_rate in passing))
        if len(self._item.front) <= 1:
            return item
        lengths = tuple((expected_ms, admits) for expected_ms, admits, _ in passing if expected_ms)
        known = sum(admits for _, admits in lengths)
        mean_ms = sum(expected_ms * admits for expected_ms, admits, _ in passing) // max(known, 1)
        if known * 2 < count:
            mean_ms, lengths = 0, ()
        return replace(item, expected_ms=mean_ms, head_expected_ms=passing[0][0], lengths=lengths)


def _less(lengths: Sequence[tuple[int, int]], front: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What of the classes of `lengths` is not in `front`: how long, and how many."""
    before: Counter[int] = Counter()
    for expected_ms, count in front:
        before[expected_ms.bit_length()] += count
    for expected_ms, count in lengths:
        behind = count - before[expected_ms.bit_length()]
        if behind > 0:
            yield expected_ms, behind


class _Market:
    """What claims would cost where they cost least, at one moment; each shape is looked for once."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._now = context.clock.now()
        self._offered = [
            one
            for pool in context.settings.pools.values()
            for profile in pool.profiles
            if profile in context.settings.providers and (view := context.profiles.get(profile)) is not None
            for one in context.offered.of(pool, profile, view.offerings)
        ]
        self._found: dict[Shape, Offered | str | None] = {}
        self._old: dict[Shape, str] = {}
        self._longest: dict[tuple[Shape, int], int] = {}

    def work_ms(self, shape: Shape, expected_ms: int) -> int:
        """How long a task takes that says so; 0 unknown."""
        return expected_ms or self._c.store.typical_ms(shape)

    def old_price(self, shape: Shape) -> str:
        """Why a price that is known does not count for it; "" where none is too old."""
        return self._old.get(shape, "")

    def cheapest(self, shape: Shape) -> Offered | str | None:
        """Where a claim costs least; None where nothing is offered to those who have a limit, "" where nothing can run
        it at all: that the planner says itself."""
        if shape not in self._found:
            self._found[shape] = self._cheapest(shape)
        return self._found[shape]

    def wanted(self, item: DemandItem, work_ms: int) -> Wanted:
        """What a claim of a task of `item` wants there that takes so long."""
        one = self.cheapest(item.shape)
        wanted = self._wanted(one, item, work_ms) if isinstance(one, Offered) else None
        assert wanted is not None
        return wanted

    def longest_ms(self, item: DemandItem, work_ms: int) -> int:
        """For how long such a claim commits wherever that is longest: what boots for longer, or is ended later, costs
        more at the same price."""
        key = (item.shape, work_ms)
        if key not in self._longest:
            able = (one for one in self._offered if not one.machine.misfit(item.shape))
            wanted = (self._wanted(one, item, work_ms) for one in able)
            self._longest[key] = max(one.ms for one in wanted if one is not None)
        return self._longest[key]

    def _wanted(self, one: Offered, item: DemandItem, work_ms: int) -> Wanted | None:
        place = self._at(one, item.shape, work_ms or None)
        if place is None:
            return None
        finish_ms = self._now + work_ms if work_ms else None
        return wanted_at(place, "", item.payer, item.shape, self._now, finish_ms, self._c.settings.pace.lease_ms)

    def _cheapest(self, shape: Shape) -> Offered | str | None:
        able = [one for one in self._offered if not one.machine.misfit(shape)]
        places = [(one, place) for one in able if (place := self._at(one, shape, None)) is not None]
        best = cheapest([place for _, place in places], shape)
        return next((one for one, place in places if place is best), None) if able else ""

    def _at(self, one: Offered, shape: Shape, work_ms: int | None) -> Place | None:
        """Where a claim would be on a VM that is launched now for such work."""
        pool, offering = one.pool, one.offering
        settings = self._c.settings
        lag = lag_ms(settings, offering.profile)
        if lag is None or offering.highest_rate is None:
            return None
        stale = stale_price(offering, self._now)
        if stale:
            self._old[shape] = stale
            return None
        lifetime_ms = pool.end.lifetime_ms
        ends = first_ends(
            self._now, offering.boot_ms, work_ms, lifetime_ms, settings.pace,
            movable=settings.moves_ends(offering.profile),
        )  # fmt: skip
        rate = Rate(offering.highest_rate + offering.extra_rate)
        return Place(one.machine, rate, ends.ends_ms + lag, lag, self._now + lifetime_ms)
