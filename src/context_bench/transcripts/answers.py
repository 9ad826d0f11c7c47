"""Results of other harnesses, from any file: questions, answers and scores, one `RecordedAnswer` each.

A format of answers is a file of `formats/` with an `ANSWERS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import MOST, count
from context_bench.core.records import Example, Usage
from context_bench.transcripts.format import Format, LogSource, formats_in, peek_at, recognised

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(slots=True)
class RecordedAnswer:
    """One system's recorded result on one example, in one trial (from 0).

    `example` has `id`, `dataset`, `context` and what else evaluators may want (`question`, `answer`, `choices` …);
    nothing in it comes from the answer. `output`: `response` and whatever else came back. `error`: why there is no
    answer. `scores`: numbers of the source, by its own names. `latency` in seconds, `started` in seconds since the
    epoch, `cost` in US dollars, `sent_tokens`: the source's own count of the request, `shape` that of the request in
    our own words; `None` = not told.
    """

    system: str
    example: Example
    trial: int = 0
    output: Example = field(default_factory=dict)
    error: str | None = None
    scores: dict[str, float] = field(default_factory=dict)
    usage: Usage | None = None
    model: str = ""
    cost: float | None = None
    sent_tokens: int | None = None
    latency: float | None = None
    started: float | None = None
    finish_reason: str | None = None
    shape: str | None = None


@dataclass(slots=True)
class AnswerLog:
    """One file of answers. `source` names who scored them (`inspect`, `lm_eval`, `jsonl`); `facts` is what the file
    says about itself; `skipped` counts what was passed over, by reason, once `answers` was read.
    """

    source: str
    answers: Iterator[RecordedAnswer]
    facts: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)


def texts(value: Any) -> list[str]:
    """A text, a number, or a list of them, as texts."""
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    if isinstance(value, str):
        return [value]
    return [str(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def golds(example: Example, targets: list[str]) -> None:
    """Put the right answers into `example`: the first as `answer`, several also as `answers`."""
    if targets:
        example["answer"] = targets[0]
    if len(targets) > 1:
        example["answers"] = targets


NO_TRIAL = "a trial that no run has"


def trial_of(value: Any, first: int = 0) -> int | None:
    """A trial counted from 0, of a number counted from `first`; 0 where none is told, `None` for one beyond all that
    can be stored.
    """
    found = count(value)
    return None if found is None and type(value) is int and value > MOST else max(0, (found or 0) - first)


def id_of(value: Any, position: int) -> str | int:
    """An example's id, or its position where it has none."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return value
    return position if value is None else str(value)


def formats() -> dict[str, Format[AnswerLog]]:
    """Every format of answers by its name, in the order in which they are tried."""
    return {one.name: one for one in formats_in("ANSWERS").values()}


def read_answers(path: str | Path, format: str | None = None) -> AnswerLog:  # noqa: A002
    """The answers in a file: an Inspect log (.eval or .json), lm-eval samples (.jsonl), or JSON lines such as our own
    export.

    `format` skips the guess. Raises `BadInput` for a file that is none of these, with what was seen in it.
    """
    by_name = formats()
    if format is not None and format not in by_name:
        raise BadInput(f"{format!r} is not a format of recorded answers; expected one of: {', '.join(by_name)}")
    peek = peek_at(LogSource(Path(path)))
    if format is None:
        return recognised(peek, by_name, "no recorded answers")[1].read(peek.source)
    if peek.is_archive and format != "inspect":
        raise BadInput(f"{path} is a ZIP archive, which only Inspect's .eval logs are, not {format}")
    return by_name[format].read(peek.source)
