"""Stored runs of each family, made once and kept: they open, read as they did in every format, and can be resumed."""

import io
import json
import lzma
import platform
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pyarrow.parquet
import pytest

from context_bench.__main__ import main

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from recordings import RECIPES  # noqa: E402

STORES = HERE / "stores"
RUNS = [name for name in RECIPES if name != "watch"]
#: Those whose identity holds nothing of the machine, such as a port.
RESUMED = {"pipeline": 15, "memory": 25, "compression": 9}
#: Those that need no program of the system.
MADE_AGAIN = [name for name in RUNS if name != "agents"]
#: Files that a person can read in a diff; the others are packed.
PLAIN = {"table", "markdown", "csv"}


@pytest.fixture
def opened(tmp_path, monkeypatch, refreshing):
    """(family) → its kept store, unpacked where the test stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def unpacked(family):
        packed, store = STORES / f"{family}.db.xz", Path("kept.db")
        if refreshing and not packed.exists():
            with monkeypatch.context() as patch:
                patch.setattr(platform, "platform", lambda *_: "Linux")
                made_by(family, "kept.db")
            packed.parent.mkdir(exist_ok=True)
            packed.write_bytes(lzma.compress(store.read_bytes(), preset=9))
        store.write_bytes(lzma.decompress(packed.read_bytes()))
        return store

    return unpacked


def made_by(family, store):
    report = ("--output", "json", "--out", "report.json")
    assert RECIPES[family]("--store", store, "--run", "kept", "--quiet", *report) == 0


def written(*line):
    """The file that a command writes."""
    assert main([*line, "--store", "kept.db", "--out", "written"]) == 0
    return Path("written").read_bytes()


def text_of(*line):
    return written(*line).decode("utf-8")


def plain_parquet():
    """Schema and rows of a Parquet file; its bytes also depend on the library that wrote it."""
    table = pyarrow.parquet.read_table(io.BytesIO(written("export", "kept", "--format", "parquet")))
    lines = [f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in table.schema]
    return "\n".join([*lines, *(json.dumps(row, ensure_ascii=False, default=str) for row in table.to_pylist()), ""])


@pytest.mark.parametrize("form", ["table", "markdown", "json", "csv", "html"])
@pytest.mark.parametrize("family", RUNS)
def test_reports_of_a_kept_run_read_as_they_did(family, form, opened, golden):
    opened(family)
    golden(f"runs/{family}.{form}{'' if form in PLAIN else '.xz'}", text_of("show", "kept", "--output", form))


@pytest.mark.parametrize("family", RUNS)
def test_exports_of_a_kept_run_read_as_they_did(family, opened, golden):
    opened(family)
    golden(f"runs/{family}.jsonl.xz", text_of("export", "kept", "--format", "jsonl"))
    golden(f"runs/{family}.parquet.xz", plain_parquet())
    golden(f"runs/{family}.canonical.json.xz", text_of("export", "kept", "--canonical"))


@pytest.mark.parametrize(("family", "form"), [("memory", "memory"), ("compression", "results")])
def test_exports_of_one_family_read_as_they_did(family, form, opened, golden):
    opened(family)
    golden(f"runs/{family}.{form}.xz", text_of("export", "kept", "--format", form))


def test_logs_for_inspect_read_as_they_did(opened, golden):
    opened("pipeline")
    Path("logs").mkdir()
    assert main(["export", "kept", "--store", "kept.db", "--format", "inspect", "--out", "logs"]) == 0
    for file in sorted(Path("logs").iterdir()):
        golden(f"runs/inspect/{file.name}.xz", file.read_text("utf-8"))


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_kept_watch_reads_as_it_did(form, opened, golden):
    opened("watch")
    golden(f"runs/watch.{form}", text_of("watch", "--show", "kept", "--output", form))


def shape(value, systems, place=()):
    """The names in a document, each with its place: `[]` stands for any element, `*` for any system."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from shape(each, systems, (*place, "*" if name in systems else name))
    elif isinstance(value, list) and value:
        for each in value:
            yield from shape(each, systems, (*place, "[]"))
    elif place[0] == "estimates":
        yield ".".join(place[:-1])
        yield f"estimates.*.*.{place[-1]}"
    else:
        yield ".".join(place)


@pytest.mark.parametrize("family", RUNS)
def test_names_of_scores_metrics_and_keys_are_those_kept(family, opened, golden):
    opened(family)
    found = json.loads(text_of("show", "kept", "--output", "json"))
    golden(f"names/{family}.txt", "".join(f"{each}\n" for each in sorted(set(shape(found, found["summary"])))))


#: Options that the kept runs are older than.
NEWER_OPTIONS = ("copy_replies", "evidence_only", "go_on", "only_lost", "pilot", "until_decided")


def comparable(document):
    """A canonical document without ports, dates and the machine's own facts, and without what the kept runs are older
    than: roles, the design with its options.
    """
    read = json.loads(re.sub(r"127\.0\.0\.1:\d+|\b202\d-\d\d-\d\d\b", "HERE", document))
    for name in ("tap", *NEWER_OPTIONS):
        read["manifest"]["options"].pop(name, None)
    read["manifest"].pop("design", None)
    read["manifest"]["engine"].pop("environment")
    for cell in read["manifest"]["cells"]:
        cell.pop("roles", None)
    return json.dumps(read, indent=1, ensure_ascii=False)


@pytest.mark.parametrize("family", MADE_AGAIN)
def test_the_same_command_says_what_the_kept_run_says(family, opened, same_text):
    opened(family)
    kept = comparable(text_of("export", "kept", "--canonical"))
    Path("kept.db").unlink()
    made_by(family, "kept.db")
    same_text(kept, comparable(text_of("export", "kept", "--canonical")))


@pytest.mark.parametrize("family", RESUMED)
def test_a_kept_run_is_resumed_with_nothing_left_to_do(family, opened, capsys):
    store = opened(family)
    with closing(sqlite3.connect(store)) as database:
        before = database.execute("SELECT count(*) FROM outputs").fetchone()
    made_by(family, "kept.db")
    assert f"{RESUMED[family]} rows were already in the store" in capsys.readouterr().err
    with closing(sqlite3.connect(store)) as database:
        assert database.execute("SELECT count(*) FROM outputs").fetchone() == before


def test_a_new_store_has_the_tables_that_are_kept(opened, golden):
    opened("pipeline")
    made_by("pipeline", "new.db")
    with closing(sqlite3.connect("new.db")) as database:
        query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, name"
        made = [sql for (sql,) in database.execute(query)]
        version = database.execute("SELECT version_num FROM alembic_version").fetchone()
    golden("schema.sql", "".join(f"{each};\n" for each in made) + f"-- {version[0]}\n")


#: Of a PostgreSQL store: columns, indices, constraints and sequences.
CATALOGUE = (
    "SELECT table_name, column_name, ordinal_position, column_default, is_nullable, data_type, collation_name,"
    " is_identity FROM information_schema.columns WHERE table_schema = 'golden'",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'golden'",
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'golden'::regnamespace AND contype <> 'n'",
    "SELECT sequence_name, data_type FROM information_schema.sequences WHERE sequence_schema = 'golden'",
)


@pytest.mark.program("initdb")
def test_a_new_store_in_postgres_has_the_tables_that_are_kept(opened, golden, postgres):
    import psycopg

    opened("pipeline")
    where = postgres.url("golden")
    assert main(["copy", "kept", "--store", "kept.db", "--to", f"{where}?schema=golden"]) == 0
    with psycopg.connect(where) as database:
        told = sorted(f"{tuple(row)}".replace("golden.", "") for query in CATALOGUE for row in database.execute(query))
    golden("schema-postgres.txt", "".join(f"{line}\n" for line in told))
