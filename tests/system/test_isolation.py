"""Promise P7 on a real instance with isolated tasks: a hostile task gets what it may have, and nothing else.

What is tried stands in `attacker.py`. Each try's outcome is reported by the task and judged here; a planted leak shows
that the judge would see one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.agent import processes as agent_processes
from cloud_dispatch_local import processes
from tests import procfs
from tests.agent.conftest import cannot_separate, is_agent
from tests.system.house import CONFIG, House

pytestmark = pytest.mark.skipif(bool(cannot_separate()), reason=cannot_separate() or "it can")
ROOT = Path(__file__).parents[2]
ISOLATED = CONFIG.replace('driver = "local"\n', 'driver = "local"\nisolate_tasks = true\n')
DOCS = ROOT / "docs" / "reference"
REFERENCE = (
    ("rest-api.md", re.compile(r"^### `([A-Z]+) (/\S+)`", re.MULTILINE)),
    ("worker-protocol.md", re.compile(r"^\| `([A-Z]+) (/\S+)`", re.MULTILINE)),
)
ATTACK = Path(__file__).with_name("attacker.py").read_text()
VICTIM = "echo of-the-victim > secret; mkdir -p d; echo x > d/f; sleep 600"


@pytest.fixture
def house() -> Iterator[House]:
    """A dispatcher that is root and up, in a folder that every user may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="isolated-"))
    folder.chmod(0o711)
    made = House(folder, config=ISOLATED, idle="60s", lease="60s")
    made.python_path = [str(ROOT), str(ROOT / "providers")]
    try:
        made.up()
        yield made
    finally:
        made.clean_up()
        shutil.rmtree(folder, ignore_errors=True)


class Scene:
    """One VM with a victim that runs on it, and what an attacker could aim at."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.source, self.other = self._kept(), self._kept()
        self.victim = house.submit({"command": ["sh", "-c", VICTIM], "cpus": 1, "env": {"MARKER": "marker-of-victim"}})[
            0
        ]
        house.until(lambda: house.counts().get("running") == 1, 30, "the victim runs")
        (self.vm,) = (house.state / "providers" / "local" / "vms").iterdir()
        self.work = self.vm / "disk" / "cloud-dispatch"
        self.private = self.work / "agent"
        self.victims_folder = house.until(self._victims_folder, 10, "the victim has written")
        house.until((self.victims_folder / "d" / "f").exists, 10, "all of it")

    def _kept(self) -> int:
        """A task that has left an output; one after the other, so that a single VM does all."""
        what = {"command": ["sh", "-c", "echo x > kept"], "cpus": 1, "outputs": ["kept"]}
        (task,) = self.house.submit(what)
        assert self.house.until_ended(task)["state"] == "succeeded"
        return task

    def _victims_folder(self) -> Path | None:
        return next((path.parent for path in self.work.glob("attempts/*/secret")), None)

    def pids(self) -> dict[str, int]:
        """Who must not be touched."""
        found = {}
        for process in processes.of_vms([self.vm])[self.vm]:
            words = procfs.words(process.pid)
            kind = "agent" if is_agent(process.pid) else "supervisor" if "agent.json" in words else ""
            kind = kind or ("machine" if "cloud_dispatch_local.vm" in words else "victim" if "sleep" in words else "")
            if kind:
                found[kind] = process.pid
        assert self.house.process is not None
        return {**found, "dispatcher": self.house.process.pid}

    def targets(self) -> dict[str, Any]:
        state = self.house.state
        programs = Path(tempfile.mkdtemp(prefix="programs-", dir=self.house.folder))
        programs.chmod(0o711)
        setuid = programs / "id"
        shutil.copy("/usr/bin/id", setuid)
        setuid.chmod(0o4755)
        files = [
            *(path for path in state.rglob("*") if path.is_file() and not path.is_relative_to(self.vm)),
            *(self.vm / name for name in ("user-data", "console.log", "vm.json", "machine.json", "identity")),
            self.work / "agent.json", self.private / "identity.json",
            self.victims_folder / "secret", self.victims_folder / "d" / "f",
        ]  # fmt: skip
        folders = [
            state, state / "keys", state / "logs", self.vm, self.vm / "disk", self.work, self.work / ".waste",
            self.private, self.private / "attempts", self.work / "attempts", self.victims_folder,
            self.victims_folder / "d", Path("/run/cloud-dispatch-local"),
        ]  # fmt: skip
        return {
            "files": [str(path) for path in files],
            "folders": [str(path) for path in folders],
            "pids": self.pids(),
            "setuid": str(setuid),
            "state": str(state),
            "url": self.house.url,
            "doors": self.doors(),
            "own": {
                "log": ("POST", "/v1/agent/logs?offset=0"),
                "output": ("PUT", "/v1/agent/outputs?path=kept"),
                "input": ("GET", f"/v1/tasks/{self.source}/outputs/kept"),
            },
        }

    def doors(self) -> list[tuple[str, str]]:
        """Every route that there is by the reference, but the two that are open; aimed at the victim, and at an output
        that is no input of the attacker's."""
        victim = self.house.task(self.victim)
        places = {
            "{task}/outputs/{path:path}": f"{self.other}/outputs/kept", "{task}": str(self.victim), "{verb}": "kill",
            "{instance}": victim["instance"], "{pool}": "default", "task=": f"task={self.victim}",
            "token=": f"token={victim['token']}", "offset=": "offset=0", "path=": "path=secret", "{plan}": "1",
        }  # fmt: skip
        found = []
        for method, path in [pair for page, form in REFERENCE for pair in form.findall((DOCS / page).read_text())]:
            for place, what in places.items():
                path = path.replace(place, what)
            assert not re.search(r"[{}]|=(&|$)", path), path
            if path not in ("/v1/health", "/v1/agent.pyz"):
                found.append((method, path))
        assert len(found) >= 35
        return found

    def attack(self) -> dict[str, Any]:
        """What the attacker says."""
        environment = {"TARGETS": json.dumps(self.targets())}
        source = f"{self.house.url}/v1/tasks/{self.source}/outputs/kept"
        (task,) = self.house.submit(
            {
                "command": ["/usr/bin/python3", "-c", ATTACK],
                "cpus": 1,
                "env": environment,
                "inputs": [{"path": "kept", "url": source}],
                "outputs": ["kept"],
            }
        )
        ended = self.house.until_ended(task)
        said = self.house.logs(task)
        assert ended["state"] == "succeeded", said.decode()
        self.log = said
        return dict(json.loads(said.splitlines()[-1]))


def leaks(report: dict[str, Any]) -> list[str]:
    """The tries that should have failed and did not; what it may do with its own token is none."""
    said = {name: what for name, what in report["said"].items() if not name.startswith("may ")}
    return [f"{name}: {what['got']}" for name, what in said.items() if what["ok"]]


def may(report: dict[str, Any]) -> dict[str, bool]:
    """What it may do with its own token, and whether it could."""
    return {name: said["ok"] for name, said in report["said"].items() if name.startswith("may ")}


def secrets_of(house: House, scene: Scene) -> dict[str, bytes]:
    """Everything that no task may learn."""
    identity = json.loads((scene.private / "identity.json").read_bytes())
    config = json.loads((scene.work / "agent.json").read_bytes())
    found = {path.name: path.read_bytes().strip() for path in (house.state / "keys").iterdir()}
    found["operator"] = (house.state / "operator.token").read_bytes().strip()
    found["service"], found["join"] = identity["token"].encode(), config["join_token"].encode()
    environ = Path(f"/proc/{scene.pids()['victim']}/environ").read_bytes().split(b"\0")
    (found["victim's token"],) = [line[26:] for line in environ if line.startswith(b"CLOUD_DISPATCH_TASK_TOKEN=")]
    found["victim's file"], found["victim's environment"] = b"of-the-victim", b"marker-of-victim"
    return found


def test_a_hostile_task_gets_nothing(house: House) -> None:
    """Nobody's memory, files, descriptors or rights, no token, nobody's death; and it is one of the crowd itself."""
    scene = Scene(house)
    before = scene.pids()
    assert set(before) == {"agent", "supervisor", "machine", "victim", "dispatcher"}
    report = scene.attack()
    assert leaks(report) == []
    assert may(report) == {"may log": True, "may output": True, "may input": True}
    assert len([name for name in report["said"] if name.startswith("door ")]) == len(scene.doors()), "one token of ours"
    assert len(report["said"]) > 100
    for name, secret in secrets_of(house, scene).items():
        assert secret not in scene.log, name
    own = report["own"]
    uids = {int(word) for word in own["status"]["Uid"].split()}
    assert len(uids) == 1
    assert uids.pop() >= 0x7000_0000
    assert own["status"]["Groups"].strip() == ""
    assert own["status"]["NoNewPrivs"] == "1"
    assert {own["status"][name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
    assert own["umask"] == 0o077
    assert set(own["fds"]) <= {"0", "1", "2", "3"}
    assert scene.pids() == before, "all live on, the victim among them"
    assert house.task(scene.victim)["state"] == "running"


def test_the_judge_sees_a_planted_leak(house: House) -> None:
    """An identity that everybody may read: the task reads it, and is found out."""
    scene = Scene(house)
    scene.private.chmod(0o711)
    (scene.private / "identity.json").chmod(0o644)
    report = scene.attack()
    assert any(line.startswith(f"read {scene.private}/identity.json") for line in leaks(report))
    assert any(line.startswith("door POST /v1/agent/sync as cds") for line in leaks(report))
    assert secrets_of(house, scene)["service"][:30] in scene.log


def test_what_the_dispatcher_keeps_is_closed_though_its_folder_is_passed_through(house: House) -> None:
    """Database, keys, tokens, logs, outputs, user data: all of it, also what was made after the way was opened."""
    (task,) = house.submit(
        {"command": ["sh", "-c", "echo said; echo kept > out"], "cpus": 1, "outputs": [{"path": "out"}]}
    )
    assert house.until_ended(task)["state"] == "succeeded"
    (vm,) = (house.state / "providers" / "local" / "vms").iterdir()
    way = {
        house.state,
        *vm.parents,
        vm,
        vm / "disk",
        vm / "disk" / "cloud-dispatch",
        vm / "disk/cloud-dispatch/attempts",
        vm / "disk/cloud-dispatch/public",
    }
    programs = [vm / "disk" / "cloud-dispatch" / name for name in ("agent.pyz", "bootstrap.sh", "boot.py")]
    open_to_others = {
        path: oct(stat.S_IMODE(path.lstat().st_mode))
        for path in reachable(house.state)
        if path not in programs and stat.S_IMODE(path.lstat().st_mode) & 0o077 != (0o011 if path in way else 0)
    }
    assert open_to_others == {}


def reachable(folder: Path) -> Iterator[Path]:
    """What is below `folder`, as far as others can get."""
    for path in folder.iterdir():
        yield path
        if path.is_dir() and path.stat().st_mode & 0o001:
            yield from reachable(path)


def test_outputs_come_back_whatever_their_owner_did_to_them(house: House) -> None:
    """Files and folders of the task's are the agent's when it is over; its links lead nowhere."""
    script = (
        "mkdir -p out/deep; echo a > out/a; echo b > out/deep/b; chmod 0700 out/deep; chmod 0600 out/a;"
        "mkfifo out/deep/pipe; ln -s /etc/shadow shadow; ln -s / out/deep/away"
    )
    wanted = [{"path": "out/a"}, {"path": "out/deep/b"}]
    (task,) = house.submit({"command": ["sh", "-c", script], "cpus": 1, "outputs": wanted})
    assert house.until_ended(task)["state"] == "succeeded"
    assert stat.S_ISREG(os.lstat("/etc/shadow").st_mode)
    assert os.lstat("/etc/shadow").st_uid == 0
    (thief,) = house.submit(
        {
            "command": ["ln", "-s", "/etc/shadow", "x"],
            "cpus": 1,
            "outputs": [{"path": "x"}],
            "retry": [],
        }
    )
    assert house.until_ended(thief)["state"] == "failed"


def test_a_dispatcher_that_comes_back_leaves_running_tasks_their_way(house: House) -> None:
    """And closes what lies beside it, should somebody have opened that."""
    scene = Scene(house)
    (go,) = scene.victims_folder.parent.glob("*")
    task = "while [ ! -e $HOME/go ]; do sleep 0.1; done; ls $HOME"
    (waits,) = house.submit({"command": ["sh", "-c", task], "cpus": 1})
    house.until(lambda: house.counts().get("running") == 2, 30, "both run")
    (folder,) = set(scene.victims_folder.parent.glob("*")) - {go}
    house.kill(signal.SIGTERM)
    (house.state / "keys").chmod(0o755)
    house.up()
    assert stat.S_IMODE((house.state / "keys").stat().st_mode) == 0o700
    (folder / "go").touch()
    assert house.until_ended(waits)["state"] == "succeeded"


def test_two_vms_share_no_user(house: House) -> None:
    """Whoever is a task of one VM is nobody in the other."""
    house.submit(*({"command": ["sleep", "600"], "cpus": 2} for _ in range(2)))
    house.until(lambda: house.counts().get("running") == 2, 40, "both run")
    uids = [
        {agent_processes.uid_of(process.pid) for process in processes.of_vms([vm])[vm]} - {0, None}
        for vm in (house.state / "providers" / "local" / "vms").iterdir()
    ]
    assert all(len(found) >= 2 for found in uids), uids
    assert not uids[0] & uids[1]


def test_everything_of_a_killed_vm_dies(house: House) -> None:
    """kill -9 of machine, supervisor and agent at once: what a task started elsewhere is found all the same."""
    scene = Scene(house)
    pids = scene.pids()
    for name in ("supervisor", "agent", "machine"):
        with contextlib.suppress(ProcessLookupError):  # the next ones may fall with the one before
            os.kill(pids[name], signal.SIGKILL)
    deadline = time.monotonic() + 40
    while os.path.exists(f"/proc/{pids['victim']}") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{pids['victim']}")
