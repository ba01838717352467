"""The loop: restore once, then observe, judge, plan, execute, reap, until told to stop. Owns the order of a pass."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import structlog

from cloud_dispatch.demand.port import DemandSource
from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.errors import DispatchError
from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceEvent, InstanceState
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.plan import Drain, Launch, Plan, Terminate
from cloud_dispatch.planner.replay import encode_plan, encode_snapshot
from cloud_dispatch.ports.clock import Steps
from cloud_dispatch.ports.executor import give_way
from cloud_dispatch.reconcile import agreed, boot, foreign, leaving, picture
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.launch import Launcher
from cloud_dispatch.reconcile.leftovers import Leftovers
from cloud_dispatch.reconcile.liveness import judge
from cloud_dispatch.reconcile.observe import Observer
from cloud_dispatch.reconcile.reap import Reaper
from cloud_dispatch.reconcile.spend import Spending

log = structlog.get_logger(__name__)
_S, _E = InstanceState, InstanceEvent
_BOOTS = frozenset({_S.INTENDED, _S.LAUNCHING, _S.BOOTING})
#: Wake-ups within so long of each other are one pass; longer the more instances a pass has to look at, so that passes
#: take but a few percent of the loop however fast the news come (a pass of 1,000 instances costs about 5 ms).
GATHER_MS = 20
GATHER_MS_A_THOUSAND = 200
EVENTS_A_PASS = 1_000
#: How long calls under way may take at a stop, seconds.
CLOSE_S = 10
#: How long a stop waits for the statestore, seconds.
LEAVE_S = 5
#: What booted while no dispatcher lived could not register, and asks again within 15 s (cloud-init/parts/boot.py.j2 for
#: its agent, agent/register.py after 5 s); it may have to start the agent then.
ASKS_AGAIN_MS = 20_000


class Loop:
    def __init__(self, context: Context, sources: Sequence[DemandSource]) -> None:
        self._c = context
        self._sources = sources
        self._observer = Observer(context)
        self.spending = self._spending = Spending(context)
        self._launcher = Launcher(context, self._spending)
        self._reaper = Reaper(context)
        self._leftovers = Leftovers(context)
        self._stopping = False
        #: What was found at the start is dealt with: from here on passes follow.
        self.restored = asyncio.Event()
        self._passing = asyncio.Lock()
        self._steps = Steps(context.clock)
        self._unkept_ms = 0  # by how much the clock was set forward of which the store's fact does not know yet
        context.store.subscribe(lambda shape, count: context.wake())

    async def agree(self) -> None:
        """Before any agent is answered: give agents the time that a dispatcher before this start gave them, where that
        is longer, and write down what they will be told from now on. StoreUnavailable where that can't be."""
        now, silence_ms = self._c.clock.now(), self._c.settings.timing.silence_ms
        known = agreed.read(self._c.store.fact(agreed.FACT))
        before = (known or agreed.Agreed(silence_ms)).copied(self._c.store.restored_ms() or 0, silence_ms)
        terms = before.started(silence_ms, now)
        rest_ms = terms.rest_ms(now)
        if rest_ms:
            self._c.contacts.excuse(self._c.clock.monotonic() + rest_ms)
            log.info(
                "agents.longer_lease", why="they may go by the lease of before the start",
                seconds=(rest_ms + silence_ms) // 1000,
            )  # fmt: skip
        if terms != known:
            await self._c.store.set_fact(agreed.FACT, agreed.written(terms))

    async def leave(self, lease_ms: int) -> bool:
        """Before a stop: write down, for the next start, that agents may hold what they run for `lease_ms` from now on.
        False where that can't be: then they may not be told."""
        timing = self._c.settings.timing
        known = agreed.read(self._c.store.fact(agreed.FACT)) or agreed.Agreed(timing.silence_ms)
        left = known.left(lease_ms + timing.silence_ms - timing.lease_ms)
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._c.store.set_fact(agreed.FACT, agreed.written(left))
        except (DispatchError, TimeoutError) as error:
            log.warning("agents.short_lease", error=str(error) or "the statestore does not answer")
            return False
        return True

    async def restore(self) -> None:
        """After a start: withdraw intents whose call was never made, doubt those not answered, and treat every serving
        instance as unknown until heard. Leases and heartbeats count from now."""
        self._c.breakers.turned()
        intended: list[InstanceId] = []
        serving: list[InstanceId] = []
        for row in self._c.store.instances().values():
            self._c.contact(row.id)
            if row.state is _S.INTENDED:
                intended.append(row.id)
            elif row.state is _S.LAUNCHING:
                self._c.in_doubt.add(row.id)
            elif row.state in (_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT):
                serving.append(row.id)
        if any(row.state in (_S.LAUNCHING, _S.BOOTING) for row in self._c.store.instances().values()):
            self._c.boots_excused_ms = self._c.clock.monotonic() + ASKS_AGAIN_MS
        await self._c.apply_all(
            intended, _E.REFUSED, cause="withdrawn", reason="the dispatcher stopped before the launch call",
            ended_ms=self._c.clock.now(),
        )  # fmt: skip
        await self._c.apply_all(serving, _E.ADOPTED)

    async def run(self) -> None:
        """Passes until `stop`; an error of the store ends a pass, not the loop."""
        await self.restore()
        self.restored.set()
        failed = ""  # by this, the pass before: said once while it stays the same
        while not self._stopping:
            self._c.woken.clear()
            self._c.hurried.clear()
            before, failed = failed, ""
            try:
                await self.one_pass()
                if before:
                    log.info("pass.works_again")
            except DispatchError as error:
                failed = str(error)
                if failed != before:
                    log.error("pass.failed", error=failed)
            except Exception as error:
                failed = before  # it is not over by that
                log.exception("pass.crashed", error=repr(error))
            await self._wait()

    def stop(self) -> None:
        self._stopping = True
        self._c.wake()

    async def _wait(self) -> None:
        """Until there is news, or the interval between passes is over. What repeats by itself meanwhile, deletions and
        questions about operations, needs no pass: what comes of it is news."""
        clock = self._c.clock
        until = clock.monotonic() + self._c.settings.timing.pass_interval_ms
        while (left := until - clock.monotonic()) > 0:
            for due in (self._reaper.next_due_ms(), self._launcher.operations.next_due_ms()):
                if due is not None:
                    left = min(left, max(due, GATHER_MS))
            try:
                async with asyncio.timeout(left / 1000):
                    await self._c.woken.wait()
            except TimeoutError:
                self._repeat()
            else:
                instances = len(self._c.store.instances())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout((GATHER_MS + instances * GATHER_MS_A_THOUSAND // 1000) / 1000):
                        await self._c.hurried.wait()
                return

    def _repeat(self) -> None:
        """Start what is due; its failure is that of this round, as a pass's is that of the pass."""
        try:
            self._launcher.operations.ask()
            self._reaper.reap()
        except Exception as error:
            log.exception("repeat.crashed", error=repr(error))

    async def one_pass(self) -> Plan:
        """Observe, judge, plan, execute, reap: once. Each takes milliseconds with a thousand instances: between them
        others have a turn."""
        async with self._passing:
            return await self._pass()

    @contextlib.asynccontextmanager
    async def between_passes(self) -> AsyncIterator[None]:
        """While no pass is made and no launch decided: what all of it depends on may become something else."""
        async with self._passing, self._c.deciding:
            yield

    async def _pass(self) -> Plan:
        await self._observer.observe()
        await foreign.question(self._c)
        await self._judge()
        await boot.tell_of_breakers(self._c)
        await give_way()
        await self._spending.renew()
        await give_way()
        async with self._c.deciding:
            decided = await self._plan()
            await self._launch(decided)
        await self._release(decided)
        self._launcher.operations.ask()
        self._reaper.reap()
        self._leftovers.look()
        await self._flush_events()
        self._c.contacts.keep_only(self._c.store.instances().keys())
        leaving.let_go(self._c)
        return decided

    async def _plan(self) -> Plan:
        await picture.look(self._c)
        snapshot = picture.take(self._c, self._sources)
        decided = await self._c.planning.run(plan, snapshot)
        self._c.last, self._c.less = (snapshot, decided), {}
        self._c.planned.set()
        if decided.actions:
            self._c.last_plan_id = await self._c.store.record_plan(
                snapshot.now_ms, encode_snapshot(snapshot), encode_plan(decided)
            )
        return decided

    async def _launch(self, decided: Plan) -> None:
        """Make the launches of the plan; where less was begun than is in it, what is stored of it says so, and why."""
        launches = {number: a for number, a in enumerate(decided.actions) if isinstance(a, Launch)}
        less = await self._launcher.launch(list(launches.values()))
        numbers = list(launches)
        self._c.less = {numbers[at]: begun for at, begun in less.items()}
        if less and self._c.last_plan_id is not None:
            await self._c.store.amend_plan(self._c.last_plan_id, encode_plan(decided, self._c.less))

    async def _judge(self) -> None:
        if forward_ms := self._steps.forward_ms():
            self._excuse_boots(forward_ms)
            self._unkept_ms += forward_ms
        if self._unkept_ms:
            await self._keep_terms()
        now, monotonic = self._c.clock.now(), self._c.clock.monotonic()
        contacts, timing = self._c.contacts, self._c.settings.timing
        excused_ms = self._c.boots_excused_until(now)
        for row in self._in_question(monotonic):
            verdict = judge(row, contacts.silent_ms(row.id, monotonic), now, timing, excused_ms)
            if verdict is None:
                continue
            if row.state is _S.BOOTING:
                boot.give_up(self._c, row, verdict.cause, verdict.reason)
            else:
                await self._c.apply(
                    row.id, verdict.event, cause=verdict.cause, reason=verdict.reason, expect=frozenset({row.state})
                )

    async def _keep_terms(self) -> None:
        """Where the clock was set forward, the next start waits for the longer terms that are in force as long as this
        one. Not at a stop: what that leaves counts from the next start on."""
        known = agreed.read(self._c.store.fact(agreed.FACT))
        if known is None or self._stopping:
            return
        kept = known.moved(self._unkept_ms, self._c.clock.now())
        if kept != known:
            await self._c.store.set_fact(agreed.FACT, agreed.written(kept))
        self._unkept_ms = 0

    def _excuse_boots(self, forward_ms: int) -> None:
        """Where the clock was set forward since the last pass, or the machine slept, no boot is late before the time is
        over that was left by the clock of before."""
        now, monotonic = self._c.clock.now(), self._c.clock.monotonic()
        booting = [row.boot_deadline_ms for row in self._c.store.instances().values() if row.state in _BOOTS]
        if not booting:
            return
        left_ms = max(max(booting) - (now - forward_ms), ASKS_AGAIN_MS)
        self._c.boots_excused_ms = max(self._c.boots_excused_ms, monotonic + left_ms)
        log.warning("boots.excused", by=format_duration(forward_ms // 1000 * 1000), seconds=left_ms // 1000)

    def _in_question(self, monotonic: int) -> list[Instance]:
        """Those of which `judge` may say something: of nearly all of a fleet, nearly always, it can't."""
        rows, contacts, timing = self._c.store.instances(), self._c.contacts, self._c.settings.timing
        contacts.greet(rows.keys(), monotonic)
        quiet_ms = min(timing.missed_ms, timing.silence_ms)
        asked = contacts.new_or_silent(monotonic - quiet_ms, quiet_ms // 8)
        return [rows[name] for name in filter(asked.__contains__, rows)] if asked else []

    async def _release(self, decided: Plan) -> None:
        for action in decided.actions:
            if isinstance(action, Drain):
                await self._drain(action)
            elif isinstance(action, Terminate):
                await self._terminate(action)

    async def _drain(self, action: Drain) -> None:
        row = self._c.store.instances().get(action.instance)
        if row is None or row.state is _S.DRAINING:
            return
        await self._c.apply(
            row.id, _E.DRAIN, cause=action.cause, reason=action.reason, expect=frozenset({row.state}),
            unless_held=True, drain_token=row.drain_token + 1,
        )  # fmt: skip

    async def _terminate(self, action: Terminate) -> None:
        row = self._c.store.instances().get(action.instance)
        if row is None or row.state is _S.TERMINATING:
            return
        cause, reason = row.ended_by(action.cause, action.reason)
        await self._c.apply(row.id, _E.TERMINATE, cause=cause, reason=reason, unless_held=not self._c.stop.terminates)

    async def _flush_events(self) -> None:
        while self._c.pending_events:
            batch = self._c.pending_events[:EVENTS_A_PASS]
            await self._c.store.record(batch)
            del self._c.pending_events[: len(batch)]

    async def end_all(self, grace_ms: int) -> None:
        """Launch nothing more; drain every instance, kill what is not drained after `grace_ms`, until all are gone.
        Only returns when the store knows of no instance: the providers have said so."""
        self._c.stops["end"] = Stop(StopLevel.LAUNCHES, "the deployment is ended")
        deadline = self._c.clock.monotonic() + grace_ms
        while rows := list(self._c.store.instances().values()):
            late = self._c.clock.monotonic() >= deadline
            for row in rows:
                if late and row.state not in (_S.TERMINATING, _S.GONE, _S.LAUNCHING):
                    await self._c.apply(row.id, _E.TERMINATE, cause="shutdown", reason="the deployment is ended")
                elif row.state in (_S.IDLE, _S.BUSY, _S.UNKNOWN, _S.OUT_OF_CONTACT):
                    await self._c.apply(
                        row.id, _E.DRAIN, cause="shutdown", reason="the deployment is ended",
                        behaviour=Behaviour.DRAIN, drain_token=row.drain_token + 1,
                    )  # fmt: skip
            self._c.wake()
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        """Let the calls under way end: a launch that was sent shall be bound, not doubted."""
        self._stopping = True
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._c.calls.settle()
        except TimeoutError:
            await self._c.calls.cancel()
        try:
            await self._flush_events()
        except DispatchError as error:  # no reason not to stop: they are in the log
            log.warning("events.not_kept", events=len(self._c.pending_events), error=str(error))
