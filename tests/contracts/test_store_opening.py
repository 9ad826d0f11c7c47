"""Opening stores of every kind: migrations both ways, other programs' databases, errors that say what to do,
backups.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from context_bench.__main__ import main
from context_bench.core.errors import MissingExtra, StoreUnusable
from context_bench.engine import list_runs, open_store, open_watch, rows
from context_bench.engine.store import database_of, schema, schema as migrating
from context_bench.engine.store.browsing import open_reading
from postgres_server import program_of

server_needed = pytest.mark.program("initdb")


def move(connection, to):
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(migrating.__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.downgrade(config, to)


def version(connection):
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


@pytest.fixture
def fresh(kind, tmp_path, request):
    """The address of a store that no test has touched."""
    if kind == "sqlite":
        return str(tmp_path / "fresh.db")
    server, name = request.getfixturevalue("postgres"), f"s{abs(hash(request.node.name)):x}"
    return f"{server.url('opened')}?schema={name}"


class Answers:
    name = "answers"

    def fingerprint(self):
        return {}

    async def aprocess(self, example):
        return {**example, "response": example["context"]}


def test_migrations_make_exactly_the_tables_of_the_schema(fresh):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with open_store(fresh) as store, store.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []


_CATALOGUE = (
    "SELECT table_name, column_name, ordinal_position, column_default, is_nullable, data_type, collation_name, "
    "character_maximum_length,"
    " is_identity FROM information_schema.columns WHERE table_schema = 'OWN'",
    "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'OWN'",
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = "
    "'OWN'::regnamespace",
    "SELECT sequence_name, data_type, maximum_value FROM information_schema.sequences WHERE sequence_schema = 'OWN'",
)


@server_needed
def test_a_new_store_in_postgres_is_what_the_migrations_make(postgres):
    def made(connection, own):
        told = [connection.exec_driver_sql(query.replace("OWN", own)).all() for query in _CATALOGUE]
        return sorted(repr(tuple(row)).replace(f"{own}.", "") for rows in told for row in rows)

    with open_store(f"{postgres.url('opened')}?schema=new_here") as store, store.engine.connect() as connection:
        here = made(connection, "new_here")
        connection.exec_driver_sql("CREATE SCHEMA migrated")
        connection.exec_driver_sql('SET search_path TO "migrated"')
        migrating.upgrade(connection, "s", None)
        assert made(connection, "migrated") == here


async def test_every_step_down_and_up_again_keeps_what_older_schemas_know(fresh, store, run):
    with open_store(fresh) as opened:
        await run([Answers()], [{"id": i, "context": f"text {i}"} for i in range(3)], into=opened)
        before = list(rows(opened, "r"))
        for to in ("0006", "0004", "0003", "0002", "0001"):
            with opened.writing() as connection:
                move(connection, to)
                assert version(connection) == to
                kept = connection.execute(select(schema.outputs.c.output, schema.outputs.c.metadata)).all()
                assert all(
                    value is None or value[:1] in (b"\x00", b"\x01") for row in kept for value in row
                )  # as older programs read it
    with open_store(fresh) as opened:
        assert list(rows(opened, "r")) == before
        with opened.reading() as connection:
            assert version(connection) == schema.HEAD
        await run([Answers()], [{"id": i, "context": f"text {i}"} for i in range(4)], into=opened)
        assert len(rows(opened, "r")) == 4
        with opened.writing() as connection:
            move(connection, "base")
    assert list_runs(open_store(fresh)) == []


def test_a_newer_schema_is_refused_and_left_alone(fresh):
    with open_store(fresh) as store, store.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreUnusable, match=rf"schema 9999.*knows up to {schema.HEAD}.*newer context-bench"):
        open_store(fresh)


_ADDED = {
    "trigger": ["CREATE TRIGGER spy AFTER INSERT ON runs BEGIN UPDATE runs SET name = 'x'; END"],
    "view": ["CREATE VIEW spied AS SELECT * FROM runs"],
    "older": ["PRAGMA user_version = 1"],
    "newer": ["PRAGMA user_version = -7"],
}
_ADDED_THERE = {
    "trigger": [
        "CREATE FUNCTION spying() RETURNS trigger AS 'BEGIN RETURN NULL; END' LANGUAGE plpgsql",
        "CREATE TRIGGER spy AFTER INSERT ON runs EXECUTE FUNCTION spying()",
    ],
    "rule": ["CREATE RULE spy AS ON INSERT TO runs DO ALSO DELETE FROM plan"],
}


@pytest.mark.parametrize("added", sorted({*_ADDED, *_ADDED_THERE}))
def test_a_store_that_another_program_added_to_is_refused(added, fresh):
    with open_store(fresh) as store:
        statements = (_ADDED_THERE if store.engine.dialect.name == "postgresql" else _ADDED).get(added, [])
        with store.writing() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    for opening in (open_store, open_reading):
        if statements:
            with pytest.raises(
                StoreUnusable, match=r"was changed by another program: it has .*, which no context-bench makes"
            ):
                opening(fresh)
        else:
            opening(fresh).close()


@server_needed
def test_a_schema_of_another_program_is_refused_and_a_shared_database_is_not(postgres):
    import psycopg

    where = postgres.url("shared")
    with psycopg.connect(where) as other:
        other.execute("CREATE TABLE runs (mine text)")
        other.execute("CREATE TABLE alembic_version (version_num text)")
    with pytest.raises(
        StoreUnusable, match=r"schema 'public' of that database is another program's; name another with \?schema=NAME"
    ):
        open_store(f"{where}?schema=public")
    with open_store(where) as store, open_store(f"{where}?schema=second") as second:
        assert list_runs(store) == list_runs(second) == []
        assert second.name.endswith("/shared?schema=second")
    with psycopg.connect(where) as other:
        assert other.execute("SELECT count(*) FROM runs").fetchone() == (0,)


@server_needed
def test_what_cannot_be_opened_says_why_and_never_the_password(postgres):
    import psycopg

    where = postgres.url("refusals")
    with psycopg.connect(where, autocommit=True) as admin:
        admin.execute("CREATE ROLE guest LOGIN PASSWORD 'guest-password'")
        admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    secret = postgres.password
    cases = {
        where.replace(secret, f"{secret}x"): "lets nobody in that way.*PGPASSWORD or ~/.pgpass",
        where.replace("/refusals", "/nowhere"): "no such database.*createdb",
        where.replace(f":{postgres.port}/", ":1/"): "cannot be reached.*see that the server runs",
        where.replace("127.0.0.1", "nowhere.invalid"): "cannot be reached",
        where.replace("/refusals", "/latin"): "encoding is LATIN1; expected UTF8",
        where.replace(f"bench:{secret}", "guest:guest-password"): "may not be used by this user.*needs CREATE",
        f"{where}?schema=No-Schema": "'No-Schema' cannot be a schema",
        f"{where}?sslmode=sometimes": "sslmode",
        f"postgresql://bench:{secret}@host:port/x": r"cannot be read; expected postgresql://USER@HOST:PORT/DATABASE",
        f"{where}?password={secret}x&connect_timeout=3": "",
    }
    for bad, said in cases.items():
        if said:
            with pytest.raises(StoreUnusable, match=said) as caught:
                open_store(bad)
            assert secret not in str(caught.value)
            assert "guest-password" not in str(caught.value)
    assert secret not in database_of(f"{where}?password={secret}&sslpassword={secret}", busy_timeout=1).name


def test_without_the_driver_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"a store in PostgreSQL needs the optional extra 'postgres'"):
        open_store("postgresql://h/db")


@server_needed
def test_commits_wait_for_the_disk_whatever_the_server_does_by_itself(postgres):
    import psycopg

    where = postgres.url("durable")
    with psycopg.connect(where, autocommit=True) as admin:
        admin.execute("ALTER DATABASE durable SET synchronous_commit = off")
        admin.execute("ALTER DATABASE durable SET default_transaction_isolation = serializable")
    with open_store(where) as store:
        for durable, wanted in ((True, "on"), (False, "off"), (True, "on")):
            with store.writing(durable=durable) as connection:
                assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == wanted
                assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
        with store.reading() as connection:
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"


@server_needed
def test_a_store_locked_by_another_program_says_so(postgres):
    import psycopg

    where = postgres.url("locked")
    with open_store(where, busy_timeout=50) as store:
        with psycopg.connect(where) as other:
            other.execute("LOCK TABLE context_bench.replies")
            with pytest.raises(StoreUnusable, match="locked by another program"), store.writing() as connection:
                connection.execute(schema.replies.delete())
        assert list_runs(store) == []


@pytest.fixture
def command(kind, place, tmp_path, capsys, monkeypatch):
    """A command line against a store of this kind → what it printed, all of it; no word of it is the password."""
    data, where, secret = tmp_path / "d.jsonl", place(), None
    data.write_text(
        "".join(
            json.dumps({"id": f"e{i}", "context": f"It is {i}.", "question": "?", "answer": str(i)}) + "\n"
            for i in range(7)
        )
    )
    if kind == "postgresql":
        secret = where.partition("://")[2].partition("@")[0].partition(":")[2]

    def ran(*words, code=0):
        monkeypatch.chdir(tmp_path)
        found = main([str({"DATA": data, "STORE": where}.get(word, word)) for word in words])
        printed = capsys.readouterr()
        assert found == code, printed.err
        assert secret is None or secret not in printed.out + printed.err
        return printed.out + printed.err

    ran.where, ran.secret = where, secret
    return ran


@server_needed
@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)  # with files, the tests of each command do it
def test_every_command_that_takes_a_store(command, tmp_path):
    kept = ("--dataset", "DATA", "--upstream", "echo", "--store", "STORE", "--quiet")
    command("run", *kept, "--controls", "full,none", "--run", "one")
    command("run", *kept, "--controls", "full,none", "--seed", "1", "--run", "two")
    assert "14 rows were already in the store" in command("run", *kept, "--controls", "full,none", "--run", "one")
    assert "two" in command("runs", "--store", "STORE")
    assert "full" in command("show", "one", "--store", "STORE", "--output", "markdown")
    assert "It is 3." in command("diff", "one", "e3", "--store", "STORE")
    command("compare", "one", "two", "--store", "STORE", "--force")
    command("gate", "one", "--store", "STORE", "--min", "full/f1=0")
    command("rescore", "one", "--store", "STORE")
    command("export", "one", "--store", "STORE", "--format", "jsonl", "--out", "rows.jsonl")
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 14
    with open_store(command.where) as store:
        manifests = [row.manifest for row in list_runs(store)]
        open_watch(store, {"via": "http://h"}, name="traffic").end()
    assert "traffic" in command("watch", "--show", "last", "--store", "STORE")
    assert command.secret is None or command.secret not in json.dumps(manifests)
    assert "removed" in command("purge", "--older-than", "0s", "--store", "STORE")
    assert "no runs yet" in command("runs", "--store", "STORE")


def backed_up(kind, where, server, tmp_path):
    """As docs/guide/stores.md has it; the address of the copy."""
    if kind == "sqlite":
        copy = tmp_path / "copy.db"
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"import sqlite3; sqlite3.connect({where!r}).execute('VACUUM INTO ?', [{str(copy)!r}])",
            ],
            check=True,
        )
        return str(copy)
    address, _, name = where.partition("?schema=")
    environment = {**os.environ, "PGPASSWORD": server.password}
    bare, dump = address.replace(f":{server.password}@", "@"), tmp_path / "store.dump"
    subprocess.run(
        [program_of("pg_dump"), "--format=custom", f"--schema={name}", f"--file={dump}", bare],
        check=True,
        env=environment,
    )
    other = server.url("restored", password=False)
    subprocess.run([program_of("pg_restore"), "--no-owner", f"--dbname={other}", dump], check=True, env=environment)
    return f"{server.url('restored')}?schema={name}"


async def test_a_backup_is_a_store(kind, fresh, store, run, request, tmp_path):
    server = request.getfixturevalue("postgres") if kind == "postgresql" else None
    with open_store(fresh) as opened:
        await run([Answers()], [{"id": i, "context": f"text {i}"} for i in range(3)], into=opened)
        copy = backed_up(kind, fresh, server, tmp_path)
        before = list(rows(opened, "r"))
    with open_store(copy) as restored:
        assert list(rows(restored, "r")) == before
        await run([Answers()], [{"id": i, "context": f"text {i}"} for i in range(4)], into=restored)
        assert len(rows(restored, "r")) == 4
