"""Copies as configured: where they go, how they come back, and that one hears of it where none is made."""

from __future__ import annotations

import functools
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from pydantic import Secret

from cloud_dispatch import bootstrap, durable, safekeeping
from cloud_dispatch.config import Config, Embedded, InvalidConfig, TomlFile, load
from cloud_dispatch.domain.errors import Conflict, InvalidInput, NotFound, StoreUnavailable, Unavailable
from cloud_dispatch.install import copies, restoring
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch.statestore import identity, size
from cloud_dispatch.statestore.lock import FileLock, this_process
from tests.fakes.clock import SetClock
from tests.migrated import migrate, migrated_store
from tests.providers.aws import moto_server
from tests.statestore import rotating

pytestmark = pytest.mark.process

HERE = "eu-central-1"
NOW = 1_700_000_000_000


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server.serving() as url:
        yield url


@pytest.fixture
def s3(moto: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in {
        "AWS_ENDPOINT_URL": moto, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    moto_server.reset(moto)
    made = boto3.client("s3", region_name=HERE)
    made.create_bucket(Bucket="lab-queue", CreateBucketConfiguration={"LocationConstraint": HERE})
    return made


def config(state: Path, **backup: Any) -> Config:
    sections = {"dispatcher": {"state_dir": str(state)}, "backup": backup}
    return load(Embedded({**sections, **Embedded().values}), plugin)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Of a dispatcher that has run."""
    folder = tmp_path / "state"
    folder.mkdir()
    migrated_store(folder / "store.sqlite")
    with sqlite3.connect(folder / "store.sqlite") as store:
        store.execute("INSERT INTO facts (name, value) VALUES ('store-id', 'sabc'), ('mine', '1')")
    store.close()
    for name in ("keys/join", "tls/ca.pem"):
        (folder / name).parent.mkdir()
        (folder / name).write_text(f"secret of {name}")
    return folder


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


def test_without_a_word_copies_are_in_the_state_folder(state: Path, clock: SetClock) -> None:
    told = config(state, keep=1)
    (first,) = safekeeping.make(told, clock)
    assert first == str(state / "backups" / "20231114T221320Z-sabc")
    clock.advance(1_000)
    (second,) = safekeeping.make(told, clock)
    assert [one.place for one in safekeeping.listed(told)] == [second]
    assert safekeeping.restore(config(state.parent / "new"), clock, f"{state}/backups/latest") == second
    assert identity(config(state.parent / "new").store_url) == "sabc"


def test_what_goes_into_a_bucket_is_in_the_folder_too_and_comes_back_from_there(
    s3: Any, state: Path, clock: SetClock, tmp_path: Path
) -> None:
    """Onto a machine that has nothing: statestore, keys and certificates."""
    told = config(state, into="s3://lab-queue/copies", region=HERE, keep=2)
    for _ in range(3):
        clock.advance(1_000)
        made = safekeeping.make(told, clock)
    assert made == [f"{state}/backups/20231114T221323Z-sabc", "s3://lab-queue/copies/20231114T221323Z-sabc.tar.gz"]
    found = safekeeping.listed(told)
    assert [one.at for one in found] == ["20231114T221322Z", "20231114T221323Z"] * 2
    assert {one.store for one in found} == {"sabc"}
    assert not [one for one in state.iterdir() if one.name.startswith(".copy")]
    for wanted in ("latest", made[-1], "s3://lab-queue/copies/latest"):
        new = tmp_path / f"new{len(wanted)}"
        assert safekeeping.restore(config(new, into=told.backup.into, region=HERE), clock, wanted) == made[-1]
        assert (new / "keys" / "join").read_text() == "secret of keys/join"
        assert (new / "tls" / "ca.pem").read_text() == "secret of tls/ca.pem"
        assert sorted(one.name for one in new.iterdir() if one.is_dir()) == ["keys", "tls"]
        with sqlite3.connect(new / "store.sqlite") as store:
            assert store.execute("SELECT value FROM facts WHERE name = 'mine'").fetchone() == ("1",)
        store.close()
    with pytest.raises(Conflict):
        safekeeping.restore(told, clock, "latest")


def test_a_copy_that_was_damaged_in_the_bucket_brings_nothing(
    s3: Any, state: Path, clock: SetClock, tmp_path: Path
) -> None:
    told = config(state, into="s3://lab-queue/copies", region=HERE)
    key = safekeeping.make(told, clock)[-1].removeprefix("s3://lab-queue/")
    body = s3.get_object(Bucket="lab-queue", Key=key)["Body"].read()
    s3.put_object(Bucket="lab-queue", Key=key, Body=body[: len(body) - 100])
    new = tmp_path / "new"
    with pytest.raises(InvalidInput, match=r"is no copy|is damaged"):
        safekeeping.restore(config(new, into=told.backup.into, region=HERE), clock, "latest")
    assert list(new.iterdir()) == []


def test_keys_alone_may_be_brought_back(state: Path, clock: SetClock, tmp_path: Path) -> None:
    """Where the database has outlived the control VM."""
    (made,) = safekeeping.make(config(state), clock)
    new = tmp_path / "new"
    safekeeping.restore(config(new), clock, made, keys_only=True)
    assert sorted(one.name for one in new.iterdir()) == ["keys", "tls"]


def killed_at(moment: int, work: Callable[[], object]) -> bool:
    """Have another process do it, which is killed when it would wait for the disk for that time (0: the first). False
    where it has ended before."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left, sync = iter(range(moment)), os.fsync

    def fsync(descriptor: int) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(descriptor)

    os.fsync = fsync
    try:
        work()
    finally:
        os._exit(0)


def test_keys_alone_are_brought_back_without_asking_for_the_secret_of_the_database(
    state: Path, clock: SetClock, tmp_path: Path
) -> None:
    """Which nobody may be able to tell yet: they are what the machine needs first."""
    (copy,) = safekeeping.make(config(state), clock)
    sections = {"dispatcher": {"state_dir": str(tmp_path / "new")}, "store": {"url": "env:CLOUD_DISPATCH_TEST_NONE"}}
    told = load(Embedded({**sections, **Embedded().values}), plugin)
    with pytest.raises(InvalidInput, match="CLOUD_DISPATCH_TEST_NONE"):
        safekeeping.restore(told, clock, copy)
    assert safekeeping.restore(told, clock, copy, keys_only=True) == copy
    assert (tmp_path / "new" / "keys" / "join").exists()


def test_what_finds_no_room_here_is_not_laid_on_the_bucket(
    s3: Any, state: Path, clock: SetClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, for which another one stands in that always is: its place is told, and nothing stays."""
    told = config(state, into="s3://lab-queue/copies", region=HERE)
    safekeeping.make(told, clock)
    new, real = tmp_path / "new", Path.open

    def opened(path: Path, *words: Any, **options: Any) -> Any:
        return real(Path("/dev/full") if path.name == "copy.tar.gz" and "wb" in words else path, *words, **options)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(OSError, match="No space left") as full:
        safekeeping.restore(config(new, into=told.backup.into, region=HERE), clock, "latest")
    assert full.value.filename == str(new)
    assert list(new.iterdir()) == []


def test_nothing_starts_on_what_a_restore_that_was_killed_has_left(
    state: Path, clock: SetClock, tmp_path: Path
) -> None:
    """Not with other keys than the copy's, nor with an empty statestore; a second time the rest of it is done."""
    (copy,) = safekeeping.make(config(state), clock)
    halves, moment = 0, 0
    while True:
        new = config(tmp_path / f"new{moment}")
        killed = killed_at(moment, lambda new=new: safekeeping.restore(new, clock, copy))  # type: ignore[misc]
        if not killed:
            break
        moment += 1
        if (new.state_dir / "restoring").exists():
            halves += 1
            with pytest.raises(Conflict, match="is not complete"):
                bootstrap.serve(new)
        else:
            assert not (new.state_dir / "keys").exists() or identity(new.store_url) == "sabc"
        if (new.state_dir / "restoring").exists() or not (new.state_dir / "keys").exists():
            safekeeping.restore(new, clock, copy)
        restoring.refuse_half(new.state_dir)
        assert identity(new.store_url) == "sabc"
        assert (new.state_dir / "keys" / "join").read_text() == "secret of keys/join"
        assert (new.state_dir / "tls" / "ca.pem").read_text() == "secret of tls/ca.pem"
        assert not [one.name for one in new.state_dir.iterdir() if one.name.startswith(".")]
    restoring.refuse_half(new.state_dir)
    assert halves > 5, "it was killed in between"


def test_what_is_refused_leaves_no_sign_of_a_restore(state: Path, clock: SetClock, tmp_path: Path) -> None:
    """A dispatcher that is there has to start again afterwards."""
    (copy,) = safekeeping.make(config(state), clock)
    with pytest.raises(Conflict, match="there is a statestore"):
        safekeeping.restore(config(state), clock, copy)
    (Path(copy) / "store.sqlite").write_text("damaged")
    with pytest.raises(InvalidInput, match="is not a backup"):
        safekeeping.restore(config(tmp_path / "new"), clock, copy)
    for folder in (state, tmp_path / "new"):
        restoring.refuse_half(folder)
    assert not (tmp_path / "new" / "keys").exists()


def test_another_copy_does_not_take_the_place_of_what_one_has_brought(
    state: Path, clock: SetClock, tmp_path: Path
) -> None:
    (copy,) = safekeeping.make(config(state), clock)
    new = config(tmp_path / "new")
    safekeeping.restore(new, clock, copy)
    restoring.begin(new.state_dir, "another")
    with pytest.raises(Conflict, match="there is a statestore"):
        safekeeping.restore(new, clock, copy)
    with pytest.raises(Conflict, match="the restore of another into"):
        restoring.refuse_half(new.state_dir)


def test_of_a_database_with_backups_of_its_own_the_keys_are_copied(
    s3: Any, state: Path, clock: SetClock, tmp_path: Path
) -> None:
    """By the statestore's name, as ever; another control VM gets them, and the database is as it was."""
    with rotating.database() as server:
        migrate(server.url("first").replace("postgresql://", "postgresql+psycopg://"))
        server.do("INSERT INTO facts (name, value) VALUES ('store-id', 'spg')")
        backup = {"into": "s3://lab-queue/copies", "region": HERE, "what": "keys"}

        def told(folder: Path) -> Config:
            sections = {"dispatcher": {"state_dir": str(folder)}, "backup": backup}
            return load(Embedded({**sections, "store": {"url": server.url("first")}, **Embedded().values}), plugin)

        assert size(told(state).store_url) > 0
        made = safekeeping.make(told(state), clock)
        assert made[-1] == "s3://lab-queue/copies/20231114T221320Z-spg.tar.gz"
        assert sorted(one.name for one in Path(made[0]).iterdir()) == ["keys", "tls"]
        new = tmp_path / "new"
        assert safekeeping.restore(told(new), clock, "latest") == made[-1]
        assert sorted(one.name for one in new.iterdir()) == ["keys", "tls"]
        assert identity(told(new).store_url) == "spg"


def test_as_long_as_copies_are_made_nobody_hears_of_them(state: Path, clock: SetClock) -> None:
    """Then how old the last one is, and what went wrong; a copy to elsewhere by hand is no such copy."""
    told = config(state, into=str(state.parent / "copies"), overdue="2h")
    watch = safekeeping.Watch(lambda: told, clock)
    assert (watch.troubles(), watch.last_ms()) == ([], 0)
    clock.advance(2 * 3_600_000 + 60_000)
    assert watch.troubles() == ["no copy of the state was made yet"]
    safekeeping.make(told, clock, into=str(state.parent / "other"))
    assert watch.troubles() == ["no copy of the state was made yet"]
    safekeeping.make(told, clock)
    assert (watch.troubles(), watch.last_ms()) == ([], clock.now())
    last = clock.now()
    clock.advance(3 * 3_600_000)
    (state / "store.sqlite").rename(state / "gone.sqlite")
    with pytest.raises(InvalidInput):
        safekeeping.make(told, clock)
    (said,) = watch.troubles()
    assert said.startswith("the last copy of the state was made 3h ago; the last try: ")
    assert "there is no statestore at" in said
    assert watch.last_ms() == last
    (state / "gone.sqlite").rename(state / "store.sqlite")
    safekeeping.make(told, clock)
    assert watch.troubles() == []


def test_a_copy_that_a_wrong_clock_has_named_is_told(state: Path, clock: SetClock) -> None:
    """It is the latest until that moment comes, whatever is copied meanwhile."""
    told = config(state, into=str(state.parent / "copies"))
    watch = safekeeping.Watch(lambda: told, clock)
    (ahead,) = safekeeping.make(told, SetClock(NOW + 24 * 3_600_000))
    (made,) = safekeeping.make(told, clock)
    (said,) = watch.troubles()
    assert said.startswith(f"{ahead} is named by a moment after the last copy's")
    assert Path(made).exists()
    clock.advance(48 * 3_600_000)
    safekeeping.make(told, clock)
    assert watch.troubles() == []


def test_a_copy_leaves_the_statestore_its_reserve(state: Path, clock: SetClock) -> None:
    """Where it can't, it is refused before anything is written, and one hears of it."""
    sections = {"dispatcher": {"state_dir": str(state)}, "limits": {"disk_reserve": "1000000GiB"}}
    told = load(Embedded({**sections, **Embedded().values}), plugin)
    with pytest.raises(Unavailable, match=r"no room for a copy in .*/backups: .* stay for the statestore"):
        safekeeping.make(told, clock)
    assert list((state / "backups").iterdir()) == []
    assert "no room for a copy" in safekeeping.read_note(state).failed


def test_a_bucket_that_fails_costs_no_copy_of_this_machine_and_is_told(
    s3: Any, state: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = config(state, into="s3://lab-other/copies", region=HERE)
    watch = safekeeping.Watch(lambda: told, clock)
    with pytest.raises(Unavailable, match="NoSuchBucket"):
        safekeeping.make(told, clock)
    assert [one.name for one in (state / "backups").iterdir()] == ["20231114T221320Z-sabc"]
    clock.advance(4 * 3_600_000)
    (said,) = watch.troubles()
    assert "NoSuchBucket" in said


def test_what_was_packed_when_it_was_killed_goes_with_the_next(s3: Any, state: Path, clock: SetClock) -> None:
    told = config(state, into="s3://lab-queue/copies", region=HERE)
    (state / ".copy-killed0").mkdir()
    (state / ".copy-killed0" / "copy.tar.gz").write_text("half")
    safekeeping.make(told, clock)
    assert not [one for one in state.iterdir() if one.name.startswith(".copy")]


def test_a_configuration_that_is_read_anew_says_when_copies_are_overdue(state: Path, clock: SetClock) -> None:
    told = [config(state, into=str(state.parent / "copies"), overdue="9h")]
    watch = safekeeping.Watch(lambda: told[0], clock)
    clock.advance(3 * 3_600_000)
    assert watch.troubles() == []
    told[0] = config(state, into=str(state.parent / "copies"), overdue="2h")
    assert watch.troubles() == ["no copy of the state was made yet"]


def test_nobody_asked_for_copies_and_nobody_is_told(state: Path, clock: SetClock) -> None:
    watch = safekeeping.Watch(lambda: config(state), clock)
    clock.advance(1_000 * 3_600_000)
    assert watch.troubles() == []


def test_places_are_checked_as_the_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[backup]\ninto = "copies"\n')
    assert load(TomlFile(tmp_path / "c.toml"), plugin).backups == tmp_path / "copies"
    for bad, said in (
        ({"into": "s4://x/y"}, "backup.into"),
        ({"into": "s3://UPPER/y"}, "expected a folder, s3://BUCKET/PREFIX"),
        ({"into": "az://account"}, "az://ACCOUNT/CONTAINER/PREFIX"),
        ({"what": "keys"}, "the statestore is on this machine, and nowhere else"),
        ({"region": "no region"}, "backup.region"),
    ):
        with pytest.raises(InvalidConfig, match=said):
            config(tmp_path, **bad)


def test_a_copy_that_is_not_there_is_not_found(state: Path, clock: SetClock, tmp_path: Path) -> None:
    """A file, or the latest of a folder that has none."""
    for source in ("nofile", "nope/latest"):
        with pytest.raises(NotFound, match="there is no copy"):
            safekeeping.restore(config(tmp_path / "new"), clock, str(tmp_path / source))


def test_that_a_dispatcher_runs_is_told_before_anything_else(state: Path, clock: SetClock) -> None:
    """Whatever is wrong besides: the keys that differ are those that it works with."""
    safekeeping.make(config(state), clock)
    (state / "keys" / "join").write_text("another")
    lock = FileLock(state / "store.sqlite")
    lock.take(this_process(NOW))
    try:
        for source in ("latest", "nofile"):
            with pytest.raises(Conflict, match=r"in use by pid .*stop the dispatcher first"):
                safekeeping.restore(config(state), clock, source)
    finally:
        lock.release()


def test_a_database_that_does_not_answer_is_told_as_that(state: Path, clock: SetClock) -> None:
    """Whether somebody has it open is the first question, and fails as any other does."""
    told = config(state)
    store = told.store.model_copy(update={"url": Secret("postgresql+psycopg://me@127.0.0.1:1/none")})
    with pytest.raises(StoreUnavailable):
        safekeeping.restore(told.model_copy(update={"store": store}), clock, "latest")


def test_on_a_full_disk_it_is_the_copy_that_is_told_of(
    state: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note of it finds no room either."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write", full)
    room = functools.partial(copies.Room, free=lambda folder: 0)
    monkeypatch.setattr(copies, "Room", room)
    with pytest.raises(Unavailable, match="no room for a copy"):
        safekeeping.make(config(state), clock)
