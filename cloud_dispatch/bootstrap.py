"""The composition root: picks the real clock, entropy, executors, store, drivers and server, and wires them together.

Nothing else knows all parts. `serve` is what `cloud-dispatch up` runs; the offline commands on a store are here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
import uvloop
from prometheus_client.registry import Collector

import cloud_dispatch
from cloud_dispatch import agentzip, drivers, meaning, statestore, userdata
from cloud_dispatch.adapters import certificates
from cloud_dispatch.adapters.certificates import Certificate
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.adapters.executors import Adaptive, Inline, Thread
from cloud_dispatch.api.app import Api, make_app
from cloud_dispatch.api.auth import Tokens, service_life_ms
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.outputs import OutputStore
from cloud_dispatch.api.server import serve as serve_http
from cloud_dispatch.api.services import AgentBundle, Limits, Script, Services
from cloud_dispatch.config import Config
from cloud_dispatch.demand.native import NativeQueue
from cloud_dispatch.demand.port import DemandSource
from cloud_dispatch.demand.settings import configured_targets
from cloud_dispatch.demand.targets import PoolTargets, Targets
from cloud_dispatch.domain.errors import Unavailable
from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.stop import STOP_FACT, Stop, StopLevel
from cloud_dispatch.domain.stop import decode as decode_stop
from cloud_dispatch.install import copies
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.entropy import Entropy
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.ports.store import Retention, Store
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.provider.tagfilter import TagFilter
from cloud_dispatch.reconcile import explain, online, reaping, risk
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.fleet import FleetService
from cloud_dispatch.reconcile.keeping import Keeper
from cloud_dispatch.reconcile.loop import Loop
from cloud_dispatch.reconcile.preview import Preview
from cloud_dispatch.reconcile.settings import Settings
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.grant import timer_lease_ms
from cloud_dispatch.spend.payers import ClaimTerms
from cloud_dispatch.telemetry import log as logging
from cloud_dispatch.telemetry.metrics import Metrics, Tripped
from cloud_dispatch.telemetry.provider_calls import ProviderCalls
from cloud_dispatch.userdata import PACE, Specimen, Trusted
from cloud_dispatch.wire.messages import Policy

log = structlog.get_logger(__name__)
DEPLOYMENT_FACT = "deployment"
#: The folders below the state's for what tasks write.
LOGS, OUTPUTS = "logs", "outputs"
#: How long a busy thread (a plan, a query) may keep the loop waiting for the interpreter, instead of 5 ms.
SWITCH_S = 0.0005


def serve(config: Config) -> int:
    """Run the dispatcher until it is told to stop; the exit code. Instances live on. Conflict when another dispatcher
    owns the statestore."""
    meaning.check_reachable(config)
    logging.configure(config.dispatcher.log_level, config.dispatcher.log_format)
    config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (LOGS, OUTPUTS):  # a driver may let others pass through the folder above
        (config.state_dir / name).mkdir(mode=0o700, exist_ok=True)
    sys.setswitchinterval(SWITCH_S)
    return uvloop.run(_serve(config))


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


@dataclass(frozen=True)
class Rules:
    """What a dispatcher shall do, as its parts need it. `policy` is the template of every agent's."""

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


@dataclass(frozen=True)
class Parts:
    """A dispatcher, assembled and not yet running: `loop.run()`, `keeper.run()` and a server for `app` make it run."""

    context: Context
    loop: Loop
    fleet: FleetService
    app: Api
    keeper: Keeper


def assemble(ports: Ports, rules: Rules, *, shutdown: Callable[[bool, int], None]) -> Parts:
    """Wire the parts of a dispatcher together. Starts nothing; `shutdown` is what the operator's route calls."""
    context = Context(
        store=ports.store,
        clock=ports.clock,
        entropy=ports.entropy,
        planning=ports.planning,
        settings=rules.settings,
        stops={"configuration": rules.stop, "operator": decode_stop(ports.store.fact(STOP_FACT))},
    )
    sources: Sequence[DemandSource] = (NativeQueue(ports.store), Targets(rules.targets, ports.store))
    loop = Loop(context, sources)
    fleet = FleetService(context, Preview(context, sources, loop.spending))
    others = (*ports.counters, Tripped(context.breakers.tripped))
    metrics = Metrics(ports.store, ports.clock, lambda: explain.unserved(context), lambda: context.stop, others)
    services = Services(
        store=ports.store,
        fleet=fleet,
        clock=ports.clock,
        entropy=ports.entropy,
        tokens=ports.tokens,
        logs=ports.logs,
        outputs=ports.outputs,
        policy=rules.policy,
        agent=rules.agent,
        executor=ports.planning,
        shutdown=shutdown,
        metrics=metrics.render,
        deployment=rules.settings.deployment,
        version=cloud_dispatch.__version__,
        limits=rules.limits,
        pools=rules.settings.pools,
        problems=lambda: [view.trouble for view in context.profiles.values() if view.trouble],
        timer_lease_ms=timer_lease_ms(rules.settings.pace, rules.policy.silence_ms),
        url=rules.url,
        scripts=rules.scripts,
    )
    keeper = Keeper(ports.store, ports.clock, rules.retention, ports.logs, rules.retain_logs_ms, ports.outputs)
    return Parts(context, loop, fleet, make_app(services), keeper)


@dataclass
class _Stop:
    """Who asked the dispatcher to stop, and whether its instances shall end first."""

    asked: asyncio.Event
    terminate: bool = False
    grace_ms: int = 0

    def ask(self, terminate: bool = False, grace_ms: int = 0) -> None:
        self.terminate = self.terminate or terminate
        self.grace_ms = grace_ms
        self.asked.set()


async def _serve(config: Config) -> int:
    clock, entropy = SystemClock(), SystemEntropy()
    certificate = certificate_of(config, clock)
    async with contextlib.AsyncExitStack() as stack:
        committing, reading = _commit_executor(config), Thread("reads")
        stack.push_async_callback(committing.close)
        stack.push_async_callback(reading.close)
        store = await statestore.open_store(
            config.store_url, clock=clock, entropy=entropy, executor=committing, reads=reading
        )
        stack.push_async_callback(store.close)
        _spare_the_collector()
        deployment = await _deployment(config, store, entropy)
        tokens = Tokens.open(config.state_dir, entropy, service_life_ms(config.timing.silence_ms))
        calls = ProviderCalls(config.profiles)
        files = Thread("files")
        stack.push_async_callback(files.close)
        priced = drivers.made(config, clock, calls, files)
        prices_ms = {name: one.told.told_ms for name, one in priced.items()}
        providers = {name: TagFilter(one, deployment) for name, one in priced.items()}
        await store.set_limits(config.budgets(), meaning.drivers(config), terms_of(Pace(), config.pools()))
        for provider in providers.values():
            stack.push_async_callback(provider.close)
        body, sha256 = agentzip.build()
        bundle = AgentBundle(body, sha256, agentzip.former(config.state_dir / "agents", body, sha256))
        planning = Thread("planning")
        stack.push_async_callback(planning.close)
        stop = _Stop(asyncio.Event())
        ports = Ports(
            clock=clock,
            entropy=entropy,
            store=store,
            tokens=tokens,
            planning=planning,
            logs=LogStore(config.state_dir / LOGS, config.limits.log_bytes_per_attempt),
            outputs=OutputStore(config.state_dir / OUTPUTS, config.limits.output_bytes_per_file, files),
            counters=(calls,),
        )
        trust = userdata.trusted(config, bundle.sha256, certificate)
        rules = Rules(
            settings=_settings(config, deployment, providers, tokens, clock, trust, prices_ms),
            policy=replace(config.policy(next(iter(config.pool_sections))), ca=trust.ca),
            agent=bundle,
            limits=meaning.limits(config),
            targets=configured_targets(config),
            retention=config.retention(),
            retain_logs_ms=config.store.retain_logs_ms,
            stop=Stop(StopLevel.LAUNCHES, "dispatcher.pause is set") if config.dispatcher.pause else Stop(),
            url=config.advertise_url,
            scripts=userdata.scripts(config),
        )
        parts = assemble(ports, rules, shutdown=stop.ask)
        return await _run(config, parts.context, parts.app, parts.loop, parts.keeper, stop, certificate)


def certificate_of(config: Config, clock: Clock) -> Certificate | None:
    """What the dispatcher shows to whoever connects, made where there is none yet; None without TLS. InvalidInput where
    it can't be used."""
    told = config.dispatcher
    now = datetime.datetime.fromtimestamp(clock.now() / 1000, datetime.UTC)
    if not told.tls:
        return None
    if told.certificate is not None and told.key is not None:
        return certificates.given(told.certificate, told.key, now)
    return certificates.own(config.tls_folder, (*told.called, socket.gethostname()), now)


async def _run(
    config: Config,
    context: Context,
    app: Api,
    loop: Loop,
    keeper: Keeper,
    stop: _Stop,
    certificate: Certificate | None,
) -> int:
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop.ask)
    closing = asyncio.Event()
    shown = None if certificate is None else (certificate.certificate, certificate.key)
    serving = asyncio.create_task(
        serve_http(app, config.dispatcher.listen, closing, ready=_say_up(config), certificate=shown)
    )
    parts = [serving, asyncio.create_task(loop.run()), asyncio.create_task(keeper.run())]
    asked = asyncio.create_task(stop.asked.wait())
    telling = asyncio.create_task(_tell_risk(context))
    try:
        await asyncio.wait({asked, *parts}, return_when=asyncio.FIRST_COMPLETED)
        for part in parts:
            if part.done():
                await part  # a part that ended by itself is the dispatcher's end: let its error be seen
        if stop.terminate:
            log.info("dispatcher.ending_instances", grace_ms=stop.grace_ms)
            await loop.end_all(stop.grace_ms)
    finally:
        loop.stop()
        keeper.stop()
        closing.set()
        await asyncio.gather(*parts, return_exceptions=True)
        await loop.close()
        asked.cancel()
        telling.cancel()
    log.info("dispatcher.down")
    return 0


async def _tell_risk(context: Context) -> None:
    """Once the providers have said what they offer: what everything may come to, for whoever reads the log."""
    await context.planned.wait()
    for line in risk.words(context):
        log.info("dispatcher.risk", detail=line)


def _say_up(config: Config) -> Callable[[str, int], None]:
    return lambda host, port: log.info("dispatcher.up", listen=f"{host}:{port}", state_dir=str(config.state_dir))


def _commit_executor(config: Config) -> Inline | Thread | Adaptive:
    if config.store.commit == "inline":
        return Inline()
    return Thread("commit") if config.store.commit == "thread" else Adaptive("commit")


def _spare_the_collector() -> None:
    """The queue is millions of small objects that live on: keep the garbage collector from walking them again and again
    (measured once: 44 instead of 54 µs of CPU a claim)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def terms_of(pace: Pace, pools: Iterable[Pool]) -> ClaimTerms:
    """What claims of payers with a limit are judged by."""
    return ClaimTerms(pace.lease_ms, {pool.name: pool.end.lifetime_ms for pool in pools})


async def _deployment(config: Config, store: Store, entropy: SystemEntropy) -> str:
    """The configured deployment id, else the random one that the store keeps."""
    if config.dispatcher.deployment:
        return config.dispatcher.deployment
    known = store.fact(DEPLOYMENT_FACT)
    if known is not None:
        return known
    made = entropy.name("deployment")
    await store.set_fact(DEPLOYMENT_FACT, made)
    return made


def _settings(
    config: Config,
    deployment: str,
    providers: Mapping[ProfileName, Provider],
    tokens: Tokens,
    clock: SystemClock,
    trusted: Trusted,
    prices_ms: Mapping[ProfileName, int],
) -> Settings:
    return Settings(
        deployment=deployment,
        pools={pool.name: pool for pool in config.pools()},
        caps=config.caps(),
        profile_caps=config.profile_caps(),
        providers=providers,
        user_data=userdata.maker(
            config, {name: provider.traits for name, provider in providers.items()}, tokens, trusted, clock
        ),
        profile_types=config.profile_types(),
        timing=meaning.timing_of(config),
        drivers=meaning.drivers(config),
        driver_caps=meaning.driver_caps(config),
        pace=PACE,
        guest_enforced=meaning.guest_enforced(config, providers),
        prices_ms=prices_ms,
    )


def specimens(config: Config, pools: Iterable[str]) -> list[Specimen]:
    """What VMs of `pools` would get to boot with, from each of their profiles."""
    return asyncio.run(_specimens(config, frozenset(pools)))


async def _specimens(config: Config, pools: frozenset[str]) -> list[Specimen]:
    clock, trusted = SystemClock(), userdata.trusted(config, AgentBundle(*agentzip.build()).sha256, None)
    async with drivers.asked(config, "none", clock) as providers:
        traits = {name: provider.traits for name, provider in providers.items()}
    return [
        userdata.specimen(config, pool, profile, traits[profile], trusted, clock)
        for pool in config.pools()
        if pool.name in pools
        for profile in pool.profiles
    ]


def backup(config: Config, target: Path) -> None:
    """Copy the statestore to `target`, whether or not a dispatcher runs on it."""
    statestore.backup(config.store_url, target)


def backup_into(config: Config, folder: Path, keep: int) -> Path:
    """A copy of all that a new control VM needs, in `folder`, where the newest `keep` stay."""
    return copies.make(folder, config.state_dir, SystemClock().now(), keep, lambda path: backup(config, path))


def restore(config: Config, source: Path) -> None:
    """Make the statestore from the backup `source`, a file or a folder of `backup_into`; Conflict where there is one
    already, in use or not."""
    if not source.is_dir():
        statestore.restore(source, config.store_url, now_ms=SystemClock().now())
        return
    copies.check(source, config.state_dir)
    statestore.restore(source / copies.STORE, config.store_url, now_ms=SystemClock().now())
    copies.bring(source, config.state_dir)


def reap(config: Config, deployment: str, *, end: bool, overdue: bool = False) -> list[dict[str, str | int]]:
    """Every VM tagged with `deployment` at the configured profiles, or with `overdue` those past their hard end, ended
    if `end`; as JSON-ready values."""
    logging.to_stderr()
    return asyncio.run(_reap(config, deployment, end=end, overdue=overdue))


async def _reap(config: Config, deployment: str, *, end: bool, overdue: bool) -> list[dict[str, str | int]]:
    clock = SystemClock()
    async with drivers.asked(config, deployment, clock) as providers:
        try:
            found = await reaping.find(providers, deployment)
            if overdue:
                found = reaping.overdue(found, deployment, clock.now())
            if end:
                found = await reaping.end(providers, found)
        except ProviderError as error:
            hint = "nothing more was ended; try again"
            raise Unavailable(f"a provider could not be asked: {error}", hint=hint) from None
    return [item.view() for item in found]


def preflight(config: Config) -> list[online.Found]:
    """What the providers of all profiles find that would keep launches from working. Makes no VM."""
    logging.to_stderr()
    return asyncio.run(_preflight(config))


async def _preflight(config: Config) -> list[online.Found]:
    deployment = config.dispatcher.deployment or online.UNNAMED
    async with drivers.asked(config, deployment, SystemClock()) as providers:
        return await online.preflight(providers, deployment)


def check_store(config: Config) -> list[str]:
    """Problems of the statestore of a dispatcher that is not running."""
    return list(asyncio.run(_with_store(config, lambda store: store.check())))


async def _with_store(config: Config, work: Callable[[Store], Any]) -> Any:
    store = await statestore.open_store(
        config.store_url, clock=SystemClock(), entropy=SystemEntropy(), executor=Inline(), create=False
    )
    try:
        return await work(store)
    finally:
        await store.close()
