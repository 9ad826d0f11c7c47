"""The compression facade: one call from sessions to a verdict, and the names that the seeds and issues promise."""

from __future__ import annotations

from typing import Any

import pytest

import context_bench.compression as facade
from context_bench.compression import Compressed, aggregate_rubric, evaluate_compression, parse_rubric_reply
from context_bench.core.errors import BadInput
from context_bench.reports import to_table

REPLY = '{"criterionResults": [{"criterionId": "accuracy_factual", "score": 4}]}'


class Last:
    """Keeps the last two messages."""

    name = "last"

    def compress(
        self, prefix: list[Any], tail: list[Any], *, state: Any, budget: int | None, query: str | None = None
    ) -> tuple[Compressed, Any]:
        return Compressed(
            [message for message in prefix[-2:] if message["role"] != "tool" and not message.get("tool_calls")]
        ), state


def test_systems_are_compared_with_everything_nothing_and_truncation() -> None:
    result = evaluate_compression(
        ["bm25:keep=0.3", Last()], "bundled:sessions/lagerverwaltung-de", points="fraction:0.9", progress=False
    )
    assert set(result.summary) == {
        "bm25:keep=0.3",
        "last",
        "full",
        "full#2",
        "none",
        *(f"{control}@{system}" for control in ("head_tail", "random_drop") for system in ("bm25:keep=0.3", "last")),
    }
    scores = {
        name: values["mean_probe_score"] if "mean_probe_score" in values else values["mean_score"]
        for name, values in result.summary.items()
    }
    assert scores["full"] == scores["full#2"] > scores["last"]
    assert {each.baseline for each in result.comparisons} == {"full"}


def test_names_are_there() -> None:
    for name in facade.__all__:
        assert getattr(facade, name) is not None
    dimensions, overall = aggregate_rubric(
        parse_rubric_reply(
            '{"criterionResults": [{"criterionId": "accuracy_factual", "score": 4}]}', ["accuracy_factual"]
        ).scores
    )
    assert (dimensions, overall) == ({"accuracy": 4.0}, 4.0)


def test_what_cannot_be_run_is_said() -> None:
    with pytest.raises(BadInput, match="controls"):
        evaluate_compression("window", controls=["everything"])
    with pytest.raises(BadInput, match="no probes"):
        evaluate_compression("window", "bundled:sessions/clinic-booking-ar", points="tokens:9999999")


def test_a_conversation_that_providers_would_refuse_is_named_in_the_report() -> None:
    class Orphans(Last):
        """Leaves results of tools without their calls."""

        name = "orphans"

        def compress(
            self, prefix: list[Any], tail: list[Any], *, state: Any, budget: int | None, query: str | None = None
        ) -> tuple[Compressed, Any]:
            return Compressed([message for message in prefix if message["role"] == "tool"]), state

    result = evaluate_compression(
        Orphans(), "bundled:sessions/lagerverwaltung-de", controls=["full", "none"], progress=False
    )
    shown = [line for line in to_table(result).split("\n") if "orphan_tool_result" in line]
    assert any("1 of 1" in line for line in shown)
