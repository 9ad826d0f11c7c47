"""Opening stores: good ones, new ones, and everything that is not one."""

import os
import re
import sqlite3
import stat
import time

import pytest
from sqlalchemy import event, func, select

from context_bench.core.errors import StoreUnusable
from context_bench.core.ledger import current_ledger
from context_bench.core.records import Call
from context_bench.engine import list_runs, open_store
from context_bench.engine.store import damaged, schema, schema as migrating, sqlite


def test_a_new_store_is_private_and_its_folder_is_made(tmp_path):
    path = tmp_path / "a" / "b%20 c?" / "store.db"
    with open_store(path) as store, store.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE extra (x)")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes
    assert set(modes.values()) == {0o600}
    assert list_runs(open_store(f"sqlite:///{path}")) == []


def test_a_temporary_store_is_gone_after_close():
    store = open_store()
    assert store.path.exists()
    store.close()
    assert not store.path.exists()


def test_it_is_durable_and_lets_readers_read(tmp_path):
    with open_store(tmp_path / "s.db") as store, store.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("mysql://u:secret-word@h/db", "not a kind of store"),
        ("", "not a file"),
        (":memory:", "not a file"),
        ("/proc/nowhere/store.db", "cannot be made"),
    ],
)
def test_places_that_cannot_be_a_store(where, said):
    with pytest.raises(StoreUnusable, match=said) as caught:
        open_store(where)
    assert "secret-word" not in str(caught.value)


def test_a_folder_is_not_a_store(tmp_path):
    with pytest.raises(StoreUnusable, match=r"is a folder; expected a file, such as .*store\.db"):
        open_store(tmp_path)


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnusable, match="cannot be made"):
        open_store(tmp_path / "file" / "store.db")


def test_another_file_is_not_touched(tmp_path):
    path = tmp_path / "notes.db"
    path.write_text("dear diary " * 500)
    with pytest.raises(StoreUnusable, match="not a SQLite database"):
        open_store(path)
    assert path.read_text() == "dear diary " * 500


def test_another_programs_database_is_refused(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(StoreUnusable, match="another program"):
        open_store(path)


def test_an_empty_file_becomes_a_store(tmp_path):
    (tmp_path / "store.db").touch()
    assert list_runs(open_store(tmp_path / "store.db")) == []


def test_a_torn_file_says_how_to_save_it(tmp_path):
    path = tmp_path / "store.db"
    open_store(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"\xff" * 700)
    with pytest.raises(StoreUnusable, match=r"damaged.*\.recover"):
        list_runs(open_store(path))


def test_a_newer_schema_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store, store.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreUnusable, match=rf"schema 9999.*knows up to {schema.HEAD}.*newer context-bench"):
        open_store(path)
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)
    raw.close()


def test_a_locked_store_says_so(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, busy_timeout=50) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnusable, match="locked by another program"), store.writing():
            pass
        other.execute("ROLLBACK")
        other.close()
        with store.writing() as connection:
            connection.exec_driver_sql("SELECT 1")


def test_a_full_disk_says_what_to_do(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        with store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 60")
        bodies = [{"key": os.urandom(16), "data": os.urandom(100_000)} for _ in range(10)]
        with pytest.raises(StoreUnusable, match="free some space, then resume"), store.writing() as connection:
            connection.execute(schema.bodies.insert(), bodies)
        assert list_runs(store) == []


def test_a_migration_that_is_interrupted_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "store.db"
    real = sqlite.migrate

    def interrupted(connection, where, found):
        real(connection, where, found)
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite, "migrate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_store(path)
    monkeypatch.undo()
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    raw.close()
    assert list_runs(open_store(path)) == []


def test_a_new_store_is_word_for_word_what_the_migrations_make(tmp_path):
    from sqlalchemy import create_engine

    def made(connection):
        told = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master").all()
        rows = [(kind, name, sql and re.sub(r'\s*([(),])\s*|"', r"\1", sql).split()) for kind, name, sql in told]
        return sorted(rows, key=repr), connection.exec_driver_sql("SELECT version_num FROM alembic_version").all()

    with create_engine("sqlite://").begin() as connection:
        migrating.upgrade(connection, "s", None)
        migrated = made(connection)
    with open_store(tmp_path / "store.db") as store, store.reading() as connection:
        assert made(connection) == migrated
    assert migrated[1] == [(schema.HEAD,)]


def test_the_newest_migration_is_the_one_we_say_it_is():
    from pathlib import Path

    from alembic.script import ScriptDirectory

    assert ScriptDirectory(str(Path(migrating.__file__).parent / "migrations")).get_current_head() == schema.HEAD


def test_a_store_without_set_ups_gains_them_and_can_be_taken_back(tmp_path):
    from pathlib import Path

    from alembic import command
    from alembic.config import Config

    def move(connection, to):
        config = Config()
        config.set_main_option("script_location", str(Path(migrating.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        (command.downgrade if to < schema.HEAD else command.upgrade)(config, to)

    path = tmp_path / "store.db"
    with open_store(path) as store:
        with store.writing() as connection:
            connection.execute(
                schema.forwarded.insert(), {"run": 1, "output": 7, "take": 0, "record": b"kept", "setup": 3}
            )
        with store.writing() as connection:
            move(connection, "0003")
            columns = [row[1] for row in connection.exec_driver_sql("PRAGMA table_info(forwarded)")]
            assert "setup" not in columns
            assert not connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'setups'").all()
    with open_store(path) as store, store.reading() as connection:
        assert connection.exec_driver_sql("SELECT output, record, setup FROM forwarded").all() == [(7, b"kept", None)]
        assert connection.exec_driver_sql("SELECT count(*) FROM setups").scalar() == 0
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == schema.HEAD


async def test_a_row_that_cannot_be_stored_does_not_have_the_store_looked_through(store, run):
    """Not one of them is a sign of damage, and each would hold the lock of all writers for as long as the store is
    large.
    """

    class Odd:
        name = "odd"

        def process(self, example):
            odd = [float("nan"), 10**400, "soon", [1], {"a": 1}][example["id"] % 5]
            current_ledger().record(Call("system", "m", "http://h/v1", 1.0, cost=odd))
            current_ledger().record(Call("system", "m", "http://h/v1", 1.0, status=2**70))
            return {**example, "response": "x"}

    asked = []
    event.listen(store.engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
    done = await run([Odd()], [{"id": each, "context": "c", "question": "q"} for each in range(10)])
    assert done.counts["failed"] == 10
    assert asked
    assert [said for said in asked if "integrity_check" in said] == []
    with store.reading() as connection:
        assert set(connection.scalars(select(schema.outputs.c.error).distinct())) != {None}


@pytest.mark.parametrize("way", ["reading", "writing"])
def test_what_makes_no_sense_in_a_whole_store_is_raised_as_it_is_and_nobody_is_kept_from_writing(tmp_path, way):
    with open_store(tmp_path / "s.db", busy_timeout=50) as store:
        free = []

        def may_write(*told):
            if "integrity_check" in told[2]:
                with sqlite3.connect(store.path, timeout=0.05) as other:
                    other.execute("BEGIN IMMEDIATE")
                    free.append(True)
                other.close()

        event.listen(store.engine, "before_cursor_execute", may_write)
        with pytest.raises(KeyError, match="odd"), getattr(store, way)():
            raise KeyError("odd")
        assert free == [True]


def test_looking_through_a_file_ends_in_time(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        with store.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE extra (x TEXT PRIMARY KEY)")
            rows = (
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) SELECT hex(i) FROM n"
            )
            connection.exec_driver_sql(f"INSERT INTO extra {rows}")
        with store.reading() as connection:
            steps = []
            until = time.monotonic() - 1
            connection.connection.driver_connection.set_trace_callback(steps.append)
            assert store.database.damage(connection, until) is None
            assert connection.scalar(select(func.count()).select_from(schema.runs)) == 0
            assert [said for said in steps if "integrity_check" in said]
            assert list(damaged(connection, until=until)) == []
