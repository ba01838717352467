"""Alembic's entry: runs the steps on the connection, and in the transaction, that `statestore.migrate` hands over."""

from __future__ import annotations

from alembic import context

from cloud_dispatch.statestore.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
