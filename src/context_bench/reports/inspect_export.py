"""A run as a log of Inspect (inspect_ai), version 2, in its JSON form: `inspect view` shows it, Inspect's reader opens
it.

One log is one task on one model there, so it holds one system on one dataset. The JSON form, not the ZIP archive: it is
text like every other report, written sample by sample, and can be read, compared and searched without Inspect; its
reader takes both alike.

| Inspect | here |
|---|---|
| `eval.task` · `eval.model` | dataset · `SYSTEM/MODEL` |
| sample `id`, `epoch` | example id, trial + 1 |
| `input`, `target`, `choices` | question (else context), right answers, choices |
| `messages` | the request as it was sent where it was kept, then the answer |
| `scores` | every score under its own name; an evaluator's failure is no score |
| `error` | why the system gave no answer |
| `model_usage`, `role_usage["judge"]` | billed tokens and money |
| `working_time` | latency in seconds, without waiting |
| `metadata.example` | the example as it was asked, so that importing gives it back |
| `metadata.context_bench` | tokens sent and forwarded, wire, errors of evaluators |
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from context_bench.core.keys import stable_hash
from context_bench.core.numbers import number
from context_bench.core.records import EvalRow
from context_bench.reports.json_document import Answered, Writable
from context_bench.reports.visible_text import json_line, unicode_safe

SCHEMA = "context-bench/inspect/1"
_ANSWER = 1000  # characters of an answer that is repeated beside its scores
_STATUS = {"done": "success", "running": "started"}
_REASONS = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls", "content_filter": "content_filter"}
_ROLES = {"system": "system", "developer": "system", "user": "user"}


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts that a log gives about its run. Times in seconds since the epoch; `status` as the store has it; `version`
    is ours.
    """

    run: str
    run_id: str
    status: str
    created: float
    finished: float
    system: str
    dataset: str
    version: str

    @property
    def id(self) -> str:
        """The same for the same run, system and dataset."""
        return stable_hash([self.run_id, self.system, self.dataset], 22)

    @property
    def file_name(self) -> str:
        """A name that Inspect lists: moment, dataset and system, id."""
        moment = datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%dT%H-%M-%S+00-00")
        return f"{moment}_{_slug(self.dataset or 'examples')}-{_slug(self.system)}_{self.id}.json"


def write_log(facts: LogFacts, rows: Iterable[EvalRow], answers: Iterable[Answered], stream: Writable) -> None:
    """Write one log: `rows` are read first, for the means, `answers` (of the same rows) second, one at a time."""
    sums = _Sums(rows)
    head: dict[str, Any] = {
        "version": 2,
        "status": _STATUS.get(facts.status, "cancelled"),
        "eval": _eval(facts, sums),
        "plan": {
            "name": "plan",
            "steps": [{"solver": "context_bench", "params": {"system": facts.system}}],
            "config": {},
        },
        "results": sums.results(),
        "stats": {
            "started_at": _moment(facts.created),
            "completed_at": _moment(facts.finished),
            "model_usage": sums.usage,
        },
    }
    stream.write("{\n")
    for name, value in head.items():
        stream.write(f'"{name}": {json_line(value)},\n')
    stream.write('"samples": [')
    seen: dict[tuple[str, int], int] = {}
    separator = "\n"
    for answered in answers:
        stream.write(separator + json_line(_sample(answered, facts, sums.model, seen)))
        separator = ",\n"
    stream.write("\n]\n}\n")


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")[:60] or "x"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


# --- the log as a whole
# ------------------------------------------------------------------------
class _Sums:
    """Means, usage and counts of the rows of one log; eight bytes per score."""

    def __init__(self, rows: Iterable[EvalRow]) -> None:
        self.rows = self.failed = self.trials = 0
        self.model: str | None = None
        self.usage: dict[str, dict[str, Any]] = {}
        self._scores: dict[str, tuple[array[float], array[int]]] = {}
        self._clusters: dict[str, int] = {}
        for row in rows:
            self._add(row)

    def _add(self, row: EvalRow) -> None:
        self.rows += 1
        self.failed += row.failed
        self.trials = max(self.trials, row.trial + 1)
        if self.model is None and isinstance(row.metadata.get("model"), str):
            self.model = row.metadata["model"]
        cluster = self._clusters.setdefault(repr(row.cluster or row.group or row.example_id), len(self._clusters))
        for name, value in row.scores.items():
            if (found := number(value)) is not None:
                values, clusters = self._scores.setdefault(name, (array("d"), array("q")))
                values.append(found)
                clusters.append(cluster)
        for name, used in _usages(row, self.model or "unknown").items():
            total = self.usage.setdefault(name, {})
            for key, amount in used.items():
                total[key] = total.get(key, 0) + amount

    def results(self) -> dict[str, Any]:
        """Mean and clustered standard error of every score."""
        return {
            "total_samples": self.rows,
            "completed_samples": self.rows - self.failed,
            "scores": [self._score(name, *kept) for name, kept in sorted(self._scores.items())],
        }

    def _score(self, name: str, values: array[float], clusters: array[int]) -> dict[str, Any]:
        from context_bench.stats import mean_se

        found = mean_se(values, clusters)
        metrics = {"mean": found.mean, "stderr": found.se}
        return {
            "name": name,
            "scorer": name,
            "scored_samples": found.n,
            "unscored_samples": self.rows - found.n,
            "params": {},
            "metrics": {
                key: {"name": key, "value": value, "params": {}} for key, value in metrics.items() if value is not None
            },
        }


def _eval(facts: LogFacts, sums: _Sums) -> dict[str, Any]:
    return {
        "eval_id": facts.id,
        "run_id": facts.run_id,
        "task_id": facts.id,
        "created": _moment(facts.created),
        "task": facts.dataset or "examples",
        "task_version": 0,
        "dataset": {"name": facts.dataset or "examples", "samples": -(-sums.rows // max(1, sums.trials))},
        "model": f"{facts.system}/{sums.model}" if sums.model else facts.system,
        "config": {
            "epochs": max(1, sums.trials),
            "epochs_reducer": ["mean"],
            "fail_on_error": False,
            "continue_on_fail": True,
        },
        "packages": {"context-bench-tool": facts.version},
        "metadata": {
            "context_bench": {
                "schema": SCHEMA,
                "run": facts.run,
                "system": facts.system,
                "dataset": facts.dataset,
                **({"model": sums.model} if sums.model else {}),
            }
        },
    }


def _usages(row: EvalRow, model: str) -> dict[str, dict[str, Any]]:
    """The measured model's usage by its name; the judge's is a role's, see `_sample`."""
    used = _usage(row.usage)
    return {model: used} if used else {}


def _usage(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens as Inspect counts them: what came from or went into a cache is no part of the input."""
    known = {key: found for key in values if (found := number(values[key])) is not None}
    if "input_tokens" not in known and "output_tokens" not in known:
        return {}
    whole, out = int(known.get("input_tokens", 0)), int(known.get("output_tokens", 0))
    cached = {"input_tokens_cache_read": known.get("cache_read"), "input_tokens_cache_write": known.get("cache_write")}
    told = {"input_tokens": max(0, whole - int(sum(value or 0 for value in cached.values()))), "output_tokens": out}
    more = {**cached, "reasoning_tokens": known.get("reasoning_tokens")}
    told |= {"total_tokens": whole + out, **{name: int(value) for name, value in more.items() if value is not None}}
    return {**told, **({"total_cost": known["cost"]} if "cost" in known else {})}


# --- samples
# ------------------------------------------------------------------------
def _sample(answered: Answered, facts: LogFacts, model: str | None, seen: dict[tuple[str, int], int]) -> dict[str, Any]:
    row = answered.row
    named = model or "unknown"
    judged = _usage(row.usage.get("judge") or {})
    question = answered.text("question") or answered.text("context") or ""
    gold = answered.gold
    sample: dict[str, Any] = {
        "id": _unique(row, seen),
        "epoch": row.trial + 1,
        "input": question,
        "choices": _choices(answered),
        "target": gold[0] if len(gold) == 1 else gold or "",
        "messages": _messages(answered),
        "output": _output(answered, named),
        "scores": {
            name: _score(value, answered.response) for name, value in row.scores.items() if number(value) is not None
        },
        "metadata": {"example": answered.example or {}, "context_bench": _facts(row, answered)},
        "model_usage": _usages(row, named),
        "role_usage": {"judge": judged} if judged else {},
        "working_time": number(row.latency),
        "total_time": number(row.latency),
        "uuid": stable_hash([facts.id, row.example_id, row.trial, len(seen)], 22),
    }
    if row.failed:
        sample["error"] = {"message": row.errors["system"], "traceback": "", "traceback_ansi": ""}
    return sample


def _unique(row: EvalRow, seen: dict[tuple[str, int], int]) -> str | int:
    """The example's id; where an id comes again, with its number (Inspect knows samples by id and epoch)."""
    key = (str(row.example_id), row.trial)
    seen[key] = times = seen.get(key, 0) + 1
    return row.example_id if times == 1 else f"{row.example_id}#{times}"


def _choices(answered: Answered) -> list[str] | None:
    found = (answered.example or {}).get("choices")
    return [str(choice) for choice in found] if isinstance(found, list) and found else None


def _score(value: Any, response: str | None) -> dict[str, Any]:
    short = response is not None and len(response) <= _ANSWER
    return {"value": number(value), **({"answer": response} if short else {})}


def _facts(row: EvalRow, answered: Answered) -> dict[str, Any]:
    more = {name: value for name, value in answered.output.items() if name != "response"}
    told = {
        **{"example_id": row.example_id, "dataset": row.dataset, "group": row.group, "cluster": row.cluster},
        **{
            "input_tokens": row.input_tokens,
            "output_tokens": row.output_tokens,
            "row": row.metadata,
            "wire": row.wire,
            "output": more,
        },
        "errors": {source: error for source, error in row.errors.items() if source != "system"},
    }
    return {name: value for name, value in told.items() if value not in (None, {})}


def _output(answered: Answered, model: str) -> dict[str, Any]:
    response = answered.response
    if response is None:
        return {"model": model, "choices": []}
    reason = _REASONS.get(str(answered.row.metadata.get("finish_reason")), "unknown")
    return {
        "model": model,
        "choices": [{"message": _answer(answered, response), "stop_reason": reason}],
        "completion": response,
        **({"usage": used} if (used := _usage(answered.row.usage)) else {}),
        "time": number(answered.row.latency),
    }


def _answer(answered: Answered, response: str) -> dict[str, Any]:
    calls = answered.output.get("tool_calls")
    made = (
        [_tool_call(call, i) for i, call in enumerate(calls) if isinstance(call, Mapping)]
        if isinstance(calls, list)
        else []
    )
    return {"role": "assistant", "content": response, "source": "generate", **({"tool_calls": made} if made else {})}


def _tool_call(call: Mapping[str, Any], position: int) -> dict[str, Any]:
    inner = call.get("function")
    asked: Mapping[str, Any] = inner if isinstance(inner, Mapping) else call
    arguments = asked.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"arguments": arguments}
    named = {
        "id": str(call.get("id") or f"call_{position}"),
        "function": str(asked.get("name") or ""),
        "type": "function",
    }
    return {**named, "arguments": dict(arguments) if isinstance(arguments, Mapping) else {}}


def _messages(answered: Answered) -> list[dict[str, Any]]:
    """The messages that were sent, as far as it was plain conversation; else context and question as the example has
    them.
    """
    sent = (answered.request or {}).get("messages")
    asked = [_message(message) for message in sent] if isinstance(sent, list) else []
    known = [message for message in asked if message is not None]
    if not known or len(known) < len(asked):
        parts = [part for name in ("context", "question") if (part := answered.text(name))]
        known = [{"role": "user", "content": "\n\n".join(parts), "source": "input"}]
    return known if answered.response is None else [*known, _answer(answered, answered.response)]


def _message(message: Any) -> dict[str, Any] | None:
    """A message of a request as Inspect has it; `None` for what is not plain text."""
    role = _ROLES.get(str(message.get("role"))) if isinstance(message, Mapping) else None
    content = _content(message.get("content")) if role is not None else None
    return None if content is None else {"role": role, "content": unicode_safe(content), "source": "input"}


def _content(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return None
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content]
    return (
        "\n".join(text for text in texts if isinstance(text, str))
        if all(isinstance(text, str) for text in texts)
        else None
    )
