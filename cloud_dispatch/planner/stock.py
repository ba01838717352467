"""Offerings as they are searched, whatever the pool. Owns which may be launched now, and which types can't win.

Offerings that differ in zone only are one *stock*, as far as their VMs are preempted about as often. For a shape
without labels most stocks can't win: another one is as large, no dearer, and preempted no more often. The *front* is
what is left without them; it makes the search short, while caps and quotas have room for all that is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import NamedTuple

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.resources import format_bytes
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.preempted import PreemptionRates
from cloud_dispatch.planner.scopes import Scopes
from cloud_dispatch.planner.snapshot import Blocked, Snapshot


class Shut(NamedTuple):
    """Why an offering may not be launched now."""

    why: str
    obstacle: Obstacle


_BY_PRICE, _BY_ZONE = attrgetter("rate", "zone"), attrgetter("zone")


class Stock:
    """A type on a market of a profile, where its VMs are `preempted` at one rate (`PreemptionRates.of`).

    `open` may be launched now and have a price, cheapest first; `rate` is the first one's. `listed` is the lowest price
    among all, blocked and silent ones included. `unpriced` may be launched and have none. `shut`: why offerings may
    not be launched now, by the id of the object.
    """

    __slots__ = (
        "capacity", "listed", "market", "offerings", "open", "preempted", "profile", "rate", "shut", "spot", "type",
        "unpriced", "vcpus",
    )  # fmt: skip

    def __init__(self, offerings: list[Offering], shut: Mapping[int, Shut], preempted: int = 0) -> None:
        first = offerings[0]
        self.profile = first.profile
        self.type = first.type
        self.market = first.market
        self.vcpus = first.type.vcpus
        self.spot = first.market is Market.SPOT
        amounts = first.type.capacity
        self.capacity = (amounts.cpus_milli, amounts.memory, amounts.disk, amounts.gpus)
        self.offerings = offerings
        self.shut = shut
        self.preempted = preempted
        free = [o for o in offerings if id(o) not in shut] if shut else offerings
        self.open = [o for o in free if o.rate is not None]
        self.unpriced = [o for o in free if o.rate is None] if len(self.open) < len(free) else []
        if len(free) > 1:
            self.open.sort(key=_BY_PRICE)
            if self.unpriced:
                self.unpriced.sort(key=_BY_ZONE)
        self.rate: Rate | None = self.open[0].rate if self.open else None
        self.listed: Rate | None = self.rate
        if len(self.open) < len(offerings):
            self.listed = min((o.rate for o in offerings if o.rate is not None), default=None)

    @property
    def first(self) -> Offering:
        """The offering that is launched first, or would be."""
        return (self.open or self.unpriced or self.offerings)[0]


def stocks(offerings: Iterable[Offering], shut: Mapping[int, Shut], rates: PreemptionRates) -> list[Stock]:
    """`offerings` by profile, type, market and how often they are preempted, in their order."""
    grouped: dict[tuple[str, str, Market, int], list[Offering]] = {}
    some = bool(rates)
    for offering in offerings:
        key = (offering.profile, offering.type.name, offering.market, rates.of(offering) if some else 0)
        alike = grouped.get(key)
        if alike is None:
            grouped[key] = [offering]
        else:
            alike.append(offering)
    return [Stock(alike, shut, preempted) for (_, _, _, preempted), alike in grouped.items()]


def front(ranked: Iterable[Stock]) -> list[int]:
    """The positions in `ranked` of the stocks that no other one covers at no higher price, cheapest first. One covers
    another when whatever runs on that one could run on it, labels apart, and is preempted no more often there."""
    order = [
        (stock.rate, -stock.capacity[0], stock.preempted, index, stock)
        for index, stock in enumerate(ranked)
        if stock.open
    ]
    order.sort(key=itemgetter(0, 1, 2, 3))
    found: list[int] = []
    #: What covered last is likeliest to cover the next.
    recent: list[tuple[int, int, int, int, bool, str, int, int]] = []
    for _, _, preempted, index, stock in order:
        cpus, memory, disk, gpus = stock.capacity
        spot, gpu, gpu_memory = stock.spot, stock.type.gpu_type, stock.type.gpu_memory
        for position, other in enumerate(recent):
            if other[0] < cpus or other[1] < memory or other[2] < disk or other[3] < gpus:
                continue
            if (
                (spot or not other[4])
                and (not gpu or gpu == other[5])
                and other[6] >= gpu_memory
                and other[7] <= preempted
            ):
                if position:
                    recent.insert(0, recent.pop(position))
                break
        else:
            recent.append((cpus, memory, disk, gpus, spot, gpu, gpu_memory, preempted))
            found.append(index)
    return found


def closed(snapshot: Snapshot) -> dict[int, Shut]:
    """Why offerings may not be launched now for any pool, by the id of the offering: its profile is silent, a failure
    there is remembered, or a quota has no room for one more."""
    everybody = [block for block in snapshot.blocked if not block.pool and not block.template]
    return _used_up(snapshot) | _closed(snapshot, everybody)


def closed_to(snapshot: Snapshot, pool: Pool, shut: dict[int, Shut]) -> dict[int, Shut]:
    """`shut`, with what may not be launched for `pool`."""
    own = [block for block in snapshot.blocked if (block.pool or block.template) and block.is_for(pool)]
    return _closed(snapshot, own) | shut if own else shut


def _closed(snapshot: Snapshot, blocked: Iterable[Blocked]) -> dict[int, Shut]:
    silent, problems = frozenset(snapshot.silent), dict(snapshot.problems)
    holding = [block for block in blocked if block.until_ms > snapshot.now_ms]
    blocks, dear = Scopes(_blocks(block for block in holding if not block.from_rate)), _dear(holding)
    if not silent and not blocks and not dear:
        return {}
    shut: dict[int, Shut] = {}
    for offering in snapshot.offerings if silent or dear else ():
        if offering.profile in silent:
            why = f"profile {offering.profile} can't be listed now, so nothing is launched there"
            if offering.profile in problems:
                why = f"{problems[offering.profile]}; nothing is launched there"
            shut[id(offering)] = Shut(why, Obstacle.SILENT)
            continue
        too_dear = dear.get(offering.profile)
        if too_dear is not None and too_dear.covers(offering):
            shut[id(offering)] = Shut(too_dear.reason, too_dear.obstacle)
    held: dict[int, Shut] = {}  # a block may hold hundreds of offerings, and says the same of each
    for offering, block in blocks.among(snapshot.offerings):
        if id(offering) not in shut:
            said = held.get(id(block))
            if said is None:
                said = held[id(block)] = _held(block, snapshot.now_ms)
            shut[id(offering)] = said
    return shut


def _held(block: Blocked, now_ms: int) -> Shut:
    seconds = -(-(block.until_ms - now_ms) // 1000)
    return Shut(f"{_where(block)} blocked for another {seconds}s: {block.reason}", block.obstacle)


def _where(block: Blocked) -> str:
    memory = format_bytes(block.gpu_memory) if block.gpu_memory else ""
    parts = (
        block.profile, block.type, block.zone, block.market, block.family, block.gpu, memory, block.region, block.image
    )  # fmt: skip
    return "/".join(filter(None, parts))


def _used_up(snapshot: Snapshot) -> dict[int, Shut]:
    """Which offerings quotas have no room for."""
    shut: dict[int, Shut] = {}
    for offering, one in Scopes(snapshot.quotas).among(snapshot.offerings):
        if max(one.limit - one.used, 0) < one.size(offering) and id(offering) not in shut:
            shut[id(offering)] = Shut(one.why(offering), Obstacle.QUOTA)
    return shut


def _dear(holding: Iterable[Blocked]) -> dict[str, Blocked]:
    """By profile, what is blocked for its price: the block that leaves least."""
    dear: dict[str, Blocked] = {}
    for block in sorted((block for block in holding if block.from_rate), key=lambda block: -block.from_rate):
        dear[block.profile] = block
    return dear


def _blocks(holding: Iterable[Blocked]) -> Iterable[Blocked]:
    """Remembered failures; of those that speak of the same the longest."""
    longest: dict[tuple[str | int, ...], Blocked] = {}
    for block in holding:
        key = (
            block.profile, block.type, block.zone, block.market, block.family, block.region, block.image, block.gpu,
            block.gpu_memory,
        )  # fmt: skip
        if key not in longest or longest[key].until_ms < block.until_ms:
            longest[key] = block
    return longest.values()
