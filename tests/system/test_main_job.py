"""The main job and its ordinary turns, over real processes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tests.system.house import House


def test_a_queue_runs_and_the_machines_go(house: House) -> None:
    """Forty tasks, every one succeeds once, and nothing is left when the idle time has passed."""
    ids = house.submit(*({"command": ["sh", "-c", f"echo out-{n}"]} for n in range(40)))
    assert house.until_all_ended(40) == {"succeeded": 40}
    assert house.logs(ids[7]) == b"out-7\n"
    assert all(len(house.task(i)["attempts_list"]) == 1 for i in ids)
    house.until_no_instance()
    past = house.instances(past=True)
    assert all(row["state"] == "gone" and row["cause"] in ("idle", "drained") for row in past), past
    assert all(row["work_ms"] >= 0 and row["cost_micro"] > 0 for row in past)


def test_every_way_to_end_has_its_cause(house: House) -> None:
    """Exit code, signal, timeout, memory, no such command, no such input: each is told apart."""
    hog = "import time; b = bytearray(300 << 20); time.sleep(30)"
    ids = house.submit(
        {"command": ["sh", "-c", "exit 3"]},
        {"command": ["sh", "-c", "kill -9 $$"]},
        {"command": ["sleep", "60"], "max_runtime": "1s"},
        {"command": [sys.executable, "-c", hog], "memory": "64MiB"},
        {"command": ["/no/such/command"], "max_attempts": 1},
        {"command": ["true"], "inputs": [{"url": "file:///no/such/file", "path": "x"}], "max_attempts": 1},
    )
    ended = [house.until_ended(i) for i in ids]
    causes = [task["cause"] for task in ended]
    assert causes == ["exit-code", "signal", "timeout", "out-of-memory", "cannot-start", "cannot-start"]
    assert all(task["state"] == "failed" for task in ended)
    assert (ended[0]["exit_code"], ended[1]["signal"]) == (3, 9)


def test_a_task_that_ignores_sigterm_is_killed(house: House) -> None:
    """Cancel sends SIGTERM, waits the grace, then SIGKILL; the task ends cancelled and the instance goes on."""
    (number,) = house.submit({"command": ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]})
    house.until(lambda: b"ready" in house.logs(number), 30, "the task runs")
    house.post("/v1/tasks/cancel", {"ids": [number]})
    assert house.until_ended(number)["state"] == "cancelled"
    (after,) = house.submit({"command": ["true"]})
    assert house.until_ended(after)["state"] == "succeeded"


def test_inputs_outputs_and_environment(house: House, tmp_path: Path) -> None:
    """An input comes by URL, an output is kept under the attempt's name with its checksum, the rest is discarded."""
    source = tmp_path / "source.txt"
    source.write_text("hello")
    (number,) = house.submit(
        {
            "command": "tr a-z A-Z < in.txt > out.txt; echo $GREETING $CLOUD_DISPATCH_TASK",
            "env": {"GREETING": "hi"},
            "inputs": [{"url": source.as_uri(), "path": "in.txt"}],
            "outputs": ["out.txt"],
        }
    )
    assert house.until_ended(number)["state"] == "succeeded"
    assert house.logs(number).decode() == f"hi {number}\n"
    assert house.ask("GET", f"/v1/tasks/{number}/outputs/out.txt").content == b"HELLO"


def test_a_lost_output_is_a_failure(house: House) -> None:
    """A command that succeeds without its declared output did not succeed."""
    (number,) = house.submit({"command": ["true"], "outputs": ["never-made"], "max_attempts": 1})
    ended = house.until_ended(number)
    assert (ended["state"], ended["cause"]) == ("failed", "output-failed")


def test_priority_is_effective_at_the_next_claim(make_house: Any) -> None:
    """With the only machine busy, the last of the queue is made the first."""
    house = make_house(cap=1)
    house.up()
    blocker, *rest = house.submit(
        {"command": ["sleep", "3"], "cpus": 2}, *({"command": ["sh", "-c", "date +%s%N"], "cpus": 2} for _ in range(4))
    )
    house.until(lambda: house.task(blocker)["state"] == "running", 30, "the machine is busy")
    house.post(f"/v1/tasks/{rest[-1]}/priority", {"priority": 5})
    house.until_all_ended(5)
    times = {i: int(house.logs(i)) for i in rest}
    assert min(times, key=lambda i: times[i]) == rest[-1]


def test_hold_drain_and_resume(house: House) -> None:
    """Held: takes nothing and stays. Resumed: takes work. Drained: finishes what it has, takes nothing, goes."""
    first, *_ = house.submit({"command": ["sleep", "1"]})
    instance = house.until(lambda: house.task(first)["instance"], 30, "it is claimed")
    house.post(f"/v1/instances/{instance}/hold", {"reason": "look"})
    house.until_ended(first)
    time.sleep(4)  # past the idle time
    assert [row["id"] for row in house.instances()] == [instance]
    house.post(f"/v1/instances/{instance}/resume", {"reason": ""})
    (second,) = house.submit({"command": ["sh", "-c", "echo started; sleep 2"]})
    house.until(lambda: b"started" in house.logs(second), 30, "it works again")
    house.post(f"/v1/instances/{instance}/drain", {"reason": "enough"})
    assert house.until_ended(second)["state"] == "succeeded"
    house.until_no_instance()


def test_a_pools_minimum_and_target_are_kept(make_house: Any) -> None:
    """Instances without any task; lowering the target lets the surplus go."""
    house = make_house(pool="min = 1", idle="1s")
    house.up()
    house.until(lambda: [r for r in house.instances() if r["state"] == "idle"], 30, "the minimum is there")
    house.ask("PUT", "/v1/pools/default/target", json={"count": 2, "source": "rest"})
    house.until(lambda: len(house.instances()) == 2, 30, "the target is met")
    house.ask("DELETE", "/v1/pools/default/target", params={"source": "rest"})
    house.until(lambda: len(house.instances()) == 1, 30, "the surplus has gone")
    time.sleep(2)
    assert len(house.instances()) == 1


def test_an_unsatisfiable_task_says_why_and_blocks_nobody(house: House) -> None:
    """64 cpus are nowhere to be had: the answer names the nearest offering, and other tasks run."""
    big, small = house.submit({"command": ["true"], "cpus": 64}, {"command": ["true"]})
    assert house.until_ended(small)["state"] == "succeeded"
    why = house.get(f"/v1/tasks/{big}/explain")
    assert why["state"] == "queued"
    assert "64 cpu" in " ".join(why["reasons"])
    assert "vm.2" in " ".join(why["reasons"])


def test_a_failing_health_check_ends_the_instance(make_house: Any, tmp_path: Path) -> None:
    """The task goes back, the instance reports that it failed and ends, another takes over."""
    sick = tmp_path / "sick"
    check = f'health_checks = [{{command = "test ! -e {sick}", interval = "0.3s", timeout = "0.3s", failures = 2}}]'
    house = make_house(pool=check)
    house.up()
    (number,) = house.submit(
        {"command": ["sh", "-c", f"test -e {tmp_path}/second || (touch {tmp_path}/second; sleep 60)"]}
    )
    house.until(lambda: (tmp_path / "second").exists(), 30, "it runs")
    first = house.task(number)["instance"]
    sick.touch()
    house.until(lambda: house.get(f"/v1/instances/{first}")["state"] not in ("idle", "busy"), 30, "it failed")
    sick.unlink()
    assert house.until_ended(number)["state"] == "succeeded"
    assert house.task(number)["attempts_list"][0]["cause"] == "instance-lost"
    assert house.get(f"/v1/instances/{first}")["cause"] == "health"


def test_a_machine_on_which_everything_fails_does_not_take_the_queue(make_house: Any, tmp_path: Path) -> None:
    """Without a health check: what fails there succeeds on the other. It is let go and says why; few tasks failed."""
    bad = tmp_path / "bad"
    house = make_house(cap=2, pool="min = 2")
    house.up()
    house.until(lambda: [r["state"] for r in house.instances()] == ["idle"] * 2, 30, "both serve")
    command = f'test "$(cat {bad})" = "$CLOUD_DISPATCH_INSTANCE" && exit 1; sleep 0.2'
    bad.touch()
    house.submit(*({"command": command} for _ in range(40)))
    house.until_all_ended(40)
    name = house.instances()[0]["id"]
    bad.write_text(name)
    house.submit(*({"command": command} for _ in range(100)))
    ended = house.until_all_ended(140)
    assert 5 <= ended["failed"] <= 15, ended
    row = house.get(f"/v1/instances/{name}")
    assert row["cause"] == "tasks-fail"
    assert "5 tasks in a row failed here; of the last" in row["reason"]
