"""The next action of an agent against the recorded one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.records import Example
from context_bench.wire.actions import Action, agreement

EVALUATORS = {"next_action": "NextAction"}
MEASURES = {
    "action_match tool_match argument_match text_f1": {"unit": "score", "better": "higher", "place": "agreement"},
}


class NextAction:
    """`action_match`, `tool_match`, `argument_match`, `text_f1`: does the reply do what the recording did next (see
    `wire.actions`)?

    The recording is `example["recorded"]` (`text`, `tool_calls`), the reply `response` and `tool_calls` of the output.
    Examples without a recorded reply are not scored. Nothing is executed.
    """

    name = "next_action"
    version = "1"
    needs = ("recorded",)

    def applies(self, example: Example, output: Example) -> bool:
        """A reply was recorded, and one was given."""
        return bool(recorded_action(example)) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        wanted = recorded_action(original)
        if not wanted:
            return {}
        cwd = original.get("cwd")
        return agreement(
            Action.of(processed.get("response"), processed.get("tool_calls")),
            wanted,
            cwd=cwd if isinstance(cwd, str) else None,
        )


def recorded_action(example: Example) -> Action:
    """The recorded action; empty if the recording has none."""
    recording: Any = example.get("recorded")
    return Action.of(recording.get("text"), recording.get("tool_calls")) if isinstance(recording, Mapping) else Action()
