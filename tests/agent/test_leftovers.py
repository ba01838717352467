"""What attempts leave outside of their folders is gone before anybody else could find it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.agent import forked, leftovers, privileges, separation
from cloud_dispatch.agent.identity import Config
from cloud_dispatch.agent.privileges import Users
from cloud_dispatch.agent.separation import Separation
from tests.agent.conftest import RunningAgent, until
from tests.agent.stub import StubDispatcher
from tests.agent.test_separation import separately


@pytest.mark.process
@separately
def test_what_an_attempt_left_where_everybody_may_write_goes_with_it(stub: StubDispatcher, agent: RunningAgent) -> None:
    """A file, a link and folders in /tmp and /dev/shm, also such as nobody may write to or enter; what a link led to
    stays, and nothing is said of it."""
    name = f"left-{agent.process.pid}"
    left = (
        f"echo secret > /tmp/{name}; mkdir -p /dev/shm/{name}/d; echo x > /dev/shm/{name}/d/f;"
        f"ln -s /etc /tmp/{name}.l;"
        f"mkdir -p /tmp/{name}.d/e/f; echo x > /tmp/{name}.d/e/f/g; chmod 0 /tmp/{name}.d/e; chmod 555 /tmp/{name}.d"
    )
    task = stub.submit(shell=f"{left}; ls -d /tmp/{name}* /dev/shm/{name}")
    result = stub.result(task)
    assert result.cause == "success"
    assert len(stub.logs[result.token].split()) == 4
    until(lambda: not [*Path("/tmp").glob(f"{name}*"), *Path("/dev/shm").glob(f"{name}*")])
    assert Path("/etc/passwd").exists()
    assert b"rm:" not in agent.console.read_bytes()


@pytest.mark.process
@separately
def test_a_vm_that_ends_leaves_nothing_where_everybody_may_write(
    stub: StubDispatcher, agent: RunningAgent, users: dict[str, str]
) -> None:
    """Others of the same machine may be given its uids; what its last attempts left goes at its end."""
    left = Path(f"/dev/shm/left-{agent.process.pid}")
    task = stub.submit(shell=f"touch {left}; sleep 600")
    stub.wait_started(task)
    until(left.exists)
    os.kill(agent.process.pid, signal.SIGTERM)
    agent.wait()
    assert not left.exists()


def test_whatever_is_left_a_vm_comes_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a kernel that has no process to spare keeps it from that, nor what does not even die."""
    at_its_end = Separation(Users(1, 1, 2, 3), str(tmp_path), Config(), "python3")

    def refused(_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "no process to spare")

    monkeypatch.setattr(separation, "fork", refused)
    at_its_end.clear()
    stuck = forked.fork(lambda: time.sleep(60))
    monkeypatch.setattr(separation, "fork", lambda _: stuck)
    monkeypatch.setattr(separation, "kill_each", lambda *_: None)
    monkeypatch.setattr(separation, "_CLEAR_S", 0)
    at_its_end.clear()
    os.kill(stuck, signal.SIGKILL)
    os.waitpid(stuck, 0)


def test_what_vanishes_meanwhile_keeps_nothing_else_from_going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others come and go in such a folder all the time."""
    for name in "abc":
        (tmp_path / name).touch()
    listed = os.scandir(tmp_path)
    entries = list(listed)
    listed.close()
    (tmp_path / "b").unlink()
    monkeypatch.setattr(leftovers.os, "scandir", lambda _: contextlib.nullcontext(iter(entries)))
    leftovers.forget(os.getuid(), [str(tmp_path)])
    assert os.listdir(tmp_path) == []


_MAKE_OBJECTS = """
import ctypes
libc = ctypes.CDLL(None)
made = libc.shmget(0, 4096, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600)
assert min(made) >= 0
print(*made)
"""


def made_by(uid: int) -> list[str]:
    """The kinds of System V's objects that `uid` has made."""
    kinds = ("shm", "sem", "msg")
    return [kind for kind in kinds if str(uid) in Path(f"/proc/sysvipc/{kind}").read_text().split()]


@pytest.mark.process
@separately
def test_what_an_attempt_left_in_the_kernel_goes_with_it(
    stub: StubDispatcher, agent: RunningAgent, users: dict[str, str]
) -> None:
    """System V's shared memory, semaphores and queues outlive whoever made them."""
    result = stub.result(stub.submit("python3", "-c", _MAKE_OBJECTS))
    assert result.cause == "success"
    assert len(stub.logs[result.token].split()) == 3
    first = int(users["agent_user"])
    until(lambda: not any(made_by(uid) for uid in range(first, first + 100)))


@separately
def test_what_another_user_left_in_the_kernel_stays(users: dict[str, str]) -> None:
    """And whoever made something is found by it."""
    uids = int(users["agent_user"]) + 1, int(users["agent_user"]) + 2

    def make() -> None:
        os.setuid(uids[0])
        os.execlp("python3", "python3", "-c", _MAKE_OBJECTS)

    def remove(uid: int) -> None:
        os.setuid(uid)
        leftovers.forget(uid, [])

    os.waitpid(forked.fork(make), 0)
    assert leftovers.owners(*uids, []) == {uids[0]}
    os.waitpid(forked.fork(lambda: remove(uids[1])), 0)
    assert made_by(uids[0]) == ["shm", "sem", "msg"]
    os.waitpid(forked.fork(lambda: remove(uids[0])), 0)
    assert made_by(uids[0]) == []
    assert leftovers.owners(*uids, []) == set()


def test_the_folders_where_everybody_may_write_are_those_that_there_are(tmp_path: Path) -> None:
    """Not links to them, nor files; and of others only what is no mount: results may lie there. Within those that are
    known those that are like them, as systems have some for sockets in /tmp: not what somebody shares there."""
    known, parent = tmp_path / "known", tmp_path / "parent"
    for folder, mode in (
        (known, 0o1777), (known / "sockets", 0o1777), (known / "shared", 0o777), (known / "closed", 0o1755),
        (parent, 0o755), (parent / "open", 0o1777), (parent / "closed", 0o755),
    ):  # fmt: skip
        folder.mkdir()
        folder.chmod(mode)
    (parent / "link").symlink_to(known)
    (parent / "file").touch()
    (parent / "file").chmod(0o666)
    found = leftovers.shared_folders([str(known), str(tmp_path / "none"), str(parent / "link")], [str(parent)])
    assert found == [str(known), str(known / "sockets"), str(parent / "open")]
    if os.geteuid() == 0:
        os.chown(known / "sockets", 1, 1)
        assert leftovers.shared_folders([str(known)], []) == [str(known)]
    assert "/dev/shm" not in leftovers.shared_folders([], ["/dev"]), "it is mounted there"
    assert {"/tmp", "/dev/shm"} <= set(leftovers.shared_folders())


#: Keys of the kernel: put into, or looked for in, the session's keyring, the user's, that of the user's sessions, and
#: the one that stays for days. The numbers of the system calls are those of this machine.
_KEYS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
add, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
lasting = libc.syscall(keyctl, 22, -1, -2)
for ring in (-3, -4, -5, *([lasting] if lasting > 0 else [])):
    if sys.argv[1] == "put":
        assert libc.syscall(add, b"user", b"secret", b"of mine", 7, ring) > 0
    elif libc.syscall(keyctl, 10, ring, b"user", b"secret", 0) > 0:
        print("found in", ring)
print(os.getuid())
"""


@pytest.mark.process
@separately
def test_no_attempt_finds_the_keys_of_another(
    stub: StubDispatcher, start_agent: Callable[..., RunningAgent], users: dict[str, str]
) -> None:
    """The kernel keeps a user's keys when nothing of that user lives any more, and a session's for all who came from
    it; here all attempts are of one uid."""
    first = int(users["agent_user"]) + 1
    users["task_uids"] = f"{first}-{first + 1}"
    start_agent()
    for word, found in (("put", f"{first}\n"), ("look", f"{first}\n")):
        result = stub.result(stub.submit("python3", "-c", _KEYS, word))
        assert (result.cause, stub.logs[result.token].decode()) == ("success", found)


@separately
def test_whose_keys_the_kernel_keeps_is_found(users: dict[str, str]) -> None:
    """At a start of the supervisor, too, nobody is let before they have gone."""
    uids = int(users["agent_user"]) + 1, int(users["agent_user"]) + 2

    def keys(word: str) -> None:
        privileges.leave_keys()
        os.setuid(uids[0])
        os.execlp("python3", "python3", "-c", _KEYS, word)

    def forget() -> None:
        os.setuid(uids[0])
        leftovers.forget(uids[0], [])

    os.waitpid(forked.fork(lambda: keys("put")), 0)
    assert leftovers.owners(*uids, []) == {uids[0]}
    os.waitpid(forked.fork(forget), 0)
    reading, writing = os.pipe()

    def look() -> None:
        os.dup2(writing, 1)
        keys("look")

    os.waitpid(forked.fork(look), 0)
    assert os.read(reading, 1000).decode() == f"{uids[0]}\n"
    os.close(reading)
    os.close(writing)
