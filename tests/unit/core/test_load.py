"""Load in words, and when times do not belong together."""

from __future__ import annotations

from context_bench.comparison import compare
from context_bench.core.load import different_load, in_words, limit_notes, load_of
from context_bench.core.records import EvalRow
from context_bench.results import EvalResult

FIXED = {"load": {"mode": "fixed", "at_once": 8, "stream": True}}
ADAPTING = {"load": {"mode": "adaptive", "at_once": 64, "stream": True, "rpm": 500.0}}


def test_load_in_words() -> None:
    assert in_words(FIXED["load"]) == "8 at once, streamed"
    assert in_words(ADAPTING["load"]) == "up to 64 at once, adapting, at most 500 requests a minute, streamed"
    assert load_of({"options": {"max_workers": 1, "stream": False}}) == {"mode": "single", "at_once": 1, "stream": False}
    assert load_of({}) is None


def test_times_of_different_load_do_not_belong_together_and_a_comparison_says_so() -> None:
    told = different_load(FIXED, ADAPTING)
    assert told is not None
    assert "8 at once, streamed before, up to 64 at once" in told
    assert different_load(FIXED, FIXED) is None
    assert different_load(FIXED, {}) is None

    def result(manifest: dict[str, object]) -> EvalResult:
        rows = [EvalRow("s", n, scores={"f1": 1.0}, input_tokens=1, output_tokens=1) for n in range(8)]
        return EvalResult(rows=rows, summary={"s": {}}, manifest=manifest)

    assert told in compare(result(FIXED), result(ADAPTING), metric="f1").notes
    assert not any("different load" in note for note in compare(result(FIXED), result(FIXED), metric="f1").notes)


def test_what_was_cut_or_slowed_down_is_a_note_and_growth_is_none() -> None:
    grown = [[1.0, 20, "start"], [2.0, 40, "clean round"]]
    cut = [*grown, [3.0, 32, "refused for quota"], [4.0, 32, "5% of the tokens left, spread over 20 s"]]
    assert limit_notes({"limits": [{"http://a": grown}]}) == []
    assert limit_notes({}) == []
    assert limit_notes({"limits": [{"http://a": grown}, {"http://a": cut}]}) == [
        "http://a: asked less on the way (1 × refused for quota, 1 × little left of a quota); requests at once 20 at the start, 20 to 40, "
        "32 at the end."
    ]
