"""The supervisor's part that runs tasks as users of their own, and what an agent that was taken over gains of it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud_dispatch.agent import forked, warden
from cloud_dispatch.agent.forked import clean, give_back, signal_all
from cloud_dispatch.agent.lending import write_order
from cloud_dispatch.agent.privileges import Users
from cloud_dispatch.agent.processes import become_subreaper, reap
from cloud_dispatch.agent.spawning import RESTORED
from cloud_dispatch.agent.warden import Warden, all_of
from tests.agent.conftest import cannot_separate, separate_users, until
from tests.procfs import alive

PR_SET_CHILD_SUBREAPER = 36
needs_root = pytest.mark.skipif(bool(cannot_separate()), reason=cannot_separate() or "it can")


class Asked:
    """A warden in this process, and the line of an agent that says what it likes."""

    def __init__(self, root: Path) -> None:
        first = self.first()
        self.users = Users(first, first, first + 1, first + 3)
        self.warden = Warden(self.users, str(root))
        self.line = socket.socket(fileno=os.dup(self.warden.line.fileno()))
        self.warden.line.close()
        self.line.settimeout(5)
        self.folder = root / "attempts"

    @staticmethod
    def first() -> int:
        """Of the uids that no agent of another test gets to: what was orphaned there may not be reaped yet."""
        return int(separate_users()["agent_user"]) + 90

    def ask(self, words: str, *descriptors: int) -> str:
        socket.send_fds(self.line, [words.encode()], list(descriptors))
        self.warden.serve()
        if words.split(" ")[0] in ("signal", "leave"):
            return ""
        return self.line.recv(65_536).decode()

    def take(self) -> int:
        word, name = self.ask("take 0").split(" ")
        assert word == "berth"
        return int(name.split(".")[0])

    def spawn(self, uid: int, *argv: str) -> str:
        order = write_order(list(argv), {"PATH": "/usr/bin:/bin"}, "/")
        reading, writing = os.pipe()
        null = os.open("/dev/null", os.O_WRONLY)
        try:
            answer = self.ask(f"spawn {uid}", order, null, writing)
        finally:
            for descriptor in (order, null, writing):
                os.close(descriptor)
        os.read(reading, 1000)
        os.close(reading)
        return answer

    def until_berth(self) -> int:
        """One more uid, once one is free."""
        answer = until(self._let)
        return int(answer.split(" ")[1].split(".")[0])

    def _let(self) -> str:
        self.turn()
        answer = self.ask("take 0")
        return "" if answer == "no" else answer

    def until_empty(self, folder: Path) -> None:
        until(lambda: (self.turn(), not list(folder.iterdir()))[1])

    def turn(self) -> None:
        for end in reap()[0]:
            self.warden.reaped(end)
        self.warden.tidy()


@contextlib.contextmanager
def asking(folder: Path) -> Iterator[Asked]:
    """A warden, and afterwards nothing that it has started."""
    become_subreaper()
    found = Asked(folder)
    until(lambda: (found.turn(), found.warden.ready)[1])
    yield found
    found.warden.close()
    found.line.close()
    deadline = time.monotonic() + 10
    while reap()[1] and time.monotonic() < deadline:
        time.sleep(0.01)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)  # orphans of later tests are none of ours


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    if why := cannot_separate():
        pytest.skip(why)
    with asking(tmp_path) as found:
        yield found


@pytest.mark.process
def test_a_bad_agent_gets_no_uid_that_is_not_its_berth(asked: Asked) -> None:
    """Root, itself, uids out of the range and berths that it has not taken: nothing is run, signalled or given."""
    null = os.open("/dev/null", os.O_RDWR)
    for uid in (0, 1, asked.users.agent, asked.users.first, asked.users.hand, 4_294_967_295):
        assert asked.spawn(uid, "true") == "no"
        assert asked.ask(f"back {uid}") == "no"
        assert asked.ask(f"weigh {uid}", null) == "no"
        asked.ask(f"signal {uid} 9 1")
        asked.ask(f"leave {uid}")
    os.close(null)
    for words in ("spawn 1 /etc", "chown 1 2", "take 0 0", "x" * 5000):
        assert asked.ask(words) == "no"
    assert list(asked.folder.iterdir()) == []
    assert reap() == ([], False), "nothing was started"


@pytest.mark.process
def test_a_berth_runs_one_command_and_is_let_again_only_when_nothing_of_it_lives(asked: Asked) -> None:
    """What ignores everything and left its session is killed by its uid; until then the uid is nobody's."""
    uid = asked.take()
    assert asked.spawn(uid, "sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 600' & exec sleep 600").startswith("pid ")
    assert asked.spawn(uid, "true") == "no"
    assert asked.ask(f"back {uid}") == "no", "it lives"
    others = [asked.take() for _ in range(asked.users.last - asked.users.first)]
    assert uid not in others
    assert asked.ask("take 0") == "no", "all are taken"
    asked.ask(f"leave {uid}")
    assert asked.ask("take 0") == "no", "what lived of it is only about to die"
    assert asked.until_berth() == uid
    assert not all_of(uid)


@pytest.mark.process
def test_who_has_filled_the_table_of_processes_is_killed_all_the_same(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no child to be had that would do it."""
    uid = asked.take()
    assert asked.spawn(uid, "sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 600' & exec sleep 600").startswith("pid ")
    until(lambda: len(all_of(uid)) >= 3)

    def refuse(_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(warden, "fork", refuse)
    until(lambda: (asked.ask(f"signal {uid} 9 1"), asked.turn(), not all_of(uid))[2])


def held(gate: Path, work: Callable[..., None]) -> Callable[..., None]:
    """As on a busy machine: a child comes to `work` when what it was sent for is long over, once `gate` is there."""

    def waits(*words: object) -> None:
        for _ in range(6_000):
            if gate.exists():
                break
            time.sleep(0.01)
        work(*words)

    return waits


@pytest.mark.process
def test_no_attempt_gets_a_signal_that_was_meant_for_one_before(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its uid is let again when the children that signal it have ended, however late they are."""
    uid = asked.take()
    for _ in range(asked.users.last - asked.users.first):
        asked.take()
    assert asked.spawn(uid, "true").startswith("pid ")
    monkeypatch.setattr(warden, "signal_all", held(tmp_path / "gate", signal_all))
    asked.ask(f"signal {uid} 9 1")
    while asked.ask("exits") == "exits ":
        asked.turn()
        time.sleep(0.01)
    asked.ask(f"leave {uid}")
    assert asked.ask("take 0") == "no", "a signal is on its way"
    (tmp_path / "gate").touch()
    assert asked.until_berth() == uid
    monkeypatch.undo()
    assert asked.spawn(uid, "sleep", "600").startswith("pid ")
    for _ in range(80):
        asked.turn()
        time.sleep(0.01)
    assert asked.ask("exits") == "exits ", "it lives"


@pytest.mark.process
def test_no_attempt_loses_a_folder_that_one_before_was_giving_back(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is killed while its outputs are taken leaves an empty folder: the next attempt of its uid gets that,
    when nobody is about to take it for the agent any more."""
    uid = asked.take()
    for _ in range(asked.users.last - asked.users.first):
        asked.take()
    assert asked.spawn(uid, "true").startswith("pid ")
    while asked.ask("exits") == "exits ":
        asked.turn()
        time.sleep(0.01)
    monkeypatch.setattr(warden, "give_back", held(tmp_path / "gate", give_back))
    assert asked.ask(f"back {uid}").startswith("pid ")
    asked.ask(f"leave {uid}")
    assert asked.ask("take 0") == "no", "its folder is on its way to the agent"
    (tmp_path / "gate").touch()
    assert asked.until_berth() == uid
    (folder,) = asked.folder.glob(f"{uid}.*")
    for _ in range(80):
        asked.turn()
        time.sleep(0.01)
    assert folder.stat().st_uid == uid


@pytest.mark.process
def test_what_is_thrown_away_while_more_is_being_removed_gets_out_of_reach_too(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the removal takes: the folder of an attempt is never where the next one of its uid could read it,
    and what comes meanwhile is removed after it."""
    monkeypatch.setattr(warden, "remove_below", held(asked.folder.parent / "gate", lambda folder: None))
    for _ in range(3):
        uid = asked.take()
        (folder,) = asked.folder.glob(f"{uid}.*")
        (folder / "secret").touch()
        asked.ask(f"leave {uid}")
        asked.turn()
        assert not folder.exists()
    monkeypatch.undo()
    waste = asked.folder.parent / ".waste"
    assert len(list(waste.iterdir())) == 3
    (asked.folder.parent / "gate").touch()
    asked.until_empty(waste)


@pytest.mark.process
def test_what_is_thrown_away_waits_for_a_child_to_remove_it(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be none to be had just then."""
    waste = asked.folder.parent / ".waste"
    with monkeypatch.context() as crowded:
        crowded.setattr(warden, "_MOST_CHILDREN", 0)
        _, name = asked.ask("take 1").split(" ")
        (asked.folder / name / "left").write_text("something")
        asked.ask(f"leave {name.split('.')[0]}")
        asked.turn()
        assert len(list(waste.iterdir())) == 1
    asked.until_empty(waste)


@pytest.mark.process
def test_a_uid_whose_folder_can_not_be_moved_is_nobody_s(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt of it could read the folder; it is let again once that is gone."""
    uid = asked.take()
    for _ in range(asked.users.last - asked.users.first):
        asked.take()
    (folder,) = asked.folder.glob(f"{uid}.*")
    (folder / "secret").touch()

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(warden.os, "rename", refuse)
        asked.ask(f"leave {uid}")
        asked.turn()
        assert asked.ask("take 0") == "no"
    assert asked.until_berth() == uid
    assert not (folder / "secret").exists()


def _left_by(uid: int) -> Path:
    """Where everybody may write there is something of `uid`."""
    left = Path(f"/dev/shm/left-by-{uid}")
    left.touch()
    os.chown(left, uid, uid)
    return left


@pytest.mark.process
def test_a_uid_is_let_again_when_what_it_left_elsewhere_is_gone(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes, and again where the child that removes it was killed; nothing else waits for it."""
    uid = asked.take()
    others = [asked.take() for _ in range(asked.users.last - asked.users.first)]
    assert asked.spawn(uid, "true").startswith("pid ")
    while asked.ask("exits") == "exits ":
        asked.turn()
        time.sleep(0.01)
    left = _left_by(uid)
    with monkeypatch.context() as patch:
        patch.setattr(warden, "clean", lambda uid: os.kill(os.getpid(), signal.SIGKILL))
        asked.ask(f"leave {uid}")
        for _ in range(20):
            asked.turn()
            time.sleep(0.01)
    assert asked.ask("take 0") == "no", "its file is there"
    asked.ask(f"leave {others[0]}")
    assert asked.take() == others[0], "nothing ran there, so that there is nothing to look for"
    assert asked.until_berth() == uid
    assert not left.exists()


@pytest.mark.process
def test_a_start_waits_for_nothing_that_others_left(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent waits for it: a task that fills a shared folder would hold up all others of its VM."""
    monkeypatch.setattr(forked, "forget", lambda *_: time.sleep(600))
    uid = asked.take()
    assert asked.spawn(uid, "true").startswith("pid ")
    until(lambda: (asked.turn(), asked.ask("exits") != "exits ")[1])


@pytest.mark.process
@needs_root
def test_what_uids_have_left_in_another_supervisor_s_time_goes_before_they_are_let(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uids of whom there is nothing do not wait for that."""
    uid = Asked.first() + 2
    left = _left_by(uid)
    monkeypatch.setattr(warden, "clean", held(tmp_path / "gate", clean))
    with asking(tmp_path) as asked:
        assert [asked.take() for _ in range(2)] == [uid - 1, uid + 1]
        assert asked.ask("take 0") == "no"
        (tmp_path / "gate").touch()
        assert asked.until_berth() == uid
        assert not left.exists()


@pytest.mark.process
@needs_root
def test_before_anybody_has_looked_what_is_left_nothing_is_let(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that fails is taken again."""
    monkeypatch.setattr(warden, "look_round", lambda users, answer: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setattr(warden, "_MOST_PAUSE_MS", 10)
    become_subreaper()
    asked = Asked(tmp_path)
    for _ in range(20):
        asked.turn()
        assert asked.ask("take 0") == "no"
        time.sleep(0.01)
    monkeypatch.undo()
    asked.until_berth()
    asked.warden.close()
    asked.line.close()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.mark.process
def test_what_the_warden_before_did_not_remove_is_in_nobody_s_way(tmp_path: Path) -> None:
    """One supervisor has a warden for each of its agents: it can't use the names of the last one again."""
    if why := cannot_separate():
        pytest.skip(why)
    for name in ("2", f"{os.getpid()}-3"):
        (tmp_path / ".waste" / name / "full").mkdir(parents=True)
    (tmp_path / "attempts" / "full").mkdir(parents=True)
    with asking(tmp_path) as asked:
        assert list(asked.folder.iterdir()) == []


@pytest.mark.process
@needs_root
def test_what_a_supervisor_left_is_killed_and_nothing_that_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its uids are let later than others."""
    uid = Asked.first() + 1
    left = subprocess.Popen(["sleep", "600"], user=uid, group=uid)
    monkeypatch.setattr(warden, "signal_all", held(tmp_path / "gate", signal_all))
    with asking(tmp_path) as asked:
        monkeypatch.undo()
        assert [asked.take() for _ in range(2)] == [uid + 1, uid + 2]
        assert asked.ask("take 0") == "no"
        assert alive(left.pid)
        (tmp_path / "gate").touch()
        assert asked.until_berth() == uid
        assert not alive(left.pid)
    left.returncode = -signal.SIGKILL  # reaped with all others


@pytest.mark.process
def test_a_command_finds_the_usual_signals(asked: Asked) -> None:
    """Neither those that Python ignores nor those that the supervisor handles are ignored in what is run."""
    mask = sum(1 << (number - 1) for number in (*RESTORED, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD))
    look = f"n=$(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status); [ $((0x$n & {mask})) = 0 ]"
    word, pid = asked.spawn(asked.take(), "sh", "-c", look).split(" ")
    assert word == "pid"
    told = until(lambda: (asked.turn(), asked.ask("exits").split(" ")[1])[1])
    assert told.split(",")[:2] == [pid, "0"]


@pytest.mark.process
def test_an_agent_that_does_not_read_its_answers_holds_nobody_up(asked: Asked) -> None:
    """Thousands of questions at once: each turn of the supervisor ends after some of them, whatever is unread."""
    asked.line.settimeout(0)
    longest = 0.0
    for _ in range(50):
        for _ in range(200):
            try:
                asked.line.send(b"take 0")
            except BlockingIOError:
                break
        began = time.monotonic()
        asked.warden.serve()
        longest = max(longest, time.monotonic() - began)
    assert longest < 0.5
