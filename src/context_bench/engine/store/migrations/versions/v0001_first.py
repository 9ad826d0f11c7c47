"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from context_bench.engine.store.dialects import TEXT, WHOLE

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table of the first schema."""
    op.create_table(
        "arms",
        sa.Column("run", WHOLE, autoincrement=False, nullable=False),
        sa.Column("arm", WHOLE, autoincrement=False, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("ordinal", WHOLE, nullable=True),
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.PrimaryKeyConstraint("run", "arm"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "bodies",
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "body_parts",
        sa.Column("body", sa.LargeBinary(length=16), nullable=False),
        sa.Column("part", sa.LargeBinary(length=16), nullable=False),
        sa.PrimaryKeyConstraint("body", "part"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "calls",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("output", WHOLE, nullable=True),
        sa.Column("run", WHOLE, nullable=False),
        sa.Column("take", WHOLE, nullable=False),
        sa.Column("evaluator", WHOLE, nullable=True),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("endpoint", WHOLE, nullable=False),
        sa.Column("attempt", WHOLE, nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("waited", sa.Float(), nullable=False),
        sa.Column("ttft", sa.Float(), nullable=True),
        sa.Column("status", WHOLE, nullable=True),
        sa.Column("sent_tokens", WHOLE, nullable=True),
        sa.Column("exact", sa.Boolean(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("usage", sa.LargeBinary(), nullable=True),
        sa.Column("finish_reason", TEXT, nullable=True),
        sa.Column("error", TEXT, nullable=True),
        sa.Column("request", sa.LargeBinary(length=16), nullable=True),
        sa.Column("reply", sa.LargeBinary(length=16), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("calls_output", "calls", ["output"], unique=False)
    op.create_table(
        "endpoints",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("url", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("endpoints_name", "endpoints", ["model", "url"], unique=True)
    op.create_table(
        "evaluators",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_table(
        "examples",
        sa.Column("run", WHOLE, autoincrement=False, nullable=False),
        sa.Column("position", WHOLE, autoincrement=False, nullable=False),
        sa.Column("id", sa.LargeBinary(), nullable=False),
        sa.Column("dataset", TEXT, nullable=False),
        sa.Column("group", TEXT, nullable=True),
        sa.Column("cluster", TEXT, nullable=True),
        sa.Column("content", sa.LargeBinary(length=16), nullable=False),
        sa.Column("body", sa.LargeBinary(length=16), nullable=True),
        sa.PrimaryKeyConstraint("run", "position"),
        sqlite_with_rowid=False,
    )
    op.create_index("examples_content", "examples", ["run", "content"], unique=False)
    op.create_table(
        "forwarded",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("run", WHOLE, nullable=False),
        sa.Column("output", WHOLE, nullable=True),
        sa.Column("take", WHOLE, nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.Column("request", sa.LargeBinary(length=16), nullable=True),
        sa.Column("reply", sa.LargeBinary(length=16), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("forwarded_output", "forwarded", ["output"], unique=False)
    op.create_index("forwarded_run", "forwarded", ["run"], unique=False)
    op.create_table(
        "outputs",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.Column("run", WHOLE, nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("takes", WHOLE, nullable=False),
        sa.Column("tapped", sa.Boolean(), nullable=False),
        sa.Column("error", TEXT, nullable=True),
        sa.Column("source", TEXT, nullable=True),
        sa.Column("input_tokens", WHOLE, nullable=True),
        sa.Column("output_tokens", WHOLE, nullable=True),
        sa.Column("context_tokens", WHOLE, nullable=True),
        sa.Column("latency", sa.Float(), nullable=True),
        sa.Column("output", sa.LargeBinary(), nullable=False),
        sa.Column("usage", sa.LargeBinary(), nullable=True),
        sa.Column("wire", sa.LargeBinary(), nullable=True),
        sa.Column("metadata", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("outputs_key", "outputs", ["key", "run"], unique=True)
    op.create_table(
        "plan",
        sa.Column("run", WHOLE, autoincrement=False, nullable=False),
        sa.Column("arm", WHOLE, autoincrement=False, nullable=False),
        sa.Column("position", WHOLE, autoincrement=False, nullable=False),
        sa.Column("trial", WHOLE, autoincrement=False, nullable=False),
        sa.Column("output", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("run", "arm", "position", "trial"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run_evaluators",
        sa.Column("run", WHOLE, autoincrement=False, nullable=False),
        sa.Column("ordinal", WHOLE, autoincrement=False, nullable=False),
        sa.Column("evaluator", WHOLE, nullable=False),
        sa.PrimaryKeyConstraint("run", "ordinal"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "runs",
        sa.Column("number", WHOLE, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("identity", TEXT, nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("updated", sa.Float(), nullable=False),
        sa.Column("owner", TEXT, nullable=True),
        sa.Column("manifest", sa.LargeBinary(), nullable=False),
        sa.Column("counts", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "scores",
        sa.Column("output", WHOLE, autoincrement=False, nullable=False),
        sa.Column("evaluator", WHOLE, autoincrement=False, nullable=False),
        sa.Column("values", sa.LargeBinary(), nullable=True),
        sa.Column("error", TEXT, nullable=True),
        sa.Column("usage", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("output", "evaluator"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Leave nothing."""
    first = (
        "arms",
        "bodies",
        "body_parts",
        "calls",
        "endpoints",
        "evaluators",
        "examples",
        "forwarded",
        "outputs",
        "plan",
    )
    for table in (*first, "run_evaluators", "runs", "scores"):
        op.drop_table(table)
