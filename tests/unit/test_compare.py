"""`compare`, `power`, `gate` with its files, `datasets`: what a person or a pipeline gets from runs that are there
already.
"""

import json
import xml.etree.ElementTree as ET

import pytest

from context_bench import evaluate
from context_bench.cli import planning
from context_bench.cli.app import run_line
from context_bench.comparison import compare, differences, spreads, within
from context_bench.core.errors import BadInput, NotComparable, UnknownName
from context_bench.core.rows import what_differs
from context_bench.evaluators import AnswerQuality
from context_bench.metrics import MeanScore
from context_bench.results import EvalResult


class Answers:
    """Answers with the gold answer on a share of the examples, always the same ones."""

    def __init__(self, name, wrong_every=0):
        self.name, self.wrong_every = name, wrong_every

    def process(self, example):
        wrong = self.wrong_every and example["id"] % self.wrong_every == 0
        return {**example, "response": "no idea" if wrong else example["answer"]}

    def fingerprint(self):
        return {"wrong_every": self.wrong_every}


EXAMPLES = [
    {"id": i, "context": f"The code of box {i} is {i * 7}.", "question": f"Box {i}?", "answer": str(i * 7)}
    for i in range(240)
]


def done(*systems, store=None, run=None, examples=EXAMPLES):
    declared = {"full": "baseline", "none": "known_bad"}
    return evaluate(
        list(systems),
        examples,
        [AnswerQuality()],
        [MeanScore(score_field="f1")],
        progress=False,
        max_workers=8,
        store=store,
        run=run,
        roles={system.name: declared[system.name] for system in systems if system.name in declared},
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs in one store and as files: as it was, as it is, and after something broke."""
    folder = tmp_path_factory.mktemp("runs")
    for name, wrong in (("before", 0), ("same", 0), ("broken", 4)):
        result = done(Answers("proxy", wrong), Answers("full"), Answers("none", 1), store=folder / "store.db", run=name)
        (folder / f"{name}.json").write_text(result.to_json())
    return folder


@pytest.fixture
def run(capsys):
    def line(*args):
        code = run_line([str(arg) for arg in args])
        said = capsys.readouterr()
        return code, said.out, said.err

    return line


def test_a_result_survives_json(runs):
    text = (runs / "broken.json").read_text()
    again = EvalResult.from_json(text)
    assert json.loads(again.to_json()) == json.loads(text)
    assert again.rows[0].scores
    assert again.comparisons[0].sentence


@pytest.mark.parametrize("text", ["[]", "{", '{"rows": 1, "summary": {}}', '{"rows": [{}], "summary": {}}'])
def test_what_is_no_result_is_refused(text):
    with pytest.raises(BadInput):
        EvalResult.from_json(text)


def odd(whole, place, value):
    """The JSON of a run with another value at a place, such as `rows.1.metadata`."""
    changed = json.loads(whole)
    *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    part = changed
    for name in path:
        part = part[name]
    part[last] = value
    return json.dumps(changed)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("manifest", None, "manifest is null; expected an object"),
        ("manifest", [], "manifest is []; expected an object"),
        ("manifest.margin", "x", 'manifest.margin is "x"; expected an object'),
        ("manifest.cells", [3], "manifest.cells[0] is 3; expected an object"),
        ("summary.full", None, "summary.full is null; expected an object"),
        ("summary.full.mean_score", "1", 'summary.full.mean_score is "1"; expected a number'),
        ("rows.1.metadata", None, "row 1: metadata is null; expected an object"),
        ("rows.1.cluster", [1], "row 1: cluster is [1]; expected text or null"),
        ("rows.1.system", 5, "row 1: system is 5; expected text"),
        ("rows.1.scores", {"f1": "x"}, 'row 1: scores.f1 is "x"; expected a number'),
        ("rows.1", 7, "row 1 of the JSON is not a row"),
        ("estimates.full", 1, "estimates.full is 1; expected an object"),
        ("comparisons", {}, "comparisons is {}; expected a list"),
        ("comparisons.0.verdict", "good", 'comparisons: verdict is "good"; expected better, '),
        ("comparisons.0", {}, "comparisons: system is missing; expected text"),
        ("comparisons.0.changes", [[0, 1]], "comparisons: changes[0] has 2 entries; expected 3"),
        ("manifest.engine.evaluators", 7, "manifest.engine.evaluators is 7; expected a list"),
        ("notes", [1], "notes[0] is 1; expected text"),
    ],
)
def test_every_command_names_what_is_wrong_with_the_json_of_a_run(runs, run, tmp_path, place, value, said):
    whole = (runs / "same.json").read_text()
    (tmp_path / "odd.json").write_text(odd(whole, place, value))
    file = tmp_path / "odd.json"
    for line in (
        ("compare", runs / "before.json", file),
        ("gate", file, "--max-failures", "0.5"),
        ("card", file, "--out", tmp_path / "c.svg"),
    ):
        code, _, err = run(*line)
        assert code == 2, (line, err)
        assert said in " ".join(err.split())


def test_without_rows_no_limit_holds(runs, run, tmp_path):
    (tmp_path / "none.json").write_text(odd((runs / "same.json").read_text(), "rows", []))
    for limit in (("--min", "f1=0.9"), ("--max-failures", "0.02")):
        code, _, err = run("gate", tmp_path / "none.json", *limit)
        assert code == 2
        assert "the run has no rows" in err


def test_the_later_run_is_held_against_the_earlier(runs, run):
    code, out, _ = run("compare", "before", "same", "--store", runs / "store.db", "--output", "json")
    assert code == 0
    found = json.loads(out)["comparisons"]
    assert [(one["system"], one["baseline"], one["difference"], one["verdict"]) for one in found] == [
        ("proxy", "proxy before", 0.0, "non-inferior")
    ]
    code, out, _ = run("compare", runs / "before.json", runs / "broken.json", "--output", "json")
    one = json.loads(out)["comparisons"][0]
    assert (code, one["verdict"], round(one["difference"], 2)) == (0, "inferior", -0.25)
    assert "inferior to proxy before" in run("compare", runs / "before.json", runs / "broken.json", "--full")[1]


def test_one_run_against_its_baseline_with_a_margin_of_ones_own(runs, run):
    code, out, _ = run("compare", "broken", "--margin", "0.4", "--store", runs / "store.db", "--output", "json")
    found = json.loads(out)
    assert code == 0
    assert found["comparisons"][0]["baseline"] == "full"
    assert found["comparisons"][0]["margin"] == 0.4
    assert found["comparisons"][0]["verdict"] == "non-inferior"
    assert "Margin chosen after the run" in found["comparisons"][0]["sentence"]


def test_what_a_system_lost_comes_with_both_rows_the_greatest_loss_first(runs):
    result = EvalResult.from_json((runs / "broken.json").read_text())
    found = result.losses("proxy")
    assert [each.row.example_id for each in found] == [number for number in range(240) if number % 4 == 0]
    assert {each.change for each in found} == {-1.0}
    assert {(each.row.system, each.baseline.system) for each in found} == {("proxy", "full")}
    assert all(each.row.example_id == each.baseline.example_id for each in found)
    assert result.losses("full", baseline="proxy") == []
    assert result.losses("proxy", least=1.0) == []
    found[0].row.scores["f1"] = -0.5
    found[5].row.scores["f1"] = None
    changes = [each.change for each in result.losses("proxy", metric="mean_f1")]
    assert (changes[0], len(changes)) == (-1.5, 59), "without a score there is no pair"
    with pytest.raises(UnknownName, match="other"):
        result.losses("other")
    with pytest.raises(NotComparable, match="name one of proxy, full, none"):
        result.losses("full")


def test_what_differs_between_two_runs_is_said_first(runs, run):
    code, out, _ = run("compare", "before", "broken", "--store", runs / "store.db")
    assert code == 0
    assert "What differs between the two runs: wrong_every of proxy 0, then 4." in " ".join(out.split())
    same = run("compare", "before", "same", "--store", runs / "store.db")[1]
    assert "Nothing differs between the two runs" in same
    assert len(same.splitlines()) <= 40, "the short form; --full has the tables"
    full = run("compare", "before", "same", "--full", "--store", runs / "store.db")[1]
    assert len(full.splitlines()) > len(same.splitlines())
    assert "Verdicts" in full
    for name, second in (("before", 1), ("broken", 2)):
        document = json.loads((runs / f"{name}.json").read_text())
        document["manifest"]["run"]["started"] = f"2026-11-28T10:00:0{second}Z"
        (runs / f"{name}-started.json").write_text(json.dumps(document))
    late = " ".join(run("compare", runs / "broken-started.json", runs / "before-started.json")[1].split())
    assert "Mind: the run that was named first, and is taken for the earlier one, was started after" in late
    assert "Mind: " not in run("compare", runs / "before-started.json", runs / "broken-started.json")[1]
    assert "Between the two" not in run("compare", "broken", "--store", runs / "store.db")[1]


def test_differences_of_data_options_and_versions_are_named():
    data = [{"name": "a", "sha256": "1"}, {"name": "b", "sha256": "2"}]
    engine = {"environment": {"package": "1.0", "python": "3.11.7", "dependencies": {"numpy": "1", "scipy": "2"}}}
    first = {"datasets": data, "options": {"model": ["m"], "tap": "1", "seed": 0}, "engine": engine}
    newer = {"environment": {"package": "1.1", "python": "3.11.7", "dependencies": {"numpy": "2", "scipy": "2"}}}
    second = {"datasets": [{"name": "a", "sha256": "9"}], "options": {"model": ["n", "o"], "tap": "2"}, "engine": newer}
    assert what_differs(first, second) == [
        "the content of a",
        "data b only in the earlier one",
        "model m, then n, o",
        "seed 0, then none",
        "context-bench 1.0, then 1.1",
        "versions of numpy",
    ]
    empty = {"options": {"tap_at": [], "shape": None, "notes": ""}}
    assert what_differs(empty, {"options": {"shape": [], "notes": {}}}) == []
    assert what_differs(first, first) == what_differs({}, {}) == []


def test_a_system_within_another_differs_by_more_than_its_place():
    def of(**inner):
        return {"engine": {"systems": [{"name": "none", "fingerprint": {"inner": {"class": "Proxy", **inner}}}]}}

    assert what_differs(of(url="http://127.0.0.1:1"), of(url="http://127.0.0.1:2")) == []
    assert what_differs(of(model="a"), of(model="b")) == ["inner of none"]
    many = {"options": {f"option{n}": n for n in range(40)}}
    assert what_differs({"options": {}}, many)[-1] == "29 more"
    assert what_differs({"options": 3, "engine": [1], "datasets": [2, {}]}, {"datasets": "x"}) == [
        "data None only in the earlier one"
    ]


def test_a_result_compares_itself_as_the_command_does(runs):
    before, broken = (EvalResult.from_json((runs / f"{name}.json").read_text()) for name in ("before", "broken"))
    assert broken.compare(before).comparisons == compare(before, broken).comparisons
    assert broken.compare(margin=0.4).comparisons == within(broken, margin=0.4).comparisons


def test_a_printed_result_is_ten_lines_at_most(runs):
    result = EvalResult.from_json((runs / "broken.json").read_text())
    lines = str(result).split("\n")
    assert lines[0] == "Evaluation Results: 240 examples, 720 rows"
    assert lines[1].startswith("loss · proxy: quality suffers: 25 points lost")
    assert "The checks worked" in lines[-1]
    many = done(*(Answers(f"a{number}", 3) for number in range(30)), Answers("full"), examples=EXAMPLES[:8])
    lines = str(many).split("\n")
    assert len(lines) == 10
    assert lines[-1] == "and 22 more"
    alone = str(done(Answers("only"), examples=EXAMPLES[:3]))
    assert alone.split("\n")[1].startswith("only: mean_score 1")


def test_runs_that_measured_different_things_are_not_compared(runs, run):
    other = json.loads((runs / "same.json").read_text())
    other["manifest"]["options"]["model"] = ["another"]
    first = json.loads((runs / "before.json").read_text())
    first["manifest"]["options"]["model"] = ["this"]
    for name, document in (("first", first), ("other", other)):
        (runs / f"{name}-model.json").write_text(json.dumps(document))
    asked = ("compare", runs / "first-model.json", runs / "other-model.json")
    code, _, err = run(*asked)
    assert code == 3
    assert "model was ['this'] and is ['another']" in err
    code, out, _ = run(*asked, "--force", "--output", "json")
    assert code == 0
    assert any("Compared although model was" in note for note in json.loads(out)["notes"])


def test_runs_without_anything_in_common():
    first, second = done(Answers("a")), done(Answers("b", 3))
    assert compare(first, second).comparisons[0].baseline == "a"  # one system each: no doubt who is meant
    third = done(Answers("b"), Answers("c"))
    with pytest.raises(NotComparable, match="no system of yours in common: a before, b, c now") as refused:
        compare(done(Answers("a"), Answers("full")), done(Answers("b"), Answers("c"), Answers("full")))
    assert "all arms: a, full before, b, c, full now" in str(refused.value)
    with pytest.raises(NotComparable, match="no system of yours in common"):
        compare(first, third)
    moved = done(Answers("a"), examples=[{**one, "id": one["id"] + 1000} for one in EXAMPLES])
    with pytest.raises(NotComparable, match="no example"):
        compare(first, moved)
    with pytest.raises(UnknownName):
        compare(first, first, metric="f2")
    with pytest.raises(NotComparable, match="compares no system"):
        within(first)


def test_rows_of_one_run_only_are_counted_out():
    first, second = done(Answers("a")), done(Answers("a", 3), examples=EXAMPLES[:200])
    found = compare(first, second)
    assert found.comparisons[0].n == 200
    assert "a: 40 rows are in one run only; they are left out of every figure here." in found.notes


def test_a_score_that_a_run_does_not_have_is_no_zero(tmp_path, run):
    class Length:
        name = "length"

        def score(self, original, processed):
            return {"length": float(len(processed["response"]))}

    first = done(Answers("a"))
    second = evaluate([Answers("a")], EXAMPLES, [Length()], [MeanScore(score_field="length")], progress=False)
    for name, result in (("first", first), ("second", second)):
        (tmp_path / f"{name}.json").write_text(result.to_json())
    for before, after, scored in (("first", "second", "a before"), ("second", "first", "a")):
        line = ["compare", tmp_path / f"{before}.json", tmp_path / f"{after}.json", "--metric", "f1"]
        code, out, _ = run(*line, "--output", "json")
        told = json.loads(out)
        assert code == 0
        assert {name for name, own in told["summary"].items() if "mean_score" in own} == {scored}
        assert any("no row compared here has the score f1" in note for note in told["notes"])
        assert "0.000" not in run(*line)[1]
    assert run(*line[:-1], "length")[0] == 0
    assert run(*line[:-1], "recall_of_nothing")[0] == 2


def test_a_changed_evaluator_is_a_difference():
    class Other(AnswerQuality):
        version = "other"

    first = done(Answers("a"))
    second = evaluate([Answers("a")], EXAMPLES, [Other()], [MeanScore(score_field="f1")], progress=False)
    assert differences(first, second) == ["evaluator answer_quality changed"]


# gate
# ------------------------------------------------------------------------


def test_gate_on_stored_runs_writes_what_build_servers_read(runs, run, tmp_path):
    junit, summary = tmp_path / "out" / "gate.xml", tmp_path / "summary.md"
    asked = (
        "--store",
        runs / "store.db",
        "--metric",
        "mean_score",
        "--margin",
        "0.05",
        "--max-failures",
        "0",
        "--junit",
        junit,
    )
    assert run("gate", "same", "--against", "before", *asked)[0] == 0
    root = ET.parse(junit).getroot()
    assert (root.get("tests"), root.get("failures")) == ("2", "0")
    code, _, err = run(
        "gate", "broken", "--against", "before", *asked, "--min", "mean_score=0.9", "--markdown", summary
    )
    assert code == 4
    assert "proxy/mean_score is 0.75, below 0.9" in err
    root = ET.parse(junit).getroot()
    assert (root.get("tests"), root.get("failures")) == ("3", "2")
    assert [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None] == [
        "proxy/mean_score ≥ 0.9",
        "proxy f1 not worse by 0.05 than proxy before",
    ]
    assert summary.read_text().startswith("## context-bench gate failed: 2 of 3 checks")


@pytest.mark.parametrize("share", ["-1", "7"])
def test_a_share_of_failures_is_one(runs, run, share):
    code, _, err = run("gate", runs / "same.json", f"--max-failures={share}")
    assert code == 2
    assert f"--max-failures {share}: expected a share of the rows, from 0 to 1" in err


def test_a_check_names_its_system_once(runs, run):
    code, out, _ = run("gate", runs / "same.json", "--min", "proxy/f1=0.5", "--min", "f1=0.4")
    assert code == 0
    assert out == "context-bench: gate passed: proxy/f1 ≥ 0.5, proxy/f1 ≥ 0.4\n"
    assert "  - proxy/f1 is 1, below 2" in run("gate", runs / "same.json", "--min", "proxy/f1=2")[2]


def test_gate_counts_failures(run, tmp_path):
    class Breaks(Answers):
        def process(self, example):
            if example["id"] % 10 == 0:
                raise RuntimeError("no")
            return super().process(example)

    (tmp_path / "r.json").write_text(done(Breaks("p")).to_json())
    assert run("gate", tmp_path / "r.json", "--max-failures", "0.1")[0] == 0
    code, _, err = run("gate", tmp_path / "r.json", "--max-failures", "0.09")
    assert (code, "p failed on 24 of 240 rows" in err) == (4, True)


def test_hostile_names_stay_text_in_gate_files(run, tmp_path):
    name = 'p"]]>\x1b[31m<b>|\u202e'
    (tmp_path / "r.json").write_text(done(Answers(name)).to_json())
    out = tmp_path / "j.xml", tmp_path / "s.md"
    assert run("gate", tmp_path / "r.json", "--min", "mean_score=2", "--junit", out[0], "--markdown", out[1])[0] == 4
    assert "\\x1b" in next(ET.parse(out[0]).getroot().iter("testcase")).get("name")
    assert "\x1b" not in out[1].read_text()
    assert "<b>" not in out[1].read_text()


def test_a_limit_may_name_a_score_as_the_evaluator_calls_it(runs, run):
    place = ("--store", runs / "store.db")
    assert run("gate", "same", "--min", "f1=0.9", "--min", "contains=0.9", *place)[0] == 0
    code, _, err = run("gate", "broken", "--min", "proxy/f1=0.9", *place)
    assert code == 4
    assert "proxy/f1 is 0.75, below 0.9" in err
    code, _, err = run("gate", "same", "--min", "f2=0.9", *place)
    assert code == 2
    assert "exact_match" in err


def test_a_list_of_runs_keeps_long_names_and_everything_beside_them(tmp_path, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = "import-" + "of-a-long-file-name-" * 4 + "end"
    done(Answers("proxy"), store=tmp_path / "store.db", run=name, examples=EXAMPLES[:3])
    listed = run("runs", "--store", tmp_path / "store.db")[1].splitlines()
    assert listed[1] == name  # whole, for it is what other commands are given
    assert listed[2].split()[-4:] == ["done", "3", "0", "proxy"]


# power
# ------------------------------------------------------------------------


def test_power_gives_the_known_numbers(run):
    said = run("power")[1]
    assert "0.03: 969 examples" in said
    assert "standard deviation 0.333 (supposed)" in said
    assert "is a guess, so a run's verdict can name another number" in said
    assert "is a guess" not in run("power", "--sd", "0.3")[1]
    found = json.loads(
        run("power", "--difference", "0.05", "--discordant", "0.2", "-n", "200", "--sd", "0.3", "--json")[1]
    )
    assert found["n_for_pass_fail"]["n"] == 626
    assert round(found["with_n"]["smallest_difference"], 3) == 0.059


def test_power_names_a_number_for_each_thing_that_may_be_true(run):
    said = run("power", "--discordant", "0.05")[1]
    assert "to rule out a loss of 0.02 if the two are truly equal: 844 examples" in said
    assert "the same if 0.01 is truly lost: 3,238 examples" in said
    seen = {"margin": 0.02, "n": 900, "low": 500, "high": 900, "as_seen": True}
    [line] = planning.for_margin(seen)
    assert "if the true one is somewhere about the one seen: 900 examples" in line
    assert planning.for_margin({"margin": 0.02, "n": None, "why": "margin"}) == [
        "  to rule out a loss of 0.02: no number can be named, the loss seen is the margin"
    ]


def test_power_of_pass_fail_scores_supposes_one_spread_throughout(run):
    found = json.loads(run("power", "--difference", "0.05", "--discordant", "0.2", "--json")[1])
    assert found["assumed"]["sd"] == pytest.approx(0.2**0.5)
    assert found["n_for_difference"]["n"] == pytest.approx(found["n_for_pass_fail"]["n"], rel=0.01)


def test_power_takes_the_spread_of_an_earlier_run(runs, run):
    found = json.loads(run("power", "--from", "broken", "--store", runs / "store.db", "--json")[1])
    assert found["measured"]["system"] == "proxy"  # though `none` scatters more
    [proxy] = [
        one for one in spreads(EvalResult.from_json((runs / "broken.json").read_text())) if one["system"] == "proxy"
    ]
    said = run("power", "--from", "broken", "--store", runs / "store.db")[1]
    assert "(seen in proxy − full)" in said
    assert "is a guess" not in said
    assert proxy["n"] == 240
    assert proxy["sd"] == pytest.approx((0.25 * 0.75 * 240 / 239) ** 0.5)
    assert proxy["design_effect"] == 1.0
    only = done(Answers("full"), Answers("none", 3))
    assert [one["system"] for one in spreads(only)] == ["none"]
    assert run("power", "--from", runs / "nothing.json")[0] == 2


@pytest.mark.parametrize(
    "args",
    [
        ("--sd", "0"),
        ("--margin", "2"),
        ("--icc", "-1"),
        ("--trials", "0"),
        ("--discordant", "0.01"),
        ("-n", "0"),
        ("--power", "1"),
    ],
)
def test_power_refuses_impossible_values(run, args):
    code, _, err = run("power", *args)
    assert (code, args[0] in err) == (2, True)


def test_clusters_and_trials_change_what_is_needed(run):
    def n(*args):
        return json.loads(run("power", "--json", *args)[1])["n_for_difference"]["n"]

    assert n("--cluster-size", "5", "--icc", "0.5") == pytest.approx(3 * n(), abs=3)
    assert n("--within-sd", "0.3") > n("--within-sd", "0.3", "--trials", "4") > n()


# datasets
# ------------------------------------------------------------------------


def test_datasets_are_listed_and_shown_without_a_download(run, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    listed = json.loads(run("datasets", "--json")[1])
    assert {"hotpotqa", "mmlu", "gsm8k", "bundled:pydocs-qa"} <= {one["name"] for one in listed}
    assert all(one["about"] for one in listed)
    code, out, _ = run("datasets", "mmlu")
    assert code == 0
    assert all(word in out for word in ("MIT", "no: the text is the question itself", "correct_letter", "anatomy"))
    assert "mmlu" not in {one["name"] for one in json.loads(run("datasets", "--context", "--json")[1])}
    code, _, err = run("datasets", "hotpotqq")
    assert (code, "hotpotqa" in err) == (2, True)
    assert "hotpotqa" in run("datasets")[1]
    for columns in ("40", "80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = run("datasets")[1].splitlines()
        assert "75,336" in next(line for line in lines if "convomem" in line)
        assert max(map(len, lines[:-2])) <= int(columns)
