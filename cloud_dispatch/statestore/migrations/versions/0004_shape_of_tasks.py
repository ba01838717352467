"""Which tasks have a shape, so that a shape that none has can be found, and deleted.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("tasks_shape", "tasks", ["shape"], unique=False)


def downgrade() -> None:
    op.drop_index("tasks_shape", "tasks")
