"""Control arms that rewrite JSON without loss, in every command that has controls."""

import json
import socket

import pytest

from context_bench.__main__ import main

ROWS = [{"ship": f"ship {n}", "tons": n * 10.5, "afloat": True} for n in range(30)]
TABLE = json.dumps(ROWS, indent=2)
NAMES = ("minify", "csv", "toon")


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def found(folder, words, code=0):
    out = folder / "out.json"
    line = [*map(str, words), "--store", str(folder / "s.db"), "--output", "json", "--out", str(out), "--quiet"]
    assert main(line) == code
    return json.loads(out.read_text())


def write_session(path):
    messages = [{"role": "system", "content": "You are a harbour master."}, {"role": "user", "content": "Which float?"}]
    bodies = []
    for turn in range(3):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "list", "arguments": f'{{ "n": {turn} }}'}}
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": f"c{turn}", "content": TABLE}]
        bodies.append({"model": "gpt-4o", "messages": list(messages)})
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))


def test_a_replay_has_them_beside_its_proxies(tmp_path, port):
    write_session(tmp_path / "log.jsonl")
    controls = ",".join(NAMES)
    result = found(
        tmp_path,
        ["replay", tmp_path / "log.jsonl", "--controls", controls, "--upstream", "echo", "--tap", port, "--run", "r"],
    )
    figures = {name: result["replay"]["systems"][name] for name in NAMES}
    assert all(facts["requests"] == 3 and not facts["unseen"] for facts in figures.values())
    assert all(facts["fidelity"]["retained"] == 1 for facts in figures.values())
    saved = {name: facts["cost"]["token_saving"] for name, facts in figures.items()}
    assert 0.2 < saved["minify"] < saved["toon"] < saved["csv"]
    assert all(not facts["violations"].get("tool_arguments_changed") for facts in figures.values())
    assert set(result["manifest"]["cells"][0]["controls"]) == set(NAMES)


def test_a_replay_knows_no_other_control(tmp_path, capsys):
    write_session(tmp_path / "log.jsonl")
    assert main(["replay", str(tmp_path / "log.jsonl"), "--controls", "head_tail", "--upstream", "echo"]) == 2
    told = capsys.readouterr().err
    assert "head_tail" in told
    assert "minify, csv, toon" in told


def test_a_run_has_them_beside_full(tmp_path, port):
    row = {"id": "1", "question": "How heavy is ship 3?", "answer": "31.5", "context": f"The ships:\n\n{TABLE}\n"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    words = ["run", "--dataset", tmp_path / "d.jsonl", "--upstream", "echo", "--tap", port]
    result = found(tmp_path, [*words, "--controls", "full,minify,csv,toon"])
    sizes = {row["system"]: row["output_tokens"] for row in result["rows"]}
    assert sizes["csv"] < sizes["toon"] < sizes["minify"] < sizes["full"]
    roles = result["manifest"]["cells"][0]["roles"]
    assert {name: roles[name]["role"] for name in NAMES} == dict.fromkeys(NAMES, "control")


def test_compressed_sessions_have_them_beside_full(tmp_path):
    words = ["compress", "run", "bundled:sessions/invoice-service-en", "--per-type", "1"]
    result = found(tmp_path, [*words, "--system", "window", "--controls", "full,minify,toon"])
    assert set(result["manifest"]["cells"][0]["controls"]) == {"full", "minify", "toon"}
    scores = {name: values["mean_score"] for name, values in result["summary"].items()}
    assert scores["minify"] == scores["toon"] == scores["full"] > scores["window"]
