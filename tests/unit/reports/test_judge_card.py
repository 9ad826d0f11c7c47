"""The card of a run's judge: failures by system, agreement with people, what an audit found; what is not known is
said.
"""

from __future__ import annotations

from context_bench.compression.figures import add_compression
from context_bench.core.records import EvalRow
from context_bench.reports import build_page
from context_bench.reports.html_page import render as to_html
from context_bench.reports.table import render as to_table
from context_bench.results import EvalResult

JUDGE = {"model": "rj", "criteria": "by_probe", "visibility": "context"}


def judged(**manifest):
    rows = []
    for system in ("full", "none"):
        for session in range(8):
            told = {"qa_type": "recall", "tokens_before": 100, "tokens_after": 100, "cycle": 1}
            scores = {"rubric_overall": 4.0, "accuracy": 4.0, "probe_score": 1.0} if session else {"probe_score": 1.0}
            errors = {} if session else {"rubric_judge": "EvaluatorFailed: HTTP 503"}
            place = (0.01, "probes", 0, f"s{session}@9", f"s{session}")
            rows.append(EvalRow(system, f"s{session}@9#recall-1", scores, 100, 100, told, *place, errors=errors))
    found = EvalResult(rows=rows, summary={}, timing={}, config={}, metrics=[])
    found.failures = {name: {"rubric_judge": {"EvaluatorFailed": 1}} for name in ("full", "none")}
    found.manifest = {
        "margin": {"score_field": "rubric_overall", "value": 0.1},
        "options": {"judge_model": "rj", "responder": "sentence"},
        "engine": {"evaluators": [{"name": "rubric_judge", "fingerprint": JUDGE}]},
        "datasets": [{"dataset": "probes"}],
        "compression": {"points": "fraction:0.75", "responder": "sentence"},
        **manifest,
    }
    add_compression(found, {"points": "fraction:0.75", "responder": "sentence"})
    return to_table(build_page(found)), to_html(build_page(found))


def card(text):
    return " ".join(text[text.index("\nJudge\n") :].split())


def test_what_is_not_known_is_said_and_failures_are_counted():
    shown, _ = judged()
    told = card(shown)
    assert "against people not known: context-bench judge label RUN" in told
    assert "leak not known: context-bench judge audit RUN" in told
    assert "full 7 1 none 7 1" in told
    assert "(not calibrated)" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_what_is_known_is_told():
    people = {"score": "rubric_overall", "label": "firm", "n": 40, "alpha": 0.84}
    audit = {
        "leak": {"leak": 0.125, "accuracy": 0.5, "choices": 4, "n": 20},
        "lifts": [
            {"attack": "order", "mean": 0.75, "largest": 2.0, "n": 9},
            {"attack": "padding", "mean": -0.1, "largest": 0.0, "n": 9},
        ],
        "drift": {"mean": 2.0, "before": 2.1, "shift": -0.1, "n": 3},
        "faults": ["attack <order> gains"],
    }
    shown, page = judged(judge_calibration=people, judge_audit=audit)
    told = card(shown)
    assert "firm: 40 labels, alpha 0.84" in told
    assert "leak +0.12 (0: blind" in told
    assert "+0.75 of 5 at most (order; 2 tried)" in told
    assert "drift -0.10" in told
    assert "(firm, 40 labels)" in shown
    assert "<order>" not in page


def test_a_judge_that_judged_again_is_the_one_shown():
    shown, _ = judged(rescored=[{"fingerprints": {"rubric_judge": {**JUDGE, "model": "second"}}}])
    assert "judge second" in card(shown)


def test_without_a_judge_there_is_no_card():
    shown, _ = judged(engine={"evaluators": []})
    assert "\nJudge\n" not in shown
