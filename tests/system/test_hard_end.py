"""The dispatcher is killed for good. Whatever its instances do, a hand of its own ends each by its hard end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cloud_dispatch_local import processes
from cloud_dispatch_local.processes import Process
from tests.system.house import CONFIG, House

LIFETIME_S = 30
#: The watchdog's period and the stop lag, as the traits of a local driver with its usual grace give them.
LATE_S = 1 + 15
STUBBORN = {"command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], "cpus": 2}


def folders(house: House) -> list[Path]:
    """The VMs of the registry, read by nobody's driver."""
    return sorted((house.state / "providers" / "local" / "vms").iterdir())


def inside(vm: Path, word: str = "") -> list[Process]:
    """What lives in a VM, or that of it with `word` in its command line."""
    return [each for each in processes.of_vms([vm])[vm] if word in command_of(each)]


def command_of(process: Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""  # it has just ended


def send(those: Iterable[Process], signum: signal.Signals) -> None:
    """To each that still lives: the kernel ends some of them with others (a stopped group whose parent is gone)."""
    sent = [processes.send(each, signum) for each in those]
    assert any(sent)


def running(house: House) -> bool:
    return house.counts().get("running") == 4


def test_every_instance_is_gone_by_its_hard_end_with_the_dispatcher_dead_for_good(make_house: Any) -> None:
    """One agent is hung; one whole instance is; of one, machine and supervisor are dead; one only waits; and one never
    came to start a timer and hangs there. None of them is there when period and lag have passed, nor the watchdog."""
    house = make_house(
        cap=5, idle="60s", pool="min = 5", config=CONFIG.replace('lifetime = "10m"', f'lifetime = "{LIFETIME_S}s"')
    )
    registry = house.state / "providers" / "local"
    registry.mkdir(parents=True)
    hang = {"operation": "boot", "boot": "hang", "after": 4, "times": 1}
    (registry / "faults.json").write_text(json.dumps([hang]))
    house.up()
    house.submit(*[STUBBORN] * 4)
    house.until(lambda: running(house) and len(folders(house)) == 5, 25, "four serve and one hangs in its boot")
    house.kill()
    vms = folders(house)
    (unborn,) = (vm for vm in vms if not inside(vm, "agent.pyz"))
    hung, frozen, headless, _ = (vm for vm in vms if vm != unborn)
    send(inside(hung, "--agent"), signal.SIGSTOP)
    send(inside(frozen), signal.SIGSTOP)
    above = [
        each
        for each in inside(headless)
        if "cloud_dispatch_local.vm" in command_of(each)
        or ("agent.pyz" in command_of(each) and "--agent" not in command_of(each))
    ]
    send(above, signal.SIGSTOP)  # none of them shall tidy up after another
    send(above, signal.SIGKILL)
    house.until(lambda: not any(map(processes.alive, above)), 5, "its head is off")
    send(inside(unborn), signal.SIGSTOP)
    ends_ms = [json.loads((vm / "vm.json").read_text())["ends_ms"] for vm in vms]
    time.sleep(max(min(ends_ms) / 1000 - 1 - time.time(), 0))
    assert all(inside(vm) for vm in (frozen, unborn)), "they ended before their time"
    while time.time() < max(ends_ms) / 1000 + LATE_S and folders(house):
        time.sleep(0.1)
    assert folders(house) == []
    assert [found for found in processes.of_vms(vms).values() if found] == []
    house.until(lambda: not house.processes(), 10, "the watchdog has left")
