"""The composition root: picks the real clock, entropy, executors, store, drivers and server, and wires them together.

Nothing else knows all parts. `serve` is what `cloud-dispatch up` runs; the offline commands on a store are here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog
import uvloop

from cloud_dispatch import agentzip, collector, drivers, meaning, safekeeping, statestore, succession, userdata
from cloud_dispatch.adapters import certificates, descriptors
from cloud_dispatch.adapters.certificates import Certificate
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.adapters.executors import Adaptive, Inline, Thread
from cloud_dispatch.adapters.service_manager import ALIVE, READY, STOPPING, ServiceManager, status
from cloud_dispatch.adapters.tls import Shown, kept, soon
from cloud_dispatch.api import admission
from cloud_dispatch.api.admission import Admission
from cloud_dispatch.api.auth import Tokens, service_life_ms
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.outputs import OutputStore
from cloud_dispatch.api.room import Room
from cloud_dispatch.api.server import serve as serve_http
from cloud_dispatch.api.services import AgentBundle
from cloud_dispatch.assembly import Parts, Ports, assemble, set_limits
from cloud_dispatch.config import Config
from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.install import restoring
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.ports.store import Store
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.reconcile import online, reaping, risk
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.loop import Loop
from cloud_dispatch.reloading import Reloader
from cloud_dispatch.ruling import Driver, Ground, make_drivers, rules_of
from cloud_dispatch.telemetry import log as logging
from cloud_dispatch.telemetry.log import Records
from cloud_dispatch.telemetry.metrics import CertificateEnd, Connections, LastBackup
from cloud_dispatch.telemetry.provider_calls import ProviderCalls
from cloud_dispatch.userdata import Specimen

log = structlog.get_logger(__name__)
DEPLOYMENT_FACT = "deployment"
#: The folders below the state's for what tasks write.
LOGS, OUTPUTS = "logs", "outputs"
#: How long a busy thread (a plan, a query) may keep the loop waiting for the interpreter, instead of 5 ms.
SWITCH_S = 0.0005


def serve(config: Config, again: Callable[[], Config] | None = None) -> int:
    """Run the dispatcher until it is told to stop; the exit code. Instances live on. Conflict when another dispatcher
    owns the statestore, or a restore into the state is not complete. `again` reads the configuration anew when it is
    told to (SIGHUP)."""
    meaning.check_reachable(config)
    restoring.refuse_half(config.state_dir)
    records = logging.configure(config.dispatcher.log_level, config.dispatcher.log_format)
    config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (LOGS, OUTPUTS):  # a driver may let others pass through the folder above
        (config.state_dir / name).mkdir(mode=0o700, exist_ok=True)
    sys.setswitchinterval(SWITCH_S)
    return uvloop.run(_serve(config, again or (lambda: config), records))


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


async def _serve(config: Config, again: Callable[[], Config], records: Records) -> int:
    clock, entropy = SystemClock(), SystemEntropy()
    manager = ServiceManager.take(os.environ, os.getpid())
    hung_up = asyncio.Event()  # the dispatcher may be asked to read its configuration anew before it is up
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
    manager.tell(status("opening the statestore"))
    async with contextlib.AsyncExitStack() as stack:
        url = config.store_url
        committing, reading = _commit_executor(config, url), Thread("reads")
        stack.push_async_callback(committing.close)
        stack.push_async_callback(reading.close)
        store = await statestore.open_store(
            url,
            clock=clock,
            entropy=entropy,
            executor=committing,
            reads=reading,
            renewed=lambda: config.store_url,
        )
        stack.push_async_callback(store.close)
        await succession.succeed(store, config.state_dir)
        certificate = certificate_of(config, clock, pinned=_may_have_vms(store))
        tls = None if certificate is None else Shown(certificate, clock)
        _tell_of(certificate, clock)
        collector.keep()
        calls, files = ProviderCalls(config.profiles), Thread("files")
        planning, aside = Thread("planning"), Thread("configuration")
        body, sha256 = agentzip.build()
        bundle = AgentBundle(body, sha256, agentzip.former(config.state_dir / "agents", body, sha256))
        ground = Ground(
            clock=clock,
            tokens=Tokens.open(config.state_dir, entropy, service_life_ms(config.timing.silence_ms)),
            deployment=await _deployment(config, store, entropy),
            calls=calls,
            files=files,
            aside=aside,
            agent=bundle,
            trusted=userdata.trusted(config, bundle.sha256, certificate),
        )
        for thread in (files, aside):
            stack.push_async_callback(thread.close)
        drivers: dict[ProfileName, Driver] = {}
        make_drivers(drivers, config, ground, {})
        rules = rules_of(config, ground, drivers)
        await set_limits(store, rules)
        stack.push_async_callback(planning.close)
        stop, copies = _Stop(asyncio.Event()), safekeeping.Watch(lambda: reloader.config, clock)
        room, guests = Room(config.state_dir, config.limits.disk_reserve), admission_of(config, clock)
        ports = Ports(
            clock=clock,
            entropy=entropy,
            store=store,
            tokens=ground.tokens,
            planning=planning,
            logs=LogStore(config.state_dir / LOGS, config.limits.log_bytes_per_attempt, room),
            outputs=outputs_of(config, files, room),
            counters=(
                calls,
                LastBackup(copies.last_ms),
                Connections(guests.counts),
                *([CertificateEnd(tls.ends_ms)] if tls else []),
            ),
            troubles=lambda: [
                *copies.troubles(),
                *records.troubles(),
                *filter(None, [room.lack(), store.trouble()]),
                *guests.troubles(),
                *(tls.troubles() if tls else []),
            ],
        )
        parts = assemble(ports, rules, shutdown=stop.ask)
        stack.push_async_callback(_close_drivers, parts.context)
        reloader = Reloader(
            config, again, hung_up, ground, drivers, parts, manager, tls,
            lambda now: certificate_of(now, clock, pinned=False),
        )  # fmt: skip
        mending = asyncio.create_task(store.mend())
        stack.callback(mending.cancel)
        return await _run(config, parts, reloader, manager, stop, tls, guests)


def admission_of(config: Config, clock: Clock) -> Admission:
    """How many connections there may be: as configured, as far as the system lets this process have files open."""
    limits = config.limits
    files = descriptors.allow(admission.descriptors_for(limits.connections))
    most = min(limits.connections, admission.connections_for(files))
    if most < limits.connections:
        log.warning("dispatcher.few-files", allowed=files, connections=most, configured=limits.connections)
    return Admission(most, limits.connections_without_token, clock)


def outputs_of(config: Config, files: Executor, room: Room) -> OutputStore:
    """Where output files are kept, within the limits of `config`."""
    limits = config.limits
    total = limits.output_bytes_per_attempt
    return OutputStore(config.state_dir / OUTPUTS, limits.output_bytes_per_file, files, total=total, room=room)


async def _close_drivers(context: Context) -> None:
    for provider in context.settings.providers.values():
        await provider.close()


def _may_have_vms(store: Store) -> bool:
    """Whether VMs live that pin the certificate, or may: a store that came back, or took the place of another, does not
    know them all until an operator reconciles it."""
    return bool(store.instances()) or store.unsure_since() is not None


def certificate_of(config: Config, clock: Clock, *, pinned: bool) -> Certificate | None:
    """What the dispatcher shows to whoever connects, made where there is none yet; None without TLS. While it is
    `pinned` one of its own is not replaced, and an operator's may have ended. InvalidInput where one of its own can't
    be used, Unavailable where an operator's can't."""
    told = config.dispatcher
    now = datetime.datetime.fromtimestamp(clock.now() / 1000, datetime.UTC)
    if not told.tls:
        return None
    if told.certificate is not None and told.key is not None:
        return certificates.given(told.certificate, told.key, now, pinned=pinned)
    return certificates.own(config.tls_folder, told.called, now, machine=socket.gethostname(), pinned=pinned)


def _tell_of(certificate: Certificate | None, clock: Clock) -> None:
    """What is wrong with it at the start, for whoever reads the log."""
    if certificate is not None and certificate.fault:
        log.warning("certificate.kept", detail=kept(certificate))
    if certificate is not None and (ending := soon(certificate, clock.now())):
        log.warning("certificate.ends", detail=ending)


def check_certificate(config: Config) -> list[str]:
    """InvalidInput where a start would refuse the certificate that the configuration names, and what else is to be said
    of it. Makes none."""
    clock = SystemClock()
    try:
        certificate = certificate_of(config, clock, pinned=False) if config.dispatcher.certificate is not None else None
    except Unavailable as error:  # a start may find it whole; who judges it is told what it is now
        raise InvalidInput(error.message, place=error.place, hint=error.hint) from None
    said = soon(certificate, clock.now()) if certificate else ""
    return [said] if said else []


async def _run(
    config: Config,
    parts: Parts,
    reloader: Reloader,
    manager: ServiceManager,
    stop: _Stop,
    tls: Shown | None,
    guests: Admission,
) -> int:
    running, loop, keeper = asyncio.get_running_loop(), parts.loop, parts.keeper
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop.ask)
    closing, listening = asyncio.Event(), asyncio.Event()
    await loop.agree()

    def up(host: str, port: int) -> None:
        log.info("dispatcher.up", listen=f"{host}:{port}", state_dir=str(config.state_dir))
        listening.set()

    serving = asyncio.create_task(
        serve_http(parts.app, config.dispatcher.listen, closing, guests, ready=up, tls=tls.context if tls else None)
    )
    working = [serving, *(asyncio.create_task(one.run()) for one in (loop, keeper, reloader))]
    asked = asyncio.create_task(stop.asked.wait())
    telling = [asyncio.create_task(_tell_risk(parts.context)), asyncio.create_task(_pulse(manager, listening, loop))]
    try:
        await asyncio.wait({asked, *working}, return_when=asyncio.FIRST_COMPLETED)
        for part in working:
            if part.done():
                await part  # a part that ended by itself is the dispatcher's end: let its error be seen
        if stop.terminate:
            log.info("dispatcher.ending_instances", grace_ms=stop.grace_ms)
            await loop.end_all(stop.grace_ms)
    finally:
        manager.tell(STOPPING, status("stopping"))
        loop.stop()
        keeper.stop()
        lease_ms = await parts.take_leave()
        closing.set()
        working.pop().cancel()
        await asyncio.gather(*working, return_exceptions=True)
        await loop.close()
        asked.cancel()
        for task in telling:
            task.cancel()
    log.info("dispatcher.down", detail=_goes_on(parts.held(), lease_ms))
    return 0


def _goes_on(held: int, lease_ms: int) -> str:
    """What an operator should know who keeps it down for longer."""
    if not held:
        return ""
    tasks = "1 task" if held == 1 else f"{held} tasks"
    return f"what runs ({tasks}) goes on for {format_duration(lease_ms)}: after that it is begun anew"


async def _pulse(manager: ServiceManager, listening: asyncio.Event, loop: Loop) -> None:
    """Tell the service manager that the dispatcher is up, and, where it watches, again and again that the event loop
    turns: one that hangs is ended by it, and started anew."""
    await listening.wait()
    await loop.restored.wait()
    manager.tell(READY, status("serving"))
    while manager.pulse_s is not None:
        manager.tell(ALIVE)
        await asyncio.sleep(manager.pulse_s)


async def _tell_risk(context: Context) -> None:
    """Once the providers have said what they offer: what everything may come to, for whoever reads the log."""
    await context.planned.wait()
    for line in risk.words(context):
        log.info("dispatcher.risk", detail=line)


def _commit_executor(config: Config, url: str) -> Inline | Thread | Adaptive:
    """A database that is reached over a network may fall silent at any moment: the loop must not wait for that."""
    if config.store.commit == "inline":
        return Inline()
    aside = config.store.commit == "thread" or not statestore.is_embedded(url)
    return Thread("commit") if aside else Adaptive("commit")


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


def revision(config: Config) -> str:
    """Of the statestore's tables, "" where there is none."""
    with safekeeping.as_stores_owner(config) as url:
        return statestore.revision_of(url)


def step_back(config: Config, to: str) -> None:
    """Give the statestore of a dispatcher that is not running the tables of an earlier version."""
    with safekeeping.as_stores_owner(config) as url:
        statestore.step_back(url, to, now_ms=SystemClock().now())


def compact(config: Config) -> tuple[int, int]:
    """Give the room that the statestore of a dispatcher that is not running does not need back to the disk; the bytes
    before and after."""
    with safekeeping.as_stores_owner(config) as url:
        return statestore.compact(url, now_ms=SystemClock().now())


def check_store(config: Config) -> list[str]:
    """Problems of the statestore of a dispatcher that is not running."""
    with safekeeping.as_stores_owner(config) as url:
        return list(asyncio.run(_with_store(url, lambda store: store.check())))


async def _with_store(url: str, work: Callable[[Store], Any]) -> Any:
    store = await statestore.open_store(
        url, clock=SystemClock(), entropy=SystemEntropy(), executor=Inline(), create=False, looking=True
    )
    try:
        return await work(store)
    finally:
        await store.close()
