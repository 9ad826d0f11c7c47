"""Facts that changed: does a memory give the value that holds, or one that held before?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from context_bench.core.records import Example
from context_bench.core.text import contains

EVALUATORS = {"updates": "Updates"}
MEASURES = {
    "current_at_1 as_of_at_1 current_above_stale": {"unit": "score", "better": "higher", "place": "memory"},
    "answer_current": {"unit": "score", "better": "higher", "place": "memory"},
    "stale_in_top_k stale_over_current answer_stale": {"unit": "score", "better": "lower", "place": "memory"},
}


class Updates:
    """Of examples with `versions` (a list of `{"value", "source", "current"}`: all values a fact has had, the ids of
    the items that said so, and whether it is the one that holds at the moment the question is about), each 0.0 or 1.0:

    - `current_at_1`: the first hit has the current value (`as_of_at_1` instead for questions about an earlier moment,
    those with `as_of`).
    - `stale_in_top_k`: any hit has only a value that does not hold.
    - `current_above_stale`: the current value comes before every other; `stale_over_current`: it does not, or is
    missing. Only where any
      value was found.
    - `answer_current`, `answer_stale`: the response names the current value; it names another and not the current one.

    A hit has the values whose sources it names; hits without sources those that it contains in words.
    """

    name = "updates"
    version = "1"
    needs = ("versions",)
    fields = (
        *("current_at_1", "as_of_at_1", "stale_in_top_k", "current_above_stale", "stale_over_current"),
        *("answer_current", "answer_stale"),
    )

    def applies(self, example: Example, output: Example) -> bool:
        """All versions are known, one of them current and one not, and there is something to look at."""
        versions = _versions(example)
        return {bool(each.get("current")) for each in versions} == {True, False} and (
            "hits" in output or "response" in output
        )

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        if not self.applies(original, processed):
            return {}
        current, stale = (
            [each for each in _versions(original) if bool(each.get("current")) is wanted] for wanted in (True, False)
        )
        found: dict[str, float] = {}
        if isinstance(processed.get("hits"), list):
            found = _ranked(
                [(_has(hit, current), _has(hit, stale)) for hit in processed["hits"]], bool(original.get("as_of"))
            )
        if "response" in processed:
            said = str(processed.get("response") or "")
            right, wrong = _named(said, current), _named(said, stale)
            found |= {"answer_current": float(right), "answer_stale": float(wrong and not right)}
        return found


def _ranked(hits: Sequence[tuple[bool, bool]], history: bool) -> dict[str, float]:
    """`hits`: whether each has the current value, and whether it has a stale one."""
    found = {
        "as_of_at_1" if history else "current_at_1": float(bool(hits) and hits[0][0]),
        "stale_in_top_k": float((False, True) in hits),
    }
    first = next((hit for hit in hits if any(hit)), None)
    if first is not None:
        found |= {"current_above_stale": float(first[0]), "stale_over_current": float(not first[0])}
    return found


def _has(hit: Any, versions: Sequence[Mapping[str, Any]]) -> bool:
    if not isinstance(hit, Mapping):
        return False
    sources = {str(one) for one in hit.get("source_ids") or ()}
    if sources:
        return any(not sources.isdisjoint(_sources(each)) for each in versions)
    return _named(str(hit.get("text") or ""), versions)


def _named(text: str, versions: Sequence[Mapping[str, Any]]) -> bool:
    return any(contains(text, str(each["value"])) for each in versions)


def _sources(version: Mapping[str, Any]) -> list[str]:
    told = version.get("source")
    return [str(one) for one in told] if isinstance(told, list | tuple) else [] if told is None else [str(told)]


def _versions(example: Example) -> list[Mapping[str, Any]]:
    told = example.get("versions")
    return [each for each in told if isinstance(each, Mapping) and each.get("value")] if isinstance(told, list) else []
