"""A store in which single bits have flipped: what is read is what was written, or is named as damaged; never a
traceback.
"""

import json
import random
import shutil
import sqlite3

import pytest

from context_bench.__main__ import main
from context_bench.engine import open_store
from context_bench.engine.encoding import pack
from context_bench.engine.store import packed_columns, schema
from context_bench.engine.store.row_details import export

FLIPS = 100  # of each kind
_SYSTEMS = """
class Says:
    name = "says"

    def process(self, example):
        if example["id"] == 3:
            raise ValueError("no answer")
        return {**example, "response": "Paris, " + " ".join(f"word{i}" for i in range(40 * example["id"]))}


class Twin(Says):
    name = "twin"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("flipped")
    (made / "flipped_systems.py").write_text(_SYSTEMS)
    shared = " ".join(f"context{i}" for i in range(600))
    rows = [{"id": i, "context": f"{shared} {i}", "question": f"q{i}?", "answer": "Paris"} for i in range(6)]
    (made / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(made)
        patch.chdir(made)
        patch.setenv("XDG_CACHE_HOME", str(made / "cache"))
        assert main(_run("whole.db", "r")) in (0, 1)
        yield made


def _run(store, name):
    systems = ("--system", "py:flipped_systems:Says", "--system", "py:flipped_systems:Twin")
    return [
        "run",
        *systems,
        "--dataset",
        "d.jsonl",
        "--store",
        str(store),
        "--run",
        name,
        "--bodies",
        "all",
        "--max-failures",
        "1",
    ]


def _exported(path):
    with open_store(path) as store:
        return [json.loads(json.dumps(each, default=repr)) for each in export(store, "r")]


def _commands(path):
    store = ["--store", str(path)]
    return [
        ["export", "r", *store, "--format", "jsonl", "--out", str(path.with_name("out.jsonl"))],
        ["show", "r", *store, "--output", "json"],
        ["rescore", "r", *store, "--evaluator", "answer"],
        ["copy", "r", "--store", str(path), "--to", str(path.with_name("copy.db"))],
        [*_run(path, "r")],
        ["runs", *store],
    ]


def _is_well_said(argv, capsys):
    """Carry the command out: it ends with an exit code of its own, and speaks of no fault of the program."""
    code = main(argv)
    out, said = capsys.readouterr()
    assert code in (0, 1, 2), said
    assert "Traceback" not in said + out, said
    assert "fault of context-bench" not in said, said
    assert "plug-in" not in said, said
    return code, out, said


def _flipped_blob(connection, place, rng):
    """Flip a bit of a packed value; returns table and column."""
    table, column, keys = place
    data = bytearray(connection.execute(f'SELECT "{column}" FROM {table.name} WHERE {keys}').fetchone()[0])
    at = rng.randrange(len(data) * 8)
    data[at // 8] ^= 1 << at % 8
    connection.execute(f'UPDATE {table.name} SET "{column}" = ? WHERE {keys}', (bytes(data),))
    return table.name, column


def _blobs(connection):
    places = []
    for table in schema.metadata.sorted_tables:
        keys = [f'"{column.name}"' for column in table.primary_key]
        for column in packed_columns(table):
            quoted = " || ' AND ' || ".join(f"'{key} = ' || quote({key})" for key in keys)
            for (where,) in connection.execute(f'SELECT {quoted} FROM {table.name} WHERE "{column}" IS NOT NULL'):
                places.append((table, column, where))
    return places


def test_a_flipped_bit_of_a_value_is_found_and_named(folder, tmp_path, capsys):
    whole = {(each["row"]["system"], each["row"]["example_id"]): each for each in _exported(folder / "whole.db")}
    rng = random.Random(18)
    named = 0
    for number in range(FLIPS):
        path = tmp_path / f"{number}.db"
        shutil.copy(folder / "whole.db", path)
        with sqlite3.connect(path) as connection:
            table, column = _flipped_blob(connection, rng.choice(_blobs(connection)), rng)
        connection.close()
        if table not in ("runs", "replies", "watches"):
            named += _is_told_from_whole(_exported(path), whole)
        if number % 4 and table != "runs":  # the other test has commands enough
            continue
        commands = _commands(path)
        code, _, said = _is_well_said(commands[number % len(commands)], capsys)
        if table == "runs" and code == 2:
            assert f"store {path} is damaged: runs number=1 ({column})" in said
        path.with_name("copy.db").unlink(missing_ok=True)
    assert named > FLIPS // 3


def _is_told_from_whole(rows, whole):
    """Every row equals the original, or its errors name what of it is damaged, and that is left out. Returns whether
    one does.
    """
    assert len(rows) == len(whole)
    named = 0
    for each in rows:
        original = whole[each["row"]["system"], each["row"]["example_id"]]
        if each == original:
            continue
        assert each["row"]["errors"]["store"].startswith("Damaged: "), each["row"]
        named = 1
        for name in ("example", "output", "calls", "forwarded"):
            assert each[name] == original[name] or not each[name]
        for name in ("usage", "metadata", "wire", "scores"):
            before, now = original["row"].get(name) or {}, each["row"].get(name) or {}
            assert all(before[key] == value for key, value in now.items())
    return named


def test_a_flipped_bit_of_a_page_ends_no_command_with_a_traceback(folder, tmp_path, capsys):
    rng = random.Random(19)
    data = (folder / "whole.db").read_bytes()
    for number in range(FLIPS):
        path = tmp_path / f"{number}.db"
        damaged = bytearray(data)
        at = rng.randrange(len(data) * 8)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        commands = _commands(path)
        _is_well_said(commands[number % len(commands)], capsys)
        path.with_name("copy.db").unlink(missing_ok=True)


def test_what_is_damaged_in_a_copied_store_is_named_and_nothing_of_it_is_copied(folder, tmp_path, capsys):
    path = tmp_path / "s.db"
    shutil.copy(folder / "whole.db", path)
    with sqlite3.connect(path) as connection:
        connection.execute('UPDATE scores SET "values" = ? WHERE output = 2', (pack(b'{"f1":1}')[:-1] + b"?",))
        connection.execute("UPDATE outputs SET output = ? WHERE id = 2", (pack(b'{"response":"A"}')[:-1] + b"?",))
        key = connection.execute("SELECT key FROM bodies").fetchone()[0]
        connection.execute("UPDATE bodies SET data = ? WHERE key = ?", (pack(b'"another text"')[:-1] + b"?", key))
    connection.close()
    code, _, said = _is_well_said(["copy", "r", "--store", str(path), "--to", str(tmp_path / "copy.db")], capsys)
    assert code == 2
    assert "outputs id=2 (output)" in said
    assert f"bodies key={key.hex()} (data)" in said
    code, out, said = _is_well_said(["show", "r", "--store", str(path), "--output", "csv"], capsys)
    assert code == 0, said
    assert "Damaged: scores output=2 (" in out
    out = tmp_path / "out.jsonl"
    code, _, said = _is_well_said(["export", "r", "--store", str(path), "--format", "jsonl", "--out", str(out)], capsys)
    assert code == 0, said
    assert "Damaged: scores output=2 (answer_quality); outputs id=2 (output); bodies key=" in out.read_text()
    assert len(out.read_text().splitlines()) == 12
    assert "rows are damaged and are written as failures: first ids " in said
    for form in ("json", "csv"):
        code, _, said = _is_well_said(["export", "r", "--store", str(path), "--format", form], capsys)
        assert code == 0, said
        assert "damaged and" in said
    assert _is_well_said(["runs", "--store", str(tmp_path / "copy.db")], capsys)[1].count("\n") <= 2


def test_an_export_is_advised_only_where_it_gets_past_the_damage(folder, tmp_path, capsys):
    path, export_advice = (
        tmp_path / "store.db",
        f"`context-bench export RUN --format jsonl --store {tmp_path / 'store.db'}` writes",
    )
    shutil.copy(folder / "whole.db", path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE outputs SET output = ? WHERE id = 2", (pack(b'{"response":"A"}')[:-1] + b"?",))
    connection.close()
    copying = ["copy", "r", "--store", str(path), "--to", str(tmp_path / "copy.db")]
    assert export_advice in _is_well_said(copying, capsys)[2]
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET manifest = ?", (pack(b"{}")[:-1] + b"?",))
    connection.close()
    for line in (copying, ["export", "r", "--store", str(path), "--format", "jsonl"]):
        code, _, said = _is_well_said(line, capsys)
        assert code == 2
        assert "runs " in said
        assert export_advice not in said
        assert "put the file back from a copy" in said


def test_values_of_before_are_read(folder, tmp_path):
    """A store whose values have no checksum, as older programs wrote them."""
    from context_bench.engine.encoding import unpack

    path = tmp_path / "old.db"
    shutil.copy(folder / "whole.db", path)
    with sqlite3.connect(path) as connection:
        for table, column, keys in _blobs(connection):
            data = connection.execute(f'SELECT "{column}" FROM {table.name} WHERE {keys}').fetchone()[0]
            connection.execute(f'UPDATE {table.name} SET "{column}" = ? WHERE {keys}', (b"\x00" + unpack(data),))
    connection.close()
    assert _exported(path) == _exported(folder / "whole.db")
