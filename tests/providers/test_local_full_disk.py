"""Local VMs on a disk that is full: what ends them needs no room there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch_local.folder import VmFolder
from tests.providers.local import DEPLOYMENT, NOW_MS, cloud_config, driver, end_everything, exists, living, request
from tests.providers.test_local_vm import gone, in_state, pid_in
from tests.small_disk import fill, mounted

pytestmark = pytest.mark.process
VM = VmId("b00000000001-0")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small") as folder:
        yield folder
        end_everything(folder)


async def test_a_vm_ends_as_it_should(root: Path, tmp_path: Path) -> None:
    """Its service is told to, and has its grace; it is shown as ending meanwhile, and its room is free again. Not even
    its console takes a word."""
    provider, said = driver(root), tmp_path / "said"
    script = f"trap 'sleep 0.5; echo ended > {said}; exit' TERM; echo $$ > pid; sleep 600 & wait"
    await provider.launch(await request(provider, cloud_config(script)))
    pid = await pid_in(root / "vms" / VM / "disk" / "pid")
    fill(root / "vms" / VM / "console.log")
    await provider.terminate(VM)
    (shown,) = (await provider.list(DEPLOYMENT)).vms
    assert (shown.state, (await provider.get(VM)).state) == (VmState.STOPPING, VmState.STOPPING)
    assert not [name for name in os.listdir(root / "vms" / VM) if name.startswith(".")]
    await gone(provider)
    assert said.read_text() == "ended\n"
    assert not exists(pid)
    assert living(root) == []
    assert list((root / "trash").iterdir()) == []


@pytest.mark.parametrize("room", [False, True], ids=["never", "later"])
async def test_a_machine_that_hangs_is_killed_in_the_end(root: Path, room: bool) -> None:
    """Since when it was to end is known without a note of it, which is made as soon as there is room."""
    now = [NOW_MS]
    provider = driver(root, now=lambda: now[0], shutdown_grace="100ms")
    await provider.launch(await request(provider, cloud_config("sleep 600")))
    await in_state(provider, VmState.RUNNING)
    machine = json.loads((root / "vms" / VM / "machine.json").read_text())["pid"]
    os.kill(machine, signal.SIGSTOP)
    fill(root / "ballast")
    await provider.terminate(VM)
    if room:
        (root / "ballast").unlink()
        now[0] += 1_000
        await provider.terminate(VM)
        noted = VmFolder(root / "vms" / VM).vm()
        assert noted is not None
        assert noted.terminate_ms == NOW_MS
    assert exists(machine)
    now[0] += 10_000
    await gone(provider)
    assert not exists(machine)
    assert living(root) == []
