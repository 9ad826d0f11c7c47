"""Watches of live traffic."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from context_bench.engine.store.dialects import TEXT, WHOLE

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables of watches."""
    op.create_table(
        "watches",
        sa.Column("number", WHOLE, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("updated", sa.Float(), nullable=False),
        sa.Column("owner", TEXT, nullable=True),
        sa.Column("settings", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "watched",
        sa.Column("watch", WHOLE, autoincrement=False, nullable=False),
        sa.Column("number", WHOLE, autoincrement=False, nullable=False),
        sa.Column("arm", TEXT, nullable=False),
        sa.Column("session", TEXT, nullable=False),
        sa.Column("turn", WHOLE, nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("watch", "number"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "watched_bodies",
        sa.Column("watch", WHOLE, autoincrement=False, nullable=False),
        sa.Column("number", WHOLE, autoincrement=False, nullable=False),
        sa.Column("place", WHOLE, autoincrement=False, nullable=False),
        sa.Column("request", sa.LargeBinary(length=16), nullable=True),
        sa.Column("reply", sa.LargeBinary(length=16), nullable=True),
        sa.PrimaryKeyConstraint("watch", "number", "place"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Forget all watches."""
    for table in ("watched_bodies", "watched", "watches"):
        op.drop_table(table)
