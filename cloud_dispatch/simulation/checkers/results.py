"""P1 against the machines: what is accepted as a command's own end truly was its end, under the very token it came
under."""

from __future__ import annotations

from cloud_dispatch.domain.task import Cause
from cloud_dispatch.simulation.checkers.base import Checker, Exit, Process, View
from cloud_dispatch.simulation.facts import Commit, EndedAttempt

_SUCCESS = str(Cause.SUCCESS)
#: What a command comes to by itself; all other causes say what was done to it.
_OWN = frozenset(map(str, (Cause.SUCCESS, Cause.EXIT_CODE, Cause.SIGNAL)))


class Results(Checker):
    """The store says under which token an attempt ended, and how; the VMs say which commands ran and ended so."""

    name = "P1 results"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._ended: dict[int, Exit | None] = {}  # by token, commands that ended and were not accepted yet
        self._accepted: dict[int, Exit | None] = {}  # those that were

    def process_ended(self, process: Process) -> None:
        self._ended[process.token] = process.end

    def committed(self, commit: Commit) -> None:
        for attempt in commit.attempts:
            token = attempt.token
            known = token in self._ended
            if attempt.cause in _OWN:
                self._judge(attempt, known)
            if known:
                self._accepted[token] = self._ended.pop(token)

    def _judge(self, attempt: EndedAttempt, known: bool) -> None:
        said = f"task {attempt.task} ended by {attempt.cause} under token {attempt.token}"
        if not known:
            self.find(f"{said}, but no command ended under that token")
        elif (truth := self._ended[attempt.token]) != (attempt.cause, attempt.exit_code, attempt.signal):
            self.find(f"{said} as {attempt.exit_code, attempt.signal}, but its command as {truth}")

    def restored(self) -> None:
        """What the store has forgotten may be told again, by an agent that did not hear that it was accepted."""
        self._ended |= self._accepted
