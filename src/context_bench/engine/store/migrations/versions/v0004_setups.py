"""Set-ups of groups, and what belongs to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from context_bench.engine.store.dialects import TEXT, WHOLE

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_BELONGING = ("outputs", "calls", "forwarded")


def upgrade() -> None:
    """Create the table of set-ups; outputs, calls and forwarded requests can name one."""
    op.create_table(
        "setups",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("run", WHOLE, nullable=False),
        sa.Column("arm", WHOLE, nullable=False),
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.Column("trial", WHOLE, nullable=False),
        sa.Column("group", TEXT, nullable=True),
        sa.Column("position", WHOLE, nullable=False),
        sa.Column("number", WHOLE, nullable=False),
        sa.Column("attempt", WHOLE, nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("output", sa.LargeBinary(), nullable=True),
        sa.Column("usage", sa.LargeBinary(), nullable=True),
        sa.Column("error", TEXT, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("setups_run", "setups", ["run"], unique=False)
    for table in _BELONGING:
        op.add_column(table, sa.Column("setup", WHOLE, nullable=True))


def downgrade() -> None:
    """Forget them."""
    for table in _BELONGING:
        op.drop_column(table, "setup")
    op.drop_index("setups_run", table_name="setups")
    op.drop_table("setups")
