"""Recall by containment, as cortex's evaluation harness counts it: the expected text is inside a recalled one.

Read three things before quoting a number. `retrieved` is the best of all candidates, chosen by an oracle that sees the
expected text. So `exact_match` and `f1_score` are upper bounds, and no precision at rank 1. Containment is of
characters: "Go" is inside "Mongoose" (`word_match` asks for whole words). Tokens are ASCII: a gold answer in Chinese or
Greek has F1 0 everywhere, so that the first candidate stands for all.

The tables by category, and those against published numbers, are the harness's byte for byte, with a list of what they
leave out. Source of the formulas: openclaw-cortex, `eval/runner`, v0.10.0 and v0.11.0, whose functions of these names
agree in both.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from context_bench.core.errors import BadInput
from context_bench.core.numbers import share
from context_bench.core.text import words

UNCATEGORIZED = "uncategorized"
_TOKEN = re.compile(r"[a-z0-9']+")


@runtime_checkable
class Client(Protocol):
    """A memory as three calls. Any of them may raise; plain or async."""

    def reset(self) -> Any:
        """Forget everything."""

    def store(self, content: str) -> Any:
        """Remember one text."""

    def recall(self, query: str, limit: int) -> Any:
        """The texts that answer the query, best first, at most `limit`."""


# Texts
# ------------------------------------------------------------------------
def simple_lower(text: str) -> str:
    """Lower case, one character for one: unlike `str.lower`, İ gives one letter and Σ is σ at the end of a word too."""
    return text.lower() if text.isascii() else "".join(char.lower()[0] for char in text)


def tokenize(text: str) -> list[str]:
    """Runs of a–z, 0–9 and the straight apostrophe in the lower-cased text; all else separates, letters of other
    scripts included.
    """
    return _TOKEN.findall(simple_lower(text))


def exact_match(retrieved: str, ground_truth: str) -> bool:
    """True if `retrieved` contains `ground_truth`, whatever the case; false for an empty ground truth."""
    return bool(ground_truth) and simple_lower(ground_truth) in simple_lower(retrieved)


def word_match(retrieved: str, ground_truth: str) -> bool:
    """`exact_match` that does not begin or end inside a word: "go" is not in "Mongoose", "89" not in "1789".

    In scripts written without spaces any place counts.
    """
    text, gold = simple_lower(retrieved), simple_lower(ground_truth).strip()
    at = text.find(gold) if gold else -1
    while at >= 0:
        if not _joined(text[at - 1 : at], gold[0]) and not _joined(gold[-1], text[at + len(gold) :][:1]):
            return True
        at = text.find(gold, at + 1)
    return False


def _joined(left: str, right: str) -> bool:
    return left.isalnum() and right.isalnum() and len(words(left + right)) == 1


def token_f1(retrieved: str, ground_truth: str) -> float:
    """Harmonic mean of token precision and recall, 0 to 1, tokens counted as often as they occur; 0.0 where either side
    has none.
    """
    overlap, found, wanted = _overlap(retrieved, ground_truth)
    if not overlap:
        return 0.0
    precision, recall = overlap / found, overlap / wanted
    return 2 * precision * recall / (precision + recall)


def _overlap(retrieved: str, ground_truth: str) -> tuple[int, int, int]:
    found, wanted = tokenize(retrieved), tokenize(ground_truth)
    return (Counter(found) & Counter(wanted)).total(), len(found), len(wanted)


# Lists of candidates
# ------------------------------------------------------------------------
def recall_at_k(memories: Sequence[str] | None, ground_truth: str, k: int) -> bool:
    """True if one of the first `k` memories contains the ground truth; false for k ≤ 0."""
    return any(exact_match(memory, ground_truth) for memory in (memories or ())[: max(0, k)])


def best_candidate(memories: Sequence[str] | None, ground_truth: str) -> str:
    """The memory with the highest token F1; of equals, and where all have 0, the first; "" if there is none."""
    return max(memories or ("",), key=lambda memory: token_f1(memory, ground_truth))


# Records
# ------------------------------------------------------------------------
class _Written:
    def as_dict(self) -> dict[str, Any]:
        """The fields in their documented order."""
        return _plain(self)

    def to_json(self) -> str:
        """`as_dict` as JSON, indented by two, no newline at its end."""
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)


@dataclass(slots=True)
class BenchmarkResult(_Written):
    """One question: what was the best of what came back, and was the answer in it?"""

    question_id: str
    question: str
    ground_truth: str
    retrieved: str = ""
    exact_match: bool = False
    f1_score: float = 0.0
    recalled_at_k: bool = False
    category: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The fields in their documented order; `category` is left out when empty."""
        return _plain(self, optional=("category",))

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> BenchmarkResult:
        """From what `as_dict` wrote; unknown fields are passed over."""
        return cls(**_fields_of(cls, {"question_id": "", "question": "", "ground_truth": "", **given}))


@dataclass(slots=True)
class CategorySummary(_Written):
    """Means over the questions of one category, 0 to 1."""

    total_questions: int
    exact_match_accuracy: float
    avg_f1: float
    recall_at_k: float


@dataclass(slots=True)
class BenchmarkSummary(_Written):
    """Means over all questions, 0 to 1. Those whose recall failed are in them as zeros: `recall_failures` says how
    many.

    `mode`: "per-pair-reset" or "accumulate". `recall_at_k2`, `k2`: the same recall at a second depth.
    """

    name: str
    total_questions: int = 0
    exact_match_accuracy: float = 0.0
    avg_f1: float = 0.0
    recall_at_k: float = 0.0
    k: int = 0
    recall_failures: int = 0
    results: list[BenchmarkResult] = field(default_factory=list)
    mode: str = ""
    recall_at_k2: float = 0.0
    k2: int = 0
    category_breakdowns: dict[str, CategorySummary] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The fields in their documented order; what is optional is left out when empty or 0, `results` is `None` when
        there are none.
        """
        written = _plain(self, optional=("recall_failures", "mode", "recall_at_k2", "k2", "category_breakdowns"))
        written["results"] = [result.as_dict() for result in self.results] or None
        if self.category_breakdowns:
            written["category_breakdowns"] = {
                name: part.as_dict() for name, part in sorted(self.category_breakdowns.items())
            }
        return written

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> BenchmarkSummary:
        """From what `as_dict` wrote (a null list is an empty one); `BadInput` for what is no summary."""
        try:
            read = _fields_of(cls, {"name": "", **given})
            read["results"] = [BenchmarkResult.from_dict(result) for result in given.get("results") or []]
            parts = given.get("category_breakdowns") or {}
            read["category_breakdowns"] = {
                name: CategorySummary(**_fields_of(CategorySummary, part)) for name, part in parts.items()
            }
        except (AttributeError, TypeError) as error:
            raise BadInput(f"not a summary of a memory benchmark: {error}") from None
        return cls(**read)


def _plain(record: Any, optional: Sequence[str] = ()) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {name: value for name, value in values.items() if value or name not in optional}


def _fields_of(cls: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in cls.__dataclass_fields__ and value is not None}


def summaries_json(summaries: Iterable[BenchmarkSummary]) -> str:
    """The file that the harness writes: a JSON array, indented by two, no newline at its end."""
    return json.dumps([summary.as_dict() for summary in summaries], indent=2, ensure_ascii=False, allow_nan=False)


# Scores
# ------------------------------------------------------------------------
def score_question(
    question_id: str, question: str, ground_truth: str, memories: Sequence[str] | None, k: int, category: str = ""
) -> BenchmarkResult:
    """One question against everything that came back: the best candidate is sought in the whole list, recall in its
    first `k`.
    """
    best = best_candidate(memories, ground_truth)
    return BenchmarkResult(
        question_id=question_id,
        question=question,
        ground_truth=ground_truth,
        retrieved=best,
        exact_match=exact_match(best, ground_truth),
        f1_score=token_f1(best, ground_truth),
        recalled_at_k=recall_at_k(memories, ground_truth, k),
        category=category,
    )


def summarize(
    name: str, results: Sequence[BenchmarkResult] | None, k: int, recall_failures: int = 0, k2: int = 0
) -> BenchmarkSummary:
    """Plain means over all results, and by category if any result has one (those without are `uncategorized`).

    `k2` ≥ `k` copies recall at k, as the original does, because results carry no ranks; a measured one comes from
    `run_harness`.
    """
    results = list(results or [])
    summary = BenchmarkSummary(name, k=k, recall_failures=recall_failures, results=results)
    if not results:
        return summary
    whole = _means(results)
    summary.total_questions, summary.exact_match_accuracy = whole.total_questions, whole.exact_match_accuracy
    summary.avg_f1, summary.recall_at_k = whole.avg_f1, whole.recall_at_k
    if any(result.category for result in results):
        names = sorted({result.category or UNCATEGORIZED for result in results})
        summary.category_breakdowns = {
            category: _means([result for result in results if (result.category or UNCATEGORIZED) == category])
            for category in names
        }
    if k2 > 0 and k2 >= k:
        summary.recall_at_k2, summary.k2 = summary.recall_at_k, k2
    return summary


def _means(results: Sequence[BenchmarkResult]) -> CategorySummary:
    count = len(results)
    return CategorySummary(
        total_questions=count,
        exact_match_accuracy=sum(result.exact_match for result in results) / count,
        avg_f1=sum(result.f1_score for result in results) / count,
        recall_at_k=sum(result.recalled_at_k for result in results) / count,
    )


# The table
# ------------------------------------------------------------------------
def table_cell(text: str) -> str:
    """Text of others inside a table: one line, no bar, nothing that steers a terminal."""
    return "".join(char if char.isprintable() else " " for char in text).replace("|", "\\|")


def percent(value: float, width: int = 0) -> str:
    """A share as a percentage with one decimal, at least `width` characters before the sign."""
    return f"{value * 100:>{width}.1f}%"


def format_markdown_table(summaries: Sequence[BenchmarkSummary | None], k: int) -> str:
    """One row a summary; `k` only names the column. A second recall column appears if some summary has a recall at k2
    above 0.
    """
    given = [summary for summary in summaries if summary is not None]
    second = next((summary for summary in given if summary.recall_at_k2 > 0), None)
    labels = [f"Recall@{k}", *([f"Recall@{second.k2 or 'K2'}"] if second else [])]
    lines = [
        "| " + " | ".join(["Benchmark     ", "Questions", "Exact Match", "Avg F1 ", *labels]) + " |",
        "|" + "|".join("-" * width for width in (16, 11, 13, 9, *(len(label) + 2 for label in labels))) + "|",
    ]
    for one in given:
        recalls = zip((one.recall_at_k, one.recall_at_k2), labels, strict=False)
        shares = " | ".join(percent(value, len(label) - 1) for value, label in recalls)
        exact = percent(one.exact_match_accuracy, 10)
        lines.append(
            f"| {table_cell(one.name):<14} | {one.total_questions:<9d} | {exact} | {one.avg_f1:.4f}  | {shares} |"
        )
    return "\n".join(lines) + "\n"


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

    Only the categories that the original prints; `format_other_categories` has the rest. Empty if there are no
    categories at all.
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
        lines += [
            f"| {table_cell(name):<{width}} | {percent(part.exact_match_accuracy, 10)} |"
            for name, part in parts.items()
        ]
    else:
        lines = [
            f"{head} Questions | Exact Match | Avg F1  | Recall@K |",
            f"{rule}-----------|-------------|---------|----------|",
        ]
        lines += [
            f"| {table_cell(name):<{width}} | {part.total_questions:<9d} | {percent(part.exact_match_accuracy, 10)} | "
            f"{part.avg_f1:.4f}  |"
            f" {percent(part.recall_at_k, 8)} |"  # one wider than its head, as the original prints it
            for name, part in parts.items()
        ]
    return "\n".join(lines) + "\n"


# Against published numbers
# ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Compared:
    """Rows of published exact-match numbers (0 to 1; `None` = not measured), this run's last, and where they come from.

    `unstated`: the systems whose row does not say by which protocol it was measured.
    """

    rows: list[tuple[str, dict[str, float | None]]]
    sources: dict[str, str] = field(default_factory=dict)
    unstated: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The content of `comparison.json`: `rows`, and `sources` if there are any."""
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
            order = [
                *(key for key in BENCHMARKS if key in self.sources),
                *sorted(self.sources.keys() - BENCHMARKS.keys()),
            ]
            lines += [
                "",
                "### Sources",
                "",
                *(f"- **{table_cell(key)}**: {table_cell(self.sources[key])}" for key in order),
            ]
        return "\n".join(lines) + "\n"


def compared(baseline: Any, current: Any, name: str = THIS_RUN) -> Compared:
    """Published numbers beside those of one run.

    `baseline`: the object `{"systems": [{"name", "locomo_em", "longmemeval_em", "dmr_em"}], "sources": {…}}`, null or
    missing = not measured; `current`: an array of summaries or one summary, matched by name whatever its case, the last
    of equal names counting. A system or a summary may say `protocol`; `BadInput` if two rows say different ones,
    because then their numbers are not one table's.
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
    protocols |= {
        f"{name}, {summary['name']}": summary.get("protocol") for summary in summaries if summary.get("protocol")
    }
    _one_protocol(protocols)
    sources = baseline.get("sources") or {}
    if not isinstance(sources, Mapping):
        raise BadInput(f'the baseline\'s "sources" are expected to be an object, found {_short(sources)}')
    return Compared(
        rows,
        {str(key): str(text) for key, text in sources.items()},
        [row for row, said in protocols.items() if not said],
    )


def _summaries(current: Any) -> list[Mapping[str, Any]]:
    listed = current if isinstance(current, list) else [current]
    for summary in listed:
        if not isinstance(summary, Mapping) or not isinstance(summary.get("name"), str):
            raise BadInput(
                f"the run is expected to be a summary or a list of summaries, each with a name; found {_short(summary)}"
            )
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
        said = "; ".join(
            f"{name}: {protocol if isinstance(protocol, str) else _short(protocol)}" for name, protocol in told
        )
        raise BadInput(f"these rows were measured by different protocols and are not put into one table: {said}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
