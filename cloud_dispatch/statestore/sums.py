"""Old rows of the ledger. Owns that what was spent for instances that are not kept any more is added up, a row for a
month of UTC, a driver, a profile and a pool, so that neither the tables nor whoever reads all of them grow with every
VM that there ever was.

A sum stands in the ledger as one instance does, under a name that none has, and its shares are the sums of theirs, by
day, project and user as before: whatever is asked of either table comes to the same micro-dollar. Limits count it in
total alone, by its `bound`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Executable, bindparam, delete, exists, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from cloud_dispatch.spend.past import MOST
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.folding import WINDOWS_MS
from cloud_dispatch.statestore.schema import instances, ledger, shares

#: When a sum was billed as far as limits ask, so that it is older than any window. No row of an instance has it.
_SUMMED_MS = 0
_CHUNK = 500
#: Added up in one commit: some 0.15 s.
MOST_SHARES = 10_000
#: A statement and its rows, none where it has no parameters.
Write = tuple[Executable, Sequence[Mapping[str, Any]]]
_l, _s = ledger.c, shares.c
#: The newest rows of the ledger, by number, are what breakers remember over a restart.
_remembered: Any = bindparam("remembered", callable_=lambda: MOST)
_ADDED = ("amount", "boot", "work", "idle", "lost", "bound", "tasks")
_MONEY = ("work", "retry", "idle")
_OF_SUM = {"rate": 0, "work_time": 0, "retry_time": 0, **dict.fromkeys(_MONEY, 0)}
_KEY = ("instance", "day_ms", "project", "user_name")
_INSERT: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def is_sum(instance: str) -> bool:
    """Whether this is the name of a sum; those of instances have no space."""
    return " " in instance


def pieces(connection: Connection, found: Sequence[int]) -> list[list[int]]:
    """These rows of the ledger in order, so many together as have `MOST_SHARES`: one of a VM that a hundred payers used
    for a month has three thousand of them."""
    many: dict[int, int] = {}
    for at in range(0, len(found), _CHUNK):
        query = select(_l.id, func.count()).join(shares, _s.instance == _l.instance)
        counted = connection.execute(query.where(_l.id.in_(found[at : at + _CHUNK])).group_by(_l.id))
        many.update((number, count) for number, count in counted)
    cut: list[list[int]] = []
    room = 0
    for number in found:
        room -= many.get(number, 0)
        if room < 0 or not cut:
            cut.append([])
            room = MOST_SHARES - many.get(number, 0)
        cut[-1].append(number)
    return cut


def may_be_added_up() -> ColumnElement[bool]:
    """Of rows of the ledger: those of an instance that is not kept, that are in no window which is open, and that no
    breaker remembers.

    How old they are is told by the newest one as well, as with charges. One without a price stays as it is: costs tell
    how many of these there are.
    """
    newest_ms = select(func.max(_l.until_ms)).scalar_subquery()
    first = select(_l.id).order_by(_l.id.desc()).limit(1).offset(_remembered).scalar_subquery()
    kept = exists().where(instances.c.id == _l.instance)
    unpriced = exists().where(_s.instance == _l.instance, _s.rate.is_(None))
    old = (_l.bound_until_ms > _SUMMED_MS) & (_l.bound_until_ms < newest_ms - WINDOWS_MS)
    return old & (_l.id <= first) & ~kept & ~unpriced


class _Sum(NamedTuple):
    """What rows of the ledger are added up to. Pages of costs go by names, in the order of the database and in that of
    Python: whether a database heeds case and signs is its collation's matter, so names differ in digits and small
    letters alone."""

    name: str
    pool: str
    profile: str
    driver: str

    @classmethod
    def of(cls, row: Any) -> _Sum:
        month = datetime.fromtimestamp(row.until_ms // 1000, UTC).strftime("%Y-%m")
        parts = (row.pool, row.profile, row.driver)
        return cls(f"{month} {sha256(' '.join(parts).encode()).hexdigest()[:16]}", *parts)


class FoldLedger:
    """Add up these rows of the ledger, with their shares; answers how many. An operation of the group commit."""

    reads = True

    def __init__(self, found: Sequence[int]) -> None:
        self._found = found
        self._many = 0
        self._writes: list[Write] = []

    def prepare(self, connection: Connection) -> None:
        """Another may have added some of them up since they were found, under the number of the first."""
        rows = _all(connection, ledger, _l.id, self._found, _l.bound_until_ms > _SUMMED_MS)
        self._many, self._writes = len(rows), []
        if not rows:
            return
        sums = {row.instance: _Sum.of(row) for row in rows}
        split = _all(connection, shares, _s.instance, list(sums))
        for at in range(0, len(rows), _CHUNK):
            part = rows[at : at + _CHUNK]
            self._writes.append((delete(ledger).where(_l.id.in_([row.id for row in part])), ()))
            self._writes.append((delete(shares).where(_s.instance.in_([row.instance for row in part])), ()))
        self._writes += _of_rows(connection, rows, sums)
        if split:
            self._writes.append((_adding(connection.dialect.name), _of_shares(split, sums)))

    def plan(self, batch: Batch) -> None:
        """Once a group: a second one has read the same rows."""
        if batch.folds_ledger:
            self._many, self._writes = 0, []
        batch.folds_ledger = batch.folds_ledger or bool(self._many)
        for statement, rows in self._writes:
            batch.write(statement, *rows)

    def answer(self, specs: Mapping[int, bytes]) -> int:
        return self._many


def _of_rows(connection: Connection, rows: Iterable[Any], sums: Mapping[str, _Sum]) -> list[Write]:
    """What brings `rows` into the ledger as sums, those that there are with them."""
    added: dict[_Sum, list[Any]] = {}
    for row in rows:
        added.setdefault(sums[row.instance], []).append(row)
    known = _all(connection, ledger, _l.instance, [one.name for one in added])
    for row in known:
        added[_Sum.of(row)].append(row)
    old = delete(ledger).where(_l.instance.in_([row.instance for row in known]))
    new = (insert(ledger), [_added_up(one, parts) for one, parts in added.items()])
    return [(old, ()), new] if known else [new]


def _of_shares(split: Iterable[Any], sums: Mapping[str, _Sum]) -> list[dict[str, Any]]:
    """The shares `split` as rows of their sums. What each payer's time was is of use where the attempts are known."""
    added: dict[tuple[Any, ...], dict[str, Any]] = {}
    for share in split:
        one = sums[share.instance]
        key = (one.name, share.day_ms, share.project, share.user_name)
        row = added.get(key)
        if row is None:
            of = {"pool": one.pool, "profile": one.profile, "driver": one.driver}
            row = added[key] = {**dict(zip(_KEY, key, strict=True)), **of, **_OF_SUM}
        for name in _MONEY:
            row[name] += getattr(share, name)
    return list(added.values())


def _adding(dialect: str) -> Executable:
    """Adds such rows to those that there are, which are not read: a sum of a thousand payers has thirty thousand."""
    new = _INSERT[dialect](shares)
    more = {name: _s[name] + new.excluded[name] for name in _MONEY}
    added: Executable = new.on_conflict_do_update(index_elements=_KEY, set_=more)
    return added


def _all(connection: Connection, table: Any, column: Any, values: Sequence[Any], within: Any = None) -> list[Any]:
    """The rows of `table` whose `column` is one of `values`."""
    found: list[Any] = []
    for at in range(0, len(values), _CHUNK):
        query = select(table).where(column.in_(values[at : at + _CHUNK]))
        found += connection.execute(query if within is None else query.where(within)).all()
    return found


def _added_up(one: _Sum, rows: Sequence[Any]) -> dict[str, Any]:
    """As the ledger has it: for the whole time of these rows, under the number of the first."""
    return {
        "id": min(row.id for row in rows),
        "booked_ms": max(row.booked_ms for row in rows),
        "instance": one.name,
        "pool": one.pool,
        "profile": one.profile,
        "driver": one.driver,
        "from_ms": min(row.from_ms for row in rows),
        "until_ms": max(row.until_ms for row in rows),
        **{name: sum(getattr(row, name) for row in rows) for name in _ADDED},
        "bound_rate": 0,
        "bound_from_ms": _SUMMED_MS,
        "bound_until_ms": _SUMMED_MS,
        "bound_most_ms": 0,
        "waiting": 0,
        **dict.fromkeys(("template", "image", "zone", "cause"), ""),
    }
