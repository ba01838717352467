"""Root runs commands on the state of a service: all that they make there is the service's, who must go on with it."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cloud_dispatch import drivers, safekeeping
from cloud_dispatch.cli.main import run
from cloud_dispatch.config import secrets
from cloud_dispatch.install import copies, packing
from cloud_dispatch.provider.pricebook import Told
from cloud_dispatch.provider.priced import save
from cloud_dispatch.safekeeping import NOTE, read_note
from cloud_dispatch.statestore.lock import FileLock, this_process
from tests.migrated import migrated_store

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may give files to others")
CONFIG = """
[dispatcher]
deployment = "lab"
state_dir = "{state}"
listen = "127.0.0.1:7799"
[profiles.local]
driver = "local"
[pools.default]
profiles = ["local"]
"""


@pytest.fixture
def tmp_path(open_folder: Path) -> Path:
    return open_folder


@pytest.fixture
def nobody() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


@pytest.fixture
def theirs(tmp_path: Path, nobody: pwd.struct_passwd) -> Callable[[str], Path]:
    """Makes state folders of a service, which root has made and given away."""

    def make(name: str) -> Path:
        state = tmp_path / name / "state"
        state.parent.mkdir()
        state.mkdir(mode=0o700)
        os.chown(state, nobody.pw_uid, nobody.pw_gid)
        (tmp_path / name / "config.toml").write_text(CONFIG.format(state=state))
        return state

    return make


def root(state: Path, *words: str) -> None:
    """A command of root's on that state."""
    assert run([*words, "--config", str(state.parent / "config.toml")]) == 0, words


def of_root_alone(path: Path) -> Path:
    """A file that only root may read."""
    path.write_text("of root alone")
    path.chmod(0o600)
    return path


def check(state: Path, nobody: pwd.struct_passwd) -> None:
    """All of it is the service's, and it gets along with it: a process of its own, as that user."""
    others = [str(path) for path in (state, *state.rglob("*")) if path.lstat().st_uid != nobody.pw_uid]
    assert others == []
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(nobody.pw_gid)
            os.setuid(nobody.pw_uid)
            go_on(state)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def go_on(state: Path) -> None:
    """What a dispatcher does that starts there, as far as it needs rights."""
    lock = FileLock(state / "store.sqlite")
    lock.take(this_process(1))
    with closing(sqlite3.connect(state / "store.sqlite")) as store:
        store.execute("PRAGMA journal_mode=WAL")
        store.execute("UPDATE counters SET value = value")
        store.commit()
    for name in copies.FOLDERS:
        for file in (state / name).glob("*"):
            file.read_bytes()
    if (state / NOTE).exists():
        assert read_note(state).at_ms
    for copy in copies.there(state / "backups"):
        shutil.rmtree(copy)
    lock.release()


@pytest.fixture
def served(theirs: Callable[[str], Path], nobody: pwd.struct_passwd) -> Path:
    """A state on which a dispatcher has run, stopped by now."""
    state = theirs("served")
    migrated_store(state / "store.sqlite")
    with closing(sqlite3.connect(state / "store.sqlite")) as store:
        store.execute("INSERT INTO facts (name, value) VALUES ('store-id', 'sabc')")
        store.commit()
    for name in copies.FOLDERS:
        (state / name).mkdir(mode=0o700)
        (state / name / "one").write_text("one")
        (state / name / "one").chmod(0o600)
    for path in state.rglob("*"):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return state


def test_what_root_copies_and_says_of_a_state_is_its_owners(served: Path, nobody: pwd.struct_passwd) -> None:
    """Copies that the service's own timer deletes one day, the note that it reads, the lock and the log of a store."""
    root(served, "backup")
    check(served, nobody)
    (served / "store.sqlite.lock").unlink()
    for words in (
        ["db", "check"], ["db", "restored"], ["db", "compact"], ["db", "downgrade", "--to", "0001"], ["token", "new"],
    ):  # fmt: skip
        root(served, *words)
        check(served, nobody)


@pytest.mark.parametrize("kind", ["credential", "env"])
def test_what_root_alone_reads_of_the_store_is_read_by_root(
    kind: str, served: Path, theirs: Callable[[str], Path], nobody: pwd.struct_passwd, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where systemd takes it from for the services: the commands that root types, and those that `upgrade` has run,
    have no systemd before them, and work with the rights of the state's owner."""
    monkeypatch.setattr(secrets, "FOLDER", tmp_path / "credentials")
    monkeypatch.setattr(secrets, "ENVIRONMENT", tmp_path / "environment")

    def told(state: Path) -> None:
        url = f"sqlite:///{state / 'store.sqlite'}"
        secrets.FOLDER.mkdir(mode=0o700, exist_ok=True)
        (secrets.FOLDER / "STORE").write_text(url)
        secrets.ENVIRONMENT.write_text(f"STORE={url}\n")
        secrets.ENVIRONMENT.chmod(0o600)
        config = state.parent / "config.toml"
        config.write_text(f'{config.read_text()}[store]\nurl = "{kind}:STORE"\n')

    told(served)
    for words in (
        ["backup"], ["db", "check"], ["db", "restored"], ["db", "compact"], ["db", "revision"],
        ["db", "downgrade", "--to", "0001"],
    ):  # fmt: skip
        root(served, *words)
    (copy,) = copies.there(served / "backups")
    packing.pack(copy, tmp_path / "packed")
    packed = (tmp_path / "packed").read_bytes()
    monkeypatch.setattr(safekeeping, "Bucket", lambda *_: _Bucket([packed]))
    for source in (str(copy), "s3://lab/copies/latest"):
        fresh = theirs(f"fresh{len(source)}")
        told(fresh)
        root(fresh, "restore", source)
        check(fresh, nobody)
    check(served, nobody)


def test_what_root_brings_back_is_its_owners(
    served: Path, theirs: Callable[[str], Path], nobody: pwd.struct_passwd, tmp_path: Path
) -> None:
    """On a new control VM, before the service has run: from a folder, from a file, and the keys alone."""
    kept = tmp_path / "kept"
    root(served, "backup", "--into", str(kept))
    (copy,) = copies.there(kept)
    assert copy.stat().st_uid == 0, "what root keeps elsewhere is root's"
    for name, words in {"folder": [str(copy)], "file": [str(copy / copies.STORE)]}.items():
        state = theirs(name)
        root(state, "restore", *words)
        check(state, nobody)
    state = theirs("keys")
    root(state, "restore", "--keys-only", str(copy))
    assert {path.name: path.stat().st_uid for path in state.iterdir()} == dict.fromkeys(copies.FOLDERS, nobody.pw_uid)


def test_links_of_the_service_lead_root_to_nothing_of_roots(
    served: Path, theirs: Callable[[str], Path], tmp_path: Path
) -> None:
    """Who may write to the state is its operator, and not root: what the service can't read is in no copy, wherever
    that is made, and comes into no state."""
    secret = of_root_alone(tmp_path / "secret")
    (served / "tls" / "loot").symlink_to(secret)
    config = ["--config", str(served.parent / "config.toml")]
    for into in ([], ["--into", str(tmp_path / "elsewhere")]):
        assert run(["backup", *into, *config]) != 0
    (served / "tls" / "loot").unlink()
    root(served, "backup")
    (copy,) = copies.there(served / "backups")
    (copy / "tls" / "loot").symlink_to(secret)
    os.lchown(copy / "tls" / "loot", *os.stat(served)[4:6])
    fresh = theirs("fresh")
    assert run(["restore", str(copy), "--config", str(fresh.parent / "config.toml")]) != 0
    found = [path for path in tmp_path.rglob("*") if path.is_file() and path != secret and not path.is_symlink()]
    assert [path for path in found if b"of root alone" in path.read_bytes()] == []


@pytest.mark.parametrize("words", [
    ["token", "new"], ["db", "check"], ["db", "restored"], ["db", "compact"], ["db", "downgrade", "--to", "0001"],
    ["backup"],
], ids=" ".join)  # fmt: skip
def test_names_of_the_service_lead_no_command_of_roots_elsewhere(
    served: Path, words: list[str], tmp_path: Path, nobody: pwd.struct_passwd
) -> None:
    """Whatever the service has put in place of what a command writes: nothing of root's is changed, made or given away,
    neither in a folder that a name leads to nor in a file."""
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    migrated_store(own / "store.sqlite")
    (own / "note").write_text("of root alone")
    for path in own.iterdir():
        path.chmod(0o600)
    before = {path.name: (path.read_bytes(), path.stat()[4:6]) for path in own.iterdir()}
    config = ["--config", str(served.parent / "config.toml")]
    for name, target in {
        "keys": own, "store.sqlite": own / "store.sqlite", "store.sqlite.lock": own / "note", "backups": own,
    }.items():  # fmt: skip
        there, aside = served / name, served / "aside"
        if there.exists():
            there.rename(aside)
        there.symlink_to(target)
        os.lchown(there, nobody.pw_uid, nobody.pw_gid)
        run([*words, *config])
        there.unlink(missing_ok=True)
        if aside.exists():
            aside.rename(there)
        assert {path.name: (path.read_bytes(), path.stat()[4:6]) for path in own.iterdir()} == before, name


def test_a_lock_that_is_another_name_of_roots_file_is_not_given_away(
    served: Path, tmp_path: Path, nobody: pwd.struct_passwd
) -> None:
    """As where the kernel lets a user make such names."""
    note = of_root_alone(tmp_path / "note")
    (served / "store.sqlite.lock").unlink(missing_ok=True)
    os.link(note, served / "store.sqlite.lock")
    run(["db", "restored", "--config", str(served.parent / "config.toml")])
    assert (note.read_text(), note.stat().st_uid) == ("of root alone", 0)


def test_prices_that_root_asks_for_are_kept_as_the_service_s(served: Path, nobody: pwd.struct_passwd) -> None:
    """The dispatcher writes them anew some day; and no link of it leads root elsewhere."""
    files = drivers._OwnersFiles(served)
    asyncio.run(files.run(save, served / "providers" / "aws" / "prices.json", Told()))
    check(served, nobody)


def test_what_root_copies_for_a_bucket_is_read_as_the_service(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the copy and its way there the service may have changed it."""
    secret = of_root_alone(tmp_path / "secret")
    made = copies.make

    def changed(*told: Any) -> Path:
        copy = made(*told)
        (copy / "tls" / "loot").symlink_to(secret)
        return copy

    monkeypatch.setattr(copies, "make", changed)
    sent: list[bytes] = []
    monkeypatch.setattr(safekeeping, "Bucket", lambda *_: _Bucket(sent))
    assert run(["backup", "--into", "s3://lab/copies", "--config", str(served.parent / "config.toml")]) != 0
    assert sent == []


def test_a_database_is_asked_with_the_home_of_the_service(
    served: Path, nobody: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What talks to PostgreSQL looks for certificates in the home of who asks, and goes no further where it may not
    look: with the rights of the service and the home of root no database would be reached that wants TLS."""
    pytest.importorskip("psycopg")
    closed = tmp_path / "root"
    closed.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(closed))
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"postgresql://u@127.0.0.1:{server.getsockname()[1]}/x?sslmode=require"
        config = served.parent / "config.toml"
        config.write_text(f'{config.read_text()}[store]\nurl = "{url}"\n')
        heard: list[bytes] = []
        answering = Thread(target=_wants_tls, args=(server, heard))
        answering.start()
        assert run(["db", "check", "--config", str(config)]) != 0
        answering.join()
    assert heard == [b"\x16"], "it begins with TLS"
    assert os.environ["HOME"] == str(closed)


def _wants_tls(server: socket.socket, heard: list[bytes]) -> None:
    """A PostgreSQL that takes the offer of TLS; what it hears next, which is nothing where its asker gives up."""
    asker = server.accept()[0]
    with asker:
        asker.recv(8)
        asker.sendall(b"S")
        heard.append(asker.recv(1))


class _Bucket:
    address = "s3://lab/copies"

    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent

    def send(self, file: Path, name: str) -> None:
        self._sent.append(file.read_bytes())

    def prune(self, name: str, keep: int) -> None:
        """Nothing is there."""

    def fetch(self, name: str, file: Path) -> str:
        file.write_bytes(self._sent[-1])
        return name


def test_a_root_that_may_give_nothing_away_goes_on(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without that right: what it makes is its own, and it works."""

    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refused)
    monkeypatch.setattr(os, "chown", refused)
    monkeypatch.setattr(os, "seteuid", refused)
    root(served, "db", "restored")
    mine = (os.getegid(), os.getgroups())
    root(served, "backup")
    assert (os.getegid(), os.getgroups()) == mine
    assert (served / "store.sqlite.lock").stat().st_uid == 0
