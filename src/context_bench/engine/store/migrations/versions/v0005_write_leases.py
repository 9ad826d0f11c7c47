"""The write lease of each run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from context_bench.engine.store.dialects import TEXT, WHOLE

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of pens."""
    op.create_table(
        "pens",
        sa.Column("number", WHOLE, nullable=False),
        sa.Column("run", WHOLE, nullable=False),
        sa.Column("works", sa.Boolean(), nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("written", WHOLE, nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("pens")
