"""Shapes that no task asks for any more. Owns that they are forgotten, in the tables and in the memory: where each day
brings its own (a label by run, a memory by input), they were hundreds of thousands after a few years."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, bindparam, delete, exists, select
from sqlalchemy.engine import Connection

from cloud_dispatch.statestore.batch import TASK_ORDER, Batch
from cloud_dispatch.statestore.schema import shapes, tasks

_CHUNK = 100
_SHAPE = TASK_ORDER.index("shape")
_DELETE = delete(shapes).where(shapes.c.id == bindparam("which"))


def is_unasked() -> ColumnElement[bool]:
    """Of shapes: no task has it that is kept, ended or not."""
    return ~exists().where(tasks.c.shape == shapes.c.id)


class Forget:
    """Forget the first of these shapes, as far as no task has them by now; answers how many. For the others, which are
    `left`, it wants another one. An operation of the group commit."""

    reads = True

    def __init__(self, found: Sequence[int]) -> None:
        self._found = found
        self._unasked: set[int] = set()
        self._gone: set[int] = set()
        self.left: Sequence[int] = ()

    def prepare(self, connection: Connection) -> None:
        """A task may have been submitted since they were found, or another may have forgotten them."""
        part = shapes.c.id.in_(self._found[:_CHUNK])
        self._unasked = set(connection.scalars(select(shapes.c.id).where(part, is_unasked())))

    def plan(self, batch: Batch) -> None:
        """Before whatever else is written: the same shape may come back in this group, under another number."""
        asked, known = {row[_SHAPE] for row in batch.new_tasks}, batch.memory.shapes
        unasked = sorted(number for number in self._unasked - asked if number in known)
        self._gone = batch.memory.forget_shapes(unasked) if unasked else set()
        self.left = [*(number for number in unasked if number not in self._gone), *self._found[_CHUNK:]]
        if self._gone:
            batch.before.append((_DELETE, [{"which": number} for number in sorted(self._gone)]))
            batch.cold += len(self._gone)

    def answer(self, specs: Mapping[int, bytes]) -> int:
        return len(self._gone)
