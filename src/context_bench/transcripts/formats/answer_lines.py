"""Answers as JSON lines: our own `export --format jsonl`, or anything with the same few names.

One object per answer: `response` (text), or `error`; `system` (or `model`); `example` (an object with `id`, `context`,
`question`, `answer` …), or these fields beside the others; `trial` from 0; `scores`, `usage`, `latency` in seconds
where known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import ROW, count, duration, money, scores, usage_of
from context_bench.core.records import Example
from context_bench.transcripts.format import Format, LogSource, Peek, text
from context_bench.transcripts.harness_results import (
    NO_TRIAL,
    AnswerLog,
    RecordedAnswer,
    golds,
    id_of,
    texts,
    trial_of,
)

_ANSWERED = ("response", "error", "errors", "output")
#: Names that other programs use for our fields, in order of preference.
_ALIASES = {
    "question": ("question", "input", "prompt", "query"),
    "answer": ("answer", "target", "reference", "expected", "gold"),
}
#: What belongs to the row and not to the example.
_ROW = {
    *(
        "system",
        "model",
        "response",
        "output",
        "error",
        "errors",
        "scores",
        "usage",
        "latency",
        "trial",
        "wire",
        "metadata",
        "example",
    ),
    *("example_id", "input_tokens", "output_tokens", "finish_reason", "tool_calls"),
}


def sniff(peek: Peek) -> bool:
    """True for objects that hold an answer, or the error in its place."""
    return any(key in peek.first for key in ("response", "error", "errors"))


def read(source: LogSource) -> AnswerLog:
    """The answers in a file of JSON lines."""
    log = AnswerLog("jsonl", iter(()))
    log.answers = _answers(log, source)
    return log


def _answers(log: AnswerLog, source: LogSource) -> Iterator[RecordedAnswer]:
    skipped: Counter[str] = Counter()
    positions: dict[str, int] = {}
    for value in source.values():
        if not isinstance(value, dict) or not any(key in value for key in _ANSWERED):
            skipped["no answer"] += 1
            continue
        if (trial := trial_of(value.get("trial"))) is None:
            skipped[NO_TRIAL] += 1
            continue
        system = text(value.get("system")) or text(value.get("model")) or "recorded"
        position = positions[system] = positions.get(system, -1) + 1
        yield _answer(value, system, position, source.path.stem, trial)
    log.skipped = dict(skipped + Counter(source.skipped_counts()))


def _answer(value: dict[str, Any], system: str, position: int, stem: str, trial: int) -> RecordedAnswer:
    given = value.get("usage")
    usage: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    given = value.get("metadata")
    metadata: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    model = text(value.get("model")) or text(metadata.get("model"))
    return RecordedAnswer(
        system=system,
        example=_example(value, position, stem),
        trial=trial,
        output=_output(value),
        error=_error(value),
        scores=scores(value.get("scores")),
        usage=usage_of(usage, ROW),
        model=model or system,
        cost=money(usage.get("cost")),
        sent_tokens=count(value.get("input_tokens")),
        latency=duration(value.get("latency")),
        finish_reason=text(value.get("finish_reason")) or text(metadata.get("finish_reason")),
        shape=text(metadata.get("shape")),
    )


def _example(value: dict[str, Any], position: int, stem: str) -> Example:
    given = value.get("example")
    example: Example = (
        dict(given) if isinstance(given, dict) else {key: item for key, item in value.items() if key not in _ROW}
    )
    for name, others in _ALIASES.items():
        found = next((example[other] for other in others if example.get(other) is not None), None)
        if name not in example and found is not None:
            targets = texts(found)
            if name == "answer" and targets:
                golds(example, targets)
            else:
                example[name] = found
    named = value.get("example_id", example.get("id"))
    context = example.get("context")
    told = text(value.get("dataset")) or text(example.get("dataset")) or stem
    return {
        **example,
        "id": id_of(named, position),
        "dataset": told,
        "context": context if isinstance(context, str) else "",
    }


def _output(value: dict[str, Any]) -> Example:
    given = value.get("output")
    output: Example = dict(given) if isinstance(given, dict) else {}
    reply = value.get("response", given if isinstance(given, str) else output.get("response"))
    if reply is not None:
        output["response"] = reply if isinstance(reply, str) else str(reply)
    if isinstance(value.get("tool_calls"), list):
        output["tool_calls"] = value["tool_calls"]
    return output


def _error(value: dict[str, Any]) -> str | None:
    errors = value.get("errors")
    told = errors.get("system") if isinstance(errors, Mapping) else None
    return text(told) or text(value.get("error"))


ANSWERS = Format("jsonl", 30, sniff, read)
