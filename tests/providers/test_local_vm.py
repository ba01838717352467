"""What a local VM does with real processes: boot, power off, die, and be found again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.provider.errors import InvalidRequest, VmNotFound
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch_local import processes
from cloud_dispatch_local.driver import LocalProvider
from cloud_dispatch_local.registry import Registry
from cloud_dispatch_local.watch import Watch
from tests.providers.local import (
    DEPLOYMENT,
    NOW_MS,
    clock,
    cloud_config,
    descends_from_us,
    driver,
    end_everything,
    exists,
    living,
    request,
)

pytestmark = pytest.mark.process
VM = VmId("b00000000001-0")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_everything(tmp_path)


async def until(good: Callable[[], Awaitable[bool]], seconds: float = 15) -> None:
    for _ in range(int(seconds / 0.02)):
        if await good():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not within {seconds} s")


async def in_state(provider: LocalProvider, *states: VmState, vm: VmId = VM) -> None:
    async def there() -> bool:
        return (await provider.get(vm)).state in states

    await until(there)


async def gone(provider: LocalProvider, vm: VmId = VM) -> None:
    async def absent() -> bool:
        await provider.terminate(vm)
        return not (await provider.list(DEPLOYMENT)).vms

    await until(absent)


def disk(root: Path, vm: VmId = VM) -> Path:
    return root / "vms" / vm / "disk"


async def pid_in(path: Path) -> int:
    async def written() -> bool:
        return path.exists() and path.read_text().endswith("\n")

    await until(written)
    return int(path.read_text())


async def test_a_vm_writes_its_files_and_runs_its_commands_in_order(root: Path) -> None:
    """What shall come first finds no file; files are there with their modes before the other commands. Output goes to
    the console; the end is power-off."""
    provider = driver(root)
    document = """#cloud-config
bootcmd:
  - "[ -e opt ] || echo before"
write_files:
  - {path: opt/secret.txt, permissions: "0600", content: "grüße\\n"}
  - {path: opt/raw, encoding: b64, content: "AAEC"}
runcmd:
  - [/bin/sh, -c, "cat opt/secret.txt; stat -c %a opt/secret.txt"]
  - "false"
  - [/does/not/exist]
  - echo last
"""
    await provider.launch(await request(provider, document))
    await in_state(provider, VmState.STOPPED)
    assert disk(root).joinpath("opt/raw").read_bytes() == b"\0\1\2"
    console = await provider.console(VM)
    assert "grüße\n600\n" in console
    assert "exit code 1" in console
    assert "/does/not/exist: No such file" in console
    assert (
        console.index("before")
        < console.index("600")
        < console.index("last")
        < console.index("stopped: the last boot command ended")
    )


async def test_a_vm_inherits_nothing_of_the_dispatcher(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a VM is its own: no variable of the dispatcher, its own id, home and temporary folder."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for VMs")
    provider = driver(root)
    await provider.launch(await request(provider, cloud_config("env")))
    await in_state(provider, VmState.STOPPED)
    lines = (await provider.console(VM)).splitlines()
    seen = {line.partition("=")[0] for line in lines if "=" in line and " " not in line}
    own = {"PATH", "LANG", "HOME", "TMPDIR", "CLOUD_DISPATCH_VM_ID", "CLOUD_DISPATCH_LOCAL_VM"}
    assert seen - {"PWD", "OLDPWD", "SHLVL", "_"} == own
    assert f"CLOUD_DISPATCH_VM_ID={VM}" in lines
    assert f"HOME={disk(root)}" in lines


async def test_a_vm_is_no_child_of_the_dispatcher(root: Path) -> None:
    """A VM runs in a session of its own and descends from nobody who launched it."""
    provider = driver(root)
    await provider.launch(await request(provider, cloud_config("echo $$ > pid; sleep 600")))
    pid = await pid_in(disk(root) / "pid")
    assert exists(pid)
    assert not descends_from_us(pid)
    assert os.getsid(pid) not in (os.getsid(0), pid)


async def test_power_off_takes_everything_along(root: Path) -> None:
    """When the last boot command ends, nothing that it started lives on, sessions and double forks included."""
    provider = driver(root)
    stray = "setsid sh -c 'trap \"\" TERM; echo $$ > stray; sleep 600' & (sleep 600 &)"
    stray += "; while [ ! -s stray ]; do sleep 0.01; done"
    await provider.launch(await request(provider, cloud_config(stray)))
    pid = await pid_in(disk(root) / "stray")
    await in_state(provider, VmState.STOPPED)
    assert not exists(pid)
    assert living(root) == []


async def test_terminate_lets_the_service_end_by_itself(root: Path) -> None:
    """Terminate is an operating system's shutdown: the boot command hears SIGTERM and has its grace."""
    provider = driver(root)
    script = "trap 'echo goodbye > ../../../said; exit 0' TERM; echo up > up; while :; do sleep 0.05; done"
    await provider.launch(await request(provider, cloud_config(script)))

    async def up() -> bool:
        return (disk(root) / "up").exists()

    await until(up)
    await gone(provider)
    assert (root / "said").read_text() == "goodbye\n"
    assert living(root) == []


async def test_terminate_kills_what_ignores_sigterm_after_the_grace(root: Path) -> None:
    """A service that ignores SIGTERM is killed when its grace has passed."""
    provider = driver(root, shutdown_grace="200ms")
    await provider.launch(
        await request(provider, cloud_config("trap '' TERM; echo $$ > pid; while :; do sleep 1; done"))
    )
    pid = await pid_in(disk(root) / "pid")
    await gone(provider)
    assert not exists(pid)
    assert living(root) == []


async def test_a_machine_that_does_not_answer_is_killed_in_the_end(root: Path) -> None:
    """A machine that is stopped by a signal can't shut down: past grace and patience it is killed with all it has."""
    now = [NOW_MS]
    provider = driver(root, now=lambda: now[0], shutdown_grace="100ms")
    await provider.launch(await request(provider, cloud_config("sleep 600")))
    await in_state(provider, VmState.RUNNING)
    machine = json.loads((root / "vms" / VM / "machine.json").read_text())["pid"]
    os.kill(machine, signal.SIGSTOP)
    await provider.terminate(VM)
    assert (await provider.get(VM)).state is VmState.STOPPING
    assert exists(machine)
    now[0] += 10_000
    await gone(provider)
    assert not exists(machine)
    assert living(root) == []


async def test_a_killed_machine_counts_as_stopped_and_leaves_nothing(root: Path) -> None:
    """kill -9 of a VM's machine: the VM is stopped, and terminate finds the descendants that it left."""
    provider = driver(root)
    await provider.launch(await request(provider, cloud_config("setsid sleep 600 & sleep 600 & echo $! > pid; wait")))
    left = await pid_in(disk(root) / "pid")
    machine = json.loads((root / "vms" / VM / "machine.json").read_text())["pid"]
    os.kill(machine, signal.SIGKILL)
    await in_state(provider, VmState.STOPPED)
    assert exists(left)
    await gone(provider)
    assert living(root) == []
    assert not exists(left)


async def test_descendants_without_the_mark_are_found_by_their_parents(root: Path) -> None:
    """A task with an environment of its own is still found below a process that kept the mark."""
    provider = driver(root)
    script = (
        "trap '' TERM; setsid env -i sh -c 'echo $$ > pid; trap \"\" TERM; while :; do sleep 1; done' & wait; sleep 60"
    )
    await provider.launch(await request(provider, cloud_config(script)))
    bare = await pid_in(disk(root) / "pid")
    machine = json.loads((root / "vms" / VM / "machine.json").read_text())["pid"]
    os.kill(machine, signal.SIGKILL)
    await gone(provider)
    assert not exists(bare)


async def test_a_task_that_lost_all_its_ancestors_to_sigkill_is_found(root: Path) -> None:
    """Machine and agent die of SIGKILL; a task in its own session with a fresh environment is still ended."""
    provider = driver(root)
    task = 'setsid env -i PATH="$PATH" HOME="$HOME/attempts/1" sh -c "echo \\$\\$ > pid; while :; do sleep 1; done"'
    await provider.launch(await request(provider, cloud_config(f"{task} & wait; sleep 60")))
    bare = await pid_in(disk(root) / "pid")
    marked = living(root)
    assert bare not in [process.pid for process in marked]
    for process in marked:
        processes.send(process, signal.SIGSTOP)  # so that none of them tidies up
    for process in marked:
        processes.send(process, signal.SIGKILL)
    await in_state(provider, VmState.STOPPED)
    assert exists(bare)
    await gone(provider)
    assert not exists(bare)


async def test_a_process_is_found_however_long_its_environment(tmp_path: Path) -> None:
    """The mark may stand behind more than one read brings."""
    folder = tmp_path / "vms" / VM
    told = {**{f"LONG_{n}": "x" * 100_000 for n in range(3)}, processes.MARK: str(folder)}
    with subprocess.Popen(["/bin/sleep", "60"], env=told, start_new_session=True) as marked:
        try:
            await until(lambda: asyncio.sleep(0, marked.pid in {one.pid for one in living(tmp_path)}))
            assert [one.pid for one in processes.of_vms([folder])[folder]] == [marked.pid]
        finally:
            marked.kill()


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No watchdog: what a VM does at its end by itself."""

    async def nobody(_: Watch) -> None:
        return

    monkeypatch.setattr(Watch, "stands", nobody)
    monkeypatch.setattr(Watch, "start", lambda _: None)


@pytest.mark.usefixtures("unwatched")
async def test_the_hard_end_ends_a_vm_without_any_driver(root: Path) -> None:
    """A VM switches itself off at `ends_ms`, whatever runs in it. However long its boot took: its end comes near only
    then."""
    provider = driver(root)
    document = cloud_config("trap '' TERM; sleep 600")
    await provider.launch(await request(provider, document, ends_ms=clock() + 3_600_000))
    await in_state(provider, VmState.RUNNING)
    ends = clock() + 700
    await provider.tag([VM], {ENDS_AT: str(ends)})
    await in_state(provider, VmState.STOPPED)
    assert clock() >= ends
    assert "hard end reached" in await provider.console(VM)
    assert living(root) == []


@pytest.mark.usefixtures("unwatched")
async def test_a_changed_hard_end_is_heard_by_the_vm(root: Path) -> None:
    """Moving the end by its tag moves it for the VM that runs already."""
    provider = driver(root)
    await provider.launch(await request(provider, cloud_config("sleep 600"), ends_ms=clock() + 3_600_000))
    await in_state(provider, VmState.RUNNING)
    await provider.tag([VM], {ENDS_AT: str(clock() - 1)})
    await in_state(provider, VmState.STOPPED)
    with pytest.raises(InvalidRequest, match="expected milliseconds"):
        await provider.tag([VM], {ENDS_AT: "tomorrow"})


async def test_a_vm_is_pending_until_its_boot_delay_has_passed(root: Path) -> None:
    """Nothing of the boot document happens before the delay of the type."""
    booting = driver(root, boot_delay="1h")
    await booting.launch(await request(booting, cloud_config("touch up; sleep 600")))
    later = VmId("b00000000002-0")
    provider, began = driver(root, boot_delay="600ms"), clock()
    await provider.launch(await request(provider, cloud_config("touch up; sleep 600"), batch="b00000000002"))
    await in_state(provider, VmState.RUNNING, vm=later)
    assert clock() - began >= 600
    assert (await booting.get(VM)).state is VmState.PENDING
    assert not (disk(root) / "up").exists()


@pytest.mark.parametrize(("boot", "state"), [("hang", VmState.PENDING), ("fail", VmState.STOPPED)])
async def test_an_injected_boot_fault_keeps_the_vm_from_running(root: Path, boot: str, state: VmState) -> None:
    """A boot that hangs stays pending, one that fails stops; neither runs anything, and both can be terminated."""
    (root / "faults.json").write_text(json.dumps([{"operation": "boot", "boot": boot, "times": 1}]))
    provider = driver(root)
    await provider.launch(await request(provider, cloud_config("touch up; sleep 600")))
    await in_state(provider, state)
    await asyncio.sleep(0.3)
    assert (await provider.get(VM)).state is state
    assert not (disk(root) / "up").exists()
    await gone(provider)
    assert living(root) == []


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("#!/bin/sh\nexit 0\n", "line 1: expected #cloud-config"),
        ("#cloud-config\npackages: [curl]\n", "does not understand packages"),
        (
            "#cloud-config\nwrite_files: [{path: a, owner: root}]\n",
            "write_files[0]: a local VM does not understand owner",
        ),
        ("#cloud-config\nwrite_files: [{path: /etc/passwd, content: x}]\n", "/etc/passwd is outside the VM's disk"),
        ("#cloud-config\nwrite_files: [{path: ../x, content: x}]\n", "without '..'"),
        ("#cloud-config\nruncmd: {a: b}\n", "runcmd: expected a list"),
        ("#cloud-config\nruncmd: [[]]\n", "runcmd[0]"),
        ("#cloud-config\n{[\n", "not YAML"),
    ],
)
async def test_user_data_that_a_vm_does_not_understand_stops_it(root: Path, document: str, complaint: str) -> None:
    """Anything beyond the documented part of cloud-config is refused on the console, and nothing is run."""
    provider = driver(root)
    await provider.launch(await request(provider, document))
    await in_state(provider, VmState.STOPPED)
    assert complaint in await provider.console(VM)


async def test_a_launch_interrupted_before_power_on_is_finished_by_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that dies between making a VM and starting it leaves a pending VM that the repeated launch starts."""
    provider = driver(root)
    asked = await request(provider, cloud_config("sleep 600"))
    with monkeypatch.context() as crash:
        crash.setattr("cloud_dispatch_local.driver.power_on", lambda *_: None)
        await provider.launch(asked)
    assert (await provider.get(VM)).state is VmState.PENDING
    assert living(root) == []
    await provider.launch(asked)
    await in_state(provider, VmState.RUNNING)


async def test_a_vm_is_switched_on_once(root: Path) -> None:
    """Repeating a launch many times while the VM starts boots it once."""
    provider = driver(root)
    asked = await request(provider, cloud_config("echo boot >> boots; sleep 600"))
    for _ in range(8):
        await provider.launch(asked)
    await in_state(provider, VmState.RUNNING)
    await asyncio.sleep(0.5)
    assert (disk(root) / "boots").read_text() == "boot\n"


async def test_a_stopped_vm_is_not_started_again_by_a_repeated_launch(root: Path) -> None:
    """A VM boots once: a repeat after its power-off shows it stopped."""
    provider = driver(root)
    asked = await request(provider, cloud_config("echo boot >> boots"))
    await provider.launch(asked)
    await in_state(provider, VmState.STOPPED)
    (vm,) = (await provider.launch(asked)).vms
    assert vm.state is VmState.STOPPED
    await asyncio.sleep(0.3)
    assert (disk(root) / "boots").read_text() == "boot\n"


async def test_a_reused_pid_is_not_the_machine(root: Path) -> None:
    """A process that has the machine's pid but another start time is neither the VM nor signalled."""
    provider = driver(root)
    await provider.launch(await request(provider, cloud_config("true")))
    await in_state(provider, VmState.STOPPED)
    path = root / "vms" / VM / "machine.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "pid": os.getpid(), "phase": "running"}))
    assert (await provider.get(VM)).state is VmState.STOPPED
    await gone(provider)  # had it signalled the pid, this test would be dead
    with pytest.raises(VmNotFound):
        await provider.get(VM)


def test_what_a_vm_has_nested_however_deep_is_deleted_with_it(tmp_path: Path) -> None:
    """No disk of a VM that is gone stays in the trash."""
    registry = Registry(tmp_path / "root")
    deep = registry.vms / VM / "disk"
    deep.mkdir(parents=True)
    code = "import os, sys\nos.chdir(sys.argv[1])\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')\n"
    subprocess.run([sys.executable, "-c", code, str(deep)], check=True)
    registry.discard(VM)
    registry.empty_trash()
    assert list((tmp_path / "root" / "trash").iterdir()) == []
