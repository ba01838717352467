"""What agent and dispatcher say to each other, as plain dataclasses. Owns field names and meaning, not transport.

Unknown fields are ignored and missing ones take their default, so that an agent and a dispatcher of neighbouring
versions understand each other. Times are durations in milliseconds: the two clocks are never compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple  # noqa: UP035  (3.9 on the VM)

#: Rises when a field changes its meaning; an agent of another major version is told to end.
PROTOCOL = 1

REGISTER_PATH = "/v1/agent/register"
SYNC_PATH = "/v1/agent/sync"
LOGS_PATH = "/v1/agent/logs"  # POST ?task=&token=&offset=  body: bytes
OUTPUTS_PATH = "/v1/agent/outputs"  # PUT ?task=&token=&path=  body: bytes
AGENT_PATH = "/v1/agent.pyz"  # GET [?sha256=]: the agent itself, or a former one; no token
BOOT_PATH = "/v1/boot"  # POST: how far a boot is, before there is an agent

#: Of the URLs of inputs and outputs: what an agent can transfer.
TRANSFER_SCHEMES = ("http", "https", "file")

#: The oldest Python that the agent runs on.
AGENT_PYTHON = (3, 9)
#: The form of what an agent hands to the program that takes its place while tasks run (`agent.baggage`). Rises when an
#: older form can't be taken any more: then the place is only taken at an idle moment.
BAGGAGE = 1


#: The `detail` of an agent that drains because its provider has said that it takes the VM back.
PREEMPTED = "preempted: the provider takes the VM back"
#: The same of one whose provider says that it may well do so.
ADVISED = "advised: the provider may take the VM back"
#: And of one whose disk has no room for what another task brings.
FULL = "full: the disk has no room"


@dataclass
class HealthCheck:
    argv: List[str] = field(default_factory=list)
    interval_ms: int = 60_000
    timeout_ms: int = 10_000
    failures: int = 3


@dataclass
class Policy:
    """How the agent shall behave; sent with the registration and again whenever it changed.

    `idle_ms`, `max_tasks`, `empty_claims`: 0 is no such limit. `silence_ms`: end after so long without the dispatcher.
    `replace_ms`: another program waits so long for an idle moment to take the agent's place.
    `ca`: certificates (PEM) that tasks may know the dispatcher by; none where they must trust what the machine does.
    """

    heartbeat_ms: int = 10_000
    lease_ms: int = 60_000
    poll_ms: int = 20_000
    kill_grace_ms: int = 10_000
    idle_ms: int = 60_000
    max_tasks: int = 0
    empty_claims: int = 0
    lifetime_ms: int = 86_400_000
    silence_ms: int = 600_000
    log_limit: int = 16_777_216
    max_ahead: int = 64
    cpus_milli: int = 0
    memory: int = 0
    disk: int = 0
    gpus: int = 0
    max_tasks_at_once: int = 0
    replace_ms: int = 600_000
    health_checks: List[HealthCheck] = field(default_factory=list)
    ca: str = ""


@dataclass
class Program:
    """An agent as a program: the sha256 (hex) of its zipapp, the oldest Python that it runs on, and the form of the
    baggage that it takes over."""

    sha256: str = ""
    python: Tuple[int, int] = AGENT_PYTHON
    baggage: int = BAGGAGE


@dataclass
class RegisterRequest:
    """Sent with the join token as bearer. `vm` is the provider's id of this VM, `proof` what shows it."""

    vm: str = ""
    proof: str = field(default="", repr=False)
    protocol: int = PROTOCOL
    version: str = ""
    incarnation: str = ""
    boot_ms: int = 0  # since the VM's power-on
    facts: Dict[str, str] = field(default_factory=dict)


@dataclass
class BootReport:
    """Sent by the boot script with the join token as bearer: `vm` has begun `phase`, or `failed` in it, with the end of
    its log."""

    vm: str = ""
    phase: str = ""
    failed: bool = False
    exit_code: int = 0
    log: str = ""


@dataclass
class RegisterReply:
    """`token` is the bearer of all later calls."""

    instance: str = ""
    token: str = field(default="", repr=False)
    policy: Policy = field(default_factory=Policy)


@dataclass
class Quantities:
    cpus_milli: int = 1000
    memory: int = 0
    disk: int = 0
    gpus: int = 0


@dataclass
class OrderShape:
    """The part of a task's shape that the agent enforces. Memory 0 is no limit."""

    resources: Quantities = field(default_factory=Quantities)
    exclusive: bool = False
    max_per_instance: int = 0


@dataclass
class FileTransfer:
    path: str = ""
    url: str = ""


@dataclass
class OrderSpec:
    """What to run: the fields of `domain.task.TaskSpec` that an agent needs, under the same names (a test checks it).

    Exactly one of `argv` and `shell` is set. `env` is a list of pairs.
    """

    argv: List[str] = field(default_factory=list)
    shell: str = ""
    name: str = ""
    env: List[Tuple[str, str]] = field(default_factory=list)
    cwd: str = ""
    shape: OrderShape = field(default_factory=OrderShape)
    inputs: List[FileTransfer] = field(default_factory=list)
    outputs: List[FileTransfer] = field(default_factory=list)
    max_runtime_ms: int = 0
    project: str = ""
    array_id: str = ""
    array_index: int = 0
    checkpoint_signal: str = ""


@dataclass
class Order:
    """A claim handed to the agent: run `spec` as attempt `attempt` of `task` under fencing token `token`. `task_token`:
    the bearer token of this attempt, for its log, outputs and inputs; a dispatcher of before sends none."""

    task: int = 0
    token: int = 0
    attempt: int = 1
    spec: OrderSpec = field(default_factory=OrderSpec)
    task_token: str = ""


@dataclass
class HeldClaim:
    """A claim that the agent holds. `ran_ms` -1 until its command was started, then the time since."""

    task: int = 0
    token: int = 0
    ran_ms: int = -1


@dataclass
class OutputFile:
    path: str = ""
    url: str = ""
    size: int = 0
    sha256: str = ""


def weight(path: str, url: str) -> int:
    """How many bytes a file takes in a manifest as it is sent, at most."""
    return 6 * len(path) + len(url) + 160


@dataclass
class Result:
    """How a claim ended. `cause` is a `domain.task.Cause`, or "released" for a claim handed back unstarted.

    `ran_ms` -1 where the command never started. `ago_ms`: how long ago it had ended when this was sent; after a silence
    that is long.
    """

    task: int = 0
    token: int = 0
    cause: str = ""
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    detail: str = ""
    ran_ms: int = -1
    max_rss: int = 0
    cpu_ms: int = 0
    outputs: List[OutputFile] = field(default_factory=list)
    ago_ms: int = 0


@dataclass
class TimerAsk:
    """The wish for another word of the guest timer (`wire.timer`): how long ago the VM was born when this was sent, and
    what its user data say of the words, which the dispatcher does not remember."""

    age_ms: int = 0
    step_ms: int = 0
    links: int = 0


@dataclass
class SyncRequest:
    """One round trip: heartbeat, results, free capacity and the wish for work.

    At most one sync of an incarnation is answered: a newer `seq` makes the dispatcher drop an older one that waits, and
    the agent ignores an answer to any but its newest. `held` is the whole running set, results excluded.
    `want`: how many claims it takes now at most; `ahead`: how many of them may exceed its free capacity (they wait on
    the VM). `wait_ms`: how long the answer may be held back for want of work. `state`: idle, busy, draining, drained,
    failed. `drain_token`: the drain that `draining`/`drained` answers to. `ask_end`: may I end for want of work?
    `ending`: it is ending now, and why (idle, max-tasks, empty-claims, lifetime, silence, drained, shutdown, preempted,
    advised, health, unkillable, timer, ...), the last message of this incarnation. `timer`: only when a word is due.
    `program`: the sha256 of the agent's zipapp, until it was answered. `heard`: the `seq` of the newest answer that it
    has used, 0 before the first; -1: an agent of before does not say. What no later answer would say is repeated until
    one is heard.
    """

    incarnation: str = ""
    seq: int = 0
    state: str = "idle"
    held: List[HeldClaim] = field(default_factory=list)
    results: List[Result] = field(default_factory=list)
    want: int = 0
    ahead: int = 0
    wait_ms: int = 0
    drain_token: int = 0
    ask_end: bool = False
    ending: str = ""
    detail: str = ""
    disk_free: int = -1
    timer: Optional[TimerAsk] = None
    program: str = ""
    heard: int = -1


@dataclass
class SyncReply:
    """`claims` to run; `settled`: tokens of the results that the dispatcher has dealt with (accepted or stale), to be
    forgotten; `kill`: tokens whose commands must end (cancelled, or not this agent's any more), reported as results
    with cause "cancelled"; `lease_ms`: all other held claims are renewed for so long, counted from when the request was
    sent; `drain_token` > the agent's: `drain` says whether to drain (True) or to resume (False); `hold`: take no new
    work; `end`: end the VM now; `policy`: replaces the agent's when present; `timer`: the latest word of the guest
    timer that the VM may have, for one that asked; `token`: the bearer token of all later calls, when present.
    """

    seq: int = 0
    claims: List[Order] = field(default_factory=list)
    settled: List[int] = field(default_factory=list)
    kill: List[int] = field(default_factory=list)
    lease_ms: int = 60_000
    drain_token: int = 0
    drain: bool = False
    hold: bool = False
    end: bool = False
    policy: Optional[Policy] = None
    timer: str = ""
    token: str = field(default="", repr=False)
    program: Optional[Program] = None


@dataclass
class ErrorReply:
    """The body of every answer that is not 2xx: a stable code, what happened, where, what to do next."""

    code: str = ""
    message: str = ""
    place: str = ""
    hint: str = ""
