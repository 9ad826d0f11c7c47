"""A result as JSON: always valid for strict parsers, always in the same order, and what was not measured is absent.

JSON lines are one object per row, with example and answer, read and written one at a time.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from context_bench.core.records import EvalRow, Example, SetupRecord
from context_bench.core.rows import limit_notes, note, standing, totals
from context_bench.reports.page import Page
from context_bench.reports.sections import setup_facts
from context_bench.reports.visible_text import json_line, json_ready

SCHEMA = "context-bench/result/1"

#: Left out of canonical JSON, since they differ between two equal runs: times (in scores only what ends in `_seconds`)
#: …
_TIMES = re.compile(
    "(age|attempts|duration|elapsed|in_flight|late|latency|latencies|resumed|retries|seconds|timestamp|timing|ttft|waited|wall)"
    "|.*_(at|seconds|latency|ms|ttft|date)|(latency|seconds|ttft)_.*|(search|answer|overhead)_(first_)?p[0-9]+|ingest_.*"
)
#: … and the occasion, outside rows.
_OCCASION = re.compile(
    "at|created|date|ended|finished|host|hostname|id|pid|run|run_id|run_name|started|stopped|store|time|updated|when"
)
#: … and what counts attempts on the wire: a request that was tried twice came twice.
_ATTEMPTS = ("calls", "client_calls", "calls_per_request", "bytes", "prefix_tokens")
#: … and of a row what a tap made with a key of its own, which ends with the tap.
_KEYED = ("arrived_as",)
_FIGURES = "families"  # stands for the figures of families, each of which is written under its own key
_TOP = (
    *("schema", "summary", "estimates", "comparisons", "lifts", "by_type", "wire"),
    _FIGURES,
    *("setup", "setups", "labels"),
    *("failures", "notes", "timing", "config", "manifest"),
)


class Writable(Protocol):
    """Target of text: a file, standard output, `io.StringIO`."""

    def write(self, text: str, /) -> Any: ...


def render(page: Page, *, canonical: bool = False) -> str:
    """The whole document as one string."""
    stream = io.StringIO()
    write_json(page, stream, canonical=canonical)
    return stream.getvalue()


#: Words of people on a row, `tags` and `note`, where there are any.
Remarks = Callable[[EvalRow], Mapping[str, Any]]


def write_json(
    page: Page,
    stream: Writable,
    *,
    canonical: bool = False,
    labels: Mapping[str, Any] | None = None,
    remarks: Remarks | None = None,
) -> None:
    """Write the document; rows are read and written one at a time, one per line, last.

    With `canonical`, two runs that found the same give the same bytes: no times, latencies, dates, run names or
    retries; keys sorted. `labels` are the title and tags of the run: they, and what was written on a row, are there
    only where somebody wrote something.
    """
    head = _stable_head(_document(_unhindered(_unrepeated(page)))) if canonical else _document(page)
    if labels:
        head["labels"] = dict(labels)
    stream.write("{\n")
    order = [key for name in _TOP for key in (sorted(page.families) if name == _FIGURES else [name])]
    for name in order:
        if name in head:
            text = json.dumps(head[name], indent=2, allow_nan=False, ensure_ascii=False, sort_keys=canonical).replace(
                "\n", "\n  "
            )
            stream.write(f"  {json.dumps(name)}: {text},\n")
    stream.write('  "rows": [')
    stable = json.JSONEncoder(allow_nan=False, ensure_ascii=False, sort_keys=True).encode
    separator = "\n"
    for row in page.rows:
        line = stable(_stable_row(row_record(row))) if canonical else json_line(_row_fields(row))
        stream.write(f"{separator}    {_remarked(line, row, remarks)}")
        separator = ",\n"
    stream.write(("]" if separator == "\n" else "\n  ]") + "\n}\n")


def _document(page: Page) -> dict[str, Any]:
    document = {
        "schema": SCHEMA,
        "summary": page.summary,
        "estimates": page.estimates,
        "comparisons": page.comparisons,
        **({"by_type": page.by_type} if page.by_type else {}),
        **({"lifts": page.lifts} if page.lifts else {}),
        "wire": page.wire,
        "failures": page.failures,
        "notes": page.notes,
        "timing": page.timing,
        "config": page.config,
        "manifest": page.manifest,
        **{key: figures for key, figures in page.families.items() if figures},
        **({"setup": page.setup, "setups": [_setup_record(each) for each in page.setups]} if page.setups else {}),
    }
    return {name: json_ready(value) for name, value in document.items()}


def _setup_record(record: SetupRecord) -> dict[str, Any]:
    """A set-up as JSON values; empty ones are absent."""
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {name: value for name, value in values.items() if value is not None and value != {}}


def _unrepeated(page: Page) -> Page:
    """The page as if no group had been set up more than once, as in a run that was never interrupted."""
    if not page.setups:
        return page
    last = [replace(each, attempt=1) for each in standing(page.setups)]
    own = {system: totals([each for each in last if each.system == system]) for system in page.setup}
    summary = {system: {**values, **own.get(system, {})} for system, values in page.summary.items()}
    said = note(page.setups)
    notes = [each for each in page.notes if each != said]
    return replace(page, summary=summary, setup=setup_facts(last), setups=last, notes=notes)


def _unhindered(page: Page) -> Page:
    """The page without how many requests endpoints were sent at once, and when: that is a matter of the day."""
    told = ("limits", "loads")
    if not any(name in page.manifest for name in told):
        return page
    said = limit_notes(page.manifest)
    manifest = {name: value for name, value in page.manifest.items() if name not in told}
    return replace(page, manifest=manifest, notes=[each for each in page.notes if each not in said])


def row_record(row: EvalRow) -> dict[str, Any]:
    """A row as JSON values: the documented fields first; unknown ones, and empty ones that are not documented, are
    absent.
    """
    ready: dict[str, Any] = json_ready(_row_fields(row))
    return ready


def _row_fields(row: EvalRow) -> dict[str, Any]:
    values = {
        "system": row.system,
        "example_id": row.example_id,
        "dataset": row.dataset,
        "scores": row.scores,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "latency": row.latency,
        "metadata": row.metadata,
        "trial": row.trial,
        "group": row.group,
        "cluster": row.cluster,
    }
    more = {"errors": row.errors, "usage": row.usage, "wire": row.wire}
    return {**values, **{name: value for name, value in more.items() if value}}


def _remarked(line: str, row: EvalRow, remarks: Remarks | None) -> str:
    """A row's line of JSON with what people wrote on the row, as they wrote it."""
    written = remarks(row) if remarks is not None else None
    return f"{line[:-1]}, {json.dumps(written, ensure_ascii=False)[1:]}" if written else line


def _stable(value: Any, name: str = "", *, in_row: bool = False) -> Any:
    """`value` without what differs between equal runs; names of scores, systems and failures are data and stay."""
    if isinstance(value, list):
        return [_stable(item, in_row=in_row) for item in value if not _timed(item)]
    if isinstance(value, Mapping) and name == "scores":
        return {
            key: item for key, item in value.items() if not key.endswith("_seconds")
        }  # an evaluator that took a time
    if not isinstance(value, Mapping) or name in ("errors", "failures"):
        return value
    if name in ("summary", "estimates", "wire") and not in_row:
        return {key: _stable(item) for key, item in value.items()}  # keyed by system
    return {key: _stable(item, key, in_row=in_row) for key, item in value.items() if not _volatile(key, in_row)}


def _stable_head(document: dict[str, Any]) -> Any:
    """All but the rows, without times, occasions and attempts."""
    return _stable(
        {**document, "wire": {system: _without(told, _ATTEMPTS) for system, told in document["wire"].items()}}
    )


def _stable_row(record: dict[str, Any]) -> dict[str, Any]:
    """A row without times and attempts; what is empty without them is left out. For equal answers a judge is paid once:
    by any of them.
    """
    record["usage"] = _without(record.get("usage", {}), ("calls", "judge"))
    record["wire"] = _without(record.get("wire", {}), (*_ATTEMPTS, *_KEYED))
    kept: dict[str, Any] = _stable(record, in_row=True)
    return {name: value for name, value in kept.items() if value or name not in ("errors", "usage", "wire")}


def _without(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _timed(item: Any) -> bool:
    """True for a comparison of latencies."""
    return (
        isinstance(item, Mapping) and isinstance(metric := item.get("metric"), str) and _volatile(metric, in_row=True)
    )


def _volatile(name: str, in_row: bool) -> bool:
    return bool(_TIMES.fullmatch(name)) or (not in_row and bool(_OCCASION.fullmatch(name)))


@dataclass(slots=True)
class Answered:
    """`example` as the system got it (`None` where the run kept none), `output` what the system added to it, `request`
    the body that was sent first (`None` where there was none, or it was not kept).
    """

    row: EvalRow
    example: Example | None
    output: Example
    request: dict[str, Any] | None = None

    @property
    def response(self) -> str | None:
        """The answer as text; `None` where the system gave none."""
        found = self.output.get("response")
        return None if found is None else str(found)

    @property
    def gold(self) -> list[str]:
        """The right answers, each once."""
        example = self.example or {}
        return list(dict.fromkeys(text for name in ("answer", "answers") for text in _texts(example.get(name))))

    def text(self, name: str) -> str | None:
        """A field of the example, if it is there and text."""
        found = (self.example or {}).get(name)
        return found if isinstance(found, str) else None


def _texts(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, dict):
        return _texts(value.get("text"))
    return [] if value is None else [str(value)]


def write_jsonl(answers: Iterable[Answered], stream: Writable, remarks: Remarks | None = None) -> None:
    """One line per row: the fields of a row in the JSON report, then `response`, what else the system gave back under
    `output`, and `example` as it was asked; `tags` and `note` where somebody wrote some. What is not known or was not
    kept is absent.
    """
    for answered in answers:
        stream.write(_remarked(json_line(_fields(answered)), answered.row, remarks) + "\n")


def _fields(answered: Answered) -> dict[str, Any]:
    more = {name: value for name, value in answered.output.items() if name != "response"}
    told = {"response": answered.response, "output": more or None, "example": answered.example}
    return {**_row_fields(answered.row), **told}
