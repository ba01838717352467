"""The purse: the budgets, and what the ledger and the rows of claims have booked for them. Owns the reading of rows
into sums, and how the budgets stand while a group of calls is planned.

What is spent is the rows, added up at start and carried on with every new one; of what claims cost payers long ago
there is a sum by then (`folding`). What is committed is what the instances and claims of the memory may bill. So
neither can drift from what it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import NamedTuple, Self

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import OverBudget
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import Amount, Rate, charge
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.spend import clocks, doubt
from cloud_dispatch.spend.breaker import Departed
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, OF_PAYERS, Commitment, Key, Scope
from cloud_dispatch.spend.instances import Commitments, Drivers, commitment_of, keys_of, known_rate
from cloud_dispatch.spend.ledger import Row
from cloud_dispatch.spend.payers import ClaimTerms, keys_of_payer
from cloud_dispatch.spend.shares import Share
from cloud_dispatch.spend.standing import Account, Standing
from cloud_dispatch.spend.tightened import TIGHTENED_FACT, decode, in_force
from cloud_dispatch.spend.windows import FOREVER_MS, Span, Window, span_at, spans
from cloud_dispatch.statestore.schema import charges, ledger

#: The facts that say since when it is not known what was spent: the store came back from a backup; it took the place of
#: another one, or VMs that another one made were seen, for the last time then.
UNSURE_FACT, OTHERS_FACT = "spend-unsure-since", "spend-others-since"
#: The one that has the other statestores of which an operator has said that what their VMs cost is reckoned with.
RECKONED_FACT = "spend-others-reckoned"
#: And the one that has when one has said so for the last time, of whomever.
RECONCILED_FACT = "spend-reconciled-at"
RAISE = "raise the limit, or wait for its next window"


@dataclass(frozen=True)
class Configured:
    """What the configuration says: limits, by profile its driver, and what claims are judged by."""

    budgets: Sequence[Budget] = ()
    drivers: Drivers = field(default_factory=dict)
    terms: ClaimTerms = field(default_factory=ClaimTerms)


class Charge(NamedTuple):
    """A row of `charges`, in the order of its columns: what a claim has cost its payer, at `rate` nano-dollars an hour
    from `from_ms` until `until_ms`."""

    token: int
    task: int
    instance: str
    project: str
    user: str
    from_ms: int
    until_ms: int
    rate: Rate
    amount: Amount

    @classmethod
    def of(cls, task: int, token: int, instance: str, payer: Payer, charged: Commitment) -> Self:
        """The row of a claim that came to `charged`."""
        rate, start, end = charged.rate, charged.from_ms, charged.until_ms
        return cls(token, task, instance, *payer, start, end, rate, charge(rate, end - start))


class _Admission(NamedTuple):
    """One that is to live as `after`, and what it comes to, then and (None: it is new) now."""

    old: Commitment | None
    new: Commitment
    after: Instance

    def is_like(self, other: Self) -> bool:
        """Whether both are new and come to the same; whoever has no price is like nobody."""
        priced = self.after.max_rate is not None and other.after.max_rate is not None
        return priced and self.old is other.old is None and replace(self.new, name=other.new.name) == other.new


def doubts(facts: Mapping[str, str | None]) -> tuple[int, ...]:
    """When nobody knew what was spent, as facts say it: epoch milliseconds."""
    return tuple(map(int, filter(None, map(facts.get, (UNSURE_FACT, OTHERS_FACT)))))


class Purse:
    """See the module. `spent` has, for keys with a budget, every window that may still be open."""

    def __init__(self, budgets: Sequence[Budget] = (), drivers: Drivers | None = None) -> None:
        self.budgets = tuple(budgets)
        self.drivers: Drivers = drivers or {}
        self._commitments = Commitments(self.drivers)
        self.terms = ClaimTerms()
        self.unsure: tuple[int, ...] = ()
        self.spent: dict[Account, Amount] = {}
        self._windows: dict[Key, list[Window]] = {}
        for budget in self.budgets:
            self._windows.setdefault(budget.key, []).append(budget.window)

    @classmethod
    def of(cls, configured: Configured, facts: Mapping[str, str | None]) -> Self:
        """With the configured limits, those that an operator has tightened by these facts, and what they say of
        backups and other stores. InvalidInput when they can't be read."""
        purse = cls(in_force(configured.budgets, decode(facts.get(TIGHTENED_FACT))), configured.drivers)
        purse.terms = configured.terms
        purse.unsure = doubts(facts)
        return purse

    def read(self, connection: Connection, now_ms: int) -> None:
        """Add the ledger up anew. Of a window that was open when nobody knew what was spent, all is."""
        self.spent = {}
        if not self.budgets:
            return
        open_from = [
            span_at(budget.window, now_ms - clocks.CLOCKS_MS).start_ms
            for budget in self.budgets
            if budget.window is not Window.TOTAL
        ]
        first, c = min(open_from, default=FOREVER_MS), ledger.c
        older = select(c.driver, c.profile, c.pool, func.sum(c.bound)).where(c.bound_until_ms <= first)
        for driver, profile, pool, bound in connection.execute(older.group_by(c.driver, c.profile, c.pool)):
            for key in _keys(driver, profile, pool):
                if Window.TOTAL in self._windows.get(key, ()):
                    self._add(Account(key, Window.TOTAL, 0), int(bound))
        bounds = (c.bound_rate, c.bound_from_ms, c.bound_until_ms, c.bound_most_ms)
        rows = select(c.driver, c.profile, c.pool, *bounds).where(c.bound_until_ms > first)
        for driver, profile, pool, rate, start, end, most in connection.execute(rows):
            self._book(_keys(driver, profile, pool), Rate(rate), Span(start, end), most)
        if any(key.scope in OF_PAYERS for key in self._windows):
            self._read_charges(connection, first)
        for budget, noted_ms in product(self.budgets, self.unsure):
            for span in spans(budget.window, *doubt.reach(noted_ms)):
                account = Account(budget.key, budget.window, span.start_ms)
                self.spent[account] = max(self.spent.get(account, Amount(0)), budget.limit)

    def _read_charges(self, connection: Connection, first_ms: int) -> None:
        """What claims have cost; those that had ended at `first_ms` by their sums."""
        c = charges.c
        older = select(c.project, c.user_name, func.sum(c.amount)).where(c.until_ms <= first_ms)
        for project, user, amount in connection.execute(older.group_by(c.project, c.user_name)):
            for key in keys_of_payer(Payer(project, user)):
                if Window.TOTAL in self._windows.get(key, ()):
                    self._add(Account(key, Window.TOTAL, 0), int(amount))
        rows = select(c.project, c.user_name, c.rate, c.from_ms, c.until_ms).where(c.until_ms > first_ms)
        for project, user, rate, start, end in connection.execute(rows):
            self._book(keys_of_payer(Payer(project, user)), Rate(rate), Span(start, end), end - start)

    def charge(self, row: Charge) -> None:
        """The row of a claim that has ended is in the tables now."""
        within = Span(row.from_ms, row.until_ms)
        self._book(keys_of_payer(Payer(row.project, row.user)), row.rate, within, row.until_ms - row.from_ms)

    def book(self, instance: Instance, row: Row) -> None:
        """The row of an instance that is gone is in the ledger now."""
        within = Span(row.bound_from_ms, row.bound_until_ms)
        self._book(keys_of(instance, self.drivers), row.bound_rate, within, row.bound_most_ms)

    def standing(
        self, instances: Iterable[Instance], now_ms: int, claims: Iterable[Commitment] = (), *, follows: bool = False
    ) -> Standing:
        """How the budgets stand with these instances, and what is committed for claims. What is booked later is in it
        only where it `follows`: then whoever books has to take the commitment out."""
        committed = chain(self.commitments(instances), claims) if self.budgets else ()
        return Standing(self.budgets, self.spent if follows else dict(self.spent), committed, now_ms)

    def commitments(self, instances: Iterable[Instance]) -> Sequence[Commitment]:
        """Those of all instances there are, but for what is gone."""
        return self._commitments.of_all(one for one in instances if one.state is not InstanceState.GONE)

    def admit(self, standing: Standing, changes: Sequence[tuple[Instance | None, Instance]]) -> None:
        """Count that each instance (None: it is new) becomes the other one. OverBudget, and nothing is counted, when a
        budget does not admit what one of them may cost then."""
        done: list[tuple[Sequence[Commitment], Sequence[Commitment]]] = []
        try:
            for alike in self._alike(changes):
                self._check(standing, alike)
                old, new = [one.old for one in alike if one.old is not None], [one.new for one in alike]
                standing.remove_all(old)
                standing.add_all(new)
                done.append((old, new))
        except OverBudget:
            for gone, back in reversed(done):
                standing.remove_all(back)
                standing.add_all(gone)
            raise

    def _alike(self, changes: Sequence[tuple[Instance | None, Instance]]) -> Iterator[list[_Admission]]:
        """New ones that come to the same, as a launch's do, together; every other by itself."""
        alike: list[_Admission] = []
        for before, after in changes:
            old = None if before is None else commitment_of(before, self.drivers)
            one = _Admission(old, commitment_of(after, self.drivers), after)
            if alike and not one.is_like(alike[0]):
                yield alike
                alike = []
            alike.append(one)
        if alike:
            yield alike

    def _check(self, standing: Standing, alike: Sequence[_Admission]) -> None:
        """OverBudget for the first of `alike` that is not admitted."""
        first = alike[0]
        if first.after.max_rate is None and any(key in self._windows for key in first.new.keys):
            hint = "allow types with a price, and spot machines with a maximum"
            raise OverBudget(f"{first.after.id}: a limit covers it, and nobody knows what it costs at most", hint=hint)
        room = standing.room(first.new, len(alike)) if len(alike) > 1 else 0
        if room == len(alike):
            return
        before = [one.new for one in alike[:room]]
        standing.add_all(before)
        refusal = standing.refusal(alike[room].new, alike[room].old)
        standing.remove_all(before)
        if refusal is not None:
            raise OverBudget(f"{alike[room].after.id}: {refusal}", hint=RAISE)

    def _book(self, keys: Iterable[Key], rate: Rate, within: Span, most_ms: int) -> None:
        for key in keys:
            for window in self._windows.get(key, ()):
                for span in spans(window, *within):
                    amount = charge(rate, min(span.overlap_ms(*within), most_ms))
                    self._add(Account(key, window, span.start_ms), amount)

    def _add(self, account: Account, amount: int) -> None:
        self.spent[account] = Amount(self.spent.get(account, 0) + amount)


def _keys(driver: str, profile: str, pool: str) -> tuple[Key, ...]:
    """Whom a row counts for, as it was booked."""
    named = ((Scope.DRIVER, driver), (Scope.PROFILE, profile), (Scope.POOL, pool))
    return (EVERYTHING, *(Key(scope, name) for scope, name in named if name))


def share_rows(instance: Instance, shares: Iterable[Share], drivers: Drivers) -> list[dict[str, object]]:
    """As the table has them."""
    return [
        {
            "instance": instance.id,
            "day_ms": share.day_ms,
            "project": share.payer.project,
            "user_name": share.payer.user,
            "pool": instance.pool,
            "profile": instance.profile,
            "driver": drivers.get(instance.profile, ""),
            "rate": known_rate(instance),
            "work": share.work,
            "retry": share.retry,
            "idle": share.idle,
            "work_time": share.work_time,
            "retry_time": share.retry_time,
        }
        for share in shares
    ]


def ledger_row(instance: Instance, row: Row, gone: Departed, drivers: Drivers) -> dict[str, object]:
    """As the table has it."""
    return {
        "booked_ms": gone.gone_ms,
        "instance": instance.id,
        "pool": instance.pool,
        "profile": instance.profile,
        "driver": drivers.get(instance.profile, ""),
        "from_ms": row.from_ms,
        "until_ms": row.until_ms,
        "amount": row.amount,
        "boot": row.parts.boot,
        "work": row.parts.work,
        "idle": row.parts.idle,
        "lost": row.parts.lost,
        "bound": row.bound,
        "bound_rate": row.bound_rate,
        "bound_from_ms": row.bound_from_ms,
        "bound_until_ms": row.bound_until_ms,
        "bound_most_ms": row.bound_most_ms,
        "template": gone.template,
        "image": gone.image,
        "zone": gone.zone,
        "registered_ms": gone.registered_ms,
        "tasks": gone.tasks,
        "waiting": gone.waiting,
        "cause": gone.cause,
    }
