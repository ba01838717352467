"""Tasks and their attempts. Owns their states, why attempts end, and the rule whether a task is tried again."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cloud_dispatch.domain.ids import ArrayId, FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.transition import TransitionTable


class TaskState(StrEnum):
    """Where a task is. `claimed`: handed to an agent that has not said that it started it."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskEvent(StrEnum):
    CLAIM = "claim"
    START = "start"
    RELEASE = "release"  # a claim that never started goes back: costs no attempt
    SUCCEED = "succeed"
    RETRY = "retry"
    FAIL = "fail"
    CANCEL = "cancel"
    CANCELLED = "cancelled"  # nothing of the attempt lives any more


_S, _E = TaskState, TaskEvent

TASK_TABLE: TransitionTable[TaskState, TaskEvent] = TransitionTable(
    "task",
    _S.QUEUED,
    {
        (_S.QUEUED, _E.CLAIM): _S.CLAIMED,
        (_S.QUEUED, _E.CANCEL): _S.CANCELLED,
        (_S.CLAIMED, _E.START): _S.RUNNING,
        (_S.CLAIMED, _E.RELEASE): _S.QUEUED,
        (_S.CLAIMED, _E.SUCCEED): _S.SUCCEEDED,
        (_S.CLAIMED, _E.RETRY): _S.QUEUED,
        (_S.CLAIMED, _E.FAIL): _S.FAILED,
        (_S.CLAIMED, _E.CANCEL): _S.CANCELLING,
        (_S.RUNNING, _E.SUCCEED): _S.SUCCEEDED,
        (_S.RUNNING, _E.RETRY): _S.QUEUED,
        (_S.RUNNING, _E.FAIL): _S.FAILED,
        (_S.RUNNING, _E.CANCEL): _S.CANCELLING,
        (_S.CANCELLING, _E.START): _S.CANCELLING,
        (_S.CANCELLING, _E.CANCEL): _S.CANCELLING,
        (_S.CANCELLING, _E.CANCELLED): _S.CANCELLED,
    },
)
TERMINAL = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})
#: States in which an instance holds the task under a lease.
HELD = frozenset({TaskState.CLAIMED, TaskState.RUNNING, TaskState.CANCELLING})


class Cause(StrEnum):
    """Why an attempt ended."""

    SUCCESS = "success"
    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out-of-memory"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    INSTANCE_LOST = "instance-lost"
    CANNOT_START = "cannot-start"  # command not found, input not to be had, folder not to be made
    OUTPUT_FAILED = "output-failed"  # the command succeeded, a declared output is missing or can't be stored
    CANCELLED = "cancelled"


#: Causes that say something of the machine and nothing of the task: retried unless the task says otherwise.
MACHINE_CAUSES = frozenset({Cause.PREEMPTED, Cause.INSTANCE_LOST, Cause.CANNOT_START})
RETRYABLE = frozenset(Cause) - {Cause.SUCCESS, Cause.CANCELLED}
#: What may tell a task that its VM is about to go.
CHECKPOINT_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP")


@dataclass(frozen=True, slots=True)
class RetryRules:
    """Which ends of an attempt put the task back in the queue.

    `max_attempts` bounds all attempts that started, across instances, and counts as one what was lost with its instance
    again and again before it could start. `causes` are retried; `exit_codes` are retried
    although `exit-code` is not among the causes.
    """

    max_attempts: int = 3
    causes: frozenset[Cause] = MACHINE_CAUSES
    exit_codes: frozenset[int] = frozenset()

    def wants(self, outcome: Outcome) -> bool:
        """Whether `outcome` is one that these rules retry, attempts left or not."""
        if outcome.cause in self.causes:
            return True
        return outcome.cause is Cause.EXIT_CODE and outcome.exit_code in self.exit_codes


@dataclass(frozen=True, slots=True)
class Transfer:
    """A file to bring or to take: `url` on one side, `path` relative to the task's working folder on the other.

    An output with an empty url is kept by the dispatcher under the attempt's own name.
    """

    path: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What a user asks for, as validated and expanded: one task. Exactly one of `argv` and `shell` is set.

    `cwd` is relative to the attempt's own folder, or absolute. `max_runtime_ms` 0 is no limit of its own (the
    instance's lifetime still holds). `expected_runtime_ms` 0 is unknown. `checkpoint_signal`, one of
    `CHECKPOINT_SIGNALS` or empty for none, is what the main process gets when its VM is about to go.
    """

    argv: tuple[str, ...] = ()
    shell: str = ""
    name: str = ""
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    shape: Shape = field(default_factory=Shape)
    inputs: tuple[Transfer, ...] = ()
    outputs: tuple[Transfer, ...] = ()
    max_runtime_ms: int = 0
    expected_runtime_ms: int = 0
    retry: RetryRules = RetryRules()
    priority: int = 0
    project: str = ""
    user: str = ""
    idempotency_key: str = ""
    array_id: ArrayId = ArrayId("")
    array_index: int = 0
    checkpoint_signal: str = ""

    def describe(self) -> str:
        """The command on one line, for tables."""
        return self.name or self.shell or " ".join(self.argv)


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of an attempt's manifest: where it is, its size in bytes and its sha256 (hex)."""

    path: str
    url: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended, as its agent or the dispatcher says."""

    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    manifest: tuple[Artifact, ...] = ()
    max_rss: int = 0
    cpu_ms: int = 0

    def describe(self) -> str:
        """The cause with its number and what else is known: `exit-code 3`, `timeout`, `cannot-start, no folder`."""
        number = {Cause.EXIT_CODE: self.exit_code, Cause.SIGNAL: self.signal}.get(self.cause)
        cause = self.cause.value if number is None else f"{self.cause.value} {number}"
        return f"{cause}, {self.detail}" if self.detail else cause


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim: who holds the task, under which fencing token. How long is the agent's and the instance's matter."""

    token: FencingToken
    instance: InstanceId
    claimed_ms: int
    started_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished attempt. `number` counts the attempts that started, from 1; a claim that went back has none.
    `told_ms`: when its end became known; its VM may not have been heard of for long."""

    task: TaskId
    number: int
    token: FencingToken
    instance: InstanceId
    claimed_ms: int
    started_ms: int | None
    ended_ms: int
    told_ms: int
    outcome: Outcome


def event_after(outcome: Outcome, retry: RetryRules, attempts: int, *, cancelling: bool) -> TaskEvent:
    """The event that an ended attempt is for its task; `attempts` counts this one.

    A cancelled task ends cancelled whatever its last attempt says. An attempt that ended as cancelled without the
    dispatcher having cancelled the task (its agent was drained by force) is treated like a lost instance.
    """
    if cancelling:
        return TaskEvent.CANCELLED
    if outcome.cause is Cause.SUCCESS:
        return TaskEvent.SUCCEED
    cause = Outcome(Cause.INSTANCE_LOST) if outcome.cause is Cause.CANCELLED else outcome
    return TaskEvent.RETRY if retry.wants(cause) and attempts < retry.max_attempts else TaskEvent.FAIL


@dataclass(frozen=True, slots=True)
class Task:
    """A task as the statestore shows it."""

    id: TaskId
    spec: TaskSpec
    state: TaskState
    submitted_ms: int
    attempts: int = 0  # attempts that started and ended
    lease: Lease | None = None
    ended_ms: int | None = None
    last: Attempt | None = None  # the last ended attempt

    @property
    def outcome(self) -> Outcome | None:
        """Of the last ended attempt."""
        return None if self.last is None else self.last.outcome
