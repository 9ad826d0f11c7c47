from __future__ import annotations

import json
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from context_bench.core.errors import BadInput
from context_bench.transcripts.harness_results import load_solved, report_formats as formats

KEYS = [
    "instance_id",
    "resolved",
    "resolved_ids",
    "error_ids",
    "model_patch",
    "task_name",
    "reward",
    "verifier_result",
    "rewards",
    "eval",
    "samples",
    "scores",
    "tests_status",
    "valid",
    "org",
    "repo",
    "number",
    "all_f2p_passed",
    "no_p2p_failed",
    "status",
]
PRO = "instance_flipt-io__flipt-e42da21a07a5ae35835ec54f74004ebd58713874-v" + "e02ad" * 8
RUN = {
    "total_instances": 6,
    "submitted_instances": 5,
    "completed_ids": ["a__b-1", "a__b-2", "a__b-3"],
    "incomplete_ids": ["a__b-6"],
    "empty_patch_ids": ["a__b-5"],
    "submitted_ids": ["a__b-1", "a__b-2", "a__b-3", "a__b-4", "a__b-5"],
    "resolved_ids": ["a__b-1"],
    "unresolved_ids": ["a__b-2", "a__b-3"],
    "infra_failure_ids": ["a__b-4"],
    "ambiguous_failure_ids": ["a__b-3"],
    "failure_reasons": {"a__b-4": "docker", "a__b-3": "timeout"},
    "error_ids": ["a__b-4"],
    "schema_version": 2,
}


def ran(f2p=((), ()), p2p=((), ())):
    kinds = {"FAIL_TO_PASS": f2p, "PASS_TO_PASS": p2p}
    return {kind: {"success": list(good), "failure": list(bad)} for kind, (good, bad) in kinds.items()}


def load(tmp_path, value, name="report.json", **options):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return load_solved(path, **options)


def test_a_run_report_keeps_failures_of_the_machinery_apart(tmp_path):
    found = load(tmp_path, RUN, "model.run.json")
    assert dict(found.sources) == {"swe_bench_run": 6}
    assert found.counts() == {"resolved": 1, "unresolved": 4, "error": 1, "unknown": 0, "infra": 1}
    assert (found.find("a__b-4").infra, found.find("a__b-4").reason) == (True, "docker")
    assert (found.find("a__b-3").infra, found.find("a__b-3").reason) == (False, "timeout")
    assert [found.find(f"a__b-{n}").reason for n in (5, 6)] == ["empty_patch", "missing"]
    assert found.status("a/b:pr-1") == "resolved"
    assert found.status("a__b-99") == "unknown"


def test_run_reports_before_schema_2_and_the_oldest(tmp_path):
    old = {key: value for key, value in RUN.items() if not key.startswith(("infra", "ambiguous", "failure", "schema"))}
    assert load(tmp_path, old).counts()["error"] == 1
    oldest = {
        "no_generation": ["x-2"],
        "generated": ["x-1", "x-3"],
        "with_logs": ["x-1", "x-3"],
        "no_apply": ["x-3"],
        "resolved": ["x-1"],
    }
    found = load(tmp_path, oldest)
    assert [found.status(f"x-{n}") for n in (1, 2, 3)] == ["resolved", "unresolved", "unresolved"]
    assert found.find("x-2").reason == "empty_patch"


@pytest.mark.parametrize(
    ("report", "status", "reason"),
    [
        ({"resolved": True, "tests_status": ran((["t"], []), (["u"], []))}, "resolved", None),
        ({"resolved": True, "tests_status": ran((["t"], []), ([], ["u"]))}, "unresolved", "failing: 1 of PASS_TO_PASS"),
        ({"tests_status": ran((["t"], []))}, "resolved", None),
        ({"tests_status": ran(([], ["t", "v"]), (["u"], []))}, "unresolved", "failing: 2 of FAIL_TO_PASS"),
        ({"resolved": False, "tests_status": ran((["t"], []))}, "unresolved", None),
        ({"resolved": False, "patch_is_None": True}, "unresolved", "empty_patch"),
        (
            {"resolved": False, "patch_exists": True, "patch_successfully_applied": False},
            "unresolved",
            "patch does not apply",
        ),
        ({"resolved": True, "tests_status": ran()}, "resolved", None),
    ],
)
def test_resolved_means_both_kinds_of_tests(tmp_path, report, status, reason):
    one = load(tmp_path, {"a__b-1": report}).find("a__b-1")
    assert (one.status, one.reason) == (status, reason)


def test_a_tree_of_reports_and_the_report_of_its_run(tmp_path):
    logs = tmp_path / "logs" / "run_evaluation" / "r" / "m"
    for n, done in ((1, True), (2, False)):
        load(
            logs,
            {f"a__b-{n}": {"resolved": done, "infra_failure": n == 2, "infra_failure_reason": "disk"}},
            f"a__b-{n}/report.json",
        )
    alone = load_solved(tmp_path)
    assert alone.counts() == {"resolved": 1, "unresolved": 1, "error": 0, "unknown": 0, "infra": 1}
    assert alone.find("a__b-2").reason == "disk"
    (tmp_path / "run.json").write_text(json.dumps({"resolved_ids": ["a__b-2"], "unresolved_ids": []}))
    both = load_solved(tmp_path)
    assert (both.status("a__b-1"), both.status("a__b-2")) == (
        "resolved",
        "resolved",
    )  # the run's own report counts first
    assert dict(both.sources) == {"swe_bench_run": 1, "swe_bench_instance": 1}


def test_multi_swe_bench(tmp_path):
    report = {
        "incomplete_instances": 1,
        "resolved_ids": ["cli/cli:pr-10"],
        "unresolved_ids": ["cli/cli:pr-2"],
        "error_ids": ["cli/cli:pr-3"],
    }
    found = load(tmp_path, {**report, "incomplete_ids": ["cli/cli:pr-3"], "submitted_ids": []}, "final_report.json")
    assert dict(found.sources) == {"multi_swe_bench": 3}
    assert [found.status(f"cli__cli-{n}") for n in (10, 2, 3)] == ["resolved", "unresolved", "error"]
    one = load(tmp_path, {"org": "cli", "repo": "cli", "number": 7, "valid": False, "error_msg": "No fix"})
    assert (one.status("cli__cli-7"), one.find("cli__cli-7").reason) == ("unresolved", "No fix")


def test_swe_bench_pro_and_what_could_not_run(tmp_path):
    (tmp_path / "infra_errors.json").write_text(json.dumps({"instance_a__b-" + "0" * 40: "no image"}))
    found = load(tmp_path, {PRO: True, "instance_a__b-" + "1" * 40: False}, "eval_results.json")
    assert found.counts() == {"resolved": 1, "unresolved": 1, "error": 1, "unknown": 0, "infra": 1}
    assert found.status("flipt-io__flipt-e42da21a07a5ae35835ec54f74004ebd58713874") == "resolved"
    assert load_solved(tmp_path).counts() == found.counts()


def test_swe_polybench(tmp_path):
    def row(name, **more):
        base = {
            "patch_applied": True,
            "generation": True,
            "with_logs": True,
            "all_f2p_passed": True,
            "no_p2p_failed": True,
            "resolved": True,
        }
        return {"instance_id": name, **base, **more}

    rows = [
        row("a__b-1"),
        row("a__b-2", no_p2p_failed=False, resolved=False),
        row("a__b-3", generation=False, patch_applied=False, with_logs=False, all_f2p_passed=False, resolved=False),
        row("a__b-4", with_logs=False, all_f2p_passed=False, resolved=False),
    ]
    for one in rows:
        load(tmp_path, one, f"{one['instance_id']}_result.json")
    found = load_solved(tmp_path)
    assert [(o.status, o.reason) for o in found] == [
        ("resolved", None),
        ("unresolved", "failing: pass-to-pass"),
        ("unresolved", "empty_patch"),
        ("error", "no log of the tests"),
    ]
    whole = load(tmp_path / "x", {"resolved": ["a__b-1"], "not_resolved": ["a__b-3"], "no_generation": ["a__b-3"]})
    assert (whole.status("a__b-1"), whole.find("a__b-3").reason) == ("resolved", "empty_patch")


def test_harbor_trials(tmp_path):
    def trial(name, number, **more):
        load(tmp_path, {"task_name": name, "trial_name": f"{name}__{number}", **more}, f"{name}__{number}/result.json")

    trial("easy", 1, verifier_result={"rewards": {"reward": 1.0}})
    trial("easy", 2, verifier_result={"rewards": {"reward": 1}})
    trial("mixed", 1, verifier_result={"rewards": {"reward": 0.5}})
    trial("mixed", 2, verifier_result={"reward": 1})
    trial("broken", 1, verifier_result=None, exception_info={"exception_type": "EnvironmentStartTimeoutError"})
    trial("slow", 1, verifier_result=None, exception_info={"exception_type": "AgentTimeoutError"})
    trial("odd", 1, verifier_result={"rewards": {"a": 1, "b": 0}})
    (tmp_path / "result.json").write_text(json.dumps({"id": "job", "stats": {}}))
    found = load_solved(tmp_path)
    assert found.status("easy") == "resolved"
    assert (found.status("mixed"), found.find("mixed").reason) == ("unknown", "1 of 2 trials resolved")
    assert (found.status("mixed__1"), found.status("mixed__2")) == ("unresolved", "resolved")
    assert [(found.status(n), found.find(n).infra) for n in ("broken", "slow")] == [("error", True), ("error", False)]
    assert found.status("odd") == "unknown"
    assert found.skipped["not a report"] == 1


def inspect_log(samples):
    return {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}, "samples": samples}


def test_inspect_scores_in_both_forms(tmp_path):
    samples = [
        {"id": "a__b-1", "epoch": 1, "scores": {"swe_bench": {"value": 1.0}}},
        {"id": "a__b-2", "epoch": 1, "scores": {"swe_bench": {"value": "I"}, "style": {"value": "C"}}},
        {"id": "a__b-3", "epoch": 1, "error": {"message": "sandbox"}},
    ]
    found = load(tmp_path, inspect_log(samples))
    assert [found.status(f"a__b-{n}") for n in (1, 2, 3)] == ["resolved", "unknown", "error"]
    assert found.find("a__b-2").reason == "scorers differ: style, swe_bench"
    assert load_solved(tmp_path / "report.json", scorer="swe_bench").status("a__b-2") == "unresolved"
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", json.dumps(inspect_log([])))
        for one in samples:
            archive.writestr(f"samples/{one['id']}_epoch_1.json", json.dumps(one))
    assert load_solved(tmp_path / "log.eval").counts() == found.counts()


@pytest.mark.parametrize("form", ["list", "map", "lines"])
def test_predictions_are_patches_without_a_verdict(tmp_path, form):
    rows = [
        {"instance_id": f"a__b-{n}", "model_name_or_path": "m", "model_patch": patch}
        for n, patch in ((1, "diff --git"), (2, ""), (3, None))
    ]
    value = {"list": rows, "map": {row["instance_id"]: row for row in rows}, "lines": "\n".join(map(json.dumps, rows))}[
        form
    ]
    found = load(tmp_path, value, "preds.json")
    assert [(one.status, one.reason) for one in found] == [
        ("unknown", "not run"),
        ("unresolved", "empty_patch"),
        ("unresolved", "empty_patch"),
    ]
    assert found.find("a__b-1").patch == "diff --git"


def test_lines_that_anybody_can_write(tmp_path):
    rows = [
        {"instance_id": "1", "resolved": True},
        {"instance_id": "2", "status": "Failed"},
        {"instance_id": "3", "resolved": None},
        {"instance_id": "4", "status": "infra", "reason": "no disk"},
        {"instance_id": "5", "resolved": 0},
        {"resolved": True},
        {"instance_id": "7", "resolved": "perhaps"},
    ]
    found = load(tmp_path, "\n".join(map(json.dumps, rows)) + "\nnot json\n", "solved.jsonl")
    assert [one.status for one in found] == ["resolved", "unresolved", "unknown", "error", "unresolved"]
    assert found.find("4").infra
    assert dict(found.skipped) == {"no id": 1, "no verdict": 1, "not JSON": 1}


def test_what_is_no_report_says_what_it_is(tmp_path):
    with pytest.raises(BadInput, match=r"first keys are 'hello'.*predictions, plain"):
        load(tmp_path, {"hello": [1]})
    with pytest.raises(BadInput, match="no reports on patches in the folder"):
        load_solved(tmp_path)
    with pytest.raises(BadInput, match="cannot read"):
        load_solved(tmp_path / "gone.json")


values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.sampled_from(["a__b-1", "resolved", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=14,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values | st.binary(max_size=60))
def test_anything_is_a_report_or_refused(tmp_path, value):
    path = tmp_path / "x.json"
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    try:
        found = load_solved(path)
    except BadInput:
        return
    assert sum(found.sources.values()) == len(found) > 0
    assert set(found.sources) <= set(formats())
