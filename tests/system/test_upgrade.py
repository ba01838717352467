"""A dispatcher is replaced by a newer one while VMs run the agent of the version before: nothing is lost, and they get
the newer agent.

The dispatcher of before is stood in for by the present one that serves version 0.1's agent; the agent is the real one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch import agentzip
from tests.agent.conftest import cannot_separate, is_agent
from tests.system.house import CONFIG, House

FORMER = Path(__file__).parents[1] / "agents" / "agent-0.1.pyz"
OLD = hashlib.sha256(FORMER.read_bytes()).hexdigest()
NEW = agentzip.build()[1]
#: What Python runs at its start in the process of the dispatcher of before.
SERVES_THE_FORMER = f"""
import hashlib, pathlib
import cloud_dispatch.agentzip as agentzip

body = pathlib.Path({str(FORMER)!r}).read_bytes()
agentzip.build = lambda: (body, hashlib.sha256(body).hexdigest())
"""
TALKS = "echo begin; while [ ! -e {go} ]; do sleep 0.05; done; echo end"


def programs(house: House) -> list[str]:
    """The sha256 of the program of every agent that runs, but for one that becomes another: it has no words yet."""
    found = []
    for pid, command in house.processes().items():
        words = command.split(" ")
        named = next((Path(word) for word in words if word.endswith(".pyz")), None)
        if named and (is_agent(pid) or "--agent" in words):  # the former one has no name of its own
            found.append(hashlib.sha256((Path(f"/proc/{pid}/cwd") / named).read_bytes()).hexdigest())
    return found


def upgrade(house: House) -> None:
    house.kill()
    house.python_path = []
    house.up()


@pytest.fixture
def former(make_house: Any, tmp_path: Path) -> House:
    """A dispatcher of before, that is up."""
    (tmp_path / "former").mkdir()
    (tmp_path / "former" / "sitecustomize.py").write_text(SERVES_THE_FORMER)
    house: House = make_house(idle="60s", lease="20s")
    house.python_path = [str(tmp_path / "former")]
    house.up()
    return house


def test_agents_of_the_version_before_work_on_and_are_replaced_when_idle(former: House, tmp_path: Path) -> None:
    """A task runs through it, later ones are run by the old agent beside it, and by the new one in the same VM."""
    go = tmp_path / "go"
    (number,) = former.submit({"command": ["sh", "-c", TALKS.format(go=go)]})
    former.until(lambda: b"begin" in former.logs(number), 30, "it runs")
    assert programs(former) == [OLD]
    (vm,) = [instance["vm"] for instance in former.instances()]

    upgrade(former)
    (beside,) = former.submit({"command": ["echo", "beside"]})
    assert former.until_ended(beside)["state"] == "succeeded"
    assert programs(former) == [OLD], "something runs there"

    go.write_text("")
    ended = former.until_ended(number)
    assert (ended["state"], ended["attempts"]) == ("succeeded", 1)
    assert former.logs(number) == b"begin\nend\n"
    former.until(lambda: programs(former) == [NEW], 30, "the idle agent is the new one")
    (after,) = former.submit({"command": ["echo", "after"]})
    assert former.until_ended(after)["state"] == "succeeded"
    assert former.logs(after) == b"after\n"
    assert [instance["vm"] for instance in former.instances()] == [vm], "all of it on one VM"


def test_a_vm_that_boots_meanwhile_gets_the_agent_that_it_was_promised(make_house: Any, tmp_path: Path) -> None:
    """Its user data name the former agent's sha256; it comes up with it, and becomes the new one."""
    (tmp_path / "former").mkdir()
    (tmp_path / "former" / "sitecustomize.py").write_text(SERVES_THE_FORMER)
    slow = CONFIG.replace('boot_delay = "0.1s"', 'boot_delay = "4s"')
    house: House = make_house(idle="60s", lease="20s", config=slow)
    house.python_path = [str(tmp_path / "former")]
    house.up()
    (number,) = house.submit({"command": ["true"]})
    house.until(lambda: house.instances() and house.instances()[0]["vm"], 30, "a VM boots")
    upgrade(house)
    assert house.until_ended(number)["state"] == "succeeded"
    house.until(lambda: programs(house) == [NEW], 30, "and its agent is the new one")
    assert len(house.instances(past=True)) == 1, "no boot was in vain"


@pytest.mark.skipif(bool(cannot_separate()), reason=cannot_separate() or "it can")
def test_an_agent_that_is_a_user_of_its_own_is_replaced_too(make_house: Any) -> None:
    """The new one is nobody either, and starts its tasks through the supervisor of before."""
    folder = Path(tempfile.mkdtemp(prefix="upgraded-"))
    folder.chmod(0o711)
    root = Path(__file__).parents[2]
    paths = [str(root), str(root / "providers")]
    (folder / "former").mkdir()
    (folder / "former" / "sitecustomize.py").write_text(SERVES_THE_FORMER)
    isolated = CONFIG.replace('driver = "local"\n', 'driver = "local"\nisolate_tasks = true\n')
    house = House(folder, config=isolated, idle="60s", lease="20s")
    house.python_path = [str(folder / "former"), *paths]
    try:
        house.up()
        (number,) = house.submit({"command": ["sh", "-c", "id -u; sleep 2"]})
        house.until(lambda: house.logs(number), 30, "it runs")
        house.kill()
        house.python_path = paths
        house.up()
        assert house.until_ended(number)["state"] == "succeeded"

        def theirs() -> list[str]:
            return [
                word
                for pid, command in house.processes().items()
                if is_agent(pid) and os.stat(f"/proc/{pid}").st_uid != 0
                for word in command.split(" ")
                if f"agent-{NEW[:16]}" in word
            ]

        house.until(theirs, 30, "the new one is no root")
        (after,) = house.submit({"command": ["id", "-u"]})
        assert house.until_ended(after)["state"] == "succeeded"
        assert int(house.logs(after)) > 1000
    finally:
        house.clean_up()
        shutil.rmtree(folder, ignore_errors=True)
