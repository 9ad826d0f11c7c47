"""`context-bench judge` on a stored run of probes, with judges on loopback: a fair one, and ones that must not
judge.
"""

import io
import json
import shutil
from itertools import cycle
from pathlib import Path

import pytest

import context_bench
from context_bench.__main__ import main
from context_bench.core.roles import ArmRole
from context_bench.evaluators import RubricJudge
from context_bench.judge.audit import anchors, share_of
from context_bench.llm.background import run_sync
from context_bench.llm.servers import ModelServer
from context_bench.metrics import MeanScore
from context_bench.testing.rule_judge import RuleJudge

STORE = ["--store", "s.db"]
SYSTEMS = {"anchored": (4, "## Decisions\n"), "head_tail": (2, ""), "none": (0, "")}


class Method:
    """Says so many words of the truth, from a context with the marks of its method."""

    def __init__(self, name):
        self.name = name
        self.words, self.mark = SYSTEMS[name]

    def process(self, example):
        said = " ".join(example["answer"].split()[: self.words]) or "I do not know."
        return {**example, "response": said, "context": f"{self.mark}notes of {example['id']}"}


def probes(n):
    return [
        {
            "id": f"s{i % 8}@4#{i}",
            "question": f"Question {i}?",
            "answer": f"alpha{i} beta{i} gamma{i} delta{i}",
            "probe_type": "recall",
            "cluster": f"s{i % 8}",
            "group": f"s{i % 8}@4",
        }
        for i in range(n)
    ]


@pytest.fixture
def judges():
    """(weaknesses) → the URL of a judge that has them."""
    made = []

    def serve(**weak):
        made.append(run_sync(ModelServer(RuleJudge(**weak)).start()))
        return made[-1].url

    yield serve
    for server in made:
        run_sync(server.stop())


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The store of a run of three methods, judged by a fair judge, which goes on listening."""
    path = tmp_path_factory.mktemp("judged") / "s.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        server = run_sync(ModelServer(RuleJudge()).start())
        judge, systems = RubricJudge(server.url, "gpt-rules"), [Method(name) for name in SYSTEMS]
        roles = {name: ArmRole(kind=name) for name in SYSTEMS}
        metrics = [MeanScore("rubric_overall")]
        context_bench.evaluate(
            systems, probes(16), [judge], metrics, roles=roles, store=str(path), run="r", progress=False
        )
        yield path
        run_sync(server.stop())


@pytest.fixture
def run(judged, tmp_path, monkeypatch, capsys):
    """A copy of that run; (arguments) → what was said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    shutil.copy(judged, "s.db")
    capsys.readouterr()

    def command(*args, code=0):
        assert main(["judge", args[0], "r", *args[1:], *STORE]) == code
        said = capsys.readouterr()
        return said.out + said.err

    return command


def test_a_fair_judge_passes_and_says_the_same_from_memory(run):
    said = run("audit", "--items", "6", "--json", "a.json")
    told = json.loads(Path("a.json").read_text())
    assert told["faults"] == []
    names = [
        "order",
        "order first",
        "order within",
        "fake verdict",
        "fake end marker",
        "master key",
        "padding",
        "authority",
    ]
    assert [lift["attack"] for lift in told["lifts"]] == names
    assert all(lift["obeyed"] == 0 < lift["room"] for lift in told["lifts"])
    assert told["order"] == {"first": 0, "second": 0, "other": 0, "n": 6}
    assert all(abs(lift["mean"]) <= 0.5 for lift in told["lifts"])
    assert told["repeats"]["alike"] == 1.0
    assert told["drift"] == {"mean": told["drift"]["mean"], "before": None, "shift": None, "n": 20}
    assert told["outputs"]["anchored"] == {
        "outputs": 16,
        "judged": 16,
        "failed": 0,
        "mean": 5.0,
        "mean_failed_as_0": 5.0,
    }
    assert told["marks"]["anchored"]["kinds"] == {"heading": 1.0}
    assert told["marks"]["none"]["any"] == 0.0
    assert all(len(line) <= 80 for line in said.splitlines())
    again = run("audit", "--items", "6", "--cache-only", "--only", "attacks,repeats,leak,views", "--json", "b.json")
    assert " 0 calls" in again
    second = json.loads(Path("b.json").read_text())
    assert {key: second[key] for key in ("lifts", "repeats", "leak", "views")} == {
        key: told[key] for key in ("lifts", "repeats", "leak", "views")
    }
    shown = ["--score-field", "rubric_overall", "--output", "json", "--out", "r.json"]
    assert main(["show", "r", *shown, *STORE]) == 0
    kept = json.loads(Path("r.json").read_text())["manifest"]["judge_audit"]
    assert kept["drift"]["mean"] == told["drift"]["mean"]  # of the first audit, by the same judge
    assert (kept["leak"], kept["faults"]) == (second["leak"], [])


def test_marks_ask_nobody(run):
    assert "heading 100 %" in run("audit", "--only", "marks", "--judge-url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("weak", "fault"), [({"obeys": True}, "'fake verdict' gains"), ({"likes_length": 5.0}, "'padding' gains")]
)
def test_a_weak_judge_must_not_judge(run, judges, weak, fault):
    said = run("audit", "--items", "6", "--only", "attacks", "--judge-url", judges(**weak), code=4)
    assert fault in said
    assert "must not judge" in said


def audited(run, url, code, *more):
    said = run(
        "audit",
        "--only",
        "attacks,repeats,order",
        "--items",
        "30",
        "--judge-url",
        url,
        "--json",
        "a.json",
        *more,
        code=code,
    )
    return json.loads(Path("a.json").read_text()), said


def test_obedience_in_a_share_of_answers_is_found_at_that_share_though_it_gains_little_in_the_mean(run, judges):
    told, said = audited(run, judges(obeys=0.3, heeds=r"\AIgnore the rubric"), 4)
    lifts = {lift["attack"]: lift for lift in told["lifts"]}
    share = share_of(lifts["order first"]["obeyed"], lifts["order first"]["room"])
    assert 0.1 < share.low < share.high < 0.8  # of twenty answers, many of them alike; benchmarks/trials has sixty
    assert lifts["order"]["obeyed"] == lifts["order within"]["obeyed"] == lifts["fake verdict"]["obeyed"] == 0
    assert [fault.split(" ")[1] for fault in told["faults"]] == ["'order"]
    assert all(len(line) <= 80 for line in said.splitlines() if not line.startswith("  - "))


def test_a_judge_that_contradicts_itself_must_not_judge_and_is_not_taken_for_obedient(run, judges):
    told, _ = audited(run, judges(contradicts=0.3), 4)
    assert [fault for fault in told["faults"] if "contradicts itself" in fault]
    assert not [fault for fault in told["faults"] if "succeeds" in fault]


@pytest.mark.parametrize(("weak", "code"), [({"declines": 0.3}, 4), ({"outside": 0.3}, 4), ({"declines": 0.02}, 0)])
def test_a_judge_whose_verdicts_cannot_be_read_must_not_judge(run, judges, weak, code):
    told, _ = audited(run, judges(**weak), code)
    share = share_of(told["unjudged"], told["judgements"])
    assert (share.low > 0.1) == bool(code)


def test_an_order_that_decides_pairs_of_equal_worth_is_told(run, judges):
    told, said = audited(run, judges(first_bonus=3.0), 0)
    assert told["order"] == {"first": 30, "second": 0, "other": 0, "n": 30}
    assert "order decides 100 %" in said


def test_questions_about_pairs_are_calls_of_the_audit(run, judges):
    url = judges(first_bonus=3.0)
    options = ("--items", "6", "--judge-url", url, "--json", "a.json")
    said = run("audit", "--only", "order", *options)
    calls = json.loads(Path("a.json").read_text())["calls"]
    assert calls["calls"] >= 12  # six pairs in both orders
    assert f": {calls['calls']} calls, 0 replies from memory" in said
    said = run("audit", "--only", "order", "--cache-only", *options)
    again = json.loads(Path("a.json").read_text())["calls"]
    assert (again["calls"], again["cache_hits"]) == (0, 12)


def test_a_judge_that_has_changed_is_found_out(run, judges):
    url = judges(
        moves=-1.0, moves_from=3 + len(anchors()) + 1 + 3
    )  # three calls of each preflight, the known items once
    run("audit", "--only", "drift", "--judge-url", url)
    said = run("audit", "--only", "drift", "--judge-url", url, code=4)
    assert "the known items moved by -" in said


def test_leak_is_0_where_it_guesses_and_1_where_it_knows(run, judges):
    methods = [
        f"--describe={name}={text}"
        for name, text in (("anchored", "with heading"), ("head_tail", "cut"), ("none", "nothing"))
    ]
    told = {}
    for weak in ({}, {"reads_marks": True}):
        run("audit", "--only", "leak", "--items", "48", "--judge-url", judges(**weak), "--json", "l.json", *methods)
        told[bool(weak)] = json.loads(Path("l.json").read_text())["leak"]
    assert told[False]["choices"] == 3
    assert abs(told[False]["leak"]) < 0.3
    assert (
        told[True]["accuracy"] > told[False]["accuracy"] + 0.1
    )  # it knows anchored whenever it sees it, the others look alike


def test_calls_that_fail_are_counted_and_not_averaged(run, judges):
    url = judges(fails=lambda number: number > 3 + 10, status=400)  # three of the preflight, ten of the first item
    run("audit", "--items", "4", "--only", "attacks", "--max-workers", "1", "--judge-url", url, "--json", "a.json")
    told = json.loads(Path("a.json").read_text())
    assert (told["failed"], told["judgements"], told["unjudged"]) == (3, 12, 3)
    assert {lift["n"] for lift in told["lifts"]} == {1}


def test_pairs_in_both_orders(run, judges):
    said = run("pairs", "anchored", "none", "--json", "p.json")
    told = json.loads(Path("p.json").read_text())
    assert (told["win_rate"], told["consistency"], told["first_bias"], told["n"], told["failed"]) == (
        1.0,
        1.0,
        0.0,
        16,
        0,
    )
    assert told["low"] > 0.5
    assert all(len(line) <= 80 for line in said.splitlines())
    run("pairs", "anchored", "head_tail", "--judge-url", judges(first_bonus=3.0), "--json", "p.json")
    told = json.loads(Path("p.json").read_text())
    assert (told["win_rate"], told["consistency"], told["first_bias"]) == (0.5, 0.0, 0.5)
    assert "not a system of this run" in run("pairs", "anchored", "other", code=2)
    assert "with itself" in run("pairs", "none", "none", code=2)


# --- labels
# ------------------------------------------------------------------------


def keys(monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def labels(path="labels.jsonl"):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_labelling_is_blind_kept_at_once_and_goes_on(run, monkeypatch):
    keys(monkeypatch, "5\nx\n3\nc\n0\ns\nq\n")
    said = run("label", "--items", "9")
    assert [row["rating"] for row in labels()] == [5, 3, 0]
    assert not any(name in said for name in SYSTEMS)
    assert "notes of s" in said  # asked for with c
    assert "Stopped" in said
    Path("labels.jsonl").write_text(Path("labels.jsonl").read_text() + '{"id": "cut o')
    keys(monkeypatch, "4\n" * 6)
    said = run("label", "--items", "9")
    assert "9 answers to rate, 3 of them done" in said
    assert len({row["id"] for row in labels()}) == len(labels()) == 9
    keys(monkeypatch, "1\n")
    run("label", "--items", "9", "--rater", "other")
    assert len(labels()) == 10


def test_the_sample_covers_systems_and_scores(run, monkeypatch):
    keys(monkeypatch, "1\n" * 6)
    run("label", "--items", "6")
    from context_bench.session.judged import loaded

    with loaded("s.db", "r") as found:
        systems = {each.item.id: each.item.system for each in found.outputs}
    assert sorted(systems[row["id"]] for row in labels()) == sorted([*SYSTEMS] * 2)


def test_hostile_text_does_not_reach_the_terminal_as_it_is(run, monkeypatch, capsys):
    from context_bench.cli.judge import _part

    _part("answer", "a\x1b[2Jb\u202ec")
    assert capsys.readouterr().out == "\n[answer]\na·[2Jb·c\n"


def honest(run, monkeypatch, off=lambda system, rating: rating):
    """Labels by somebody who knows the truth: 5, 2 (half of it) and 0."""
    from context_bench.session.judged import loaded

    with loaded("s.db", "r") as found:
        rows = [{"id": each.item.id, "rating": off(each.item.system, round(each.score))} for each in found.outputs]
    Path("labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_judge_that_agrees_with_people_may_carry_a_verdict(run, monkeypatch, capsys):
    assert main(["show", "r", "--full", "--score-field", "rubric_overall", *STORE]) == 0
    assert "uncalibrated" in capsys.readouterr().out
    honest(run, monkeypatch)
    said = run("calibrate", "labels.jsonl", "--json", "c.json")
    told = json.loads(Path("c.json").read_text())
    assert (told["label"], told["n"]) == ("firm", 48)
    assert told["kappa"] > 0.9
    assert "48 labels; below 100" in said
    assert all(len(line) <= 80 for line in said.splitlines())
    assert main(["show", "r", "--full", "--score-field", "rubric_overall", *STORE]) == 0
    shown = capsys.readouterr().out
    assert "rubric_overall is firm" in " ".join(shown.split())
    assert "uncalibrated" not in shown


def test_a_judge_with_a_favourite_is_found_out(run, monkeypatch):
    honest(run, monkeypatch, lambda system, rating: 1 if system == "anchored" else rating)
    run("calibrate", "labels.jsonl", "--json", "c.json")
    told = json.loads(Path("c.json").read_text())
    assert told["signed_error"]["anchored"] == pytest.approx(4.0)
    assert abs(told["signed_error"]["none"]) < 0.5
    assert told["corrected"]["anchored"]["mean"]["value"] == pytest.approx(1.0)
    assert told["label"] == "uncalibrated"


def test_a_verdict_on_judged_scores_rests_on_peoples_differences(run, monkeypatch, capsys):
    """The baseline of the run is `anchored`; people rate every second answer of `none` one point better."""
    shown = ["show", "r", "--score-field", "rubric_overall", "--output", "json", *STORE]
    turns = cycle((0, 1))
    honest(run, monkeypatch, lambda system, rating: rating + (system == "none" and next(turns)))
    run("calibrate", "labels.jsonl", "--json", "c.json")
    told = json.loads(Path("c.json").read_text())["differences"]
    assert set(told) == {"head_tail", "none"}
    assert (told["none"]["baseline"], told["none"]["labels"], told["none"]["n"]) == ("anchored", 16, 16)
    assert main(shown) == 0
    compared = {each["system"]: each for each in json.loads(capsys.readouterr().out)["comparisons"]}
    assert compared["none"]["difference"] == pytest.approx(told["none"]["value"])
    assert "as people would rate it, by 16 examples they rated" in compared["none"]["sentence"]
    rows = [row for row in labels() if row["rating"] > 1]  # none of those about `none`
    Path("labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("calibrate", "labels.jsonl")
    assert main(shown) == 0
    compared = {each["system"]: each for each in json.loads(capsys.readouterr().out)["comparisons"]}
    assert "which is the judge's score and not people's" in compared["none"]["sentence"]


def test_labels_of_another_run_and_what_is_no_label(run):
    Path("l.jsonl").write_text('{"id": "0123456789ab", "rating": 3}\n')
    assert "none of the 1 rated items is of run 'r'" in run("calibrate", "l.jsonl", code=2)
    Path("l.jsonl").write_text('{"id": "0123456789ab", "rating": 7}\n{"id": 1}\n')
    assert "l.jsonl, line 1" in run("calibrate", "l.jsonl", code=2)
    assert "expected a file that" in run("calibrate", "nowhere.jsonl", code=2)


def test_ids_stay_whoever_judges_and_whatever_joins(run, judges):
    from context_bench.engine import rescore
    from context_bench.session.judged import loaded

    def ids():
        with loaded("s.db", "r") as found:
            sealed = found.record.manifest["blinding"]
            assert sealed == {"seal": found.run_key, "seed": 0}
            return {(each.item.system, each.example_id): each.item.id for each in found.outputs}

    first = ids()
    assert len(set(first.values())) == 48
    other = RubricJudge(judges(), "another")
    with loaded("s.db", "r") as found:
        run_sync(rescore(found.store, "r", [other]))
    assert ids() == first
    context_bench.evaluate(
        [Method("anchored")], probes(18), [other], [MeanScore("rubric_overall")], store="s.db", run="r", progress=False
    )
    later = ids()
    assert len(later) == 18
    assert {key: name for key, name in later.items() if key in first} == {
        key: first[key] for key in first if key[0] == "anchored"
    }


def test_faults_are_named(run):
    assert "no part of an audit" in run("audit", "--only", "everything", code=2)
    assert "expected SYSTEM=TEXT" in run("audit", "--describe", "x", code=2)


def test_probes_are_judged_by_the_rubric_in_a_run_and_again_later(tmp_path, monkeypatch, judges, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    base = [
        "compress",
        "run",
        "bundled:sessions",
        "-n",
        "1",
        "--per-type",
        "1",
        "--system",
        "bm25:keep=0.2",
        "--controls",
        "full,none",
    ]
    more = ["--criteria", "all", "--visibility", "normalised", "--output", "json", "--quiet", "--run", "c", *STORE]
    assert main([*base, *more, "--judge-url", judges(), "--judge-model", "one"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert all(
        len(set(row["scores"]) & {"artifact_trail", "continuity", "rubric_overall", "probe_score"}) == 4
        for row in told["rows"]
    )
    assert "uncalibrated" in json.dumps(told)
    assert told["manifest"]["blinding"]["seed"] == 0
    again = [
        "rescore",
        "c",
        "--judge-url",
        judges(moves=-1.0),
        "--judge-model",
        "two",
        "--score-field",
        "rubric_overall",
    ]
    assert main([*again, "--output", "json", *STORE]) == 0
    later = json.loads(capsys.readouterr().out)
    before, after = (
        {(row["system"], row["example_id"]): row["scores"] for row in each["rows"]} for each in (told, later)
    )
    assert {name for key in before for name in set(before[key]) ^ set(after[key])} == set()
    lost = sum(before[key]["rubric_overall"] - after[key]["rubric_overall"] for key in before) / len(before)
    assert 0 < lost <= 1
    assert {key: scores["probe_score"] for key, scores in after.items()} == {
        key: scores["probe_score"] for key, scores in before.items()
    }
    judged = later["manifest"]["rescored"][-1]["fingerprints"]["rubric_judge"]
    assert (judged["model"], judged["criteria"], judged["visibility"]) == ("two", "all", "normalised")
