"""Real agents over the accidents of their life: dispatchers away, agents killed, drains, health, ends."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.wire.messages import HealthCheck
from tests.agent.conftest import RunningAgent, living, quick_policy, until
from tests.agent.stub import StubDispatcher
from tests.agent.test_agent_tasks import pids_in
from tests.procfs import alive

pytestmark = pytest.mark.process
Start = Callable[..., RunningAgent]
#: What a task does for ever that says each moment in `seen` that it lives.
LIVES = "while :; do date +%s.%N >> {seen}; sleep 0.02; done"


def last(seen: Path) -> float:
    """When it last did: a test that looks late knows it, too."""
    return float(seen.read_text().split()[-1])


def test_a_dispatcher_that_was_away_finds_the_running_task_and_the_result(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """Neither what ends nor what runs during the absence is lost, logs included."""
    go = tmp_path / "go"
    ends = stub.submit(shell=f"echo early; while [ ! -e {go} ]; do sleep 0.05; done; echo late")
    runs = stub.submit(shell="sleep 14; echo done")
    stub.wait_started(ends)
    stub.wait_started(runs)
    stub.stop()
    go.touch()
    time.sleep(12)  # longer than a result waits for its log when the dispatcher is there
    stub.start()
    assert stub.result(ends).cause == "success"
    assert bytes(stub.logs[stub.results[ends].token]) == b"early\nlate\n"
    assert stub.result(runs).cause == "success"
    assert bytes(stub.logs[stub.results[runs].token]) == b"done\n"
    assert len(stub.registrations) == 1
    assert stub.lost == []


def test_a_lease_that_ends_kills_the_task(stub: StubDispatcher, start_agent: Start, tmp_path: Path) -> None:
    """Without the dispatcher a task is dead when its lease is over, and not before."""
    stub.policy = quick_policy(lease_ms=3_000)
    start_agent()
    pid, seen = tmp_path / "pid", tmp_path / "seen"
    task = stub.submit(shell=f"trap '' TERM; echo $$ > {pid}; sleep 1000 & {LIVES.format(seen=seen)}")
    stub.wait_started(task)
    main = until(lambda: pids_in(pid))[0]
    stopped = time.time()
    stub.stop()
    until(lambda: not alive(main))
    assert 1 < last(seen) - stopped < 3.5
    stub.start()
    assert stub.result(task).cause == "instance-lost"


def test_a_killed_agent_is_started_again_and_its_tasks_are_gone(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """kill -9 of the agent: nothing of its tasks lives on, the next incarnation has the same identity."""
    pids = tmp_path / "pids"
    task = stub.submit(shell=f"echo $$ >> {pids}; setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' & sleep 1000")
    token = stub.wait_started(task)
    until(lambda: len(pids_in(pids)) == 2)
    first = agent.agent_pid
    os.kill(first, signal.SIGKILL)
    stub.wait(lambda: stub.lost == [token])
    assert not any(alive(pid) for pid in pids_in(pids))
    assert len({request.incarnation for request in stub.syncs}) == 2
    assert len(stub.registrations) == 1
    assert stub.result(stub.submit("true")).cause == "success"


def test_an_agent_that_hangs_is_killed_and_started_again(stub: StubDispatcher, start_agent: Start) -> None:
    """A stopped agent shows no sign of life; after `hang_ms` another takes its place."""
    agent = start_agent(hang_ms=3_000)
    stub.result(stub.submit("true"))
    os.kill(agent.agent_pid, signal.SIGSTOP)
    assert stub.result(stub.submit("true"), 15).cause == "success"
    assert len({request.incarnation for request in stub.syncs}) == 2


@pytest.mark.parametrize("said", [b'{"status":"maintenance"}', b'{"seq":1,"lease_ms":60000}'])
def test_what_answers_in_the_dispatchers_place_renews_no_lease(
    stub: StubDispatcher, start_agent: Start, tmp_path: Path, said: bytes
) -> None:
    """As a proxy does that is kind enough to say 200: no answer to this very request is none."""
    stub.policy = quick_policy(lease_ms=3_000, poll_ms=500)
    start_agent()
    pid = tmp_path / "pid"
    task = stub.submit(shell=f"echo $$ > {pid}; exec sleep 1000")
    stub.wait_started(task)
    (main,) = until(lambda: pids_in(pid))
    stub.change(instead=said)
    until(lambda: not alive(main), 20)
    stub.change(instead=b"")
    assert stub.result(task).cause == "instance-lost"


def test_what_a_hung_agent_runs_ends_with_its_lease(stub: StubDispatcher, start_agent: Start, tmp_path: Path) -> None:
    """However patient the supervisor is with an agent: the dispatcher gives the task to another soon after the lease's
    end, and by then nothing of it lives here."""
    stub.policy = quick_policy(lease_ms=3_000, poll_ms=500)
    agent = start_agent(hang_ms=600_000)
    pids, seen = tmp_path / "pids", tmp_path / "seen"
    stub.wait_started(stub.submit(shell=f"echo $$ >> {pids}; {LIVES.format(seen=seen)}"))
    until(lambda: pids_in(pids))
    os.kill(agent.agent_pid, signal.SIGSTOP)
    stopped = time.time()
    until(lambda: not any(alive(pid) for pid in pids_in(pids)))
    lease_s, heartbeat_s = stub.policy.lease_ms / 1000, stub.policy.heartbeat_ms / 1000
    assert last(seen) - stopped < lease_s + heartbeat_s
    assert stub.result(stub.submit("true")).cause == "success"


def test_a_notice_file_preempts_the_agent(stub: StubDispatcher, start_agent: Start, tmp_path: Path) -> None:
    """What runs goes back to the queue, and the dispatcher hears why the agent ends."""
    notice = tmp_path / "notice"
    agent = start_agent(notice_file=str(notice))
    runs = stub.submit(shell="sleep 1000")
    stub.wait_started(runs)
    notice.write_text("60000\n")
    assert stub.result(runs).cause == "preempted"
    assert agent.wait() == 0
    assert stub.syncs[-1].ending == "preempted"


def test_a_notice_signals_the_main_process_of_what_wants_it(
    stub: StubDispatcher, start_agent: Start, tmp_path: Path
) -> None:
    """It alone, so that what it runs is not ended by a signal that it knows nothing of; and it has its time."""
    stub.policy = quick_policy(kill_grace_ms=500)
    notice, ready = tmp_path / "notice", tmp_path / "ready"
    start_agent(notice_file=str(notice))
    runs = stub.submit(
        shell="sleep 1000 & child=$!; trap 'sleep 1; kill -0 $child && echo saved, the child lives; exit 75' USR1; "
        f"touch {ready}; wait",
        checkpoint_signal="SIGUSR1",
    )
    token = stub.wait_started(runs)
    until(ready.exists)
    notice.write_text("60000\n")
    result = stub.result(runs)
    assert (result.cause, result.exit_code) == ("preempted", 75)
    assert bytes(stub.logs[token]) == b"saved, the child lives\n"


def test_restarts_are_bounded_and_then_the_vm_ends(stub: StubDispatcher, agent: RunningAgent) -> None:
    """An agent that keeps dying is not started for ever."""
    for incarnations in range(1, 5):
        stub.wait(lambda n=incarnations: len({request.incarnation for request in stub.syncs}) == n)
        os.kill(agent.agent_pid, signal.SIGKILL)
    assert agent.wait() == 0
    assert agent.ended.exists()


def test_a_supervisor_holds_the_lifetime_of_an_agent_that_hangs(stub: StubDispatcher, tmp_path: Path) -> None:
    """The limit is the supervisor's own: see `Supervisor`, here with its grace cut to nothing."""
    from cloud_dispatch.agent import supervisor
    from cloud_dispatch.agent.identity import Config

    watching = supervisor.Supervisor(Config(lifetime_ms=1), "unused", supervisor.now_ms())
    watching._born_ms -= supervisor.LIFETIME_GRACE_MS + 2
    watching._beat_ms = watching._born_ms + supervisor.LIFETIME_GRACE_MS
    assert "lifetime" in watching._verdict()
    watching._hear(b"lifetime 100000\n")
    assert watching._verdict() == ""
    for end in (watching._wake_read, watching._wake_write):
        end.close()


def test_a_cancel_while_inputs_are_brought_ends_the_attempt(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """The command never starts."""
    import socket

    from cloud_dispatch.wire.messages import FileTransfer

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/input"
        proof = tmp_path / "ran"
        task = stub.submit("touch", str(proof), inputs=[FileTransfer("in", url)])
        token = stub.token_of(task)
        connection, _ = silent.accept()
        stub.change(kills={token})
        time.sleep(0.3)
        connection.close()
        result = stub.result(task)
    assert result.cause == "cancelled"
    assert result.ran_ms == -1
    assert not proof.exists()


def test_a_drain_waits_for_the_task_and_a_resume_takes_work_again(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """draining, drained with the token, and back."""
    go = tmp_path / "go"
    task = stub.submit(shell=f"while [ ! -e {go} ]; do sleep 0.05; done")
    stub.wait_started(task)
    stub.change(drain_token=1, drain=True)
    stub.wait(lambda: stub.syncs[-1].state == "draining")
    go.touch()
    stub.wait(lambda: (stub.syncs[-1].state, stub.syncs[-1].drain_token) == ("drained", 1))
    assert stub.results[task].cause == "success"
    stub.change(drain_token=2, drain=False)
    assert stub.result(stub.submit("true")).cause == "success"


def test_a_failing_health_check_ends_the_instance(stub: StubDispatcher, start_agent: Start, tmp_path: Path) -> None:
    """The task goes back as instance-lost, the state is failed, the end command runs."""
    bad = tmp_path / "bad"
    check = HealthCheck(["sh", "-c", f"echo disk broken; test ! -e {bad}"], 200, 2_000, 2)
    stub.policy = quick_policy(health_checks=[check])
    agent = start_agent()
    task = stub.submit("sleep", "1000")
    stub.wait_started(task)
    bad.touch()
    assert stub.result(task).cause == "instance-lost"
    assert agent.wait() == 0
    last = stub.syncs[-1]
    assert (last.state, last.ending) == ("failed", "health")
    assert last.detail.endswith("failed 2 times in a row: exit code 1 disk broken")
    assert agent.ended.exists()


def test_a_health_check_may_print_much(stub: StubDispatcher, start_agent: Start) -> None:
    """More than a pipe holds: it is read meanwhile. Of one that fails the end is told, which says why."""
    much = "set -e; seq 100000; echo the end"
    stub.policy = quick_policy(health_checks=[HealthCheck(["sh", "-c", much], 200, 20_000, 2)])
    agent = start_agent()
    assert stub.result(stub.submit("true")).cause == "success"
    bad = HealthCheck(["sh", "-c", f"{much}; exit 3"], 200, 20_000, 2)
    stub.change(new_policy=quick_policy(health_checks=[bad]))
    assert agent.wait() == 0
    assert stub.syncs[-1].detail.endswith("100000\nthe end")


def test_a_health_check_that_hangs_fails(stub: StubDispatcher, start_agent: Start) -> None:
    """It is killed at its deadline; without one pass no work is taken."""
    stub.policy = quick_policy(health_checks=[HealthCheck(["sleep", "100"], 100, 200, 2)])
    agent = start_agent()
    stub.submit("true")
    assert agent.wait() == 0
    assert stub.given == {}
    assert stub.syncs[-1].ending == "health"


def test_an_idle_agent_ends_when_its_wish_is_granted(stub: StubDispatcher, start_agent: Start) -> None:
    """It asks after its idle time and goes when told."""
    stub.policy = quick_policy(idle_ms=500)
    agent = start_agent()
    stub.wait(lambda: bool(stub.syncs) and stub.syncs[-1].ask_end)
    time.sleep(0.5)
    assert agent.process.poll() is None
    stub.change(approve_end=True)
    assert agent.wait() == 0
    assert stub.syncs[-1].ending == "idle"
    assert living(agent.mark) == []


def test_a_dead_supervisor_takes_its_agent_and_tasks_along(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """kill -9 of the supervisor: the agent notices at its next sign of life and ends what runs."""
    task = stub.submit(shell="sleep 1000 & sleep 1000")
    stub.wait_started(task)
    os.kill(agent.process.pid, signal.SIGKILL)
    until(lambda: living(agent.mark) == [], 10)


def test_the_identity_is_for_its_owner_only(stub: StubDispatcher, agent: RunningAgent) -> None:
    """The state file holds the token: mode 0600, in a folder of mode 0700; no command line shows it."""
    stub.result(stub.submit("true"))
    state = agent.private / "identity.json"
    assert "service-token" in state.read_text()
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert stat.S_IMODE(agent.private.stat().st_mode) == 0o700
    for pid in (agent.process.pid, agent.agent_pid):
        shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        assert b"token" not in shown


def test_a_bad_configuration_is_named(tmp_path: Path, agent_zip: Path) -> None:
    """One line says which file and what is missing; exit code 2."""
    import subprocess
    import sys

    config = tmp_path / "bad.json"
    config.write_text('{"url": "http://127.0.0.1:1"}')
    done = subprocess.run(
        [sys.executable, "-S", "-I", str(agent_zip), str(config)], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2
    assert f"configuration {config}: vm is missing" in done.stderr
