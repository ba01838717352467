"""Words to the service manager that started the dispatcher, where one did: sd_notify(3). Owns their form and the way.

They are datagrams to the socket that it names; what can't be sent is lost, since nobody waits for an answer.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass

ADDRESS, WATCHDOG, WATCHED = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def status(text: str) -> str:
    """The line that `systemctl status` shows."""
    return "STATUS=" + " ".join(text.split())


def reloading(monotonic_us: int) -> tuple[str, str]:
    """The configuration is being read anew since then, until READY."""
    return "RELOADING=1", f"MONOTONIC_USEC={monotonic_us}"


@dataclass(frozen=True)
class ServiceManager:
    """Who waits for these words. `watchdog_s`: it ends a dispatcher of which it has heard nothing for so long."""

    address: str = ""
    watchdog_s: float | None = None

    @classmethod
    def take(cls, environment: MutableMapping[str, str], pid: int) -> ServiceManager:
        """The one that `environment` names, and out of it: what the process `pid` starts is none of its business."""
        address, watchdog, watched = (environment.pop(name, "") for name in (ADDRESS, WATCHDOG, WATCHED))
        watches = watchdog.isdecimal() and int(watchdog) > 0 and watched in ("", str(pid))
        return cls(address, int(watchdog) / 1e6 if watches else None)

    @property
    def pulse_s(self) -> float | None:
        """How often it shall hear that all is well; None where it does not watch."""
        return None if self.watchdog_s is None else self.watchdog_s / 3

    def tell(self, *words: str) -> None:
        """Tell it these words, all at once."""
        if not self.address.startswith(("/", "@")):
            return
        there = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.setblocking(False)
            own.sendto("\n".join(words).encode(), there)
