"""What an agent goes about with, and hands to the program that takes its place. Owns its form; does nothing with it.

Written by one version and read by the next: fields may be added with defaults, and whatever else changes raises
`wire.messages.BAGGAGE`. Moments are of the machine's clock, which is the same for both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, List, Optional  # noqa: UP035

from cloud_dispatch.agent.claims import Attempt, Waiting
from cloud_dispatch.agent.ending import Life
from cloud_dispatch.agent.identity import Config, Identity
from cloud_dispatch.wire.messages import Result

if TYPE_CHECKING:
    from cloud_dispatch.agent.machine import Machine


@dataclass
class Carried:
    """What the state machine knows, but for its policy (the identity has it) and its health checks (they run anew)."""

    running: List[Attempt] = field(default_factory=list)
    waiting: List[Waiting] = field(default_factory=list)
    results: List[Result] = field(default_factory=list)
    runtimes: List[int] = field(default_factory=list)
    life: Life = field(default_factory=Life)
    lease_end_ms: int = 0
    seq: int = 0
    draining: bool = False
    drain_token: int = 0
    hold: bool = False
    smallest_milli: int = 1000
    # When that had ended which each of the results tells of; a program of before does not say.
    ended_ms: List[int] = field(default_factory=list)


@dataclass
class Unsent:
    """A log as far as it was not sent, bytes in base64: what is in memory, what of its file on disk, and the tail."""

    offset: int = 0
    memory: str = ""
    spill_read: int = 0
    spill_size: int = 0
    head_left: int = 0
    tail: str = ""
    dropped: int = 0


@dataclass
class Moved:
    """An attempt whose command runs: its process, its folder and the descriptor of its output (-1: closed)."""

    token: int = 0
    pid: int = 0
    folder: str = ""
    pipe: int = -1
    out_of_memory: str = ""
    log: Unsent = field(default_factory=Unsent)


@dataclass
class Baggage:
    """All of it. `pipe`: the descriptor to report to the supervisor. `warden`: that of the socket to its warden, -1
    where the agent runs attempts itself; `lodging`: where their folders are then. `born_ms`: when the VM's life began.
    `words`: how many words of the guest timer the supervisor has heard. `room`: how many bytes the disk had free at
    first. `machine`: None where nothing was before."""

    incarnation: str = ""
    config: Config = field(default_factory=Config)
    identity: Identity = field(default_factory=Identity)
    pipe: int = -1
    warden: int = -1
    lodging: str = ""
    born_ms: int = 0
    words: int = 0
    room: int = 0
    machine: Optional[Carried] = None
    attempts: List[Moved] = field(default_factory=list)


def carried(machine: Machine) -> Carried:
    """What `machine` hands on. Its outstanding request counts as unanswered."""
    claims = machine.claims
    return Carried(
        list(claims.running.values()),
        list(claims.waiting.values()),
        list(claims.results.values()),
        list(machine.courier.pace.runtimes),
        machine.life,
        machine.enforcer.lease_end_ms,
        machine.courier.seq,
        machine.draining,
        machine.drain_token,
        machine.hold,
        claims.smallest_milli,
        [machine.courier.ended_ms[token] for token in claims.results],
    )


def take_over(machine: Machine, known: Carried, now_ms: int) -> None:
    """Let `machine`, which is new, go on where the one before stood."""
    claims = machine.claims
    for attempt in known.running:
        token = attempt.order.token
        claims.running[token] = attempt
        claims.taken.count(attempt.order.spec.shape, 1)
        if attempt.order.spec.max_runtime_ms:
            claims.bounded.add(token)
    claims.waiting = {waiting.order.token: waiting for waiting in known.waiting}
    claims.results = {result.token: result for result in known.results}
    claims.smallest_milli = known.smallest_milli
    for ran_ms in known.runtimes:
        machine.courier.pace.ran(ran_ms)
    machine.life = known.life
    machine.enforcer.renew(known.lease_end_ms, machine.policy)
    machine.courier.seq = known.seq
    ended_ms = known.ended_ms or [now_ms] * len(known.results)
    for result, at_ms in zip(known.results, ended_ms):
        machine.courier.result_came(result.token, at_ms, now_ms)
    machine.draining, machine.drain_token, machine.hold = known.draining, known.drain_token, known.hold
