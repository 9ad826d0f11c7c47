"""Sections of `explain` beside the bill: meters, recorded compactions, files that were read."""

import json

import pytest

from context_bench.__main__ import main

SUMMARY = "This session is being continued from a previous conversation that ran out.\n\nSummary:\nThe fees were read."


@pytest.fixture
def log(tmp_path):
    def line(kind, number, content, **more):
        usage = {
            "input_tokens": 10,
            "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 20,
            "output_tokens": 5,
        }
        message = {"role": kind, "content": content}
        if kind == "assistant":
            message |= {"id": f"m{number}", "model": "claude-sonnet-4-5", "stop_reason": "end_turn", "usage": usage}
        head = {"sessionId": "s", "uuid": f"u{number}", "parentUuid": None, "cwd": "/work", "version": "2.1.197"}
        return {"type": kind, **head, "timestamp": f"2026-11-24T10:{number:02d}:00.000Z", "message": message, **more}

    def run(number, command, output):
        use = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": command}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": output}
        return [line("assistant", number, [use]), line("user", number + 1, [result])]

    boundary = {"type": "system", "subtype": "compact_boundary", "sessionId": "s", "uuid": "b", "compactMetadata": {}}
    lines = [
        line("user", 0, "Look at the fees. Never commit with --no-verify."),
        *run(1, "cat src/fees.py", "RATE = 0.02\n"),
        boundary,
        line("user", 4, SUMMARY, isCompactSummary=True),
        line("user", 5, "Go on."),
        *run(6, "cat src/fees.py", "RATE = 0.02\n"),
        *run(8, "git commit -m x --no-verify", "done"),
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def explained(capsys, *words):
    assert main(["explain", *map(str, words), "--no-index", "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_compactions_and_reading_are_sections_of_the_bill(log, capsys):
    told = explained(capsys, log, "--compactions", "--reading")
    [one] = told["compactions"]
    missed = {(loss["kind"], loss["need"]) for loss in one["losses"] if loss["need"]}
    assert missed == {("file", "read again"), ("rule", "violated")}
    assert one["cost"] > 0
    [run] = told["reading"]
    assert [file["again"] for file in run["files"]] == [1]


def test_nothing_is_added_that_was_not_asked_for(log, capsys):
    assert not {"compactions", "reading", "meters"} & explained(capsys, log).keys()


def test_a_meter_stands_beside_the_sessions_that_it_read(log, tmp_path, capsys):
    usage = tmp_path / "usage.json"
    totals = {
        "inputTokens": 30,
        "cacheReadTokens": 270,
        "cacheCreationTokens": 0,
        "outputTokens": 15,
        "totalTokens": 315,
    }
    usage.write_text(json.dumps({"totals": totals}))
    told = explained(capsys, log, "--meter", usage)
    [meter] = told["meters"]
    assert (meter["claimed"], meter["recomputed"], meter["rest"]) == (300, 360, 0)
    assert meter["reasons"] == {"tokens written to the cache left out": -60}
    assert main(["explain", str(log), "--no-index", "--meter", str(usage)]) == 0
    assert "What tools say of themselves" in capsys.readouterr().out


def test_a_claimed_saving_is_told_as_a_share_of_what_it_is_a_share_of(log, tmp_path, capsys):
    gain = tmp_path / "gain.json"
    gain.write_text(json.dumps({"summary": {"total_commands": 1, "total_input": 100, "total_saved": 90}}))
    assert main(["explain", str(log), "--no-index", "--meter", str(gain)]) == 0
    shown = capsys.readouterr().out
    assert "Savings that tools claim" in shown
    assert "90 %" in shown
    assert "25 %" in shown  # of 360 tokens of prompts


def test_a_meter_that_cannot_be_read_ends_the_command(log, tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    assert main(["explain", str(log), "--no-index", "--meter", str(tmp_path / "x.json")]) == 2
    assert "no meter that is known" in capsys.readouterr().err
