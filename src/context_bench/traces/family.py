"""The record of the family *traces*: recorded runs of agents, scored by the code that they read and changed."""

from __future__ import annotations

from context_bench.core.families import Command, Family

__all__ = ["FAMILY"]

FAMILY = Family(
    name="traces",
    manifest_key="traces",
    commands={
        "trace": Command(
            "context_bench.traces.command.app:app", "Did an agent read the right code: score, compare.", after="judge"
        )
    },
    offers={"gold_of_row": "context_bench.traces.gold:gold_of_row"},
)
