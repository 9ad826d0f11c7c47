"""Reading without gold: tokens of each file, reads again, what was never used, empty searches, and sets of runs beside
one another.
"""

import json
import re

import pytest

from context_bench.__main__ import main
from context_bench.core.errors import BadInput
from context_bench.core.tokens import counter_for
from context_bench.traces.reading import RunReading, by_repository, compare_readings, readings

FEES = "RATE = 0.02\n\ndef fee_of_a_ferry(amount):\n    return amount * RATE\n"
TARIFF = "TABLE = {'car': 12, 'bike': 3}\n"


def log(folder, *steps, name="s.jsonl", cwd="/work/ferry"):
    """A log of Claude Code: (tool, arguments, result) or a text that the model says."""
    rows = []

    def add(kind, content, **more):
        head = {"sessionId": name, "uuid": f"{name}-{len(rows)}", "parentUuid": None, "cwd": cwd, "version": "2.1.197"}
        stamp = {"timestamp": f"2026-11-24T10:{len(rows):02d}:00.000Z"}
        rows.append({"type": kind, **head, **stamp, "message": {"role": kind, "content": content, **more}})

    add("user", "Mend the fees.")
    for number, step in enumerate(steps):
        made = {"id": f"m{number}", "model": "claude-sonnet-4-5", "usage": {"input_tokens": 10, "output_tokens": 5}}
        if isinstance(step, str):
            add("assistant", [{"type": "text", "text": step}], **made)
            continue
        tool, arguments, shown = step
        add("assistant", [{"type": "tool_use", "id": f"c{number}", "name": tool, "input": arguments}], **made)
        add("user", [{"type": "tool_result", "tool_use_id": f"c{number}", "content": shown}])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


def read(path, text, **more):
    numbered = "".join(f"{n:6}\t{line}\n" for n, line in enumerate(text.splitlines(), 1))
    return ("Read", {"file_path": f"/work/ferry/{path}", **more}, numbered)


def edit(path, old, new):
    given = {"file_path": f"/work/ferry/{path}", "old_string": old, "new_string": new}
    return ("Edit", given, f"The file {path} has been updated.")


def files(reading):
    return {file.path: file for file in reading.files}


def test_tokens_of_a_file_are_those_of_its_results(tmp_path):
    step = read("src/fees.py", FEES)
    [one] = readings(log(tmp_path, step))
    assert files(one)["src/fees.py"].tokens == counter_for("claude-sonnet-4-5").count(step[2]) == one.tokens_read
    assert one.repository == "/work/ferry"


def test_a_file_is_read_again_only_if_nothing_of_it_is_new(tmp_path):
    [one] = readings(
        log(
            tmp_path,
            read("src/fees.py", FEES),
            read("src/fees.py", FEES),
            edit("src/fees.py", "0.02", "0.03"),
            read("src/fees.py", FEES.replace("0.02", "0.03")),
        )
    )
    fees = files(one)["src/fees.py"]
    assert (fees.reads, fees.again, fees.edited, fees.used) == (3, 1, True, True)
    assert 0 < fees.tokens_again < fees.tokens


def test_a_file_that_shows_another_text_was_not_read_again_unchanged(tmp_path):
    """Something changed it that the log does not show: a formatter, a colleague, a build."""
    built = "made at {} by the build\n"
    [one] = readings(
        log(
            tmp_path,
            read("src/fees.py", FEES),
            read("src/fees.py", FEES.replace("0.02", "0.03")),
            read("src/fees.py", FEES.replace("0.02", "0.03"), offset=1),
            *(("Bash", {"command": "cat out.txt"}, built.format(at)) for at in ("ten", "noon", "noon")),
        )
    )
    assert {path: (file.reads, file.again) for path, file in files(one).items()} == {
        "src/fees.py": (3, 1),
        "out.txt": (3, 1),
    }


def test_a_file_is_used_if_it_is_named_or_quoted_later(tmp_path):
    [one] = readings(
        log(
            tmp_path,
            read("src/fees.py", FEES),
            read("src/tariff.py", TARIFF),
            read("src/queue.py", "def enqueue_a_job_for_later(job): ...\n"),
            "The tariff is in tariff.py.",
            ("Bash", {"command": "grep -n 'def fee_of_a_ferry(amount):' src/other.py"}, "1"),
        )
    )
    assert {path: file.used for path, file in files(one).items() if path != "src/other.py"} == {
        "src/fees.py": True,
        "src/tariff.py": True,
        "src/queue.py": False,
    }
    assert one.tokens_unused == files(one)["src/queue.py"].tokens


def test_searches_that_found_nothing_and_the_dearest_results(tmp_path):
    [one] = readings(
        log(
            tmp_path,
            ("Grep", {"pattern": "harbour"}, "No matches found"),
            ("Grep", {"pattern": "harbour"}, "No matches found"),
            ("Bash", {"command": "cat src/fees.py"}, FEES * 40),
            read("src/tariff.py", TARIFF),
            "Done.",
        )
    )
    assert one.empty == {"harbour": 2}
    assert [(each.tool, each.about) for each in one.dearest[:2]] == [
        ("Bash", "cat src/fees.py"),
        ("Read", "src/tariff.py"),
    ]
    assert one.dearest[0].carried == 2


def test_runs_are_summed_by_repository(tmp_path):
    log(tmp_path, read("src/fees.py", FEES), name="a.jsonl")
    log(tmp_path, read("src/fees.py", FEES), read("src/tariff.py", TARIFF), name="b.jsonl")
    log(tmp_path, ("Bash", {"command": "cat x.py"}, "x"), name="c.jsonl", cwd="/work/pier")
    found = by_repository(readings(tmp_path))
    assert [(one.repository, one.runs) for one in found] == [("/work/ferry", 2), ("/work/pier", 1)]
    assert files(found[0])["src/fees.py"].reads == 2


def test_the_commands_show_and_compare_logs_without_gold(tmp_path, capsys):
    one, two = tmp_path / "one", tmp_path / "two"
    for number in range(6):
        log(one, read("src/fees.py", FEES * (number + 1)), name=f"{number}.jsonl")
        log(two, read("src/tariff.py", TARIFF), name=f"{number}.jsonl")
    assert main(["trace", "show", str(one / "0.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "What was read: 0" in shown
    assert shown.startswith("Of "), "the answer stands first"
    assert shown.index("What was read: 0") < shown.index("what was looked at")
    assert max(map(len, shown.partition("\n\n")[0].splitlines())) <= 80
    said = " ".join(shown.split())
    assert re.search(r"Of \d+ tokens of files that were read, 0 \(0 %\) had been read before, unchanged, and \d+", said)
    assert "were never used afterwards: 1 of 1 files." in said
    assert "src/fees.py" in shown
    assert main(["trace", "show", str(one)]) == 0
    assert "What was read, by repository" in capsys.readouterr().out
    assert main(["trace", "show", str(one), "--output", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 6
    assert main(["trace", "show", str(one / "0.jsonl"), str(two), "--output", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 7
    assert main(["trace", "show", str(one / "0.jsonl"), str(two), "--instance", "0"]) == 0
    assert "What was read: 0" in capsys.readouterr().out
    assert main(["trace", "show", str(one), str(two), "--gold", "gold.jsonl"]) == 2
    assert "--gold is about one log or folder, and 2 are given" in capsys.readouterr().err
    assert main(["trace", "show", str(one), str(two / "none.jsonl")]) == 2
    assert "none.jsonl: no such trace" in capsys.readouterr().err
    assert main(["trace", "compare", str(one), str(two), "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["figures"]["tokens that showed files"]
    assert told["difference"] == pytest.approx(told["b"] - told["a"])
    assert told["low"] < told["difference"] < told["high"] < 0


def test_output_that_show_does_not_know_is_refused(tmp_path, capsys):
    path = log(tmp_path, read("src/fees.py", FEES))
    assert main(["trace", "show", str(path), "--output", "xml"]) == 2
    assert "expected table or json" in capsys.readouterr().err


def test_a_difference_has_welchs_interval():
    """Hand-worked: means 2 and 5, variances 2 and 2 of six runs each; se = sqrt(2/3), 10 degrees of freedom."""
    values = [1, 1, 1, 3, 3, 3]
    first = [RunReading("a", calls=1, tokens=value) for value in values]
    second = [RunReading("b", calls=1, tokens=value + 3) for value in values]
    row = compare_readings(first, second)["tokens of results"]
    half = 2.2281388519649385 * (2 * (6 / 5) / 6) ** 0.5
    assert row["difference"] == 3
    assert (row["low"], row["high"]) == (pytest.approx(3 - half), pytest.approx(3 + half))


def test_nothing_to_compare_is_refused():
    with pytest.raises(BadInput, match="no runs on one side"):
        compare_readings([], [RunReading("a")])
