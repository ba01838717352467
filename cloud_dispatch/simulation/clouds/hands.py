"""What comes upon VMs from outside: the faults of a moment, and reapers, independent of dispatcher and guest.
Owns when they act and upon whom; ending a VM is the engine's, and what a reaper does is the shipped one's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.reaper import Tagged
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.reapers import rounds
from cloud_dispatch.simulation.clouds.faults import LASTING, STRIKES, Fault, FaultKind
from cloud_dispatch.simulation.clouds.records import Record
from cloud_dispatch.simulation.ports import EndCause

if TYPE_CHECKING:
    from cloud_dispatch.simulation.clouds.account import Account

#: What a reaper does each time: with the account's VMs, at this moment (epoch ms), for its deployment.
Look = Callable[[rounds.Cloud, int, str], object]
#: A fault of a moment that finds no VM looks again so often, while its window is open.
_AGAIN_MS = 10_000


class Reaper:
    """The functions beside an account that end VMs, one a deployment: each looks every period while there are VMs, and
    believes the tags as they truly are. `look` is what the shipped function does, unless a test says otherwise."""

    def __init__(self, account: Account, look: Look) -> None:
        self._account, self._look = account, look
        self._period_ms = account.settings.reaper_period_ms
        self._watching = False

    def watch(self) -> None:
        """There is a VM: the next look will come, at the next multiple of the period."""
        if self._period_ms and not self._watching:
            self._watching = True
            since_birth = self._account.clock.now() - self._account.born_ms
            self._account.later(self._period_ms - since_birth % self._period_ms, self._round)

    def vms(self) -> Iterable[Tagged]:
        live = self._account.register.live()
        return [(view.id, view.tags) for record in live if (view := record.seen[-1][1]) is not None]

    def end(self, vms: Sequence[VmId]) -> Mapping[VmId, str]:
        for vm in vms:
            record = self._account.register.find(vm)
            if record is not None:
                self._account.end(record, EndCause.HARD_END, "ended by the reaper: past its ends_at")
        return {}

    def _round(self) -> None:
        self._watching = False
        now = self._account.clock.now()
        live = self._account.register.live()
        if live and self._account.book.standing(FaultKind.REAPER_DOWN, now) is None:
            for deployment in sorted({record.deployment for record in live} - {""}):
                self._look(self, now - self._account.settings.reaper_behind_ms, deployment)
        if live:
            self.watch()


class Strikes:
    """The faults that happen to running VMs at a moment."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def start(self) -> None:
        """Set their timers; those of the past are passed over."""
        account, now = self._account, self._account.clock.now()
        for fault in account.book.of(*STRIKES):
            wait_ms = account.book.begins_ms(fault) - now
            if wait_ms >= 0:
                account.later(wait_ms, self._strike, fault, max(fault.times, 1))

    def _strike(self, fault: Fault, left: int) -> None:
        """Strike up to `left` VMs; as long as the window is open, come again for those that were not there."""
        account, now = self._account, self._account.clock.now()
        there = [
            record
            for record in account.register.live()
            if record.state is VmState.RUNNING
            and not record.theirs
            and fault.speaks_of(record.type, record.zone, record.market)
            and (fault.kind is not FaultKind.PREEMPT or record.market is Market.SPOT)
        ]
        scope = (fault.type, fault.zone, fault.market or "")
        stream = account.streams.stream("strike", account.name, fault.kind, fault.from_ms, *scope)
        while left and there:
            self._hit(fault, there.pop(stream.below(len(there))))
            left -= 1
        again = now + _AGAIN_MS - account.born_ms
        if left and again < fault.until_ms and fault.kind not in LASTING:
            account.later(_AGAIN_MS, self._strike, fault, left)

    def _hit(self, fault: Fault, record: Record) -> None:
        account = self._account
        if fault.kind is FaultKind.DEATH:
            account.stop(record, EndCause.DIED, fault.code or "the host failed")
        elif fault.kind is FaultKind.HANG:
            account.hang(record)
        elif fault.kind is FaultKind.PREEMPT:
            account.preempt(record, fault.amount)
        elif fault.kind is FaultKind.HIDDEN:
            length_ms = min(fault.amount, account.settings.consistency_ms)
            record.hidden_until_ms = account.clock.now() + length_ms
        elif fault.kind is FaultKind.FREEZE:
            account.freeze(record, account.book.ends_ms(fault), bool(fault.amount))
        else:
            record.cut_off_until_ms = account.book.ends_ms(fault)
