"""Checks of a whole run over probes: the same is the same, order and names change nothing, what is kept is not asked
for again.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from context_bench.compression import evaluate_compression
from context_bench.compression.figures import figures
from context_bench.core.roles import roles_in
from context_bench.datasets import sessions
from context_bench.reports import build_page
from context_bench.reports.json_document import render

#: The short ones; both names below are of the same compressor.
SHORT = [name for name in sessions.bundled() if "invoice" not in name]
ONE, AGAIN = "anchored", "builtin:anchored"


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    where = tmp_path_factory.mktemp("cache")
    told = {"controls": ("full", "none"), "baseline": ONE, "margin": 0.25, "cache_dir": where, "progress": False}
    return where, evaluate_compression([ONE, AGAIN], SHORT, **told)


def test_the_same_compressor_is_not_inferior_to_itself(twice):
    """Live check (f): through the whole pipeline, probes included."""
    _, result = twice
    told = next(each for each in result.comparisons if each.system == AGAIN)
    assert told.verdict == "non-inferior", told.sentence
    assert told.difference == 0
    assert told.low < 0 < told.high
    assert told.clusters >= 10
    systems = result.compression["systems"]
    assert systems[ONE]["retention"]["value"] == systems[AGAIN]["retention"]["value"]
    assert next(each for each in result.comparisons if each.system == "none").verdict == "inferior"


def test_order_and_names_change_no_answer(twice):
    """Live check (d), the run: three of the sessions in another order, under another name."""
    where, first = twice
    few = SHORT[2::-1]
    told = {"controls": ("none",), "baseline": "none", "cache_dir": where.parent / "other", "progress": False}
    again = [row for row in evaluate_compression([AGAIN], few, **told).rows if row.system == AGAIN]
    wanted = {row.example_id: row.scores for row in first.rows if row.system == ONE}
    assert len(again) > 10
    assert {row.example_id: row.scores for row in again} == {row.example_id: wanted[row.example_id] for row in again}


def test_order_and_names_change_no_number(twice):
    """Live check (d), the figures."""
    _, first = twice
    names = {ONE: "zz", AGAIN: "aa"}
    shuffled = random.Random(0).sample(list(first.rows), len(first.rows))
    roles = {names.get(name, name): own for name, own in roles_in(first.manifest).items()}
    again = figures(
        [replace(row, system=names.get(row.system, row.system)) for row in shuffled], margin=0.2, roles=roles
    )
    one, other = first.compression["systems"][ONE], again["systems"]["zz"]
    for told, wanted in (
        (other["retention"], one["retention"]),
        (other["size"]["keep"], one["size"]["keep"]),
        (other["score"], one["score"]),
    ):
        for key in ("value", "low", "high"):
            assert told[key] == pytest.approx(wanted[key], rel=1e-6), key
    assert again["front"]["none"] == first.compression["front"]["none"]


def test_what_is_kept_gives_the_same_bytes(twice):
    """Live check (e): the second time everything comes from the store."""
    where, first = twice
    told = {"controls": ("full", "none"), "baseline": ONE, "margin": 0.25, "cache_dir": where, "progress": False}
    again = evaluate_compression([ONE, AGAIN], SHORT, **told)
    one, other = (render(build_page(each), canonical=True) for each in (first, again))
    assert one == other
