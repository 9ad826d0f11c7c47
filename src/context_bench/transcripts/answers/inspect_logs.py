"""Logs of Inspect (inspect_ai): the JSON form, and the .eval form, a ZIP archive with one file per sample and epoch."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from context_bench.core.archive_errors import FAULTS
from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.core.numbers import count, duration, moment, money, score
from context_bench.core.records import Example
from context_bench.core.usage import INSPECT, usage_of
from context_bench.transcripts.answers.record import (
    LETTERS,
    NO_TRIAL,
    AnswerLog,
    RecordedAnswer,
    golds,
    id_of,
    texts,
    trial_of,
)
from context_bench.transcripts.source import DOCUMENT_LIMIT, Source
from context_bench.transcripts.values import text

SOURCE = "inspect"
_ATTACHED = "attachment://"
#: The entry of one sample, or that of the main part of a large sample kept in pieces.
_SAMPLE = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?:/sample)?\.json")
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_ZSTD = 93  # the ZIP standard's number for it
_DEEPEST = 100  # levels of lists and dicts in which references are looked for


def matches(sample: list[Any]) -> bool:
    """True for the JSON form."""
    first = sample[0] if sample else None
    return isinstance(first, dict) and isinstance(first.get("eval"), dict) and any(key in first for key in ("samples", "plan", "status"))


def read(source: Source) -> AnswerLog:
    """The answers of a log in its JSON form."""
    document = next(source.values())
    log = _log(document)
    listed = document.get("samples")
    log.answers = _answers(log, document, iter(listed if isinstance(listed, list) else []))
    return log


def samples_of(path: Path) -> Iterator[Any]:
    """The samples of a log in either form, as they stand there. Raises `BadInput`."""
    if zipfile.is_zipfile(path):
        with _opened(path) as archive:
            names = sorted(filter(_is_sample, dict.fromkeys(archive.namelist())), key=_order)
        yield from _archived(path, names)
        return
    for document in Source(path).values():
        listed = _mapping(document).get("samples")
        yield from listed if isinstance(listed, list) else []


def read_archive(path: Path) -> AnswerLog:
    """The answers of an .eval log; also of one whose run crashed before its header was written. Raises `BadInput`."""
    with _opened(path) as archive:
        names = dict.fromkeys(archive.namelist())
        place = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
        header = _entry(archive, place, path) if place else None
        if not isinstance(header, dict) or not isinstance(header.get("eval"), dict):
            raise BadInput(f"{path} is a ZIP archive, but no Inspect log: it has no header.json")
    log = _log(header)
    log.answers = _answers(log, header, _archived(path, sorted(filter(_is_sample, names), key=_order)))
    return log


def _log(document: dict[str, Any]) -> AnswerLog:
    about = document["eval"]
    names = ("task", "task_version", "model", "run_id", "task_id", "created")
    facts = {name: about[name] for name in names if isinstance(about.get(name), str | int)}
    return AnswerLog(SOURCE, iter(()), {"status": str(document.get("status", "unknown")), **facts})


# --- the archive ---------------------------------------------------------------------------------------------------------------


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except FAULTS as error:
        raise BadInput(f"{path} is a broken ZIP archive: {error}") from error


def _is_sample(name: str) -> bool:
    return _SAMPLE.fullmatch(name) is not None


def _order(name: str) -> tuple[int, int, str]:
    """By epoch, then by id, numbers by size: the order in which Inspect shows samples."""
    found = _SAMPLE.fullmatch(name)
    identity, epoch = (found["id"], found["epoch"]) if found else (name, "0")
    return _whole(epoch), _whole(identity), identity


def _whole(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 2**63


def _archived(path: Path, names: list[str]) -> Iterator[Any]:
    with _opened(path) as archive:
        for name in names:
            sample = _entry(archive, name, path)
            if name.endswith("/sample.json") and isinstance(sample, dict):
                sample |= _pieces(archive, name.removesuffix("sample.json"), path)
            yield sample


def _pieces(archive: zipfile.ZipFile, folder: str, path: Path) -> dict[str, Any]:
    """Of a sample in pieces, what is not in its `sample.json` and needed here: metadata, and texts that are referred to by number."""
    found: dict[str, Any] = {}
    names = dict.fromkeys(archive.namelist())
    if f"{folder}metadata.json" in names:
        found["metadata"] = _entry(archive, f"{folder}metadata.json", path)
    prefix = f"{folder}attachments/"
    attached: dict[str, Any] = {}
    for name in names:
        start = name.removeprefix(prefix).removesuffix(".json")
        if name.startswith(prefix) and start.isdigit():
            listed = _entry(archive, name, path)
            attached |= {str(int(start) + i): item for i, item in enumerate(listed if isinstance(listed, list) else [])}
    return {**found, "attachments": attached}


def _entry(archive: zipfile.ZipFile, name: str, path: Path) -> Any:
    """The JSON in an entry. An entry that says to be larger than any log is refused unread."""
    info = archive.getinfo(name)
    if info.file_size > DOCUMENT_LIMIT:
        raise BadInput(f"{path}: {name} would be {info.file_size:,} bytes; at most {DOCUMENT_LIMIT:,} are read")
    try:
        return load_json(_unpacked(archive, info))
    except FAULTS as error:
        raise BadInput(f"{path}: {name} cannot be read: {error}") from error


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
        with zstandard.ZstdDecompressor().stream_reader(file.read(info.compress_size), read_across_frames=True) as reader:
            data: bytes = reader.read(info.file_size + 1)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise ValueError("it is damaged: size or checksum differ")
    return data


# --- samples -------------------------------------------------------------------------------------------------------------------


def _answers(log: AnswerLog, header: dict[str, Any], samples: Iterator[Any]) -> Iterator[RecordedAnswer]:
    about = header["eval"]
    skipped: Counter[str] = Counter()
    for position, sample in enumerate(samples):
        if not isinstance(sample, dict):
            skipped["no sample"] += 1
            continue
        if (trial := trial_of(sample.get("epoch"), 1)) is None:
            skipped[NO_TRIAL] += 1
        else:
            yield _answer(about, _resolved(sample), position, skipped, trial)
        log.skipped = dict(skipped)
    log.skipped = dict(skipped)


def _answer(about: dict[str, Any], sample: dict[str, Any], position: int, skipped: Counter[str], trial: int) -> RecordedAnswer:
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
        latency=next((found for key in ("working_time", "total_time") if (found := duration(sample.get(key))) is not None), None),
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
    """Context and question of an input: the last message of the user is the question, what was said before it the context."""
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
    found: Example = {"response": completion if isinstance(completion, str) and completion else _content(message.get("content"))}
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
    """What the measured model used; models that only graded are others."""
    models = _mapping(sample.get("model_usage"))
    if model in models:
        return _mapping(models[model])
    if output.get("usage"):
        return _mapping(output["usage"])
    return _mapping(next(iter(models.values()))) if len(models) == 1 else {}


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _resolved(sample: dict[str, Any]) -> dict[str, Any]:
    """The sample with texts put back that are kept once and referred to."""
    attached = _mapping(sample.get("attachments"))
    if not attached:
        return sample
    wanted = ("input", "choices", "target", "output", "metadata", "scores", "error")
    return {key: _put_back(value, attached) if key in wanted else value for key, value in sample.items()}


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
