"""Old charges of payers. Owns that those which lie in no window any more are added up, a row a payer, so that neither
their table nor the reading of it at a start grows with every claim that there ever was.

A limit without a window counts them for ever: what is deleted is in a sum that the same transaction writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.engine import Connection

from cloud_dispatch.spend.windows import DAY_MS
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.schema import charges

#: What ended so long before the newest of them is in no hour, day or month that is open, also where that one was noted
#: by a clock that was ahead by a month.
WINDOWS_MS = 62 * DAY_MS
#: When a sum has ended, so that it is older than any window and only counts in total, by its amount. No charge has.
_SUMMED_MS = 0
_CHUNK = 500
_c = charges.c
_ROWS = select(_c.token, _c.project, _c.user_name, _c.amount)
#: The row of a payer's first charge becomes that of his sum.
_SUM = (
    update(charges)
    .where(_c.token == bindparam("which"))
    .values(task=0, instance="", from_ms=_SUMMED_MS, until_ms=_SUMMED_MS, rate=0, amount=bindparam("whole"))
)


class Fold:
    """Add old charges up, at most `most` a call; answers how many. An operation of the group commit.

    How old they are is told by the newest one as well: a dispatcher that starts with a clock far ahead would else take
    them out of windows that are open.
    """

    reads = True

    def __init__(self, now_ms: int, most: int) -> None:
        self._before_ms = now_ms - WINDOWS_MS
        self._most = most
        self._sums: dict[int, int] = {}  # by the token of its row, what it becomes
        self._added: list[int] = []  # the tokens of the others
        self._found = 0

    def prepare(self, connection: Connection) -> None:
        newest_ms = connection.scalar(select(func.max(_c.until_ms))) or 0
        before_ms = min(self._before_ms, newest_ms - WINDOWS_MS)
        old = _ROWS.where(_c.until_ms > _SUMMED_MS, _c.until_ms < before_ms)
        found = connection.execute(old.order_by(_c.until_ms).limit(self._most)).all()
        self._sums, self._added, self._found = {}, [], len(found)
        if not found:
            return
        kept: dict[tuple[str, str], int] = {}
        known: dict[int, int] = {}
        for token, project, user, amount in connection.execute(_ROWS.where(_c.until_ms == _SUMMED_MS)):
            kept[project, user], known[token] = token, amount
        for token, project, user, amount in found:
            place = kept.setdefault((project, user), token)
            self._sums[place] = self._sums.get(place, known.get(place, 0)) + amount
            if place != token:
                self._added.append(token)

    def plan(self, batch: Batch) -> None:
        """Once a group: a second one has read the same charges, and may make a sum of fewer of them."""
        if batch.folds:
            self._sums, self._added, self._found = {}, [], 0
        if not self._found:
            return
        batch.folds = True
        batch.write(_SUM, *({"which": place, "whole": whole} for place, whole in self._sums.items()))
        for at in range(0, len(self._added), _CHUNK):
            batch.write(delete(charges).where(_c.token.in_(self._added[at : at + _CHUNK])))

    def answer(self, specs: Mapping[int, bytes]) -> int:
        return self._found
