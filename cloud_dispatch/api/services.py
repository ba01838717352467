"""What the routes work with, handed over once by the composition root. Owns no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.outputs import OutputStore
from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.resources import MIB
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.entropy import Entropy
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.ports.fleet import Fleet
from cloud_dispatch.ports.store import Store
from cloud_dispatch.wire.messages import Policy


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what callers may send: sizes in bytes, registrations an address."""

    request_bytes: int = 64 * MIB  # of a submission
    operator_bytes: int = MIB  # of any other operator's request
    sync_bytes: int = 16 * MIB
    chunk_bytes: int = 4 * MIB  # of one upload of logs
    tasks_per_submission: int = 100_000
    task_bytes_per_submission: int = 256 * MIB
    environment_bytes: int = 131_072
    register_burst: int = 256
    register_per_second: int = 64
    log_wait_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class AgentBundle:
    """The agent's zipapp as served to VMs, with the sha256 (hex) of its bytes; and those of dispatchers before, by
    theirs."""

    body: bytes
    sha256: str
    former: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Script:
    """An operator's script that VMs run before their agent starts."""

    name: str
    content: str


@dataclass(frozen=True)
class Terms:
    """What agents work by, as the configuration of now has it. `policy` is the template of every agent's policy: end
    rules and health checks come from the instance's pool, capacities from its machine. `scripts`: what VMs of a pool
    may fetch as they boot."""

    policy: Policy
    pools: Mapping[PoolName, Pool] = field(default_factory=dict)
    scripts: Mapping[PoolName, Sequence[Script]] = field(default_factory=dict)


@dataclass(frozen=True)
class Services:
    """Everything that the routes need. `terms` may be others the next time: what was told of them before is told anew.
    Leases and polls are those of the start. `shutdown(terminate, grace_ms)` asks the dispatcher to
    end, at once or after its instances. `metrics` renders Prometheus text. `problems` says what is wrong now.
    `executor` runs heavy work off the loop. `timer_lease_ms`: how long guest timers run after the dispatcher was heard
    last. `url`: where VMs reach the dispatcher."""

    store: Store
    fleet: Fleet
    clock: Clock
    entropy: Entropy
    tokens: Tokens
    logs: LogStore
    outputs: OutputStore
    terms: Callable[[], Terms]
    agent: AgentBundle
    executor: Executor
    shutdown: Callable[[bool, int], None]
    metrics: Callable[[], bytes]
    deployment: str = ""
    version: str = ""
    limits: Limits = Limits()
    problems: Callable[[], Sequence[str]] = tuple
    timer_lease_ms: int = 30 * 60_000
    url: str = ""
