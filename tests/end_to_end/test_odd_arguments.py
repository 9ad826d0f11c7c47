"""Every command with files, numbers and names that are not what it takes: a sentence and a documented exit code, never
a fault.
"""

import contextlib
import json
import os
import random
import threading

import pytest

from context_bench.__main__ import main
from context_bench.core import machine

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
_ALSO_WITH_A_FILE = [
    ["run", "--system", "full", "--upstream", "scripted:{}", "--dataset", "rows.jsonl", "--store", "n.db"],
    ["serve", "--system", "full", "--upstream", "scripted:{}", "--port", "0"],
    ["compress", "run", "{}", "--system", "head_tail:keep=0.5", "--upstream", "echo", "--store", "n.db"],
    ["compress", "run", "--config", "{}", "--store", "n.db"],
    ["memory", "audit", "{}"],
    ["memory", "run", "--config", "{}", "--store", "n.db"],
    ["memory", "doctor", "--system", "http:{}"],
    ["memory", "doctor", "--system", "cli:{}"],
    ["memory", "cortex-compare", "--baseline", "{}", "--current", "{}"],
    ["trace", "convert", "{}", "--out", "x.jsonl"],
    ["trace", "compare", "{}", "{}"],
    ["trace", "show", "rows.jsonl", "--gold", "{}"],
    ["trace", "score", "--trace", "rows.jsonl", "--gold", "rows.jsonl", "--join", "{}", "--out-dir", "scored"],
    ["trace", "score", "--trace", "rows.jsonl", "--gold", "{}", "--out-dir", "scored"],
    ["explain", "{}"],
    ["explain", "rows.jsonl", "--against", "{}"],
    ["judge", "label", "last", "--labels", "{}", "--store", "s.db"],
    ["gate", "last", "--against", "{}", "--store", "s.db"],
    ["agent", "{}", "--arm", "base=", "--upstream", "echo", "--store", "n.db", "--", "true"],
    ["model", "serve", "--gguf", "{}"],
    ["plot", "{}", "--kind", "scores", "--out", "x.svg"],
    ["show", "last", "--store", "s.db", "--out", "{}"],
    ["export", "last", "--store", "s.db", "--format", "jsonl", "--out", "{}"],
    ["tap", "--upstream", "http://127.0.0.1:9", "--port", "0", "--out", "{}"],
]
_ODD = ["", "0", "-1", "nan", "inf", "1e400", "9" * 400, "x" * 5_000, "\udcff", "\x1b[31m", "../..", "-", "\u202e"]
_WITH_A_WORD = [
    ["show", "{}", "--store", "s.db"],
    ["show", "last", "--store", "s.db", "--output", "{}"],
    ["show", "last", "--store", "s.db", "--threshold", "{}"],
    ["run", "--system", "{}", "--dataset", "bundled:pydocs-qa", "-n", "1", "--store", "s.db"],
    ["run", "--system", "full", "--dataset", "{}", "-n", "1", "--store", "s.db"],
    [
        "run",
        "--system",
        "full",
        "--upstream",
        "echo",
        "--dataset",
        "bundled:pydocs-qa",
        "-n",
        "{}",
        "--dry-run",
        "--store",
        "s.db",
    ],
    ["doctor", "http://127.0.0.1:9", "--tap", "{}"],
    ["purge", "--older-than", "{}", "--store", "s.db", "--dry-run"],
    ["power", "-n", "{}"],
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
        patch.setattr(machine, "_WRITER", 0.01)
        os.mkfifo(made / "pipe.jsonl")
        (made / "device.jsonl").symlink_to("/dev/zero")
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
    return said + out, code


@pytest.mark.parametrize("argv", _WITH_A_FILE, ids=" ".join)
def test_files_of_every_kind(argv, folder, capsys):
    for name in _FILES:
        path = f"{name} \udcff.jsonl"
        _well_said([each.replace("{}", path) for each in argv], capsys)


@pytest.mark.parametrize("argv", [*_WITH_A_FILE, *_ALSO_WITH_A_FILE], ids=" ".join)
def test_a_pipe_that_nobody_has_and_a_device_are_told_and_neither_waited_for_nor_read_on(argv, folder, capsys):
    for name in ("pipe", "device"):
        if name == "device" and ("--out" in argv and argv[argv.index("--out") + 1] == "{}"):
            continue  # to write into one is what was asked for
        said, code = _well_said([each.replace("{}", f"{name}.jsonl") for each in argv], capsys)
        assert code in (1, 2), said
        assert said, argv


def test_a_pipe_that_somebody_writes_is_read_to_its_end(folder, capsys):
    rows = (folder / "rows.jsonl").read_bytes() * 30_000
    with _written(rows) as name:
        said, code = _well_said(["run", "--config", name, "--store", "p.db"], capsys)
        assert (code, "not valid TOML" in said) == (2, True)
    with _written(b"name = 1\n") as name:
        said, code = _well_said(["run", "--config", name, "--store", "p.db"], capsys)
        assert "name" in said


@contextlib.contextmanager
def _written(data):
    """The name of a pipe, as a shell's `<(...)` gives it."""
    out, into = os.pipe()

    def write():
        with contextlib.suppress(BrokenPipeError), os.fdopen(into, "wb") as file:
            file.write(data)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield f"/dev/fd/{out}"
    finally:
        os.close(out)
        writing.join()


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


_FAR = ("0", "-1", "1e-320", "1e-160", "1e-17", "0.9999999999999999", "1e16", "1e154", "1e300", "9" * 25)


_OF_POWER = ["-n", "--margin", "--difference", "--sd", "--discordant", "--trials", "--within-sd", "--cluster-size"]
_OF_POWER += ["--icc", "--power", "--alpha"]


@pytest.mark.parametrize("option", _OF_POWER)
def test_power_counts_with_numbers_that_are_far_away_or_refuses_them(option, folder, capsys):
    for value in _FAR:
        for more in ([], ["-n", "5"]) if option != "-n" else ([],):
            assert main(["power", option, value, *more]) in (0, 2)
            told = capsys.readouterr()
            assert "fault" not in told.err, (option, value, told.err)
            assert "nan" not in told.out
            assert "inf " not in told.out


@pytest.mark.parametrize(
    "line",
    [
        ["replay", "rows.jsonl", "--upstream", "echo", "--proxy", "http://127.0.0.1:9", "-n"],
        ["run", "--dataset", "bundled:pydocs-qa", "--system", "full", "--trials"],
        ["compress", "probe", "rows.jsonl", "-n"],
        ["judge", "audit", "r", "--seed"],
        ["trace", "show", "rows.jsonl", "--width"],
        ["memory", "run", "--system", "bm25", "--dataset", "bundled:recall-lab", "--k"],
        ["memory", "run", "--system", "bm25", "--dataset", "bundled:recall-lab", "--questions"],
    ],
    ids=" ".join,
)
def test_a_count_beyond_what_can_be_stored_is_refused_by_its_option(line, folder, capsys):
    assert main([*line, "9" * 25]) == 2
    said = capsys.readouterr().err
    assert f"{line[-1]} " in said
    assert "9" * 25 in said
    assert "expected a whole number" in said or "expected whole numbers" in said


@pytest.mark.parametrize("entry", ["max_examples = true", "timeout = false", f"trials = {'9' * 25}"])
def test_a_number_of_a_file_is_no_truth_value_and_can_be_stored(entry, folder, capsys):
    (folder / "odd.toml").write_text(entry)
    assert main(["run", "--config", "odd.toml", "--system", "full", "--dataset", "bundled:pydocs-qa", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert entry.partition(" ")[0] in said
    assert "expected a " in said


@pytest.mark.parametrize("margin", ["1e-320", "1e-200", "1e-160", "1e-17", "0.9999999999999999"])
def test_a_margin_that_is_next_to_nothing_is_counted_with(margin, folder, capsys):
    rows = [
        {"system": system, "id": str(i), "question": f"q{i}", "answer": "a", "response": "a", "scores": {"f1": score}}
        for i in range(12)
        for system, score in (("full", 1.0), ("mine", float(i % 3 > 0)))
    ]
    (folder / "scored.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["import", "scored.jsonl", "--name", f"m{margin}", "--store", "m.db"]) == 0
    run, store = f"m{margin}", ["--store", "m.db"]
    for line in (
        ["compare", run, "--metric", "f1"],
        ["gate", run, "--metric", "f1"],
        ["run", "--system", "full", "--upstream", "echo", "--dataset", "bundled:pydocs-qa", "-n", "5", "--dry-run"],
    ):
        capsys.readouterr()
        assert main([*line, "--margin", margin, *store]) in (0, 2, 4)
        assert "fault" not in capsys.readouterr().err, line


@pytest.mark.parametrize("line", [["run", "--system", "full"], ["grade", "--system", "head_tail"], ["rescore", "r"]])
@pytest.mark.parametrize("seconds", ["inf", "1e300"])
def test_a_time_beyond_all_clocks_is_refused(line, seconds, folder, capsys):
    assert main([*line, "--timeout", seconds]) == 2
    assert "--timeout " in (said := capsys.readouterr().err)
    assert "expected a number from" in said
