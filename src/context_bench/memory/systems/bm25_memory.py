"""Full-text search in one SQLite file: no model, no server, nothing to install; the baseline that a memory has to beat.

Every namespace is an FTS5 table of its own, so neither hits nor word frequencies of one are ever seen by another.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, StoreUnusable
from context_bench.core.keys import hash_text
from context_bench.core.tokens import utf8_safe
from context_bench.memory.protocol import Hit, Item, Receipt, date_limit
from context_bench.memory.systems.baselines import Isolated, spoken

MEMORIES = {"bm25": "BM25"}

# Scripts without spaces between words, and Hangul, whose particles hang on the word: indexed as overlapping pairs of
# characters.
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\uac00-\ud7af\U00020000-\U000323af"
)
_RUN = re.compile(f"[{_UNSPACED}]+")
_ONE = re.compile(f"[{_UNSPACED}]")
_BETWEEN = re.compile(r"[\s\x00-/:-@\[-`{-\xa9\u2000-\u206f\u3000-\u3004\u3008-\u3020\uff01-\uff0f\uff1a-\uff20]+")
# Vowel signs and tone marks (Mn, Mc) belong to their words; by default they would cut Hindi or Arabic words into
# pieces.
_TOKENIZER = "unicode61 remove_diacritics 2 categories ''L* N* Co Mn Mc''"
_DATE = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
_MOST_WORDS = 400  # of one query
_BUSY = 60.0  # seconds that a writer waits for another one
_SYNCHRONOUS = ("FULL", "NORMAL", "OFF")


class BM25(Isolated):
    """Okapi BM25 over the items' words (no stemming, any script), in memory or in the file `path`.

    With `path`, `namespace(name)` opens that namespace of the file with whatever is in it, several processes may use
    the file at once, and an item is acknowledged only after its transaction is on disk (`synchronous`: FULL, NORMAL,
    OFF as SQLite has them). Without, every namespace begins empty and ends with its object. What is deleted cannot be
    found from then on; its bytes are out of the file after `flush()` or `close()`. `StoreUnusable` if the file cannot
    be used.
    """

    name = "bm25"
    batch: int | None = 500
    _CAPABILITIES = frozenset(
        {"add", "search", "delete", "delete_all", "update", "timestamps", "source_ids", "scores", "namespaces", "stats"}
    )

    def __init__(self, path: str | Path | None = None, synchronous: str = "FULL", *, space: str = "") -> None:
        if synchronous.upper() not in _SYNCHRONOUS:
            raise BadInput(f"bm25: synchronous is one of {', '.join(_SYNCHRONOUS)}, not {synchronous!r}")
        self.path = None if path is None else Path(path)
        self.synchronous = synchronous.upper()
        self.capabilities = self._CAPABILITIES | ({"persistent"} if self.path else set())
        self._space_name = space
        self._lock = threading.RLock()
        self._scrub = False  # deleted words are still in the file
        self._closed = False
        try:
            self._db = self._open()
            self._space = self._own_space()
        except sqlite3.Error as error:
            raise StoreUnusable(f"bm25: {self.path or 'memory'} cannot be used: {error}") from error
        self._table = f"notes_{self._space}"
        self._mark = hash_text(space, 8)

    def fingerprint(self) -> dict[str, Any]:
        return {"class": "BM25", "tokenizer": _TOKENIZER, "scripts": "pairs", "sqlite": sqlite3.sqlite_version}

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Keep the items, all or none, in one transaction; the receipts come after it is committed."""
        if not items:
            return []
        with self._writing() as db:
            (after,) = db.execute(
                "UPDATE spaces SET next = next + ? WHERE id = ? RETURNING next", (len(items), self._space)
            ).fetchone()
            first = after - len(items)
            rows = [
                (
                    first + i,
                    *_indexed(spoken(item)),
                    utf8_safe(item.id),
                    None if item.time is None else utf8_safe(item.time),
                )
                for i, item in enumerate(items)
            ]
            db.executemany(f"INSERT INTO {self._table}(rowid, text, whole, source, time) VALUES (?, ?, ?, ?, ?)", rows)
        mark = self._mark
        return [Receipt(item.id, f"{mark}-{first + i}") for i, item in enumerate(items)]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The best `k` of the items that share a word with the query; ties in the order in which they were added."""
        words = _words(query)
        if not words or k < 1:
            return []
        match = " OR ".join(f'"{word}"' if len(word) > 1 or not _ONE.match(word) else f'"{word}"*' for word in words)
        columns, table = "rowid, coalesce(whole, text), source, time, rank", self._table
        until = date_limit(as_of)
        known = "" if until is None else f"AND (time IS NULL OR time <= ? OR time NOT GLOB '{_DATE}*')"
        statement = f"SELECT {columns} FROM {table} WHERE {table} MATCH ? {known} ORDER BY rank, rowid LIMIT ?"
        with self._lock:
            rows = self._db.execute(statement, (match, *([] if until is None else [until]), min(k, 2**31))).fetchall()
        return [Hit(text, -rank, (source,), f"{self._mark}-{row}", when) for row, text, source, when, rank in rows]

    def delete(self, memory_id: str) -> bool:
        return self._change(memory_id, f"DELETE FROM {self._table} WHERE rowid = ?")

    def update(self, memory_id: str, text: str) -> bool:
        return self._change(memory_id, f"UPDATE {self._table} SET text = ?, whole = ? WHERE rowid = ?", *_indexed(text))

    def _change(self, memory_id: str, statement: str, *values: str | None) -> bool:
        """Change one row; true if there was one."""
        row = self._row(memory_id)
        if row is None:
            return False
        with self._writing() as db:
            self._scrub = True
            return bool(db.execute(statement, (*values, row)).rowcount)

    def delete_all(self) -> None:
        with self._writing() as db:
            self._scrub = True
            db.execute(f"DROP TABLE {self._table}")
            db.execute(_table(self._table))

    def namespace(self, name: str) -> BM25:
        """The namespace `name` of the same file, or a new empty memory; it sees nothing of this one."""
        return BM25(self.path, self.synchronous, space=name)

    def flush(self, seconds: float | None = None) -> None:
        """Nothing to wait for: what is acknowledged can be found. Deleted words are taken out of the file."""
        if not self._scrub:
            return
        with self._lock:
            with self._writing() as db:
                db.execute(f"INSERT INTO {self._table}({self._table}) VALUES ('optimize')")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._scrub = False

    def stats(self) -> dict[str, int]:
        """`items` of this namespace, and the `bytes` of their texts and of the index."""
        table = self._table
        sizes = " + ".join(f"coalesce(length(CAST(c{column} AS BLOB)), 0)" for column in range(4))
        with self._lock:
            (items,) = self._db.execute(f"SELECT count(*) FROM {table}_docsize").fetchone()
            (texts,) = self._db.execute(f"SELECT coalesce(sum({sizes}), 0) FROM {table}_content").fetchone()
            (index,) = self._db.execute(f"SELECT coalesce(sum(length(block)), 0) FROM {table}_data").fetchone()
        return {"items": items, "bytes": texts + index}

    def close(self) -> None:
        """Close the file; what is in it stays."""
        with self._lock:
            if self._closed:
                return
            try:
                self.flush()
            finally:
                self._closed = True
                self._db.close()

    # --- the file ---

    def _open(self) -> sqlite3.Connection:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(
            ":memory:" if self.path is None else os.fspath(self.path),
            timeout=_BUSY,
            isolation_level=None,
            check_same_thread=False,
        )
        db.execute("PRAGMA secure_delete = ON")
        if self.path is not None:
            _write_ahead(db)
            db.execute(f"PRAGMA synchronous = {self.synchronous}")
        return db

    def _own_space(self) -> int:
        """The number of this namespace, made if it is new."""
        with self._transaction(self._db) as db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS spaces (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, next INTEGER "
                "NOT NULL)"
            )
            name = utf8_safe(self._space_name)
            new = db.execute("INSERT INTO spaces (name, next) VALUES (?, 1) ON CONFLICT DO NOTHING", (name,)).rowcount
            (number,) = db.execute("SELECT id FROM spaces WHERE name = ?", (name,)).fetchone()
            if new:
                db.execute(_table(f"notes_{number}"))
        return int(number)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._transaction(self._db) as db:
            yield db

    @staticmethod
    @contextmanager
    def _transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _row(self, memory_id: str) -> int | None:
        """The row that an id of this namespace names."""
        mark, _, number = str(memory_id).rpartition("-")
        return int(number) if mark == self._mark and number.isdecimal() and len(number) < 19 else None


def _table(name: str) -> str:
    return (
        f"CREATE VIRTUAL TABLE {name} USING fts5(text, whole UNINDEXED, source UNINDEXED, time UNINDEXED, "
        f"tokenize='{_TOKENIZER}')"
    )


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; SQLite does not wait for others when it does this, so we do."""
    until = time.monotonic() + _BUSY
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


# --- words ---
def _indexed(text: str) -> tuple[str, str | None]:
    """The indexed form of a text, and the text itself where it differs."""
    if text.isascii():
        return text, None
    text = utf8_safe(text)
    cut = _in_pairs(text)
    return (text, None) if cut == text else (cut, text)


def _in_pairs(text: str) -> str:
    """Every run of characters without spaces as its overlapping pairs, and its last character alone: `日本語` →
    ` 日本 本語 語 `.
    """
    return _RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run))]


def _words(query: str) -> list[str]:
    """The distinct words to look for, in order. A lone last character of a run is looked for only if the run is nothing
    else.
    """
    query = utf8_safe(query).replace('"', " ")
    words: dict[str, str] = {}
    for word in _BETWEEN.split(_RUN.sub(lambda run: f" {' '.join(_pairs(run[0])[: max(1, len(run[0]) - 1)])} ", query)):
        if word and len(words) < _MOST_WORDS:
            words.setdefault(word.lower(), word)
    return list(words.values())
