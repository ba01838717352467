"""What an operator does when the statestore is lost, over real processes: backup and restore, adopt, reap."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from typing import Any

import pytest

from tests.system.house import House


def command(house: House, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(house.command(*words), capture_output=True, text=True, timeout=90)


@pytest.mark.parametrize("whole", [False, True])
def test_a_backup_taken_while_it_runs_restores_the_queue_and_finds_the_machines(make_house: Any, whole: bool) -> None:
    """The restored store knows its tasks and instances; what was launched after the backup is adopted by its tags, and
    every task ends. `whole`: onto a control VM that has nothing of the old one, agents and operator know it again."""
    house = make_house(lease="20s")
    house.up()
    go = house.folder / "go"  # the tasks wait for it: however long the commands take, no instance is idle meanwhile
    waits = {"command": ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done"]}
    first = house.submit(*[waits] * 4)
    serving = house.until(lambda: [one["id"] for one in house.instances() if one["state"] == "busy"], 30, "one works")
    known = serving[0]
    copy = house.folder / "copies" if whole else house.folder / "copy.sqlite"
    done = command(house, "backup", *(["--into"] if whole else []), str(copy))
    assert done.returncode == 0, done.stderr
    if whole:
        (copy,) = copy.iterdir()
    refused = command(house, "restore", str(copy))
    assert refused.returncode == 4, refused
    assert "in use" in refused.stderr
    house.kill()
    for file in house.state.glob("store.sqlite*"):
        file.unlink()
    if whole:
        shutil.rmtree(house.state / "keys")
        shutil.rmtree(house.state / "tls", ignore_errors=True)
    done = command(house, "restore", str(copy))
    assert done.returncode == 0, done.stderr
    assert command(house, "db", "check").returncode == 0
    house.up()
    house.until(
        lambda: any(one["id"] == known and one["state"] in ("idle", "busy") for one in house.instances(past=True)),
        20, "an agent of before is heard again",
    )  # fmt: skip
    go.touch()
    house.until_all_ended(len(first), within=60)
    house.until_no_instance()


def test_machines_of_a_lost_store_are_left_alone_until_adopted(make_house: Any) -> None:
    """A new store in the same deployment reports them and ends nothing; `adopt` takes them, and they go when idle. What
    the lost one spent is unknown until somebody says that it is not."""
    house = make_house(idle="2s", pool="min = 1")
    house.up()
    (lost,) = house.until(lambda: [r for r in house.instances() if r["state"] == "idle"], 30, "it serves")
    store = house.get("/v1/health")["store"]
    house.kill()
    for file in house.state.glob("store.sqlite*"):
        file.unlink()
    house.config.write_text(house.config.read_text().replace("min = 1", ""))
    house.up()
    house.until(
        lambda: [e for e in house.get("/v1/events")["events"] if e["action"] == "instance.foreign"],
        20,
        "it is reported",
    )
    time.sleep(2)
    assert any(lost["vm"] in command_line for command_line in house.processes().values()), "it was ended"
    done = command(house, "adopt", "--store", store)
    assert done.returncode == 0, done.stderr
    # It may have gone again before anybody looks.
    house.until(lambda: [r["vm"] for r in house.instances(past=True)] == [lost["vm"]], 20, "it is adopted")
    house.until_no_instance()
    assert house.get("/v1/budgets")["unsure_since_ms"]
    done = command(house, "budget", "reconcile", "--yes")
    assert done.returncode == 0, done.stderr
    assert house.get("/v1/budgets")["unsure_since_ms"] is None


def test_reap_ends_a_deployment_without_store_and_dispatcher(make_house: Any) -> None:
    """Listed first; ended on --yes; another deployment's machines are not even seen."""
    house = make_house(pool="min = 2")
    house.up()
    house.until(lambda: len([r for r in house.instances() if r["state"] == "idle"]) == 2, 30, "two serve")
    house.kill()
    shutil.rmtree(house.state / "keys")
    deployment = next(line.split('"')[1] for line in house.config.read_text().splitlines() if "deployment" in line)
    assert json.loads(command(house, "reap", "--deployment", "other", "--yes", "--json").stdout) == {"vms": []}
    listed = command(house, "reap", "--deployment", deployment)
    assert listed.returncode == 0, listed.stderr
    assert "2 VMs. Say --yes" in listed.stdout
    assert house.processes()
    done = command(house, "reap", "--deployment", deployment, "--yes")
    assert done.returncode == 0, done
    house.until(lambda: not house.processes(), 20, "no process is left")
