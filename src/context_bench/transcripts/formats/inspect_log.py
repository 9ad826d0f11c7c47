"""Inspect AI's evaluation logs, version 2: a JSON document, or a `.eval` file (a zip with one JSON per sample).

Its samples are runs of agents, recorded answers, or verdicts on patches. With several scorers that differ, none is
taken for the verdict unless it is named.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput, archive_faults
from context_bench.core.keys import load_json
from context_bench.core.numbers import INSPECT, count, duration, moment, money, score, usage_of
from context_bench.core.records import Example
from context_bench.transcripts.format import (
    DOCUMENT_LIMIT,
    Format,
    LogSource,
    Peek,
    mapping,
    peek_at,
    sequence,
    text,
    texts,
)
from context_bench.transcripts.harness_results import (
    LETTERS,
    NO_TRIAL,
    AnswerLog,
    PatchOutcome,
    RecordedAnswer,
    golds,
    id_of,
    texts as all_texts,
    trial_of,
)
from context_bench.transcripts.transcript import ToolCall, Transcript, run

if TYPE_CHECKING:
    from context_bench.stats.solving import Status

#: The entry of one sample, or that of the main part of a large sample kept in pieces.
_SAMPLE = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?:/sample)?\.json")
_HEADERS = ("header.json", "_journal/start.json")
_ATTACHED = "attachment://"
_ZSTD = 93  # the ZIP standard's number for it
_DEEPEST = 100  # levels of lists and dicts in which references are looked for
Skip = Callable[[str], None]
#: Parts of a sample in which long texts may stand as references.
_TEXTS = ("input", "choices", "target", "output", "metadata", "scores", "error")
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_WORDS: dict[str, Status] = {
    **dict.fromkeys(("c", "yes", "true", "pass", "passed", "resolved", "1", "1.0"), "resolved"),
    **dict.fromkeys(("i", "n", "p", "no", "false", "fail", "failed", "unresolved", "0", "0.0"), "unresolved"),
}


def _is_document(first: Mapping[str, Any]) -> bool:
    return isinstance(first.get("eval"), dict) and any(key in first for key in ("samples", "plan", "status"))


def _is_log(peek: Peek) -> bool:
    return peek.is_archive or _is_document(peek.first)


def _holds_samples(path: Path) -> bool:
    """True for a ZIP archive with samples in it."""
    try:
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return any(name.startswith("samples/") for name in archive.namelist())
    except archive_faults():
        return False


def _log_of(source: LogSource, skip: Skip | None = None) -> tuple[dict[str, Any], Iterator[Any]]:
    """The header of a log in either form (empty, if an archive has none), and its samples as they stand there.

    An entry of an archive that cannot be read raises `BadInput`, or is counted by `skip`.
    """
    if not zipfile.is_zipfile(source.path) and not peek_at(source).is_archive:
        values = source.values()
        document = next(values, None)
        return document if isinstance(document, dict) else {}, _listed(chain([document], values))
    with _opened(source.path) as archive:
        names = dict.fromkeys(archive.namelist())
        place = next((name for name in _HEADERS if name in names), None)
        header = _entry(archive, place, source.path, skip) if place else None
    if place is None and skip is not None:
        skip("an entry that is not there")
    entries = sorted(filter(None, map(_SAMPLE.fullmatch, names)), key=_order)
    samples = _archived(source.path, [entry[0] for entry in entries], skip)
    return header if isinstance(header, dict) else {}, samples


def _listed(documents: Iterable[Any]) -> Iterator[Any]:
    for document in documents:
        samples = document.get("samples") if isinstance(document, dict) else None
        yield from samples if isinstance(samples, list) else []


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except archive_faults() as error:
        raise BadInput(f"{path} is a broken ZIP archive: {error}") from error


def _order(sample: re.Match[str]) -> tuple[int, int, str]:
    """By epoch, then by id, numbers by size: the order in which Inspect shows samples."""
    return _whole(sample["epoch"]), _whole(sample["id"]), sample["id"]


def _whole(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 2**63


def _archived(path: Path, names: list[str], skip: Skip | None) -> Iterator[Any]:
    with _opened(path) as archive:
        for name in names:
            sample = _entry(archive, name, path, skip)
            if name.endswith("/sample.json") and isinstance(sample, dict):
                sample |= _pieces(archive, name.removesuffix("sample.json"), path, skip)
            if sample is not None or skip is None:
                yield sample


def _pieces(archive: zipfile.ZipFile, folder: str, path: Path, skip: Skip | None) -> dict[str, Any]:
    """Of a sample in pieces, what is not in its `sample.json` and needed here: metadata, and texts that are referred to
    by number.
    """
    found: dict[str, Any] = {}
    names = dict.fromkeys(archive.namelist())
    if f"{folder}metadata.json" in names:
        found["metadata"] = _entry(archive, f"{folder}metadata.json", path, skip)
    prefix = f"{folder}attachments/"
    attached: dict[str, Any] = {}
    for name in names:
        start = name.removeprefix(prefix).removesuffix(".json")
        if name.startswith(prefix) and start.isdigit():
            listed = _entry(archive, name, path, skip)
            attached |= {str(int(start) + i): item for i, item in enumerate(listed if isinstance(listed, list) else [])}
    return {**found, "attachments": attached}


def _entry(archive: zipfile.ZipFile, name: str, path: Path, skip: Skip | None) -> Any:
    """The JSON in an entry. An entry that says to be larger than any log is refused unread."""
    info = archive.getinfo(name)
    fault = f"would be {info.file_size:,} bytes; at most {DOCUMENT_LIMIT:,} are read"
    reason = "an entry that is too large"
    if info.file_size <= DOCUMENT_LIMIT:
        try:
            return load_json(_unpacked(archive, info))
        except archive_faults() as error:
            fault, reason = f"cannot be read: {error}", "an entry that cannot be read"
    if skip is None:
        raise BadInput(f"{path}: {name} {fault}")
    skip(reason)
    return None


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The bytes of an entry. Inspect compresses with Zstandard, which the library knows only from Python 3.14 on."""
    if info.compress_type != _ZSTD:
        return archive.read(info)
    import zstandard

    file = archive.fp
    assert file is not None, "an archive that is being read is open"
    file.seek(info.header_offset)
    head = file.read(30)
    if len(head) != 30 or head[:4] != b"PK\x03\x04":
        raise ValueError("its header is broken")
    file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1)
    try:
        with zstandard.ZstdDecompressor().stream_reader(
            file.read(info.compress_size), read_across_frames=True
        ) as reader:
            data: bytes = reader.read(info.file_size + 1)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise ValueError("it is damaged: size or checksum differ")
    return data


def _resolved(sample: Any, parts: Collection[str]) -> Any:
    """The sample with texts put back, in these parts of it, that are kept once and referred to."""
    attached = sample.get("attachments") if isinstance(sample, dict) else None
    if not isinstance(attached, dict) or not attached:
        return sample
    return {key: _put_back(value, attached) if key in parts else value for key, value in sample.items()}


def _put_back(value: Any, attached: dict[str, Any], depth: int = 0) -> Any:
    if isinstance(value, str):
        return attached.get(value.removeprefix(_ATTACHED), value) if value.startswith(_ATTACHED) else value
    if depth == _DEEPEST:
        return value
    if isinstance(value, list):
        return [_put_back(item, attached, depth + 1) for item in value]
    if isinstance(value, dict):
        return {key: _put_back(item, attached, depth + 1) for key, item in value.items()}
    return value


# Runs of agents
# ------------------------------------------------------------------------


def _runs(source: LogSource) -> Iterator[Transcript]:
    """One run per sample and epoch."""
    header, samples = _log_of(source, source.skip)
    for sample in samples:
        yield _run(mapping(_resolved(sample, ("events", "messages"))), mapping(header.get("eval")))


def _run(sample: Mapping[str, Any], header: Mapping[str, Any]) -> Transcript:
    ident = sample.get("id")
    one = run("inspect", str(ident) if isinstance(ident, str | int) and ident != "" else None)
    one.model = text(header.get("model"))
    for event in map(mapping, sequence(sample.get("events"))):
        if event.get("event") == "tool":
            _tool(event, one)
        elif event.get("event") == "model":
            one.turns += 1
    asked: dict[str, ToolCall] = {}
    for message in map(mapping, sequence(sample.get("messages"))):
        _message(message, one, asked)
    for usage in mapping(sample.get("model_usage")).values():
        one.billed(usage_of(usage, INSPECT))
    return one


def _message(message: Mapping[str, Any], one: Transcript, asked: dict[str, ToolCall]) -> None:
    """Read a message of the conversation as it stood at the end (`asked`: calls by their ids); results are in the
    events, or here.
    """
    role, said = message.get("role"), texts(message.get("content"))
    if role == "assistant":
        parts = [mapping(part) for part in sequence(message.get("content"))]
        thoughts = [str(part.get("reasoning") or "") for part in parts if part.get("type") == "reasoning"]
        reply = one.reply(said or None, model=text(message.get("model")), thoughts="\n".join(filter(None, thoughts)))
        for call in map(mapping, sequence(message.get("tool_calls"))):
            ident = text(call.get("id"))
            reply.calls.append(one.find(ident) or ToolCall(str(call.get("function")), call.get("arguments"), ident))
            asked[ident or ""] = reply.calls[-1]
    elif role == "tool":
        if (call_of := asked.get(text(message.get("tool_call_id")) or "")) is not None:
            call_of.answer(said or "")
    elif role in ("system", "user"):
        one.given("system" if role == "system" else "user", said)


def _tool(event: Mapping[str, Any], one: Transcript) -> None:
    t = one.at(moment(event.get("timestamp")))
    call = one.call(event.get("function"), event.get("arguments"), event.get("id"), t=t, place=text(event.get("uuid")))
    call.cut = bool(event.get("truncated"))
    call.sidechain = False
    error = mapping(event.get("error"))
    call.answer(texts(event.get("result")) or text(error.get("message")) or "", failed=True if error else None)


# Answers
# ------------------------------------------------------------------------


def _answers(source: LogSource) -> AnswerLog:
    """The answers of a log in either form; also of an archive whose run crashed before its header was written. Raises
    `BadInput`.
    """
    header, samples = _log_of(source)
    about = header.get("eval")
    if not isinstance(about, dict):
        raise BadInput(f"{source.path} is a ZIP archive, but no Inspect log: it has no header.json")
    names = ("task", "task_version", "model", "run_id", "task_id", "created")
    facts = {name: about[name] for name in names if isinstance(about.get(name), str | int)}
    log = AnswerLog("inspect", iter(()), {"status": str(header.get("status", "unknown")), **facts})
    log.answers = _each_answer(log, about, samples)
    return log


def _each_answer(log: AnswerLog, about: Mapping[str, Any], samples: Iterator[Any]) -> Iterator[RecordedAnswer]:
    skipped: Counter[str] = Counter()
    for position, sample in enumerate(samples):
        if not isinstance(sample, dict):
            skipped["no sample"] += 1
            continue
        if (trial := trial_of(sample.get("epoch"), 1)) is None:
            skipped[NO_TRIAL] += 1
        else:
            yield _answer(about, _resolved(sample, _TEXTS), position, skipped, trial)
        log.skipped = dict(skipped)
    log.skipped = dict(skipped)


def _answer(
    about: Mapping[str, Any], sample: Mapping[str, Any], position: int, skipped: Counter[str], trial: int
) -> RecordedAnswer:
    own = mapping(mapping(about.get("metadata")).get("context_bench"))
    output = mapping(sample.get("output"))
    model = text(about.get("model")) or text(output.get("model")) or "unknown"
    kept = mapping(mapping(sample.get("metadata")).get("context_bench")) if own else {}
    return RecordedAnswer(
        system=text(own.get("system")) or model,
        example=_own_example(sample) if own else _example(about, sample, position),
        trial=trial,
        output={**mapping(kept.get("output")), **_output(output)},
        error=_error(sample.get("error")),
        scores=_scores(mapping(sample.get("scores")), skipped),
        usage=usage_of(_used(sample, output, model), INSPECT),
        model=text(own.get("model")) or model,
        cost=money(_used(sample, output, model).get("total_cost")),
        sent_tokens=count(kept.get("input_tokens")),
        latency=next(
            (found for key in ("working_time", "total_time") if (found := duration(sample.get(key))) is not None), None
        ),
        started=moment(sample.get("started_at")),
        finish_reason=_finish(output),
        shape=text(mapping(kept.get("row")).get("shape")),
    )


def _own_example(sample: Mapping[str, Any]) -> Example:
    """The example of a log that we exported: it is in there as it was."""
    kept = mapping(sample.get("metadata"))
    example = dict(mapping(kept.get("example")))
    told = mapping(kept.get("context_bench"))
    return {"id": id_of(told.get("example_id"), 0), "dataset": str(told.get("dataset") or ""), "context": "", **example}


def _example(about: Mapping[str, Any], sample: Mapping[str, Any], position: int) -> Example:
    """Metadata first: what a task put there (`context`, `instruction_id_list` …) is what evaluators look for."""
    example: Example = dict(mapping(sample.get("metadata")))
    context, question = _asked(sample.get("input"))
    if not isinstance(example.get("context"), str):
        example["context"] = context
    example |= {"id": id_of(sample.get("id"), position), "dataset": str(about.get("task") or ""), "question": question}
    targets = [target for target in all_texts(sample.get("target")) if target]
    golds(example, targets)
    choices = all_texts(sample.get("choices"))
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


def _output(output: Mapping[str, Any]) -> Example:
    message = mapping(_choice(output).get("message"))
    completion = output.get("completion")
    found: Example = {
        "response": completion if isinstance(completion, str) and completion else _content(message.get("content"))
    }
    calls = message.get("tool_calls")
    if isinstance(calls, list) and (kept := [_call(call) for call in calls if isinstance(call, dict)]):
        found["tool_calls"] = kept
    return found


def _call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool call in the shape that evaluators know."""
    return {"name": str(call.get("function") or ""), "arguments": call.get("arguments") or {}}


def _choice(output: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = output.get("choices")
    return mapping(choices[0]) if isinstance(choices, list) and choices else {}


def _finish(output: Mapping[str, Any]) -> str | None:
    reason = text(_choice(output).get("stop_reason"))
    return {"max_tokens": "length"}.get(reason, reason) if reason else None


def _error(error: Any) -> str | None:
    if error is None:
        return None
    told = error.get("message") if isinstance(error, dict) else error
    return str(told or "the log gives no reason")


def _scores(scores: Mapping[str, Any], skipped: Counter[str]) -> dict[str, float]:
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


def _used(sample: Mapping[str, Any], output: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """Usage of the measured model, without models that only graded."""
    models = mapping(sample.get("model_usage"))
    if model in models:
        return mapping(models[model])
    if output.get("usage"):
        return mapping(output["usage"])
    return mapping(next(iter(models.values()))) if len(models) == 1 else {}


# Verdicts
# ------------------------------------------------------------------------


def _verdicts(source: LogSource, scorer: str | None = None) -> Iterator[PatchOutcome]:
    """One outcome per sample and epoch. `scorer`: the score that is the verdict."""
    _, samples = _log_of(source)
    if _holds_samples(source.path):
        source.skipped.clear()  # an archive is no JSON, and need not be
    for sample in map(mapping, samples):
        name = sample.get("id")
        if not isinstance(name, str | int):
            source.skip("a sample without an id")
            continue
        yield _outcome(str(name), sample, scorer)


def _outcome(name: str, sample: Mapping[str, Any], scorer: str | None) -> PatchOutcome:
    found: dict[str, Status] = {}
    for key, stated in mapping(sample.get("scores")).items():
        status = _status(mapping(stated).get("value", stated)) if scorer in (None, key) else None
        if status is not None:
            found[key] = status
    if len(set(found.values())) == 1:
        return PatchOutcome(name, next(iter(found.values())))
    if found:
        return PatchOutcome(name, "unknown", reason=f"scorers differ: {', '.join(sorted(found))}")
    fault = mapping(sample.get("error")).get("message")
    return (
        PatchOutcome(name, "error", reason=str(fault)[:200])
        if fault
        else PatchOutcome(name, "unknown", reason="no pass or fail among its scores")
    )


def _status(value: Any) -> Status | None:
    """Pass or fail of a score's value; a share that is neither 0 nor 1 is not solved."""
    if isinstance(value, bool):
        return "resolved" if value else "unresolved"
    if isinstance(value, int | float):
        return "resolved" if value == 1 else "unresolved" if 0 <= value < 1 else None
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    return None


def _holds_runs(peek: Peek) -> bool:
    return _holds_samples(peek.path) or (_is_document(peek.first) and isinstance(peek.first.get("samples"), list))


FORMAT = Format("inspect", 25, _holds_runs, _runs)
ANSWERS = Format("inspect", 10, _is_log, _answers)
REPORT = Format("Inspect log", 50, _is_log, _verdicts, by_score=_verdicts)
