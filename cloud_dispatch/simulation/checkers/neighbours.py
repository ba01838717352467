"""What is somebody else's in an account is let be: P2 and P7 from the other side.

Another deployment's VMs, those of another statestore and those that say nothing of themselves are neither ended nor
tagged, and what they left is not deleted, whatever a listing shows.
"""

from __future__ import annotations

from cloud_dispatch.simulation.checkers.base import Checker, View


class Neighbours(Checker):
    """By what the clouds were asked to do."""

    name = "neighbours"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._told: dict[str, int] = {}

    def look(self) -> None:
        for account in self.view.accounts:
            done = account.trespasses()
            for text in done[self._told.get(account.name, 0) :]:
                self.find(text)
            self._told[account.name] = len(done)

    def end(self) -> None:
        self.look()
