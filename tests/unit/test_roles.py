"""Each arm has the role that it was declared to have, whatever it is called; runs from before roles were declared are
read by name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from context_bench import evaluate
from context_bench.agents import line_up
from context_bench.agents.systems import ArmSpec, parse_arm
from context_bench.comparison import candidates, compare, within
from context_bench.compression import Compressed, evaluate_compression
from context_bench.compression.figures import figures
from context_bench.compression.sections.costs import lost
from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.records import EvalRow
from context_bench.core.roles import ArmRole, role_of_old_name, roles_in, roles_of_cell
from context_bench.evaluators import AnswerQuality
from context_bench.metrics import CostOfPass, MeanScore
from context_bench.reports.page import build_page
from context_bench.results import EvalResult
from context_bench.session.arms import cells
from context_bench.session.flags import read_options
from context_bench.session.options import RunOptions
from context_bench.session.run_session import RunEnvironment

EXAMPLES = [
    {"id": i, "context": f"The code of box {i} is {i * 7}.", "question": f"Box {i}?", "answer": str(i * 7)}
    for i in range(240)
]
NAMES = ("base", "mine@v2", "full", "x#2", "none", "random_drop@base", "head_tail@base", "base#2")


class Answers:
    def __init__(self, name: str, right: bool = True) -> None:
        self.name, self.right = name, right

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        return {**example, "response": example["answer"] if self.right else "no idea"}

    def fingerprint(self) -> dict[str, Any]:
        return {"name": self.name, "right": self.right}


def run(*systems: Answers, **more: Any) -> EvalResult:
    metrics = [MeanScore("f1"), CostOfPass(0.5, "f1")]
    return evaluate(list(systems), EXAMPLES, [AnswerQuality()], metrics, progress=False, max_workers=8, **more)


@pytest.fixture(scope="module")
def named() -> EvalResult:
    """Systems of the user's, called as controls used to be. `none` is wrong everywhere."""
    return run(*(Answers(name, name != "none") for name in NAMES), margin=0.1)


def test_a_name_gives_no_role(named: EvalResult) -> None:
    (cell,) = named.manifest["cells"]
    assert (cell["baseline"], cell["controls"]) == ("base", [])
    assert cell["roles"] == {name: {"role": "baseline" if name == "base" else "candidate"} for name in NAMES}
    assert candidates(named) == list(NAMES)
    assert {each.baseline for each in named.comparisons} == {"base"}
    told = {each.system: each for each in named.comparisons}
    assert not [each.system for each in named.comparisons if "Noise floor" in each.sentence]
    assert told["mine@v2"].verdict == "insensitive"  # nothing was declared that must lose
    assert named.lifts == []
    assert all("pareto_rank" in named.summary[name] for name in NAMES)
    page = build_page(named, title="names")
    assert not any(each.control for each in page.verdicts)
    pareto = next(chart for section in page.sections for chart in section.charts if chart.id == "pareto")
    assert {point.name for point in pareto.data if point.front} >= {"x#2", "base#2"}


def test_candidates_are_corrected_together_whatever_they_are_called(named: EvalResult) -> None:
    others = ((f"s{n}", n != 3) for n in range(7))
    plain = run(Answers("base"), *(Answers(name, right) for name, right in others), margin=0.1)
    assert [each.p for each in plain.comparisons] == [each.p for each in named.comparisons]


def test_roles_are_what_was_declared() -> None:
    result = run(
        Answers("mine@v2"),
        Answers("usual"),
        Answers("worst", right=False),
        Answers("again"),
        Answers("cut"),
        roles={"usual": "baseline", "worst": "known_bad", "again": "noise_floor", "cut": "control"},
    )
    assert result.manifest["cells"][0]["controls"] == ["usual", "worst", "again", "cut"]
    assert candidates(result) == ["mine@v2"]
    told = {each.system: each for each in result.comparisons}
    assert {each.baseline for each in told.values()} == {"usual"}
    assert (told["mine@v2"].verdict, told["worst"].verdict) == ("non-inferior", "inferior")
    assert "'worst'" in told["mine@v2"].sentence
    assert told["again"].sentence.startswith("Noise floor: again is usual again")
    assert "pareto_rank" not in result.summary["again"]
    page = build_page(result, title="roles")
    assert {each.system for each in page.verdicts if each.control} == {"worst", "again", "cut"}
    kept = EvalResult.from_json(result.to_json())
    assert roles_in(kept.manifest, kept.summary) == roles_in(result.manifest, result.summary)


@pytest.mark.parametrize(
    ("more", "fault", "said"),
    [
        ({"roles": {"b": "control"}}, UnknownName, "b"),
        ({"roles": {"a": "winner"}}, BadInput, "winner"),
        ({"roles": {"a": "baseline", "c": "baseline"}}, BadInput, "one baseline"),
        ({"roles": {"a": "baseline"}, "baseline": "c"}, BadInput, "one baseline"),
    ],
)
def test_a_role_that_cannot_be_is_refused(more: dict[str, Any], fault: type[Exception], said: str) -> None:
    with pytest.raises(fault, match=said):
        run(Answers("a"), Answers("c"), **more)


def test_two_runs_are_compared_by_their_roles() -> None:
    first, second = (
        run(
            Answers("base"),
            Answers("mine@v2"),
            Answers("head_tail", right),
            Answers("bad", False),
            roles={"bad": "known_bad"},
        )
        for right in (True, False)
    )
    found = compare(first, second, metric="f1", margin=0.05)
    told = {each.system: each.verdict for each in found.comparisons}
    assert told == {"base": "non-inferior", "mine@v2": "non-inferior", "head_tail": "inferior"}
    assert found.manifest["roles"]["bad"] == {"role": "known_bad"}
    assert found.manifest["roles"]["head_tail before"] == {"role": "baseline"}
    assert {each.system for each in within(second, metric="f1", margin=0.05).comparisons} == {"mine@v2", "head_tail"}
    assert not any(each.control for each in build_page(found, title="two runs").verdicts)


# The command line
# ------------------------------------------------------------------------


def made(**given: Any) -> list[dict[str, Any]]:
    options = read_options(
        {"dataset": ["bundled:pydocs-qa"], "upstream": "http://localhost:1", **given}, None, RunOptions
    )
    return [
        cell.manifest()
        for cell in cells(options, RunEnvironment(upstream="http://localhost:1", hop="http://localhost:2"), None)
    ]


def test_proxies_are_candidates_whatever_they_are_called() -> None:
    urls = [f"http://localhost:{18400 + n}" for n in range(4)]
    (cell,) = made(proxy=urls, name=["mine@v2", "full", "x#2", "none"])
    assert (cell["baseline"], cell["controls"]) == ("mine@v2", [])
    assert {own["role"] for name, own in cell["roles"].items() if name != "mine@v2"} == {"candidate"}


def test_controls_are_what_was_asked_for() -> None:
    (cell,) = made(
        proxy=["http://localhost:18400"],
        name=["mine@v2"],
        controls=["full", "full#2", "none", "head_tail", "random_drop"],
    )
    assert cell["baseline"] == "full"
    assert cell["roles"] == {
        "mine@v2": {"role": "candidate"},
        "full": {"role": "baseline", "kind": "full"},
        "full#2": {"role": "noise_floor", "kind": "full", "of": "full"},
        "none": {"role": "known_bad", "kind": "none"},
        "head_tail@mine@v2": {"role": "control", "kind": "head_tail", "of": "mine@v2"},
        "random_drop@mine@v2": {"role": "known_bad", "kind": "random_drop", "of": "mine@v2"},
    }
    assert cell["controls"] == ["full", "full#2", "none", "head_tail@mine@v2", "random_drop@mine@v2"]


def test_each_cell_has_its_own_noise_floor() -> None:
    found = made(proxy=["http://localhost:18400"], name=["mine"], controls=["full", "full#2"], model=["a", "b"])
    assert [cell["baseline"] for cell in found] == ["full[a]", "full[b]"]
    assert [cell["roles"]["full#2[b]"]["of"] for cell in found if "full#2[b]" in cell["roles"]] == ["full[b]"]


# Compression
# ------------------------------------------------------------------------


class Last:
    """Keeps the last two messages."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compress(
        self, prefix: list[Any], tail: list[Any], *, state: Any, budget: int | None, query: str | None = None
    ) -> Any:
        return Compressed(
            [message for message in prefix[-2:] if message["role"] != "tool" and not message.get("tool_calls")]
        ), state


def test_compressors_are_candidates_whatever_they_are_called() -> None:
    systems = [Last("mine@v2"), Last("x#2")]
    result = evaluate_compression(systems, "bundled:sessions/lagerverwaltung-de", points="fraction:0.9", progress=False)
    assert candidates(result) == ["mine@v2", "x#2"]
    told = result.compression["systems"]
    assert told["mine@v2"]["lift"]["baseline"] == "head_tail@mine@v2"
    assert told["x#2"]["retention"].keys() == told["mine@v2"]["retention"].keys()
    assert {"mine@v2", "x#2"} <= set(result.compression["front"])
    assert "full#2" not in result.compression["front"]
    page = build_page(result, title="compression")
    tables = {table.id: table for section in page.sections for table in section.tables}
    assert {"mine@v2", "x#2"} <= {row[0] for row in tables["retention"].rows}


def test_losses_are_shown_of_all_candidates_and_of_no_noise_floor() -> None:
    told = {"asked": 1, "kinds": {"path": {"asked": 1, "kept": 1}}, "shown": [{"fact": "a/b", "kept": False}]}
    roles = {
        "full": ArmRole("baseline", "full"),
        "full#2": ArmRole("noise_floor", "full", "full"),
        "mine@v2": ArmRole(),
        "x#2": ArmRole(),
    }
    section = lost({name: {"losses": told} for name in roles}, roles)
    assert section is not None
    whole, kinds, *shown = section.tables
    assert [row[0] for row in whole.rows] == ["full", "mine@v2", "x#2"]
    assert [column.title for column in kinds.columns[2:]] == ["mine@v2", "x#2"]
    assert [table.title for table in shown] == ["Not named in the answer: mine@v2", "Not named in the answer: x#2"]


def test_without_roles_no_row_is_an_end() -> None:
    rows = [
        EvalRow(name, f"p{n}", {"probe_score": 1.0}, 9, 9, dataset="d", cluster=f"s{n}")
        for n in range(9)
        for name in ("full", "none", "a")
    ]
    assert "retention" not in figures(rows)["systems"]["a"]
    ends = {"full": ArmRole("baseline", "full", added=True), "none": ArmRole("known_bad", "none")}
    assert "retention" in figures(rows, roles=ends)["systems"]["a"]


# Agents
# ------------------------------------------------------------------------


def test_an_arm_of_an_agent_that_has_such_a_name_is_no_noise_floor() -> None:
    base, other, none = parse_arm("base="), ArmSpec("base#2", {"A": "1"}), ArmSpec("none", {"B": "1"})
    line = line_up([base, other, none], trials=2)
    assert line.names == ["base", "base#2", "none", "base#3"]
    assert line.controls == ["base#3"]
    assert line.cell()["roles"] == {
        "base": {"role": "baseline"},
        "base#2": {"role": "candidate"},
        "none": {"role": "candidate"},
        "base#3": {"role": "noise_floor", "of": "base"},
    }
    assert line_up([base, base, other.__class__("hr", {"A": "1"})], trials=2).cell()["roles"]["base#2"] == {
        "role": "noise_floor",
        "of": "base",
    }


# Runs from before
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "controls", "role"),
    [
        ("mine", [], ArmRole()),
        ("full", ["full"], ArmRole("control", "full")),
        ("full[gpt-4,plain-user]", [], ArmRole("control", "full")),
        ("full#2", ["full#2"], ArmRole("noise_floor", "full", "full")),
        ("full#2[gpt-4]", [], ArmRole("noise_floor", "full", "full[gpt-4]")),
        ("base#2", [], ArmRole("noise_floor", None, "base")),
        ("none", ["full", "none"], ArmRole("known_bad", "none")),
        ("none", ["full"], ArmRole("control", "none")),
        ("random_drop@mine", [], ArmRole("known_bad", "random_drop", "mine")),
        ("head_tail@mine", ["head_tail@mine"], ArmRole("control", "head_tail", "mine")),
        ("head_tail:keep=0.3", ["full"], ArmRole("candidate", "head_tail")),
        ("mine@v2", [], ArmRole("control", None, "v2")),
        ("bm25", None, ArmRole("control", "bm25")),
        ("bm25:keep=0.5", ["none"], ArmRole("candidate", "bm25")),
        ("oracle", ["oracle"], ArmRole("control", "oracle")),
        ("nonesuch", [], ArmRole()),
        ("full-text", [], ArmRole("control", "full")),
    ],
)
def test_names_of_earlier_runs_say_what_they_said_then(name: str, controls: list[str] | None, role: ArmRole) -> None:
    assert role_of_old_name(name, controls) == role


def test_a_run_without_roles_has_the_report_that_it_had() -> None:
    names, right = ("mine", "full", "full#2", "none"), {"none": False}
    roles = {"full": ArmRole("baseline", "full", added=True), "none": ArmRole("known_bad", "none")}
    roles["full#2"] = ArmRole("noise_floor", "full", "full")
    result = run(*(Answers(name, right.get(name, True)) for name in names), roles=roles)
    old = json.loads(json.dumps(result.manifest["cells"][0]))
    del old["roles"]
    assert roles_of_cell(old) == roles_of_cell(result.manifest["cells"][0])
    earlier = replace(result, manifest={**result.manifest, "cells": [old]})
    assert [each.control for each in build_page(earlier, title="r").verdicts] == [
        each.control for each in build_page(result, title="r").verdicts
    ]
    assert candidates(earlier) == candidates(result) == ["mine"]


def test_a_manifest_that_makes_no_sense_gives_candidates() -> None:
    odd = {
        "cells": [
            None,
            {"systems": ["a"], "roles": {"a": 7}},
            {"systems": 3, "roles": []},
            {"systems": ["b"], "roles": {"b": {"role": "x"}}},
        ]
    }
    assert roles_in(odd, ["a", "b", "none"]) == dict.fromkeys(("a", "b", "none"), ArmRole())
