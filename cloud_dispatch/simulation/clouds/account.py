"""The engine of a simulated account: VMs from creation to their end, whoever's dialect speaks. Owns the truth and the
hooks; what may be seen of it when is `records`' and the driver's, what a place costs `stock`'s and `meter`'s.

Everything here happens at once, at the moment when a request arrives or a timer fires; nothing waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from cloud_dispatch.domain.ids import BatchId, ProfileName, VmId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.tags import POOL
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Provider, Vm, VmState
from cloud_dispatch.reapers.rounds import look
from cloud_dispatch.simulation import ports
from cloud_dispatch.simulation.clouds import meter
from cloud_dispatch.simulation.clouds.extras import Extras
from cloud_dispatch.simulation.clouds.fate import draw, overruled
from cloud_dispatch.simulation.clouds.faults import Fault, FaultBook, FaultKind
from cloud_dispatch.simulation.clouds.gate import Gate
from cloud_dispatch.simulation.clouds.hands import Look, Reaper, Strikes
from cloud_dispatch.simulation.clouds.identity import Document
from cloud_dispatch.simulation.clouds.neighbours import Neighbours
from cloud_dispatch.simulation.clouds.records import Record, Register, deployment_of
from cloud_dispatch.simulation.clouds.settings import AccountSettings
from cloud_dispatch.simulation.clouds.stock import Pool, Stock
from cloud_dispatch.simulation.ports import EndCause, Guests, SimClock, Streams, TrueVm

_UP = (VmState.PENDING, VmState.RUNNING)


@dataclass(frozen=True, slots=True)
class Ways:
    """Where the clouds' VMs differ in life and death."""

    #: Whether a VM whose guest powers off is ended; else it is stopped, and waits to be deleted.
    power_off_ends: bool
    #: Whether a stopped VM bills and counts as a running one.
    stopped_bills: bool
    #: Whether the time between the order to end and the power off is billed.
    stopping_bills: bool
    #: Whether a VM about to be preempted is shown as stopping from its notice on.
    notice_stops: bool
    #: Whether a create that was accepted and failed leaves a VM that is shown as stopped, and its disk and NIC.
    failed_stays: bool
    #: Whether a hard end is a property of the VM, fixed when it is made and lost when it stops. The reaper, which reads
    #: it from a tag, is there in any case.
    native_end: bool
    #: Whether proofs of identity are made out to who asks for them.
    made_out: bool


class Dialect(Protocol):
    """One cloud's way: what its VMs do, and the driver that speaks to it."""

    @property
    def ways(self) -> Ways: ...

    def connect(self, account: Account, profile: ProfileName) -> Provider:
        """A driver over the account."""


@dataclass(frozen=True, slots=True)
class Order:
    """A VM to be made. `name` is its id; `lot` keys its chance: the batch and the slot or number within it."""

    name: VmId
    lot: tuple[str | int, ...]
    profile: ProfileName
    batch: BatchId
    slot: int
    pool: Pool
    tags: Mapping[str, str]
    user_data: str
    ends_ms: int
    bid: Rate | None


class Nobody:
    """Guests of an account that nobody is attached to."""

    def on_boot(self, vm: TrueVm, user_data: str) -> None: ...

    def on_end(self, vm: TrueVm, cause: EndCause) -> None: ...

    def on_notice(self, vm: TrueVm, ends_ms: int) -> None: ...

    def on_freeze(self, vm: TrueVm, until_ms: int, unaware: bool) -> None: ...

    def on_change(self, vm: TrueVm) -> None: ...


class Account:
    """`ports.CloudAccount`. What the dialects call is public too, and never seen by a dispatcher."""

    def __init__(
        self, clock: SimClock, streams: Streams, settings: AccountSettings, dialect: Dialect,
        faults: Iterable[Fault] = (), hand: Look = look,
    ) -> None:  # fmt: skip
        """`hand` is what each independent reaper does, where the cloud has no hard end of its own."""
        self.clock, self.streams, self.settings, self._dialect = clock, streams, settings, dialect
        self.born_ms = clock.now()
        self.book = FaultBook(faults, self.born_ms)
        self.stock = Stock(settings, self.book, streams, self.born_ms)
        self.gate = Gate(clock, streams, settings, self.book)
        self._guests: Guests = Nobody()
        self._strikes = Strikes(self)
        self.neighbours = Neighbours(self)
        self._reaper = Reaper(self, hand)
        self.register = Register()
        self.extras = Extras(settings.extras)
        self._started = False

    # -- what the core of the simulator calls

    @property
    def name(self) -> str:
        return self.settings.name

    def attach(self, guests: Guests) -> None:
        self._guests = guests
        self._start()

    def driver(self, profile: ProfileName) -> Provider:
        self._start()
        return self._dialect.connect(self, profile)

    def inventory(self) -> Sequence[TrueVm]:
        return self.register.ours

    def leftovers(self) -> Sequence[ports.Leftover]:
        return [
            ports.Leftover(e.id, str(e.kind), e.batch, e.since_ms) for e in self.extras.loose.values() if not e.theirs
        ]

    def bill(self) -> Sequence[ports.BillLine]:
        now = self.clock.now()
        lines = [meter.of_vm(record, self.settings, self.stock, now) for record in self.register.ours]
        return lines + [meter.of_extra(one, now) for one in self.extras.all if one.rate and not one.theirs]

    def metered(self, first: int = 0) -> Sequence[ports.Metered]:
        now = self.clock.now()
        return [meter.metered(record, self.settings, self.stock, now) for record in self.register.ours[first:]]

    def trespasses(self) -> Sequence[str]:
        return self.neighbours.trespasses

    def guest_shuts_down(self, vm: VmId) -> None:
        record = self.register.find(vm)
        if record is not None and record.guest_lives:
            self.stop(record, EndCause.SHUT_DOWN, "the guest shut itself down")

    def proof_of(self, vm: VmId, audience: str) -> str:
        record = self.register.find(vm)
        if record is None or not self.settings.proves:
            return ""
        if self._dialect.ways.made_out:
            return Document(vm, audience, self.clock.now()).signed(self.name)
        return Document(vm, "", record.created_ms).signed(self.name)

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self.neighbours.start()
            self._strikes.start()

    # -- making

    def create(self, order: Order, refused: ProviderError | None = None) -> Record:
        """Make the VM, with a place in the stock; or, with `refused`, one that is accepted and then does not come."""
        pool, now = order.pool, self.clock.now()
        stream = self.streams.stream("vm", self.name, *order.lot)
        fate = overruled(
            draw(self.settings, self.stock.boot_of(pool.type.name), pool.market, stream),
            self.book,
            now,
            pool.type.name,
            pool.zone,
            pool.market,
        )
        record = Record(
            id=order.name, account=self.name, profile=order.profile, batch=order.batch, type=pool.type.name,
            vcpus=pool.type.vcpus, zone=pool.zone, market=pool.market, created_ms=now,
            deployment=deployment_of(order.tags), pool=order.tags.get(POOL, ""), slot=order.slot, since_ms=now,
            drift_ppm=fate.drift_ppm, wall_off_ms=fate.wall_off_ms, number=len(self.register.all),
            tags=dict(order.tags), user_data=order.user_data,
            ends_ms=order.ends_ms, bid=order.bid, fate=fate, refused=refused,
        )  # fmt: skip
        self.stock.take(pool)
        self.register.add(record)
        self.extras.equip(record, now)
        self.enter(record, VmState.PENDING)
        if refused is not None:
            self.after(record, fate.refuse_ms, self._refuse)
        elif not fate.starts:
            record.why = "the host failed while the VM was started"
            self.after(record, fate.start_ms, self._gone, EndCause.DIED)
        else:
            self.after(record, fate.start_ms, self._run)
        self._reaper.watch()
        return record

    def settle(self, name: VmId, batch: BatchId, pool: Pool, tags: Mapping[str, str]) -> Record:
        """A VM of a neighbour is there."""
        now, lot = self.clock.now(), ("theirs", batch, name)
        fate = draw(
            self.settings, self.stock.boot_of(pool.type.name), pool.market, self.streams.stream("vm", self.name, *lot)
        )
        record = Record(
            id=name, account=self.name, profile=ProfileName(""), batch=batch, type=pool.type.name,
            vcpus=pool.type.vcpus, zone=pool.zone, market=pool.market, created_ms=now, since_ms=now,
            deployment=deployment_of(tags), number=len(self.register.all), theirs=True, tags=dict(tags), user_data="",
            ends_ms=0, bid=None, fate=fate,
        )  # fmt: skip
        self.stock.take(pool)
        self.register.add(record)
        self.extras.equip(record, now)
        self.enter(record, VmState.RUNNING)
        return record

    # -- living

    def _run(self, record: Record) -> None:
        now, fate = self.clock.now(), record.fate
        record.billed_from_ms = now
        self.enter(record, VmState.RUNNING)
        if record.ends_ms and self._dialect.ways.native_end:
            # What was asked for is how long it runs, and counts from here.
            run_ms = record.ends_ms - record.created_ms
            self.after(record, run_ms, self.end, EndCause.HARD_END, "its maximum run time is over")
        if fate.boots:
            self.after(record, fate.boot_ms, self._boot)
        if fate.dies_ms is not None:
            self.after(record, fate.dies_ms, self.stop, EndCause.DIED, "the host failed")
        if record.market is Market.SPOT:
            self._foresee_preemption(record, now)

    def _boot(self, record: Record) -> None:
        if not record.fate.user_data_works:
            record.console = "cloud-init: user data failed: exit status 1\n"
            return
        record.console = "cloud-init: user data started\n"
        record.guest_lives = True
        self._guests.on_boot(record, record.user_data)

    def _foresee_preemption(self, record: Record, now: int) -> None:
        """Reclaimed for capacity when chance has it, for the price when that rises above the bid; looked at once a day
        of the market, because nobody knows how long the VM lives."""
        if record.fate.reclaimed_ms is not None:
            self.after(record, record.fate.reclaimed_ms, self.preempt)
        self._watch_price(record)

    def _watch_price(self, record: Record) -> None:
        if record.bid is None:
            return
        now, day = self.clock.now(), 24 * 3_600_000
        crossing = self.stock.walk(record.type, record.zone).first_above(record.bid, now, now + day)
        if crossing is not None:
            self.after(record, crossing - now, self.preempt)
        elif record.bid < self.stock.ceiling(record.type, record.zone):
            self.after(record, day, self._watch_price)

    def retag(self, record: Record, tags: Mapping[str, str]) -> None:
        """Set these tags, keep the others, on a VM that is not gone."""
        self._heed(record, "tags")
        record.tagged += 1
        record.tags = {**record.tags, **tags}
        record.deployment = deployment_of(record.tags)
        self.register.shelve(record)
        last = record.seen[-1][1]
        if last is not None:
            self._show(record, replace(last, tags=record.tags))

    # -- ending

    def asked_to_end(self, record: Record) -> None:
        """A driver has asked."""
        self._heed(record, "ends")
        self.end(record, EndCause.TERMINATED, "the dispatcher asked")

    def delete_extra(self, name: str) -> bool:
        """A driver has asked; False where a VM has it."""
        extra = self.extras.loose.get(name)
        if extra is not None and extra.theirs:
            self.neighbours.trespasses.append(f"somebody deletes {name}, which is not theirs")
        return self.extras.delete(name, self.clock.now())

    def _heed(self, record: Record, what: str) -> None:
        if record.theirs:
            whose = record.deployment or "nobody"
            self.neighbours.trespasses.append(f"somebody {what} {record.id} of {whose}, which is not theirs")

    def end(self, record: Record, cause: EndCause, why: str = "") -> None:
        """The order to end the VM; its guest runs on until the power goes."""
        if record.shell:
            record.shell = False
            self._show(record, None)
        if record.state in (VmState.STOPPING, VmState.GONE):
            return
        stays = self.book.take(FaultKind.STAYS, self.clock.now(), "", record.type, record.zone, record.market)
        if stays is not None:
            self._show(record, record.view(VmState.STOPPING))
            self.later(stays.amount, self._show_as_it_is, record)
            return
        was = record.state
        self._cancel(record)
        record.why = record.why or why
        if not self._dialect.ways.stopping_bills:
            self._stop_billing(record)
        self.enter(record, VmState.STOPPING)
        self.after(record, record.fate.stop_ms if was is VmState.RUNNING else 0, self._gone, cause)

    def _show_as_it_is(self, record: Record) -> None:
        """The order to end it came to nothing."""
        if record.state not in (VmState.STOPPING, VmState.GONE):
            self._show(record, record.view(record.state))

    def stop(self, record: Record, cause: EndCause, why: str) -> None:
        """The VM is off by itself, at once."""
        if record.state not in _UP:
            if record.state is VmState.STOPPING:
                self._silence(record, cause)
            return
        self._cancel(record)
        record.why = why
        if self._dialect.ways.power_off_ends:
            self._gone(record, cause)
            return
        if not self._dialect.ways.stopped_bills:
            self._stop_billing(record)
        self._silence(record, cause)
        self.enter(record, VmState.STOPPED)  # and what would have ended it while it ran does so no more

    def hang(self, record: Record) -> None:
        """The guest dies, and the cloud sees nothing of it."""
        self._silence(record, EndCause.DIED)

    def freeze(self, record: Record, until_ms: int, unaware: bool) -> None:
        """The guest stands still, and the cloud shows and bills it as running."""
        if record.guest_lives:
            self._guests.on_freeze(record, until_ms, unaware)

    def preempt(self, record: Record, notice_ms: int = -1) -> None:
        """Take a spot VM back, after the notice that the cloud gives (or this one)."""
        if record.state not in _UP or record.preempted:
            return
        if notice_ms < 0:
            notice_ms = self.settings.spot.notice_ms if record.fate.announced else 0
        record.preempted, record.taken, record.why = True, True, "preempted"
        if not notice_ms or record.state is VmState.PENDING:
            self._taken(record)
            return
        ends_ms = self.clock.now() + notice_ms
        if self._dialect.ways.notice_stops:
            self._cancel(record)
            self.enter(record, VmState.STOPPING)
        else:
            self._show(record, record.view(record.state))
        self.after(record, notice_ms, self._taken)
        if record.guest_lives:
            self._guests.on_notice(record, ends_ms)

    def _taken(self, record: Record) -> None:
        if not self.settings.spot.leaves:
            self._gone(record, EndCause.PREEMPTED)
            return
        self._cancel(record)
        self._stop_billing(record)
        self._silence(record, EndCause.PREEMPTED)
        self.enter(record, VmState.STOPPED)

    def _refuse(self, record: Record) -> None:
        """The create that was accepted fails."""
        record.why = record.refused.message if record.refused else ""
        record.shell = self._dialect.ways.failed_stays
        self._gone(record, EndCause.TERMINATED)

    def _gone(self, record: Record, cause: EndCause) -> None:
        now = self.clock.now()
        self._cancel(record)
        self._stop_billing(record)
        self.stock.give_back(self.stock.pool(record.type, record.zone, record.market))
        record.ended_ms = now
        self._silence(record, cause)
        scope = (record.type, record.zone, record.market)
        fault = self.book.take(FaultKind.LEFTOVER, now, "", *scope)
        self.extras.strip(record, now, every=record.shell, stays=None if fault is None else fault.code)
        self.enter(record, VmState.GONE)
        linger_ms = self.settings.life.linger_ms
        if linger_ms and not record.shell:
            record.seen.append((now + linger_ms, None))

    def _silence(self, record: Record, cause: EndCause) -> None:
        if record.guest_lives:
            record.guest_lives = False
            record.taken = record.taken or cause in (EndCause.DIED, EndCause.PREEMPTED)
            self._guests.on_end(record, cause)

    def _stop_billing(self, record: Record) -> None:
        if record.billed_from_ms is not None and record.billed_until_ms is None:
            record.billed_until_ms = self.clock.now()

    # -- seeing

    def enter(self, record: Record, state: VmState) -> None:
        """The VM is in `state` from now on, for the checkers at once, for reads when they get to see it."""
        record.state, record.since_ms = state, self.clock.now()
        if record.shell:
            self._show(record, record.view(VmState.STOPPED))
        elif state is VmState.GONE and not self.settings.life.linger_ms:
            self._show(record, None)
        else:
            self._show(record, record.view(state))
        if not record.theirs:
            self._guests.on_change(record)

    def _show(self, record: Record, view: Vm | None) -> None:
        now = self.clock.now()
        record.show(view, now, now - self.settings.consistency_ms)

    def page(self, deployment: str, after: int, as_of_ms: int) -> tuple[list[Vm], int | None]:
        """A page of a listing: VMs, and the number to go on after."""
        now = self.clock.now()
        self.register.sweep(now, self.settings.consistency_ms)
        reads = self.settings.reads
        if reads.loose:
            return self.register.all_of(partial(reads.shows, deployment), as_of_ms, now), None
        return self.register.page(deployment, after, as_of_ms, reads.page, now)

    # -- timers

    def later(self, wait_ms: int, act: Callable[..., None], *args: object) -> asyncio.TimerHandle:
        """Have `act` done after so many milliseconds, whoever asked for it and whatever becomes of them."""
        return asyncio.get_running_loop().call_later(max(wait_ms, 0) / 1000, act, *args, context=Context())

    def after(self, record: Record, wait_ms: int, act: Callable[..., None], *args: object) -> None:
        """The same for `act(record, ...)`, unless the VM's life takes another turn first."""
        record.timers.append(self.later(wait_ms, act, record, *args))

    def _cancel(self, record: Record) -> None:
        for timer in record.timers:
            timer.cancel()
        record.timers.clear()
