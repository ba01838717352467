"""Demand of payers with a limit, before anything is launched for it. Owns how much of it their limits can pay for where
it costs least: for the rest no VM is launched and none is kept.

What claims truly cost is known where they are made; the statestore has the last word, and remembers whom it refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
        wanted = market.wanted(item) if _is_asked(item) else ""
        if wanted is None:
            found.append(replace(item, withheld=market.old_price or _NOWHERE))
        elif isinstance(wanted, str):
            found.append(item)
        else:
            trying = context.store.trying(item.payer) or not tried.isdisjoint(keys_of_payer(item.payer))
            split = _split(item, standing, wanted, trying=trying)
            found.extend(split)
            if wanted.trial is not None and not split[0].withheld and (item.shape, item.payer) not in stuck:
                tried.update(keys_of_payer(item.payer))
    return found


def _stuck(context: Context) -> Collection[tuple[Shape, Payer]]:
    """Of what the last plan launched nothing, though its payer could pay: whoever else may be tried does not wait for
    that."""
    waiting = context.last[1].waiting if context.last else ()
    return {(one.shape, one.payer) for one in waiting if one.left and Obstacle.BUDGET not in one.obstacles}


def _is_asked(item: DemandItem) -> bool:
    return item.payer != NOBODY and not item.withheld and item.count > 0


def _split(item: DemandItem, standing: Standing, wanted: Wanted, *, trying: bool) -> Sequence[DemandItem]:
    """What can be paid for, and what can't. `trying`: the payer has something of unknown length already."""
    count = room_for(standing, wanted, item.count, trying=trying)
    if count == item.count:
        return (item,)
    why = admitted(standing, wanted, trying=trying or count > 0)
    rest = replace(item, count=item.count - count, withheld=why if isinstance(why, str) else "")
    return (replace(item, count=count), rest) if count else (rest,)


class _Market:
    """What claims would cost where they cost least, at one moment; each kind of task is looked for once."""

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
        self._found: dict[tuple[Shape, int], Place | str | None] = {}
        self._old: dict[tuple[Shape, int], str] = {}
        #: Of what was asked for last: why a price that is known does not count there.
        self.old_price = ""

    def wanted(self, item: DemandItem) -> Wanted | str | None:
        """What a claim wants; None where nothing is offered to those who have a limit, "" where nothing can run it at
        all: that the planner says itself."""
        work_ms = item.head_expected_ms or self._c.store.typical_ms(item.shape)
        kind = (item.shape, work_ms)
        if kind not in self._found:
            self.old_price = ""
            self._found[kind], self._old[kind] = self._place(item.shape, work_ms), self.old_price
        self.old_price = self._old[kind]
        place = self._found[kind]
        if not isinstance(place, Place):
            return place
        finish_ms = self._now + work_ms if work_ms else None
        lease_ms = self._c.settings.pace.lease_ms
        return wanted_at(place, "", item.payer, item.shape, self._now, finish_ms, lease_ms)

    def _place(self, shape: Shape, work_ms: int) -> Place | str | None:
        able = [one for one in self._offered if not one.machine.misfit(shape)]
        places = [place for one in able if (place := self._at(one, work_ms or None)) is not None]
        return cheapest(places, shape) if able else ""

    def _at(self, one: Offered, work_ms: int | None) -> Place | None:
        """Where a claim would be on a VM that is launched now for such work."""
        pool, offering = one.pool, one.offering
        settings = self._c.settings
        lag = lag_ms(settings, offering.profile)
        if lag is None or offering.highest_rate is None:
            return None
        stale = stale_price(offering, self._now)
        if stale:
            self.old_price = stale
            return None
        lifetime_ms = pool.end.lifetime_ms
        ends = first_ends(
            self._now, offering.boot_ms, work_ms, lifetime_ms, settings.pace,
            movable=settings.moves_ends(offering.profile),
        )  # fmt: skip
        rate = Rate(offering.highest_rate + offering.extra_rate)
        return Place(one.machine, rate, ends.ends_ms + lag, lag, self._now + lifetime_ms)
