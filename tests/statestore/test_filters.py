"""What a filter asks for is found by its index: the number of tasks that are kept costs nothing."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.ports.store import TaskFilter
from cloud_dispatch.statestore import reading
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.statestore.tasks import Cancel
from cloud_dispatch.testing.store_builders import ManualClock

WHERE = {
    "tasks_project": TaskFilter(project="p"),
    "tasks_user_name": TaskFilter(user="u"),
    "tasks_array_id": TaskFilter(array_id="a"),
}


@pytest.mark.parametrize("index", WHERE)
def test_a_filter_uses_its_index(migrated_sqlite_url: str, index: str) -> None:
    """In lists either way, in counts, and where what matches is cancelled. The index leaves out what has no value, and
    SQLite takes it only where the question says the same."""
    engine, where = make_engine(parse_url(migrated_sqlite_url)), WHERE[index]
    asked: list[tuple[str, Any]] = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, text: str, values: object, *_: object) -> None:
        asked.append((text, values))

    with engine.connect().execution_options(reading=True) as connection:
        reading.list_tasks(connection, where, TaskId(0), None, 10)
        reading.page_of_tasks(connection, where, TaskId(0), TaskId(99), 10, 1_000)
        reading.count_tasks(connection, where, 0)
        Cancel(where, ManualClock()).prepare(connection)
        plans = [
            " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values))
            for text, values in list(asked)
        ]
    engine.dispose()
    assert len(plans) == 4
    assert [plan for plan in plans if f"INDEX {index} (" not in plan] == []
