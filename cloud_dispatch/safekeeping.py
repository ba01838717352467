"""Copies of a dispatcher's state as configured: made, listed, and brought back. A part of the composition root.

Owns which places a copy goes to, and the note of how the last one went, by which the dispatcher tells its operator.
What root does in the state is done with the rights of its owner.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cloud_dispatch import durable, statestore
from cloud_dispatch.config import Config
from cloud_dispatch.config.places import BUCKET_FORMS
from cloud_dispatch.domain.durations import about
from cloud_dispatch.domain.errors import Conflict, DispatchError, InvalidInput, NotFound
from cloud_dispatch.install import buckets, copies, packing, restoring
from cloud_dispatch.install.buckets import Bucket
from cloud_dispatch.install.workplace import workplace
from cloud_dispatch.ownership import as_owner
from cloud_dispatch.ports.clock import Clock

#: In the state folder: how the last copy went.
NOTE = "backup.json"


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """When there was a copy at the configured place for the last time (0: never), where, and why not since. `later`: a
    copy of the same statestore there whose name is of a later moment, "" without one."""

    at_ms: int = 0
    made: str = ""
    failed: str = ""
    later: str = ""


@dataclass(frozen=True)
class Kept:
    """A copy that there is. `store`: of which statestore, as far as it tells."""

    at: str
    place: str
    store: str
    size: int


@contextmanager
def as_stores_owner(config: Config) -> Iterator[str]:
    """The statestore's URL, and the rights of the state's owner for as long. What secret is in it is looked for before:
    it may lie where root alone reads."""
    url = config.store_url
    with as_owner(config.state_dir):
        yield url


def to_file(config: Config, target: Path) -> None:
    """Copy the statestore to `target`, whether or not a dispatcher runs on it."""
    statestore.backup(config.store_url, target)


def make(config: Config, clock: Clock, into: str = "", keep: int = 0) -> list[str]:
    """A copy of all that a new control VM needs, `into` a place and `keep` of them there, or as configured: where it is
    a bucket, the copy is in the folder of this machine too. The places that it is at. What was made stays, whatever
    fails afterwards; the note says how it went at the configured place."""
    place = _told(into) or config.backup.into
    with as_owner(config.state_dir):
        note, later = None if into else read_note(config.state_dir), ""
    try:
        made = _made(config, place, keep or config.backup.keep, clock.now())
        if note is not None:
            later = _later(config, clock.now())
    except (DispatchError, OSError) as error:
        if note is not None:
            with suppress(OSError):  # where the disk is full it is the copy that is to be told of
                _write_note(config.state_dir, msgspec.structs.replace(note, failed=str(error)))
        raise
    if note is not None:
        _write_note(config.state_dir, Note(clock.now(), made[-1], later=later))
    return made


def _made(config: Config, place: str, keep: int, now_ms: int) -> list[str]:
    everything = config.backup.what == "everything"
    in_bucket = buckets.is_address(place)
    folder = config.backups if in_bucket or not place else Path(place)
    with as_stores_owner(config) as url:
        store = statestore.identity(url)
        # for a bucket it is packed beside
        needs = statestore.size(url) * (2 if in_bucket else 1) if everything else 0
    copied = functools.partial(statestore.backup, url) if everything else None
    room = copies.Room(needs, config.limits.disk_reserve)
    made = copies.make(folder, config.state_dir, now_ms, store, keep, copied, room)
    if not in_bucket:
        return [str(made)]
    bucket, name = Bucket(place, config.backup.region), buckets.name_of(now_ms, store)
    with as_owner(made), _scratch(config.state_dir) as folder, durable.naming(config.state_dir):
        packing.pack(made, folder / name)
        bucket.send(folder / name, name)
    bucket.prune(name, keep)
    return [str(made), f"{bucket.address}/{name}"]


def _later(config: Config, now_ms: int) -> str:
    """The newest copy at the configured place, where it is of this statestore and its name says that it was made after
    now; "" without one. A clock was ahead, or is behind: `latest` is that one for so long."""
    with as_stores_owner(config) as url:
        store = statestore.identity(url)
    newest = max((one for one in listed(config) if one.store == store), key=lambda one: one.at, default=None)
    return newest.place if newest is not None and newest.at > buckets.moment(now_ms) else ""


def listed(config: Config, place: str = "") -> list[Kept]:
    """The copies at `place`, or those at the configured one and on this machine; the oldest first. NotFound for a
    folder that was asked for and is not there."""
    asked, place = place, _told(place) or config.backup.into
    found = []
    if not buckets.is_address(place) or place == config.backup.into:
        folder = config.backups if buckets.is_address(place) or not place else Path(place)
        if asked and not buckets.is_address(asked) and not folder.is_dir():
            raise NotFound(f"there is no folder {folder}")
        found = [
            Kept(copies.moment_of(one), str(one), copies.store_of(one), _size(one)) for one in copies.there(folder)
        ]
    if buckets.is_address(place):
        bucket = Bucket(place, config.backup.region)
        found += [Kept(one.at, f"{bucket.address}/{one.name}", one.store, one.size) for one in bucket.copies()]
    return found


def restore(config: Config, clock: Clock, source: str, *, keys_only: bool = False) -> str:
    """Make the statestore, keys and certificates from a copy: a file, a folder, an address of one, or `latest` of the
    configured place; `keys_only`: without the statestore, since its database is there still. What it was made from.
    Conflict where there is one already, in use or not; NotFound where there is no copy. If this is cut off no
    dispatcher starts on what is there, and a second time the rest of it is done."""
    url = "" if keys_only else config.store_url  # looked for by whoever types it: root alone may read it
    with as_owner(config.state_dir):
        owner = statestore.describe_owner(url) if url else None
    if owner is not None:
        raise Conflict(f"the statestore is in use by {owner}: nothing was restored", hint="stop the dispatcher first")
    if source == buckets.LATEST:
        source = f"{config.backup.into or config.backups}/{buckets.LATEST}"
    if not buckets.is_address(_told(source)):
        found = _of_folder(Path(source))
        if not found.exists():
            raise NotFound(f"there is no copy {found}", hint="`cloud-dispatch backups` lists those that there are")
        _bring(config.state_dir, url, clock, found, str(found))
        return str(found)
    place, name = buckets.split(source)
    config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    bucket = Bucket(place, config.backup.region)
    with as_owner(config.state_dir), _scratch(config.state_dir) as folder, durable.naming(config.state_dir):
        name = bucket.fetch(name, folder / "copy.tar.gz")
        packing.unpack(folder / "copy.tar.gz", folder / "copy")
        _bring(config.state_dir, url, clock, folder / "copy", address := f"{bucket.address}/{name}")
    return address


def came_back(config: Config, clock: Clock) -> None:
    """Say of the statestore that it is one of before, by a snapshot or the database's own backups."""
    with as_stores_owner(config) as url:
        statestore.came_back(url, now_ms=clock.now())


def _told(place: str) -> str:
    """InvalidInput for what is meant as a place in a bucket and is none."""
    if "://" in place and not buckets.is_address(place):
        raise InvalidInput(f"{place} is no place in a bucket", hint=BUCKET_FORMS)
    return place


def _of_folder(source: Path) -> Path:
    if source.name != buckets.LATEST or source.exists():
        return source
    return copies.latest(source.parent) or source


def _bring(state: Path, url: str, clock: Clock, source: Path, told: str) -> None:
    """The statestore is there as a whole or not at all, and comes last: where it is, the rest is too. `url`: where it
    goes to, "" for nowhere. `told`: what the copy is called."""
    kept = source.is_dir()
    if kept:
        copies.check(source, state)
    store = source / copies.STORE if kept else source
    wanted = bool(url) and (store.is_file() or not kept)
    if wanted:
        with as_owner(state):
            wanted = not (restoring.begun(state) == told and statestore.revision_of(url))
    if wanted:
        statestore.refuse_restore(store, url)
    restoring.begin(state, told)
    if kept:
        copies.bring(source, state)
    if wanted:
        statestore.restore(store, url, now_ms=clock.now())
    restoring.end(state)


def read_note(state: Path) -> Note:
    """How the last copy went."""
    try:
        return msgspec.json.decode((state / NOTE).read_bytes(), type=Note)
    except (OSError, msgspec.DecodeError):
        return Note()


def _write_note(state: Path, note: Note) -> None:
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with as_owner(state):
        durable.write(state / NOTE, msgspec.json.encode(note), 0o600)


class Watch:
    """What a dispatcher says of its copies. Somebody must have asked for any: by `backup.into`, or by making one.
    `config`: the configuration of now."""

    def __init__(self, config: Callable[[], Config], clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._since_ms = clock.now()

    def last_ms(self) -> int:
        """When the last one was made; 0: never."""
        return read_note(self._config().state_dir).at_ms

    def troubles(self) -> list[str]:
        """That the last copy is too old, and why, in words."""
        config = self._config()
        note = read_note(config.state_dir)
        if not config.backup.into and not note.at_ms and not note.failed:
            return []
        age = self._clock.now() - (note.at_ms or self._since_ms)
        if age <= config.backup.overdue_ms:
            wrong = "is named by a moment after the last copy's: a clock is or was wrong, and `latest` is that one"
            return [f"{note.later} {wrong}"] if note.later else []
        said = f"the last copy of the state was made {about(age)} ago"
        said = said if note.at_ms else "no copy of the state was made yet"
        return [f"{said}; the last try: {note.failed}" if note.failed else said]


def _scratch(state: Path) -> AbstractContextManager[Path]:
    """A folder for a while, on the disk of the state: nobody else may look into it."""
    return workplace(state, ".copy-", "", re.compile(r"\.copy-\w+"))


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
