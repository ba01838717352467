"""Real agents running real tasks for the stub dispatcher: ends of every kind, limits, and what is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.wire.messages import FileTransfer, OrderShape, Quantities
from tests.agent.conftest import RunningAgent, living, quick_policy, until
from tests.agent.stub import StubDispatcher
from tests.procfs import alive

pytestmark = pytest.mark.process
#: So many open files are enough for an agent and a few tasks.
FEW = 26


def pids_in(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def test_a_task_runs_and_its_output_arrives(stub: StubDispatcher, agent: RunningAgent) -> None:
    """Output and errors in one log, exit code, usage, and a result that is settled once."""
    task = stub.submit(shell="echo out; echo err >&2; exit 3")
    result = stub.result(task)
    assert (result.cause, result.exit_code, result.detail) == ("exit-code", 3, "")
    assert bytes(stub.logs[result.token]) == b"out\nerr\n"
    assert result.max_rss > 0
    assert result.ran_ms >= 0


@pytest.mark.parametrize(
    ("command", "cause", "words"),
    [
        ({"argv": ["no-such-command"]}, "cannot-start", "command not found: no-such-command"),
        ({"argv": ["/etc/passwd"]}, "cannot-start", "no permission"),
        ({"argv": ["true"], "cwd": "nowhere"}, "cannot-start", "nowhere does not exist"),
        ({"argv": ["printf", "a\0b"]}, "cannot-start", "null"),
        ({"argv": ["true"], "env": [("A=B", "c")]}, "cannot-start", "environment"),
        ({"argv": ["/bin/sh", "-c", "kill -9 $$"]}, "signal", "signal 9"),
        ({"argv": ["sleep", "60"], "max_runtime_ms": 300}, "timeout", ""),
        ({"argv": ["true", "x" * 3_000_000]}, "cannot-start", "true"),
    ],
)
def test_how_a_command_ends_is_its_cause(
    stub: StubDispatcher, agent: RunningAgent, command: dict[str, object], cause: str, words: str
) -> None:
    """Each kind of end has its own cause, with words for the user; the agent goes on."""
    fields = dict(command)
    argv = fields.pop("argv")
    assert isinstance(argv, list)
    result = stub.result(stub.submit(*argv, **fields))
    assert result.cause == cause
    assert words in f"{result.cause} {result.signal} {result.detail}"
    assert stub.result(stub.submit("true")).cause == "success"


def test_a_task_sees_its_own_environment_and_no_secret(stub: StubDispatcher, agent: RunningAgent) -> None:
    """A clean base, the task's variables, who it is; nothing of the agent's environment or tokens."""
    stub.submit("true")
    shape = OrderShape(Quantities(500, 1 << 30))
    task = stub.submit(shell="env; pwd", env=[("GREETING", "grüß")], shape=shape, array_id="arr", array_index=7)
    result = stub.result(task)
    text = stub.logs[result.token].decode()
    lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert lines["GREETING"] == "grüß"
    assert lines["CLOUD_DISPATCH_TASK"] == str(task)
    assert lines["CLOUD_DISPATCH_TOKEN"] == str(result.token)
    assert (lines["CLOUD_DISPATCH_ATTEMPT"], lines["CLOUD_DISPATCH_INSTANCE"]) == ("1", "batch-0")
    assert (lines["CLOUD_DISPATCH_ARRAY_ID"], lines["CLOUD_DISPATCH_ARRAY_INDEX"]) == ("arr", "7")
    assert (lines["CLOUD_DISPATCH_CPUS"], lines["CLOUD_DISPATCH_MEMORY"]) == ("0.5", str(1 << 30))
    assert lines["HOME"] == text.splitlines()[-1]
    assert (lines["CLOUD_DISPATCH_URL"], lines["CLOUD_DISPATCH_CA"]) == (stub.url, "")
    assert lines["CLOUD_DISPATCH_TASK_TOKEN"] == stub.task_token(result.token)
    assert "not-for-tasks" not in text
    assert "service-token" not in text


TOLD = 'echo "${CUDA_VISIBLE_DEVICES-unset} ${NVIDIA_VISIBLE_DEVICES-unset} ${ROCR_VISIBLE_DEVICES-unset}"'


def test_tasks_are_told_which_gpus_are_theirs(
    stub: StubDispatcher, start_agent: Callable[..., RunningAgent], tmp_path: Path
) -> None:
    """Two that run beside each other see different ones, a third that asked for none sees none; whatever they say."""
    stub.policy = quick_policy(cpus_milli=4000, gpus=3)
    start_agent()
    go, env = tmp_path / "go", [("CUDA_VISIBLE_DEVICES", "0"), ("ROCR_VISIBLE_DEVICES", "7")]
    tasks = []
    for gpus in (2, 1, 0):
        shape = OrderShape(Quantities(1000, gpus=gpus))
        script = f"{TOLD}; while [ ! -e {go} ]; do sleep 0.05; done"
        tasks.append(stub.submit(shell=script, env=env if gpus else [], shape=shape))
        stub.wait_started(tasks[-1])
    go.touch()
    said = [stub.logs[stub.result(task).token].decode().split() for task in tasks]
    assert said == [["0,1", "0,1", "7"], ["2", "2", "7"], ["-1", "none", "unset"]]


def test_where_no_gpu_is_counted_nothing_is_said_of_any(stub: StubDispatcher, agent: RunningAgent) -> None:
    result = stub.result(stub.submit(shell=TOLD, env=[("CUDA_VISIBLE_DEVICES", "5")]))
    assert stub.logs[result.token] == b"5 unset unset\n"


def test_tasks_can_read_what_they_shall_know_the_dispatcher_by(
    stub: StubDispatcher, start_agent: Callable[..., RunningAgent]
) -> None:
    """In a file that they may read and not change, whichever user they are; a new policy's certificates replace it."""
    stub.policy.ca = "certificates\n"
    agent = start_agent()
    show = 'cat "$CLOUD_DISPATCH_CA"; ls -l "$CLOUD_DISPATCH_CA"'
    said = stub.logs[stub.result(stub.submit(shell=show)).token].decode()
    assert said.startswith("certificates\n-rw-r--r--")
    assert stat.S_IMODE((agent.private / "identity.json").stat().st_mode) == 0o600
    stub.change(new_policy=quick_policy(ca="others\n"))
    stub.wait(lambda: stub.new_policy is None)
    assert stub.logs[stub.result(stub.submit(shell=show)).token].startswith(b"others\n-rw-r--r--")
    if agent.private != agent.work:
        write = 'echo mine > "$CLOUD_DISPATCH_CA" || rm -f "$CLOUD_DISPATCH_CA"'
        assert stub.result(stub.submit(shell=write)).cause == "exit-code"


def test_a_dispatcher_of_before_gets_logs_and_outputs_by_the_agent_s_token(
    stub: StubDispatcher, agent: RunningAgent
) -> None:
    """One that gives no task tokens: its tasks have none, and find nothing to use one at."""
    stub.task_tokens = False
    task = stub.submit(shell="env | grep -e TASK_TOKEN -e CLOUD_DISPATCH_URL; echo x > o", outputs=[FileTransfer("o")])
    result = stub.result(task)
    assert (result.cause, result.outputs[0].path) == ("success", "o")
    assert stub.outputs == {(result.token, "o"): b"x\n"}
    assert stub.logs[result.token] == b""
    assert b"said" in stub.logs[stub.result(stub.submit("echo", "said")).token]


def test_the_folder_of_an_attempt_is_its_own_and_goes(stub: StubDispatcher, agent: RunningAgent) -> None:
    """What one task writes is gone before the next one looks, and from the disk after settlement."""
    first = stub.result(stub.submit(shell="pwd; echo x > left; mkdir .tmp/deep; touch $TMPDIR/t"))
    folder = Path(stub.logs[first.token].decode().strip())
    for _ in range(4):
        result = stub.result(stub.submit(shell="ls -A; ls -A $TMPDIR"))
        assert bytes(stub.logs[result.token]) == b".tmp\n"
    until(lambda: not folder.exists())


def test_a_hung_task_is_cancelled(stub: StubDispatcher, agent: RunningAgent) -> None:
    """SIGTERM ends it and it is reported cancelled, within the grace."""
    task = stub.submit("sleep", "1000")
    token = stub.wait_started(task)
    began = time.monotonic()
    stub.change(kills={token})
    assert stub.result(task).cause == "cancelled"
    assert time.monotonic() - began < 3


def test_a_task_that_ignores_sigterm_is_killed_with_all_its_children(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """After the grace SIGKILL reaches the whole tree, other sessions included."""
    pids = tmp_path / "pids"
    stubborn = f"trap '' TERM; echo $$ >> {pids}; while :; do sleep 1000; done"
    task = stub.submit("sh", "-c", f'setsid sh -c "$1" & {stubborn}', "sh", stubborn)
    token = stub.wait_started(task)
    until(lambda: len(pids_in(pids)) == 2)
    stub.change(kills={token})
    result = stub.result(task)
    assert (result.cause, result.signal) in (("cancelled", 9), ("cancelled", 15))
    assert not any(alive(pid) for pid in pids_in(pids))


def test_a_daemon_left_behind_is_dead_before_the_result(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """A double fork into another session, without the attempt's marks, does not escape."""
    pid = tmp_path / "pid"
    task = stub.submit(shell=f"setsid env -i sh -c 'trap \"\" TERM; echo $$ > {pid}; exec sleep 1000' & sleep 0.3")
    assert stub.result(task).cause == "success"
    assert len(pids_in(pid)) == 1
    assert not alive(pids_in(pid)[0])


def test_a_daemon_of_a_task_that_still_runs_is_left_alone(
    stub: StubDispatcher, agent: RunningAgent, tmp_path: Path
) -> None:
    """The end of one attempt does not touch what another has running, even reparented."""
    pid = tmp_path / "pid"
    task = stub.submit(shell=f"(setsid sh -c 'echo $$ > {pid}; exec sleep 1000' &); sleep 1000")
    until(lambda: pids_in(pid))
    for _ in range(3):
        assert stub.result(stub.submit("true")).cause == "success"
    assert alive(pids_in(pid)[0])
    stub.change(kills={stub.token_of(task)})
    stub.result(task)
    assert not alive(pids_in(pid)[0])


def test_a_killed_task_is_reported_by_its_signal(stub: StubDispatcher, agent: RunningAgent, tmp_path: Path) -> None:
    """kill -9 of a task's process from outside."""
    pid = tmp_path / "pid"
    task = stub.submit(shell=f"echo $$ > {pid}; exec sleep 1000")
    os.kill(until(lambda: pids_in(pid))[0], signal.SIGKILL)
    result = stub.result(task)
    assert (result.cause, result.signal) == ("signal", 9)


def test_memory_beyond_the_limit_ends_the_task(stub: StubDispatcher, agent: RunningAgent) -> None:
    """The sum over the attempt's processes counts; the cause is out-of-memory, with the numbers."""
    shape = OrderShape(Quantities(1000, 64 << 20))
    hungry = (
        "import os,time\nos.fork()\nx = bytearray(48 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(30)"
    )
    result = stub.result(stub.submit("python3", "-c", hungry, shape=shape))
    assert result.cause == "out-of-memory"
    assert str(64 << 20) in result.detail
    frugal = "import time\nx = bytearray(8 << 20)\ntime.sleep(0.5)"
    assert stub.result(stub.submit("python3", "-c", frugal, shape=shape)).cause == "success"


def test_two_hundred_megabytes_of_log_neither_block_nor_fill(stub: StubDispatcher, start_agent: object) -> None:
    """Head and tail are kept, a line says what is missing, and the disk never holds more than the limit."""
    limit = 1 << 20
    stub.policy = quick_policy(log_limit=limit)
    agent = start_agent()  # type: ignore[operator]
    task = stub.submit(shell="echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last")
    began = time.monotonic()
    largest = 0
    while task not in stub.results:
        assert time.monotonic() - began < 60
        with contextlib.suppress(FileNotFoundError):  # it is removed once it has been stored
            largest = max([largest, *(path.stat().st_size for path in (agent.private / "attempts").glob("*.log"))])
        time.sleep(0.01)
    log = bytes(stub.logs[stub.results[task].token])
    assert stub.results[task].cause == "success"
    assert log.startswith(b"first\nxxx")
    assert log.endswith(b"xxx\nlast\n")
    assert b"bytes of output were dropped here" in log
    assert len(log) <= limit + 200
    assert largest <= limit + 200


def test_a_log_that_can_not_be_stored_does_not_hold_the_result_for_long(
    stub: StubDispatcher, agent: RunningAgent
) -> None:
    """After ten seconds the result goes without its log; meanwhile the room is free."""
    stub.result(stub.submit("true"))  # it serves
    stub.change(refuse_logs=True)
    talkers = [stub.submit("echo", "hello") for _ in range(2)]
    quiet = [stub.submit("true") for _ in range(3)]
    for task in quiet:
        stub.result(task, 5)
    assert not stub.results.keys() & set(talkers)
    for task in talkers:
        assert stub.result(task, 15).cause == "success"


def test_a_task_held_by_a_stale_token_is_killed(stub: StubDispatcher, agent: RunningAgent) -> None:
    """A claim that the dispatcher does not know any more ends, and its result is dropped as stale."""
    task = stub.submit("sleep", "1000")
    token = stub.wait_started(task)
    with stub.lock:
        del stub.given[token]
    stub.wait(lambda: [result.token for result in stub.stale] == [token])
    assert stub.result(stub.submit("true")).cause == "success"


def test_many_tasks_are_done_once_each_in_few_requests(stub: StubDispatcher, agent: RunningAgent) -> None:
    """Tiny tasks are claimed ahead: 300 take far fewer than 300 requests, and all folders are reused."""
    tasks = [stub.submit("true") for _ in range(300)]
    for task in tasks:
        assert stub.result(task, 60).cause == "success"
    assert stub.sync_count < 150
    assert len(list((agent.work / "attempts").iterdir())) <= 8


def test_nothing_is_left_when_the_agent_ended(stub: StubDispatcher, agent: RunningAgent) -> None:
    """SIGTERM of the supervisor: tasks are preempted, the end command runs, no process and no file stays."""
    task = stub.submit(shell="trap '' TERM; sleep 1000 & sleep 1000; sleep 1000")
    stub.wait_started(task)
    agent.process.terminate()
    assert agent.wait() == 0
    assert stub.result(task).cause == "preempted"
    assert stub.syncs[-1].ending == "shutdown"
    assert agent.ended.exists()
    assert living(agent.mark) == []
    assert not (agent.work / "attempts").exists()
    assert not (agent.private / "attempts").exists()


def test_tasks_for_which_no_file_may_be_opened_wait_for_others(
    stub: StubDispatcher, start_agent: Callable[..., RunningAgent]
) -> None:
    """An agent that may have few files open starts what it can, and the rest as that ends, or hands it back and gets it
    anew. What runs is not ended for it, no task has failed, and no descriptor is lost."""
    agent = start_agent(files=FEW)
    before = agent.agent_pid
    shape = OrderShape(Quantities(10, 1 << 20))
    first = [stub.submit("sleep", "1", shape=shape) for _ in range(30)]
    assert {stub.result(task).cause for task in first} == {"success"}
    assert agent.agent_pid == before, agent.console.read_text()


def test_what_is_killed_while_no_file_may_be_opened_never_starts(
    stub: StubDispatcher, start_agent: Callable[..., RunningAgent], tmp_path: Path
) -> None:
    """It is over at once, while others run on. What waits for long goes back."""
    start_agent(files=FEW)
    begun = tmp_path / "begun"
    begun.mkdir()
    shape = OrderShape(Quantities(10, 1 << 20))
    for _ in range(30):
        stub.submit(shell=f"touch {begun}/$CLOUD_DISPATCH_TOKEN; exec sleep 600", shape=shape)
    (back, *_) = until(lambda: list(stub.released))
    assert back.detail.startswith("there was no room for its files")
    waited: set[int] = set()

    def killed() -> bool:
        with stub.lock:
            waiting = set(stub.given) - {int(path.name) for path in begun.iterdir()}
            waited.update(waiting)
            stub.kills = waiting
            stub.lock.notify_all()
        return any(result.detail == "killed before its command started" for result in list(stub.results.values()))

    until(killed)
    assert not [token for token in waited if (begun / str(token)).exists()]
