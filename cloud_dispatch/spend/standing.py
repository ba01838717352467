"""How the budgets stand: what is spent, what is committed, and whether one more commitment is admitted.

Owns the one comparison that keeps a limit (promise P3): what was spent in a window, and the most that everything which
exists may still bill in it, and the new one, are together at most the limit; for every budget that covers it and every
window that it reaches into. Must not know where any of the numbers come from, nor what is done about a refusal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cloud_dispatch.domain.money import Amount, Rate, charge, format_amount
from cloud_dispatch.spend import clocks
from cloud_dispatch.spend.booked import EVEN, Booked
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Commitment, Key
from cloud_dispatch.spend.windows import Span, Window, span_at, spans

_NOTHING = Amount(0)
_NOBODY: Mapping[Window, Booked] = {}
#: A rate, from when until when, and for so long at most.
_Row = tuple[Rate, int, int, int]
#: Amounts in single windows, and by how much that of every window changes from one on.
_Sums = tuple[defaultdict[int, int], defaultdict[int, int]]


class Account(NamedTuple):
    """Where an amount is booked: for whom, and in which window, by its kind and its start."""

    key: Key
    window: Window
    start_ms: int


class Refusal(NamedTuple):
    """Why a commitment is not admitted: the budget, the window of it, and the amounts that do not fit together."""

    budget: Budget
    span: Span
    spent: Amount
    committed: Amount
    wanted: Amount

    def __str__(self) -> str:
        left = max(self.budget.limit - self.spent - self.committed, 0)
        return (
            f"the budget {self.budget.name} has {format_amount(Amount(left))} left of"
            f" {format_amount(self.budget.limit)} ({format_amount(self.spent)} spent,"
            f" {format_amount(self.committed)} committed), {format_amount(self.wanted)} wanted"
        )


class Standing:
    """All budgets at the moment `now_ms` of the dispatcher's clock. `spent`: what ledger rows have booked. Windows that
    have passed by every clock are not kept: nothing can be admitted into them."""

    def __init__(
        self, budgets: Iterable[Budget], spent: Mapping[Account, Amount], commitments: Iterable[Commitment], now_ms: int
    ) -> None:
        self.now_ms = now_ms
        #: The biller's clock may be behind: until it says so too no window has passed.
        self._since_ms = now_ms - clocks.CLOCKS_MS
        self._kept_from_ms = self._since_ms
        self._spent = spent
        self._budgets: dict[Key, list[Budget]] = {}
        for budget in budgets:
            self._budgets.setdefault(budget.key, []).append(budget)
        bounded = {budget.window for covering in self._budgets.values() for budget in covering}
        self._present = [(window, span_at(window, self._kept_from_ms)) for window in Window if window in bounded]
        self._committed: dict[Key, dict[Window, Booked]] = {
            key: {budget.window: Booked(budget.window) for budget in covering}
            for key, covering in self._budgets.items()
        }
        self.add_all(commitments)

    def add_all(self, commitments: Iterable[Commitment]) -> None:
        """All of them exist from here on: what many count for together is added up once."""
        self._book_all(_by_keys(commitments), 1)

    def remove_all(self, commitments: Iterable[Commitment]) -> None:
        """None of them does: the very ones that were added."""
        self._book_all(_by_keys(commitments), -1)

    def add(self, commitment: Commitment) -> None:
        """It exists from here on."""
        self._book(commitment, 1)

    def remove(self, commitment: Commitment) -> None:
        """It does not, as far as windows from now on go: the very one that was added."""
        self._book(commitment, -1)

    def advance(self, now_ms: int) -> None:
        """It is later: nothing can be admitted into what has passed. Never before the moment it was made for."""
        self.now_ms = now_ms
        self._since_ms = max(now_ms - clocks.CLOCKS_MS, self._kept_from_ms)

    def refusal(self, wanted: Commitment, instead_of: Commitment | None = None) -> Refusal | None:
        """The first budget that does not admit `wanted` (in place of `instead_of`, which is counted already); None when
        all of them do."""
        for budget, span in self._touched(wanted):
            before = 0 if instead_of is None else instead_of.charge(span)
            more = wanted.charge(span)
            if more <= before:
                continue
            spent, committed = self.spent(budget, span), self.committed(budget, span)
            if spent + committed - before + more > budget.limit:
                return Refusal(budget, span, spent, Amount(committed - before), more)
        return None

    def room(self, wanted: Commitment, most: int) -> int:
        """How many like `wanted` all budgets admit together, at most `most`."""
        for budget, span in self._touched(wanted):
            each = wanted.charge(span)
            if each > 0:
                most = min(most, max(self.left(budget, span), 0) // each)
        return most

    def spent(self, budget: Budget, span: Span) -> Amount:
        """What is booked for the budget in that window of it."""
        return self._spent.get(Account(budget.key, budget.window, span.start_ms), _NOTHING)

    def committed(self, budget: Budget, span: Span) -> Amount:
        """What everything that exists may bill in that window of the budget."""
        return Amount(self._committed[budget.key][budget.window].at(span.start_ms))

    def left(self, budget: Budget, span: Span) -> Amount:
        """What is neither spent nor committed; negative where a limit was lowered below both."""
        return Amount(budget.limit - self.spent(budget, span) - self.committed(budget, span))

    def present(self) -> Sequence[tuple[Budget, Span]]:
        """Every budget with its window of this moment."""
        covering = (budget for budgets in self._budgets.values() for budget in budgets)
        return [(budget, span_at(budget.window, self.now_ms)) for budget in covering]

    def overrun(self) -> Sequence[tuple[Budget, Span]]:
        """Budgets of which more is spent and committed than they have, with the window: none, unless a limit was
        lowered or something appeared that was never admitted (a VM adopted by its tags)."""
        return [
            (budget, span)
            for key, covering in self._budgets.items()
            for budget in covering
            for start in self._committed[key][budget.window].turning_points(self._since_ms)
            if self.left(budget, span := span_at(budget.window, start)) < 0
        ]

    def _touched(self, wanted: Commitment) -> Iterator[tuple[Budget, Span]]:
        """The budgets that cover `wanted`, each with every window from now on that it reaches into."""
        for key in wanted.keys:
            for budget in self._budgets.get(key, ()):
                for span in spans(budget.window, max(self._since_ms, wanted.from_ms), wanted.billed_until_ms):
                    yield budget, span

    def _book(self, commitment: Commitment, sign: int) -> None:
        covered = [self._committed[key] for key in commitment.keys if key in self._committed]
        rows = [_row(commitment)]
        for window, present in self._present:
            into = [booked[window] for booked in covered if window in booked]
            if into:
                single, steps = _add_up(window, present, rows, sign)
                for booked in into:
                    booked.merge(single, steps)

    def _book_all(self, groups: Mapping[tuple[Key, ...], Sequence[Commitment]], sign: int) -> None:
        """Book commitments by what they count for. Most share all keys but the last: what these come to is added up
        for the last key, and then together for those before it."""
        rows = {keys: [_row(one) for one in alike] for keys, alike in groups.items() if keys}
        for window, present in self._present:
            sums = {keys: _add_up(window, present, alike, sign) for keys, alike in rows.items()}
            while sums:
                shorter: dict[tuple[Key, ...], _Sums] = {}
                for keys, found in sums.items():
                    booked = self._committed.get(keys[-1], _NOBODY).get(window)
                    if booked is not None:
                        booked.merge(*found)
                    if len(keys) > 1 and shorter.setdefault(keys[:-1], found) is not found:
                        _merge(shorter[keys[:-1]], found)
                sums = shorter


def _row(commitment: Commitment) -> _Row:
    return commitment.rate, commitment.from_ms, commitment.billed_until_ms, commitment.most_ms


def _merge(into: _Sums, other: _Sums) -> None:
    for own, more in zip(into, other, strict=True):
        for start_ms, amount in more.items():
            own[start_ms] += amount


def _add_up(window: Window, present: Span, rows: Iterable[_Row], sign: int) -> _Sums:
    """What rates from a moment to another, for so long at most, come to in each window from the `present` one on, as
    `Booked.merge` takes it."""
    single: defaultdict[int, int] = defaultdict(int)
    steps: defaultdict[int, int] = defaultdict(int)
    present_start, present_end = present
    whole_ms = present_end - present_start if window in EVEN else 0
    for rate, start, end, most in rows:
        first, first_end = present if start < present_end else span_at(window, start)
        began = start if start > first else first
        until = end if end < first_end else first_end
        single[first] += sign * charge(rate, min(until - began, most)) if until > began else 0
        if first_end >= end:
            continue
        if not whole_ms:
            for span in spans(window, first_end, end):
                single[span.start_ms] += sign * charge(rate, min(span.overlap_ms(start, end), most))
            continue
        last = span_at(window, end - 1).start_ms
        single[last] += sign * charge(rate, min(end - last, most))
        if first_end < last:
            whole = sign * charge(rate, min(whole_ms, most))
            steps[first_end] += whole
            steps[last] -= whole
    return single, steps


def _by_keys(commitments: Iterable[Commitment]) -> dict[tuple[Key, ...], list[Commitment]]:
    found: dict[tuple[Key, ...], list[Commitment]] = {}
    for commitment in commitments:
        found.setdefault(commitment.keys, []).append(commitment)
    return found
