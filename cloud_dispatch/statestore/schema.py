"""The tables, once for every database. Owns names, types and indexes; must not know who reads or writes them.

What the hot path touches is kept small: a claim updates one narrow row of `tasks` and no index; the end of a claim
inserts one row into `attempts` and updates one of `tasks`. Specifications are written once and live apart, so that a
claim does not rewrite them. `tasks_live` is the index that a start reads; its predicate hangs on `ended_ms` alone,
which a claim never sets.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_unique",
        "fk": "%(table_name)s_%(column_0_N_name)s_fk",
        "pk": "%(table_name)s_pk",
    }
)
#: 64 bits everywhere; in SQLite it has to be called INTEGER to be the row's own number.
Number = BigInteger().with_variant(Integer(), "sqlite")


def _number(name: str, *, null: bool = False, **more: Any) -> Column[Any]:
    return Column(name, Number, nullable=null, **more)


def _text(name: str, *, null: bool = False, **more: Any) -> Column[Any]:
    return Column(name, Text, nullable=null, **more)


shapes = Table(
    "shapes",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    _text("key", unique=True),
    Column("body", LargeBinary, nullable=False),  # JSON of domain.Shape
)

tasks = Table(
    "tasks",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    _text("state"),
    _number("priority"),
    _number("attempts"),
    # The current lease, all null without one.
    _number("token", null=True),
    _text("instance", null=True),
    _number("claimed_ms", null=True),
    _number("started_ms", null=True),
    _number("ended_ms", null=True),  # null exactly while the task is live
    _number("submitted_ms"),
    _number("expected_ms"),
    Column("shape", Number, ForeignKey("shapes.id"), nullable=False),
    Column("retry", LargeBinary, nullable=True),  # JSON of domain.RetryRules; null: the default rules
    _text("project"),
    _text("user_name"),
    _text("name"),
    _text("array_id"),
    _text("idempotency_key", null=True),
)
Index("tasks_live", tasks.c.id, sqlite_where=tasks.c.ended_ms.is_(None), postgresql_where=tasks.c.ended_ms.is_(None))
Index(
    "tasks_key",
    tasks.c.idempotency_key,
    unique=True,
    sqlite_where=tasks.c.idempotency_key.is_not(None),
    postgresql_where=tasks.c.idempotency_key.is_not(None),
)
for _column in (tasks.c.array_id, tasks.c.project, tasks.c.user_name):
    Index(f"tasks_{_column.name}", _column, tasks.c.id, sqlite_where=_column != "", postgresql_where=_column != "")
#: Those of one submission have the same shape mostly: it grows in few places. Whoever deletes a shape asks it.
Index("tasks_shape", tasks.c.shape)

#: What a user asked for, as JSON of domain.TaskSpec: the bytes that the agent gets.
specs = Table(
    "specs",
    metadata,
    Column("task", Number, ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)

#: Attempts that ended; append-only. A claim that went back unstarted leaves no row.
attempts = Table(
    "attempts",
    metadata,
    Column("task", Number, ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("token", Number, primary_key=True, autoincrement=False),
    _number("number"),
    _text("instance"),
    _number("claimed_ms"),
    _number("started_ms", null=True),
    _number("ended_ms"),
    _text("cause"),
    _number("exit_code", null=True),
    _number("signal", null=True),
    _text("detail"),
    _number("max_rss"),
    _number("cpu_ms"),
    Column("manifest", LargeBinary, nullable=True),  # JSON of its artifacts; null: none
    # Of `token`; see `statestore.stretches`: an index by instance made an attempt cost 18 instead of 13 µs.
    _number("stretch"),
    _number("told_ms", null=True),  # when its end became known; null: of before this was kept, then
    sqlite_with_rowid=False,
)
Index("attempts_instance", attempts.c.stretch, attempts.c.instance)

instances = Table(
    "instances",
    metadata,
    _text("id", primary_key=True),
    _text("batch"),
    _text("pool"),
    _text("profile"),
    _text("type"),
    _text("zone"),
    _text("market"),
    Column("machine", LargeBinary, nullable=False),  # JSON of domain.Machine
    _number("vcpus"),
    _number("rate", null=True),
    _text("state"),
    _number("intended_ms"),
    _number("ends_ms"),
    _number("boot_deadline_ms"),
    _text("behaviour"),
    _text("vm"),
    _number("launched_ms", null=True),
    _number("registered_ms", null=True),
    _number("drain_token"),
    _number("ended_ms", null=True),
    _text("reason"),
    _text("cause"),
    _number("busy_ms"),
    _number("minimum_ms"),
    _number("increment_ms"),
    _number("max_rate", null=True),
    _number("end_lag_ms", null=True),
    _number("extra_rate", server_default="0"),
    _text("template", server_default=text("''")),
    _text("image", server_default=text("''")),
)
Index("instances_state", instances.c.state, instances.c.ended_ms)

#: What was spent; kept when instances are pruned, added up when old (`sums`). Micro-dollars, and rates in nano-dollars
#: an hour.
ledger = Table(
    "ledger",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    _number("booked_ms"),
    _text("instance"),
    _text("pool"),
    _text("profile"),
    _text("driver"),
    # What it was billed for, as far as the price is known.
    _number("from_ms"),
    _number("until_ms"),
    _number("amount"),
    _number("boot"),
    _number("work"),
    _number("idle"),
    _number("lost"),
    # What counts against limits: the highest price between the earliest moment and the latest, so long at most.
    _number("bound"),
    _number("bound_rate"),
    _number("bound_from_ms"),
    _number("bound_until_ms"),
    _number("bound_most_ms"),
    # What it was made from, and what came of it: see `spend.breaker.Departed`.
    _text("template"),
    _text("image"),
    _text("zone"),
    _number("registered_ms", null=True),
    _number("tasks"),
    _number("waiting"),
    _text("cause"),
)
Index("ledger_until_ms", ledger.c.until_ms)
Index("ledger_instance", ledger.c.instance)

#: Whose money a row of the ledger was: by day of UTC, project and user, of which both are empty where nobody said or
#: nothing ran. Kept and added up with the ledger. Micro-dollars; the times are weighed (`spend.shares`).
shares = Table(
    "shares",
    metadata,
    _text("instance", primary_key=True),
    _number("day_ms", primary_key=True, autoincrement=False),
    _text("project", primary_key=True),
    _text("user_name", primary_key=True),
    _text("pool"),
    _text("profile"),
    _text("driver"),
    _number("rate", null=True),  # of the VM, as far as it was known
    _number("work"),
    _number("retry"),
    _number("idle"),
    _number("work_time"),
    _number("retry_time"),
    sqlite_with_rowid=False,
)
Index("shares_day_ms", shares.c.day_ms)

#: What claims have cost payers that had a limit; kept when tasks are pruned, added up when old (`folding`). Units as in
#: `ledger`.
charges = Table(
    "charges",
    metadata,
    Column("token", Number, primary_key=True, autoincrement=False),
    _number("task"),
    _text("instance"),
    _text("project"),
    _text("user_name"),
    _number("from_ms"),
    _number("until_ms"),
    _number("rate"),
    _number("amount"),
)
Index("charges_until_ms", charges.c.until_ms)

intents = Table(
    "intents",
    metadata,
    _text("batch", primary_key=True),
    _text("pool"),
    _text("offering_key"),
    _number("slots"),
    _number("intended_ms"),
    _text("reason"),
)

events = Table(
    "events",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    _number("at_ms"),
    _text("action"),
    _text("instance", null=True),
    _number("task", null=True),
    _text("detail"),
    _number("plan", null=True),
)
for _column in (events.c.instance, events.c.task):
    Index(
        f"events_{_column.name}",
        _column,
        events.c.id,
        sqlite_where=_column.is_not(None),
        postgresql_where=_column.is_not(None),
    )

plans = Table(
    "plans",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    _number("at_ms"),
    Column("snapshot", LargeBinary, nullable=False),  # zlib of JSON
    Column("plan", LargeBinary, nullable=False),  # JSON
)

targets = Table(
    "targets",
    metadata,
    _text("pool"),
    _text("source"),
    _number("count"),
    _number("expires_ms", null=True),
    UniqueConstraint("pool", "source"),
)

facts = Table("facts", metadata, _text("name", primary_key=True), _text("value"))

#: Numbers that must never go back: the last task id, token and plan, and how many tasks ended in each terminal state.
counters = Table("counters", metadata, _text("name", primary_key=True), _number("value"))

#: At most one row: which process has the store (where the database has no lock file to write it into).
owner = Table(
    "owner",
    metadata,
    Column("one", Boolean, primary_key=True, autoincrement=False),
    _number("pid"),
    _text("host"),
    _number("since_ms"),
)
