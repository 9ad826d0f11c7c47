from __future__ import annotations

import importlib.util
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadInput, NotComparable, UnknownName
from context_bench.core.ledger import size
from context_bench.shell.repo import Snapshot
from context_bench.traces import (
    Repositories,
    compare_traces,
    gold_of_row,
    load_gold,
    load_traces,
    open_repo,
    recorded_runs,
    score_trace,
    score_traces,
    unified_prediction,
)
from context_bench.traces.gold import Gold, GoldItem
from context_bench.traces.recorded_runs import RecordedRuns, RunLog, Settings, TraceScorer
from context_bench.traces.trace_rows import TraceRow
from context_bench.transcripts.trace import Event, Trace
from context_bench.transcripts.traces import units

_spec = importlib.util.spec_from_file_location("trace_fixtures", Path(__file__).with_name("trace_fixtures.py"))
fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fixtures)
VECTORS, SAME, GOLD = fixtures.VECTORS, fixtures.SAME, fixtures.GOLD


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    fixtures.repository(folder)
    fixtures.gold_file(folder)
    fixtures.sessions(folder / "logs")
    return folder


def lines_of(files):
    return {path: [list(pair) for pair in one.read] for path, one in files.items() if one.read}


def test_every_format_of_one_session_reads_the_same(place):
    with score_traces(place / "gold.jsonl", {"all": place / "logs"}, place / "repo.json") as found:
        rows = list(found.rows())
    assert len(rows) == len(SAME["formats"])
    assert [row.attempt for row in rows] == list(range(1, len(rows) + 1))
    full = [row for row in rows if row.agent]
    assert len(full) >= len(rows) - 1, "benchkit's log holds no outputs and names no agent"
    for row in full:
        assert lines_of(row.files) == SAME["expected_common"]["final_lines"], row.agent
        assert row.score.final["line"].coverage == pytest.approx(8 / 11)
        assert row.score.final["line"].precision == 1.0
        assert row.missed == {"src/calc.py": [(13, 14)], "src/util.py": [(10, 10)]}
        assert row.statistics["failed_reads"] == len(SAME["expected_common"]["failed_reads"])
        assert [step.coverage["line"] for step in row.steps if step.number] == [
            step["line"] for step in row.score.steps
        ]
        assert TraceRow.from_json(json.loads(json.dumps(row.to_json()))) == row


def test_the_original_policy_from_prediction_file_to_row(tmp_path):
    """The recorded cases through files, importer and scorer together."""
    repo = fixtures.repository(tmp_path)
    cases = [case for case in VECTORS["cases"] if case["id"] not in ("s10_syntax_error_file", "s299_swift_crash")]
    gold = fixtures.gold_file(
        tmp_path, *({"inst_id": case["id"], "repo": "demo/demo", **case["input"]["gold"]} for case in cases)
    )
    (tmp_path / "pred.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "instance_id": case["id"],
                    "model_patch": case["input"]["model_patch"],
                    "traj_data": case["input"]["traj_data"],
                }
            )
            + "\n"
            for case in cases
        )
    )
    with score_traces(gold, tmp_path / "pred.jsonl", repo, policy="contextbench-v1") as found:
        rows = {row.instance_id: row for row in found.rows()}
    differ = []
    for case in cases:
        wanted = case["upstream"]["row"]
        got = rows[case["id"]].score.to_row()
        for part in ("final", "trajectory", "error", "num_steps"):
            if part in wanted and not same(got.get(part), wanted[part]):
                differ.append((case["id"], part))
    assert differ == []


def same(got, wanted):
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(same(got.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(same, got, wanted))
    return got == pytest.approx(wanted, abs=1e-9) if isinstance(wanted, float) else got == wanted


def test_without_a_repository_what_can_be_told_is_told(place):
    with score_traces(place / "gold.jsonl", place / "logs" / "codex_rollout") as found:
        [row] = found.rows()
    final = row.score.final
    assert (final["file"].coverage, final["line"].coverage, final["line"].precision) == (
        1.0,
        pytest.approx(8 / 11),
        1.0,
    )
    assert final["span"].coverage is final["symbol"].coverage is row.score.auc["span"] is None
    assert "no_repo: no repository was given" in row.notes
    with score_traces(place / "gold.jsonl", place / "logs" / "codex_rollout", policy="contextbench-v1") as found:
        assert [row.error for row in found.rows()] == ["checkout_failed"]


def test_a_whole_file_of_unknown_length_has_coverage_and_no_precision():
    gold = Gold("t", [GoldItem("a.py", 3, 4)])
    trace = Trace(
        "t",
        events=[
            Event(1, "c", "read", "Read", "a.py", "all", "args"),
            Event(2, "d", "read", "Read", "a.py", "all", "args"),
        ],
    )
    found = score_trace(gold, trace, None).score
    assert (found.final["line"].coverage, found.final["line"].precision) == (1.0, None)
    assert found.redundancy["line"] is found.lines_per_step is None
    assert found.redundancy["file"] == 0.5


def test_what_the_agent_says_of_itself_is_not_read_unless_counted():
    gold = Gold("t", [GoldItem("a.py", 1, 4)])
    repo = open_repo({"a.py": "1\n2\n3\n4\n"})
    claim = Event(1, None, "read", "final", "a.py", ((1, 4),), "self_report", "claimed")
    trace = Trace("t", events=[Event(1, "c", "read", "Read", "a.py", ((1, 2),), "structured")], final=[claim])
    row = score_trace(gold, trace, repo)
    assert row.score.final["line"].coverage == 0.5
    assert row.score.usage_drop["seen"]["line"] == 0.0
    assert score_trace(gold, trace, repo, count=["claimed"]).score.final["line"].coverage == 1.0
    assert score_trace(gold, trace, repo, "contextbench-v1").score.final["line"].coverage == 1.0
    with pytest.raises(UnknownName, match="listed"):
        score_trace(gold, trace, repo, count=["everything"])
    with pytest.raises(UnknownName, match="contextbench-v1"):
        score_trace(gold, trace, repo, "lenient")


def test_a_run_that_only_edits_says_so_and_counts_when_asked():
    gold, repo = Gold("t", [GoldItem("a.py", 1, 4)]), open_repo({"a.py": "1\n2\n3\n4\n"})
    trace = Trace("t", events=[Event(1, "c", "edit", "Edit", "a.py", ((1, 2),), "edit")])
    row = score_trace(gold, trace, repo)
    assert (row.score.final["line"].coverage, row.notes) == (0.0, ["reads: none, edits only"])
    assert score_trace(gold, trace, repo, count=["edits"]).score.final["line"].coverage == 0.5


NAMES = ("a.py", "src/b.py")
TEXT = "".join(f"line {n}\n" for n in range(1, 31))
REPO = open_repo(dict.fromkeys(NAMES, TEXT))
ranges = st.one_of(
    st.just("all"),
    st.none(),
    st.lists(st.tuples(st.integers(1, 35), st.integers(1, 35)), min_size=1, max_size=3).map(tuple),
)
events = st.lists(
    st.builds(
        Event,
        st.integers(1, 9),
        st.none(),
        st.sampled_from(["read", "search", "list", "edit", "exec"]),
        st.just("T"),
        st.one_of(st.none(), st.sampled_from([*NAMES, "gone.py", "../a.py", "/elsewhere/a.py"])),
        ranges,
        st.sampled_from(["structured", "args", "command"]),
        st.sampled_from(["shown", "listed"]),
        st.booleans(),
    ),
    max_size=9,
).map(
    lambda found: [replace(event, turn=(event.step + 2) // 3) for event in sorted(found, key=lambda event: event.step)]
)
golds = st.lists(
    st.builds(GoldItem, st.sampled_from(NAMES), st.integers(1, 15), st.integers(15, 30)), min_size=1, max_size=3
)


@settings(max_examples=120, deadline=None)
@given(events, golds, st.sampled_from(["call", "turn"]), st.sampled_from([None, 5]))
def test_the_map_of_files_and_the_figures_say_the_same(found, items, by, longest):
    gold = Gold("t", items[:1], items[1:])
    row = score_trace(gold, Trace("t", events=found), REPO, by=by, longest=longest)
    line = row.score.final["line"]
    assert sum(size(ranges) for ranges in row.missed.values()) == line.gold_size - line.intersection
    assert sum(size(one.read) for one in row.files.values()) == line.pred_size
    numbers = [step.number for step in row.steps if step.number]
    assert max(numbers, default=0) == row.score.num_steps
    if row.score.steps:
        assert row.steps[-1].coverage == row.score.steps[-1]
    assert TraceRow.from_json(json.loads(json.dumps(row.to_json()))) == row


@settings(max_examples=60, deadline=None)
@given(events, golds)
def test_a_prediction_written_and_read_again_scores_the_same(found, items):
    from context_bench.traces.coverage import prediction, score, selections
    from context_bench.traces.symbols import CodeFiles

    gold, trace = Gold("t", items), Trace("t", events=found)
    told = unified_prediction(trace, REPO)["traj_data"]
    files = CodeFiles(REPO)
    again = score(gold, prediction(told)[0], files)
    once = score(gold, selections(trace)[0], files)
    if told["pred_steps"]:
        assert {name: (level.coverage, level.precision) for name, level in again.final.items()} == {
            name: (level.coverage, level.precision) for name, level in once.final.items()
        }
        assert again.auc == once.auc


# Many
# ------------------------------------------------------------------------


def facts(found):
    return [row.to_json() for row in found.rows()]


def test_rows_that_are_there_are_not_made_again(place, tmp_path):
    logs = {"one": fixtures.sessions(tmp_path / "logs")}
    arguments = (place / "gold.jsonl", logs, place / "repo.json")
    first = score_traces(*arguments, out=tmp_path / "out")
    want = facts(first)
    again = score_traces(*arguments, out=tmp_path / "out")
    assert (first.made, first.reused, again.made, again.reused) == (10, 0, 0, 10)
    assert facts(again) == want
    rows = tmp_path / "out" / "rows.jsonl"
    kept = rows.read_bytes()
    rows.write_bytes(kept[:1000])  # killed while writing: the store has them all
    torn = score_traces(*arguments, out=tmp_path / "out")
    assert (torn.made, torn.reused, rows.read_bytes()) == (0, 10, kept)
    changed = next((tmp_path / "logs" / "codex_rollout").rglob("*.jsonl"))
    changed.write_text(changed.read_text() + "\n")
    assert score_traces(*arguments, out=tmp_path / "out").made == 1
    assert score_traces(*arguments, out=tmp_path / "out", policy="contextbench-v1").reused == 0
    assert score_traces(*arguments, out=tmp_path / "out", policy="contextbench-v1", fresh=True).reused == 0


def test_a_folder_that_changed_and_another_limit_make_new_rows(place, tmp_path):
    folder = tmp_path / "tree"
    for name, one in fixtures.VECTORS["fixture_repo"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(one.get("text", ""))
    arguments = (place / "gold.jsonl", fixtures.session(tmp_path / "logs", "codex_rollout"), folder)
    assert [score_traces(*arguments, out=tmp_path / "out").reused for _ in range(2)] == [0, 1]
    (folder / "src" / "calc.py").write_text("x = 1\n")
    assert [score_traces(*arguments, out=tmp_path / "out").reused for _ in range(2)] == [0, 1]
    assert [score_traces(*arguments, out=tmp_path / "out", longest=3).reused for _ in range(2)] == [0, 1]


def test_a_log_is_looked_at_again_once_and_not_at_every_question(place, tmp_path, monkeypatch):
    """The engine asks after every few runs; hashing all logs each time was quadratic in their number."""
    logs = []
    for number, log in enumerate(one for one in units(place / "logs") if one.is_file()):
        logs.append(tmp_path / f"{number}{log.suffix}")
        logs[-1].write_bytes(log.read_bytes())
    scorer = TraceScorer(Settings("strict", (), "call", 0, None, (), None, None, None), load_gold(place / "gold.jsonl"))
    hashed = []
    real = recorded_runs.content_sha
    monkeypatch.setattr(recorded_runs, "content_sha", lambda path: hashed.append(path) or real(path))
    runs = RecordedRuns([RunLog("", str(log)) for log in logs], scorer)
    assert all(runs.unchanged() for _ in runs)
    assert runs.unchanged()
    assert sorted(hashed) == sorted([*logs, *logs])

    changed = RecordedRuns([RunLog("", str(log)) for log in logs], scorer)
    reading = iter(changed)
    next(reading)
    logs[0].write_bytes(logs[0].read_bytes() + b"\n")
    assert [changed.unchanged(), *(changed.unchanged() for _ in reading)] == [False] * len(list(runs))


def test_what_was_scored_before_an_interruption_stays(place, tmp_path):
    arguments = (place / "gold.jsonl", place / "logs", place / "repo.json")

    def stop(done, of):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_traces(*arguments, out=tmp_path / "out", on_done=stop)
    found = score_traces(*arguments, out=tmp_path / "out")
    assert (found.made, found.reused) == (6, 4)


def test_processes_give_what_one_gives(place, tmp_path):
    arguments = (place / "gold.jsonl", place / "logs", place / "repo.json")
    with score_traces(*arguments, workers=1) as one, score_traces(*arguments, workers=2) as two:
        assert one.path.read_bytes() == two.path.read_bytes()


def test_nothing_is_silently_empty(place, tmp_path):
    gold = fixtures.gold_file(tmp_path, GOLD, {**GOLD, "inst_id": "demo__demo-2"}, {"inst_id": "empty"})
    logs = tmp_path / "logs"
    fixtures.session(logs, "codex_exec_json")
    fixtures.session(logs, "opencode_json", "nobody__knows-3")
    (logs / "notes.json").write_text('{"a": 1}')
    with score_traces(gold, {"s": logs}, place / "repo.json") as found:
        rows = list(found.rows())
        assert found.without_trace == {"s": ["demo__demo-2"]}
        assert [row.error for row in rows] == [None, "no_gold"]
        assert rows[1].score is None
        assert list(found.unread) == [str(logs / "notes.json")]
        assert dict(found.golds.skipped) == {
            "gold is empty: no context in init_ctx, add_ctx, gold_ctx or gold_context": 1
        }
    with pytest.raises(BadInput, match=r"notes\.json: not a trace"):
        score_traces(gold, logs / "notes.json")
    with pytest.raises(BadInput, match="no such trace"):
        score_traces(gold, logs / "gone.json")
    with pytest.raises(BadInput, match="no such repository"):
        score_traces(gold, logs, tmp_path / "gone.git")


def test_traces_that_are_there_already(place):
    repo = open_repo(place / "repo.json")
    trace = next(iter(load_traces(place / "logs" / "mini_v2", repo=repo)))
    with score_traces(load_gold(place / "gold.jsonl"), [trace, trace], repo) as found:
        rows = list(found.rows())
    assert [row.attempt for row in rows] == [1, 2]
    assert rows[0].trace_sha == rows[1].trace_sha
    assert rows[0].score.final["line"].coverage == pytest.approx(8 / 11)


def test_gold_whose_text_has_moved_is_told(place):
    moved = {
        **GOLD,
        "init_ctx": [
            {
                "file": "src/calc.py",
                "start_line": 2,
                "end_line": 3,
                "content": "def subtotal(items: List[float]) -> float:\n    total = 0.0",
            }
        ],
    }
    with score_traces(
        [gold_of_row(moved)], place / "logs" / "codex_exec_json", place / "repo.json", instance="demo__demo-1"
    ) as found:
        [row] = found.rows()
    assert row.drift == [{"file": "src/calc.py", "first": 2, "last": 3, "moved": 8}]


@pytest.mark.parametrize(("policy", "covered"), [("strict", 1.0), ("contextbench-v1", 0.0)])
def test_gold_is_scored_where_its_text_stands(policy, covered):
    gold = Gold("t", [GoldItem("a.py", 1, 2, "three\nfour\n")])
    files = Snapshot({"a.py": b"one\ntwo\nthree\nfour\n"})
    read = Event(1, None, "read", "Read", "a.py", ((3, 4),), "args")
    row = score_trace(gold, Trace("t", "codex", None, [read]), files, policy)
    assert row.score.final["line"].coverage == covered
    nowhere = Gold("t", [GoldItem("a.py", 3, 4, "gone\n")])
    row = score_trace(nowhere, Trace("t", "codex", None, [read]), files, policy)
    assert (row.score.final["line"].coverage, len(row.drift)) == (1.0, 1)


# Repositories
# ------------------------------------------------------------------------


def git(folder, *words):
    command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@e", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def gold_in(repo, file="a.py", commit=None):
    return Gold("t", [GoldItem(file, 1, 1)], repo=repo, commit=commit)


def found_in(repos, gold):
    got = repos.find(gold)
    return got if isinstance(got, str) else sorted(got[0].paths())


def test_a_repository_is_found_by_name_and_commit(tmp_path):
    clone = tmp_path / "repos" / "own" / "project"
    clone.mkdir(parents=True)
    git(clone, "init", "-q")
    (clone / "a.py").write_text("1\n")
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "one")
    first = git(clone, "rev-parse", "HEAD")
    (clone / "b.py").write_text("1\n")
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "two")
    (tmp_path / "repos" / "other__thing.json").write_text('{"a.py": "x"}')
    with Repositories([tmp_path / "repos"]) as repos:
        assert found_in(repos, gold_in("own/project", commit=first)) == ["a.py"]
        assert found_in(repos, gold_in("own/project")) == ["a.py", "b.py"]
        assert found_in(repos, gold_in("other/thing", commit="abc")) == ["a.py"]
        assert "no repository of not/there" in found_in(repos, gold_in("not/there"))
        assert "has no commit 'f00'" in found_in(repos, gold_in("own/project", commit="f00"))
        assert "no repository of ../own" in found_in(repos, gold_in("../own/project"))
    with Repositories([clone]) as repos:
        assert found_in(repos, gold_in("own/project", commit=first)) == ["a.py"]
        assert "none of the gold's files is in" in found_in(repos, gold_in("x/y", "zzz.py", first))


@pytest.mark.parametrize(
    "place", ["own__project", "own__project.json", "own__project@abc.json", "own/project", "github.com__own__project"]
)
def test_gold_that_names_no_owner_finds_the_folder_that_does(tmp_path, place):
    put(tmp_path / place)
    put(tmp_path / "own__project-tools.json")
    with Repositories([tmp_path]) as repos:
        assert found_in(repos, gold_in("project", commit="abc")) == ["a.py"]


def test_a_bare_name_that_two_owners_have_is_the_one_that_holds_the_gold(tmp_path):
    put(tmp_path / "one__project.json")
    put(tmp_path / "two__project.json", "b.py")
    put(tmp_path / "project.json", "c.py")
    with Repositories([tmp_path]) as repos:
        assert found_in(repos, gold_in("project", "b.py")) == ["b.py"]
        assert found_in(repos, gold_in("project", "c.py")) == ["c.py"]
        assert "none of the gold's files is in" in found_in(repos, gold_in("project", "d.py"))
        put(tmp_path / "three__project.json", "b.py")
        fault = found_in(repos, gold_in("project", "b.py"))
    assert fault.startswith("repositories of several owners have the name that the gold gives")
    assert "three__project.json" in fault
    assert "two__project.json" in fault


def put(place, file="a.py"):
    """A repository that holds one file: a clone, or a snapshot."""
    if place.suffix == ".json":
        place.write_text(json.dumps({file: "x"}))
        return
    place.mkdir(parents=True)
    git(place, "init", "-q")
    (place / file).write_text("1\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "one")
    git(place, "tag", "abc")


def test_a_package_named_like_its_repository_is_not_the_repository(tmp_path):
    (tmp_path / "django").mkdir()
    (tmp_path / "django" / "a.py").write_text("")
    (tmp_path / "setup.py").write_text("")
    with Repositories([tmp_path]) as repos:
        assert found_in(repos, gold_in("django/django", "django/a.py")) == ["django/a.py", "setup.py"]


# Two sets
# ------------------------------------------------------------------------


def row_of(number, coverage, status="unknown", policy="strict", run="r"):
    gold = Gold(f"t{number}", [GoldItem("a.py", 1, 10)], repo=f"o/r{number % 7}")
    events = [Event(1, "c", "read", "Read", "a.py", ((1, coverage),), "structured")] if coverage else []
    return score_trace(
        gold, Trace(gold.instance_id, events=events), open_repo({"a.py": TEXT}), policy, run=run, status=status
    )


def test_two_sets_are_paired_by_instance():
    a = [row_of(n, 2 + n % 3, "resolved" if n < 4 else "unresolved", run="a") for n in range(21)]
    b = [row_of(n, 5 + n % 2, "resolved" if n < 12 else "unresolved", run="b") for n in range(3, 24)]
    found = compare_traces(a, b)
    assert (found.a, found.b, found.shared, found.only_a, found.only_b) == (
        "a",
        "b",
        18,
        ["t0", "t1", "t2"],
        ["t21", "t22", "t23"],
    )
    one = found.figures["coverage.line"]
    assert one.difference == pytest.approx(sum((5 + n % 2) - (2 + n % 3) for n in range(3, 21)) / 180)
    assert one.low < one.difference < one.high
    assert one.clusters == 7
    assert (found.solved.both, len(found.solved.only_b), found.solved.only_a, found.solved.p) == (
        1,
        8,
        [],
        pytest.approx(2 / 2**8),
    )
    assert json.loads(json.dumps(found.to_json()))["figures"]["coverage.line"]["n"] == 18


def test_what_cannot_be_compared_says_why():
    with pytest.raises(NotComparable, match="policy is strict in a and contextbench-v1 in b"):
        compare_traces([row_of(1, 3, run="a")], [row_of(1, 3, policy="contextbench-v1", run="b")])
    with pytest.raises(NotComparable, match="no scored instance in common"):
        compare_traces([row_of(1, 3)], [row_of(2, 3)])
    with pytest.raises(NotComparable, match="several sets"):
        compare_traces([row_of(1, 3, run="x"), row_of(1, 3, run="y")], [row_of(1, 3)])
