"""kill -9 of everything: the dispatcher, agents, tasks, whole instances. Nothing is lost, doubled or left behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import is_agent
from tests.system.house import House


def pids_of(house: House, word: str) -> list[int]:
    return [pid for pid, command in house.processes().items() if word in command]


def agents_of(house: House) -> list[int]:
    return [pid for pid in house.processes() if is_agent(pid)]


def test_ten_kills_of_the_dispatcher_lose_and_double_nothing(make_house: Any, tmp_path: Path) -> None:
    """At ten random moments, restarted each time: every task runs and ends exactly once, each instance is launched
    once, and none is left."""
    house = make_house(cap=3, lease="30s")
    house.up()
    witness = tmp_path / "witness"
    total = 120
    chance = random.Random(20_260_101)
    ids = house.submit(
        *(
            {"command": ["sh", "-c", f"echo $CLOUD_DISPATCH_TASK >> {witness}; sleep {chance.uniform(0.05, 0.6):.2f}"]}
            for _ in range(total)
        )
    )
    for _ in range(10):
        time.sleep(chance.uniform(0.2, 1.5))
        house.kill()
        house.up()
    assert house.until_all_ended(total) == {"succeeded": total}
    runs = Counter(witness.read_text().split())
    assert runs == Counter(str(i) for i in ids)
    house.until_no_instance()
    # Killed between an intent and its launch, the next dispatcher proves that there is no VM: such a row names none.
    launched = [row["vm"] for row in house.instances(past=True) if row["vm"]]
    assert len(set(launched)) == len(launched)
    assert 0 < len(launched) <= 3 + 3, "instances were launched again although those of before lived"
    attempts = [attempt for i in ids for attempt in house.task(i)["attempts_list"]]
    assert len(attempts) == total
    assert len({attempt["token"] for attempt in attempts}) == total


def test_a_restart_keeps_the_running_task_and_its_result(house: House) -> None:
    """The agent goes on while the dispatcher is away, and brings its result afterwards."""
    (number,) = house.submit({"command": ["sh", "-c", "echo begin; sleep 2; echo end"]})
    house.until(lambda: b"begin" in house.logs(number), 30, "it runs")
    house.kill()
    time.sleep(3)
    house.up()
    ended = house.until_ended(number)
    assert (ended["state"], ended["attempts"]) == ("succeeded", 1)
    assert house.logs(number) == b"begin\nend\n"


def test_a_stop_says_how_long_what_runs_goes_on(make_house: Any) -> None:
    """Whoever keeps the dispatcher down for longer than the lease costs each of these tasks an attempt; where none runs
    there is nothing to say."""
    house = make_house(lease="30s")
    house.up()
    house.kill(signal.SIGTERM)
    assert "goes on for" not in house.log_tail()
    house.up()
    (number,) = house.submit({"command": ["sleep", "600"]})
    house.until(lambda: house.task(number)["state"] == "running", 60, "it runs")
    house.kill(signal.SIGTERM)
    (said,) = (line for line in house.log_tail().splitlines() if "goes on for" in line)
    assert "dispatcher.down" in said
    assert "what runs (1 task) goes on for 1m: after that it is begun anew" in said


def test_a_stop_on_purpose_may_last_for_longer_than_the_lease(make_house: Any) -> None:
    """The agent was told so by the last answer; killed, the dispatcher would have lost the attempt."""
    house = make_house(lease="20s")
    house.up()
    (number,) = house.submit({"command": ["sleep", "40"]})
    house.until(lambda: house.task(number)["state"] == "running", 60, "it runs")
    house.kill(signal.SIGTERM)
    time.sleep(21)
    house.up()
    ended = house.until_ended(number)
    assert (ended["state"], ended["attempts"]) == ("succeeded", 1)


def test_a_cancel_holds_across_a_restart(make_house: Any) -> None:
    """Cancelled while running, the dispatcher dies before the agent hears of it: it ends cancelled all the same."""
    house = make_house(lease="30s")
    house.up()
    (number,) = house.submit({"command": ["sh", "-c", "echo begin; sleep 600"]})
    house.until(lambda: b"begin" in house.logs(number), 30, "it runs")
    agents = agents_of(house)
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)  # the agent can't hear
    house.post("/v1/tasks/cancel", {"ids": [number]})
    assert house.task(number)["state"] == "cancelling"
    house.kill()
    house.up()
    for pid in agents:
        os.kill(pid, signal.SIGCONT)
    assert house.until_ended(number)["state"] == "cancelled"
    house.until(lambda: not pids_of(house, "sleep 600"), 10, "nothing of it lives")


@pytest.mark.parametrize("victim", ["agent", "supervisor", "machine"])
def test_kill_of_an_agent_or_an_instance(make_house: Any, tmp_path: Path, victim: str) -> None:
    """What ran there ends instance-lost, its processes end, and it is tried again elsewhere or under a new agent."""
    house = make_house(lease="3s")
    house.up()
    flag = tmp_path / "flag"
    (number,) = house.submit({"command": ["sh", "-c", f"test -e {flag} || {{ touch {flag}; echo one; sleep 600; }}"]})
    house.until(lambda: flag.exists() and house.task(number)["state"] == "running", 30, "it runs")
    agents = agents_of(house)
    pids = {
        "agent": agents,
        "supervisor": [pid for pid in pids_of(house, "agent.pyz") if pid not in agents],
        "machine": pids_of(house, "cloud_dispatch_local.vm"),
    }[victim]
    assert pids, house.processes()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it may have fallen with the one before
            os.kill(pid, signal.SIGKILL)
    ended = house.until_ended(number, within=60)
    assert ended["state"] == "succeeded", ended
    assert [a["cause"] for a in house.task(number)["attempts_list"]] == ["instance-lost", "success"]
    house.until(lambda: not pids_of(house, "sleep 600"), 30, "the first attempt's processes are dead")
    house.until_no_instance()


def test_kill_of_a_task_is_its_own_end(house: House) -> None:
    """The task failed by a signal; its instance did not."""
    (number,) = house.submit({"command": ["sleep", "601"]})
    pids = house.until(lambda: pids_of(house, "sleep 601"), 30, "it runs")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it may have fallen with the one before
            os.kill(pid, signal.SIGKILL)
    ended = house.until_ended(number)
    assert (ended["state"], ended["cause"], ended["signal"]) == ("failed", "signal", 9)


def test_a_hung_dispatcher_does_not_lose_tasks_to_their_lease(make_house: Any, tmp_path: Path) -> None:
    """Stopped for longer than the lease: agents kill what they can't renew, it is tried again, results stay single."""
    house = make_house(lease="2s")
    house.up()
    witness = tmp_path / "witness"
    (number,) = house.submit({"command": ["sh", "-c", f"echo x >> {witness}; sleep 3.5"]})
    house.until(witness.exists, 30, "it runs")
    assert house.process is not None
    house.process.send_signal(signal.SIGSTOP)
    time.sleep(5)
    house.process.send_signal(signal.SIGCONT)
    ended = house.until_ended(number)
    assert ended["state"] == "succeeded", [
        (a["cause"], a["detail"], a["started_ms"], a["ended_ms"]) for a in house.task(number)["attempts_list"]
    ]
    *lost, last = [a["cause"] for a in house.task(number)["attempts_list"]]
    assert (set(lost), last) == ({"instance-lost"}, "success")  # a busy machine may outlast a lease once more
    assert 2 <= len(witness.read_text().split()) <= len(lost) + 1


def test_a_shutdown_of_the_operating_system_is_an_end_and_not_a_failure(make_house: Any, tmp_path: Path) -> None:
    """The machine powers off: its task ends preempted and runs elsewhere, the stopped VM is deleted, and the instance
    counts as ended, not as failed."""
    house = make_house()
    house.up()
    flag = tmp_path / "flag"
    (number,) = house.submit({"command": ["sh", "-c", f"test -e {flag} || {{ touch {flag}; sleep 600; }}"]})
    house.until(lambda: flag.exists() and house.task(number)["state"] == "running", 30, "it runs")
    first = house.task(number)["instance"]
    agents = agents_of(house)
    for pid in set(pids_of(house, "agent.pyz")) - set(agents):
        os.kill(pid, signal.SIGTERM)
    assert house.until_ended(number)["state"] == "succeeded"
    assert [a["cause"] for a in house.task(number)["attempts_list"]] == ["preempted", "success"]
    house.until(lambda: house.get(f"/v1/instances/{first}")["state"] == "gone", 30, "the stopped VM is deleted")
    assert house.get(f"/v1/instances/{first}")["cause"] == "shutdown"
    house.until_no_instance()
