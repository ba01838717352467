"""What goes into the agent's state machine and what comes out. Owns these values only; nothing here decides or acts.

All times are milliseconds of one clock that never goes back and runs on while the VM is suspended. Nobody changes one
of them. They are not frozen: each sync makes several, and a frozen one takes four times as long to make.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional, Tuple, Union  # noqa: UP035

from cloud_dispatch.wire.messages import HealthCheck, Order, Policy, Program, Result, SyncReply, SyncRequest

if TYPE_CHECKING:
    from cloud_dispatch.agent.baggage import Carried


@dataclass
class Boot:
    """The shell runs and is registered. `age_ms`: how long the VM has lived already (an earlier incarnation counts).
    `wall_left_ms`: how long until the timer's first hard end, by the VM's wall clock. `carried`: what the program knew
    whose place this one has taken."""

    age_ms: int = 0
    wall_left_ms: int = 0
    carried: Optional[Carried] = None


@dataclass
class Replied:
    """The dispatcher answered the request `seq`."""

    seq: int
    reply: SyncReply


@dataclass
class Failed:
    """The request `seq` got no usable answer. `fraction` in [0, 1) spreads the retries of many agents."""

    seq: int
    fraction: float = 0.5
    detail: str = ""


@dataclass
class Started:
    """The command of claim `token` was started."""

    token: int


@dataclass
class Vacated:
    """Nothing of the attempt lives any more, but its result still waits for log or outputs: its room is free."""

    token: int


@dataclass
class Ended:
    """The attempt is over and nothing of it lives. The result is the machine's from here on: it knows how long the
    command ran and whether the agent itself ended it, and writes that in."""

    result: Result


@dataclass
class Stuck:
    """Something of the attempt still lives although it was killed and waited for."""

    token: int


@dataclass
class Filled:
    """The VM's disk stays so full that it has no room for an attempt that was to have some; `why` says for what."""

    why: str


@dataclass
class Signalled:
    """The operating system or the supervisor tells the agent to end: `shutdown`, or `preempted` by the provider."""

    reason: str = "shutdown"


@dataclass
class Noticed:
    """The provider has said that it takes the VM back, in `in_ms` from now: what will end by then may run on. None: it
    advises to leave, and names no moment."""

    in_ms: Optional[int]


@dataclass
class HealthChecked:
    """The health check number `index` of the policy ended. `passed` None: it could not be run, which says nothing."""

    index: int
    passed: Optional[bool]
    detail: str = ""


@dataclass
class Brought:
    """The program that was to be brought is here, or why it is not."""

    sha256: str
    failure: str = ""
    fraction: float = 0.5


@dataclass
class Hindered:
    """Not now: something is under way that can't be handed on. `failure`: never, the program can't be run."""

    failure: str = ""


@dataclass
class Timer:
    """The moment that `Machine.wake_at` asked for has come (early or late does no harm)."""

    fraction: float = 0.5


Event = Union[
    Boot,
    Replied,
    Failed,
    Started,
    Vacated,
    Ended,
    Stuck,
    Filled,
    Signalled,
    Noticed,
    HealthChecked,
    Brought,
    Hindered,
    Timer,
]


@dataclass
class Sync:
    """Send this request. A request that still waits is abandoned first: its connection is closed."""

    request: SyncRequest


@dataclass
class Start:
    """Run this order: `Started` when its command runs, then `Ended`; `Ended` alone if it can't start. `gpus`: the
    indexes of those that it is lent."""

    order: Order
    gpus: Tuple[int, ...] = ()


@dataclass
class Kill:
    """Send `signal` to everything of the attempt; SIGKILL also gives up its transfers and its log."""

    token: int
    signal: int


@dataclass
class Prod:
    """Send `signal` to the attempt's main process alone: it may end by it."""

    token: int
    signal: int


@dataclass
class Forget:
    """The dispatcher has dealt with the result: remove what is left of the attempt."""

    token: int


@dataclass
class RunHealthCheck:
    """Run the policy's health check number `index`; answer with `HealthChecked`."""

    index: int
    check: HealthCheck


@dataclass
class PolicyChanged:
    """The dispatcher sent another policy: the shell's own bounds (logs) and the supervisor's timer follow it."""

    policy: Policy


@dataclass
class TokenRenewed:
    """The bearer token of all later calls."""

    token: str = field(repr=False)


@dataclass
class TimerWord:
    """The dispatcher's word, for the supervisor: the VM may live on."""

    word: str


@dataclass
class Bring:
    """Bring this program to the VM; answer with `Brought`."""

    program: Program


@dataclass
class Become:
    """Let this program take the place of this one, now: `Hindered` where that can't be. `carries`: it takes over what
    is known; else it begins as another incarnation. The last command for a while."""

    program: Program
    carries: bool


@dataclass
class End:
    """The agent is done, for this reason; the VM ends. Always the last command."""

    reason: str


Command = Union[
    Sync, Start, Kill, Prod, Forget, RunHealthCheck, PolicyChanged, TokenRenewed, TimerWord, Bring, Become, End,
]  # fmt: skip
