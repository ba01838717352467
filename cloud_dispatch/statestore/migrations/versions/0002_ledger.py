"""The ledger, whose money it was, what claims cost payers, and what an instance can cost at most.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NUMBERS = (
    "from_ms", "until_ms", "amount", "boot", "work", "idle", "lost", "bound", "bound_rate", "bound_from_ms",
    "bound_until_ms", "bound_most_ms", "tasks", "waiting",
)  # fmt: skip
_TEXTS = ("instance", "pool", "profile", "driver", "template", "image", "zone", "cause")


def upgrade() -> None:
    for name in ("max_rate", "end_lag_ms"):
        op.add_column("instances", sa.Column(name, NUMBER, nullable=True))
    op.add_column("instances", sa.Column("extra_rate", NUMBER, nullable=False, server_default="0"))
    for name in ("template", "image"):
        op.add_column("instances", sa.Column(name, sa.Text(), nullable=False, server_default=sa.text("''")))
    op.create_table(
        "ledger",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("booked_ms", NUMBER, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        *(sa.Column(name, NUMBER, nullable=False) for name in _NUMBERS),
        sa.Column("registered_ms", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("ledger_pk")),
    )
    for name in ("until_ms", "instance"):
        op.create_index(f"ledger_{name}", "ledger", [name], unique=False)
    op.create_table(
        "shares",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("day_ms", NUMBER, autoincrement=False, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("project", "user_name", "pool", "profile", "driver")),
        sa.Column("rate", NUMBER, nullable=True),
        *(sa.Column(name, NUMBER, nullable=False) for name in ("work", "retry", "idle", "work_time", "retry_time")),
        sa.PrimaryKeyConstraint("instance", "day_ms", "project", "user_name", name=op.f("shares_pk")),
        sqlite_with_rowid=False,
    )
    op.create_index("shares_day_ms", "shares", ["day_ms"], unique=False)
    op.create_table(
        "charges",
        sa.Column("token", NUMBER, autoincrement=False, nullable=False),
        sa.Column("task", NUMBER, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("instance", "project", "user_name")),
        *(sa.Column(name, NUMBER, nullable=False) for name in ("from_ms", "until_ms", "rate", "amount")),
        sa.PrimaryKeyConstraint("token", name=op.f("charges_pk")),
    )
    op.create_index("charges_until_ms", "charges", ["until_ms"], unique=False)


def downgrade() -> None:
    op.drop_table("charges")
    op.drop_table("shares")
    op.drop_table("ledger")
    with op.batch_alter_table("instances") as table:
        for name in ("end_lag_ms", "extra_rate", "image", "max_rate", "template"):
            table.drop_column(name)
