"""P3: what the clouds' own meters bill never passes a limit, in any window, whoever is dead.

And the order that it rests on: no hand has been told a hard end that the store had not committed before."""

from __future__ import annotations

from collections.abc import Mapping

from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.simulation.checkers.base import Checker, View
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.ports import Metered, TrueVm
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.windows import Window, spans

#: A micro-dollar in the meters' unit, nano-dollars an hour x milliseconds.
_MICRO = 1_000 * HOUR_MS
_Sums = dict[tuple[Key, Window, int], int]


class Spend(Checker):
    """Sums of exact amounts, by the clouds' own clock: nothing is rounded, and there is no tolerance."""

    name = "P3 spend"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._budgets = view.scenario.budgets
        self._windows: dict[Key, set[Window]] = {}
        for budget in self._budgets:
            self._windows.setdefault(budget.key, set()).add(budget.window)
        self._closed: _Sums = {}
        #: By batch, the latest end that was ever committed for one of it.
        self._ends: dict[str, int] = {}
        #: By account, how many of its VMs, the oldest, are in those sums; and which of the others are too.
        self._passed = [0 for _ in view.accounts]
        self._counted: list[set[int]] = [set() for _ in view.accounts]

    def committed(self, commit: Commit) -> None:
        for row in commit.instances:
            self._ends[row.batch] = max(self._ends.get(row.batch, 0), row.ends_ms)

    def look(self) -> None:
        if self._budgets:
            self._compare(self._billed())

    def end(self) -> None:
        self.look()

    def _compare(self, billed: Mapping[tuple[Key, Window, int], int]) -> None:
        of: dict[tuple[Key, Window], list[Budget]] = {}
        for budget in self._budgets:
            of.setdefault((budget.key, budget.window), []).append(budget)
        for (key, window, start_ms), nano_ms in billed.items():
            for budget in of.get((key, window), ()):
                if nano_ms > budget.limit * _MICRO:
                    self.find(
                        f"{-(-nano_ms // _MICRO)} micro-dollars billed in the window that begins at {start_ms}, the"
                        f" budget {budget.name} has {budget.limit}"
                    )

    def _billed(self) -> _Sums:
        """By key, window and its start. VMs that never change any more are added up once."""
        sums: _Sums = {}
        for number, account in enumerate(self.view.accounts):
            counted, passed = self._counted[number], self._passed[number]
            for place, one in enumerate(account.metered(passed), passed):
                if place in counted:
                    continue
                if one.closed:
                    counted.add(place)
                elif one.ends_ms > self._ends.get(one.vm.batch, 0):
                    self.find(f"{one.vm.id} ends at {one.ends_ms}, which was never committed")
                self._add(self._closed if one.closed else sums, one)
            while passed in counted:
                counted.discard(passed)
                passed += 1
            self._passed[number] = passed
        for account_of, nano_ms in self._closed.items():
            sums[account_of] = sums.get(account_of, 0) + nano_ms
        return sums

    def _add(self, sums: _Sums, one: Metered) -> None:
        for key in self._keys(one.vm):
            for window in self._windows.get(key, ()):
                for span in spans(window, one.from_ms, one.until_ms):
                    nano_ms = one.nano_ms(span.start_ms, span.end_ms)
                    sums[key, window, span.start_ms] = sums.get((key, window, span.start_ms), 0) + nano_ms

    def _keys(self, vm: TrueVm) -> tuple[Key, ...]:
        drivers = self.view.scenario.drivers
        return (
            EVERYTHING,
            Key(Scope.DRIVER, drivers[vm.profile]),
            Key(Scope.PROFILE, vm.profile),
            Key(Scope.POOL, vm.pool),
        )
