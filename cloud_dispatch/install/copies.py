"""Copies of a dispatcher's state: a folder each, with the statestore and what agents know the dispatcher by. Owns their
names, that one is whole or not there, and which are kept.

The name is the moment and the id of the statestore that it is of (earlier versions gave the moment alone): only copies
of the same statestore make room for each other, as in a bucket.

Without the keys agents that run are not heard any more, and the operator's token is unknown; without the certificates
of before agents don't believe that it is their dispatcher.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cloud_dispatch import durable, statestore
from cloud_dispatch.config import OPERATOR_FILE, OPERATOR_HASH
from cloud_dispatch.domain.errors import Conflict, InvalidInput, Unavailable
from cloud_dispatch.domain.resources import format_bytes, format_size
from cloud_dispatch.install.workplace import workplace
from cloud_dispatch.ownership import as_owner

STORE = "store.sqlite"
#: Folders of the state that are copied with it, as far as they are there.
FOLDERS = ("keys", "tls")
_MOMENT = r"\d{8}T\d{6}Z"
_NAME = re.compile(rf"({_MOMENT})(?:-([A-Za-z0-9_-]+))?")

T = TypeVar("T")


def free_on_disk(folder: Path) -> int:
    """Bytes that who is not root may still write there."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Room:
    """What a copy takes of its folder's disk (0: nearly nothing, nobody looks), and what stays free for the statestore
    where that is on the same disk. `free`: says what is left there."""

    needs: int = 0
    reserve: int = 0
    free: Callable[[Path], int] = free_on_disk


def make(
    folder: Path, state: Path, now_ms: int, store: str, keep: int, copy_store: Callable[[Path], None] | None,
    room: Room = Room(),
) -> Path:  # fmt: skip
    """A copy of `state` in `folder`, made with `copy_store` (None: without the statestore) and named by its moment and
    the id `store`; then all but the newest `keep` of that are deleted. Conflict where there is one of this second. In
    the state itself it is the state's owner's, who has to delete it some day; elsewhere it stays that of whoever makes
    it. Where `room` is short, the oldest make way before; Unavailable where that is not enough."""
    moment = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    made = folder / f"{moment:%Y%m%dT%H%M%SZ}-{store}"
    if made.exists():
        raise Conflict(f"{made} exists", hint="one a second can be made")
    with as_owner(state) if folder.is_relative_to(state) else nullcontext():
        _make(made, state, store, keep, copy_store, room)
    return made


def _make(
    made: Path, state: Path, store: str, keep: int, copy_store: Callable[[Path], None] | None, room: Room
) -> None:
    folder = made.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    left = re.compile(rf"\.({_MOMENT}-)?{re.escape(store)}(-\w+)?\.part")
    with workplace(folder, f".{store}-", ".part", left) as part:
        _make_room(folder, state, [one for one in there(folder) if store_of(one) == store], room)
        if copy_store is not None:
            copy_store(part / STORE)
        for name in FOLDERS:
            if (state / name).is_dir():
                _write(_read(state / name), part / name)
        part.rename(made)
        durable.sync(folder)
    for old in too_many([one for one in there(folder) if store_of(one) == store], made, keep):
        shutil.rmtree(old)


def _make_room(folder: Path, state: Path, mine: list[Path], room: Room) -> None:
    """A copy that does not fit is not begun: on its way it would take the room that commits need. The oldest make way,
    whatever is to be kept, but for the last one: what is new is worth more than what is many."""
    if not room.needs:
        return
    same = state.exists() and folder.stat().st_dev == state.stat().st_dev
    wanted = room.needs + (room.reserve if same else 0)
    old = mine[:-1]
    while (free := room.free(folder)) < wanted:
        if free + sum(map(_size, old)) < wanted:  # then none of them makes way in vain
            beside = f", and {format_size(room.reserve)} stay for the statestore" if same and room.reserve else ""
            raise Unavailable(
                f"no room for a copy in {folder}: {format_bytes(free)} are free, it needs {format_bytes(room.needs)}"
                f"{beside}",
                hint="free space there, or have copies go to another disk (`backup.into`)",
            )
        shutil.rmtree(old.pop(0))


def _size(copy: Path) -> int:
    return sum(file.stat().st_size for file in copy.rglob("*") if file.is_file())


def there(folder: Path) -> list[Path]:
    """The copies in `folder`, the oldest first."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(one for one in found if _NAME.fullmatch(one.name))


def too_many(there: Sequence[T], made: T, keep: int) -> list[T]:
    """Those of the copies `there`, the oldest first, that go where `keep` stay. `made`, of just now, is one of those
    that stay, whichever moment a clock gave it that is behind."""
    others = [one for one in there if one != made]
    return others[: max(len(others) + 1 - max(keep, 1), 0)]


def moment_of(copy: Path) -> str:
    """When it was made, as its name says."""
    return copy.name.partition("-")[0]


def store_of(copy: Path) -> str:
    """Of which statestore it is: as its name says, or else what is in it. "" where neither tells."""
    named = _NAME.fullmatch(copy.name)
    return named[2] if named and named[2] else statestore.identity_in(copy / STORE)


def latest(folder: Path) -> Path | None:
    """The newest copy in `folder`; None without one. InvalidInput where there are copies of several statestores. Those
    that don't tell which they are of count only where no other is."""
    last = {store_of(one): one for one in there(folder)}
    known = [one for store, one in last.items() if store] or list(last.values())
    if len(known) > 1:
        hint = f"name one: {', '.join(map(str, known))}"
        raise InvalidInput(f"{folder} has copies of {len(known)} statestores", hint=hint)
    return known[0] if known else None


def check(source: Path, state: Path) -> None:
    """InvalidInput where `source` is no copy; Conflict where `state` has other keys or certificates than it. By which
    hash the operator's token is known may differ: who made another one since goes on with that."""
    if not (source / STORE).is_file() and not (source / FOLDERS[0]).is_dir():
        hint = f"it has neither {STORE} nor {FOLDERS[0]}"
        raise InvalidInput(f"{source} is no copy of a dispatcher's state", hint=hint)
    for name in FOLDERS:
        kept, there = source / name, state / name
        if not kept.is_dir() or not there.is_dir():
            continue
        ours, copied = _texts(there), _texts(kept)
        if other := sorted(name for name in ours.keys() | copied.keys() if ours.get(name) != copied.get(name)):
            message = f"{there} holds something else than the copy: {', '.join(other)} differ"
            raise Conflict(message, hint=f"to have those of the copy move {there} away first")


def bring(source: Path, state: Path) -> None:
    """What belongs to the statestore in the copy `source`, to where a dispatcher has it, after `check`; what is there
    already is left. It is the owner's of `state`, also where root brings it. Where commands find an operator's token
    that one holds: a dispatcher that finds no hash of it makes it."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = {name: _read(source / name) for name in FOLDERS if (source / name).is_dir()}
    with as_owner(state):
        for name, files in kept.items():
            there = state / name
            if there.is_dir():
                continue
            part = state / f".{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            _write(files, part)
            if (state / OPERATOR_FILE).exists():
                (part / OPERATOR_HASH).unlink(missing_ok=True)
            part.rename(there)
        durable.sync(state)


def _read(folder: Path) -> dict[str, bytes]:
    """The files in `folder`, by name: as far as its owner may read them."""
    with as_owner(folder):
        return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}


def _write(files: Mapping[str, bytes], target: Path) -> None:
    target.mkdir(mode=0o700)
    for name, content in files.items():
        fd = os.open(target / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with durable.naming(target / name), os.fdopen(fd, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
    durable.sync(target)


def _texts(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in _read(folder).items() if name != OPERATOR_HASH}
