"""Run Alembic on the connection, and in the transaction, that `opening` has begun."""

from __future__ import annotations

from alembic import context

from context_bench.engine.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
