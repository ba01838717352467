"""A dispatcher put together: its parts, wired by what they stand on and by what they shall do.

Owns who is handed what. Picks nothing itself: clock, chance, store and drivers are `bootstrap`'s to choose, or the
simulator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from prometheus_client.registry import Collector

import cloud_dispatch
from cloud_dispatch.api.app import Api, make_app
from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.outputs import OutputStore
from cloud_dispatch.api.services import AgentBundle, Limits, Script, Services, Terms
from cloud_dispatch.demand.native import NativeQueue
from cloud_dispatch.demand.port import DemandSource
from cloud_dispatch.demand.targets import PoolTargets, Targets
from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.stop import STOP_FACT, Stop
from cloud_dispatch.domain.stop import decode as decode_stop
from cloud_dispatch.domain.task import HELD
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.entropy import Entropy
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.ports.store import Retention, Store
from cloud_dispatch.reconcile import apart, explain, foreign, leaving, places, unreachable
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.fleet import FleetService
from cloud_dispatch.reconcile.keeping import Keeper
from cloud_dispatch.reconcile.loop import Loop
from cloud_dispatch.reconcile.preview import Preview
from cloud_dispatch.reconcile.settings import Settings
from cloud_dispatch.reconcile.spend import UNSURE, is_unsure
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.grant import timer_lease_ms
from cloud_dispatch.spend.payers import ClaimTerms
from cloud_dispatch.telemetry.metrics import Configured, Metrics, Reapers, Tripped
from cloud_dispatch.wire.messages import Policy


@dataclass(frozen=True)
class Ports:
    """What a dispatcher stands on: the system's own in `serve`, others where time and chance are not the system's."""

    clock: Clock
    entropy: Entropy
    store: Store
    tokens: Tokens
    planning: Executor
    logs: LogStore
    outputs: OutputStore
    counters: Sequence[Collector] = ()  # what is measured outside the core, for its metrics
    troubles: Callable[[], Sequence[str]] = tuple  # what is wrong outside the core


@dataclass(frozen=True)
class Rules:
    """What a dispatcher shall do, as its parts need it. `policy` is the template of every agent's. `agent`, `limits`
    and `url` are those of the start for good."""

    settings: Settings
    policy: Policy
    agent: AgentBundle
    limits: Limits = Limits()
    targets: Sequence[PoolTargets] = ()
    retention: Retention = Retention()
    retain_logs_ms: int | None = None
    stop: Stop = Stop()
    url: str = ""  # where VMs reach the dispatcher
    scripts: Mapping[PoolName, Sequence[Script]] = field(default_factory=dict)
    budgets: Sequence[Budget] = ()

    @cached_property
    def terms(self) -> Terms:
        """What agents are told of it; another where the rules are others."""
        return Terms(self.policy, self.settings.pools, self.scripts)


@dataclass
class InForce:
    """The rules of now, and why those that were to follow them do not; "" where they are those that were asked for."""

    rules: Rules
    refused: str = ""


@dataclass(frozen=True)
class Parts:
    """A dispatcher, assembled and not yet running: `loop.run()`, `keeper.run()` and a server for `app` make it run."""

    context: Context
    loop: Loop
    fleet: FleetService
    app: Api
    keeper: Keeper
    targets: Targets
    in_force: InForce

    async def take_leave(self) -> int:
        """Before a stop: from now on agents are answered that they may go on for twice as long as the lease, though not
        for longer than they stay without a dispatcher. For how long they may, milliseconds."""
        sync, lease_ms = self.app.sync, self.context.settings.timing.lease_ms
        longer_ms = min(2 * lease_ms, self.in_force.rules.policy.silence_ms)
        if longer_ms > lease_ms and self.held() and await self.loop.leave(longer_ms):
            sync.lease_ms = longer_ms
        return sync.lease_ms

    def held(self) -> int:
        """How many tasks instances hold."""
        return sum(count for state, count in self.context.store.task_counts().items() if state in HELD)

    async def follow(self, rules: Rules) -> None:
        """From now on these are the rules: between two passes and all at once, the limits first, so that nothing is
        launched by others. Conflict, or the store's error, where they can't be; then nothing has changed."""
        context = self.context
        async with self.loop.between_passes():
            settings = leaving.kept(context.settings, rules.settings, context.store.instances().values())
            settings = places.counted(context.store, settings)
            rules = replace(rules, settings=settings)
            await set_limits(context.store, rules)
            let_go = context.follow(settings)
            context.stops["configuration"] = rules.stop
            self.targets.follow(rules.targets)
            self.keeper.follow(rules.retention, rules.retain_logs_ms)
            self.in_force.rules = rules
        for name, provider in let_go.items():
            context.calls.start(f"close:{name}", provider.close(), f"close:{name}")
        context.wake(hurry=True)


def assemble(ports: Ports, rules: Rules, *, shutdown: Callable[[bool, int], None]) -> Parts:
    """Wire the parts of a dispatcher together. Starts nothing; `shutdown` is what the operator's route calls."""
    context = Context(
        store=ports.store,
        clock=ports.clock,
        entropy=ports.entropy,
        planning=ports.planning,
        settings=places.counted(ports.store, rules.settings),
        foreign=foreign.remembered(ports.store),
        stops={"configuration": rules.stop, "operator": decode_stop(ports.store.fact(STOP_FACT))},
    )
    targets, in_force = Targets(rules.targets, ports.store), InForce(rules)
    sources: Sequence[DemandSource] = (NativeQueue(ports.store), targets)
    loop = Loop(context, sources)
    fleet = FleetService(context, Preview(context, sources, loop.spending))
    own = (
        Tripped(context.breakers.tripped),
        Configured(lambda: in_force.refused),
        Reapers(lambda: reapers_in_doubt(context)),
    )
    others = (*ports.counters, *own)
    metrics = Metrics(
        ports.store, ports.clock, lambda: explain.unserved(context), lambda: explain.missing(context),
        lambda: context.stop, others,
    )  # fmt: skip
    services = Services(
        store=ports.store,
        fleet=fleet,
        clock=ports.clock,
        entropy=ports.entropy,
        tokens=ports.tokens,
        logs=ports.logs,
        outputs=ports.outputs,
        terms=lambda: in_force.rules.terms,
        agent=rules.agent,
        executor=ports.planning,
        shutdown=shutdown,
        metrics=metrics.render,
        deployment=rules.settings.deployment,
        version=cloud_dispatch.__version__,
        limits=rules.limits,
        problems=lambda: [*_problems(context, in_force), *ports.troubles()],
        timer_lease_ms=timer_lease_ms(rules.settings.pace, rules.policy.silence_ms),
        url=rules.url,
    )
    keeper = Keeper(ports.store, ports.clock, rules.retention, ports.logs, rules.retain_logs_ms, ports.outputs)
    return Parts(context, loop, fleet, make_app(services), keeper, targets, in_force)


async def set_limits(store: Store, rules: Rules) -> None:
    """Have the store keep the limits of `rules`, and where their profiles are. Conflict where one would leave its VMs
    behind; then nothing has changed."""
    settings = rules.settings
    terms = ClaimTerms(
        lease_ms=settings.pace.lease_ms,
        lifetimes={pool.name: pool.end.lifetime_ms for pool in settings.pools.values()},
        leave_ms=settings.pace.drain_ms,
        ready_ms={pool.name: pool.ready_ms for pool in settings.pools.values() if pool.health_checks},
        movable=frozenset(profile for profile in settings.providers if settings.moves_ends(profile)),
    )
    await store.set_limits(rules.budgets, places.drivers(store, settings), terms, facts=places.kept(store, settings))


def _problems(context: Context, in_force: InForce) -> list[str]:
    """What is wrong now, for whoever asks for the dispatcher's health."""
    refused = [f"the configuration was refused, that of before holds: {in_force.refused}"] if in_force.refused else []
    views = context.profiles.values()
    silent = filter(None, (said for view in views for said in (view.trouble, view.hand_trouble)))
    unsure = [f"limits hold launches back: {UNSURE}"] if is_unsure(context.store) else []
    broken = [f"nothing more is launched of what failed too often: {one.reason}" for one in context.breakers.blocked()]
    unended = context.unended.words(context.store.instances(), context.clock.monotonic())
    told = [*foreign.words(context), *unreachable.words(context), *apart.words(context)]
    return [*refused, *silent, *told, *unended, *unsure, *broken]


def reapers_in_doubt(context: Context) -> dict[str, bool]:
    """By profile, of those whose reaper's signs of life are looked for."""
    watched = [name for name, one in context.settings.providers.items() if one.traits.hand_period_ms]
    return {str(name): bool(context.view(name).hand_trouble) for name in watched}
