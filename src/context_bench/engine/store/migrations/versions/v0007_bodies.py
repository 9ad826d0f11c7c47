"""Bodies in a SQLite file stand in the order in which they came: a batch of them then touches few pages, not one for
each.

From here on small values are packed by words that older programs do not know; going back unpacks them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from context_bench.engine.encoding import unpack

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_KEYS = {
    "runs": ("number",),
    "outputs": ("id",),
    "scores": ("output", "evaluator"),
    "calls": ("id",),
    "forwarded": ("id",),
    "setups": ("id",),
    "watches": ("number",),
    "watched": ("watch", "number"),
    "replies": ("key",),
    "bodies": ("key",),
}
_PACKED = {
    "runs": ("manifest", "counts"),
    "outputs": ("output", "usage", "wire", "metadata"),
    "scores": ("values", "usage"),
    "calls": ("usage",),
    "forwarded": ("record",),
    "setups": ("output", "usage"),
    "watches": ("settings",),
    "watched": ("record",),
    "replies": ("reply",),
    "bodies": ("data",),
}
_PLAIN = b"\x00"
_MANY = 1_000


def upgrade() -> None:
    """Only the index is in the order of keys."""
    _make_bodies_again(with_rowid=True)


def downgrade() -> None:
    """The rows themselves are; and values can be read by any program."""
    write_out((b"\x02",))
    _make_bodies_again(with_rowid=False)


def _make_bodies_again(*, with_rowid: bool) -> None:
    if op.get_bind().dialect.name != "sqlite":
        return  # a server keeps rows as they come
    op.rename_table("bodies", "bodies_before")
    op.create_table(
        "bodies",
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        sqlite_with_rowid=with_rowid,
    )
    op.execute("INSERT INTO bodies (key, data) SELECT key, data FROM bodies_before")
    op.drop_table("bodies_before")


def write_out(kinds: tuple[bytes, ...]) -> None:
    """Unpack what is packed in one of these ways, in every table."""
    for kind in kinds:
        for table, keys in _KEYS.items():
            for column in _PACKED[table]:
                _write_out(sa.table(table, *(sa.column(name) for name in (*keys, column))), keys, column, kind)


def _write_out(table: sa.TableClause, keys: tuple[str, ...], column: str, kind: bytes) -> None:
    """Unpack what the column has in that way, some rows at a time."""
    connection, place, data = op.get_bind(), [table.c[name] for name in keys], table.c[column]
    new = sa.func.substr(data, 1, 1) == sa.bindparam("new", kind, sa.LargeBinary)
    query = sa.select(*place, data).where(new).order_by(*place).limit(_MANY)
    change = (
        sa.update(table)
        .where(*(one == sa.bindparam(f"at_{one.name}") for one in place))
        .values({column: sa.bindparam("told")})
    )
    last: tuple[object, ...] | None = None
    while True:
        after = (
            query
            if last is None
            else query.where(sa.tuple_(*place) > sa.tuple_(*(sa.literal(value) for value in last)))
        )
        found = [tuple(row) for row in connection.execute(after)]
        if not found:
            return
        told = [
            {**{f"at_{name}": value for name, value in zip(keys, row, strict=False)}, "told": _PLAIN + unpack(row[-1])}
            for row in found
        ]
        connection.execute(change, told)
        last = found[-1][:-1]
