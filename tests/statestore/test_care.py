"""Backup, restore, check, and what opening refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.errors import Conflict, InvalidInput, StoreUnavailable
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import TaskId, VmId
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import InstanceChange, Store, Target, TaskFilter
from cloud_dispatch.statestore import (
    backup,
    came_back,
    copying,
    describe_owner,
    open_store,
    restore,
    revision_of,
    step_back,
)
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.testing.store_builders import (
    START_MS,
    Agent,
    ManualClock,
    OpenStore,
    adopted,
    instance,
    intent,
    result,
    spec,
)
from tests.migrated import migrated_store
from tests.statestore.conftest import CountingEntropy, stores


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def opens(url: str) -> AsyncIterator[OpenStore]:
    async with stores(url) as open_one:
        yield open_one


async def _lived_in(store: Store) -> Agent:
    """A store with something in every table; its agent holds task 2."""
    await store.submit([spec("näme", idempotency_key="k"), spec(), spec(cpus_milli=2000), spec()])
    await store.intend(intent(), [instance(state=instance().state.INTENDED)])
    await store.adopt(own := instance("own"))
    agent = Agent(store, own)
    claims = await agent.claim(2)
    await agent.sync(result(claims[0]))
    await store.record([Event(1, "a.b", own.id)])
    await store.record_plan(1, b"{}", b"{}")
    await store.set_target(Target(own.pool, "rest", 2))
    await store.set_fact("deployment", "d")
    return agent


async def test_a_backup_is_restored_whole(opens: OpenStore, url: str, tmp_path: Path) -> None:
    """Everything is there, a held claim goes on under its token, and no token is ever given again."""
    store = await opens(ManualClock())
    agent = await _lived_in(store)
    copy = tmp_path / "copy.db"
    await store.backup(copy)
    (late,) = await agent.claim(1)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("copy")) == ["copy.db"]
    again = f"sqlite:///{tmp_path}/again.db"
    restore(copy, again, now_ms=START_MS)
    async with stores(again) as open_again:
        restored = await open_again(ManualClock())
        assert restored.id == store.id
        assert restored.task_counts()[TaskState.SUCCEEDED] == 1
        assert (await restored.task(TaskId(1))).spec == (await store.task(TaskId(1))).spec
        assert restored.fact("deployment") == "d"
        assert (restored.unsure_since(), restored.restored_ms()) == (START_MS, START_MS)
        await restored.reconcile()
        assert (restored.unsure_since(), restored.restored_ms()) == (None, START_MS)
        assert restored.targets() == store.targets()
        assert list(await restored.events()) == list(await store.events())
        assert await restored.check() == []
        agent.store = restored
        done = await agent.sync(want=9)
        assert done.kill == (late.token,)
        assert {claim.task for claim in done.claims} == {3, 4}
        assert min(claim.token for claim in done.claims) > late.token
        assert await restored.submit([spec("näme", idempotency_key="k"), spec()]) == [1, 5]


async def test_a_copy_that_is_restored_twice_gives_no_token_twice(opens: OpenStore, tmp_path: Path) -> None:
    """Nor does one that is older than another restore. The simulator found tokens of the first restore given again."""
    store, copy, given = await opens(ManualClock()), tmp_path / "copy.db", []
    agent = await _lived_in(store)
    await store.backup(copy)
    for n in range(2):
        url = f"sqlite:///{tmp_path}/restored-{n}.db"
        restore(copy, url, now_ms=START_MS + (n + 1) * 2_000)
        async with stores(url) as open_again:
            agent.store = await open_again(ManualClock())
            given.append({claim.token for claim in (await agent.sync(want=9)).claims})
    assert all(given), given
    assert max(given[0]) < min(given[1])


async def test_a_store_in_the_place_of_a_lost_one_gives_no_token_of_that(tmp_path: Path) -> None:
    """However soon: agents of the lost one may be taken over by it, and files of attempts are named by tokens."""
    given, clock = [], ManualClock()
    for n in range(2):
        async with stores(f"sqlite:///{tmp_path}/{n}.db") as open_one:
            store = await open_one(clock)
            await store.submit([spec() for _ in range(900)])
            claims = await (await adopted(store, cpus=900, memory=900 * GIB)).claim(900)
            given.append([claim.token for claim in claims])
        clock.now_ms += 1
    assert [len(tokens) for tokens in given] == [900, 900]
    assert max(given[0]) < min(given[1])
    assert max(given[1]) < 2**53, "JSON's numbers"


async def test_a_store_that_was_brought_back_by_other_means_is_told_so(opens: OpenStore, url: str) -> None:
    """Then it is as careful as one that was restored: no token twice, and nothing is taken for unspent."""
    with pytest.raises(InvalidInput, match="there is no statestore"):
        came_back(url, now_ms=START_MS)
    store = await opens(ManualClock())
    agent = await _lived_in(store)
    (late,) = await agent.claim(1)
    with pytest.raises(Conflict, match="in use"):
        came_back(url, now_ms=START_MS)
    await store.close()
    came_back(url, now_ms=START_MS)
    async with stores(url) as open_again:
        agent.store = again = await open_again(ManualClock())
        assert (again.id, again.unsure_since()) == (store.id, START_MS)
        (claim,) = (await agent.sync(want=1)).claims
        assert claim.token > late.token + 1_000_000


async def test_a_backup_is_restored_into_postgres(postgres_url: str, sqlite_url: str, tmp_path: Path) -> None:
    """The way to outgrow SQLite: the same store, in another database."""
    copy = tmp_path / "copy.db"
    async with stores(sqlite_url) as open_one:
        store = await open_one(ManualClock())
        await _lived_in(store)
        await store.backup(copy)
        identity = store.id
    restore(copy, postgres_url, now_ms=START_MS)
    async with stores(postgres_url) as open_one:
        restored = await open_one(ManualClock())
        assert restored.id == identity
        assert await restored.check() == []
        await restored.record([Event(2, "c")])
        assert [event.action for event in await restored.events()] == ["c", "a.b"]
    with pytest.raises(Conflict):
        restore(copy, postgres_url, now_ms=START_MS)


def test_a_backup_is_restored_beside_the_tables_of_others(postgres_url: str, tmp_path: Path) -> None:
    """Such as those of an extension. They stay as they are, and no copy has them."""
    copy, again = tmp_path / "copy.db", tmp_path / "again.db"
    migrated_store(copy)
    engine = make_engine(parse_url(postgres_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE spatial_ref_sys (srid integer)")
        connection.exec_driver_sql("INSERT INTO spatial_ref_sys VALUES (4326)")
    restore(copy, postgres_url, now_ms=START_MS)
    backup(postgres_url, again)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT srid FROM spatial_ref_sys").scalar() == 4326
    engine.dispose()
    assert revision_of(postgres_url) == revision_of(f"sqlite:///{again}") == "0004"


def test_a_restore_into_postgres_that_is_cut_off_leaves_an_empty_database(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a half store nor an empty one is taken for the store, and the next restore finds room. Meanwhile nobody
    starts there."""
    copy = tmp_path / "copy.db"
    migrated_store(copy)

    def cut_off(*_: object) -> None:
        with pytest.raises(Conflict, match="in use"):
            asyncio.run(_open(postgres_url))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(copying, "_mark_restored", cut_off)
        with pytest.raises(KeyboardInterrupt):
            restore(copy, postgres_url, now_ms=START_MS)
    assert revision_of(postgres_url) == ""
    restore(copy, postgres_url, now_ms=START_MS)
    assert revision_of(postgres_url) == "0004"
    assert describe_owner(postgres_url) is None


async def test_nobody_migrates_tables_under_their_owner(
    migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer program that is started beside the one that runs."""
    async with stores(migrated_postgres_url) as open_one:
        await open_one(ManualClock())
        monkeypatch.setattr("cloud_dispatch.statestore.upgrade", lambda _: pytest.fail("migrated"))
        with pytest.raises(Conflict, match=r"in use by pid \d+"):
            await _open(migrated_postgres_url)


@pytest.mark.parametrize("target", ["sqlite", "postgres"])
async def test_a_store_of_an_older_version_is_copied_and_restored(
    opens: OpenStore, url: str, target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As it is: a backup comes before an upgrade. What it is restored into has this version's tables."""
    store, copy = await opens(ManualClock()), tmp_path / "copy.db"
    await _lived_in(store)
    before = await store.task(TaskId(1))
    await store.close()
    step_back(url, "0001", now_ms=START_MS)
    backup(url, copy)
    assert revision_of(f"sqlite:///{copy}") == "0001"
    again = f"sqlite:///{tmp_path}/again.db"
    if target == "postgres":
        again = str(request.getfixturevalue("other_postgres_url"))
    restore(copy, again, now_ms=START_MS)
    async with stores(again) as open_again:
        restored = await open_again(ManualClock())
        assert (await restored.task(TaskId(1))).spec == before.spec
        assert await restored.check() == []
        await restored.record([Event(2, "c")])


async def test_a_backup_of_a_database_without_a_store_says_so(postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no statestore in this database"):
        backup(postgres_url, tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


async def test_a_backup_is_one_moment(opens: OpenStore, tmp_path: Path) -> None:
    """Taken while tasks are submitted and claimed, it is as consistent as the store itself."""
    store = await opens(ManualClock())
    await store.adopt(own := instance(cpus=1000, memory=2**50))
    agent = Agent(store, own)

    async def traffic() -> None:
        for _ in range(20):
            await store.submit([spec() for _ in range(20)])
            claims = await agent.claim(10)
            await agent.sync(*[result(claim) for claim in claims[:5]])

    await asyncio.gather(traffic(), *[store.backup(tmp_path / f"copy{n}.db") for n in range(3)])
    for n in range(3):
        restore(tmp_path / f"copy{n}.db", f"sqlite:///{tmp_path}/r{n}.db", now_ms=START_MS)
        async with stores(f"sqlite:///{tmp_path}/r{n}.db") as open_again:
            assert await (await open_again(ManualClock())).check() == []


async def test_restore_refuses_what_is_not_a_backup(sqlite_url: str, tmp_path: Path) -> None:
    """Neither another file nor none, and never over a store that is there."""
    other = tmp_path / "other"
    other.write_text("not a database, whatever its name may say" * 100)
    for source in (other, tmp_path / "none.db"):
        with pytest.raises(InvalidInput):
            restore(source, sqlite_url, now_ms=START_MS)
    async with stores(sqlite_url) as open_one:
        store = await open_one(ManualClock())
        await store.backup(tmp_path / "copy.db")
        with pytest.raises(Conflict, match="in use"):
            restore(tmp_path / "copy.db", sqlite_url, now_ms=START_MS)
        await store.close()
        with pytest.raises(Conflict, match="there is a statestore"):
            restore(tmp_path / "copy.db", sqlite_url, now_ms=START_MS)


async def test_who_is_refused_during_a_restore_leaves_nothing_in_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that is started too early, as its manager may do again and again."""
    copy, path = tmp_path / "copy.db", tmp_path / "state" / "store.sqlite"
    migrated_store(copy)
    marked, early = copying._mark_restored, []

    def marking(*args: Any) -> None:
        with pytest.raises(Conflict, match="in use"):
            asyncio.run(_open(f"sqlite:///{path}"))
        early.append(path.exists())
        marked(*args)

    monkeypatch.setattr(copying, "_mark_restored", marking)
    await asyncio.to_thread(restore, copy, f"sqlite:///{path}", now_ms=START_MS)
    assert early == [False]
    async with stores(f"sqlite:///{path}") as open_one:
        assert (await open_one(ManualClock())).unsure_since() == START_MS


def test_what_appears_where_a_copy_is_being_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who copies is told so: it was made by something that knows of no lock."""
    copy, path = tmp_path / "copy.db", tmp_path / "store.sqlite"
    migrated_store(copy)
    monkeypatch.setattr(copying, "_mark_restored", lambda *_: path.write_text("other"))
    with pytest.raises(Conflict, match=r"store\.sqlite appeared while it was being made"):
        restore(copy, f"sqlite:///{path}", now_ms=START_MS)
    assert path.read_text() == "other"


@pytest.mark.parametrize("beside", ["-wal", "-shm", "-journal"])
def test_restore_refuses_to_stand_beside_the_log_of_another_store(tmp_path: Path, beside: str) -> None:
    """SQLite would write that over what was restored."""
    url, left = f"sqlite:///{tmp_path}/store.sqlite", tmp_path / f"store.sqlite{beside}"
    migrated_store(tmp_path / "copy.db")
    left.write_bytes(b"of before")
    with pytest.raises(Conflict, match=f"store.sqlite{beside} of another statestore is left in {tmp_path}"):
        restore(tmp_path / "copy.db", url, now_ms=START_MS)
    assert left.read_bytes() == b"of before"
    assert not (tmp_path / "store.sqlite").exists()
    (tmp_path / "store.sqlite").touch()
    with pytest.raises(Conflict, match="there is a statestore") as told:
        restore(tmp_path / "copy.db", url, now_ms=START_MS)
    assert told.value.hint == f"move store.sqlite, store.sqlite{beside} away together first"


async def test_what_a_killed_dispatcher_left_does_not_come_into_a_restored_store(tmp_path: Path) -> None:
    """Where its database alone was moved away: it is told, and with its log away too the store is that of the copy."""
    path, copy = tmp_path / "store.sqlite", tmp_path / "copy.db"
    async with stores(f"sqlite:///{path}") as open_one:
        store = await open_one(ManualClock())
        await store.backup(copy)
        await store.set_fact("mine", "later than the copy")
        log = path.with_name("store.sqlite-wal").read_bytes()
    path.unlink()
    path.with_name("store.sqlite-wal").write_bytes(log)
    with pytest.raises(Conflict, match=r"store\.sqlite-wal of another statestore"):
        restore(copy, f"sqlite:///{path}", now_ms=START_MS)
    path.with_name("store.sqlite-wal").rename(tmp_path / "away")
    restore(copy, f"sqlite:///{path}", now_ms=START_MS)
    async with stores(f"sqlite:///{path}") as open_one:
        restored = await open_one(ManualClock())
        assert (restored.fact("mine"), restored.restored_ms()) == (None, START_MS)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE tasks SET token = NULL WHERE id = 2", "held tasks without a whole lease: 2"),
        ("UPDATE tasks SET ended_ms = 5 WHERE id = 3", "live tasks with an end: 3"),
        ("UPDATE tasks SET ended_ms = NULL WHERE id = 1", "ended tasks without an end: 1"),
        ("UPDATE tasks SET state = 'queued' WHERE id = 2", "tasks with a lease that are not held: 2"),
        ("UPDATE tasks SET state = 'running' WHERE id = 2", "running tasks without a start: 2"),
        ("UPDATE tasks SET instance = 'none-0' WHERE id = 2", "unknown or gone: 2"),
        ("DELETE FROM specs WHERE task = 3", "tasks without a specification: 3"),
        ("DELETE FROM attempts WHERE task = 1", "tasks whose attempts are not all there: 1"),
        ("UPDATE tasks SET token = 2000000000000000 WHERE id = 2", "tasks with a token from the future: 2"),
        ("UPDATE instances SET vm = 'one', state = 'idle'", "VMs of more than one instance: one"),
        ("UPDATE instances SET batch = 'batch'", "batches with more instances than slots: batch"),
        # As if both were adopted, which have no deadline: with a VM each is one of the slots all the same.
        (
            "UPDATE instances SET batch = 'batch', boot_deadline_ms = 0, vm = 'vm-' || id",
            "batches with more instances than slots: batch",
        ),
        ("UPDATE counters SET value = 7 WHERE name = 'succeeded'", "1 tasks are succeeded, the counter says 7"),
        ("UPDATE counters SET value = 2 WHERE name = 'task'", "task 4 is newer than the counter, 2"),
        ("UPDATE tasks SET priority = 3 WHERE id = 3", "memory and tables differ in waiting tasks: 3"),
    ],
)
async def test_check_finds_contradictions(opens: OpenStore, url: str, damage: str, words: str) -> None:
    """Each invariant, broken by hand behind the store's back, is named with the offender."""
    store = await opens(ManualClock())
    await _lived_in(store)
    assert await store.check() == []
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text(damage))
    engine.dispose()
    problems = await store.check()
    assert any(words in problem for problem in problems), problems


async def test_check_compares_the_vms_of_a_launch_that_are_gone(opens: OpenStore, url: str) -> None:
    """Where a slot still looks for its VM: it must not take one of those."""
    store = await opens(ManualClock())
    slots = [instance(slot=slot, state=InstanceState.INTENDED) for slot in range(2)]
    await store.intend(intent(slots=2), slots)
    await store.change([InstanceChange(slot.id, InstanceEvent.LAUNCH) for slot in slots])
    await store.change([InstanceChange(slots[0].id, InstanceEvent.BOUND, {"vm": VmId("vm-1")})])
    await store.change([InstanceChange(slots[0].id, InstanceEvent.GONE)])
    assert await store.check() == []
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE instances SET vm = 'vm-2' WHERE state = 'gone'"))
    engine.dispose()
    assert any("memory and tables differ in VMs that are gone" in problem for problem in await store.check())


async def _open(url: str, *, create: bool = True) -> None:
    store = await open_store(url, clock=ManualClock(), entropy=CountingEntropy(), executor=Inline(), create=create)
    await store.close()


@pytest.mark.parametrize("url", ["nonsense", "mysql://h/d", "sqlite://", "sqlite:///:memory:"])
async def test_a_url_that_is_none_is_refused(url: str) -> None:
    """The error names the setting and shows what a good one looks like."""
    with pytest.raises(InvalidInput) as refused:
        await _open(url)
    assert refused.value.place == "store.url"
    assert "postgresql+psycopg://" in refused.value.hint


async def test_opening_can_refuse_to_create(sqlite_url: str, tmp_path: Path) -> None:
    """`create=False` leaves no file behind."""
    with pytest.raises(InvalidInput, match="there is no statestore"):
        await _open(sqlite_url, create=False)
    assert list(tmp_path.iterdir()) == []


async def test_a_database_that_cannot_be_read_says_so(sqlite_url: str, tmp_path: Path) -> None:
    """Not a database, or not reachable: StoreUnavailable with the reason, and the lock is free again."""
    (tmp_path / "store.db").write_text("something else" * 1000)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="not a database"):
            await _open(sqlite_url)
    with pytest.raises(StoreUnavailable):
        await _open("postgresql+psycopg://nobody@127.0.0.1:1/none")


async def test_a_lost_connection_is_an_error_and_then_forgotten(postgres_url: str, postgres_server: str) -> None:
    """PostgreSQL ends the writer's session: that call fails cleanly, the next one has a new session."""
    async with stores(postgres_url) as open_one:
        store = await open_one(ManualClock())
        await store.submit([spec()])
        admin = sa.create_engine(postgres_server, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            name = sa.make_url(postgres_url).database
            connection.execute(
                sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"), {"name": name}
            )
        admin.dispose()
        assert await store.submit([spec()]) == [2]
        assert [task.id for task in await store.tasks(TaskFilter())] == [1, 2]
        assert await store.check() == []
