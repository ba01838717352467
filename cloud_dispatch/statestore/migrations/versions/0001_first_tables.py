"""The first tables.

Revision: 0001, after none. A step is never changed once released: later changes are steps of their own.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _counters()
    _events()
    _facts()
    _instances()
    _intents()
    _owner()
    _plans()
    _shapes()
    _targets()
    _tasks()
    _attempts()
    _specs()


def _counters() -> None:
    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("counters_pk")),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=True),
        sa.Column("task", NUMBER, nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("plan", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("events_pk")),
    )
    op.create_index(
        "events_instance",
        "events",
        ["instance", "id"],
        unique=False,
        sqlite_where=sa.text("instance IS NOT NULL"),
        postgresql_where=sa.text("instance IS NOT NULL"),
    )
    op.create_index(
        "events_task",
        "events",
        ["task", "id"],
        unique=False,
        sqlite_where=sa.text("task IS NOT NULL"),
        postgresql_where=sa.text("task IS NOT NULL"),
    )


def _facts() -> None:
    op.create_table(
        "facts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("facts_pk")),
    )


def _instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("batch", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("market", sa.Text(), nullable=False),
        sa.Column("machine", sa.LargeBinary(), nullable=False),
        sa.Column("vcpus", NUMBER, nullable=False),
        sa.Column("rate", NUMBER, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("intended_ms", NUMBER, nullable=False),
        sa.Column("ends_ms", NUMBER, nullable=False),
        sa.Column("boot_deadline_ms", NUMBER, nullable=False),
        sa.Column("behaviour", sa.Text(), nullable=False),
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("launched_ms", NUMBER, nullable=True),
        sa.Column("registered_ms", NUMBER, nullable=True),
        sa.Column("drain_token", NUMBER, nullable=False),
        sa.Column("ended_ms", NUMBER, nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("busy_ms", NUMBER, nullable=False),
        sa.Column("minimum_ms", NUMBER, nullable=False),
        sa.Column("increment_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("instances_pk")),
    )
    op.create_index("instances_state", "instances", ["state", "ended_ms"], unique=False)


def _intents() -> None:
    op.create_table(
        "intents",
        sa.Column("batch", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("offering_key", sa.Text(), nullable=False),
        sa.Column("slots", NUMBER, nullable=False),
        sa.Column("intended_ms", NUMBER, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("batch", name=op.f("intents_pk")),
    )


def _owner() -> None:
    op.create_table(
        "owner",
        sa.Column("one", sa.Boolean(), autoincrement=False, nullable=False),
        sa.Column("pid", NUMBER, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("since_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("one", name=op.f("owner_pk")),
    )


def _plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("snapshot", sa.LargeBinary(), nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("plans_pk")),
    )


def _shapes() -> None:
    op.create_table(
        "shapes",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("shapes_pk")),
        sa.UniqueConstraint("key", name=op.f("shapes_key_unique")),
    )


def _targets() -> None:
    op.create_table(
        "targets",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("count", NUMBER, nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=True),
        sa.UniqueConstraint("pool", "source", name=op.f("targets_pool_source_unique")),
    )


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("priority", NUMBER, nullable=False),
        sa.Column("attempts", NUMBER, nullable=False),
        sa.Column("token", NUMBER, nullable=True),
        sa.Column("instance", sa.Text(), nullable=True),
        sa.Column("claimed_ms", NUMBER, nullable=True),
        sa.Column("started_ms", NUMBER, nullable=True),
        sa.Column("ended_ms", NUMBER, nullable=True),
        sa.Column("submitted_ms", NUMBER, nullable=False),
        sa.Column("expected_ms", NUMBER, nullable=False),
        sa.Column("shape", NUMBER, nullable=False),
        sa.Column("retry", sa.LargeBinary(), nullable=True),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("array_id", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["shape"], ["shapes.id"], name=op.f("tasks_shape_fk")),
        sa.PrimaryKeyConstraint("id", name=op.f("tasks_pk")),
    )
    op.create_index(
        "tasks_array_id",
        "tasks",
        ["array_id", "id"],
        unique=False,
        sqlite_where=sa.text("array_id != ''"),
        postgresql_where=sa.text("array_id != ''"),
    )
    op.create_index(
        "tasks_key",
        "tasks",
        ["idempotency_key"],
        unique=True,
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "tasks_live",
        "tasks",
        ["id"],
        unique=False,
        sqlite_where=sa.text("ended_ms IS NULL"),
        postgresql_where=sa.text("ended_ms IS NULL"),
    )
    op.create_index(
        "tasks_project",
        "tasks",
        ["project", "id"],
        unique=False,
        sqlite_where=sa.text("project != ''"),
        postgresql_where=sa.text("project != ''"),
    )
    op.create_index(
        "tasks_user_name",
        "tasks",
        ["user_name", "id"],
        unique=False,
        sqlite_where=sa.text("user_name != ''"),
        postgresql_where=sa.text("user_name != ''"),
    )


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("task", NUMBER, autoincrement=False, nullable=False),
        sa.Column("token", NUMBER, autoincrement=False, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("claimed_ms", NUMBER, nullable=False),
        sa.Column("started_ms", NUMBER, nullable=True),
        sa.Column("ended_ms", NUMBER, nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("exit_code", NUMBER, nullable=True),
        sa.Column("signal", NUMBER, nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("max_rss", NUMBER, nullable=False),
        sa.Column("cpu_ms", NUMBER, nullable=False),
        sa.Column("manifest", sa.LargeBinary(), nullable=True),
        sa.Column("stretch", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name=op.f("attempts_task_fk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task", "token", name=op.f("attempts_pk")),
        sqlite_with_rowid=False,
    )
    op.create_index("attempts_instance", "attempts", ["stretch", "instance"], unique=False)


def _specs() -> None:
    op.create_table(
        "specs",
        sa.Column("task", NUMBER, autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name=op.f("specs_task_fk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task", name=op.f("specs_pk")),
    )


def downgrade() -> None:
    op.drop_table("specs")
    op.drop_table("attempts")
    op.drop_table("tasks")
    op.drop_table("targets")
    op.drop_table("shapes")
    op.drop_table("plans")
    op.drop_table("owner")
    op.drop_table("intents")
    op.drop_table("instances")
    op.drop_table("facts")
    op.drop_table("events")
    op.drop_table("counters")
