"""Work is begun anew for a reason only: no attempt is taken from its task where nothing has gone wrong.

What is lost costs money twice, and a dispatcher that loses it again and again never ends. So where all has been well
for so long that no trouble can be left, an attempt ends by itself, or its machine has died or was taken back, has come
to its lifetime, or was ended for the sake of a limit. Nor is anything begun there of which it was said that it would
take longer than is left of that lifetime, unless it would of any.
"""

from __future__ import annotations

from cloud_dispatch.domain.ids import PoolName, VmId
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.simulation.checkers.base import Checker, Process, View
from cloud_dispatch.simulation.clock import EPOCH_MS
from cloud_dispatch.simulation.clouds.faults import USUAL
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.facts import Commit, EndedAttempt
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.spend.commitment import OF_PAYERS
from cloud_dispatch.spend.instances import keys_of_place

_LOST = frozenset({str(Cause.INSTANCE_LOST), str(Cause.PREEMPTED)})
_SLACK_MS = 60_000
_NEVER_MS = 1 << 62
#: A launch is decided so long before there is a VM.
_LAUNCH_MS = 120_000
#: A limit of so much is no reason in any run, not a tenth of it either, micro-dollars.
_AMPLE = 1_000_000_000


class Waste(Checker):
    """By the attempts that the store says have ended with their machine, and what truly became of that."""

    name = "waste"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        scenario = view.scenario
        self._vms: dict[str, TrueVm] = {}
        #: What goes wrong may show so much later: two leases, and as long as an agent that hears nothing waits.
        self._after_ms = 2 * scenario.timing.lease_ms + scenario.agents.silence_ms + _SLACK_MS
        own = [(fault.at_ms, fault.ends_ms) for fault in scenario.faults]
        clouds = [fault for account in scenario.accounts for fault in account.faults if fault.kind not in USUAL]
        self._troubles = [*own, *((one.from_ms, one.until_ms or _NEVER_MS) for one in clouds)]
        self._lifetimes = {str(pool.name): pool.end.lifetime_ms for pool in scenario.pools}
        #: How long work takes of which that was said.
        told = {work.conduct.run_ms for work in scenario.work if work.expected_ms == work.conduct.run_ms}
        self._told = told - {w.conduct.run_ms for w in scenario.work if w.expected_ms != w.conduct.run_ms}
        self._leave_ms = scenario.pace.drain_ms
        self._boots_ms: dict[VmId, int] = {}
        #: An instance whose health fails, or on which something can't be killed, takes all that runs on it along.
        self._taken_along = any(work.conduct.unkillable for work in scenario.work) or any(
            pool.health_checks for pool in scenario.pools
        )

    def registered(self, vm: TrueVm, instance: str) -> None:
        self._vms[instance] = vm
        self._boots_ms.setdefault(vm.id, self._age_ms(vm))

    def process_started(self, process: Process) -> None:
        vm, life_ms = process.vm, self._lifetimes.get(process.vm.pool, 0)
        if process.run_ms not in self._told or vm.wall_off_ms or not self._is_well() or self._is_limited(vm):
            return
        left_ms = life_ms - self._age_ms(vm)
        another_ms = life_ms - self._boots_ms.get(vm.id, life_ms) - self._leave_ms - _LAUNCH_MS
        if left_ms + _SLACK_MS < process.run_ms <= another_ms:
            self.find(
                f"task {process.task} is begun on {vm.id}, takes {process.run_ms} ms, and has {left_ms} ms of its life"
            )

    def committed(self, commit: Commit) -> None:
        for attempt in commit.attempts:
            if attempt.cause in _LOST and not self._taken_along:
                self._judge(attempt)

    def _judge(self, attempt: EndedAttempt) -> None:
        vm = self._vms.get(attempt.instance)
        if vm is None or vm.taken or vm.wall_off_ms or not self._is_well() or self._is_limited(vm):
            return
        if self._age_ms(vm) < self._lifetimes.get(vm.pool, 0) * 3 // 4:
            self.find(
                f"task {attempt.task} was taken from {attempt.instance} by {attempt.cause}, and nothing was wrong"
            )

    def _age_ms(self, vm: TrueVm) -> int:
        return EPOCH_MS + self.view.scenario.begins_ms + self.view.now_ms - vm.created_ms

    def _is_well(self) -> bool:
        """Whether all has been well for long."""
        now, since_ms = self.view.now_ms, self.view.healthy_since_ms
        if since_ms is None or now < since_ms + self._after_ms:
            return False
        return not any(from_ms <= now < until_ms + self._after_ms for from_ms, until_ms in self._troubles)

    def _is_limited(self, vm: TrueVm) -> bool:
        """Whether there may be too little money for it; or a guess of how long its work takes was the last word, where
        the hand that ends it can't be told another end."""
        scenario = self.view.scenario
        keys = keys_of_place(PoolName(vm.pool), vm.profile, scenario.drivers)
        guessed = any(one.settings.cloud is Cloud.GCE for one in scenario.accounts if one.profile == vm.profile)
        scarce = (one for one in scenario.budgets if guessed or one.limit < _AMPLE)
        return any(one.key in keys or one.key.scope in OF_PAYERS for one in scarce)
