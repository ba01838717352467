"""P2 for what is no VM: disks, NICs and addresses that outlive theirs are deleted within a bounded time."""

from __future__ import annotations

from cloud_dispatch.simulation.checkers.base import Checker, View

_SLACK_MS = 60_000


class Remains(Checker):
    """Only time in which the dispatcher is up and nothing is broken counts towards the bound."""

    name = "P2 leftovers"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._since: dict[tuple[str, str], int] = {}
        timing = view.scenario.timing
        horizon = max((a.settings.consistency_ms for a in view.scenario.accounts), default=0) + timing.call_timeout_ms
        boot = max((pool.boot_deadline_ms for pool in view.scenario.pools), default=0)
        #: While its batch boots it is let be; then two looks prove it, the second after the horizon; then it goes.
        self.bound_ms = boot + horizon + 3 * timing.leftovers_interval_ms + 3 * timing.call_timeout_ms + _SLACK_MS

    def look(self) -> None:
        healthy = self.view.healthy_since_ms
        if healthy is None:
            return
        now, before = self.view.now_ms, self._since
        self._since = {}
        for account in self.view.accounts:
            for leftover in account.leftovers():
                key = account.name, leftover.id
                since = self._since[key] = max(before.get(key, now), healthy)
                if now - since > self.bound_ms:
                    self.find(f"{leftover.kind} {leftover.id} of batch {leftover.batch} belongs to no VM and is there "
                              f"for {now - since} ms")  # fmt: skip

    def end(self) -> None:
        for account in self.view.accounts:
            for leftover in account.leftovers():
                self.find(f"{leftover.kind} {leftover.id} of batch {leftover.batch} is left at the end of the run")
