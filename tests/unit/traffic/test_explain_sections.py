"""Sections of `explain` beside the bill: meters, recorded compactions, files that were read."""

import json
import shlex

import pytest

from context_bench.__main__ import main
from context_bench.core.records import Result
from context_bench.traffic.sections import bill_pointer

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


# Held against the wire


def test_the_first_line_says_where_the_bill_goes_and_what_could_be_had_of_it(log, capsys):
    assert main(["explain", str(log), "--no-index"]) == 0
    first = capsys.readouterr().out.split("\n\n")[0].replace("\n", " ")
    assert "% of the prompt tokens had been sent before" in first
    assert "of the bill goes to" in first
    assert "saves at most that" in first


@pytest.mark.parametrize("name", ["claude-title", "claude-agently", "codex-long", "opencode-openai"])
def test_a_clients_log_is_held_against_the_wire(client_session, capsys, name):
    folder = client_session(name)
    wire = explained(capsys, folder / "log", "--against", folder / "records.jsonl")["wire"]
    stated = [json.loads(line) for line in (folder / "usage.jsonl").read_text().splitlines()]
    calls = sum(one["kind"] == "prompt" and bool(one["usage"]) for one in stated)
    alone = {"claude-title": 1, "opencode-openai": 1}.get(name, 0)  # the call for a title is in no log
    assert (wire["missing_in_log"], wire["not_on_wire"], wire["paired_by_order"]) == (alone, 0, 0)
    assert wire["calls_in_both"] + alone <= calls
    for row in wire["fields"].values():
        assert row["log"] == row["wire"]
        assert row["corrected"] == row["wire"] + row["missing"]
    assert (wire["fields"]["input_tokens"]["missing"] > 0) == bool(alone)
    # What a log leaves out stands by its source on the wire; all else agrees within 5 % of the prompts.
    assert wire["by_source"]["tools"]["plain"] + wire["by_source"]["tools"]["read"] > 0


@pytest.mark.parametrize(
    "name", ["claude-title", "claude-long", "codex-long", "codex-two-prompts", "opencode-openai", "opencode-lookaround"]
)
def test_composition_from_the_log_and_from_the_wire_agree(client_session, capsys, name):
    folder = client_session(name)
    found = explained(capsys, folder / "log", "--against", folder / "records.jsonl")
    total = found["total"]["input"]

    def billed(side, kind):
        row = side.get(kind, {})
        return sum(row.get(each, 0) for each in ("read", "written", "plain"))

    for kind in ("assistant", "thinking", "calls", "results"):
        assert abs(billed(found["by_kind"], kind) - billed(found["wire"]["by_source"], kind)) <= 0.05 * total
    assert billed(found["wire"]["by_source"], "missing") <= 0.02 * total


def test_an_undercounted_log_is_corrected_by_the_wire(log, tmp_path, capsys):
    def record(number, **usage):
        told = {"five hours": 0.10 + number / 100, "week": 0.5}
        return {
            **{"id": f"r{number}", "mark": None, "matched_by": "none", "wire": "anthropic", "method": "POST"},
            **{"path": "/v1/messages", "started": 1.0 + number, "status": 200, "model": "claude-sonnet-4-5"},
            **{"bytes_in": 1, "usage": usage, "facts": {"policy": "meta", "quotas": told}},
        }

    usage = {"input_tokens": 120, "cache_read": 90, "cache_write": 20, "output_tokens": 50}
    lines = [record(n, **usage) for n in range(4)]
    records = tmp_path / "records.jsonl"
    records.write_text("".join(json.dumps(each) + "\n" for each in lines) + "{torn")
    wire = explained(capsys, log, "--against", records)["wire"]
    assert (wire["calls_in_both"], wire["missing_in_log"]) == (3, 1)
    assert wire["fields"]["output_tokens"] == {"log": 15, "wire": 150, "missing": 50, "corrected": 200}
    assert wire["usd"]["corrected"] > wire["usd"]["wire"] > wire["usd"]["log"] > 0
    assert wire["quotas"]["five hours"] == pytest.approx({"first": 0.10, "last": 0.13, "used": 0.03})
    assert wire["quotas"]["week"]["used"] == 0
    assert wire.get("by_source") is None  # no bodies, no sources
    assert main(["explain", str(log), "--no-index", "--against", str(records)]) == 0
    shown = capsys.readouterr().out
    assert "The log against the wire" in shown
    assert "five hours" in shown


def test_a_call_that_told_no_usage_is_in_both_the_log_and_the_records(tmp_path, capsys):
    """As a log and a tap have a stream whose usage nobody asked for."""
    body = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "How deep is the harbour?"}]}
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Nine metres."}}]}
    log, records = tmp_path / "log.jsonl", tmp_path / "records.jsonl"
    log.write_text(json.dumps({"request": body, "response": reply}) + "\n")
    head = {"id": "r1", "mark": None, "matched_by": "none", "wire": "openai-chat", "method": "POST", "model": "gpt-4.1"}
    told = {"path": "/v1/chat/completions", "started": 1.0, "bytes_in": 1, "usage": None, "facts": {"policy": "meta"}}
    lines = [head | told | {"status": 200}, head | told | {"status": None, "error": "no answer"}]
    records.write_text("".join(json.dumps(each) + "\n" for each in lines))
    wire = explained(capsys, log, "--against", records)["wire"]
    assert (wire["calls_in_both"], wire["missing_in_log"], wire["not_on_wire"]) == (1, 0, 0)
    assert (wire["log_states_no_usage"], wire["wire_states_no_usage"]) == (1, 1)
    assert main(["explain", str(log), "--no-index", "--against", str(records)]) == 0
    assert "1 told no usage on the wire and is in none of its sums" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("text", [None, "", '{"no": "record"}\n'])
def test_what_is_no_record_of_a_tap_is_refused(log, tmp_path, capsys, text):
    records = tmp_path / "records.jsonl"
    if text is not None:
        records.write_text(text)
    assert main(["explain", str(log), "--no-index", "--against", str(records)]) == 2
    assert "--against" in capsys.readouterr().err


def test_a_session_in_two_files_counts_once(client_session, capsys):
    """opencode's database, and what was exported of it."""
    folder = client_session("opencode-openai")
    one = explained(capsys, folder / "log" / "opencode.db")
    assert main(["explain", str(folder / "log"), "--no-index", "--output", "json"]) == 0
    told = capsys.readouterr()
    both = json.loads(told.out)
    assert both["total"]["input"] == pytest.approx(one["total"]["input"])
    assert "counted once: 1" in told.err


def test_a_name_that_is_no_path_and_no_run_is_told_in_a_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "no-such-run"]) == 2
    assert "no file or folder 'no-such-run' is here, and no such run" in capsys.readouterr().err


def test_a_replay_without_a_provider_is_billed_as_its_report_says(tmp_path, capsys, monkeypatch):
    """What answers a replay states nothing of a cache: its bill is predicted, and both accounts of it agree."""

    def line(kind, second, content, usage=None):
        message = {"role": kind, "content": content}
        if usage is not None:
            message |= {"id": f"m{second}", "model": "claude-sonnet-4-5", "usage": usage | {"output_tokens": 40}}
        head = {"sessionId": "ferry", "uuid": f"u{second}", "parentUuid": None, "cwd": "/work", "version": "2.1.197"}
        return {"type": kind, **head, "timestamp": f"2026-11-24T10:00:{second:02d}.000Z", "message": message}

    lines, read = [line("user", 0, "Mend the fees of the ferry.")], 0
    for step in range(12):
        text = "".join(f"value {step} of {n} is set to the fee {n}.\n" for n in range(100))
        new = 1_300 if step else 3_000
        usage = {"input_tokens": 4, "cache_read_input_tokens": read, "cache_creation_input_tokens": new}
        use = {"type": "tool_use", "id": f"c{step}", "name": "Read", "input": {"file_path": f"/work/part{step}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"c{step}", "content": json.dumps({"file": text}, indent=8)}
        lines += [line("assistant", 2 * step + 1, [use], usage), line("user", 2 * step + 2, [result])]
        read += new
    (tmp_path / "ferry.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    monkeypatch.chdir(tmp_path)
    replay = ["replay", "ferry.jsonl", "--controls", "minify", "--upstream", "echo", "--tap", "0", "--output", "json"]
    assert main(replay) == 0
    report = json.loads(capsys.readouterr().out)
    figures, bill = report["replay"]["systems"]["minify"], report["bill"]["minify"]["total"]
    total = explained(capsys, "last")["total"]
    assert total["usd"] == pytest.approx(figures["cost"]["through_usd"], rel=0.03)
    assert total["read"] / total["input"] == pytest.approx(figures["cache"]["cacheable_prefix_share"], abs=0.03)
    assert (bill["usd"], bill["input"]) == pytest.approx((total["usd"], total["input"]))
    assert total["output"] == 12 * 40  # of the log, not of what answered


def test_the_commands_below_a_report_name_run_and_store_as_a_shell_needs_them():
    told = bill_pointer(Result([], {}, manifest={"run": {"name": "it's", "store": "o'ther.db"}}))
    name, store = shlex.quote("it's"), shlex.quote("o'ther.db")
    assert f"context-bench show {name} --output html --store {store}\n" in told
    assert told.endswith(f"context-bench explain {name} --store {store}\n")
    assert bill_pointer(Result([], {}, manifest={})).endswith("context-bench explain last\n")
