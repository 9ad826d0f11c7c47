"""Remembered replies of judges."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of replies."""
    op.create_table(
        "replies",
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("reply", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Forget all replies."""
    for table in ("replies",):
        op.drop_table(table)
