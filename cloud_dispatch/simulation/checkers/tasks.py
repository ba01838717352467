"""P1: no task is lost, no result is accepted twice, no stale attempt touches a task's outputs. And what has ended
stays ended.

A stale attempt may live on for a while where the dispatcher knows that its machine is about to end (it was killed, or
says so itself): its token guards against it. Where the machine went silent nothing tells whether it still runs, so
there the lease must have ended the attempt before another one starts. Unless that machine stood still: nothing on it
can have ended in time then, and how long it may go on afterwards is what `strays` looks at.
"""

from __future__ import annotations

from cloud_dispatch.domain.ids import FencingToken
from cloud_dispatch.domain.task import HELD, TERMINAL, TaskState
from cloud_dispatch.simulation.checkers.base import Checker, Process, View
from cloud_dispatch.simulation.facts import Commit, LiveTask

_HELD = frozenset(map(str, HELD))
_TERMINAL = frozenset(map(str, TERMINAL))


class Tasks(Checker):
    """P1 by the transactions of the store and the processes that truly run."""

    name = "P1 tasks"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._live: dict[int, LiveTask] = {}
        self._held: dict[int, LiveTask] = {}  # those of them that somebody holds
        self._running: dict[int, list[Process]] = {}  # by task, what runs of it
        self._ended: dict[int, str] = {}
        self._tokens: set[int] = set()  # of attempts that ended
        self._newest = FencingToken(0)
        self._silent: set[str] = set()  # instances given up because nothing was heard of them
        self._holders: dict[int, str | None] = {}  # instance by token
        self._given_ms: dict[int, int] = {}  # when, by token
        self._restored = False
        self._unheld: dict[int, LiveTask] = {}

    def committed(self, commit: Commit) -> None:
        for task in commit.new_tasks:
            self._live.setdefault(task, LiveTask(task, str(TaskState.QUEUED), 0, None, None))
        for instance in commit.instances:
            if instance.cause == "out-of-contact":
                self._silent.add(instance.id)
        self._attempts(commit)
        newest = self._newest
        for live in commit.live:
            self._lives(live, newest)
        for task, state in commit.ended:
            self._ends(task, state)

    def _attempts(self, commit: Commit) -> None:
        for attempt in commit.attempts:
            if attempt.token in self._tokens:
                self.find(f"a second result of task {attempt.task} under token {attempt.token} was accepted")
            self._tokens.add(attempt.token)
            holder = self._live.get(attempt.task)
            if holder is None and not self._restored:
                self.find(f"task {attempt.task} took a result under token {attempt.token}, nobody holds it")
            elif holder is not None and holder.token not in (None, attempt.token):
                self.find(f"task {attempt.task} took a result under token {attempt.token}, not {holder.token}")

    def _lives(self, live: LiveTask, newest: int) -> None:
        if live.task in self._ended:
            self.find(f"task {live.task} was {self._ended[live.task]} and is {live.state} again")
        if live.state in _HELD and live.token is None:
            self.find(f"task {live.task} is {live.state} without a token")
        before = self._live.get(live.task)
        if live.token is not None and (before is None or before.token != live.token):
            if live.token <= newest:
                # A claim that a restored store has from its backup is not given out again: only its start is news.
                known = self._restored and before is None and live.state != TaskState.CLAIMED
                if not known:
                    self.find(f"token {live.token} of task {live.task} is not newer than {newest}")
            self._newest = max(self._newest, live.token)
            self._holders[live.token] = live.instance
            self._given_ms[live.token] = self.view.now_ms
        self._live[live.task] = live
        if live.state in _HELD:
            self._held[live.task] = live
        else:
            self._held.pop(live.task, None)

    def _ends(self, task: int, state: str) -> None:
        if task in self._ended:
            self.find(f"task {task} was {self._ended[task]} and ended again as {state}")
        if state not in _TERMINAL:
            self.find(f"task {task} ended as {state}")
        self._ended[task] = state
        self._live.pop(task, None)
        self._held.pop(task, None)

    def process_started(self, process: Process) -> None:
        self._starts_in_time(process)
        alike = self._running.setdefault(process.task, [])
        alike.append(process)
        for other in alike:
            if other.token == process.token or other.unkillable or self._stood_still(other):
                continue
            if self._holders.get(other.token) in self._silent:
                self.find(
                    f"task {process.task} starts under token {process.token} on {process.vm.id}, and still runs under "
                    f"{other.token} on {other.vm.id}, whose lease was to have ended it"
                )

    def _starts_in_time(self, process: Process) -> None:
        """Where the machine went silent and its task was given away, the lease was over: nothing may start under it."""
        task, live = process.task, self._live.get(process.task)
        given_away = task in self._ended or (live is not None and live.token != process.token)
        if given_away and self._holders.get(process.token) in self._silent and not self._stood_still(process):
            self.find(f"task {task} starts under token {process.token} on {process.vm.id}, after that lease's end")

    def _stood_still(self, process: Process) -> bool:
        """Whether its VM did, since its claim was given."""
        return process.stood_ms > 0 or self._given_ms.get(process.token, 0) <= process.thawed_ms

    def process_ended(self, process: Process) -> None:
        left = [other for other in self._running.pop(process.task, ()) if other is not process]
        if left:
            self._running[process.task] = left

    def restored(self) -> None:
        """What happened after the backup is unknown to the store: start anew with what it has."""
        self._live.clear()
        self._held.clear()
        self._ended.clear()
        self._tokens.clear()
        self._silent.clear()
        self._restored = True

    def look(self) -> None:
        store = self.view.store
        if store is None or store.in_doubt():
            # What was committed without an answer is not in memory before that could be looked up.
            self._unheld = {}
            return
        counts = store.task_counts()
        if sum(counts.values()) < len(self._live) + len(self._ended):
            self.find(f"the store counts {sum(counts.values())} tasks, {len(self._live) + len(self._ended)} are known")
        # While a commit is under way memory may be ahead of the tables; so only what stays is a finding.
        before, token_of = self._unheld, store.token_of
        self._unheld = {task: live for task, live in self._held.items() if token_of(live.task) is None}
        for task, live in self._unheld.items():
            if before.get(task) == live and self.view.healthy_since_ms is not None:
                self.find(f"task {task} is {live.state} in the tables and held by nobody in memory")

    def end(self) -> None:
        unpaid = bool(self.view.scenario.budgets)  # then what waits may wait for ever
        for task, live in self._live.items():
            if not (unpaid and live.state == TaskState.QUEUED):
                self.find(f"task {task} never ended: it is {live.state}")
                break
