"""A task on a VM of a cloud asks the metadata service, which has its VM's identity. By the kernel's own rules.

The service is stood in for, at its real address in a network of its own; agent, task, users, script and nft are real.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import cannot_separate, separate_users
from tests.agent.metadata_scene import ADDRESS, PLACES, WIRE_SERVER
from tests.cloudinit.test_fragments import files

ALL = "credentials of the VM"
ROOT = Path(__file__).parents[2]
PROGRAMS = f"{Path(sys.executable).parent}:/usr/sbin:/sbin:{os.environ['PATH']}"


@cache
def cannot() -> str:
    """Why there is no network of its own with rules of its own here, or ""; tried once."""
    if why := cannot_separate():
        return why
    for program in ("nft", "ip", "unshare"):
        if shutil.which(program, path=PROGRAMS) is None:
            return f"no {program} here: `make setup` brings nft where there is apt"
    done = subprocess.run(
        ["unshare", "--net", "nft", "add", "table", "inet", "trial"],
        env={"PATH": PROGRAMS}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else f"no tables of rules here: {done.stderr.strip()[:200]}"


pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(cannot()), reason=cannot() or "it can")]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="agent-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def ask(folder: Path, agent_zip: Path, *, allowed: bool, scene: str = "metadata_scene") -> dict[str, Any]:
    users = separate_users()
    found = files(task_uids=users["task_uids"], metadata=allowed)
    rules = folder / "metadata.sh"
    if "metadata.sh" in found:
        rules.write_text(found["metadata.sh"])
    told = {
        "folder": str(folder), "zipapp": str(agent_zip), "users": users,
        "rules": str(rules) if rules.exists() else "",
    }  # fmt: skip
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", f"tests.agent.{scene}", json.dumps(told)],
        cwd=ROOT, env={**os.environ, "PATH": PROGRAMS}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_a_task_gets_nothing_of_the_metadata_service(folder: Path, agent_zip: Path) -> None:
    """What the boot script sets up keeps tasks away, and the agent not: it looks there for the word that its VM is
    taken back. What Azure's hosts have besides is root's alone, but for the resolver of names."""
    answers = ask(folder, agent_zip, allowed=False)
    open_to = {who: {place for place, said in got.items() if said == ALL} for who, got in answers.items()}
    resolver = f"{WIRE_SERVER}:53"
    assert open_to == {
        "task": {resolver}, "agent": {f"{ADDRESS}:80", resolver}, "root": {f"{at}:{port}" for at, port in PLACES},
    }  # fmt: skip


def test_a_task_of_a_pool_that_allows_it_gets_what_is_there(folder: Path, agent_zip: Path) -> None:
    """So the test above would see it."""
    assert set(ask(folder, agent_zip, allowed=True)["task"].values()) == {ALL}


def test_a_task_can_not_make_its_agent_believe_that_the_vm_is_taken_back(folder: Path, agent_zip: Path) -> None:
    """Neither as the metadata service, nor by it, nor by the agent's files; a real notice is believed."""
    answers = ask(folder, agent_zip, allowed=False, scene="notice_scene")
    assert answers == {"said": ["tried all", ""], "believed": "", "cause": "preempted"}
