"""Who used an instance, as the tables of tasks and attempts have it. Owns which attempts counted, and how they are
added up: by the database, since an instance may have had hundreds of thousands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, bindparam, case, func, literal_column, select
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.domain.task import Cause, TaskState
from cloud_dispatch.spend.shares import Use, use_of, weight_of
from cloud_dispatch.spend.windows import FOREVER_MS
from cloud_dispatch.statestore.schema import attempts, tasks
from cloud_dispatch.statestore.stretches import of_instance

#: Ends of attempts whose work is lost with their instance.
LOST = frozenset({Cause.INSTANCE_LOST.value, Cause.PREEMPTED.value})
_SUCCESS, _CANCELLED = Cause.SUCCESS.value, Cause.CANCELLED.value
_FAILED_TASK, _CANCELLED_TASK = TaskState.FAILED.value, TaskState.CANCELLED.value
_UNDONE = [*sorted(LOST), _CANCELLED]
_CHUNK = 500
_DAY: Any = literal_column("86400000", BigInteger)
_a, _t = attempts.c, tasks.c
_COUNTED = case(
    (_a.cause == _SUCCESS, 1),
    ((_a.number == _t.attempts) & (_t.state == _FAILED_TASK) & _a.cause.not_in(_UNDONE), 1),
    ((_a.number == _t.attempts) & (_t.state == _CANCELLED_TASK) & (_a.cause == _CANCELLED), 1),
    else_=0,
)
_UNTIL = bindparam("until", type_=BigInteger)
_STARTED = case((_a.started_ms > _UNTIL, _UNTIL), else_=_a.started_ms)
_ENDED = case((_a.ended_ms > _UNTIL, _UNTIL), else_=_a.ended_ms)


def _ran(*columns: Any) -> Any:
    """Of the attempts that started on the instance `which`, cut off at `until`."""
    which: Any = bindparam("which")
    return of_instance(which, *columns).join(tasks, _t.id == _a.task).where(_a.started_ms.is_not(None))


def _added_up() -> Any:
    each = _ran(
        _t.project, _t.user_name, _t.shape, _COUNTED.label("counted"),
        (_STARTED // _DAY).label("first_day"), (_ENDED // _DAY).label("last_day"),
        (_STARTED % _DAY).label("head"), (_ENDED % _DAY).label("tail"),
    ).subquery()  # fmt: skip
    alike = [each.c[name] for name in ("project", "user_name", "shape", "counted", "first_day", "last_day")]
    return select(*alike, func.sum(each.c.head), func.sum(each.c.tail), func.count()).group_by(*alike)


_ADDED_UP = _added_up()
_ONE_BY_ONE = _ran(
    _a.token, _a.task, _t.project, _t.user_name, _t.shape, _COUNTED, _STARTED.label("began"), _ENDED.label("left"),
)  # fmt: skip


class Alike(NamedTuple):
    """A use, but for the weight of its shape, which hangs on the machine; `shape` is the store's number of it."""

    shape: int
    use: Use


class Ran(NamedTuple):
    """An attempt, or a lease that runs, on some instance."""

    token: int
    task: int
    alike: Alike


def used_on(connection: Connection, instance: str, until_ms: int | None = None) -> list[Alike]:
    """What the ended attempts on an instance used of it, those that began and ended on the same days added up.
    Nothing is used after `until_ms`."""
    rows = connection.execute(_ADDED_UP, {"which": instance, "until": _until(until_ms)})
    return [
        Alike(shape, Use(Payer(project, user), bool(counted), 1, first, last, int(head), int(tail), count))
        for project, user, shape, counted, first, last, head, tail, count in rows
    ]


def each_on(connection: Connection, instance: str, until_ms: int | None = None) -> list[Ran]:
    """The ended attempts on an instance, one by one."""
    payer = cache(Payer)
    rows = connection.execute(_ONE_BY_ONE, {"which": instance, "until": _until(until_ms)})
    return [
        Ran(token, task, Alike(shape, use_of(payer(project, user), bool(counted), 1, began, left)))
        for token, task, project, user, shape, counted, began, left in rows
    ]


def askers_of(connection: Connection, ids: Iterable[int]) -> dict[int, tuple[Payer, int]]:
    """Whose each of these tasks is, and the number of its shape."""
    wanted, found = sorted(ids), {}
    for at in range(0, len(wanted), _CHUNK):
        query = select(_t.id, _t.project, _t.user_name, _t.shape).where(_t.id.in_(wanted[at : at + _CHUNK]))
        found.update({task: (Payer(project, user), shape) for task, project, user, shape in connection.execute(query)})
    return found


def counts(cause: str, state: str | None) -> bool:
    """`_COUNTED` of an attempt that ends now: whether its outcome does. `state` is how its task ended with it, None: it
    goes on."""
    if cause == _SUCCESS:
        return True
    return (state == _FAILED_TASK and cause not in _UNDONE) or (state == _CANCELLED_TASK and cause == _CANCELLED)


def weigher(machine: Machine, shape_by: Callable[[int], Shape]) -> Callable[[Alike], Use]:
    """Gives uses of `machine` their weight, by the numbers of their shapes."""

    @cache
    def weight(shape: int) -> int:
        return weight_of(machine, shape_by(shape))

    return lambda alike: alike.use._replace(weight=weight(alike.shape))


def _until(until_ms: int | None) -> int:
    return FOREVER_MS if until_ms is None else until_ms
