"""Users of their own: what the settings mean, what the supervisor refuses, and what a task or a bad agent gains."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from cloud_dispatch.agent import forked
from cloud_dispatch.agent.folders import remove_tree
from cloud_dispatch.agent.forked import MOST_PROCESSES
from cloud_dispatch.agent.handing import hand_on
from cloud_dispatch.agent.lending import parse, read_failure, read_order, write_failure, write_order
from cloud_dispatch.agent.privileges import Unseparated, Users, open_to_all, python_for_all
from cloud_dispatch.agent.privileges import users as mean
from cloud_dispatch.agent.tenant import LentProcesses, Line
from cloud_dispatch.wire.messages import FileTransfer, HealthCheck
from tests.agent.conftest import RunningAgent, cannot_separate, living, quick_policy, until
from tests.agent.stub import StubDispatcher
from tests.agent.test_agent_tasks import pids_in
from tests.procfs import alive

Start = Callable[..., RunningAgent]
needs_root = pytest.mark.skipif(bool(cannot_separate()), reason=cannot_separate() or "it can")


#: For tests that make no sense where all are one user.
separately = pytest.mark.parametrize("users", ["separated"], indirect=True)


# What the settings mean


def test_no_settings_mean_no_users() -> None:
    assert mean("", "") is None


def test_a_bare_uid_is_also_the_group_and_the_last_task_uid_is_the_hand() -> None:
    assert mean("700", "1000-1010") == Users(700, 700, 1000, 1009)
    found = mean("700", "")
    assert found is not None
    assert found.last < found.first, "no attempt has a user of its own"


@pytest.mark.parametrize(
    ("agent_user", "task_uids", "words"),
    [
        ("", "1000-1010", "needs agent_user"),
        ("0", "1000-1010", "not root"),
        ("root", "1000-1010", "not root"),
        ("nobody-of-that-name", "", "no such user"),
        ("1005", "1000-1010", "is one of task_uids"),
        ("700", "1000", "expected FIRST-LAST"),
        ("700", "1000-", "expected FIRST-LAST"),
        ("700", "-1-5", "expected FIRST-LAST"),
        ("700", "0-5", "uids from 1"),
        ("700", "9-5", "uids from 1"),
        ("700", "1000-1000", "expected 2 to"),
        ("700", "1000-4294967295", "uids from 1"),
        ("700", "1-65537", "expected 2 to 65536"),
        ("99999999999", "", "not root"),
    ],
)
def test_what_can_not_be_meant_is_refused_with_its_value(agent_user: str, task_uids: str, words: str) -> None:
    with pytest.raises(Unseparated, match=words):
        mean(agent_user, task_uids)


@pytest.mark.process
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"agent_user": "700", "task_uids": "x"}, "task_uids = 'x': expected FIRST-LAST"),
        ({"agent_user": "700", "task_uids": "1000-1010"}, "the supervisor has to be root"),
    ],
)
def test_a_supervisor_that_can_not_separate_does_not_start(
    tmp_path: Path, agent_zip: Path, settings: dict[str, str], words: str
) -> None:
    """One line that names the file and the setting; exit code 2; nothing is run as anybody."""
    config = tmp_path / "agent.json"
    told = {"url": "http://127.0.0.1:9", "vm": "v", "work_dir": str(tmp_path / "work")}
    config.write_text(json.dumps({**told, **settings}))
    code = (
        "import os, sys; os.geteuid = lambda: 12345; from cloud_dispatch.agent.__main__ import main;"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(config)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert done.stderr.startswith(f"cloud-dispatch supervisor: configuration {config}: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_python_that_others_can_not_reach_is_passed_by(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "python3"
    hidden.parent.mkdir(mode=0o700)
    hidden.touch(0o755)
    assert not open_to_all(str(hidden))
    assert python_for_all((str(hidden), "/bin/sh")) == "/bin/sh"
    with pytest.raises(Unseparated, match="no Python"):
        python_for_all((str(hidden),))


# What they say to each other


@pytest.mark.parametrize(
    "line",
    [b"", b"take", b"take x", b"take -1", b"take 1 1", b"give 1", b"leave 1\n", b"leave \xff", b"take 123456789012",
     b"take  1", b"exits 1", "take ²".encode(), b"spawn 1"],
)  # fmt: skip
def test_only_requests_of_the_known_form_are_heard(line: bytes) -> None:
    assert parse(line, 0) is None


def test_a_request_brings_exactly_its_descriptors() -> None:
    assert parse(b"spawn 7", 3) == ("spawn", [7])
    assert parse(b"spawn 7", 2) is None
    assert parse(b"leave 7", 1) is None


def test_a_supervisor_of_before_signals_the_whole_group() -> None:
    """It knows no word for the main process alone."""

    class Former:
        said: ClassVar[list[str]] = []

        def ask(self, words: str) -> list[str]:
            self.said.append(words)
            assert parse(words.encode(), 0) is not None
            return ["no"]

        def tell(self, words: str) -> None:
            self.said.append(words)

    processes = LentProcesses(cast(Line, Former()), cast(Any, SimpleNamespace(uid=lambda folder: 7)))
    processes.own(1, 100, "folder")
    processes.prod(1, 10)
    processes.prod(2, 10)
    assert Former.said == ["prod 7 10", "signal 7 10 0"]


def test_orders_and_failures_come_through_whole() -> None:
    order = (["a", "ü\udcff", ""], {"A": "b" * 200_000}, "/x")
    assert read_order(write_order(*order)) == order
    for error in (FileNotFoundError(2, "x", "/a"), PermissionError(13, "x", "b"), ValueError("embedded null byte")):
        again = read_failure(write_failure(error))
        assert type(again) is type(error)
        assert getattr(again, "filename", None) == getattr(error, "filename", None)


# Files that change hands


@needs_root
def test_nothing_but_the_givers_own_changes_hands(tmp_path: Path) -> None:
    """Links are not followed, another's file under the giver's name stays another's, and so does what is no file."""
    foreign, folder = tmp_path / "foreign", tmp_path / "given"
    foreign.write_text("root's")
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "file").write_text("mine")
    for path in (folder, folder / "deep", folder / "deep" / "deeper", folder / "deep" / "file"):
        os.chown(path, 1001, 1001)
    (folder / "theirs").mkdir()
    (folder / "theirs" / "inner").touch()
    os.chown(folder / "theirs" / "inner", 1001, 1001)
    (folder / "soft").symlink_to(foreign)
    (folder / "away").symlink_to("/etc")
    os.link(foreign, folder / "hard")
    os.mkfifo(folder / "pipe")
    hand_on(str(folder), 1001, 1002, 1003)
    handed = {path.name: path.lstat().st_uid for path in folder.rglob("*")}
    assert handed == {
        **dict.fromkeys(("deep", "deeper", "file"), 1002), "inner": 1001,
        **dict.fromkeys(("theirs", "soft", "away", "hard", "pipe"), 0),
    }  # fmt: skip
    assert (foreign.stat().st_uid, os.stat("/etc").st_uid, folder.stat().st_uid) == (0, 0, 1002)
    assert (folder / "deep" / "file").stat().st_gid == 1003


@needs_root
def test_what_changes_hands_is_closed_to_all_others(tmp_path: Path) -> None:
    """Whoever was let in before can neither look nor put anything there; no right is added, and files are as they
    were."""
    folder = tmp_path / "given"
    (folder / "deep" / "locked").mkdir(parents=True)
    (folder / "deep" / "file").touch()
    for path, mode in (("deep/file", 0o666), ("deep/locked", 0o077), ("deep", 0o2777), ("", 0o1777)):
        os.chown(folder / path, 1001, 1001)
        (folder / path).chmod(mode)
    hand_on(str(folder), 1001, 1002, 1002)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert modes == {"given": 0o700, "deep": 0o700, "locked": 0, "file": 0o666}


@needs_root
def test_a_folder_that_is_a_link_is_not_handed_on(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        hand_on(str(tmp_path / "link"), 0, 1002, 1002)
    assert tmp_path.stat().st_uid == 0


# What a real agent and its tasks see of it


@pytest.mark.process
@separately
def test_a_task_is_a_user_of_its_own_and_can_gain_nothing(
    stub: StubDispatcher, agent: RunningAgent, users: dict[str, str]
) -> None:
    """Another uid than the agent, the supervisor and a task beside it; its group alone; no rights by any program."""
    script = "id -u; id -g; id -G; grep -E 'NoNewPrivs|CapEff' /proc/self/status; umask; echo $USER $LOGNAME; sleep 1"
    tasks = [stub.submit(shell=script) for _ in range(2)]
    said = [stub.logs[stub.result(task).token].decode().splitlines() for task in tasks]
    uids = {lines[0] for lines in said}
    assert len(uids) == 2
    assert not uids & {"0", users["agent_user"]}
    for lines in said:
        assert lines[1] == lines[2] == lines[0]
        assert [line.split()[1] for line in lines[3:5]] == ["0" * 16, "1"]
        assert lines[5:] == ["0077", f"task{lines[0]} task{lines[0]}"]
    status = Path(f"/proc/{agent.agent_pid}/status").read_text()
    assert f"Uid:\t{users['agent_user']}\t" in status
    assert "NoNewPrivs:\t1" in status
    assert "Groups:\t \n" in status
    assert os.stat(f"/proc/{agent.agent_pid}/environ").st_uid == 0, "its user can't look into it"


@pytest.mark.process
@separately
def test_the_agent_has_no_access_to_the_supervisors_configuration(
    stub: StubDispatcher, agent: RunningAgent, users: dict[str, str]
) -> None:
    """The file with the end command that root runs is root's; the agent's own folder is closed to all others."""
    stub.result(stub.submit("true"))
    assert (agent.config.stat().st_uid, stat.S_IMODE(agent.config.stat().st_mode)) == (0, 0o600)
    uid = int(users["agent_user"])
    for path, mode in ((agent.private, 0o700), (agent.private / "identity.json", 0o600)):
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (uid, mode)
    assert (agent.work.stat().st_uid, stat.S_IMODE(agent.work.stat().st_mode)) == (0, 0o711)


@pytest.mark.process
def test_inputs_come_to_the_task_and_outputs_back(stub: StubDispatcher, agent: RunningAgent, tmp_path: Path) -> None:
    """Through both changes of hands, a working folder below the attempt's included."""
    source = tmp_path / "source"
    source.write_text("brought")
    source.chmod(0o644)
    task = stub.submit(
        shell="cat in/put > out; echo more >> in/put; cp in/put again; ls -ln in/put",
        inputs=[FileTransfer("in/put", f"file://{source}")],
        outputs=[FileTransfer("out", ""), FileTransfer("again", "")],
    )
    result = stub.result(task)
    assert result.cause == "success", result.detail
    assert {path: body for (_, path), body in stub.outputs.items()} == {"out": b"brought", "again": b"broughtmore\n"}


@pytest.mark.process
def test_a_fork_bomb_dies_whole(stub: StubDispatcher, agent: RunningAgent, tmp_path: Path) -> None:
    """Processes that make others faster than one could list them end with their attempt."""
    pids = tmp_path / "pids"
    spread = "import os, time\nfirst = os.getpid()\nfor i in range(6): os.fork()\n"
    spread += "if os.getpid() != first and os.getpid() % 2: os.setsid()\n"
    spread += f"open({str(pids)!r}, 'a').write('%d\\n' % os.getpid())\n"
    spread += "import signal; signal.signal(15, signal.SIG_IGN)\ntime.sleep(600)"
    task = stub.submit("python3", "-c", spread)
    token = stub.wait_started(task)
    until(lambda: len(pids_in(pids)) == 64)
    stub.change(kills={token})
    stub.result(task)
    assert not any(alive(pid) for pid in pids_in(pids))


@pytest.mark.process
@separately
def test_an_attempt_has_so_many_processes_and_no_more(stub: StubDispatcher, agent: RunningAgent) -> None:
    """By a limit of the kernel that it can't lift: one that forks without end leaves its VM room to live."""
    task = stub.submit(shell="grep processes /proc/self/limits; (ulimit -u 9999 || ulimit -p 9999) 2>&1 || echo kept")
    assert stub.result(task).cause == "success"
    (limit, *_), last = stub.logs[1].decode().split("Max processes")[1:], stub.logs[1].decode().split()[-1]
    assert limit.split()[:2] == [str(MOST_PROCESSES)] * 2
    assert last == "kept"


@pytest.mark.process
def test_a_health_check_is_no_agent(stub: StubDispatcher, start_agent: Start, tmp_path: Path) -> None:
    """It runs as a user of its own where attempts do, and its berth is let again each time."""
    seen = tmp_path / "seen"
    stub.policy = quick_policy(
        health_checks=[HealthCheck(["sh", "-c", f"id -u >> {seen}; test -w {seen}"], 100, 2_000, 2)]
    )
    seen.touch()
    seen.chmod(0o666)
    agent = start_agent()
    until(lambda: len(seen.read_text().split()) >= 5)
    assert len(set(seen.read_text().split())) == 1
    assert (int(seen.read_text().split()[0]) == os.getuid()) == (agent.private == agent.work)


def _only_uid(users: dict[str, str]) -> int:
    """Attempts have this one alone; the next is that of who signals them."""
    only = int(users["agent_user"]) + 1
    users["task_uids"] = f"{only}-{only + 1}"
    return only


@pytest.mark.process
@separately
def test_whoever_finds_no_user_free_waits_for_one(
    stub: StubDispatcher, start_agent: Start, users: dict[str, str], tmp_path: Path
) -> None:
    """A task, and a health check: there is one uid for all, and a task has left much to be removed there."""
    only = _only_uid(users)
    stub.policy = quick_policy(health_checks=[HealthCheck(["true"], 100, 2_000, 1)])
    start_agent()
    fill = f"d=$(mktemp -d -p /dev/shm) && cd $d && seq 5000 | xargs touch && id -u > {tmp_path}/$1; sleep 0.4"
    for name in "abc":
        result = stub.result(stub.submit("sh", "-c", fill, "sh", name))
        assert result.cause == "success", result.detail
    assert {(tmp_path / name).read_text() for name in "abc"} == {f"{only}\n"}
    assert max(sync.want for sync in stub.syncs) == 1, "there are berths for no more"


@pytest.mark.process
@separately
def test_a_task_that_finds_no_user_free_for_long_goes_back(
    stub: StubDispatcher, start_agent: Start, users: dict[str, str], tmp_path: Path
) -> None:
    """It costs no attempt: the only uid is a health check's for the time being."""
    _only_uid(users)
    flag, taken = tmp_path / "flag", tmp_path / "taken"
    check = f"if test -e {flag}; then touch {taken}; exec sleep 600; fi"
    stub.policy = quick_policy(health_checks=[HealthCheck(["sh", "-c", check], 100, 600_000, 1)])
    start_agent()
    assert stub.result(stub.submit("true")).cause == "success"
    flag.touch()
    until(taken.exists)
    task = stub.submit("true")
    told = until(lambda: [result for sync in list(stub.syncs) for result in sync.results if result.task == task])
    assert (told[0].cause, told[0].detail) == ("released", "no user of its own was free for it")


@pytest.mark.process
@separately
def test_an_agent_that_can_not_be_started_ends_the_vm(
    stub: StubDispatcher, agent: RunningAgent, users: dict[str, str]
) -> None:
    """Its folder is gone for good: the supervisor tries again as often as ever, and then runs the end command."""
    stub.result(stub.submit("true"))
    shutil.rmtree(agent.private)
    agent.private.touch()
    os.kill(agent.agent_pid, signal.SIGKILL)
    assert agent.wait() == 0
    assert agent.ended.exists()
    assert b"the agent could not be started" in agent.console.read_bytes()


@pytest.mark.process
@separately
def test_what_a_killed_supervisor_left_dies_when_the_next_one_starts(
    stub: StubDispatcher, start_agent: Start, users: dict[str, str], tmp_path: Path
) -> None:
    """By the range of uids: there is no other trace of it."""
    first, pids = start_agent(), tmp_path / "pids"
    task = stub.submit(shell=f"(setsid sh -c 'echo $$ > {pids}; exec sleep 600' &) ; sleep 600")
    stub.wait_started(task)
    (left,) = until(lambda: pids_in(pids))
    os.kill(first.process.pid, signal.SIGKILL)
    until(lambda: living(first.mark) == [])
    assert alive(left), "its main process went with the supervisor, this one did not"
    start_agent()
    until(lambda: not alive(left))


@separately
def test_a_folder_goes_though_its_owner_may_not_write_to_it(users: dict[str, str], tmp_path: Path) -> None:
    """As is the case of what package managers unpack; and what its links lead to is left alone."""
    uid = int(users["agent_user"])
    kept = tmp_path / "kept"
    kept.touch(0o400)
    place = tmp_path / "place"
    inner = place / "folder/inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    (inner / "link").symlink_to(kept)
    for path in (place, place / "folder", inner, inner / "file", kept):
        os.chown(path, uid, uid)
    inner.chmod(0)
    (place / "folder").chmod(0o555)

    def remove() -> None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        remove_tree(str(place / "folder"))

    os.waitpid(forked.fork(remove), 0)
    assert os.listdir(place) == []
    assert stat.S_IMODE(kept.stat().st_mode) == 0o400
