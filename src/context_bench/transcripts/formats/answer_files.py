"""Files of recorded answers: our own JSON lines, and lm-evaluation-harness.

Answers as JSON lines: our own `export --format jsonl`, or anything with the same few names.

One object per answer: `response` (text), or `error`; `system` (or `model`); `example` (an object with `id`, `context`,
`question`, `answer` …), or these fields beside the others; `trial` from 0; `scores`, `usage`, `latency` in seconds
where known.

Samples of lm-evaluation-harness (`--log_samples`): one JSON object per document and filter, in
`samples_TASK_DATE.jsonl`.

The name of the task is only in the file's name, that of the model only in `results_DATE.json` beside it (or in the
folder's name).
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import ROW, count, duration, money, score, scores, usage_of
from context_bench.core.records import Example
from context_bench.transcripts.format import Format, LogSource, Peek, Place, text
from context_bench.transcripts.harness_results import (
    LETTERS,
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


def sniff_of_answer_lines(peek: Peek) -> bool:
    """True for objects that hold an answer, or the error in its place."""
    return any(key in peek.first for key in ("response", "error", "errors"))


def read_of_answer_lines(source: LogSource) -> AnswerLog:
    """The answers in a file of JSON lines."""
    log = AnswerLog("jsonl", iter(()))
    log.answers = _answers_of_answer_lines(log, source)
    return log


def _answers_of_answer_lines(log: AnswerLog, source: LogSource) -> Iterator[RecordedAnswer]:
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
        example=_example_of_answer_lines(value, position, stem),
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


def _example_of_answer_lines(value: dict[str, Any], position: int, stem: str) -> Example:
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


# lm_eval
# ------------------------------------------------------------------------

_NAME = re.compile(r"samples_(?P<task>.+?)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.:-]+)")
#: What a sample holds besides its metrics.
_KEPT = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash", "schema_version", "raw_resps"),
}
_ASKED = ("question", "query", "input", "problem", "prompt", "goal")


def sniff_of_lm_eval(peek: Peek) -> bool:
    """True for samples."""
    first = peek.first
    return "doc" in first and ("resps" in first or "filtered_resps" in first)


def read_of_lm_eval(source: LogSource) -> AnswerLog:
    """The answers in a file of samples. Filters of one document become scores of one answer; repeats become trials."""
    named = _NAME.fullmatch(source.path.stem)
    task = named["task"] if named else source.path.stem
    about = _results(source.path, named["date"] if named else None)
    model = text(about.get("model_name")) or _folder(source.path)
    facts = {
        "task": task,
        **{
            key: about[key]
            for key in ("model_source", "date", "git_hash")
            if isinstance(about.get(key), str | int | float)
        },
    }
    log = AnswerLog("lm_eval", iter(()), {**facts, **({"model": model} if model else {})})
    log.answers = _answers_of_lm_eval(log, source, task, model or "lm-eval")
    return log


def _results(path: Path, date: str | None) -> dict[str, Any]:
    """The results that were written together with the samples, if they are still beside them."""
    beside = path.with_name(f"results_{date}.json")
    if date is None or not beside.is_file():
        return {}
    try:
        found = next(LogSource(beside).values(), None)
    except BadInput:
        return {}
    return found if isinstance(found, dict) else {}


def _folder(path: Path) -> str | None:
    """`org/model` of a folder named `org__model`, as the harness makes them."""
    name = path.absolute().parent.name
    return name.replace("__", "/") if "__" in name.strip("_") else None


def _answers_of_lm_eval(log: AnswerLog, source: LogSource, task: str, model: str) -> Iterator[RecordedAnswer]:
    places: dict[str, list[Place]] = {}
    for place, value in source.placed():
        if isinstance(value, dict) and ("resps" in value or "filtered_resps" in value):
            # Without an id each line is a document of its own.
            places.setdefault(json.dumps(value.get("doc_id", [place])), []).append(place)
        else:
            source.skip("no sample")
    skipped: Counter[str] = Counter(source.skipped_counts())
    for position, of_document in enumerate(places.values()):
        entries = [entry for entry in source.at(of_document) if isinstance(entry, dict)]
        yield from _trials(entries, position, task, model, skipped)
        log.skipped = dict(skipped)
    log.skipped = dict(skipped)


def _trials(
    entries: list[dict[str, Any]], position: int, task: str, model: str, skipped: Counter[str]
) -> Iterator[RecordedAnswer]:
    """All answers to one document. What a metric says of all repeats together is told once, with the first of them."""
    example, outputs = _example_of_lm_eval(entries[0], position, task), _outputs(entries[0])
    scores: dict[str, float] = {}
    for entry in entries:
        scores |= _scores(entry, skipped)
    for trial, output in enumerate(outputs):
        yield RecordedAnswer(model, example, trial, output, scores=scores if trial == 0 else {}, model=model)


# --- the document
# ------------------------------------------------------------------------


def _example_of_lm_eval(entry: dict[str, Any], position: int, task: str) -> Example:
    """The document's own fields, so that evaluators find what they look for; `answer` is the harness' target."""
    doc = entry.get("doc")
    example: Example = dict(doc) if isinstance(doc, Mapping) else {"doc": doc}
    question = next((found for key in _ASKED if (found := text(example.get(key)))), None)
    context = example.get("context")
    example |= {
        "id": id_of(entry.get("doc_id"), position),
        "dataset": task,
        "context": context if isinstance(context, str) else "",
        "question": question or _prompt(entry),
    }
    options = _options(entry)
    if options:
        _choose(example, options, entry.get("target"))
    elif targets := _targets(entry.get("target")):
        example.pop("answers", None) if len(targets) > 1 else None
        golds(example, targets)
    return example


def _choose(example: Example, options: list[str], target: Any) -> None:
    """A task whose answers are compared by likelihood: the target is the place of the right one."""
    example["choices"] = options
    place = int(target) if isinstance(target, int | str) and str(target).isascii() and str(target).isdigit() else -1
    if 0 <= place < len(options):
        example["answer"] = options[place]
        if place < len(LETTERS):
            example["correct_letter"] = LETTERS[place]
    elif found := _targets(target):
        golds(example, [answer.strip() for answer in found])


def _targets(target: Any) -> list[str]:
    """The right answers; a list that was written as text is read_of_lm_eval as a list."""
    if isinstance(target, str) and target[:1] == "[" and len(target) < 1_000_000:
        try:
            listed = ast.literal_eval(target)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return [target]
        return texts(listed) or [target]
    return texts(target)


def _arguments(entry: dict[str, Any]) -> list[list[Any]]:
    """The arguments of each request: `[[prompt, more], …]`, in the old form or the one with named arguments."""
    given = entry.get("arguments")
    requests = list(given.values()) if isinstance(given, Mapping) else given if isinstance(given, list) else []
    return [
        list(each.values()) if isinstance(each, Mapping) else each if isinstance(each, list) else [each]
        for each in requests
    ]


def _prompt(entry: dict[str, Any]) -> str:
    first = next(iter(_arguments(entry)), [])
    prompt = first[0] if first else ""
    if isinstance(prompt, list) and len(prompt) == 1:  # chat messages, as text in a list
        prompt = prompt[0]
    return prompt if isinstance(prompt, str) else ""


def _options(entry: dict[str, Any]) -> list[str]:
    """The continuations whose likelihoods were compared; empty for a task that generates."""
    requests = _arguments(entry)
    if len(requests) < 2 or _likelihoods(entry) is None:
        return []
    options = [request[1].strip() if len(request) > 1 and isinstance(request[1], str) else "" for request in requests]
    return options if all(options) else []


# --- the answer
# ------------------------------------------------------------------------


def _outputs(entry: dict[str, Any]) -> list[Example]:
    """Answers per repeat: the text, or the likeliest of the options."""
    if (likely := _likelihoods(entry)) is not None:
        options = _options(entry)
        if not options or len(likely) != len(options):
            return [{}]
        return [{"response": options[likely.index(max(likely))], "log_likelihoods": likely}]
    filtered = entry.get("filtered_resps")
    replies = _first(entry.get("resps")) or (texts(filtered)[:1] if filtered else [])
    more = {"filtered": filtered} if filtered else {}
    return [{"response": reply, **more} for reply in replies] or [{}]


def _first(resps: Any) -> list[str]:
    """All repeats of the first request."""
    found = resps[0] if isinstance(resps, list) and resps else None
    return texts(found)


def _likelihoods(entry: dict[str, Any]) -> list[float] | None:
    """The log likelihood of each request, or `None` for requests that generate. They look like `[["-1.5",
    "False"]]`.
    """
    resps = entry.get("resps") or entry.get("filtered_resps")
    found: list[float] = []
    for each in resps if isinstance(resps, list) else []:
        pair = each[0] if isinstance(each, list) and len(each) == 1 and isinstance(each[0], list) else each
        if not (isinstance(pair, list) and len(pair) == 2 and str(pair[1]) in ("True", "False")):
            return None
        try:
            likely = float(pair[0])
        except (TypeError, ValueError, OverflowError):
            return None
        found.append(likely)
    return found or None


def _scores(entry: dict[str, Any], skipped: Counter[str]) -> dict[str, float]:
    """The sample's metrics, `METRIC` or `METRIC.FILTER`."""
    named = entry.get("metrics")
    names = named if isinstance(named, list) else [key for key in entry if key not in _KEPT]
    filtered = text(entry.get("filter"))
    suffix = f".{filtered}" if filtered and filtered != "none" else ""
    found: dict[str, float] = {}
    for name in names:
        value = score(entry.get(name)) if isinstance(name, str) else None
        if value is None:
            skipped["a score that is no number"] += 1
        else:
            found[f"{name}{suffix}"] = value
    return found


ANSWERS = {
    "answer_lines": Format(
        "jsonl",
        30,
        sniff_of_answer_lines,
        read_of_answer_lines,
        about="Answers as JSON lines: our own `export --format jsonl`, or anything with the same few names.",
    ),
    "lm_eval": Format(
        "lm-eval",
        20,
        sniff_of_lm_eval,
        read_of_lm_eval,
        about="Samples of lm-evaluation-harness (`--log_samples`): one JSON object per document and filter, in "
        "`samples_TASK_DATE.jsonl`.",
    ),
}
