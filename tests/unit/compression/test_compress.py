"""`context-bench compress` and `gate` as a pipeline uses them: files in, tables and JSON out, exit codes."""

import json
import xml.etree.ElementTree as ET

import pytest

from context_bench import compression
from context_bench.cli.app import run_line
from context_bench.datasets import sessions
from context_bench.wire.cache import prefix_cache

GOOD = {
    "id": "g",
    "original": "The timeout is 30 s.\nSee /etc/app.conf.\n",
    "compressed": "The timeout is 30 s.\nSee /etc/app.conf.",
}
LOSSY = {
    "id": "l",
    "original": "port=80 in /etc/app.conf, never v2.1.0",
    "compressed": "port=8080",
    "requested_keep": 0.5,
}
SENT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello?"}]
TURNED = [{"role": "user", "content": "Be kind."}, {"role": "user", "content": "Hello?"}]


@pytest.fixture
def write(tmp_path):
    def file(name, *values):
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(value, ensure_ascii=False) for value in values), encoding="utf-8")
        return str(path)

    return file


@pytest.fixture
def run(capsys):
    def line(*args):
        code = run_line(list(args))
        said = capsys.readouterr()
        return code, said.out, said.err

    return line


# fidelity
# ------------------------------------------------------------------------


def test_fidelity_of_pairs(write, run):
    code, out, _ = run("compress", "fidelity", write("p.jsonl", GOOD, LOSSY), "--output", "json")
    found = json.loads(out)
    assert code == 0
    assert found["pairs"] == 2
    assert found["metrics"]["near_misses"] == 1
    assert {one["atom"] for one in found["lost"]} >= {"/etc/app.conf", "v2.1.0", "port=80"}
    assert found["kinds"]["path"] == {"total": 2, "retained": 1, "recoverable": 0, "lost": 1}


def test_no_word_of_a_heading_is_torn(write, run):
    heads = run("compress", "fidelity", write("p.jsonl", GOOD, LOSSY))[1].splitlines()
    assert heads[1].split() == ["kind", "all", "retained", "recoverable", "lost", "share"]


def test_fidelity_of_two_files(tmp_path, run):
    before, after = tmp_path / "a.txt", tmp_path / "b.txt"
    before.write_text("see /etc/hosts\nand v2.1\n")
    after.write_bytes(b"see /etc/hosts \xff")
    code, out, _ = run("compress", "fidelity", str(before), str(after), "--output", "json")
    assert code == 0
    assert json.loads(out)["metrics"]["retained"] == 0.5
    assert json.loads(out)["metrics"]["replacement_chars"] == 1


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_tables_show_what_is_lost_and_nothing_acts(write, run, output):
    evil = {"original": "see `a\x1b[31m_b` and <b>/etc/x.conf|", "compressed": "nothing"}
    code, out, _ = run("compress", "fidelity", write("p.jsonl", LOSSY, evil), "--output", output)
    assert code == 0
    assert "/etc/app.conf" in out
    assert "\x1b" not in out
    assert out.count("\n") > 20


def test_limits_give_exit_4_after_the_report(write, run):
    pairs = write("p.jsonl", GOOD, LOSSY)
    assert run("compress", "fidelity", write("g.jsonl", GOOD), "--min", "retained=1", "--max", "word_damage=0")[0] == 0
    code, out, err = run(
        "compress", "fidelity", pairs, "--min", "retained=0.9", "--max", "near_misses=0", "--min", "utf8_ok=1"
    )
    assert code == 4
    assert "Atoms by kind" in out
    assert "retained is" in err
    assert "near_misses is 1, above 0" in err
    assert "utf8_ok" not in err
    assert run("compress", "fidelity", pairs, "--min", "json_ok=1")[0] == 4  # not measured is not passed
    code, _, err = run("compress", "fidelity", pairs, "--min", "retaned=1")
    assert (code, "Did you mean retained" in err) == (2, True)
    for wrong in ("retained", "retained=much", "=1"):
        assert run("compress", "fidelity", pairs, "--min", wrong)[0] == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"original": "a"}], "no 'original' and 'compressed'"),
        ([[1]], "expected an object"),
        ([], "no pair"),
        ([{"original": 3, "compressed": "a"}], "expected a text, a list of messages"),
    ],
)
def test_files_that_are_none(write, run, lines, message):
    code, _, err = run("compress", "fidelity", write("p.jsonl", *lines))
    assert (code, message in err) == (2, True), err


def test_no_such_file_and_no_such_format(run, tmp_path, write):
    assert run("compress", "fidelity", str(tmp_path / "none.jsonl"))[0] == 2
    assert run("compress", "fidelity", str(tmp_path / "a"), str(tmp_path / "b"))[0] == 2
    assert run("compress", "fidelity", write("p.jsonl", GOOD), "--output", "xml")[0] == 2


def test_message_lists_of_two_wires(write, run):
    blocks = [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": "max_size = 10\nmin_size = 2"}],
        }
    ]
    short = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "max_size = 10"}]}]
    code, out, _ = run(
        "compress",
        "fidelity",
        write("p.jsonl", {"original_messages": blocks, "compressed_messages": short}),
        "--output",
        "json",
    )
    assert code == 0
    assert json.loads(out)["roles"]["tool"]["lost"] == 2


# wire
# ------------------------------------------------------------------------


def test_wire(write, run):
    body = {"model": "m", "messages": SENT, "temperature": 0}
    pairs = write(
        "w.jsonl",
        {"id": "roles", "original": SENT, "compressed": TURNED},
        {"id": "fine", "original": SENT, "compressed": SENT},
        {
            "id": "body",
            "original": body,
            "compressed": {**body, "temperature": 1},
            "original_headers": {"anthropic-beta": "x"},
            "compressed_headers": {},
        },
        {"id": "bytes", "original": body, "compressed": body, "original_raw": '{"a": 1}', "compressed_raw": '{"a":1}'},
    )
    code, out, _ = run("compress", "wire", pairs, "--output", "json")
    found = json.loads(out)
    assert code == 0
    assert found["pairs"] == 4
    assert [(one["id"], one["kind"]) for one in found["violations"]] == [
        ("roles", "system_role_lost"),
        ("body", "params_changed"),
        ("body", "beta_header_lost"),
        ("bytes", "json_reserialised"),
    ]
    assert run("compress", "wire", pairs, "--max", "violations=0")[0] == 4
    assert run("compress", "wire", pairs, "--max", "orphan_tool_result=0")[0] == 0
    assert run("compress", "wire", write("t.jsonl", GOOD))[0] == 2


def test_the_older_name_of_changed_tools_is_the_sum_of_the_newer_ones(write, run):
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"title": "T"}}} for name in ("read", "find")
    ]
    other = [
        {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("read", "headroom_retrieve")
    ]
    body = {"messages": [{"role": "user", "content": "Hi."}]}
    pairs = write(
        "pairs.jsonl", {"id": "tools", "original": {**body, "tools": tools}, "compressed": {**body, "tools": other}}
    )
    metrics = json.loads(run("compress", "wire", pairs, "--output", "json")[1])["metrics"]
    assert {name: metrics[name] for name in metrics if name.startswith("tool_") and metrics[name]} == {
        **{"tool_added": 1, "tool_removed": 1, "tool_annotation_changed": 1},
        "tool_schema_changed": 2,
    }
    assert metrics["violations"] == 2
    assert "tool_added headroom_retrieve" in run("compress", "wire", pairs)[1]
    assert run("compress", "wire", pairs, "--max", "tool_schema_changed=1")[0] == 4


# cache
# ------------------------------------------------------------------------


def test_simulation(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = run("compress", "cache", "--simulate")
    assert code == 0
    assert next(line for line in out.splitlines() if line.startswith("window of last 10 turns")).split()[5:9] == [
        "52",
        "%",
        "0.278",
        "0.360",
    ]
    code, out, _ = run(
        "compress", "cache", "--simulate", "--output", "json", "--profile", "anthropic", "--price", "3,15"
    )
    rows = json.loads(out)["strategies"]["the made-up session"]["anthropic"]
    assert [round(row["cost_ratio"], 2) for row in rows] == [1.00, 3.09, 0.82, 3.52, 0.63, 4.14]


def test_pictures(run, tmp_path):
    for name in ("c.svg", "c.html"):
        assert run("compress", "cache", "--simulate", "--out", str(tmp_path / name))[0] == 0
    drawing = ET.parse(tmp_path / "c.svg").getroot()
    texts = {element.text for element in drawing.iter() if element.text}
    assert {"window of last 10 turns", "tokens sent", "cost: unit, write 1.25"} <= texts
    page = (tmp_path / "c.html").read_text()
    assert "<script" not in page
    assert page.count("<tr>") == 7


def test_recorded_sessions(run, tmp_path):
    name = sessions.bundled()[-1]
    session = sessions.load_session(name)
    bodies = [request.body for request in session.requests]
    full, cut = tmp_path / "full.jsonl", tmp_path / "cut.jsonl"
    full.write_text("\n".join(json.dumps({"messages": body["messages"][:5]}) for body in bodies[:1]))
    cut.write_text("\n".join(json.dumps({"messages": body["messages"][1:]}) for body in bodies[:1]))
    code, out, _ = run(
        "compress",
        "cache",
        name,
        "--output",
        "json",
        "--profile",
        "vllm",
        "--min",
        "prefix_stability=1",
        "--max",
        "prefix_breaks=0",
    )
    found = json.loads(out)
    assert code == 0
    assert found["recorded"][0]["requests"] == len(session.requests)
    assert found["metrics"]["prefix_stability"] == 1
    assert run("compress", "cache", str(full), str(cut), "--output", "json")[0] == 0


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--simulate", "x.jsonl"),
        ("nowhere.jsonl",),
        ("--simulate", "--profile", "none.toml"),
        ("--simulate", "--price", "much"),
    ],
)
def test_cache_usage(run, args):
    assert run("compress", "cache", *args)[0] == 2


def test_a_profile_of_ones_own(run, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('mode = "block"\nm = 1024\nb = 128\np_in = 1.25\np_out = 10.0\nr = 0.1\n')
    code, out, _ = run("compress", "cache", "--simulate", "--profile", str(path), "--output", "json")
    rows = next(iter(json.loads(out)["strategies"]["the made-up session"].values()))
    assert (code, round(rows[1]["cost_ratio"], 2)) == (0, 2.20)
    path.write_text("mode = 3")
    assert run("compress", "cache", "--simulate", "--profile", str(path))[0] == 2


# gate
# ------------------------------------------------------------------------


def exported(write, name, better=0.0, **systems):
    rows = [
        {
            "system": system,
            "example_id": i,
            "dataset": "d",
            "cluster": f"c{i // 2}",
            "scores": {"f1": score + (better if system == "proxy" else 0)},
        }
        for system, scores in systems.items()
        for i, score in enumerate(scores)
    ]
    summary = {system: {"mean_score": sum(scores) / len(scores)} for system, scores in systems.items()}
    comparisons = (
        [{"system": "proxy", "baseline": "full", "metric": "f1", "dataset": None}] if "full" in systems else []
    )
    return write(
        name, {"schema": "context-bench/result/1", "summary": summary, "comparisons": comparisons, "rows": rows}
    )


SCORES = [0.9 if i % 3 else 0.7 for i in range(240)]


def test_limits_hold_for_systems_and_not_for_controls(write, run):
    path = exported(write, "run.json", full=[0.1] * 240, proxy=SCORES)
    assert run("gate", path, "--min", "mean_score=0.8")[0] == 0
    code, _, err = run("gate", path, "--min", "mean_score=0.9", "--max", "full/mean_score=0.05")
    assert code == 4
    assert "proxy/mean_score is 0.833333, below 0.9" in err
    assert "full/mean_score is 0.1, above 0.05" in err
    assert run("gate", path, "--min", "nobody/mean_score=1")[0] == 2
    assert run("gate", path, "--min", "mean=1")[0] == 2


def test_not_worse_than_the_baseline_or_an_earlier_run(write, run):
    nothing = [0.0] * len(SCORES)
    now = exported(write, "now.json", full=SCORES, proxy=SCORES, none=nothing)
    before = exported(write, "before.json", full=SCORES, proxy=SCORES)
    worse = exported(write, "worse.json", better=-0.2, full=SCORES, proxy=SCORES, none=nothing)
    asked = ("--metric", "mean_score", "--margin", "0.05")
    assert run("gate", now, *asked)[0] == 0
    assert run("gate", now, "--against", before, *asked)[0] == 0
    assert run("gate", worse, *asked)[0] == 4
    code, _, err = run("gate", worse, "--against", before, *asked)
    assert (code, "proxy" in err) == (4, True)
    assert run("gate", before, *asked)[0] == 4  # nothing in it has to lose, so it could have shown no loss
    blind = exported(write, "blind.json", full=SCORES, proxy=SCORES, none=SCORES)
    assert run("gate", blind, *asked)[0] == 4  # a run in which no context does no harm can show no harm
    few = exported(write, "few.json", full=SCORES[:4], proxy=SCORES[:4])
    assert run("gate", few, *asked)[0] == 4  # nothing was shown
    assert run("gate", exported(write, "alone.json", proxy=SCORES), *asked)[0] == 3


def test_two_outputs_of_compress(write, run, tmp_path):
    good, bad = str(tmp_path / "good.json"), str(tmp_path / "bad.json")
    run("compress", "fidelity", write("g.jsonl", GOOD), "--output", "json", "--out", good)
    run("compress", "fidelity", write("b.jsonl", GOOD, LOSSY), "--output", "json", "--out", bad)
    asked = ("--metric", "retained", "--margin", "0.05")
    assert run("gate", good, "--against", bad, *asked)[0] == 0
    assert run("gate", bad, "--against", good, *asked)[0] == 4
    assert run("gate", bad, "--against", good, "--metric", "lost", "--margin", "0.05")[0] == 4
    assert run("gate", good, "--against", bad, "--metric", "lost", "--margin", "0.05")[0] == 0
    assert run("gate", good, *asked)[0] == 2
    run("compress", "wire", write("w.jsonl", {"original": SENT, "compressed": SENT}), "--output", "json", "--out", bad)
    assert run("gate", good, "--against", bad, *asked)[0] == 3


@pytest.mark.parametrize(
    "args", [("x.json",), ("x.json", "--metric", "f1"), ("x.json", "--against", "y.json"), ("x.json", "--min", "f1=1")]
)
def test_gate_usage(run, args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("gate", *args)[0] == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"rows": []}'])
def test_gate_on_what_is_no_export(run, tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    assert run("gate", str(tmp_path / "x.json"), "--min", "f1=1")[0] == 2


# The facade
# ------------------------------------------------------------------------


def test_the_facade_has_what_it_names():
    assert all(hasattr(compression, name) for name in compression.__all__)
    assert compression.prefix_cache is prefix_cache
    assert compression.break_even_turns(100_000, 10_000, 45_000, 0.1, 1.25) == pytest.approx(10.5)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (SENT, TURNED),
        ({"model": "m", "messages": SENT}, {"model": "m", "messages": TURNED}),
        ({"system": "Be kind.", "messages": SENT[1:]}, {"system": [], "messages": TURNED}),
        ({"instructions": "Be kind.", "input": SENT[1:]}, {"input": TURNED}),
    ],
)
def test_violations_of_every_wire(sent, received):
    assert [violation.kind for violation in compression.wire_violations(sent, received)] == ["system_role_lost"]
    assert compression.wire_violations(sent, sent) == []
