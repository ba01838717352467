"""What was spent, read for people. Owns the queries over shares, and the shares of instances that still live: those are
made anew for each question, by the functions that book them once they are gone. Reads alone, on a reader's connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, distinct, func, or_, select, true
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.spend.costs import AttemptCost, Cost, CostKey, CostPage, CostQuery, CostRow, Costs, KeyValue
from cloud_dispatch.spend.instances import Drivers, booking_of, known_rate
from cloud_dispatch.spend.shares import Piece, Share, pieces_of, shares_of, use_of
from cloud_dispatch.spend.windows import FOREVER_MS
from cloud_dispatch.statestore.reading import attempts_of_task
from cloud_dispatch.statestore.rows import machine_of, shape_of
from cloud_dispatch.statestore.schema import instances, ledger, shapes, shares
from cloud_dispatch.statestore.sums import is_sum
from cloud_dispatch.statestore.uses import Alike, Ran, askers_of, each_on, used_on, weigher

#: More rows than this are not added up in one answer.
MOST_ROWS = 100_000
_INSTANCES_A_PIECE = 200
#: Whoever wants the next page of costs by task asks for it within this time.
AWAITED_MS = 60_000
_CHUNK = 500
_s = shares.c
_ALL = true()
_COLUMNS: Mapping[CostKey, Any] = {
    CostKey.PROJECT: _s.project,
    CostKey.USER: _s.user_name,
    CostKey.POOL: _s.pool,
    CostKey.PROVIDER: _s.driver,
    CostKey.PROFILE: _s.profile,
    CostKey.DAY: _s.day_ms,
}
#: Where what differs among the shares of an instance stands in `_Vm.keys`.
_OF_SHARE = {CostKey.PROJECT: 0, CostKey.USER: 1, CostKey.DAY: 2, CostKey.TASK: 3}


class Runs(NamedTuple):
    """A lease whose task was started, as the memory has it."""

    token: int
    task: int
    started_ms: int


@dataclass(frozen=True, slots=True)
class Present:
    """What the memory knows at the moment `now_ms`: the instances that are not gone, with what runs on them."""

    now_ms: int
    living: Mapping[InstanceId, tuple[Instance, Sequence[Runs]]]
    shapes: Mapping[int, Shape]
    drivers: Drivers


@dataclass(frozen=True, slots=True)
class _Vm:
    """One instance with its shares. `machine` None: it is not kept any more."""

    id: InstanceId
    pool: str
    profile: str
    driver: str
    rate: Rate | None
    from_ms: int
    until_ms: int
    shares: Sequence[Share]
    machine: Machine | None
    runs: Sequence[Ran] = ()

    def keys(self, by: Sequence[CostKey]) -> Callable[[Payer, int, int | None], tuple[KeyValue, ...]]:
        """What the keys `by` are for an payer, a day and a task."""
        here: dict[CostKey, KeyValue] = {
            CostKey.POOL: self.pool,
            CostKey.PROVIDER: self.driver,
            CostKey.PROFILE: self.profile,
        }
        order = [(_OF_SHARE.get(key, -1), here.get(key)) for key in by]

        def values(payer: Payer, day_ms: int, task: int | None) -> tuple[KeyValue, ...]:
            own = (payer.project, payer.user, day_ms, task)
            return tuple([value if place < 0 else own[place] for place, value in order])

        return values


def grouped(connection: Connection, query: CostQuery, present: Present) -> Costs:
    """Everything that `query` asks for, added up. InvalidInput for more than `MOST_ROWS` rows, and by task."""
    if CostKey.TASK in query.by:
        raise InvalidInput("costs by task come a page at a time", place="by")
    columns = [_COLUMNS[key] for key in query.by]
    sums = select(*columns, func.sum(_s.work), func.sum(_s.retry), func.sum(_s.idle)).where(_asked(query))
    found: dict[tuple[KeyValue, ...], Cost] = {}
    for row in connection.execute(sums.group_by(*columns).limit(MOST_ROWS + 1)):
        if row[-1] is not None:  # a sum of nothing, by nothing
            found[tuple(row[:-3])] = Cost(*map(int, row[-3:]))
    unknown = select(func.count(distinct(_s.instance))).where(_asked(query), _s.rate.is_(None))
    unpriced, running = connection.scalar(unknown) or 0, 0
    for vm in _living(connection, _of_pool(present, query), present):
        asked = [share for share in vm.shares if _fits(query, share.payer, share.day_ms)]
        keys_of = vm.keys(query.by)
        running += bool(asked)
        unpriced += bool(asked) and vm.rate is None
        for share in asked:
            keys = keys_of(share.payer, share.day_ms, None)
            found[keys] = found.get(keys, Cost()).plus(Cost(share.work, share.retry, share.idle))
    if len(found) > MOST_ROWS:
        raise InvalidInput(f"that makes more than {MOST_ROWS} rows", place="by", hint="ask for less, or for fewer days")
    rows = (CostRow(keys, cost) for keys, cost in found.items())
    return Costs(tuple(sorted(rows, key=lambda row: row.place)), running, unpriced)


class ByTask:
    """Pages of costs by task. Remembers the rows of the instance in whose midst the last page ended: to split them anew
    for each page of an instance with 100,000 attempts took a second each. Who asks for a page is `alone` meanwhile."""

    def __init__(self) -> None:
        self.alone = asyncio.Lock()
        self._rest: tuple[CostQuery, tuple[InstanceId, int], list[CostRow]] | None = None
        self._followed_ms = -AWAITED_MS  # when there was a page after the one that was given, for the last time

    @asynccontextmanager
    async def none(self, clock: Clock) -> AsyncIterator[bool]:
        """No page is read meanwhile. Whether nobody may be about to ask for the next one: what is added up between two
        pages (`sums`) would be found twice, or not at all."""
        async with self.alone:
            yield not 0 <= clock.now() - self._followed_ms < AWAITED_MS

    def page(
        self, connection: Connection, query: CostQuery, present: Present, after: tuple[InstanceId, int] | None,
        limit: int,
    ) -> CostPage:  # fmt: skip
        """At most `limit` rows, those of one instance after those of another, in order of their ids."""
        first, skipped = after or (InstanceId(""), 0)
        rest, self._rest = self._rest, None
        rows: list[CostRow] = []
        for vm in _from(connection, query, present, first):
            known = rest is not None and rest[:2] == (query, after) and vm.id == first
            own = rest[2] if rest is not None and known else _rows_of(connection, vm, query, present)
            start = skipped if vm.id == first else 0
            room = limit - len(rows)
            rows += own[start : start + room]
            if len(own) - start > room:
                place = (vm.id, start + room)
                self._rest, self._followed_ms = (query, place, own), present.now_ms
                return CostPage(tuple(rows), place)
        return CostPage(tuple(rows))


def of_task(connection: Connection, task: TaskId, present: Present) -> list[AttemptCost]:
    """The attempts of one task in order, the one that runs last."""
    found = [
        AttemptCost(
            task, one.token, one.number, one.instance, one.started_ms, one.ended_ms, str(one.outcome.cause), None, None
        )
        for one in attempts_of_task(connection, task)
    ]  # fmt: skip
    found += [
        AttemptCost(
            task, FencingToken(run.token), len(found) + 1, instance, run.started_ms, None, None, None, None
        )
        for instance, (_, runs) in present.living.items()
        for run in runs
        if run.task == task and all(one.token != run.token for one in found)
    ]  # fmt: skip
    vms = {vm.id: vm for vm in _vms(connection, sorted({one.instance for one in found}), present)}
    costs: dict[int, Cost] = {}
    for vm in vms.values():
        for piece in _pieces(connection, vm, present):
            if piece.key is not None and piece.key[0] == task:
                token, money = piece.key[1], Cost(piece.work, piece.retry, piece.idle)
                costs[token] = costs.get(token, Cost()).plus(money)
    return [_priced(one, vms.get(one.instance), costs.get(one.token, Cost())) for one in found]


def _priced(one: AttemptCost, vm: _Vm | None, cost: Cost) -> AttemptCost:
    """One that never started has used nothing, wherever that was."""
    known = one.started_ms is None or (vm is not None and vm.machine is not None)
    return replace(one, rate=vm.rate if vm else None, cost=cost if known else None)


def _asked(query: CostQuery) -> ColumnElement[bool]:
    named = ((_s.project, query.project), (_s.user_name, query.user), (_s.pool, query.pool))
    # For all days SQLite would go by their index, from row to row: four times as slowly as through all.
    days = [_s.day_ms >= query.since_ms] if query.since_ms else []
    days += [_s.day_ms < query.until_ms] if query.until_ms < FOREVER_MS else []
    return and_(True, *days, *(column == name for column, name in named if name))


def _fits(query: CostQuery, payer: Payer, day_ms: int) -> bool:
    """`_asked`, but for the pool."""
    return (
        query.since_ms <= day_ms < query.until_ms
        and query.project in ("", payer.project)
        and query.user in ("", payer.user)
    )


def _of_pool(present: Present, query: CostQuery) -> list[InstanceId]:
    return sorted(name for name, (own, _) in present.living.items() if query.pool in ("", own.pool))


def _from(connection: Connection, query: CostQuery, present: Present, first: InstanceId) -> Iterator[_Vm]:
    """All that the query asks for, living or not, in order of their ids from `first` on: one that leaves meanwhile is
    found once."""
    living, reached, whole = [name for name in _of_pool(present, query) if name >= first], first, False
    past = select(_s.instance).distinct().where(_asked(query)).order_by(_s.instance).limit(_INSTANCES_A_PIECE)
    here = past.where(_s.instance >= first)
    while not whole:
        gone = [InstanceId(name) for name in connection.scalars(here)]
        whole = len(gone) < _INSTANCES_A_PIECE
        reached = gone[-1] if gone else reached
        both = sorted({*gone, *(name for name in living if whole or name <= reached)})
        living = [] if whole else [name for name in living if name > reached]
        while both:
            many = 1 if is_sum(both[0]) else _INSTANCES_A_PIECE
            yield from _vms(connection, both[:many], present, _asked(query))
            both = both[many:]
        here = past.where(_s.instance > reached)


def _vms(
    connection: Connection, ids: Sequence[InstanceId], present: Present, asked: ColumnElement[bool] = _ALL
) -> list[_Vm]:
    """These instances with their shares, in the order of `ids`; of those that are not kept any more, and can't be split
    further, with the shares that are `asked` for."""
    vms = {vm.id: vm for vm in _living(connection, [name for name in ids if name in present.living], present)}
    left = [name for name in ids if name not in vms]
    vms.update({vm.id: vm for vm in _gone(connection, left, asked)})
    return [vms[name] for name in ids if name in vms]


def _gone(connection: Connection, ids: Sequence[InstanceId], asked: ColumnElement[bool]) -> Iterator[_Vm]:
    if not ids:
        return
    bodies = select(instances.c.id, instances.c.machine).where(instances.c.id.in_(ids))
    machines = {row.id: machine_of(row.machine) for row in connection.execute(bodies)}
    parts: dict[str, list[Share]] = {}
    rates: dict[str, int | None] = {}
    wanted = select(shares).where(_s.instance.in_(ids), or_(_s.instance.in_(list(machines)), asked))
    for row in connection.execute(wanted.order_by(_s.day_ms)):
        payer = Payer(row.project, row.user_name)
        share = Share(row.day_ms, payer, row.work, row.retry, row.idle, row.work_time, row.retry_time)
        parts.setdefault(row.instance, []).append(share)
        rates[row.instance] = row.rate
    for row in connection.execute(select(ledger).where(ledger.c.instance.in_(ids))):
        rate = rates.get(row.instance)
        yield _Vm(
            InstanceId(row.instance), row.pool, row.profile, row.driver, None if rate is None else Rate(rate),
            row.from_ms, row.until_ms, parts.get(row.instance, ()), machines.get(row.instance),
        )  # fmt: skip


def _living(connection: Connection, ids: Sequence[InstanceId], present: Present) -> Iterator[_Vm]:
    """Those of `ids` that live and are billed, as if they were gone by now. What has left since the memory was asked
    is in the tables."""
    booked: set[str] = set()
    for at in range(0, len(ids), _CHUNK):
        booked.update(connection.scalars(select(ledger.c.instance).where(ledger.c.instance.in_(ids[at : at + _CHUNK]))))
    for name in ids:
        own, leases = present.living[name]
        if name in booked or own.launched_ms is None:
            continue
        row = booking_of(own, present.now_ms, (), ())
        until_ms = min(present.now_ms, row.until_ms)
        runs = _runs_of(connection, leases, until_ms)
        used = [*used_on(connection, name, until_ms), *(run.alike for run in runs)]
        weighed = map(weigher(own.machine, _shapes(connection, present)), used)
        parts = shares_of(row.amount, row.from_ms, row.until_ms, weighed)
        driver = present.drivers.get(own.profile, "")
        yield _Vm(
            name, own.pool, own.profile, driver, known_rate(own), row.from_ms, row.until_ms, parts, own.machine, runs
        )  # fmt: skip


def _runs_of(connection: Connection, leases: Iterable[Runs], until_ms: int) -> list[Ran]:
    """What runs, as an attempt that counts so far."""
    askers = askers_of(connection, [lease.task for lease in leases])
    found = []
    for token, task, started_ms in leases:
        if task in askers:
            payer, shape = askers[task]
            use = use_of(payer, True, 1, min(started_ms, until_ms), until_ms)
            found.append(Ran(token, task, Alike(shape, use)))
    return found


def _pieces(connection: Connection, vm: _Vm, present: Present) -> list[Piece]:
    """What each attempt on it pays, by (task, token). The attempts of one that is not kept any more can't be weighed:
    all is that of unknown ones."""
    if vm.machine is None:
        return pieces_of(vm.shares, vm.from_ms, vm.until_ms, ())
    weighed = weigher(vm.machine, _shapes(connection, present))
    ran = {one.token: one for one in (*vm.runs, *each_on(connection, vm.id, vm.until_ms))}
    attempts = (((one.task, one.token), weighed(one.alike)) for one in ran.values())
    return pieces_of(vm.shares, vm.from_ms, vm.until_ms, attempts)


def _shapes(connection: Connection, present: Present) -> Callable[[int], Shape]:
    """By their numbers. What was forgotten since this question began has its row still, as the question sees it."""

    def known(number: int) -> Shape:
        shape = present.shapes.get(number)
        return shape or shape_of(connection.execute(select(shapes.c.body).where(shapes.c.id == number)).scalar_one())

    return known


def _rows_of(connection: Connection, vm: _Vm, query: CostQuery, present: Present) -> list[CostRow]:
    summed: dict[tuple[KeyValue, ...], Cost] = {}
    keys_of = vm.keys(query.by)
    for piece in _pieces(connection, vm, present):
        if _fits(query, piece.payer, piece.day_ms):
            task = None if piece.key is None else piece.key[0]
            keys = keys_of(piece.payer, piece.day_ms, task)
            known, cost = summed.get(keys), Cost(piece.work, piece.retry, piece.idle)
            summed[keys] = cost if known is None else known.plus(cost)
    return sorted((CostRow(keys, cost) for keys, cost in summed.items()), key=lambda row: row.place)
