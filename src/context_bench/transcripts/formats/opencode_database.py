"""opencode's database (`~/.local/share/opencode/opencode.db`), which holds all sessions. Opened for reading only, also
while it is used.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.transcripts.format import Format, LogSource, Peek, mapping
from context_bench.transcripts.formats.opencode_export import MessageRecord, family_roots, joined, transcript_of
from context_bench.transcripts.trace import grouped
from context_bench.transcripts.transcript import Transcript

_TABLES = {
    "session": {"id"},
    "message": {"id", "session_id", "data"},
    "part": {"id", "message_id", "session_id", "data"},
}
#: Columns of a session and how its exported record calls them.
_INFO = {"id": "id", "parent_id": "parentID", "directory": "directory", "version": "version"}
#: What one query, one row and one session may take.
_SECONDS = 60.0
_LARGEST = 32 * 1024 * 1024
_MOST_SESSIONS = 100_000
_MOST_PARTS = 200_000
_MOST_BYTES = 1024 * 1024 * 1024


def sniff(peek: Peek) -> bool:
    """True if the file is an SQLite database with opencode's tables."""
    if not peek.start.startswith(b"SQLite format 3\0"):
        return False
    with closing(_opened(peek.path)) as base:
        return _is_opencode(base, peek.path)


def read(source: LogSource) -> Iterator[Transcript]:
    """Every session, in the order in which they began, sub-agents' with the one that they helped."""
    with closing(_opened(source.path)) as base:
        infos = {str(info["id"]): info for info in _sessions(base, source)}
        roots = family_roots({name: info.get("parentID") for name, info in infos.items()})
        for names in grouped((root, name) for name, root in roots.items()).values():
            read = [transcript_of(infos[name], _messages(base, name, source), source.skip) for name in names]
            yield from joined(read)


def _opened(path: Path) -> sqlite3.Connection:
    """The database, for reading only; what is in it cannot make the reader run anything."""
    try:
        return _connected(path, "mode=ro")
    except sqlite3.Error as error:
        # where nothing can be written, a database that nobody writes to is read as it stands
        if path.with_name(path.name + "-wal").exists():
            raise BadInput(
                f"cannot read {path}: {error}; its folder must be one that can be written to, or copy it"
            ) from error
    try:
        return _connected(path, "mode=ro&immutable=1")
    except sqlite3.Error as error:
        raise BadInput(f"cannot read {path}: {error}") from error


def _connected(path: Path, how: str) -> sqlite3.Connection:
    base = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=5, check_same_thread=False)
    try:
        base.execute("PRAGMA query_only = 1")
        base.execute("PRAGMA trusted_schema = 0")
        base.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.Error:
        base.close()
        raise
    return base


def _asked(base: sqlite3.Connection, path: Path, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a query. `BadInput` if the database is broken, or takes too long."""
    until = time.monotonic() + _SECONDS
    base.set_progress_handler(lambda: time.monotonic() > until, 100_000)
    try:
        yield from base.execute(query, values)
    except sqlite3.Error as error:
        raise BadInput(f"cannot read {path}: {error}") from error


def _is_opencode(base: sqlite3.Connection, path: Path) -> bool:
    """True if the tables and columns are there, and are tables."""
    kinds = dict(
        _asked(base, path, "SELECT name, type FROM sqlite_master WHERE name IN ('session', 'message', 'part')")
    )
    return all(
        kinds.get(table) == "table" and columns <= _columns(base, path, table) for table, columns in _TABLES.items()
    )


def _columns(base: sqlite3.Connection, path: Path, table: str) -> set[str]:
    return {str(row[1]) for row in _asked(base, path, f"PRAGMA table_info({table})")}


def _sessions(base: sqlite3.Connection, source: LogSource) -> Iterator[dict[str, Any]]:
    known = _columns(base, source.path, "session")
    columns = [name for name in _INFO if name in known]
    order = "time_created, id" if "time_created" in known else "id"
    query = f"SELECT {', '.join(columns)} FROM session ORDER BY {order} LIMIT {_MOST_SESSIONS + 1}"
    for number, row in enumerate(_asked(base, source.path, query)):
        if number == _MOST_SESSIONS:
            source.skip("sessions beyond the most that are read")
        elif isinstance(row[columns.index("id")], str):
            yield {_INFO[name]: value for name, value in zip(columns, row, strict=True) if value is not None}
        else:
            source.skip("a session without an id")


def _messages(base: sqlite3.Connection, session: str, source: LogSource) -> Iterator[MessageRecord]:
    """A session's messages with their parts, in order."""
    of_session = "SELECT message_id, id, data FROM part WHERE session_id = ? ORDER BY id"
    rows = ((str(message), ident, data) for message, ident, data in _rows(base, source, of_session, session))
    parts: dict[str, list[Mapping[str, Any]]] = grouped(
        (message, {**data, "id": ident}) for message, ident, data in rows if isinstance(data, dict)
    )
    ordered = "SELECT id, id, data FROM message WHERE session_id = ? ORDER BY "
    order = "time_created, id" if "time_created" in _columns(base, source.path, "message") else "id"
    for ident, _, data in _rows(base, source, ordered + order, session):
        yield {**mapping(data), "id": ident}, parts.pop(str(ident), [])


def _rows(base: sqlite3.Connection, source: LogSource, query: str, session: str) -> Iterator[tuple[Any, Any, Any]]:
    """Rows whose last column is JSON; what is too large, or none, is counted."""
    left = _MOST_BYTES
    for number, (first, second, data) in enumerate(
        _asked(base, source.path, query.replace(" data ", _BOUNDED), session)
    ):
        if number >= _MOST_PARTS or left < 0:
            source.skip("records beyond the most that are read")
            return
        if not isinstance(data, str):
            source.skip("a record that is no text, or too large")
            continue
        left -= len(data)
        try:
            yield first, second, load_json(data)
        except ValueError:
            source.skip("not JSON")


_BOUNDED = f" CASE WHEN length(data) <= {_LARGEST} THEN data END "


FORMAT = Format("opencode-database", 10, sniff, read, conversation=True)
