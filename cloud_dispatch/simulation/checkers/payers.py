"""P3 for projects and users: what their processes truly hold of VMs, while their claims last, never passes a limit, in
any window."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from cloud_dispatch.domain.money import HOUR_MS, NANO_PER_DOLLAR
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.simulation.checkers.base import Checker, Process, View
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.spend.commitment import OF_PAYERS, Key, Scope
from cloud_dispatch.spend.standing import Account
from cloud_dispatch.spend.windows import Window, spans

Claim = tuple[int, int]  # task and token


class Payers(Checker):
    """A meter of its own: from the start of each process to its end or that of its claim, at its cloud's price. What a
    process does whose claim is over, on a VM that can't be reached, counts for nobody.

    Which window a moment falls into is the dispatcher's clock's to say. Where that was set meanwhile, only what falls
    there by it as it was and as it is counts."""

    name = "P3 payers"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._budgets = [budget for budget in view.scenario.budgets if budget.key.scope in OF_PAYERS]
        self._windows: dict[Key, set[Window]] = {}
        for budget in self._budgets:
            self._windows.setdefault(budget.key, set()).add(budget.window)
        self._tasks: dict[int, tuple[tuple[Key, ...], Shape]] = {}
        #: With what the dispatcher's clock said at its start.
        self._running: dict[Claim, tuple[Process, int]] = {}
        self._spent: dict[Account, Fraction] = {}  # dollars

    def committed(self, commit: Commit) -> None:
        if not self._budgets:
            return
        for task, payer, shape in commit.payers:
            self._tasks[task] = (_keys(payer), shape)
        for live in commit.live:
            self._over(live.task, live.token)
        for task, _ in commit.ended:
            self._over(task, None)

    def process_started(self, process: Process) -> None:
        if process.task in self._tasks:
            self._running[process.task, process.token] = process, self.view.told_ms

    def process_ended(self, process: Process) -> None:
        self._close((process.task, process.token))

    def vm_changed(self, vm: TrueVm) -> None:
        if vm.state is VmState.GONE:
            for claim in [claim for claim, (process, _) in self._running.items() if process.vm is vm]:
                self._close(claim)

    def look(self) -> None:
        spent = dict(self._spent)
        for process, told_ms in self._running.values():
            self._add(spent, process, told_ms)
        limits = {(budget.key, budget.window): budget for budget in self._budgets}
        for (key, window, start_ms), amount in spent.items():
            budget = limits[key, window]
            if amount * 1_000_000 > budget.limit:
                self.find(
                    f"${float(amount):.6f} were used by {budget.name} in the window that begins at {start_ms}, which"
                    f" has ${budget.limit / 1e6:.6f}"
                )

    def end(self) -> None:
        self.look()

    def _over(self, task: int, token: int | None) -> None:
        """The claims of `task` under other tokens are over."""
        if task in self._tasks:
            for claim in [claim for claim in self._running if claim[0] == task and claim[1] != token]:
                self._close(claim)

    def _close(self, claim: Claim) -> None:
        running = self._running.pop(claim, None)
        if running is not None:
            self._add(self._spent, *running)

    def _add(self, spent: dict[Account, Fraction], process: Process, told_ms: int) -> None:
        """`told_ms`: what the dispatcher's clock said when it started."""
        keys, shape = self._tasks[process.task]
        rate = self._rate(process.vm) * self._share(process.vm, shape)
        ran_ms, ended_ms = self.view.now_ms - process.started_ms, self.view.told_ms
        for key in keys:
            for window in self._windows.get(key, ()):
                for span in spans(window, told_ms, told_ms + ran_ms):
                    as_it_was = span.overlap_ms(told_ms, told_ms + ran_ms)
                    as_it_is = span.overlap_ms(ended_ms - ran_ms, ended_ms)
                    account = Account(key, window, span.start_ms)
                    ran = Fraction(min(as_it_was, as_it_is), HOUR_MS)
                    spent[account] = spent.get(account, Fraction(0)) + rate * ran

    def _rate(self, vm: TrueVm) -> Fraction:
        """Dollars an hour; of a spot VM what its meter shows so far."""
        if vm.market is Market.SPOT:
            account = next(one for one in self.view.accounts if one.name == vm.account)
            lines = [line for line in account.bill() if line.vm == vm.id and line.billed_ms]
            return sum((Fraction(line.amount * HOUR_MS, line.billed_ms * 10**6) for line in lines), Fraction(0))
        settings = next(one.settings for one in self.view.scenario.accounts if one.settings.name == vm.account)
        sold = next(sold for sold in settings.sells if sold.type.name == vm.type and vm.zone in sold.zones)
        return Fraction(sold.rate + sum(extra.rate for extra in settings.extras), NANO_PER_DOLLAR)

    def _share(self, vm: TrueVm, shape: Shape) -> Fraction:
        """Of the machine, its pool's reserve apart."""
        if shape.exclusive:
            return Fraction(1)
        types = {sold.type.name: sold.type for spec in self.view.scenario.accounts for sold in spec.settings.sells}
        reserve = next(pool.reserve for pool in self.view.scenario.pools if pool.name == vm.pool)
        have, want = types[vm.type].capacity - reserve, shape.resources
        parts: Mapping[str, tuple[int, int]] = {
            "cpus": (want.cpus_milli, have.cpus_milli),
            "memory": (want.memory, have.memory),
            "gpus": (want.gpus, have.gpus),
        }
        shares = [Fraction(asked, had) for asked, had in parts.values() if had > 0]
        return sum(shares, Fraction(0)) / len(shares) if shares else Fraction(1)


def _keys(payer: Payer) -> tuple[Key, ...]:
    named = ((Scope.PROJECT, payer.project), (Scope.USER, payer.user))
    return tuple(Key(scope, name) for scope, name in named if name)
