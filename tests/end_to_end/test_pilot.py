"""`run --pilot`: 40 examples, then what would decide and what it costs; gone on with in the same run, or not at all."""

import json
import signal
import subprocess
import sys
import time

import pytest

from context_bench.__main__ import main
from context_bench.engine import list_runs, open_store, rows
from context_bench.engine.looks import plans_after_pilot

EXAMPLES = 300


@pytest.fixture
def data(tmp_path):
    """Who lives in which house."""
    made, key = [], {}
    for n in range(EXAMPLES):
        told = f"Person {n} lives in house {n}."
        asked = f"Who lives in house {n}?"
        made.append(
            {"id": n, "context": f"{told} Trees stand along the lane.", "question": asked, "answer": f"Person {n}"}
        )
        key[asked] = {"answer": f"Person {n}", "evidence": told}
    path = tmp_path / "lanes.jsonl"
    path.write_text("\n".join(map(json.dumps, made)))
    return path, key


@pytest.fixture
def arguments(tmp_path, data, provider):
    """The command line, but for what a test adds."""

    def made(*more, margin="0.05", controls="full,none"):
        command = ["run", "--dataset", str(data[0]), "--store", str(tmp_path / "s.db"), "--quiet"]
        command += ["--output", "json", "--out", str(tmp_path / "out.json"), "--model", "gpt-4o-mini"]
        command += ["--upstream", provider[0], "--proxy", provider[0], "--name", "mine", "--margin", margin]
        return [*command, *(["--controls", controls] if controls else []), "--price", "gpt-4o-mini=10,10", *more]

    return made


@pytest.fixture
def run(tmp_path, arguments):
    def go(*more, code=0, pilot=True, **options):
        out = tmp_path / "out.json"
        out.unlink(missing_ok=True)
        assert main([*arguments(*more, **options), *(["--pilot"] if pilot else [])]) == code
        return json.loads(out.read_text()) if out.exists() else {}

    return go


def verdict(report, system="mine"):
    return next(one for one in report["comparisons"] if one["system"] == system)


def test_without_a_terminal_it_stops_says_the_plan_and_its_price_and_the_command(run, provider, capsys):
    report = run("--run", "r")
    told = capsys.readouterr().err
    asked = len(provider[1])
    assert asked == pytest.approx(3 * 40, abs=4)
    assert "Pilot of 40 examples: " in told
    assert "more calls, $" in told
    assert "→ until it is decided, at most" in told
    assert "the baseline asked twice (full#2)" in told
    [command] = [line.strip() for line in told.splitlines() if line.strip().endswith("--run r --go-on")]
    assert command.split()[1:3] == ["run", "--dataset"]
    assert "--pilot" in command
    assert report["manifest"]["design"]["pilot"]["examples"] == 40
    assert verdict(report)["n"] == 40
    assert any("verdicts are held against 0.1 %" in note for note in report["notes"])
    assert any("at most" in note for note in report["notes"])
    assert report["manifest"]["pilot"]["agreed"] is False
    assert report["manifest"]["pilot"]["plan"]["money"] > 0


def test_the_command_goes_on_in_the_same_run_and_asks_nothing_twice(run, provider, tmp_path):
    run("--run", "r")
    asked = len(provider[1])
    report = run("--run", "r", "--go-on")
    plan = report["manifest"]["pilot"]["plan"]
    mine = verdict(report)
    assert plan["looks"]
    assert mine["verdict"] == "non-inferior"
    assert 40 < mine["n"] <= plan["examples"] <= EXAMPLES
    assert len(provider[1]) - asked == pytest.approx(3 * (mine["n"] - 40), abs=8)
    assert [look["examples"] for look in report["manifest"]["design"]["until_decided"]][-1] == plan["examples"]
    assert report["manifest"]["design"]["pilot"]["examples"] == 40
    store = open_store(tmp_path / "s.db")
    [record] = list_runs(store)
    assert (record.name, record.status) == ("r", "done")
    assert len(list(rows(store, record.id))) == 3 * mine["n"]
    store.close()
    before = len(provider[1])
    assert verdict(run("--run", "r", "--go-on")) == mine
    assert len(provider[1]) <= before + 4


def test_with_the_flag_it_goes_on_at_once_with_one_report(run, provider, capsys):
    report = run("--go-on")
    assert verdict(report)["verdict"] == "non-inferior"
    assert len(provider[1]) == pytest.approx(3 * verdict(report)["n"], abs=8)
    assert not any("A pilot:" in note for note in report["notes"])
    assert "Planned after a pilot of 40 examples, whose answers count too (--pilot)." in report["notes"]


@pytest.mark.parametrize(("typed", "goes_on"), [("y\n", True), ("\n", False)])
def test_a_key_at_a_terminal_decides(run, monkeypatch, capsys, typed, goes_on):
    class Terminal:
        def isatty(self):
            return True

        def readline(self):
            return typed

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    report = run("--run", "r")
    assert "Go on with it? [y/N]" in capsys.readouterr().err
    assert (verdict(report)["n"] > 40) is goes_on
    assert report["manifest"]["pilot"]["agreed"] is goes_on


def test_a_run_that_is_killed_goes_on_as_it_was_agreed(arguments, run, provider, tmp_path):
    whole = run("--run", "whole", "--go-on")
    begun = len(provider[1])
    for requests in (60, 200):  # in the pilot, and after it
        process = subprocess.Popen(
            [sys.executable, "-m", "context_bench", *arguments("--run", "r", "--pilot", "--go-on")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and len(provider[1]) - begun < requests:
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    report = run("--run", "r")  # what was agreed to need not be agreed to again
    assert verdict(report) == verdict(whole)
    assert report["manifest"]["pilot"]["plan"]["examples"] == whole["manifest"]["pilot"]["plan"]["examples"]


def test_where_nothing_would_decide_it_says_so_and_stops(run, provider, capsys):
    report = run("--go-on", margin="0.002")
    told = capsys.readouterr().err
    assert "Nothing would decide on mine within 300 examples (all there are) with an 80 % chance" in told
    assert verdict(report)["n"] == 40
    assert len(provider[1]) == pytest.approx(3 * 40, abs=4)


def test_what_is_decided_needs_no_plan(run, capsys):
    report = run("--system", "head_tail:keep=0.01", "--go-on", margin="0.4")
    assert "Every system has its verdict; nothing more is needed." in capsys.readouterr().err
    assert verdict(report)["verdict"] == "non-inferior"


def test_what_a_pilot_cannot_be_is_refused_before_anything_is_asked(run, provider, capsys):
    for more, said in (
        (["--until-decided"], "--pilot chooses among the designs itself"),
        (["-n", "40"], "--pilot needs more than 40 examples, and there are 40"),
    ):
        run(*more, code=2)
        assert said in capsys.readouterr().err
    run(code=2, controls="")
    assert "--pilot needs something to compare with" in capsys.readouterr().err
    run("--go-on", code=2, pilot=False)
    assert "give --pilot too" in capsys.readouterr().err
    run("--run", "r")
    capsys.readouterr()
    run("--run", "r", "--go-on", "--temperature", "0.5", code=2)
    assert "with other options; repeat those" in capsys.readouterr().err
    assert len(provider[1]) <= 3 * 40 + 4


def test_plans_are_in_the_order_of_their_price():
    free = plans_after_pilot(40, {False: [600, 300], True: [500, 250]}, 3, 0.03, (1, 0.01))
    assert [(plan.second, plan.looks, plan.examples) for plan in free] == [
        (False, True, 636),
        (True, True, 530),
        (False, False, 600),
        (True, False, 500),
    ]
    assert free[0].money == pytest.approx((free[0].expected - 40) * 0.03)
    assert free[1].money == pytest.approx((free[1].expected - 40) * 0.03 + free[1].expected * 0.01)
    assert plans_after_pilot(40, {False: [None, 300], True: [None, 250]}, 3, None, (1, 0.0)) == []
    [until, once] = plans_after_pilot(40, {False: [600], True: []}, 3, None, None)
    assert (until.money, until.calls < once.calls) == (None, True)
