"""Packed values have a checksum from here on, which older programs do not know; going back unpacks them. What is there
stays as it is.
"""

from __future__ import annotations

from context_bench.engine.store.migrations.versions.v0007_bodies import write_out

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing changes: how a value is packed is said by the value."""


def downgrade() -> None:
    """Values can be read by any program."""
    write_out((b"\xc0", b"\xc1", b"\xc2"))
