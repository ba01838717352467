"""How the budgets stand: what is spent, what is committed, and whether one more commitment is admitted.

Owns the one comparison that keeps a limit (promise P3): what was spent in a window, and the most that everything which
exists may still bill in it, and the new one, are together at most the limit; for every budget that covers it and every
window that it reaches into. Must not know where any of the numbers come from, nor what is done about a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cloud_dispatch.domain.money import Amount, Rate, charge, format_amount
from cloud_dispatch.spend import clocks
from cloud_dispatch.spend.booked import EVEN, Booked
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Commitment, Key
from cloud_dispatch.spend.windows import Span, Window, span_at, spans

_NOTHING = Amount(0)


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
        self._committed: dict[Key, dict[Window, Booked]] = {
            key: {budget.window: Booked(budget.window) for budget in covering}
            for key, covering in self._budgets.items()
        }
        for keys, alike in _by_keys(commitments).items():
            self._book(keys, alike, 1)

    def add(self, commitment: Commitment) -> None:
        """It exists from here on."""
        self._book(commitment.keys, (commitment,), 1)

    def remove(self, commitment: Commitment) -> None:
        """It does not, as far as windows from now on go: the very one that was added."""
        self._book(commitment.keys, (commitment,), -1)

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

    def _book(self, keys: tuple[Key, ...], alike: Sequence[Commitment], sign: int) -> None:
        """Book commitments that count for the same keys: added up once, not once for each key."""
        covered = [self._committed[key] for key in keys if key in self._committed]
        rows = [(one.rate, one.from_ms, one.billed_until_ms, one.most_ms) for one in alike]
        for window in dict.fromkeys(window for booked in covered for window in booked):
            together = self._add_up(window, rows, sign)
            for booked in covered:
                if window in booked:
                    booked[window].merge(together)

    def _add_up(self, window: Window, rows: Iterable[tuple[Rate, int, int, int]], sign: int) -> Booked:
        """What rates from a moment to another, for so long at most, come to in each window from now on."""
        booked, (present, present_end) = Booked(window), span_at(window, self._kept_from_ms)
        single: dict[int, int] = {}
        whole_ms = present_end - present if window in EVEN else 0
        for rate, start, end, most in rows:
            first, first_end = (present, present_end) if start < present_end else span_at(window, start)
            began = start if start > first else first
            until = end if end < first_end else first_end
            amount = charge(rate, min(until - began, most)) if until > began else 0
            single[first] = single.get(first, 0) + sign * amount
            if first_end >= end:
                continue
            if not whole_ms:
                for span in spans(window, first_end, end):
                    booked.add(span.start_ms, sign * charge(rate, min(span.overlap_ms(start, end), most)))
                continue
            last = span_at(window, end - 1).start_ms
            single[last] = single.get(last, 0) + sign * charge(rate, min(end - last, most))
            if first_end < last:
                booked.add_run(first_end, last, sign * charge(rate, min(whole_ms, most)))
        booked.add_all(single)
        return booked


def _by_keys(commitments: Iterable[Commitment]) -> dict[tuple[Key, ...], list[Commitment]]:
    found: dict[tuple[Key, ...], list[Commitment]] = {}
    for commitment in commitments:
        found.setdefault(commitment.keys, []).append(commitment)
    return found
