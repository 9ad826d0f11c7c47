"""A system whose answers were given elsewhere and written down: it only repeats them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from context_bench.core.errors import BadInput, SystemFailed
from context_bench.core.ledger import current_ledger
from context_bench.core.records import Call, Example
from context_bench.transcripts.harness_results import RecordedAnswer

#: `Class: message` or `Class('message')`, as errors are written down.
_ERROR = re.compile(r"(?P<name>[A-Z][A-Za-z0-9_]{2,60})(?::\s*(?P<told>.*)|\((?P<inside>.*)\))", re.DOTALL)

Key = tuple[str, str | int, int]


class NotRecorded(SystemFailed):
    """The log has no answer to this example in this trial."""


class RecordedFailure(SystemFailed):
    """The log says that there was no answer, in words that name no class of failure."""


class RecordedAnswers:
    """Gives to each example, by dataset, id and trial, what `name` once answered to it: `response`, what else came
    back, and under `recorded_scores` the numbers that the source gave it.

    Time, tokens and money go into the ledger as one call to `recorded:SOURCE`. A recorded failure is raised as what it
    was; an answer that is not there raises `NotRecorded`. `identity` says which files the answers are from. Two answers
    to the same are `BadInput`.
    """

    played_back = True

    def __init__(self, name: str, answers: Iterable[RecordedAnswer], *, source: str, identity: str = "") -> None:
        self.name, self._source, self._identity = name, source, identity
        self._answers: dict[Key, RecordedAnswer] = {}
        for answer in answers:
            key = (str(answer.example["dataset"]), answer.example["id"], answer.trial)
            if key in self._answers:
                raise BadInput(
                    f"{name!r} has two answers to example {key[1]!r} of {key[0]!r}, trial {key[2]}; if they are of "
                    "two systems, "
                    "give each file its own name with --system"
                )
            self._answers[key] = answer
        self.model = _common(answer.model for answer in self._answers.values())
        self.shape = _common(answer.shape for answer in self._answers.values())

    def process(self, example: Example) -> Example:
        """The example with its recorded answer. `example["trial"]` says which (default the first)."""
        key = (str(example.get("dataset") or ""), example["id"], int(example.get("trial", 0)))
        answer = self._answers.get(key)
        if answer is None:
            raise NotRecorded(f"no answer to example {key[1]!r} of {key[0]!r} in trial {key[2]}")
        if (ledger := current_ledger()) is not None:
            ledger.record(self._call(answer))
        if answer.error is not None:
            raise _failure(answer.error)
        reason = {"finish_reason": answer.finish_reason} if answer.finish_reason else {}
        return {**example, **answer.output, **reason, **({"recorded_scores": answer.scores} if answer.scores else {})}

    async def aprocess(self, example: Example) -> Example:
        """The same; there is nothing to wait for, so no thread is needed."""
        return self.process(example)

    def fingerprint(self) -> dict[str, Any]:
        """The files that the answers are from."""
        return {"class": "RecordedAnswers", "name": self.name, "source": self._source, "identity": self._identity}

    def _call(self, answer: RecordedAnswer) -> Call:
        return Call(
            "system",
            answer.model,
            f"recorded:{self._source}",
            started=answer.started or 0.0,
            seconds=answer.latency or 0.0,
            sent_tokens=answer.sent_tokens,
            usage=answer.usage,
            cost=answer.cost,
            finish_reason=answer.finish_reason,
            error=answer.error,
        )


def _common(values: Iterable[str | None]) -> str | None:
    """The one value that all have."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _failure(text: str) -> SystemFailed:
    """The failure as it was called, so that reports count it by class."""
    match = _ERROR.fullmatch(" ".join(text.split()))
    if match is None:
        return RecordedFailure(text)
    return _class(match["name"])(match["told"] if match["told"] is not None else match["inside"].strip("'\""))


@lru_cache(maxsize=256)
def _class(name: str) -> type[SystemFailed]:
    return type(name, (SystemFailed,), {"__doc__": "A failure read from a log."})
