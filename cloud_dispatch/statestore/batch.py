"""What a group of calls is about to write, and how it is written. Owns the order of the statements of one transaction.

Rows of a hot statement are gathered over all calls of the group and written by one `executemany` on the driver's own
cursor, with the text that SQLAlchemy compiled from the one schema. A task has one row in a group, its last: whatever
happens to it in between, it is updated once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, ClassVar

from sqlalchemy import Executable, bindparam, insert, null, select, update
from sqlalchemy.engine import Connection, Dialect

from cloud_dispatch.domain.errors import OverBudget
from cloud_dispatch.domain.ids import InstanceId, VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.task import TaskSpec, TaskState
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.statestore import paying
from cloud_dispatch.statestore.engine import BEGIN_WRITING
from cloud_dispatch.statestore.lineage import COMMIT, AnotherPast, last_commit
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.purse import Charge
from cloud_dispatch.statestore.queue import Lot
from cloud_dispatch.statestore.schema import attempts, charges, counters, specs, tasks
from cloud_dispatch.statestore.seats import Hold

#: Specifications are read in statements of this many ids, the last one filled up.
_READ_SIZES = (1, 16, 128)

_t = tasks.c
_UPDATE_LIVE = (
    update(tasks)
    .where(_t.id == bindparam("task"))
    .values(
        {
            c: bindparam(f"v_{c.name}")
            for c in (_t.state, _t.priority, _t.attempts, _t.token, _t.instance, _t.claimed_ms)
        }
        | {_t.started_ms: bindparam("v_started_ms")}
    )
)
_UPDATE_ENDED = (
    update(tasks)
    .where(_t.id == bindparam("task"))
    .values(
        {c: bindparam(f"v_{c.name}") for c in (_t.state, _t.attempts, _t.ended_ms)}
        | {c: null() for c in (_t.token, _t.instance, _t.claimed_ms, _t.started_ms)}
    )
)
_UPDATE_COUNTER = (
    update(counters)
    .where(counters.c.name == bindparam("counter"), counters.c.value == bindparam("kept"))
    .values({counters.c.value: bindparam("new")})
)
_COUNTER_ORDER = ("new", "counter", "kept")
_LIVE_ORDER = ("v_state", "v_priority", "v_attempts", "v_token", "v_instance", "v_claimed_ms", "v_started_ms", "task")
_ENDED_ORDER = ("v_state", "v_attempts", "v_ended_ms", "task")
TASK_ORDER = tuple(c.name for c in tasks.c)
ATTEMPT_ORDER = tuple(c.name for c in attempts.c)
SPEC_ORDER = ("task", "body")
CHARGE_ORDER = tuple(c.name for c in charges.c)


#: Plain text of each state, as drivers take it fastest.
STATE_TEXT = {state: state.value for state in TaskState}
_CLAIMED = STATE_TEXT[TaskState.CLAIMED]


class Batch:
    """The rows of one transaction, in the making."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.new_tasks: list[tuple[Any, ...]] = []
        self.new_specs: list[tuple[int, bytes]] = []
        self.live: dict[int, tuple[Any, ...]] = {}
        self.ended: dict[int, tuple[Any, ...]] = {}
        self.attempts: list[tuple[Any, ...]] = []
        self.charges: list[Charge] = []
        self.read_specs: list[int] = []
        self.before: list[tuple[Executable, Sequence[Mapping[str, Any]]]] = []
        self.after: list[tuple[Executable, Sequence[Mapping[str, Any]]]] = []
        self.instances: dict[str, Instance] = {}
        self.vms: dict[VmId, InstanceId] = {}  # those that become an instance's in this group
        self.keys: dict[str, tuple[int, TaskSpec]] = {}  # idempotency keys first seen in this group
        self.effects: list[Callable[[], object]] = []  # on the memory, after the commit
        self.queued: dict[int, int] = {}  # tasks put into the queue, by shape number
        self.pruned: set[int] = set()  # ended tasks that this group deletes
        self.folds = False  # whether it adds up old charges
        self.folds_ledger = False  # and old rows of the ledger
        self._standing: Standing | None = None
        self.cold = 0  # rows of the cold paths, each of which is some 30 us of planning and as much of writing
        self.counters: Mapping[str, tuple[int, int]] = {}  # by name, the number and the one that the tables have
        self.serial = 0  # the transaction's number

    def task_queued(self, task: int, lot: Lot) -> None:
        self.live[task] = (STATE_TEXT[TaskState.QUEUED], lot.priority, lot.attempts, None, None, None, None, task)

    def task_claimed(self, hold: Hold, lot: Lot, instance: str) -> None:
        """A fresh claim: as `task_held`, with the row's specification to be read after the commit."""
        task = hold.task
        self.live[task] = (_CLAIMED, lot.priority, lot.attempts, hold.token, instance, hold.claimed_ms, None, task)
        self.read_specs.append(task)

    def task_held(self, hold: Hold) -> None:
        lot = hold.lot
        self.live[hold.task] = (
            STATE_TEXT[hold.state], lot.priority, lot.attempts, hold.token, hold.seat.instance.id, hold.claimed_ms,
            hold.started_ms, hold.task,
        )  # fmt: skip

    def bring_unwritten(self) -> None:
        """Write starts that the memory alone knows, where this group does not write their tasks anyway."""
        for task, hold in self.memory.unwritten.items():
            if self.memory.holds.get(task) is hold and task not in self.live:
                self.task_held(hold)

    def task_ended(self, task: int, state: TaskState, attempts_ended: int, now: int) -> None:
        self.live.pop(task, None)
        self.ended[task] = (STATE_TEXT[state], attempts_ended, now, task)

    def instance(self, instance: str) -> Instance | None:
        """An instance as this group leaves it so far; None for one that is unknown or gone already."""
        changed = self.instances.get(instance)
        if changed is not None:
            return changed
        seat = self.memory.seats.get(instance)  # type: ignore[call-overload]
        return seat.instance if seat else None

    def holder(self, vm: VmId) -> InstanceId | None:
        """The instance that `vm` is, as this group leaves it so far."""
        seat = self.memory.vms.get(vm)
        found = self.vms.get(vm) or (seat.instance.id if seat else None)
        left = found and self.instances.get(found)
        return None if left and left.state is InstanceState.GONE else found

    def admit(self, changes: Sequence[tuple[Instance | None, Instance]], now: int) -> None:
        """Check what instances may cost after a change (None: they are new) against all budgets; OverBudget when one
        of them does not admit it. Each check of a group sees what the ones before it were admitted."""
        purse = self.memory.purse
        if not purse.budgets:
            return
        if self._standing is None:
            # One that leaves in this group keeps its commitment: its row counts only from the commit on.
            staying = {name: own for name, own in self.instances.items() if own.state is not InstanceState.GONE}
            living = {name: seat.instance for name, seat in self.memory.seats.items()} | staying
            self._standing = purse.standing(living.values(), now, follows=True)
        purse.admit(self._standing, changes)
        try:
            paying.raise_all(self.memory, [after for before, after in changes if before is not None], now)
        except OverBudget:
            self._standing = None  # it counts what is not admitted after all
            raise

    def appeared(self, instance: Instance) -> None:
        """An instance is there that nobody was asked for; what it may cost counts from here on."""
        self.instances[instance.id] = instance
        self.recount()

    def recount(self) -> None:
        """What everything may cost changed without having been asked for."""
        self._standing = None

    def write(self, statement: Executable, *rows: Mapping[str, Any]) -> None:
        """A statement of the cold paths, run after the hot ones in the order given."""
        self.after.append((statement, rows))
        self.cold += max(len(rows), 1)

    @property
    def writes(self) -> bool:
        return bool(
            self.new_tasks or self.live or self.ended or self.attempts or self.before or self.after or self.counters
        )


class Statements:
    """The hot statements as text of one database, with positional parameters."""

    _known: ClassVar[dict[tuple[str, str], Statements]] = {}

    @classmethod
    def of(cls, dialect: Dialect) -> Statements:
        """Those of this kind of database, put into words once a process."""
        kind = dialect.name, dialect.paramstyle
        if kind not in cls._known:
            cls._known[kind] = cls(dialect)
        return cls._known[kind]

    def __init__(self, dialect: Dialect) -> None:
        #: What begins a transaction that writes; empty where the driver does it by itself.
        self.begin = BEGIN_WRITING.get(dialect.name, "")
        self.new_task = self._compile(dialect, insert(tasks), TASK_ORDER)
        self.new_spec = self._compile(dialect, insert(specs), SPEC_ORDER)
        self.live = self._compile(dialect, _UPDATE_LIVE, _LIVE_ORDER)
        self.ended = self._compile(dialect, _UPDATE_ENDED, _ENDED_ORDER)
        self.attempt = self._compile(dialect, insert(attempts), ATTEMPT_ORDER)
        self.charge = self._compile(dialect, insert(charges), CHARGE_ORDER)
        self.counter = self._compile(dialect, _UPDATE_COUNTER, _COUNTER_ORDER)
        self.read = {
            size: self._compile(
                dialect,
                select(specs.c.task, specs.c.body).where(specs.c.task.in_([bindparam(f"t{i}") for i in range(size)])),
                tuple(f"t{i}" for i in range(size)),
            )
            for size in _READ_SIZES
        }

    @staticmethod
    def _compile(dialect: Dialect, statement: Any, order: tuple[str, ...]) -> str:
        compiled = statement.compile(dialect=dialect, column_keys=None)
        names = tuple(compiled.positiontup or ())
        if names != order:
            raise AssertionError(f"parameters are {names}, the rows are made for {order}")
        return str(compiled)


def perform(connection: Connection, statements: Statements, batch: Batch) -> dict[int, bytes]:
    """Write the batch in one transaction and commit it; returns the specifications that it asked to read.

    Raises what the database raises, and AnotherPast; nothing is written then.
    """
    if not (batch.before or batch.after):
        return _perform_hot(connection.connection.dbapi_connection, statements, batch)
    with connection.begin():
        with closing(connection.connection.cursor()) as cursor:
            _count_on(cursor, statements, batch)
        for statement, rows in batch.before:
            connection.execute(statement, list(rows))
        with closing(connection.connection.cursor()) as cursor:
            _write_hot(cursor, statements, batch)
        for statement, rows in _together(batch.after):
            connection.execute(statement, rows or None)
        with closing(connection.connection.cursor()) as cursor:
            return read_specs(cursor, statements, batch.read_specs)


def _together(
    writes: Iterable[tuple[Executable, Sequence[Mapping[str, Any]]]],
) -> Iterator[tuple[Executable, list[Mapping[str, Any]]]]:
    """`writes` in their order, those that follow one another with the same statement as one: a call of the database
    costs as much as many rows (a thousand changed instances: 70 ms, and 10 ms so)."""
    last: tuple[Executable, list[Mapping[str, Any]]] | None = None
    for statement, rows in writes:
        if last is not None and rows and last[1] and last[0] is statement:
            last[1].extend(rows)
            continue
        if last is not None:
            yield last
        last = (statement, list(rows))
    if last is not None:
        yield last


def _perform_hot(driver: Any, statements: Statements, batch: Batch) -> dict[int, bytes]:
    """`perform` without statements of the cold paths, as nearly every group is: the driver's own transaction, since
    SQLAlchemy's took as long as one of the writes."""
    cursor = driver.cursor()
    try:
        if statements.begin:
            cursor.execute(statements.begin)
        _count_on(cursor, statements, batch)
        _write_hot(cursor, statements, batch)
        specs = read_specs(cursor, statements, batch.read_specs)
        driver.commit()
    except BaseException:
        with suppress(Exception):  # what went wrong first is what is told
            driver.rollback()
        raise
    finally:
        cursor.close()
    return specs


def landed(connection: Connection, batch: Batch) -> bool:
    """Whether the batch's transaction was committed, whatever its caller heard; no other may have come since.
    AnotherPast where the tables have neither that nor the one before it."""
    last = last_commit(connection)
    if last not in (batch.serial, batch.serial - 1):
        raise AnotherPast(f"its last transaction is {last}")
    return last == batch.serial


def _write_hot(cursor: Any, statements: Statements, batch: Batch) -> None:
    for text, rows in (
        (statements.new_task, batch.new_tasks),
        (statements.new_spec, batch.new_specs),
        (statements.live, batch.live.values()),
        (statements.ended, batch.ended.values()),
        (statements.attempt, batch.attempts),
        (statements.charge, batch.charges),
    ):
        if rows:
            cursor.executemany(text, rows)


def _count_on(cursor: Any, statements: Statements, batch: Batch) -> None:
    """Move the counters on from where the last transaction left them; before all else, since nothing fits into tables
    that are not those of then (brought back by a failover, or changed by another)."""
    rows = [(batch.serial, COMMIT, batch.serial - 1)]
    rows += [(new, name, kept) for name, (new, kept) in batch.counters.items()]
    cursor.executemany(statements.counter, rows)
    if cursor.rowcount != len(rows):
        raise AnotherPast("its counters are not those of the last transaction")


def read_specs(cursor: Any, statements: Statements, wanted: Sequence[int]) -> dict[int, bytes]:
    """The bodies of the specifications of these tasks, by a driver's cursor."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(wanted):
        left = len(wanted) - at
        size = next((s for s in _READ_SIZES if s >= left), _READ_SIZES[-1])
        part = wanted[at : at + size]
        cursor.execute(statements.read[size], (*part, *[part[-1]] * (size - len(part))))
        found.update(cursor.fetchall())
        at += size
    return found
