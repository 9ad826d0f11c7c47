"""Load in words, and when times do not belong together."""

from __future__ import annotations

from typing import Any

import pytest

from context_bench.comparison import compare
from context_bench.core.records import EvalRow
from context_bench.core.rows import different_load, in_words, limit_notes, load_of
from context_bench.metrics import Latency, MeanScore
from context_bench.reports.renderers import render
from context_bench.results import EvalResult

FIXED = {"load": {"mode": "fixed", "at_once": 8, "stream": True}}
ADAPTING = {"load": {"mode": "adaptive", "at_once": 64, "stream": True, "rpm": 500.0}}


def test_load_in_words() -> None:
    assert in_words(FIXED["load"]) == "8 at once, streamed"
    assert in_words(ADAPTING["load"]) == "up to 64 at once, adapting, at most 500 requests a minute, streamed"
    assert load_of({"options": {"max_workers": 1, "stream": False}}) == {
        "mode": "single",
        "at_once": 1,
        "stream": False,
    }
    assert load_of({}) is None


def measured(manifest: dict[str, object], seconds: float) -> EvalResult:
    usage = {"ttft": seconds / 2, "in_flight": 3}
    rows = [
        EvalRow("s", n, scores={"f1": 1.0}, input_tokens=1, output_tokens=1, latency=seconds, usage=dict(usage))
        for n in range(8)
    ]
    return EvalResult(rows=rows, summary={"s": {}}, manifest=manifest)


def test_which_loads_cannot_be_compared() -> None:
    told = different_load(FIXED, ADAPTING)
    assert told is not None
    assert "8 at once, streamed before, up to 64 at once" in told
    assert different_load(FIXED, FIXED) is None
    assert different_load(FIXED, {}) is None
    other = {"load": {**FIXED["load"], "at_once": 16}}
    assert different_load(FIXED, other) is not None
    mixed = {**other, "loads": [FIXED["load"], other["load"]]}
    assert "8 at once, streamed, then 16 at once, streamed" in str(different_load(mixed, mixed))
    assert limit_notes(mixed) == [
        "Times mix different load, for the run went on with other settings: 8 at once, streamed, then 16 at once, "
        "streamed."
    ]


@pytest.mark.parametrize("output", ["table", "markdown", "json", "html", "csv"])
def test_times_of_different_load_are_shown_nowhere_and_the_reason_is(output: str) -> None:
    before, after = measured(FIXED, 1.2345), measured(ADAPTING, 5.4321)
    asked: dict[str, Any] = {"metric": "f1", "metrics": [MeanScore("f1"), Latency()]}
    found = compare(before, after, **asked)
    assert found.comparisons[0].verdict != "no verdict"  # of scores everything is said
    text = render(found, output)
    assert not any(time in text for time in ("1.23", "5.43", "0.617", "2.716"))
    if output != "csv":
        assert (
            "Times are not compared: the runs were made under different load: 8 at once, streamed before"
            in " ".join(text.split())
        )
    same, insisted = compare(before, measured(FIXED, 5.4321), **asked), compare(before, after, any_load=True, **asked)
    for shown in (same, insisted):
        assert "5.43" in render(shown, output)
    assert [
        note
        for note in insisted.notes
        if note.startswith("Times are compared although the runs were made under different load")
    ]
    assert not any("load" in note for note in same.notes)


def test_what_was_cut_or_slowed_down_is_a_note_and_growth_is_none() -> None:
    grown = [[1.0, 20, "start"], [2.0, 40, "clean round"]]
    cut = [*grown, [3.0, 32, "refused for quota"], [4.0, 32, "5% of the tokens left, spread over 20 s"]]
    assert limit_notes({"limits": [{"http://a": grown}]}) == []
    assert limit_notes({}) == []
    assert limit_notes({"limits": [{"http://a": grown}, {"http://a": cut}]}) == [
        "http://a: asked less on the way (1 × refused for quota, 1 × little left of a quota); requests at once 20 at "
        "the start, 20 to 40, "
        "32 at the end."
    ]
