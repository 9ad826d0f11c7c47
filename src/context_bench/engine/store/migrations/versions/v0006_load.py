"""The number of requests under way when a call was sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from context_bench.engine.store.dialects import WHOLE

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Calls can say it; of older ones it is not known."""
    op.add_column("calls", sa.Column("in_flight", WHOLE, nullable=True))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("calls", "in_flight")
