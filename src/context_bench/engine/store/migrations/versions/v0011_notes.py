"""Titles and tags of runs, runs that are marked as deleted, and what people wrote on rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from context_bench.engine.store.dialects import TEXT, WHOLE

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make room for them; nobody wrote any before."""
    for name, kind in (("title", TEXT), ("tags", TEXT), ("deleted", sa.Float())):
        op.add_column("runs", sa.Column(name, kind, nullable=True))
    op.create_table(
        "row_notes",
        *(sa.Column(name, WHOLE, autoincrement=False, nullable=False) for name in ("run", "arm", "position", "trial")),
        sa.Column("content", sa.LargeBinary(length=16), nullable=False),
        sa.Column("tags", TEXT, nullable=False),
        sa.Column("note", TEXT, nullable=False),
        sa.Column("updated", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("run", "arm", "position", "trial"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Forget them; a run that was marked as deleted is an ordinary one again."""
    op.drop_table("row_notes")
    for name in ("deleted", "tags", "title"):
        op.drop_column("runs", name)
