"""Every command with files, numbers and names that are not what it takes: a sentence and a documented exit code, never
a fault.
"""

import os
import random

import pytest

from context_bench.__main__ import main

_CODES = (0, 1, 2, 3, 4)
_FILES = {
    "missing": None,
    "folder": "folder",
    "empty": b"",
    "binary": random.Random(5).randbytes(3_000),
    "zeros": bytes(3_000),
    "not UTF-8": b'{"id": "\xff\xfe", "question": "\xe9"}\n',
    "not JSON": b'{"id": 1, "question": [}\n',
    "other JSON": b'[1, null, "x", {"a": [[]]}]\n',
    "SQLite of others": "sqlite",
}
_WITH_A_FILE = [
    ["run", "--dataset", "{}", "--system", "full", "-n", "1", "--store", "s.db"],
    ["run", "--config", "{}", "--store", "s.db"],
    ["show", "last", "--store", "{}"],
    ["export", "last", "--store", "{}", "--format", "jsonl"],
    ["copy", "last", "--store", "{}", "--to", "t.db"],
    ["import", "{}", "--store", "s.db"],
    ["trace", "show", "{}"],
    ["trace", "score", "{}", "--gold", "{}", "--out", "scored"],
    ["compress", "fidelity", "{}", "{}"],
    ["compress", "cache", "{}"],
    ["replay", "{}", "--proxy", "http://127.0.0.1:9", "--store", "s.db"],
    ["judge", "calibrate", "last", "{}", "--store", "s.db"],
]
_ODD = ["", "0", "-1", "nan", "inf", "1e400", "9" * 400, "x" * 5_000, "\udcff", "\x1b[31m", "../..", "-", "\u202e"]
_WITH_A_WORD = [
    ["show", "{}", "--store", "s.db"],
    ["show", "last", "--store", "s.db", "--output", "{}"],
    ["show", "last", "--store", "s.db", "--threshold", "{}"],
    ["run", "--system", "{}", "--dataset", "pydocs", "-n", "1", "--store", "s.db"],
    ["run", "--system", "full", "--dataset", "{}", "-n", "1", "--store", "s.db"],
    ["run", "--system", "full", "--dataset", "pydocs", "-n", "{}", "--dry-run", "--store", "s.db"],
    ["purge", "--older-than", "{}", "--store", "s.db", "--dry-run"],
    ["power", "--n", "{}"],
    ["datasets", "{}"],
    ["gate", "{}", "--store", "s.db", "--min", "{}"],
    ["{}"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import sqlite3

    made = tmp_path_factory.mktemp("odd")
    rows = '{"system": "s", "id": 1, "question": "q", "answer": "a", "response": "a"}\n'
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.setenv("XDG_CACHE_HOME", str(made / "cache"))
        (made / "rows.jsonl").write_text(rows)
        assert main(["import", "rows.jsonl", "--name", "r", "--store", "s.db"]) == 0
        for name, data in _FILES.items():
            path = made / f"{name} \udcff.jsonl"
            if data == "folder":
                path.mkdir()
            elif data == "sqlite":
                with sqlite3.connect(os.fsencode(path)) as other:
                    other.execute("CREATE TABLE runs (a)")
                other.close()
            elif data is not None:
                path.write_bytes(data)
        yield made


def _well_said(argv, capsys):
    try:
        code = main(argv)
    except SystemExit as ended:
        code = ended.code
    out, said = capsys.readouterr()
    assert code in _CODES, (argv, code, said)
    for word in ("Traceback", "fault of context-bench", "the plug-in"):
        assert word not in said + out, (argv, said)
    assert "\x1b[31m" not in said, argv


@pytest.mark.parametrize("argv", _WITH_A_FILE, ids=" ".join)
def test_files_of_every_kind(argv, folder, capsys):
    for name in _FILES:
        path = f"{name} \udcff.jsonl"
        _well_said([each.replace("{}", path) for each in argv], capsys)


@pytest.mark.parametrize("argv", _WITH_A_WORD, ids=" ".join)
def test_words_and_numbers_of_every_kind(argv, folder, capsys):
    for word in _ODD:
        _well_said([each.replace("{}", word) for each in argv], capsys)


@pytest.mark.parametrize("port", ["65536", "-1", "99999999999999999999"])
@pytest.mark.parametrize(
    "line",
    [
        ["tap", "--upstream", "echo", "--port"],
        ["serve", "--system", "full", "--upstream", "echo", "--port"],
        ["watch", "--upstream", "echo", "--front"],
        ["watch", "--upstream", "echo", "--front", "0", "--back"],
        ["view", "--no-open", "--port"],
        ["model", "serve", "--port"],
    ],
)
def test_a_port_that_is_none_is_refused_in_one_sentence(line, port, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*line, port]) == 2
    assert (
        capsys.readouterr().err
        == f"context-bench: {line[-1]} {port!r} is no port; expected a number from 0 (any free one) to 65535\n"
    )
