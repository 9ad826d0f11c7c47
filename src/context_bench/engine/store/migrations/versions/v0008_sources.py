"""Of which examples a run's plan is, and how far it is known to be theirs: such a run is taken up without reading
them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from context_bench.engine.store.dialects import WHOLE

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of sources; nothing is known of runs that are there, until they are taken up once."""
    op.create_table(
        "sources",
        sa.Column("run", WHOLE, autoincrement=False, nullable=False),
        sa.Column("source", sa.LargeBinary(length=16), nullable=False),
        sa.Column("positions", WHOLE, nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("run"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("sources")
