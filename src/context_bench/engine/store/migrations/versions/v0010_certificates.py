"""The state of limits that hold whenever one looks, kept from one watch or replay to the next."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from context_bench.engine.store.dialects import PACKED, TEXT, WHOLE

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; no limits were kept before."""
    op.create_table(
        "certificates",
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("updated", sa.Float(), nullable=False),
        sa.Column("owner", TEXT, nullable=True),
        sa.Column("state", PACKED, nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "counted_sessions",
        sa.Column("certificate", sa.LargeBinary(length=16), nullable=False),
        sa.Column("session", sa.LargeBinary(length=16), nullable=False),
        sa.Column("requests", WHOLE, nullable=False),
        sa.PrimaryKeyConstraint("certificate", "session"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("counted_sessions")
    op.drop_table("certificates")
