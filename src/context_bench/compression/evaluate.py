"""Measure what a compressor costs, from Python: the functions and records behind `context_bench.compression`.

`results.jsonl` holds a whole run over probes, from which its report can be made again without a single call. One object
a line. First `{"kind": "run", …}`: the manifest and what was set up. Then for each answer `{"kind": "row", …}`: scores,
probe with its facts, answer. Long texts, which many rows share, stand once each, before their first use, as
`{"kind": "text", "sha256", "text"}`; rows name them as `session_sha256` (in the probe) and `context_sha256` (in the
output: what stood in the history's place).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import load_json
from context_bench.core.machine import opened
from context_bench.core.protocols import Compressor, Metric
from context_bench.core.records import EvalRow, Example, Result
from context_bench.wire.lossless import REWRITINGS
from context_bench.wire.request import WireRequest
from context_bench.wire.violations import Violation, compare_requests

if TYPE_CHECKING:
    from context_bench.reports.json_document import Answered, Writable
    from context_bench.results import EvalResult

#: What `evaluate_compression` runs beside the systems; the last two in the size of each of them.
CONTROLS = ("full", "full#2", "none", "head_tail", "random_drop")
_ANTHROPIC_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "image", "document"}
)


def evaluate_compression(
    systems: Sequence[str | Compressor] | str | Compressor,
    sessions: Sequence[str] | str = "bundled:sessions",
    *,
    points: str = "fraction:0.75",
    window: int | None = None,
    responder: Any = None,
    judge: Any = None,
    controls: Sequence[str] = CONTROLS,
    max_sessions: int | None = None,
    drift: bool = False,
    score_field: str | None = None,
    **more: Any,
) -> EvalResult:
    """Compress sessions with each system, ask probes about what was taken away, and compare with all of it, nothing,
    and truncation.

    `systems`: compressors or their specs. `sessions`: files or folders of logs, `bundled:sessions[/NAME]`, `hf:…`; at
    most `max_sessions`. `points`, `window`, `drift`: see `compression_points` and the guide. `responder`: a system that
    takes `turns` (default: the sentence reader, which asks no model); probes are chosen by their facts, not by what it
    answers. `judge`: a `RubricJudge`; the atoms grader is always there. `more` goes to `evaluate` (`store=`, `run=`,
    `trials=`, `seed=`, …). `result.compression` holds retention, lift, sizes, curves, drift. Raises `BadInput` where
    there is nothing to ask.
    """
    from context_bench.compression.datasets import ProbeSet
    from context_bench.compression.evaluators.probe_atoms import ProbeAtoms
    from context_bench.compression.figures import add_compression
    from context_bench.compression.systems.compressing import Compressing
    from context_bench.compression.systems.sentence import SentenceReader
    from context_bench.core.roles import control_role
    from context_bench.datasets.recorded import RecordedSessions
    from context_bench.metrics import MeanScore
    from context_bench.runner import evaluate
    from context_bench.systems.control import system_role

    data = ProbeSet(
        RecordedSessions([sessions] if isinstance(sessions, str) else list(sessions), max_sessions, agents=True),
        points,
        window,
        drift=drift,
    )
    reader = SentenceReader() if responder is None else responder
    given = systems if isinstance(systems, Sequence) and not isinstance(systems, str) else [systems]
    own = [Compressing(each, reader, name=each if isinstance(each, str) else None) for each in given]
    if unknown := [name for name in controls if name not in (*CONTROLS, *REWRITINGS)]:
        raise BadInput(f"controls has {unknown[0]!r}; expected some of {', '.join((*CONTROLS, *REWRITINGS))}")
    floors = [Compressing(name.partition("#")[0], reader, name=name) for name in controls if name not in _SIZED]
    sized = [Compressing(name, reader, partner=system) for system in own for name in controls if name in _SIZED]
    field = score_field or ("rubric_overall" if judge is not None else "probe_score")
    arms = [*own, *floors, *sized]
    roles: dict[str, Any] = {
        arm.name: system_role(each) for arm, each in zip(own, given, strict=True) if isinstance(each, str)
    }
    roles |= {arm.name: control_role(arm.name) for arm in floors}
    roles |= {arm.name: control_role(arm.compressor.name, of=arm.partner.name) for arm in sized if arm.partner}
    roles |= more.pop("roles", None) or {}
    baseline = more.pop("baseline", "full" if "full" in controls else None)
    judges = [ProbeAtoms(), *([judge] if judge is not None else [])]
    result = evaluate(
        arms, data.examples(), judges, [MeanScore(field)], baseline=baseline, roles=roles, score_field=field, **more
    )
    add_compression(
        result, {"points": points, "responder": "sentence" if responder is None else reader.name, "drift": drift}
    )
    return result


def rebuilt(path: str | Path, metrics: Sequence[Metric] | None = None) -> EvalResult:
    """The result of a run over probes from its `results.jsonl` (`export --format results`): every number is worked out
    again from the rows, and nothing is called. `metrics`: those of the command line, if none are given. Raises
    `BadInput`.
    """
    from context_bench.compression.figures import add_compression
    from context_bench.core.records import SetupRecord
    from context_bench.metrics import CompressionRatio, CostOfPass, Latency, MeanScore, PassRate
    from context_bench.results import EvalResult
    from context_bench.runner import complete_from_rows

    run, answers = read_results(path)
    manifest = run["manifest"]
    field = manifest.get("score_field") or manifest.get("margin", {}).get("score_field")
    if metrics is None:
        threshold = manifest.get("options", {}).get("threshold", 0.7)
        passing = PassRate(threshold, field), CostOfPass(threshold, field)
        metrics = [MeanScore(field), passing[0], CompressionRatio(), passing[1], Latency()]
    result = EvalResult([row for row, _, _ in answers], {}, timing=run.get("timing", {}), metrics=list(metrics))
    result.manifest = manifest
    result.setups = [
        SetupRecord(**{k: v for k, v in one.items() if k in SetupRecord.__dataclass_fields__}) for one in run["setups"]
    ]
    complete_from_rows(result, field)
    result.notes = list(dict.fromkeys([*run.get("notes", []), *result.notes]))
    add_compression(result, manifest.get("compression", {}), answers)
    return result


_SIZED = ("head_tail", "random_drop")
Sent = Sequence[Mapping[str, Any]] | Mapping[str, Any]


def wire_violations(sent: Sent, received: Sent) -> list[Violation]:
    """Changes to a request on its way, apart from shorter texts. `[]`: none.

    Each side is a list of messages (OpenAI chat or Anthropic) or a whole body of OpenAI chat, OpenAI Responses or
    Anthropic messages.
    """
    return compare_requests(read_request(sent), read_request(received))


def read_request(sent: Sent) -> WireRequest:
    """A list of messages, or a body of any of the three wires, in neutral form; the wire is told by what the body
    has.
    """
    from context_bench.wire.apis import parse_request

    body: Mapping[str, Any] = sent if isinstance(sent, Mapping) else {"messages": list(sent)}
    if "input" in body and "messages" not in body:
        return parse_request("openai-responses", body)
    return parse_request("anthropic" if "system" in body or _has_blocks(body.get("messages")) else "openai-chat", body)


def _has_blocks(messages: Any) -> bool:
    """True if some content has blocks that only Anthropic's wire has."""
    listed = messages if isinstance(messages, list) else []
    contents = [message.get("content") for message in listed if isinstance(message, Mapping)]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return any(isinstance(block, Mapping) and str(block.get("type")) in _ANTHROPIC_BLOCKS for block in blocks)


SCHEMA = "context-bench/compression-results/1"
_LONG = {"example": "session", "output": "context"}


def write_results(result: Result, answers: Iterable[Answered], stream: Writable) -> None:
    """Write the run and its rows, one at a time."""
    from context_bench.reports.json_document import row_record
    from context_bench.reports.visible_text import json_ready

    encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
    facts = {"manifest": result.manifest, "timing": result.timing, "setups": result.setups, "notes": result.notes}
    stream.write(encode({"kind": "run", "schema": SCHEMA, **json_ready(facts)}) + "\n")
    written: set[str] = set()
    for answer in answers:
        parts = {"example": dict(answer.example or {}), "output": dict(answer.output)}
        for part, name in _LONG.items():
            text = parts[part].pop(name, None)
            if isinstance(text, str):
                digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
                parts[part][f"{name}_sha256"] = digest
                if digest not in written:
                    written.add(digest)
                    stream.write(encode({"kind": "text", "sha256": digest, "text": json_ready([text])[0]}) + "\n")
        stream.write(encode({"kind": "row", **row_record(answer.row), **json_ready(parts)}) + "\n")


Asked = tuple[EvalRow, Example, Example]  # a row, its example, its output


def read_results(path: str | Path) -> tuple[dict[str, Any], list[Asked]]:
    """The run's own facts and its rows of such a file. `BadInput` names the line that is not as it should be."""
    run: dict[str, Any] | None = None
    texts: dict[str, str] = {}
    answers: list[Asked] = []
    try:
        with TextIOWrapper(opened(path), "utf-8") as file:
            for number, line in enumerate(file, 1):
                item = _object(line, path, number)
                if number == 1:
                    run = _run(item, path)
                elif item.get("kind") == "text":
                    texts[str(item.get("sha256"))] = str(item.get("text"))
                else:
                    answers.append(_row(item, texts, path, number))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if run is None:
        raise BadInput(f"{path} is empty; expected the results of a run over probes")
    return run, answers


def _object(line: str, path: str | Path, number: int) -> dict[str, Any]:
    try:
        item = load_json(line)
    except ValueError as error:
        raise BadInput(f"{path}, line {number}: {error}") from None
    if not isinstance(item, dict):
        raise BadInput(f"{path}, line {number}: expected an object, found {type(item).__name__}")
    return item


def _run(item: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    if item.get("kind") != "run" or item.get("schema") != SCHEMA or not isinstance(item.get("manifest"), dict):
        raise BadInput(
            f"{path}, line 1: not the results of a run over probes; expected kind run and schema {SCHEMA}, as export "
            "writes them"
        )
    return dict(item)


def _row(item: Mapping[str, Any], texts: Mapping[str, str], path: str | Path, number: int) -> Asked:
    if item.get("kind") != "row" or not {"system", "example_id", "scores"} <= set(item):
        raise BadInput(f"{path}, line {number}: not a row; expected kind row with system, example_id and scores")
    row = EvalRow(
        **{"latency": None, **{name: value for name, value in item.items() if name in EvalRow.__dataclass_fields__}}
    )
    parts = []
    for part, name in _LONG.items():
        told = dict(item.get(part) or {})
        digest = told.pop(f"{name}_sha256", None)
        if digest is not None:
            if digest not in texts:
                raise BadInput(f"{path}, line {number}: {name}_sha256 {str(digest)[:12]}… is of no text before it")
            told[name] = texts[digest]
        parts.append(told)
    return row, parts[0], parts[1]
