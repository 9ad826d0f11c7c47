"""`run --until-decided`: a run ends at the look at which every system has its verdict, and takes the same looks however
often it was broken off.
"""

import json
import signal
import subprocess
import sys
import time

import pytest

from context_bench import comparison
from context_bench.__main__ import main
from context_bench.engine import list_runs, looks, open_store, rows, run_of
from context_bench.engine.looks import ExamplesInLooks
from context_bench.results import EvalResult

EXAMPLES = 200


@pytest.fixture
def data(tmp_path):
    """Who lives in which house: said at the beginning of three contexts in four, else at the end."""
    made, key = [], {}
    for n in range(EXAMPLES):
        told, rest = f"Person {n} lives in house {n}.", "Trees stand along the lane, and birds sing in them."
        context = f"{told} {rest} {rest}" if n % 4 else f"{rest} {rest} {told}"
        asked = f"Who lives in house {n}?"
        made.append({"id": n, "context": context, "question": asked, "answer": f"Person {n}"})
        key[asked] = {"answer": f"Person {n}", "evidence": told}
    path = tmp_path / "lanes.jsonl"
    path.write_text("\n".join(map(json.dumps, made)))
    return path, key


@pytest.fixture
def run(tmp_path, data, provider):
    def go(*more, code=0, looks=True, controls="full,none"):
        out = tmp_path / "out.json"
        command = ["run", "--dataset", str(data[0]), "--store", str(tmp_path / "s.db"), "--quiet"]
        command += ["--output", "json", "--out", str(out), "--model", "gpt-4o-mini", "--margin", "0.1"]
        command += ["--upstream", provider[0], "--controls", controls] if controls else []
        assert main([*command, *(["--until-decided"] if looks else []), *more]) == code
        return json.loads(out.read_text()) if out.exists() else {}

    return go


def told(report):
    return {one["system"]: one for one in report["comparisons"]}


def test_equal_systems_are_cleared_at_the_first_look_and_no_more_is_asked(run, provider, tmp_path):
    url, asked = provider
    report = run("--proxy", url, "--name", "mine", "--run", "r")
    mine = told(report)["mine"]
    assert (mine["verdict"], mine["n"]) == ("non-inferior", 80)
    assert mine["sentence"].endswith("Decided at look 1, at 80 examples (one-sided level 0.18 %).")
    assert report["manifest"]["design"]["until_decided"] == [
        {"look": 1, "examples": 80, "level": 0.00182, "level_of_a_loss": 0.00173},
        {"look": 2, "examples": 120, "level": 0.01037, "level_of_a_loss": 0.00985},
        {"look": 3, "examples": 160, "level": 0.0241, "level_of_a_loss": 0.02289},
        {"look": 4, "examples": 200, "level": 0.03946, "level_of_a_loss": 0.03749},
    ]
    assert "Look 1, at 80 examples (one-sided level 0.18 %): mine non-inferior." in report["notes"]
    spent = len(asked)
    assert spent == pytest.approx(3 * 80, abs=4)  # and those of the checks before
    store = open_store(tmp_path / "s.db")
    record = run_of(store, "r")
    assert (record.status, len(list(rows(store, record.id)))) == ("done", 240)
    store.close()
    again = run("--proxy", url, "--name", "mine", "--run", "r")  # once more: the same looks, and nothing is asked
    assert told(again)["mine"] == mine
    assert len(asked) <= spent + 4
    kept = comparison.within(EvalResult.from_json(json.dumps(again)), metric="f1", margin=0.1)
    assert kept.comparisons[0].sentence == mine["sentence"]


def test_a_run_goes_on_until_the_last_system_is_decided(run, provider):
    report = run("--proxy", provider[0], "--name", "mine", "--system", "head_tail:keep=0.35", "--margin", "0.05")
    verdicts = [look["verdicts"] for look in report["manifest"]["looks"]]
    assert verdicts[0]["head_tail:keep=0.35"] == "inferior"
    assert verdicts[0]["mine"] == "undecided"
    assert verdicts[-1]["mine"] == "non-inferior"
    first, last = (told(report)[name] for name in ("head_tail:keep=0.35", "mine"))
    assert first["n"] == 80 < last["n"]  # a verdict stays with the numbers that it was given on
    # two systems, so all levels are stricter; that of a loss most of all
    assert report["manifest"]["looks"][0]["level"] == 0.00166
    assert first["sentence"].endswith("Decided at look 1, at 80 examples (one-sided level 0.16 %).")


def test_what_no_look_decided_is_open_at_the_end(run, provider):
    report = run("--proxy", provider[0], "--name", "mine", controls="full")
    assert told(report)["mine"]["verdict"] == "insensitive"  # nothing in it must lose
    assert len(report["manifest"]["looks"]) == 4


def test_a_look_that_was_broken_off_is_taken_again_and_nothing_is_asked_twice(run, provider, monkeypatch):
    import context_bench.runner as runner

    whole = run("--proxy", provider[0], "--name", "mine", "--run", "whole")
    asked = len(provider[1])
    monkeypatch.setattr(runner, "collect", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
    run("--proxy", provider[0], "--name", "mine", "--run", "r", "--out", "/dev/null", code=1)
    monkeypatch.undo()
    report = run("--proxy", provider[0], "--name", "mine", "--run", "r")
    assert told(report)["mine"] == told(whole)["mine"]
    assert len(provider[1]) <= 2 * asked + 8


def test_a_run_that_was_stopped_in_the_middle_takes_the_same_looks(run, provider, tmp_path):
    price = ["--price", "gpt-4o-mini=10,10", "--max-tokens", "20"]
    run("--proxy", provider[0], "--name", "mine", *price, "--max-cost", "0.06", code=5)
    store = open_store(tmp_path / "s.db")
    [record] = list_runs(store)
    assert record.status != "done"
    assert "looks" not in record.manifest
    store.close()
    report = run("--proxy", provider[0], "--name", "mine", *price)
    assert [look["examples"] for look in report["manifest"]["looks"]] == [80]
    assert told(report)["mine"]["verdict"] == "non-inferior"


def test_a_run_that_is_killed_takes_the_same_looks(run, provider, data, tmp_path):
    """SIGKILL before the first look and between looks; the margin is one that the first look does not decide."""
    url, asked = provider
    arms = ["--proxy", url, "--name", "mine", "--margin", "0.05"]
    whole = run(*arms, "--run", "whole")
    command = [sys.executable, "-m", "context_bench", "run", "--dataset", str(data[0]), "--store", f"{tmp_path}/s.db"]
    command += ["--model", "gpt-4o-mini", "--quiet", "--upstream", url, "--controls", "full,none", "--until-decided"]
    for requests in (60, 220):  # of 3 arms: the looks are at 240 and 360 requests
        begun = len(asked)
        process = subprocess.Popen([*command, *arms, "--run", "r"], stdout=subprocess.DEVNULL)
        while process.poll() is None and len(asked) - begun < requests:
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    report = run(*arms, "--run", "r")
    assert told(report)["mine"] == told(whole)["mine"]
    assert [(look["look"], look["examples"], look["verdicts"]) for look in report["manifest"]["looks"]] == [
        (look["look"], look["examples"], look["verdicts"]) for look in whole["manifest"]["looks"]
    ]
    assert len(whole["manifest"]["looks"]) > 1


def test_a_run_that_an_earlier_version_began_goes_on_with_its_own_levels(run, provider, tmp_path, monkeypatch):
    price = ["--price", "gpt-4o-mini=10,10", "--max-tokens", "20", "--run", "r"]
    earlier = [(0.0019, 0.00177), (0.0108, 0.01004), (0.0251, 0.02334), (0.0411, 0.03822)]
    monkeypatch.setattr(looks, "levels_of_looks", lambda *_, **__: earlier)
    run("--proxy", provider[0], "--name", "mine", *price, "--max-cost", "0.06", code=5)
    monkeypatch.undo()
    report = run("--proxy", provider[0], "--name", "mine", *price)
    design = report["manifest"]["design"]["until_decided"]
    assert [(look["level"], look["level_of_a_loss"]) for look in design] == earlier
    assert told(report)["mine"]["sentence"].endswith("Decided at look 1, at 80 examples (one-sided level 0.19 %).")
    declared = ExamplesInLooks.planned(None, [Data(range(200))], several=True).design
    assert looks.as_begun(declared, design) == declared  # those were of one system
    of_several = [{**look, "level": 0.0374} for look in design]
    assert looks.as_begun(declared, of_several) == of_several
    assert looks.as_begun(declared, design[:3]) == declared


def test_looks_are_declared_before_or_not_at_all(run, provider, capsys):
    run("--proxy", provider[0], "--name", "mine", "--run", "r")
    run("--proxy", provider[0], "--name", "mine", "--run", "r", looks=False, code=2)
    assert "was begun with --until-decided" in capsys.readouterr().err
    run("--proxy", provider[0], "--name", "mine", controls="", code=2)
    assert "--until-decided needs something to compare with" in capsys.readouterr().err


class Data:
    def __init__(self, clusters):
        self.clusters = clusters

    def examples(self):
        return iter([{"id": place, "cluster": cluster} for place, cluster in enumerate(self.clusters)])


def test_every_look_has_its_share_of_every_dataset_and_whole_clusters():
    looks = ExamplesInLooks.planned(None, [Data("aaabbbbccd"), Data(range(5))])
    assert looks.ends == [[7, 2], [7, 3], [9, 4], [10, 5]]
    order = [example["cluster"] for example in looks]
    assert order == [*"aaabbbb", 0, 1, 2, *"cc", 3, "d", 4]
    assert [example["cluster"] for example in looks.first(2)] == order[: len(looks.first(2))] == order[:10]
