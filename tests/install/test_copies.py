"""Copies of a dispatcher's state: whole, kept in number, and brought back with what belongs to them."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Conflict, InvalidInput, Unavailable
from cloud_dispatch.install import copies
from tests.migrated import migrated_store

NOW = 1_700_000_000_000


def state(folder: Path) -> Path:
    for name in ("keys/join", "tls/ca.pem"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(f"secret of {name}")
    return folder


def copied(path: Path) -> None:
    path.write_text("rows")


def test_a_copy_has_all_that_a_new_control_vm_needs(tmp_path: Path) -> None:
    """Nobody else may read it."""
    made = copies.make(tmp_path / "copies", state(tmp_path / "old"), NOW, "sown", 3, copied)
    assert made.name == "20231114T221320Z-sown"
    assert {str(file.relative_to(made)) for file in made.rglob("*") if file.is_file()} == {
        "store.sqlite", "keys/join", "tls/ca.pem",
    }  # fmt: skip
    for path in (made.parent, made, made / "keys"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((made / "keys" / "join").stat().st_mode) == 0o600
    new = tmp_path / "new"
    copies.check(made, new)
    copies.bring(made, new)
    assert (new / "keys" / "join").read_text() == "secret of keys/join"
    assert (new / "tls" / "ca.pem").read_text() == "secret of tls/ca.pem"


def test_the_newest_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    folder, own = tmp_path / "copies", state(tmp_path / "old")
    made = [copies.make(folder, own, NOW + second * 1_000, "sown", 2, copied) for second in range(4)]
    assert sorted(one.name for one in folder.iterdir()) == [one.name for one in made[2:]]
    (folder / "notes.txt").write_text("mine")
    copies.make(folder, own, NOW + 9_000, "sown", 1, copied)
    assert (folder / "notes.txt").exists()
    assert len(list(folder.iterdir())) == 2
    with pytest.raises(Conflict):
        copies.make(folder, own, NOW + 9_000, "sown", 1, copied)


def test_the_one_that_was_just_made_stays_whatever_the_clock_says(tmp_path: Path) -> None:
    """With a clock that is behind it has the oldest name."""
    folder, own = tmp_path / "copies", state(tmp_path / "old")
    ahead = [copies.make(folder, own, NOW + second * 1_000, "sown", 2, copied) for second in (5, 6)]
    behind = copies.make(folder, own, NOW, "sown", 2, copied)
    assert copies.there(folder) == [behind, ahead[1]]
    assert copies.too_many([1, 2, 3], 1, 1) == [2, 3]
    assert copies.too_many([1, 2, 3], 3, 2) == [1]
    assert copies.too_many([1, 2, 3], 3, 4) == []
    assert copies.too_many([1], 1, 5) == []


def test_what_a_killed_copy_has_left_goes_with_the_next(tmp_path: Path) -> None:
    """As large as a whole one: one an hour would fill the disk. Before room is looked for, since it takes some; also
    what versions of before have left. That of another statestore is its own to delete, as what else lies there."""
    folder, own = tmp_path / "copies", state(tmp_path / "old")

    def dies(path: Path) -> None:
        path.write_text("half of the rows")
        os.kill(os.getpid(), signal.SIGKILL)

    for store in ("sown", "slost"):
        if not (child := os.fork()):
            copies.make(folder, own, NOW, store, 3, dies)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (folder / ".20231114T221319Z-sown.part").mkdir()
    (folder / ".snapshot").mkdir()
    assert len(list(folder.iterdir())) == 4
    (folder / ".sown-file.part").touch()
    seen: list[int] = []

    def free(where: Path) -> int:
        seen.append(len(list(where.rglob("store.sqlite"))))
        return 1

    made = copies.make(folder, own, NOW + 1_000, "sown", 3, copied, copies.Room(1, 0, free))
    assert seen == [1], "that of the other statestore"
    (others,) = {one.name for one in folder.iterdir()} - {made.name, ".snapshot", ".sown-file.part"}
    assert others.startswith(".slost")


def test_a_copy_that_another_process_makes_is_left_to_it(tmp_path: Path) -> None:
    """An operator makes one while the timer's is made."""
    folder, own = tmp_path / "copies", state(tmp_path / "old")
    (begun, begins), (goes, go) = os.pipe(), os.pipe()

    def slowly(path: Path) -> None:
        os.write(begins, b".")
        os.read(goes, 1)
        copied(path)

    if not (child := os.fork()):
        copies.make(folder, own, NOW, "sown", 3, slowly)
        os._exit(0)
    os.read(begun, 1)
    copies.make(folder, own, NOW + 1_000, "sown", 3, copied)
    os.write(go, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [one.name for one in copies.there(folder)] == ["20231114T221320Z-sown", "20231114T221321Z-sown"]
    assert len(list(folder.iterdir())) == 2


def test_the_oldest_make_way_before_where_there_is_no_room(tmp_path: Path) -> None:
    """And no more of them than have to, of the same statestore."""
    folder, own = tmp_path / "copies", state(tmp_path / "old")
    lost = copies.make(folder, own, NOW, "slost", 9, copied)
    made = [copies.make(folder, own, NOW + second * 1_000, "sown", 9, copied) for second in range(4)]
    each = copies._size(lost)
    room = copies.Room(each, 50, lambda where: each * 3 + 50 - each * len(copies.there(where)))  # for two
    assert room.free(folder) < 0
    with pytest.raises(Unavailable, match="and 50B stay for the statestore"):
        copies.make(folder, own, NOW + 9_000, "sown", 9, copied, copies.Room(2 * each, 50, room.free))
    assert copies.there(folder) == sorted([lost, *made]), "none makes way in vain"
    new = copies.make(folder, own, NOW + 9_000, "sown", 9, copied, room)
    assert copies.there(folder) == sorted([lost, made[3], new])


def test_the_last_copy_makes_no_way_for_one_that_is_not_made_yet(tmp_path: Path) -> None:
    folder, own = tmp_path / "copies", state(tmp_path / "old")
    only = copies.make(folder, own, NOW, "sown", 1, copied)
    with pytest.raises(Unavailable, match="no room for a copy"):
        copies.make(folder, own, NOW + 1_000, "sown", 1, copied, copies.Room(100, 0, lambda _: 99))
    assert list(folder.iterdir()) == [only]
    copies.make(folder, own, NOW + 1_000, "sown", 1, copied, copies.Room(100, 0, lambda _: 100))


def of_a_store(path: Path, store: str) -> None:
    migrated_store(path)
    with closing(sqlite3.connect(path)) as rows:
        rows.execute("INSERT INTO facts (name, value) VALUES ('store-id', ?)", (store,))
        rows.commit()


def test_a_store_that_was_begun_anew_makes_no_room_at_the_cost_of_the_lost_one(tmp_path: Path) -> None:
    """Also where copies are named as earlier versions did, by the moment alone: then what is in them tells."""
    folder, own = tmp_path / "copies", state(tmp_path / "old")
    for name, store in {"20231113T000000Z": "slost", "20231113T000001Z": "sown", "20231113T000002Z": ""}.items():
        (folder / name).mkdir(parents=True)
        if store:
            of_a_store(folder / name / copies.STORE, store)
    lost = copies.make(folder, own, NOW, "slost", 2, copied)
    made = [copies.make(folder, own, NOW + second * 1_000, "sown", 2, copied) for second in range(3)]
    assert [one.name for one in copies.there(folder)] == [
        "20231113T000000Z", "20231113T000002Z", lost.name, *(one.name for one in made[1:]),
    ]  # fmt: skip
    assert list(map(copies.store_of, copies.there(folder))) == ["slost", "", "slost", "sown", "sown"]
    assert [one.name for one in (folder / "20231113T000000Z").iterdir()] == [copies.STORE], "it was only read"


def test_the_latest_is_one_of_the_same_statestore(tmp_path: Path) -> None:
    """Where there are several, whoever restores has to say which; one that does not tell is the last resort."""
    folder, own = tmp_path / "copies", state(tmp_path / "old")
    assert copies.latest(folder) is None
    (folder / "20331113T000000Z").mkdir(parents=True)
    assert copies.latest(folder) == folder / "20331113T000000Z"
    first = copies.make(folder, own, NOW, "slost", 9, copied)
    second = copies.make(folder, own, NOW + 1_000, "slost", 9, copied)
    assert copies.latest(folder) == second
    other = copies.make(folder, own, NOW + 2_000, "sown", 9, copied)
    with pytest.raises(InvalidInput, match="copies of 2 statestores") as told:
        copies.latest(folder)
    assert str(second) in told.value.hint
    assert str(other) in told.value.hint
    assert str(first) not in told.value.hint


def test_a_copy_that_fails_is_not_there_and_costs_none_of_before(tmp_path: Path) -> None:
    folder, own = tmp_path / "copies", state(tmp_path / "old")
    before = copies.make(folder, own, NOW, "sown", 1, copied)

    def full(path: Path) -> None:
        path.write_text("ro")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        copies.make(folder, own, NOW + 1_000, "sown", 1, full)
    assert list(folder.iterdir()) == [before]


def test_other_keys_are_not_overwritten(tmp_path: Path) -> None:
    """Agents that run know the dispatcher by them; the same ones are no obstacle."""
    own = state(tmp_path / "old")
    made = copies.make(tmp_path / "copies", own, NOW, "sown", 1, copied)
    copies.check(made, own)
    (own / "keys" / "join").write_text("another")
    with pytest.raises(Conflict, match="keys"):
        copies.check(made, own)
    shutil.rmtree(made / "keys")
    copies.check(made, own)
    with pytest.raises(InvalidInput, match=r"store\.sqlite"):
        copies.check(tmp_path, own)


def test_what_differs_is_named(tmp_path: Path) -> None:
    """So that whoever has to decide knows about what."""
    own = state(tmp_path / "old")
    made = copies.make(tmp_path / "copies", own, NOW, "sown", 1, copied)
    (own / "tls" / "ca.pem").write_text("renewed")
    (own / "tls" / "more.pem").write_text("mine")
    with pytest.raises(Conflict, match=r"tls holds something else than the copy: ca\.pem, more\.pem differ"):
        copies.check(made, own)


def test_an_operators_token_that_is_newer_than_the_copy_holds(tmp_path: Path) -> None:
    """Where its hash is still there, and where the keys were moved away: commands have its clear copy."""
    own = state(tmp_path / "old")
    (own / "keys" / "operator.sha256").write_text("of before")
    made = copies.make(tmp_path / "copies", own, NOW, "sown", 1, copied)
    (own / "keys" / "operator.sha256").write_text("of now")
    copies.check(made, own)
    copies.bring(made, own)
    assert (own / "keys" / "operator.sha256").read_text() == "of now"
    (own / "operator.token").write_text("of now in clear")
    (own / "keys").rename(tmp_path / "away")
    copies.bring(made, own)
    assert not (own / "keys" / "operator.sha256").exists()
    copies.bring(made, tmp_path / "new")
    assert (tmp_path / "new" / "keys" / "operator.sha256").read_text() == "of before"
