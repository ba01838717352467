"""The local watchdog over real processes: whatever became of drivers and machines, VMs are gone by their hard end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.tags import BATCH, ENDS_AT
from cloud_dispatch.provider.errors import InDoubt, Transient
from cloud_dispatch.provider.spi import Vm
from cloud_dispatch_local import detached, processes
from cloud_dispatch_local.driver import LocalProvider
from cloud_dispatch_local.folder import VmFolder
from cloud_dispatch_local.registry import Registry
from cloud_dispatch_local.watch import Watch
from cloud_dispatch_local.watchdog import PERIOD_MS, Watchdog
from tests.providers.local import (
    DEPLOYMENT,
    clock,
    cloud_config,
    descends_from_us,
    driver,
    end_everything,
    exists,
    living,
    request,
    watchdogs,
)

pytestmark = pytest.mark.process
VM = VmId("b00000000001-0")
#: A hard end that no boot and no halt of the host comes near to.
FAR_MS = 600_000
#: Time enough to move an end away again, on a busy machine too.
LIFE_MS = 5_000
#: Something that ignores SIGTERM, something in a session of its own, and something without the VM's environment.
BUSY = cloud_config(
    "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & "
    'setsid env -i PATH="$PATH" HOME="$HOME/attempts/1" sh -c "echo \\$\\$ > pid; while :; do sleep 1; done" & '
    "while :; do sleep 1; done"
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_everything(tmp_path)


def patient(root: Path) -> LocalProvider:
    """A driver whose clock is the host's, as a dispatcher has it."""
    return driver(root, now=clock, shutdown_grace="1s")


async def launched(root: Path, ends_ms: int, document: str = BUSY, batch: str = "b00000000001") -> Vm:
    provider = patient(root)
    (vm,) = (await provider.launch(await request(provider, document, batch=batch, ends_ms=ends_ms))).vms
    return vm


async def until(good: Callable[[], bool], seconds: float = 15) -> None:
    for _ in range(int(seconds / 0.02)):
        if good():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not within {seconds} s")


def vms(root: Path) -> list[str]:
    """What the registry holds, read without a driver: one that was asked could do the watchdog's work."""
    return sorted(os.listdir(root / "vms"))


async def nears(root: Path) -> int:
    """The hard end, moved to in a moment. However long it took to come to what is looked at, it begins there."""
    sooner = clock() + 500
    assert await patient(root).extend([VM], sooner) == frozenset()
    return sooner


async def passed(root: Path, ends_ms: int) -> None:
    """Until the time is up by which a hard end is kept."""
    late_ms = ends_ms + PERIOD_MS + patient(root).traits.stop_lag_ms
    await until(lambda: not vms(root) or clock() > late_ms, seconds=60)


async def up(root: Path) -> int:
    """Until the VM's task runs; the pid of the one that has nothing of the VM's environment."""
    path = root / "vms" / VM / "disk" / "pid"
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def machine_of(root: Path) -> int:
    return int(json.loads((root / "vms" / VM / "machine.json").read_text())["pid"])


async def nothing(root: Path) -> None:
    """Nothing happens to the VM, but no driver is there any more."""


async def machine_hangs(root: Path) -> None:
    os.kill(machine_of(root), signal.SIGSTOP)


async def everything_hangs(root: Path) -> None:
    for process in living(root):
        processes.send(process, signal.SIGSTOP)


async def machine_is_killed(root: Path) -> None:
    os.kill(machine_of(root), signal.SIGKILL)


async def all_that_is_marked_is_killed(root: Path) -> None:
    """The task is left with no ancestor, no mark and a session of its own."""
    marked = living(root)
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for process in marked:
            processes.send(process, signum)


TROUBLES = [nothing, machine_hangs, everything_hangs, machine_is_killed, all_that_is_marked_is_killed]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
async def test_a_vm_in_any_trouble_is_gone_by_its_hard_end(
    root: Path, trouble: Callable[[Path], Awaitable[None]]
) -> None:
    """Once its end is near no driver is asked again, and the machine does not do its part: nothing of the VM lives, and
    its record is gone."""
    await launched(root, clock() + FAR_MS)
    task = await up(root)
    await trouble(root)
    await asyncio.sleep(2 * PERIOD_MS / 1000)
    assert exists(task), "it ended before its time"
    ends_ms = await nears(root)
    late_ms = ends_ms + PERIOD_MS + patient(root).traits.stop_lag_ms
    await until(lambda: not exists(task) or clock() > late_ms, seconds=60)
    assert clock() >= ends_ms, "it ended before its time"
    await passed(root, ends_ms)
    assert vms(root) == []
    assert living(root) == []
    assert not exists(task)


async def test_a_vm_that_was_never_switched_on_is_gone_by_its_hard_end(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver died between making the VM and starting it: no process of it ever was, and its record goes too."""
    with monkeypatch.context() as crash:
        crash.setattr("cloud_dispatch_local.driver.power_on", lambda *_: None)
        await launched(root, clock() + FAR_MS)
    assert vms(root) == [VM]
    await passed(root, await nears(root))
    assert vms(root) == []


async def test_a_boot_that_hangs_with_its_machine_stopped_is_gone_by_its_hard_end(root: Path) -> None:
    """Nothing that the VM would time itself by was ever started."""
    (root / "faults.json").write_text(json.dumps([{"operation": "boot", "boot": "hang"}]))
    await launched(root, clock() + FAR_MS)
    await until(lambda: (root / "vms" / VM / "machine.json").exists())
    await everything_hangs(root)
    await passed(root, await nears(root))
    assert (vms(root), living(root)) == ([], [])


async def test_a_registry_that_somebody_holds_for_ever_keeps_no_vm_running(root: Path) -> None:
    """A dispatcher that froze with the registry's lock: the VM is killed in time; its record goes with the lock."""
    await launched(root, clock() + FAR_MS)
    task = await up(root)
    await machine_hangs(root)
    hold = "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.flock(f, 2); print(flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", hold, str(root / "lock")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        folder, ends_ms = VmFolder(root / "vms" / VM), clock() + 500
        record = folder.vm()
        assert record is not None
        tags = {**record.tags, ENDS_AT: str(ends_ms)}
        folder.save_vm(replace(record, tags=tags, ends_ms=ends_ms))  # the last that it did
        late_ms = ends_ms + PERIOD_MS + patient(root).traits.stop_lag_ms
        await until(lambda: not exists(task) or clock() > late_ms, seconds=60)
        assert not exists(task)
        await until(lambda: living(root) == [])
        assert vms(root) == [VM]
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()  # type: ignore[union-attr]
    await until(lambda: vms(root) == [])


async def test_only_what_is_past_its_end_is_ended(root: Path) -> None:
    """Beside a VM that ends, one with a later end, one with none, and one whose tags can't be read live on; the last is
    told of."""
    provider = patient(root)
    ends_ms = clock() + 1_000
    sleep = cloud_config("sleep 600")
    await launched(root, ends_ms, sleep)
    await launched(root, clock() + FAR_MS, sleep, "b00000000002")
    await launched(root, 0, sleep, "b00000000003")
    odd = await request(provider, sleep, batch="b00000000004")
    tags = {key: value for key, value in odd.tags.items() if key != BATCH}
    await provider.launch(replace(odd, tags={**tags, ENDS_AT: str(ends_ms)}))
    await until(lambda: VM not in vms(root), seconds=PERIOD_MS / 1000 + 5)
    unread = "b00000000004-0: its tags can't be read"
    await until(lambda: unread in (root / "watchdog.log").read_text())
    await asyncio.sleep(2 * PERIOD_MS / 1000)
    assert vms(root) == ["b00000000002-0", "b00000000003-0", "b00000000004-0"]
    assert {vm.id for vm in (await provider.list(DEPLOYMENT)).vms} == {VmId(name) for name in vms(root)}
    said = (root / "watchdog.log").read_text()
    assert said.count(unread) == 1
    assert f"{VM}: ended" in said


async def test_an_end_that_was_moved_is_heeded_by_watchdog_and_machine(root: Path) -> None:
    """Extended, a VM lives past its old end; shortened, it is gone by the new one, its machine hung or not."""
    await launched(root, clock() + FAR_MS)
    task = await up(root)
    provider, ends_ms = patient(root), clock() + LIFE_MS
    await provider.extend([VM], ends_ms)
    assert await provider.extend([VM], clock() + FAR_MS) == frozenset()
    await asyncio.sleep((ends_ms + 2 * PERIOD_MS - clock()) / 1000)
    assert exists(task)
    await machine_hangs(root)
    sooner = await nears(root)
    assert (await provider.get(VM)).tags[ENDS_AT] == str(sooner)
    await passed(root, sooner)
    assert (vms(root), living(root)) == ([], [])


async def test_an_end_that_has_begun_can_not_be_moved(root: Path) -> None:
    """Whoever extends a VM that is being ended is told that there is none, instead of counting on it."""
    await launched(root, clock() + FAR_MS)
    await up(root)
    await machine_hangs(root)
    provider = patient(root)
    await provider.terminate(VM)
    assert await provider.extend([VM], clock() + 900_000) == {VM}
    assert await provider.tag([VM], {"more": "1"}) == frozenset()


async def test_an_extension_that_fails_changes_nothing(root: Path) -> None:
    """An injected failure leaves tag and end as they were; repeated, it is made."""
    ends_ms = clock() + FAR_MS
    await launched(root, ends_ms)
    (root / "faults.json").write_text(json.dumps([{"operation": "extend", "times": 1, "error": "transient"}]))
    provider = patient(root)
    with pytest.raises(Transient):
        await provider.extend([VM], ends_ms + 1)
    assert (await provider.get(VM)).tags[ENDS_AT] == str(ends_ms)
    await provider.extend([VM], ends_ms + 1)
    assert (await provider.get(VM)).tags[ENDS_AT] == str(ends_ms + 1)


async def test_a_killed_watchdog_is_started_again_by_the_next_driver(root: Path) -> None:
    """Each call that makes, moves or finds a hard end brings it back; the VM is gone in time by the new one. However
    long all that took: its end comes near only then."""
    ends_ms = clock() + FAR_MS
    await launched(root, ends_ms)
    await up(root)
    await everything_hangs(root)
    provider = patient(root)

    async def lists() -> object:
        return await provider.list(DEPLOYMENT)

    async def extends() -> None:
        await provider.extend([VM], ends_ms)

    async def launches() -> object:
        return await provider.launch(await request(provider, BUSY, ends_ms=ends_ms))

    for call in (lists, extends, launches):
        (before,) = watchdogs(root)
        processes.send(before, signal.SIGKILL)
        await until(lambda before=before: not processes.alive(before))
        await call()
        await until(lambda: len(watchdogs(root)) == 1)
    newest, sooner = watchdogs(root), await nears(root)
    assert watchdogs(root) == newest
    await passed(root, sooner)
    assert (vms(root), living(root)) == ([], [])


async def test_drivers_of_one_folder_have_one_watchdog(root: Path) -> None:
    """Drivers that launch at once, and watchdogs started by the dozen, come to one; it is nobody's child."""
    ends_ms = clock() + FAR_MS
    await asyncio.gather(*(launched(root, ends_ms, cloud_config("sleep 600"), f"b0000000000{n}") for n in range(4)))
    for _ in range(6):
        detached.start("cloud_dispatch_local.watch", root.resolve(), root / "watchdog.log", {})
    await until(lambda: len(watchdogs(root)) == 1)
    (one,) = watchdogs(root)
    assert Watch(Registry(root)).process() == one
    assert not descends_from_us(one.pid)
    assert os.getsid(one.pid) == one.pid
    assert (root / "watchdog.log").read_text() == ""


async def test_the_watchdog_leaves_when_nothing_is_left(root: Path) -> None:
    """Soon after the last VM with an end is gone; the next launch has one again."""
    await launched(root, clock() + FAR_MS)
    await launched(root, 0, batch="b00000000002")
    assert len(watchdogs(root)) == 1
    provider = patient(root)

    async def gone() -> bool:
        await provider.terminate(VM)
        return VM not in vms(root)

    while not await gone():
        await asyncio.sleep(0.05)
    await until(lambda: watchdogs(root) == [], seconds=3 * PERIOD_MS / 1000 + 5)
    await launched(root, clock() + FAR_MS, batch="b00000000003")
    assert len(watchdogs(root)) == 1


async def test_the_watchdog_leaves_with_its_registry(root: Path) -> None:
    """A folder that was deleted, or made anew by somebody else, is nothing to watch."""
    await launched(root, clock() + FAR_MS)
    assert len(watchdogs(root)) == 1
    for process in living(root):
        processes.send(process, signal.SIGKILL)
    shutil.rmtree(root)
    await until(lambda: watchdogs(root) == [], seconds=3 * PERIOD_MS / 1000 + 5)
    assert not root.exists()


async def test_no_launch_succeeds_and_no_end_is_moved_without_a_watchdog(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none comes, a launch is in doubt, its VMs are there to be found, and an end stays where it was; a VM
    without a hard end needs none. With the next call that brings it, all is as it should be."""
    provider = patient(root)
    ends_ms = clock() + FAR_MS
    asked = await request(provider, BUSY, ends_ms=ends_ms)
    with monkeypatch.context() as broken:
        broken.setattr("cloud_dispatch_local.watch.detached.start", lambda *_: None)
        broken.setattr("cloud_dispatch_local.watch._START_TRIES", 3)
        with pytest.raises(InDoubt, match=r"watchdog\.log"):
            await provider.launch(asked)
        assert vms(root) == [VM]
        with pytest.raises(Transient, match=r"watchdog\.log"):
            await provider.extend([VM], ends_ms + 1)
        (vm,) = (await provider.list(DEPLOYMENT)).vms
        assert vm.tags[ENDS_AT] == str(ends_ms)
        endless = await request(provider, BUSY, batch="b00000000002")
        assert len((await provider.launch(endless)).vms) == 1
    assert len((await provider.launch(asked)).vms) == 1
    assert len(watchdogs(root)) == 1


async def test_a_watchdog_stays_for_what_was_made_since_its_last_look(root: Path) -> None:
    """It leaves under the registry's lock: not when a VM with an end, or one that can't be read, is there, nor while
    somebody makes one."""
    left: list[str] = []
    watchdog = Watchdog(Registry(root), clock, lambda _: None)
    assert not await watchdog.look()
    await launched(root, clock() + FAR_MS)
    assert not await watchdog.relieved(lambda: left.append("left"))
    end_everything(root)
    (root / "vms" / VM / "vm.json").write_text("{")
    assert not await watchdog.relieved(lambda: left.append("left"))
    shutil.rmtree(root / "vms" / VM)
    async with Registry(root).locked():
        assert not await Watchdog(Registry(root, 0.05), clock, print).relieved(lambda: left.append("left"))
    assert left == []
    assert await watchdog.relieved(lambda: left.append("left"))
    assert left == ["left"]
