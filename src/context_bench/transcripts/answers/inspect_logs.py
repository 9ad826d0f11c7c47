"""Logs of Inspect (inspect_ai): the JSON form, and the .eval form, a ZIP archive with one file per sample and epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import count, duration, moment, money, score
from context_bench.core.records import Example
from context_bench.core.usage import INSPECT, usage_of
from context_bench.transcripts.answers.answer_files import (
    LETTERS,
    NO_TRIAL,
    AnswerLog,
    RecordedAnswer,
    golds,
    id_of,
    texts,
    trial_of,
)
from context_bench.transcripts.format import Format, LogSource, Peek, text
from context_bench.transcripts.inspect_files import is_archive, is_document, log_of, resolved

SOURCE = "inspect"
#: Parts of a sample in which long texts may stand as references.
_TEXTS = ("input", "choices", "target", "output", "metadata", "scores", "error")
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def sniff(peek: Peek) -> bool:
    """True for an archive and for the JSON form."""
    return is_archive(peek.start) or is_document(peek.first)


def read(source: LogSource) -> AnswerLog:
    """The answers of a log in either form; also of an archive whose run crashed before its header was written. Raises
    `BadInput`.
    """
    header, samples = log_of(source)
    about = header.get("eval")
    if not isinstance(about, dict):
        raise BadInput(f"{source.path} is a ZIP archive, but no Inspect log: it has no header.json")
    names = ("task", "task_version", "model", "run_id", "task_id", "created")
    facts = {name: about[name] for name in names if isinstance(about.get(name), str | int)}
    log = AnswerLog(SOURCE, iter(()), {"status": str(header.get("status", "unknown")), **facts})
    log.answers = _answers(log, about, samples)
    return log


def _answers(log: AnswerLog, about: dict[str, Any], samples: Iterator[Any]) -> Iterator[RecordedAnswer]:
    skipped: Counter[str] = Counter()
    for position, sample in enumerate(samples):
        if not isinstance(sample, dict):
            skipped["no sample"] += 1
            continue
        if (trial := trial_of(sample.get("epoch"), 1)) is None:
            skipped[NO_TRIAL] += 1
        else:
            yield _answer(about, resolved(sample, _TEXTS), position, skipped, trial)
        log.skipped = dict(skipped)
    log.skipped = dict(skipped)


def _answer(
    about: dict[str, Any], sample: dict[str, Any], position: int, skipped: Counter[str], trial: int
) -> RecordedAnswer:
    own = _mapping(_mapping(about.get("metadata")).get("context_bench"))
    output = _mapping(sample.get("output"))
    model = text(about.get("model")) or text(output.get("model")) or "unknown"
    kept = _mapping(_mapping(sample.get("metadata")).get("context_bench")) if own else {}
    return RecordedAnswer(
        system=text(own.get("system")) or model,
        example=_own_example(sample) if own else _example(about, sample, position),
        trial=trial,
        output={**_mapping(kept.get("output")), **_output(output)},
        error=_error(sample.get("error")),
        scores=_scores(_mapping(sample.get("scores")), skipped),
        usage=usage_of(_used(sample, output, model), INSPECT),
        model=text(own.get("model")) or model,
        cost=money(_used(sample, output, model).get("total_cost")),
        sent_tokens=count(kept.get("input_tokens")),
        latency=next(
            (found for key in ("working_time", "total_time") if (found := duration(sample.get(key))) is not None), None
        ),
        started=moment(sample.get("started_at")),
        finish_reason=_finish(output),
        shape=text(_mapping(kept.get("row")).get("shape")),
    )


def _own_example(sample: dict[str, Any]) -> Example:
    """The example of a log that we exported: it is in there as it was."""
    kept = _mapping(sample.get("metadata"))
    example = dict(_mapping(kept.get("example")))
    told = _mapping(kept.get("context_bench"))
    return {"id": id_of(told.get("example_id"), 0), "dataset": str(told.get("dataset") or ""), "context": "", **example}


def _example(about: dict[str, Any], sample: dict[str, Any], position: int) -> Example:
    """Metadata first: what a task put there (`context`, `instruction_id_list` …) is what evaluators look for."""
    example: Example = dict(_mapping(sample.get("metadata")))
    context, question = _asked(sample.get("input"))
    if not isinstance(example.get("context"), str):
        example["context"] = context
    example |= {"id": id_of(sample.get("id"), position), "dataset": str(about.get("task") or ""), "question": question}
    targets = [target for target in texts(sample.get("target")) if target]
    golds(example, targets)
    choices = texts(sample.get("choices"))
    if choices:
        example["choices"] = choices
        if len(targets) == 1 and targets[0] in LETTERS[: len(choices)]:
            example["correct_letter"] = targets[0]
    return example


def _asked(given: Any) -> tuple[str, str]:
    """Context and question of an input: the last message of the user is the question, what was said before it the
    context.
    """
    if not isinstance(given, list):
        return "", given if isinstance(given, str) else ""
    said = [(message.get("role"), _content(message.get("content"))) for message in given if isinstance(message, dict)]
    last = max((i for i, (role, _) in enumerate(said) if role == "user"), default=len(said) - 1)
    return "\n\n".join(words for i, (_, words) in enumerate(said) if i != last and words), said[last][1] if said else ""


def _content(content: Any) -> str:
    """The text of a message; thinking, images and the like are not."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _output(output: dict[str, Any]) -> Example:
    message = _mapping(_choice(output).get("message"))
    completion = output.get("completion")
    found: Example = {
        "response": completion if isinstance(completion, str) and completion else _content(message.get("content"))
    }
    calls = message.get("tool_calls")
    if isinstance(calls, list) and (kept := [_call(call) for call in calls if isinstance(call, dict)]):
        found["tool_calls"] = kept
    return found


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A tool call in the shape that evaluators know."""
    return {"name": str(call.get("function") or ""), "arguments": call.get("arguments") or {}}


def _choice(output: dict[str, Any]) -> dict[str, Any]:
    choices = output.get("choices")
    return _mapping(choices[0]) if isinstance(choices, list) and choices else {}


def _finish(output: dict[str, Any]) -> str | None:
    reason = text(_choice(output).get("stop_reason"))
    return {"max_tokens": "length"}.get(reason, reason) if reason else None


def _error(error: Any) -> str | None:
    if error is None:
        return None
    told = error.get("message") if isinstance(error, dict) else error
    return str(told or "the log gives no reason")


def _scores(scores: dict[str, Any], skipped: Counter[str]) -> dict[str, float]:
    """Every value of every scorer that means a number. What means none is left out, never 0."""
    found: dict[str, float] = {}
    for scorer, told in scores.items():
        value = told.get("value") if isinstance(told, dict) else told
        for name, item in value.items() if isinstance(value, dict) else [(None, value)]:
            grade = _grade(item)
            if grade is None:
                skipped["a score that is no number"] += 1
            else:
                found[str(scorer) if name is None else f"{scorer}.{name}"] = grade
    return found


def _grade(value: Any) -> float | None:
    if not isinstance(value, str):
        return score(value)
    if (known := _GRADES.get(value, _GRADES.get(value.lower()) if len(value) > 1 else None)) is not None:
        return known
    try:
        return score(float(value))
    except ValueError:
        return None


def _used(sample: dict[str, Any], output: dict[str, Any], model: str) -> dict[str, Any]:
    """Usage of the measured model, without models that only graded."""
    models = _mapping(sample.get("model_usage"))
    if model in models:
        return _mapping(models[model])
    if output.get("usage"):
        return _mapping(output["usage"])
    return _mapping(next(iter(models.values()))) if len(models) == 1 else {}


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


FORMAT = Format("inspect", 10, sniff, read)
