"""Nothing is ended while it works, or while an operator holds it."""

from __future__ import annotations

from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.simulation.checkers.base import Checker, View
from cloud_dispatch.simulation.facts import Commit

_S = InstanceState
#: What serves, or has not said that its drain is done.
_WORKING = frozenset({_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT, _S.UNKNOWN, _S.DRAINING})
#: Causes for which it is ended all the same, and without a plan: an operator's word, the end of everything, its hard
#: end.
AT_ONCE = frozenset({"killed", "stopped", "shutdown", "hard-end"})


class Ends(Checker):
    """An instance is told to drain, and says that it has, before its VM is ended; one that is held is not ended."""

    name = "ends"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._rows: dict[str, Instance] = {}

    def committed(self, commit: Commit) -> None:
        for row in commit.instances:
            was = self._rows.get(row.id)
            if was is not None and row.state is _S.TERMINATING and was.state is not _S.TERMINATING:
                self._ended(was, row)
            self._rows[row.id] = row

    def _ended(self, was: Instance, row: Instance) -> None:
        if row.cause in AT_ONCE:
            return
        if was.state in _WORKING:
            self.find(f"instance {row.id} was {was.state} and is ended at once: {row.cause}")
        elif was.behaviour is row.behaviour is Behaviour.HOLD:
            self.find(f"instance {row.id} is held and is ended: {row.cause}")

    def restored(self) -> None:
        self._rows.clear()
