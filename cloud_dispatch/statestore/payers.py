"""Payers with a limit: what their claims may cost, in memory. Owns the sums of it, and who was refused.

A payer without a limit is not known here, and costs nothing. Whatever changes here can be changed back: the memory's
journal does it when a commit fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.payer import NOBODY, Payer, Refused
from cloud_dispatch.spend.commitment import OF_PAYERS, Commitment, Key
from cloud_dispatch.spend.payers import Wanted, admitted, keys_of_payer
from cloud_dispatch.spend.standing import Refusal, Standing
from cloud_dispatch.spend.windows import span_at
from cloud_dispatch.statestore.purse import Purse


class Paid(NamedTuple):
    """What is committed for a claim: until its VM's end, and until `reserved_ms` even if that comes earlier.
    `unknown`: nobody knows how long its task takes."""

    commitment: Commitment
    reserved_ms: int
    unknown: bool

    def until(self, instance: Instance) -> Paid:
        """With the end that `instance` has."""
        until_ms = max(instance.known_last_ms, self.reserved_ms, self.commitment.from_ms)
        return self._replace(commitment=replace(self.commitment, until_ms=until_ms))


class _Refused(NamedTuple):
    """A claim that a payer was refused, of a task that is expected to take `expected_ms`, 0 unknown."""

    payer: Payer
    expected_ms: int
    wanted: Wanted


class Payers:
    """See the module."""

    def __init__(self, purse: Purse | None = None, now_ms: int = 0) -> None:
        purse = purse or Purse()
        budgets = [budget for budget in purse.budgets if budget.key.scope in OF_PAYERS]
        self.terms = purse.terms
        self._budgets = budgets
        self.keys = frozenset(budget.key for budget in budgets)
        #: By key, why none of its tasks is begun now.
        self.stopped: Mapping[Key, str] = {}
        self._standing = Standing(budgets, purse.spent, (), now_ms)
        self._paid: dict[int, Paid] = {}
        self._tried: dict[Key, int] = {}
        self._settling: dict[int, Commitment] = {}  # by token: ended, and its row not written yet
        self._refused: dict[tuple[int, bool], _Refused] = {}  # by line, and whether the length is known

    def covers(self, payer: Payer) -> bool:
        """Whether a limit bounds what `payer` spends."""
        return payer is not NOBODY and not self.keys.isdisjoint(keys_of_payer(payer))

    def commitments(self) -> Iterator[Commitment]:
        """Of all claims of payers with a limit; those that have ended as long as their rows are not written."""
        yield from (paid.commitment for paid in self._paid.values())
        yield from self._settling.values()

    def trying(self, payer: Payer) -> bool:
        """Whether a claim of unknown length counts for what `payer` counts for."""
        return any(self._tried.get(key) for key in keys_of_payer(payer))

    # -- claims
    def judge(self, payer: Payer, wanted: Wanted, now_ms: int) -> Paid | str:
        """What is committed for a claim that is made now, or why it is not admitted."""
        stopped = self.stops(payer)
        if stopped:
            return stopped
        self._standing.advance(now_ms)
        found = admitted(self._standing, wanted, trying=self.trying(payer))
        if isinstance(found, str):
            return found
        whole = found if found is wanted.whole else None
        return Paid(found, found.until_ms if whole is not None else found.from_ms, wanted.trial is not None)

    def of(self, task: int) -> Paid | None:
        return self._paid.get(task)

    def put(self, task: int, paid: Paid) -> None:
        """From here on its claim counts."""
        self._paid[task] = paid
        self._standing.add(paid.commitment)
        self._count(paid, 1)

    def take(self, task: int) -> Paid:
        """From here on it does not."""
        paid = self._paid.pop(task)
        self._standing.remove(paid.commitment)
        self._count(paid, -1)
        return paid

    def admits(self, commitment: Commitment) -> bool:
        """Whether there is room for it."""
        return self._standing.refusal(commitment) is None

    def refusal(self, task: int, paid: Paid, now_ms: int) -> Refusal | None:
        """Why what is committed for the claim can't become `paid`; None when it can."""
        self._standing.advance(now_ms)
        return self._standing.refusal(paid.commitment, self._paid[task].commitment)

    def settle(self, token: int, charged: Commitment) -> None:
        """A claim has ended, and its row will be written."""
        self._settling[token] = charged
        self._standing.add(charged)

    def unsettle(self, token: int) -> None:
        """Its row counts instead, or the claim has not ended after all."""
        charged = self._settling.pop(token, None)
        if charged is not None:
            self._standing.remove(charged)

    def adds_up(self) -> bool:
        """Whether what is counted is what the claims are committed to, now and in all later windows."""
        now_ms = self._standing.now_ms
        anew = Standing(self._budgets, {}, self.commitments(), now_ms)
        moments = (now_ms, *(one.billed_until_ms for one in self.commitments()))
        places = {(budget, span_at(budget.window, max(at, now_ms))) for budget in self._budgets for at in moments}
        tried = sum(paid.unknown * len(paid.commitment.keys) for paid in self._paid.values())
        return tried == sum(self._tried.values()) and all(
            self._standing.committed(budget, span) == anew.committed(budget, span) for budget, span in places
        )

    # -- who waits for money
    def refuse(self, line: int, payer: Payer, expected_ms: int, wanted: Wanted) -> None:
        """Remember what was not admitted, where it wanted to go, of the tasks of `line` that take so long or longer. Of
        two claims the one of less cost says more of other places."""
        key = (line, expected_ms > 0)
        known = self._refused.get(key)
        if known is None or known.expected_ms != expected_ms or wanted.cost < known.wanted.cost:
            self._refused[key] = _Refused(payer, expected_ms, wanted)

    def admit(self, line: int, expected_ms: int) -> None:
        """One of it that takes so long was."""
        known = self._refused.get((line, expected_ms > 0))
        if known is not None and known.expected_ms <= expected_ms:
            del self._refused[line, expected_ms > 0]

    def refused(self, line: int, now_ms: int) -> tuple[Refused, ...]:
        """What of `line` would be refused now as it was; what would not is forgotten."""
        found = []
        for key in ((line, True), (line, False)):
            one = self._refused.get(key)
            if one is not None:
                why = self.judge(one.payer, one.wanted.at(now_ms), now_ms)
                if isinstance(why, str):
                    found.append(Refused(one.expected_ms, one.wanted.cost, why))
                else:
                    del self._refused[key]
        return tuple(found)

    def forget(self, lines: Iterable[int]) -> None:
        """Nothing waits in any of these, nor will."""
        for line in lines:
            for known in (True, False):
                self._refused.pop((line, known), None)

    def stops(self, payer: Payer) -> str:
        """Why none of its tasks is begun now, whatever they cost; "" when there is no reason."""
        if not self.stopped:
            return ""
        return next((self.stopped[key] for key in keys_of_payer(payer) if key in self.stopped), "")

    def _count(self, paid: Paid, by: int) -> None:
        if paid.unknown:
            for key in paid.commitment.keys:
                self._tried[key] = self._tried.get(key, 0) + by
