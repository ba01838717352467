"""A real dispatcher whose VMs truly boot, and what is measured of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.boot.qemu import ONLINE, QemuGuest, QemuGuests
from tests.fakes.guests.sources import Source
from tests.system.aws import Account

#: Beyond what any step takes where one of these VMs boots in a minute: other machines are slower, or busy.
PATIENCE_S = 900
#: Of tests of processes, whose VMs are there at once.
QUICK = {
    'heartbeat = "0.5s"': 'heartbeat = "1s"',
    'silence = "60s"': 'silence = "30m"',
    'boot_deadline = "20s"': 'boot_deadline = "15m"',
    'target_drain = "10s"': 'target_drain = "60s"',
    'lifetime = "10m"': 'lifetime = "1h"',
    'idle = "1s"': 'idle = "5m"',
}


class Site(Account):
    """A deployment whose VMs are QEMU's."""

    guests: QemuGuests

    def configure(self, before: str, after: str) -> None:
        """Put something else into the configuration, where that stood."""
        text = self.house.config.read_text()
        assert before in text, before
        self.house.config.write_text(text.replace(before, after))

    def machine(self) -> tuple[dict[str, Any], QemuGuest]:
        """The one instance, once it has registered, and its machine."""

        def registered() -> Any:
            return [row for row in self.house.instances() if row["registered_ms"] and row["state"] != "terminating"]

        (row,) = self.house.until(registered, PATIENCE_S, "its agent has registered")
        return row, self.guests.of(row["vm"])


MakeSite = Callable[[Source], Site]


class Measured:
    """How soon after their networks were up VMs had registered, by their boot logs."""

    def __init__(self) -> None:
        self.figures: list[str] = []

    def registration(self, row: dict[str, Any], machine: QemuGuest) -> float | None:
        """In seconds of the VM's own clock, less what its processors waited for this host's. None where that was most
        of the time: a machine that is busy with other things says nothing of ours."""
        waited_s = machine.waited_s()
        online_s = machine.said(ONLINE)
        assert online_s is not None
        took_s = machine.on_its_clock(row["registered_ms"]) - online_s
        name = machine.source.name
        self.figures.append(
            f"{name}: network up {online_s:.1f} s after power-on, registered {took_s:.1f} s later; "
            f"its processors waited {waited_s:.1f} s of that for this host's"
        )
        return took_s - waited_s if waited_s < took_s / 2 else None
