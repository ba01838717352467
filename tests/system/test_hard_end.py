"""The dispatcher is killed for good. Whatever its instances do, a hand of its own ends each by its hard end, and what
they have cost until then is within the limit."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cloud_dispatch.domain.money import Amount, charge, parse_rate
from cloud_dispatch_local import processes
from cloud_dispatch_local.processes import Process
from tests import procfs
from tests.agent.conftest import is_agent
from tests.system.house import CONFIG, House

LIFETIME_S = 30
#: The watchdog's period and the stop lag, as the traits of a local driver with its usual grace give them.
LATE_S = 1 + 15
#: What the house's machine costs an hour, and a limit that just admits five for so long as they may last: the lifetime,
#: that lateness, and two minutes between the clocks at its beginning and at its end.
RATE = parse_rate("0.04")
LIMIT = "0.016"
STUBBORN = {"command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], "cpus": 2}


def folders(house: House) -> list[Path]:
    """The VMs of the registry, read by nobody's driver."""
    return sorted((house.state / "providers" / "local" / "vms").iterdir())


def inside(vm: Path, word: str = "") -> list[Process]:
    """What lives in a VM, or that of it with `word` in its command line."""
    return [each for each in processes.of_vms([vm])[vm] if word in " ".join(procfs.words(each.pid))]


def send(those: Iterable[Process], signum: signal.Signals) -> None:
    """To each that still lives: the kernel ends some of them with others (a stopped group whose parent is gone)."""
    sent = [processes.send(each, signum) for each in those]
    assert any(sent)


def running(house: House) -> bool:
    return house.counts().get("running") == 4


class Watched:
    """When each VM was there, by its provider's own facts: its creation, and the moment that its folder was missing."""

    def __init__(self, vms: list[Path]) -> None:
        self.records = {vm: json.loads((vm / "vm.json").read_text()) for vm in vms}
        self.gone: dict[Path, float] = {}

    def look(self, until_s: float) -> None:
        """Until that moment, or until none is there."""
        while time.time() < until_s and len(self.gone) < len(self.records):
            for vm in self.records:
                if vm not in self.gone and not vm.exists():
                    self.gone[vm] = time.time()
            time.sleep(0.05)

    def bill(self) -> Amount:
        """What they have cost, each rounded up, as a provider without any minimum has it."""
        lives = [int(gone * 1000) + 1 - self.records[vm]["created_ms"] for vm, gone in self.gone.items()]
        return Amount(sum(charge(RATE, lived_ms) for lived_ms in lives))


def budget(house: House) -> Any:
    (one,) = house.get("/v1/budgets")["budgets"]
    return one


def behead(vm: Path, house: House) -> None:
    """Kill its machine and its supervisor, none of which shall tidy up after the other."""
    above = [
        *inside(vm, "cloud_dispatch_local.vm"),
        *(each for each in inside(vm, "agent.pyz") if not is_agent(each.pid)),
    ]
    send(above, signal.SIGSTOP)
    send(above, signal.SIGKILL)
    house.until(lambda: not any(map(processes.alive, above)), 5, "its head is off")


def test_every_instance_is_gone_by_its_hard_end_with_the_dispatcher_dead_for_good(make_house: Any) -> None:
    """One agent is hung; one whole instance is; of one, machine and supervisor are dead; one only waits; and one never
    came to start a timer and hangs there. None of them is there when period and lag have passed, nor the watchdog; and
    what they have cost, by what the provider knows of them, is within the limit, as is what the ledger says of it."""
    config = CONFIG.replace('lifetime = "10m"', f'lifetime = "{LIFETIME_S}s"') + f'[budget]\ntotal = "{LIMIT}"\n'
    house = make_house(cap=5, idle="60s", pool="min = 5", config=config)
    registry = house.state / "providers" / "local"
    registry.mkdir(parents=True)
    hang = {"operation": "boot", "boot": "hang", "after": 4, "times": 1}
    (registry / "faults.json").write_text(json.dumps([hang]))
    house.up()
    house.submit(*[STUBBORN] * 4)
    house.until(lambda: running(house) and len(folders(house)) == 5, 25, "four serve and one hangs in its boot")
    house.kill()
    vms = folders(house)
    watched = Watched(vms)
    (unborn,) = (vm for vm in vms if not inside(vm, "agent.pyz"))
    hung, frozen, headless, _ = (vm for vm in vms if vm != unborn)
    send([each for each in inside(hung) if is_agent(each.pid)], signal.SIGSTOP)
    send(inside(frozen), signal.SIGSTOP)
    behead(headless, house)
    send(inside(unborn), signal.SIGSTOP)
    ends_s = [record["ends_ms"] / 1000 for record in watched.records.values()]
    watched.look(min(ends_s) - 1)
    assert all(inside(vm) for vm in (frozen, unborn)), "they ended before their time"
    watched.look(max(ends_s) + LATE_S)
    assert folders(house) == []
    assert [found for found in processes.of_vms(vms).values() if found] == []
    house.until(lambda: not house.processes(), 10, "the watchdog has left")
    bill, limit = watched.bill(), round(float(LIMIT) * 1_000_000)
    assert 0 < bill <= limit
    house.config.write_text(house.config.read_text().replace("[dispatcher]", "[dispatcher]\npause = true"))
    house.up()
    house.until(lambda: not house.instances(), 30, "the dispatcher knows that none is left")
    known = budget(house)
    assert bill <= known["spent"] <= limit
    assert known["committed"] == 0
