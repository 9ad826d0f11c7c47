"""Letters by the published rules: the worst finding makes the letter, nothing is averaged, and what could not be asked
is never good.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.families import GradeAnswer, GradeFault, GradeTarget
from context_bench.memory.ops import GRADED, SUITES
from context_bench.session.grade import (
    LETTERS,
    answer_of,
    as_output,
    grade_document,
    grade_pages,
    grade_rules,
    heading_points,
    letters_below,
)
from context_bench.wire.violations import KINDS, REPLY_KINDS

TARGET = GradeTarget(subject="proxy", value="http://127.0.0.1:8080", back=18409)
FAITHFUL = ("faithful requests",)


def answered(*kinds, **more):
    return GradeAnswer(tuple(GradeFault(kind, f"it is {kind}", "sent", "arrived") for kind in kinds), **more)


def letters(checks):
    return {one["heading"]: one["letter"] for one in grade_document(TARGET, checks)["headings"]}


def test_every_kind_of_change_to_a_request_or_a_reply_has_a_rule():
    assert {*KINDS, *REPLY_KINDS} <= set(grade_rules().kinds)


def test_every_suite_of_memories_that_is_graded_has_a_rule_under_its_heading():
    assert set(GRADED) <= set(SUITES)
    assert {suite: (grade_rules().of(f"memory_{suite}").heading,) for suite in GRADED} == GRADED


def test_every_rule_names_a_heading_a_severity_and_the_likely_answer():
    rules = grade_rules()
    for kind, rule in rules.kinds.items():
        assert rule.heading in rules.headings, kind
        assert rules.severities[rule.severity] == rule.letter, kind
        assert rule.answer, kind


def test_a_kind_without_a_rule_is_an_error():
    with pytest.raises(UnknownName, match="no_such_kind"):
        grade_document(TARGET, {"one": (FAITHFUL, answered("no_such_kind"))})


def test_one_that_is_wrong_makes_an_f_among_a_hundred_that_are_right():
    checks = {f"check {number}": (FAITHFUL, answered()) for number in range(100)}
    assert letters(checks)["faithful requests"] == "A"
    assert letters({**checks, "bad": (FAITHFUL, answered("media_lost"))})["faithful requests"] == "F"


@pytest.mark.parametrize(
    ("kind", "letter"),
    [("tool_annotation_changed", "A"), ("media_reencoded", "B"), ("params_changed", "D"), ("orphan_tool_result", "F")],
)
def test_the_letter_is_that_of_the_worst_finding(kind, letter):
    checks = {"one": (FAITHFUL, answered(kind)), "two": (FAITHFUL, answered("tool_annotation_changed"))}
    assert letters(checks)["faithful requests"] == letter


def test_a_fault_counts_under_its_own_heading():
    found = letters({"one": (FAITHFUL, answered("cache_control_lost"))})
    assert found["faithful requests"] == "A"
    assert found["cache and money"] == "C"


def test_what_was_not_asked_has_no_letter():
    checks = {"one": (FAITHFUL, answered(not_asked="no reply"))}
    document = grade_document(TARGET, checks)
    assert letters(checks)["faithful requests"] is None
    assert document["grade"] is None
    assert document["not_asked"] == [{"check": "one", "why": "no reply"}]


def test_a_heading_of_which_most_was_not_asked_has_no_good_letter_but_keeps_a_bad_one():
    left_out = {f"left {number}": (FAITHFUL, answered(not_asked="no time")) for number in range(3)}
    assert letters({"one": (FAITHFUL, answered()), **left_out})["faithful requests"] is None
    assert letters({"one": (FAITHFUL, answered("media_lost")), **left_out})["faithful requests"] == "F"


def test_an_api_that_is_not_offered_is_no_part_of_a_letter():
    checks = {"one": (FAITHFUL, answered()), **{f"{n}": (FAITHFUL, answered(offered=False)) for n in range(9)}}
    assert letters(checks)["faithful requests"] == "A"


def test_the_overall_grade_is_the_worst_heading():
    checks = {"one": (FAITHFUL, answered()), "two": (("privacy",), answered("key_exposed"))}
    assert grade_document(TARGET, checks)["grade"] == "F"


def test_where_a_heading_could_not_be_asked_the_whole_has_no_good_letter():
    unknown = {"two": (("privacy",), answered(not_asked="no time"))}
    assert grade_document(TARGET, {"one": (FAITHFUL, answered()), **unknown})["grade"] is None
    assert grade_document(TARGET, {"one": (FAITHFUL, answered("media_lost")), **unknown})["grade"] == "F"
    assert grade_document(TARGET, {"one": (FAITHFUL, answered())})["grade"] == "A"  # --check asked for no more


def test_an_answer_is_the_same_after_it_was_stored():
    answer = answered("media_lost", "params_changed", detail="seen")
    assert answer_of(json.loads(json.dumps(as_output(answer)))) == answer


@pytest.mark.parametrize("odd", [{}, {"faults": 3}, {"faults": [1, None]}, {"offered": 1, "detail": None}])
def test_what_somebody_else_wrote_into_a_store_is_read_all_the_same(odd):
    assert answer_of(odd).faults == ()


def test_scores_are_the_letters_by_heading():
    assert heading_points(FAITHFUL, answered("params_changed")) == {"faithful_requests": LETTERS["D"]}
    assert heading_points(FAITHFUL, answered(not_asked="no")) == {}


def test_a_gate_holds_no_heading_that_was_not_asked():
    document = grade_document(TARGET, {"one": (FAITHFUL, answered())})
    held = {heading: holds for heading, _, holds in letters_below(document, "B")}
    assert held["faithful requests"]
    assert not held["privacy"]
    with pytest.raises(BadInput, match="--min-grade 'E'"):
        letters_below(document, "E")


HOSTILE = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture
def hostile():
    fault = GradeFault("media_lost", HOSTILE, HOSTILE, HOSTILE, 1000)
    return grade_document(TARGET, {HOSTILE: (FAITHFUL, GradeAnswer((fault,)))})


@pytest.mark.parametrize(
    "form", [grade_pages.text_page, grade_pages.html_page, grade_pages.markdown_page, grade_pages.badge]
)
def test_no_page_holds_markup_or_steering_from_outside(hostile, form):
    page = form(hostile)
    assert "\x1b" not in page
    if form is not grade_pages.text_page:
        assert "<script" not in page


def test_sarif_and_the_badge_can_be_read(hostile):
    log = json.loads(grade_pages.sarif_page(hostile, "1.0"))
    assert log["version"] == "2.1.0"
    assert [one["ruleId"] for one in log["runs"][0]["results"]] == ["media_lost"]
    assert ElementTree.fromstring(grade_pages.badge(hostile)).tag.endswith("svg")


def test_an_issue_text_holds_the_command_that_shows_it_again():
    checks = {"request, messages: an image": (FAITHFUL, answered("media_lost"))}
    [found] = grade_document(TARGET, checks)["findings"]
    assert "context-bench grade --proxy http://127.0.0.1:8080 --back 18409" in found["issue"]
    assert "--check 'request, messages: an image'" in found["issue"]
    assert "sent" in found["issue"]


def test_the_page_of_the_docs_says_what_the_rules_say():
    page = (Path(__file__).parents[3] / "docs" / "guide" / "grade.md").read_text("utf-8")
    rules = grade_rules()
    assert dict(re.findall(r"^\| (\w+) \| ([A-F]) \|", page, re.M)) == rules.severities
    for heading, examples in re.findall(r"^\| ((?!heading)[a-z ]+) \| [^|]{9,} \| ([^|]*) \|$", page, re.M):
        assert heading in rules.headings
        for kind in re.findall(r"`(\w+)`", examples):
            assert (rules.of(kind).heading, rules.of(kind).letter) == (heading, "F")
    assert all(f"| {heading} |" in page for heading in rules.headings)


def test_the_page_names_a_started_proxy_shortly_and_puts_findings_of_a_kind_under_one_line():
    command = "/opt/tools/relay/bin/relay serve --port {port} --upstream {back}"
    target = GradeTarget(subject="proxy", value="", start=command)
    checks = {f"check {number}": (FAITHFUL, answered("media_lost")) for number in range(3)}
    checks["check <4>"] = (FAITHFUL, answered("turn_lost"))
    document = grade_document(target, checks)
    page = grade_pages.html_page(document)
    assert '<h1><b class="l gF">F</b> relay serve</h1>' in page
    assert f"<pre>{command}</pre>" in page
    assert page.count("media_lost ×3: it is media_lost") == 1
    assert page.count("<details>") == 5  # the three and their line; the one that is alone has none of its own
    assert "check &lt;4&gt;" in page
    assert grade_pages.text_page(document).startswith("Grade of relay serve: F\n")
