"""A real agent becomes another program, with and without tasks: the same process, its children, pipes and users."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.agent import handover
from cloud_dispatch.agent.baggage import Baggage
from cloud_dispatch.wire.messages import FileTransfer, OrderShape, Program, Quantities
from tests.agent.conftest import RunningAgent, living, quick_policy, until
from tests.agent.stub import StubDispatcher

Start = Callable[..., RunningAgent]
FORMER = Path(__file__).parents[1] / "agents" / "agent-0.1.pyz"


def another(agent_zip: Path, files: dict[str, str] | None = None) -> bytes:
    """The agent as another program: it does the same, under another sha256; or with some `files` changed."""
    if not files:
        return _with_comment(agent_zip)
    body = io.BytesIO()
    with zipfile.ZipFile(agent_zip) as old, zipfile.ZipFile(body, "w") as new:
        for name in old.namelist():
            new.writestr(name, files.get(name, old.read(name)))
    return body.getvalue()


def _with_comment(agent_zip: Path) -> bytes:
    body = io.BytesIO(agent_zip.read_bytes())
    with zipfile.ZipFile(body, "a") as archive:
        archive.comment = b"another"
    return body.getvalue()


def program_of(agent: RunningAgent) -> bytes:
    """The zipapp that the agent's process runs; nothing while it becomes another, when it has no words yet."""
    words = Path(f"/proc/{agent.agent_pid}/cmdline").read_bytes().split(b"\0")
    return next((Path(word.decode()).read_bytes() for word in words if word.endswith(b".pyz")), b"")


def until_there(file: Path) -> str:
    """What a task waits for in a shell."""
    return f"while [ ! -e {file} ]; do sleep 0.05; done"


def console(agent: RunningAgent) -> str:
    return agent.console.read_text(errors="replace")


@pytest.fixture
def heir(agent_zip: Path) -> bytes:
    return another(agent_zip)


def test_an_idle_agent_becomes_the_program_and_works_on(stub: StubDispatcher, agent: RunningAgent, heir: bytes) -> None:
    assert stub.result(stub.submit("true")).cause == "success"
    pid = agent.agent_pid
    stub.change(program=heir)
    until(lambda: program_of(agent) == heir)
    assert agent.agent_pid == pid
    assert stub.result(stub.submit("true")).cause == "success"
    assert len(stub.registrations) == 1
    assert {request.program for request in stub.syncs} == {
        hashlib.sha256(heir).hexdigest(),
        "",
        stub.syncs[0].program,
    }


def test_tasks_run_through_it_and_lose_nothing(
    stub: StubDispatcher, start_agent: Start, heir: bytes, tmp_path: Path
) -> None:
    """Output before, during and after, a file made and brought away, a memory limit that is still watched, and one that
    ends in the very moment: each once, with the time that it really ran."""
    stub.policy = quick_policy(replace_ms=0, heartbeat_ms=400, cpus_milli=16_000, memory=1 << 30)
    agent = start_agent()
    go = tmp_path / "go"
    loud = f"i=0; while [ ! -e {go} ]; do i=$((i+1)); echo $i; sleep 0.01; done; echo end $i; echo made > out"
    tasks = [stub.submit(shell=loud, outputs=[FileTransfer("out", "")]) for _ in range(3)]
    failing = stub.submit(shell=f"while [ ! -e {go} ]; do sleep 0.01; done; exit 7")
    hungry = stub.submit(
        shell=f"while [ ! -e {go} ]; do sleep 0.01; done; x=$(head -c 80000000 /dev/zero | tr '\\0' a); sleep 100",
        shape=OrderShape(Quantities(1000, 40_000_000)),
    )
    tokens = {task: stub.wait_started(task) for task in (*tasks, failing, hungry)}
    stub.change(program=heir)
    until(lambda: program_of(agent) == heir)
    later = stub.submit("true")
    assert stub.result(later).cause == "success"
    time.sleep(0.5)
    ran_s = {task: time.monotonic() - stub.started[token] for task, token in tokens.items()}
    go.write_text("")
    for task in tasks:
        result = stub.result(task)
        assert (result.cause, result.token) == ("success", tokens[task])
        assert result.ran_ms >= ran_s[task] * 1000
        lines = stub.logs[tokens[task]].decode().splitlines()
        assert lines[:-1] == [str(number) for number in range(1, len(lines))]
        assert lines[-1] == f"end {len(lines) - 1}"
        assert stub.outputs[tokens[task], "out"] == b"made\n"
    assert (stub.result(failing).cause, stub.result(failing).exit_code) == ("exit-code", 7)
    assert stub.result(hungry).cause == "out-of-memory"
    assert stub.lost == []
    assert len({request.incarnation for request in stub.syncs}) == 1
    assert "takes over, 5 tasks run" in console(agent)


def test_the_agent_of_the_version_before_hands_its_tasks_on(
    stub: StubDispatcher, start_agent: Start, agent_zip: Path, tmp_path: Path
) -> None:
    """The baggage that it writes is one that the present agent takes; that has no task token, and does without."""
    stub.policy = quick_policy(replace_ms=0, heartbeat_ms=400)
    stub.knows_tokens = False
    agent = start_agent(FORMER)
    go = tmp_path / "go"
    task = stub.submit(shell=f"echo begin; {until_there(go)}; echo end")
    token = stub.wait_started(task)
    stub.change(program=agent_zip.read_bytes())
    until(lambda: program_of(agent) == agent_zip.read_bytes())
    go.touch()
    result = stub.result(task)
    assert (result.cause, result.token) == ("success", token)
    assert stub.logs[token] == b"begin\nend\n"
    assert "takes over, 1 tasks run" in console(agent)


def test_no_gpu_that_a_task_of_before_may_use_is_lent_after_it(
    stub: StubDispatcher, start_agent: Start, agent_zip: Path, heir: bytes, tmp_path: Path
) -> None:
    """From an agent that lends none to one that does, and on to the next."""
    stub.policy = quick_policy(replace_ms=0, heartbeat_ms=400, cpus_milli=8000, gpus=4)
    stub.knows_tokens = False
    agent = start_agent(FORMER)
    go, tasks = tmp_path / "go", []
    show = f"echo ${{CUDA_VISIBLE_DEVICES-unset}}; {until_there(go)}"
    for program in (None, agent_zip.read_bytes(), heir):
        if program is not None:
            stub.change(program=program)
            until(lambda program=program: program_of(agent) == program)
            stub.change(knows_tokens=True)
        tasks.append(stub.submit(shell=show, shape=OrderShape(Quantities(1000, gpus=1))))
        stub.wait_started(tasks[-1])
    go.touch()
    said = [stub.logs[stub.result(task).token].decode().strip() for task in tasks]
    assert said == ["unset", "1", "2"]


def test_a_former_supervisor_passes_a_checkpoint_signal_on(
    stub: StubDispatcher, start_agent: Start, agent_zip: Path, tmp_path: Path
) -> None:
    """It leaves out what it does not know of its configuration and of orders; once the agent has become the present one
    the signal reaches the task, through a supervisor that knows no word for it."""
    stub.policy = quick_policy(replace_ms=0, heartbeat_ms=400)
    stub.knows_tokens = False
    notice, ready = tmp_path / "notice", tmp_path / "ready"
    agent = start_agent(FORMER, notice_file=str(notice), notices=[{"steps": [{"url": "http://127.0.0.1:1/"}]}])
    assert stub.result(stub.submit("true", checkpoint_signal="SIGUSR1")).cause == "success"
    stub.change(program=agent_zip.read_bytes())
    until(lambda: program_of(agent) == agent_zip.read_bytes())
    stub.change(knows_tokens=True)
    task = stub.submit(
        shell=f"trap 'sleep 1; exit 75' USR1; touch {ready}; while :; do sleep 0.05; done",
        checkpoint_signal="SIGUSR1",
    )
    stub.wait_started(task)
    until(ready.exists)
    notice.write_text("60000")
    assert (stub.result(task).cause, stub.result(task).exit_code) == ("preempted", 75)


def test_a_log_that_waits_on_the_disk_goes_along(
    stub: StubDispatcher, start_agent: Start, heir: bytes, tmp_path: Path
) -> None:
    """Two MiB that the dispatcher did not take before: all of it arrives, in order."""
    stub.policy = quick_policy(replace_ms=0, heartbeat_ms=400)
    agent = start_agent()
    stub.refuse_logs = True
    said_all, go = tmp_path / "said", tmp_path / "go"
    task = stub.submit(shell=f"seq 300000; touch {said_all}; {until_there(go)}; echo end")
    token = stub.wait_started(task)
    until(said_all.exists)
    stub.change(program=heir)
    until(lambda: program_of(agent) == heir)
    go.touch()
    stub.change(refuse_logs=False)
    assert stub.result(task).cause == "success"
    assert "takes over, 1 tasks run" in console(agent)
    said = stub.logs[token].decode().split()
    assert said == [*(str(number) for number in range(1, 300_001)), "end"]


def test_a_cancel_reaches_what_the_program_before_started(
    stub: StubDispatcher, start_agent: Start, heir: bytes, tmp_path: Path
) -> None:
    stub.policy = quick_policy(replace_ms=0, heartbeat_ms=400)
    agent = start_agent()
    task = stub.submit(shell="trap '' TERM; setsid sleep 1000 & sleep 1000")
    token = stub.wait_started(task)
    stub.change(program=heir)
    until(lambda: program_of(agent) == heir)
    stub.change(kills={token})
    assert stub.result(task).cause == "cancelled"
    until(lambda: len(living(agent.mark)) == 2)


@pytest.mark.parametrize("broken", ["raise SystemExit(2)\n", "not python\n"])
def test_a_program_that_does_not_live_is_tried_once(
    stub: StubDispatcher, start_agent: Start, agent_zip: Path, broken: str
) -> None:
    """The supervisor starts the one that it knows, and the VM works on."""
    heir = another(agent_zip, {"cloud_dispatch/agent/handover.py": broken})
    agent = start_agent()
    stub.result(stub.submit("true"))
    stub.change(program=heir)
    stub.wait(lambda: len({request.incarnation for request in stub.syncs}) == 2)
    stub.change(named={})  # it hears of it again
    for _ in range(5):
        assert stub.result(stub.submit("sleep", "0.3")).cause == "success"
    assert len({request.incarnation for request in stub.syncs}) == 2
    assert len(stub.registrations) == 1
    assert agent.process.poll() is None


def test_something_else_than_what_was_named_is_not_run(
    stub: StubDispatcher, start_agent: Start, agent_zip: Path, heir: bytes
) -> None:
    agent = start_agent()
    stub.result(stub.submit("true"))
    stub.serve_other = True
    stub.change(program=heir)
    until(lambda: "not the agent that it named" in console(agent))
    assert stub.result(stub.submit("true")).cause == "success"
    assert "takes over" not in console(agent)


def test_a_supervisor_starts_its_own_program_again_after_a_crash_of_the_heir(
    stub: StubDispatcher, agent: RunningAgent, heir: bytes
) -> None:
    """And that becomes the heir once more, which had lived."""
    stub.result(stub.submit("true"))
    stub.change(program=heir)
    until(lambda: program_of(agent) == heir)
    stub.result(stub.submit("true"))
    os.kill(agent.agent_pid, signal.SIGKILL)
    stub.wait(lambda: len({request.incarnation for request in stub.syncs}) >= 2)
    until(lambda: program_of(agent) == heir)
    assert stub.result(stub.submit("true")).cause == "success"


def test_a_program_that_was_changed_since_it_was_kept_is_not_run(
    tmp_path: Path, agent_zip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However whole it is; nor one that has gone."""

    def run(*_: object) -> None:
        raise AssertionError("it was run")

    monkeypatch.setattr(handover.os, "execv", run)
    program = Program(sha256=hashlib.sha256(agent_zip.read_bytes()).hexdigest())
    handover.keep(str(tmp_path), program, agent_zip.read_bytes())
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(another(agent_zip))
    with pytest.raises(OSError, match="is not the program that was kept"):
        handover.become(str(tmp_path), program, Baggage())
    kept.unlink()
    with pytest.raises(FileNotFoundError):
        handover.become(str(tmp_path), program, Baggage())
