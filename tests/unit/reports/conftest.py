"""A realistic result: proxies, controls, failures, a proxy that the tap did not see, two datasets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from context_bench.core.records import Comparison, Estimate, EvalRow, Result

#: system → (chance of a right answer, share of the context forwarded, seconds, who counted)
ARMS: dict[str, tuple[float, float, float, str]] = {
    "kompact": (0.66, 0.48, 1.9, "tap"),
    "headroom": (0.70, 1.03, 1.6, "usage"),
    "full": (0.72, 1.0, 1.4, "tap"),
    "full#2": (0.71, 1.0, 1.4, "tap"),
    "none": (0.08, 0.04, 0.6, "tap"),
    "head_tail@kompact": (0.41, 0.48, 1.1, "tap"),
    "random_drop@kompact": (0.38, 0.48, 1.1, "tap"),
}


def make_row(system: str, number: int, rng: random.Random, shape: str | None = None) -> EvalRow:
    chance, share, seconds, source = ARMS[system]
    sent = 900 + 37 * (number % 9)
    forwarded = int(sent * share)
    right = rng.random() < chance
    metadata: dict[str, Any] = {"model": "claude-haiku-4-5"} | ({"shape": shape} if shape else {})
    row = EvalRow(
        system=system,
        example_id=f"q{number:04d}",
        scores={"f1": 1.0 if right else round(rng.random() * 0.4, 4), "exact_match": float(right)},
        input_tokens=sent,
        output_tokens=forwarded,
        metadata=metadata,
        latency=round(seconds * (0.7 + rng.random()), 4),
        dataset="pydocs-qa" if number % 3 else "hotpotqa",
        cluster=f"c{number // 2}",
        usage={
            "input_tokens": forwarded + 7,
            "output_tokens": 21,
            "cache_read": 128 if number % 2 else 0,
            "cost": forwarded * 1e-6 + 1e-4,
        }
        | ({"ttft": 0.21} if source == "tap" else {}),
        wire=_wire_of(system, number, sent, forwarded) if source == "tap" else {},
    )
    if system in ("kompact", "head_tail@kompact", "random_drop@kompact") and number % 20 == 7:
        failed = "TimedOut: no reply within 30 s" if system == "kompact" else "NoBudget: kompact failed on this example"
        row.errors, row.scores, row.output_tokens, row.usage, row.latency = {"system": failed}, {}, None, {}, None
    return row


def _wire_of(system: str, number: int, sent: int, forwarded: int) -> dict[str, Any]:
    changed = system == "kompact"
    calls = 2 if changed and number % 10 == 0 else 1
    changes = (
        [{"kind": "role", "detail": "message 1: system → user"}, {"kind": "param", "detail": "temperature removed"}]
        if changed
        else []
    )
    return {
        "source": "tap",
        "sent": sent,
        "forwarded": forwarded,
        "billed": forwarded + 7,
        "calls": calls,
        "client_calls": 1,
        "extra_calls": calls - 1,
        "exact": True,
        "role_changes": int(changed),
        "param_changes": int(changed),
        "changes": changes,
        "truncated": False,
        "authorization_forwarded": True,
    }


def make_result(
    n: int = 40, shapes: tuple[str | None, ...] = (None,), systems: tuple[str, ...] = tuple(ARMS)
) -> Result:
    rng = random.Random(7)
    rows = [make_row(system, number, rng, shape) for shape in shapes for number in range(n) for system in systems]
    summary, estimates = {}, {}
    for system in systems:
        own = [row for row in rows if row.system == system]
        summary[system], estimates[system] = _summarised(own)
    return Result(
        rows=rows,
        summary=summary,
        timing=dict.fromkeys(systems, 61.234),
        config={
            "systems": list(systems),
            "evaluators": ["answer_quality"],
            "metrics": ["mean_score"],
            "num_examples": n,
            "max_workers": 4,
        },
        estimates=estimates,
        comparisons=_comparisons(systems, n),
        wire={
            system: {"unmatched": 2 if system == "kompact" else 0, "violations": 0}
            for system in systems
            if ARMS[system][3] == "tap"
        },
        manifest={
            "run": {"name": "demo", "id": "r-17"},
            "started": "2026-11-21T23:40:00Z",
            "seed": 0,
            "options": {"model": ["claude-haiku-4-5"], "shape": ["plain-user"], "api_key": "sk-very-secret"},
            "margin": {"value": 0.02, "rule": "given", "score_field": "f1"},
            "prices": {"model": "claude-haiku-4-5", "source": "genai-prices 0.0.40", "date": "2026-11-01"},
            "responder": {
                "model": "SmolLM2-135M",
                "closed_book": {"value": 0.031, "low": 0.01, "high": 0.09},
                "short": 0.62,
                "full": {"value": 0.55, "low": 0.43, "high": 0.66},
                "sentence": "This small model shows what the instrument can see; verdicts about your proxy need your "
                "model.",
            },
        },
        notes=[
            "The tap attributed calls by one-time keys; 2 calls stayed unmatched.",
            "Upstream caching was kept apart per arm.",
        ],
    )


def six_systems() -> Result:
    """Six systems of the user and what there is to hold them against: 21 arms, 12 of them in the size of one system."""
    found = make_result(systems=("full", "full#2", "none", "kompact", "head_tail@kompact", "random_drop@kompact"))
    own, sized = [f"kompact-{number}" for number in range(6)], ("head_tail", "random_drop")
    like = {name: name for name in ("full", "full#2", "none")} | dict.fromkeys(own, "kompact")
    like |= {f"{kind}@{name}": f"{kind}@kompact" for kind in sized for name in own}
    roles = {name: {"role": "candidate"} for name in own} | {
        "full": {"role": "baseline", "kind": "full"},
        "full#2": {"role": "noise_floor", "kind": "full"},
        "none": {"role": "known_bad", "kind": "none"},
        **{f"{kind}@{name}": {"role": "control", "kind": kind} for kind in sized for name in own},
    }
    return replace(
        found,
        rows=[replace(row, system=name) for name, of in like.items() for row in found.rows if row.system == of],
        comparisons=[
            replace(each, system=name) for name, of in like.items() for each in found.comparisons if each.system == of
        ],
        summary={name: found.summary[of] for name, of in like.items()},
        estimates={name: found.estimates[of] for name, of in like.items()},
        wire={name: found.wire[of] for name, of in like.items() if of in found.wire},
        manifest={**found.manifest, "cells": [{"labels": {}, "systems": list(like), "roles": roles}]},
    )


def _summarised(rows: list[EvalRow]) -> tuple[dict[str, float], dict[str, Estimate]]:
    scored = [row.scores["f1"] for row in rows if "f1" in row.scores]
    passed = sum(score >= 0.7 for score in scored)
    pairs = [
        (row.input_tokens, row.output_tokens)
        for row in rows
        if row.input_tokens is not None and row.output_tokens is not None
    ]
    latencies = sorted(row.latency for row in rows if row.latency is not None)
    sent, forwarded = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    mean, share, failed = sum(scored) / len(scored), passed / len(scored), len(rows) - len(scored)
    summary = {
        "mean_score": mean,
        "pass_rate": share,
        "compression_ratio": 1 - forwarded / sent,
        "mean_input_tokens": sent / len(pairs),
        "mean_output_tokens": forwarded / len(pairs),
        "cost_of_pass": forwarded / passed if passed else float("inf"),
        "num_passing": float(passed),
        "latency_mean": sum(latencies) / len(latencies),
        "latency_median": latencies[len(latencies) // 2],
        "latency_p95": latencies[int(len(latencies) * 0.95)],
        "latency_p99": latencies[int(len(latencies) * 0.99)],
    }
    total = len(rows)
    estimates = {
        "mean_score": Estimate(
            mean,
            mean - 0.11,
            min(1.0, mean + 0.11),
            len(scored),
            failed,
            mean * len(scored) / total,
            (mean * len(scored) + failed) / total,
            20,
            "cluster bootstrap (10,000)",
        ),
    }
    ratio, each = summary["compression_ratio"], [row.usage["cost"] for row in rows if "cost" in row.usage]
    estimates |= {
        "f1": estimates["mean_score"],
        "exact_match": Estimate(
            share, max(0.0, share - 0.14), min(1.0, share + 0.13), len(scored), failed, method="Wilson", clusters=20
        ),
        "compression_ratio": Estimate(
            ratio, ratio - 0.01, ratio + 0.01, len(pairs), clusters=20, method="cluster bootstrap"
        ),
        "mean_output_tokens": Estimate(summary["mean_output_tokens"], n=len(pairs)),
        "cost_usd": Estimate(
            sum(each) / len(each), sum(each) / len(each) * 0.9, sum(each) / len(each) * 1.1, len(each), clusters=20
        ),
        "latency_median": Estimate(
            summary["latency_median"],
            summary["latency_median"] - 0.2,
            None,
            len(latencies),
            clusters=20,
            method="Woodruff",
        ),
    }
    return summary, estimates


def _comparisons(systems: tuple[str, ...], n: int) -> list[Comparison]:
    told: dict[str, tuple[float, float, float, float, Any, str]] = {
        "kompact": (
            -0.061,
            -0.118,
            -0.004,
            0.038,
            "inferior",
            "kompact loses 0.061 f1 against full (95 % interval -0.118 to -0.004) and saves 52 % of the tokens.",
        ),
        "headroom": (
            -0.012,
            -0.019,
            -0.002,
            0.2,
            "non-inferior",
            "headroom is not worse than full by more than 0.02 f1, and forwards 3 % more tokens.",
        ),
        "full#2": (-0.004, -0.031, 0.025, 0.8, "undecided", "Noise floor: full against itself differs by 0.004."),
        "none": (
            -0.64,
            -0.75,
            -0.51,
            0.0,
            "inferior",
            "none is worse than full by 0.640: the questions need their context.",
        ),
        "head_tail@kompact": (-0.31, -0.42, -0.2, 0.0, "inferior", "head_tail at kompact's budget loses 0.310."),
        "random_drop@kompact": (-0.33, -0.45, -0.22, 0.0, "inferior", "random_drop at kompact's budget loses 0.330."),
    }
    return [
        Comparison(
            name, "full", "mean_score", None, None, *told[name][:4], told[name][4], 0.02, n, 20, 2, 612, told[name][5]
        )
        for name in systems
        if name in told
    ]


@pytest.fixture
def result() -> Result:
    return make_result()


@pytest.fixture
def results() -> Callable[..., Result]:
    return make_result


#: Texts that have broken reports before: markup, terminal and spreadsheet commands, direction marks, things that cannot
#: be written.
NASTY = (
    "</script><script>alert(1)</script>",
    "</script x><!--<script>",
    "<img src=x onerror=alert(2)>",
    "a|b\nc`d`*e*_f_[g](javascript:h)<!-- i",
    "\x1b[31mred\x1b]0;title\x07\x9b2J\r\nnext",
    "\u202egnp.exe\u2066\u200b\u200f\ufeff",
    '=HYPERLINK("http://x","y")',
    "\t@SUM(A1)",
    "nul\x00 lone \ud800 end",
    "__proto__",
    "",
    "   ",
    "{{ 7*7 }}{% raw %}",
    "&lt;b&gt;&#x3c;",
    "z\u0300" * 30,
    "\U000e0041\u3164\u2028",
    "# heading",
    "1. item",
    "---",
    "W" * 5000,
)


def make_hostile(text: str) -> Result:
    """A small result with `text` in every place that data can reach."""
    systems = [text, "plain"]
    rows = [
        EvalRow(
            system=system,
            example_id=f"{text}{number}",
            scores={text: 0.5, "f1": 0.25 * number},
            input_tokens=100,
            output_tokens=50 if system == text else None,
            metadata={text: text, "shape": text},
            dataset=text if number % 2 else "other",
            group=text,
            cluster=text,
            errors={"system": f"{text}: {text}", text: text} if number == 3 else {},
            usage={"cost": 0.001, text: text},
            wire={
                "source": text,
                "changes": [{"kind": text, "detail": text}],
                "role_changes": 1,
                "calls": 1,
                "client_calls": 1,
            },
        )
        for system in systems
        for number in range(4)
    ]
    estimate = Estimate(0.4, 0.1, 0.7, 3, 1, 0.3, 0.6, 7, text)
    return Result(
        rows=rows,
        summary={
            system: {"mean_score": 0.4, text: 0.25, "pass_rate": float("nan"), "cost_of_pass": float("inf")}
            for system in systems
        },
        timing={text: 1.5},
        config={text: text, "score_field": "f1"},
        estimates={system: {"mean_score": estimate} for system in systems},
        comparisons=[
            Comparison(
                text, "plain", "mean_score", text, text, -0.1, -0.2, 0.05, 0.2, "undecided", 0.02, 4, 7, 1, 900, text
            )
        ],
        wire={text: {"unmatched": 1, "role_changes": {text: 2}, "param_changes": [text]}},
        failures={text: {text: {text: 2}}},
        manifest={
            text: text,
            "run": {"name": text},
            "responder": {"model": text, "sentence": text, "full": 0.5},
            "prices": {"source": text},
        },
        notes=[text],
    )


@pytest.fixture
def hostile() -> Callable[[str], Result]:
    return make_hostile


@pytest.fixture(params=range(len(NASTY)), ids=lambda at: repr(NASTY[at][:12]).encode("ascii", "replace").decode())
def nasty(request: pytest.FixtureRequest) -> str:
    return NASTY[request.param]
