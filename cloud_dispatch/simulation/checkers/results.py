"""P1 against the machines: what is accepted as a success truly ran to its end, under the very token it came under."""

from __future__ import annotations

from cloud_dispatch.domain.task import Cause
from cloud_dispatch.simulation.checkers.base import Checker, Process, View
from cloud_dispatch.simulation.facts import Commit

_SUCCESS = str(Cause.SUCCESS)


class Results(Checker):
    """The store says under which token an attempt ended; the VMs say which commands ran and ended, and for which."""

    name = "P1 results"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._ended: set[int] = set()  # tokens of commands that ended and were not accepted yet
        self._accepted: set[int] = set()  # those that were

    def process_ended(self, process: Process) -> None:
        self._ended.add(process.token)

    def committed(self, commit: Commit) -> None:
        for attempt in commit.attempts:
            if attempt.cause == _SUCCESS and attempt.token not in self._ended:
                self.find(
                    f"task {attempt.task} succeeded under token {attempt.token}, but no command ended under that token"
                )
            if attempt.token in self._ended:
                self._ended.discard(attempt.token)
                self._accepted.add(attempt.token)

    def restored(self) -> None:
        """What the store has forgotten may be told again, by an agent that did not hear that it was accepted."""
        self._ended |= self._accepted
