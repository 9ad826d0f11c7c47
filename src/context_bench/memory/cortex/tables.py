"""The tables by category and against published numbers of cortex's evaluation harness, byte for byte, and what they leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import share
from context_bench.memory.cortex.recall import BenchmarkSummary, CategorySummary, percent, table_cell

#: The benchmarks whose columns a comparison has, in order, and the name of each in a summary.
BENCHMARKS = {"locomo": "LoCoMo", "longmemeval": "LongMemEval", "dmr": "DMR"}
THIS_RUN = "OpenClaw Cortex (this run)"

#: benchmark → the categories that its table prints, in order
_ROWS = {
    "locomo": ("single-hop", "multi-hop", "temporal"),
    "longmemeval": ("temporal", "multi-hop", "knowledge-update"),
    "dmr": ("1-hop", "2-hop", "3-hop", "4-hop", "5-hop"),
}
_WIDTHS = {"locomo": 11, "longmemeval": 16, "dmr": 8}


def format_category_table(benchmark: str, summary: BenchmarkSummary) -> str:
    """The original's table by category: exact match for "locomo" and "longmemeval", all measures for "dmr".

    Only the categories that the original prints; `format_other_categories` has the rest. Empty if there are no categories at all.
    """
    if not summary.category_breakdowns:
        return ""
    shown = [name for name in _ROWS[benchmark] if name in summary.category_breakdowns]
    return _categories(benchmark, {name: summary.category_breakdowns[name] for name in shown})


def format_other_categories(benchmark: str, summary: BenchmarkSummary) -> str:
    """The categories that the original computes and never prints, in the same columns; empty if there are none."""
    others = {name: part for name, part in sorted(summary.category_breakdowns.items()) if name not in _ROWS[benchmark]}
    return _categories(benchmark, others) if others else ""


def _categories(benchmark: str, parts: Mapping[str, CategorySummary]) -> str:
    width = _WIDTHS[benchmark]
    head, rule = f"| {'Category':<{width}} |", f"|{'-' * (width + 2)}|"
    if benchmark != "dmr":
        lines = [f"{head} Exact Match |", f"{rule}-------------|"]
        lines += [f"| {table_cell(name):<{width}} | {percent(part.exact_match_accuracy, 10)} |" for name, part in parts.items()]
    else:
        lines = [f"{head} Questions | Exact Match | Avg F1  | Recall@K |", f"{rule}-----------|-------------|---------|----------|"]
        lines += [
            f"| {table_cell(name):<{width}} | {part.total_questions:<9d} | {percent(part.exact_match_accuracy, 10)} | {part.avg_f1:.4f}  |"
            f" {percent(part.recall_at_k, 8)} |"  # one wider than its head, as the original prints it
            for name, part in parts.items()
        ]
    return "\n".join(lines) + "\n"


# Against published numbers --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compared:
    """Rows of published exact-match numbers (0 to 1; `None` = not measured), this run's last, and where they come from.

    `unstated`: the systems whose row does not say by which protocol it was measured.
    """

    rows: list[tuple[str, dict[str, float | None]]]
    sources: dict[str, str] = field(default_factory=dict)
    unstated: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """What `comparison.json` holds: `rows`, and `sources` if there are any."""
        rows = [{"system": name, **{f"{key}_em": measured[key] for key in BENCHMARKS}} for name, measured in self.rows]
        return {"rows": rows, **({"sources": dict(sorted(self.sources.items()))} if self.sources else {})}

    def markdown(self) -> str:
        """The heading, the four columns, and the sources."""
        lines = ["## Benchmark Comparison", "", "| System | LoCoMo EM | LongMemEval EM | DMR EM |"]
        lines.append("|--------|-----------|----------------|--------|")
        for name, measured in self.rows:
            cells = ["—" if measured[key] is None else percent(measured[key] or 0.0) for key in BENCHMARKS]
            lines.append(f"| {table_cell(name):<30} | {cells[0]:<9} | {cells[1]:<14} | {cells[2]:<6} |")
        if self.sources:
            order = [*(key for key in BENCHMARKS if key in self.sources), *sorted(self.sources.keys() - BENCHMARKS.keys())]
            lines += ["", "### Sources", "", *(f"- **{table_cell(key)}**: {table_cell(self.sources[key])}" for key in order)]
        return "\n".join(lines) + "\n"


def compared(baseline: Any, current: Any, name: str = THIS_RUN) -> Compared:
    """Published numbers beside those of one run.

    `baseline`: the object `{"systems": [{"name", "locomo_em", "longmemeval_em", "dmr_em"}], "sources": {…}}`, null or missing = not
    measured; `current`: an array of summaries or one summary, matched by name whatever its case, the last of equal names counting.
    A system or a summary may say `protocol`; `BadInput` if two rows say different ones, because then their numbers are not one table's.
    """
    systems = baseline.get("systems") if isinstance(baseline, Mapping) else None
    if not isinstance(systems, list):
        raise BadInput('the baseline is expected to be an object with a list "systems"')
    rows, protocols = [], {}
    for position, system in enumerate(systems):
        if not isinstance(system, Mapping) or not isinstance(system.get("name"), str):
            raise BadInput(f"baseline system {position}: expected an object with a name, found {_short(system)}")
        rows.append((system["name"], {key: _measured(system.get(f"{key}_em"), system["name"]) for key in BENCHMARKS}))
        protocols[system["name"]] = system.get("protocol")
    summaries = _summaries(current)
    latest = {str(summary["name"]).lower(): summary for summary in summaries}
    rows.append((name, {key: _measured(latest.get(key, {}).get("exact_match_accuracy"), name) for key in BENCHMARKS}))
    protocols |= {f"{name}, {summary['name']}": summary.get("protocol") for summary in summaries if summary.get("protocol")}
    _one_protocol(protocols)
    sources = baseline.get("sources") or {}
    if not isinstance(sources, Mapping):
        raise BadInput(f'the baseline\'s "sources" are expected to be an object, found {_short(sources)}')
    return Compared(rows, {str(key): str(text) for key, text in sources.items()}, [row for row, said in protocols.items() if not said])


def _summaries(current: Any) -> list[Mapping[str, Any]]:
    listed = current if isinstance(current, list) else [current]
    for summary in listed:
        if not isinstance(summary, Mapping) or not isinstance(summary.get("name"), str):
            raise BadInput(f"the run is expected to be a summary or a list of summaries, each with a name; found {_short(summary)}")
    return listed


def _measured(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if (found := share(value)) is None:
        raise BadInput(f"{name}: an accuracy is expected to be a number from 0 to 1, found {_short(value)}")
    return found


def _one_protocol(protocols: Mapping[str, Any]) -> None:
    """A protocol told part by part says what was measured under `system`, which may differ."""
    stated: dict[str, tuple[str, Any]] = {}
    for name, protocol in protocols.items():
        if isinstance(protocol, Mapping):
            protocol = {part: value for part, value in protocol.items() if part != "system"}
        if protocol:
            stated.setdefault(str(protocol), (name, protocol))
    if len(stated) > 1:
        told = [(name, protocol) for name, protocol in stated.values()]
        if all(isinstance(protocol, Mapping) for _, protocol in told):
            parts = dict.fromkeys(part for _, protocol in told for part in protocol)
            differing = [part for part in parts if len({str(protocol.get(part)) for _, protocol in told}) > 1]
            told = [(name, {part: protocol.get(part) for part in differing}) for name, protocol in told]
        said = "; ".join(f"{name}: {protocol if isinstance(protocol, str) else _short(protocol)}" for name, protocol in told)
        raise BadInput(f"these rows were measured by different protocols and are not put into one table: {said}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
