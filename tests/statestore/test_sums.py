"""Rows of the ledger that are added up: whatever was spent, and however often, nobody is told another sum."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate, charge
from cloud_dispatch.ports.store import InstanceChange, Retention, Store
from cloud_dispatch.spend import past
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.costs import CostKey, CostQuery, CostRow, total_of
from cloud_dispatch.spend.standing import Account
from cloud_dispatch.spend.windows import DAY_MS, Window
from cloud_dispatch.statestore import care, costs, loading, sums
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.statestore.folding import WINDOWS_MS
from cloud_dispatch.statestore.invariants import problems_in
from cloud_dispatch.statestore.loading import initialise
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.purse import Purse
from cloud_dispatch.statestore.schema import instances, ledger, shares
from cloud_dispatch.testing.store_builders import START_MS, Agent, ManualClock, instance, result, spec
from tests.migrated import migrated_store
from tests.statestore.conftest import stores

NOW = START_MS + 300 * DAY_MS
KEYS = tuple(key for key in CostKey if key is not CostKey.TASK)
BUDGETS = [
    Budget(key, window, Amount(1))
    for key in (EVERYTHING, Key(Scope.POOL, "a"), Key(Scope.DRIVER, "b"), Key(Scope.PROFILE, "a"))
    for window in Window
]
NAME = st.sampled_from(("a", "b"))
PLACE = st.sampled_from((("a", "a", "a"), ("b", "a", "a"), ("a", "b", "b")))
DAY = st.sampled_from((0, 1, 15, 16, 17, 100, 290, 299))
#: Of a VM: its pool, profile and driver, the day it began and the hours it was billed, its price, who used it how much,
#: whether it is kept.
VMS = st.lists(
    st.tuples(
        PLACE, DAY, st.integers(0, 60), st.none() | st.integers(0, 10**10),
        st.lists(st.tuples(NAME, st.sampled_from(("", "x")), st.integers(0, 10**9)), max_size=3),
        st.sampled_from((False, False, True)),
    ),
    min_size=5, max_size=20,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _breakers_remember_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand otherwise."""
    for module in (past, loading, sums):
        monkeypatch.setattr(module, "MOST", 2)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Connection]:
    engine = make_engine(parse_url(migrated_store(Path(tmp_path_factory.mktemp("sums")) / "store.db")))
    with engine.connect() as connection:
        initialise(connection, "store", START_MS)
        connection.commit()
        yield connection
    engine.dispose()


@contextmanager
def rolled_back(connection: sa.Connection) -> Iterator[None]:
    transaction = connection.begin()
    try:
        yield
    finally:
        transaction.rollback()


def book(connection: sa.Connection, number: int, vm: tuple[Any, ...]) -> None:
    """A row of the ledger and its shares, as far as sums go."""
    (pool, profile, driver), begins, hours, rate, uses, kept = vm
    start, length, name = START_MS + begins * DAY_MS, hours * HOUR_MS, f"vm-{number}"
    amount = charge(Rate(rate or 0), length)
    known = {"id": number, "instance": name, "pool": pool, "profile": profile, "driver": driver}
    row = known | {"from_ms": start, "until_ms": start + length, "booked_ms": start + length, "amount": amount}
    bound = {"bound_rate": (rate or 0) * 2, "bound_from_ms": start, "bound_until_ms": start + length + 120_000}
    bound |= {"bound_most_ms": length, "bound": charge(Rate((rate or 0) * 2), length)}
    rest = {"boot": amount, "work": 0, "idle": 0, "lost": 0, "tasks": 1, "waiting": 0}
    text = dict.fromkeys(("template", "image", "zone", "cause"), "t")
    connection.execute(sa.insert(ledger).values(**row, **bound, **rest, **text))
    days = sorted({at // DAY_MS * DAY_MS for at in (start, start + length)})
    cells = [(day, *use) for day in days for use in {use[:2]: use for use in uses}.values()] or [(days[0], "", "", 0)]
    left: int = amount
    for place, (day, project, user, used) in enumerate(cells):
        money = left if place == len(cells) - 1 else min(left, used)
        left -= money
        share = {"instance": name, "day_ms": day, "project": project, "user_name": user, "rate": rate}
        of = {"pool": pool, "profile": profile, "driver": driver, "work_time": used, "retry_time": 0}
        parts = {"work": money // 2, "retry": money // 3, "idle": money - money // 2 - money // 3}
        connection.execute(sa.insert(shares).values(**share, **of, **parts))
    if kept:
        connection.execute(sa.insert(instances).values(**kept_row(name)))


def kept_row(name: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for column in instances.c:
        if not column.nullable:
            kind: Any = column.type.python_type
            values[column.name] = b'{"capacity": {}}' if kind is bytes else kind()
    return values | {"id": name, "state": "gone"}


def fold(connection: sa.Connection, now_ms: int, most: int) -> int:
    """As the store does it."""
    found, _ = care.past_retention(connection, "ledger", now_ms - WINDOWS_MS, None, most)
    one = sums.FoldLedger(found)
    one.prepare(connection)
    one.plan(batch := Batch(Memory()))
    for statement, rows in batch.after:
        connection.execute(statement, list(rows) or None)
    return one.answer({})


def told(connection: sa.Connection, now_ms: int) -> tuple[object, ...]:
    """What limits count, what costs tell however they are asked for, and what the ledger comes to."""
    purse = Purse(BUDGETS)
    purse.read(connection, now_ms)
    present = costs.Present(now_ms, {}, {}, {})
    answers, by_task = [], []
    for where in wheres():
        answers += [costs.grouped(connection, CostQuery(by, **where), present) for by in (KEYS, ())]
        rows = by_pages(connection, CostQuery((*KEYS, CostKey.TASK), **where), present, 1_000 if where else 7)
        keys = sorted({row.keys for row in rows if row.cost.whole}, key=repr)
        by_task.append([(key, total_of(row.cost for row in rows if row.keys == key)) for key in keys])
    whole = [sa.func.sum(ledger.c[name]) for name in ("amount", "boot", "work", "idle", "lost", "bound", "tasks")]
    return dict(purse.spent), answers, by_task, tuple(connection.execute(sa.select(*whole)).one())


def by_pages(connection: sa.Connection, query: CostQuery, present: costs.Present, limit: int) -> list[CostRow]:
    """All pages; who gives them remembers where the last one ended, or not."""
    pages, after = costs.ByTask(), None
    rows: list[CostRow] = []
    while True:
        page = pages.page(connection, query, present, after, limit)
        rows += page.rows
        after = page.next
        if after is None:
            return rows
        pages = pages if after[1] % 2 else costs.ByTask()


def wheres() -> list[dict[str, Any]]:
    noon = START_MS // DAY_MS * DAY_MS + 100 * DAY_MS
    return [{}, {"project": "a"}, {"user": "x"}, {"pool": "b"}, {"since_ms": noon}, {"until_ms": noon}]


@given(VMS, st.lists(st.integers(0, 100), min_size=1, max_size=3), st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_nobody_is_told_another_sum(
    connection: sa.Connection, vms: list[tuple[Any, ...]], waits: list[int], most: int
) -> None:
    """Limits in total and by window, costs by whatever key and of whatever part, with tasks and without, how many VMs
    had no price; and what is old and not kept stands in one row a month, pool, profile and driver, but for the
    newest."""
    with rolled_back(connection):
        for number, vm in enumerate(vms, 1):
            book(connection, number, vm)
        now = NOW
        for days in waits:
            now += days * DAY_MS
            before = [told(connection, at) for at in (now, now + DAY_MS)]
            while fold(connection, now, most):
                pass
            assert [told(connection, at) for at in (now, now + DAY_MS)] == before
            assert [one for one in problems_in(connection) if "shares" in one] == []
            newest = [
                row.id for row in connection.execute(sa.select(ledger.c.id).order_by(ledger.c.id.desc()).limit(2))
            ]
            rows = connection.execute(sa.select(ledger).where(ledger.c.id.not_in(newest))).all()
            kept = set(connection.scalars(sa.select(instances.c.id)))
            unpriced = set(connection.scalars(sa.select(shares.c.instance).where(shares.c.rate.is_(None))))
            old_ms = min(now, max((row.until_ms for row in rows), default=0)) - WINDOWS_MS
            old = [row for row in rows if row.bound_until_ms < old_ms and row.instance not in kept | unpriced]
            assert len({row.instance for row in old}) == len(old)
            assert {row.instance for row in old} == {sums._Sum.of(row).name for row in old}


def vm(begins_day: int, *, rate: int = 10**9, kept: bool = False) -> tuple[Any, ...]:
    return (("a", "a", "a"), begins_day, 24, rate, [("a", "x", 5)], kept)


def test_what_comes_to_a_sum_that_there_is_adds_to_it(connection: sa.Connection) -> None:
    """Of the same day and payer, and of others, one VM after the other."""
    with rolled_back(connection):
        for number, day in enumerate((0, 0, 1, 0, 100, 101), 1):
            book(connection, number, vm(day))
        before = told(connection, NOW)
        assert [fold(connection, NOW, 1) for _ in range(5)] == [1, 1, 1, 1, 0]
        assert told(connection, NOW) == before
        sum_ = connection.execute(sa.select(shares).where(shares.c.instance == name_of("2023-11"))).all()
        assert len(sum_) == 3, "a row a day"


def test_what_is_added_to_a_sum_is_read_without_what_is_in_it(
    connection: sa.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand payers it has thirty thousand shares, and whatever one VM more has read them all."""
    read: list[int] = []
    all_ = sums._all

    def counted(*args: Any) -> list[Any]:
        found = all_(*args)
        read.append(len(found))
        return found

    with rolled_back(connection):
        for number, payers in enumerate((40, 1, 1, 1), 1):
            book(
                connection,
                number,
                (("a", "a", "a"), number, 48, 10**9, [(f"p{n}", "", 5) for n in range(payers)], False),
            )
        book(connection, 5, vm(90))
        before = told(connection, NOW)
        assert fold(connection, NOW, 1) == 1
        monkeypatch.setattr(sums, "_all", counted)
        assert fold(connection, NOW, 1) == 1
        assert sum(read) == 2 + 2, "the row and its two days; the sum's row"
        assert told(connection, NOW) == before


def test_what_was_added_up_counts_also_where_the_clock_was_put_back(connection: sa.Connection) -> None:
    """By years, in total: it is booked before it was spent, and yet it was."""
    with rolled_back(connection):
        for number, day in enumerate((0, 1, 100, 101), 1):
            book(connection, number, vm(day))
        before = in_total(connection, NOW)
        assert fold(connection, NOW, 10) == 2
        assert in_total(connection, DAY_MS) == before
        assert max(before.values()) == 4 * 48_000_000


def in_total(connection: sa.Connection, now_ms: int) -> dict[Account, int]:
    (purse := Purse(BUDGETS)).read(connection, now_ms)
    return {account: spent for account, spent in purse.spent.items() if account.window is Window.TOTAL and spent}


@pytest.mark.parametrize(("days", "now_day"), [((0, 1, 20, 21), 500), ((0, 1, 420, 421), 22)])
def test_a_clock_that_is_or_was_far_ahead_takes_nothing_out_of_a_window_that_is_open(
    connection: sa.Connection, days: tuple[int, ...], now_day: int
) -> None:
    """The dispatcher's now, or when the newest row was booked."""
    with rolled_back(connection):
        for number, day in enumerate(days, 1):
            book(connection, number, vm(day))
        assert fold(connection, START_MS + now_day * DAY_MS, 10) == 0


def test_what_breakers_remember_and_what_is_kept_stays_as_it_is(connection: sa.Connection) -> None:
    """The newest rows, however old they are; and an instance whose attempts may be asked for."""
    with rolled_back(connection):
        for number, day in enumerate((0, 1, 2, 3), 1):
            book(connection, number, vm(day, kept=day == 1))
        book(connection, 5, vm(90))
        assert fold(connection, NOW, 10) == 2
        names = list(connection.scalars(sa.select(ledger.c.instance).order_by(ledger.c.id)))
        assert names == [name_of("2023-11"), "vm-2", "vm-4", "vm-5"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"migrated_{request.param}_url"))


async def rent(store: Store, clock: ManualClock, name: str) -> None:
    """A VM of an hour, a task of `genes` on it for half of that."""
    now = clock.now_ms
    own = replace(instance(name), launched_ms=now, registered_ms=now, ends_ms=now + DAY_MS)
    await store.submit([spec(name, project="genes")])
    await store.adopt(own)
    agent = Agent(store, own)
    (claimed,) = await agent.claim()
    clock.now_ms += HOUR_MS // 2
    await agent.sync(result(claimed, ran_ms=HOUR_MS // 2))
    clock.now_ms += HOUR_MS // 2
    await store.change([InstanceChange(own.id, InstanceEvent.GONE)])


async def rent_old_and_new(store: Store, clock: ManualClock) -> None:
    """Five VMs whose windows are closed, and one 70 days later, which lets them be added up."""
    for number in range(5):
        await rent(store, clock, f"i-{number}")
    clock.now_ms += 70 * DAY_MS
    await rent(store, clock, "late")


async def asked(store: Any, budgets: list[Budget]) -> tuple[object, ...]:
    await store.set_limits(budgets, {})
    by = (CostKey.PROJECT, CostKey.POOL, CostKey.DAY)
    rows = (await store.costs_by_task(CostQuery((*by, CostKey.TASK)))).rows
    return dict(store._memory.purse.spent), await store.costs(CostQuery(by)), total_of(row.cost for row in rows)


def name_of(month: str, pool: str = "a") -> str:
    ended_ms = round(datetime.fromisoformat(f"{month}-01T00:00Z").timestamp() * 1000)
    return sums._Sum.of(SimpleNamespace(until_ms=ended_ms, pool=pool, profile="a", driver="a")).name


def test_databases_and_python_order_sums_alike() -> None:
    """A database whose collation is that of a language leaves signs and case out at first."""
    pools = ("gpu1", "gpu_large", "GPU", "gpu-b", "gpu", "g")
    names = [name_of(month, pool) for pool in pools for month in ("2023-11", "2023-12", "2024-01")]
    names += ["a00000000000-0", "z12345678901-3"]
    assert len({*names}) == len(names)
    assert sorted(names) == sorted(names, key=lambda name: "".join(filter(str.isalnum, name)).casefold())


async def test_a_store_tells_the_same_before_and_after_and_once_it_is_opened_again(url: str) -> None:
    """In pieces, and two at once; what limits and costs tell, and that the tables add up."""
    clock, budgets = ManualClock(), [Budget(EVERYTHING, window, Amount(10**12)) for window in Window]
    keep = Retention(tasks_ms=DAY_MS, instances_ms=DAY_MS)
    async with stores(url) as open_one:
        store: Any = await open_one(clock)
        for number in range(8):
            await rent(store, clock, f"i-{number}")
            clock.now_ms += 5 * DAY_MS
        clock.now_ms += 70 * DAY_MS
        assert (await store.prune(clock.now_ms, keep))["instances"] == 8
        for number in range(3):
            await rent(store, clock, f"late-{number}")
        before = await asked(store, budgets)
        found = await care.look(store._read, clock.now_ms, keep, 3, ["ledger"])
        assert (await store.prune(clock.now_ms, keep, batch=3))["ledger"] == 3
        await store._commit.run(sums.FoldLedger(found["ledger"]))
        clock.now_ms += 1
        both = [(await store.prune(clock.now_ms, keep, batch=2, of=["ledger"])) for _ in range(4)]
        assert both == [{"ledger": 2}, {"ledger": 2}, {"ledger": 1}, {"ledger": 0}]
        assert await asked(store, budgets) == before
        assert len(await store.ledger()) == 5, "two months, and the three that are new"
        assert await store.check() == []
        await store.close()
        again = await open_one(clock)
        assert await asked(again, budgets) == before
        assert await again.check() == []


def test_what_is_added_up_at_once_has_a_bounded_number_of_shares(
    connection: sa.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has more of them by itself; all rows in order."""
    monkeypatch.setattr(sums, "MOST_SHARES", 6)
    with rolled_back(connection):
        for number, projects in enumerate((1, 2, 1, 4, 3, 1, 1, 1, 1), 1):  # two shares each, a day being over
            uses = [(f"p{project}", "", 5) for project in range(projects)]
            book(connection, number, (("a", "a", "a"), 0, 24, 10**9, uses, False))
        assert sums.pieces(connection, range(1, 10)) == [[1, 2], [3], [4], [5], [6, 7, 8], [9]]
        assert sums.pieces(connection, []) == []


async def test_a_commit_adds_up_one_piece(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for it."""
    monkeypatch.setattr(sums, "MOST_SHARES", 1)
    clock, keep, query = ManualClock(), Retention(instances_ms=DAY_MS), CostQuery((CostKey.PROJECT, CostKey.DAY))
    async with stores(url) as open_one:
        store: Any = await open_one(clock)
        await rent_old_and_new(store, clock)
        await store.prune(clock.now_ms, keep, of=["instances"])
        before, commits = await store.costs(query), store._memory.commits
        assert await store.prune(clock.now_ms, keep, of=["ledger"]) == {"ledger": 4}
        assert store._memory.commits == commits + 4
        assert await store.costs(query) == before
        assert await store.check() == []


async def test_nothing_is_added_up_between_two_pages(migrated_sqlite_url: str) -> None:
    """Who reads costs by task would find it twice, or not at all; a minute later nobody waits for the next page."""
    clock, keep = ManualClock(), Retention(instances_ms=DAY_MS)
    async with stores(migrated_sqlite_url) as open_one:
        store = await open_one(clock)
        await rent_old_and_new(store, clock)
        await store.prune(clock.now_ms, keep)
        page = await store.costs_by_task(query := CostQuery((CostKey.TASK,)), limit=2)
        assert (await store.prune(clock.now_ms, keep))["ledger"] == 0
        rest = await store.costs_by_task(query, after=page.next, limit=10)
        assert total_of(row.cost for row in (*page.rows, *rest.rows)).whole == 6 * 96_000
        clock.now_ms += costs.AWAITED_MS
        assert (await store.prune(clock.now_ms, keep))["ledger"] == 4


async def test_nothing_is_added_up_where_a_page_came_meanwhile(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was asked for, and before: to find the old rows takes seconds where there are many, and the first page
    may be given in them."""
    clock, keep, query = ManualClock(), Retention(instances_ms=DAY_MS), CostQuery((CostKey.TASK,))
    async with stores(migrated_sqlite_url) as open_one:
        store: Any = await open_one(clock)
        await rent_old_and_new(store, clock)
        await store.prune(clock.now_ms, keep, of=["instances"])
        look, pages = care.look, []

        async def looks(*args: Any) -> care.Found:
            found = await look(*args)
            pages.append(await store.costs_by_task(query, limit=2))
            return found

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(care, "look", looks)
            assert (await store.prune(clock.now_ms, keep))["ledger"] == 0
        (page,) = pages
        rest = await store.costs_by_task(query, after=page.next, limit=10)
        assert total_of(row.cost for row in (*page.rows, *rest.rows)).whole == 6 * 96_000
        clock.now_ms += costs.AWAITED_MS
        found = await care.look(store._read, clock.now_ms, keep, 10, ["ledger"])
        async with store._by_task.alone:
            reading = asyncio.create_task(store.prune(clock.now_ms, keep, of=["ledger"]))
            await asyncio.sleep(0.05)
            assert not reading.done(), "a page is being read"
        assert await reading == {"ledger": len(found["ledger"])} == {"ledger": 4}


async def test_three_that_add_up_at_once_do_it_once(migrated_sqlite_url: str) -> None:
    """All three have read the same rows and are committed together: none of them fails the group, or counts them."""
    clock, keep = ManualClock(), Retention(instances_ms=DAY_MS)
    async with stores(migrated_sqlite_url) as open_one:
        store: Any = await open_one(clock)
        clock.now_ms += 3 * HOUR_MS  # all on one day, of which there is a sum then
        await rent_old_and_new(store, clock)
        assert (await store.prune(clock.now_ms, keep, batch=1))["ledger"] == 0
        await store.prune(clock.now_ms, keep, of=["instances"])
        assert (await store.prune(clock.now_ms, keep, batch=1, of=["ledger"]))["ledger"] == 1
        before = await store.costs(CostQuery(()))
        found = await care.look(store._read, clock.now_ms, keep, 10, ["ledger"])
        folds = [store._commit.run(sums.FoldLedger(found["ledger"])) for _ in range(3)]
        assert await asyncio.gather(*folds) == [3, 0, 0]
        assert await store.costs(CostQuery(())) == before
        assert await store.check() == []
