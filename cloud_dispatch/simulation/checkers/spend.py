"""P3: what the clouds' own meters bill never passes a limit, whoever is dead."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_dispatch.domain.money import Amount, format_amount
from cloud_dispatch.simulation.checkers.base import Checker, View
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.windows import Window


class Spend(Checker):
    """Of totals: a meter has no windows. What windows admit is the same function, which `tests/spend` holds."""

    name = "P3 spend"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._budgets = [budget for budget in view.scenario.budgets if budget.window is Window.TOTAL]

    def look(self) -> None:
        if not self._budgets:
            return
        billed: dict[Key, int] = {}
        for key, amount in self._lines():
            billed[key] = billed.get(key, 0) + amount
        for budget in self._budgets:
            amount = billed.get(budget.key, 0)
            if amount > budget.limit:
                self.find(f"{format_amount(Amount(amount))} billed, the budget {budget.name} has"
                          f" {format_amount(budget.limit)}")  # fmt: skip

    def end(self) -> None:
        self.look()

    def _lines(self) -> Iterator[tuple[Key, int]]:
        """What each thing was billed, for each of those that it counts for."""
        drivers = self.view.scenario.drivers
        for account in self.view.accounts:
            known: dict[str, TrueVm] = {vm.id: vm for vm in account.inventory()}
            for line in account.bill():
                vm = known.get(line.vm)
                yield EVERYTHING, line.amount
                if vm is not None:
                    yield Key(Scope.DRIVER, drivers[vm.profile]), line.amount
                    yield Key(Scope.PROFILE, vm.profile), line.amount
                    yield Key(Scope.POOL, vm.pool), line.amount
