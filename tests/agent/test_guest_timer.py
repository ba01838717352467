"""The guest timer over real processes: whatever becomes of the agent, only the dispatcher's word keeps the VM."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.agentzip import build
from cloud_dispatch.wire.timer import TimerPlan, forward, write_word
from tests.agent.conftest import RunningAgent, living, until
from tests.agent.stub import StubDispatcher
from tests.agent.test_agent_tasks import pids_in
from tests.procfs import alive

pytestmark = pytest.mark.process
#: Time enough for supervisor, agent and task to begin in, on a busy machine too.
FIRST_S = 10
SEED = b"\3" * 32
LINKS = 50
Start = Callable[..., RunningAgent]


def plan(first_s: float, step_s: float = 1.0, **fields: Any) -> dict[str, Any]:
    """A timer of seconds, of which the last two are there to ask for a word and to hear it; its hard end by the wall
    clock is far."""
    own = TimerPlan(
        forward(SEED, LINKS).hex(), int(first_s * 1000), int(step_s * 1000), LINKS, 4_000, 10**15
    )  # fmt: skip
    return {**dataclasses.asdict(own), **fields}


def word(count: int) -> str:
    return write_word(count, forward(SEED, LINKS - count))


def ended_after(agent: RunningAgent, began: float, within: float = 30) -> float:
    """When the end command ran, in seconds from `began`; nothing of the VM lives then but what ran it."""
    agent.wait(within)
    assert agent.ended.exists()
    assert living(agent.mark) == []
    return agent.ended.stat().st_mtime - began


def test_a_hung_agent_does_not_keep_the_vm(stub: StubDispatcher, start_agent: Start, tmp_path: Path) -> None:
    """Stopped as a whole, tasks and all: the timer ends it long before its supervisor would take it for hung."""
    pid = tmp_path / "pid"
    task = stub.submit(shell=f"trap '' TERM; echo $$ > {pid}; while :; do sleep 1; done")
    began = time.time()
    agent = start_agent(timer=plan(FIRST_S), hang_ms=600_000)
    stub.wait_started(task)
    (main,) = until(lambda: pids_in(pid))
    os.kill(agent.agent_pid, signal.SIGSTOP)
    assert FIRST_S - 0.5 < ended_after(agent, began) < FIRST_S + 6
    assert not alive(main)
    assert b"the guest timer ended" in agent.console.read_bytes()


def test_a_wall_clock_past_the_hard_end_ends_the_vm_until_a_word_was_heard(start_agent: Start) -> None:
    """A boot that came late: the timer has an hour left by the boot clock."""
    began = time.time()
    agent = start_agent(timer=plan(3_600, ends_ms=int((began + FIRST_S) * 1000)), hang_ms=600_000)
    until(lambda: len(living(agent.mark)) == 2)
    os.kill(agent.agent_pid, signal.SIGSTOP)
    assert FIRST_S - 0.5 < ended_after(agent, began) < FIRST_S + 6


def test_the_dispatchers_words_keep_it_until_they_end(stub: StubDispatcher, start_agent: Start) -> None:
    """Not only the first seconds. An agent that is killed in between: the next one goes on with what its supervisor
    has heard."""
    began = time.time()
    stub.change(timer=word(FIRST_S + 8))
    agent = start_agent(timer=plan(FIRST_S))
    stub.wait(lambda: any(sync.timer for sync in stub.syncs))
    until(lambda: stub.registrations and len(stub.syncs) > 1)
    time.sleep(0.5)
    stub.change(timer="")
    os.kill(agent.agent_pid, signal.SIGKILL)
    asked = [sync.timer for sync in stub.syncs if sync.timer]
    assert asked[0].age_ms < FIRST_S * 1000
    assert (asked[0].step_ms, asked[0].links) == (1_000, LINKS)
    assert FIRST_S + 7 < ended_after(agent, began) < FIRST_S + 14


def replaced(folder: Path, agent: str) -> Path:
    """The zipapp with another agent in it: `run_agent(arguments)` is the text's."""
    source, target = zipfile.ZipFile(io.BytesIO(build()[0])), folder / "replaced.pyz"
    with zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            text = agent if name == "cloud_dispatch/agent/incarnation.py" else source.read(name)
            archive.writestr(name, text)
    return target


LIVELY = """
import os, time
def run_agent(arguments):
    pipe = int(arguments[1])
    known = %r
    while True:
        for line in ("beat 0", "lifetime 999999999999", "timer " + known, "timer 2:" + known[2:], "timer 1:%s",
                     "timer 30:" + "ab" * 32, "timer", "timer x", "timer 1:" + "f" * 5000):
            os.write(pipe, line.encode() + b"\\n")
        time.sleep(%r)
"""
DEADLY = """
import os
def run_agent(arguments):
    os.write(int(arguments[1]), b"lifetime 999999999999\\n")
    os.abort()
"""


@pytest.mark.parametrize(
    ("agent", "end_s"),
    [
        (LIVELY % (word(1), plan(4)["anchor"], 0.05), 4),
        (LIVELY % ("1:" + "0" * 64, plan(4)["anchor"], 0), 4),  # without a pause
        (DEADLY, 0),  # which its supervisor gives up before
    ],
    ids=["forges", "floods", "dies"],
)
def test_an_agent_that_was_replaced_gains_nothing(tmp_path: Path, agent: str, end_s: int) -> None:
    """It shows signs of life for ever, asks for another lifetime, says old words, and others that nobody said."""
    began = time.time()
    running = RunningAgent(tmp_path, replaced(tmp_path, agent), "http://127.0.0.1:9", timer=plan(4))
    try:
        assert end_s - 0.5 < ended_after(running, began) < end_s + 8
    finally:
        running.stop()


BOOT = """#!/bin/sh
sleep 600 &
CLOUD_DISPATCH_EARLY_TIMER=$!
{more}
export CLOUD_DISPATCH_EARLY_TIMER CLOUD_DISPATCH_BORN
exec "$@"
"""


def test_the_supervisor_relieves_the_boot_scripts_timer_and_counts_from_its_birth(
    agent_zip: Path, stub: StubDispatcher, tmp_path: Path
) -> None:
    """Eight of eighteen seconds were gone when the supervisor began."""
    script = tmp_path / "boot.sh"
    script.write_text(BOOT.format(more="CLOUD_DISPATCH_BORN=$(awk '{printf \"%.2f\", $1 - 8}' /proc/uptime)"))
    config, ended, mark = tmp_path / "agent.json", tmp_path / "ended", f"AGENT_OF_TEST={tmp_path}"
    told = {
        "url": stub.url,
        "join_token": "join-token",
        "vm": "vm-1",
        "work_dir": str(tmp_path / "agent"),
        "timer": plan(FIRST_S + 8),
    }
    config.write_text(json.dumps({**told, "end_command": ["touch", str(ended)]}))
    began = time.time()
    command = ["/bin/sh", str(script), sys.executable, "-S", "-I", str(agent_zip), str(config)]
    process = subprocess.Popen(command, env={"PATH": os.environ["PATH"], **dict([mark.split("=")])})
    try:
        until(lambda: len(stub.registrations) == 1 and len(living(mark)) == 2)  # supervisor and agent
        assert process.wait(20) == 0
        assert time.time() - began < FIRST_S + 3
        assert ended.exists()
        assert living(mark) == []
    finally:
        for pid in living(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
