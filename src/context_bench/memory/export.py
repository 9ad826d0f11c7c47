"""A run of memories as a list of summaries, one a memory: what readers of the seed's evaluation files find at the same
places, and more.

The seed's fields (`name`, `total_questions`, `exact_match_accuracy`, …, `results`) mean what they mean there:
containment of the gold text in the best of all hits, so upper bounds, with failed recalls and questions without gold as
zeros. What to report stands in `metrics`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from context_bench.core.keys import stable_hash
from context_bench.core.numbers import real
from context_bench.core.records import Estimate, EvalRow, Result, SetupRecord
from context_bench.core.rows import cost_usd, qa_type, score, standing
from context_bench.memory.cortex.containment import BenchmarkResult, score_question, summarize
from context_bench.memory.figures import setup_figures
from context_bench.reports.declared import mapping
from context_bench.reports.json_document import Answered
from context_bench.reports.visible_text import json_ready

SCHEMA = "context-bench/memory/1"
_PER_K = ("hit", "recall", "all", "precision", "ndcg")
_TIMES = ("search", "answer", "overhead")
_PERCENTILES = ("p50", "p95", "p99", "n")


def memory_summary(result: Result, system: str, answers: Iterable[Answered], version: str) -> dict[str, Any]:
    """One memory of a run: the seed's summary, then protocol, counts, metrics with their intervals, latency, cost,
    storage, floors; and every question with its hits.

    `answers`: the system's rows with example and output, in order; `version`: of this package. What is not known is
    absent.
    """
    about = mapping(result.manifest.get("memory"))
    ks = [int(k) for k in about.get("k") or ()] or [10]
    results: list[dict[str, Any]] = []
    seeded: list[BenchmarkResult] = []
    counted = _Counted()
    for answered in answers:
        counted.add(answered.row)
        found = _seeded(answered, ks[-1])
        seeded.append(found)
        results.append({**found.as_dict(), **_more(answered, ks)})
    setups = [each for each in result.setups if each.system == system]
    summary = result.summary.get(system, {})
    run = mapping(result.manifest.get("run"))
    document = {
        **{
            key: value
            for key, value in summarize(system, seeded, ks[-1], counted.failed).as_dict().items()
            if key != "results"
        },
        "mode": mapping(result.manifest.get("options")).get("mode"),
        "schema": SCHEMA,
        "run_id": run.get("id"),
        "started": run.get("started"),
        "protocol": _protocol(result, system, version),
        "counts": counted.totals(standing(setups)),
        "metrics": {
            name: _interval(each) for name, each in result.estimates.get(system, {}).items() if name != "mean_score"
        },
        "by_category": counted.by_type(),
        "latency": _latency(summary),
        "cost": _cost(summary, counted),
        "storage": _picked(
            setup_figures(setups), ("items", "items_lost", "stored", "bytes", "bytes_per_item", "write_loss")
        ),
        "floors": _floors(result, system),
        "results": results,
    }
    return {name: json_ready(value) for name, value in document.items() if value is not None}


# --- a question ---


def _seeded(answered: Answered, k: int) -> BenchmarkResult:
    """The question by the seed's rules."""
    row, gold = answered.row, answered.gold
    texts = [str(hit.get("text") or "") for hit in _hits(answered)]
    kind = qa_type(row)
    category = "" if kind == "unknown" else kind
    return score_question(
        str(row.example_id), answered.text("question") or "", gold[0] if gold else "", texts, k, category
    )


def _more(answered: Answered, ks: Iterable[int]) -> dict[str, Any]:
    row = answered.row
    rank = score(row, "mrr")
    per_k = {
        str(k): {kind: value for kind in _PER_K if (value := score(row, f"{kind}_at_{k}")) is not None}
        for k in ks
        if not row.failed
    }
    judged = {name: value for name, value in row.scores.items() if name.startswith(("memory_judge", "judge_"))}
    times = {name: 1000 * value for name in _TIMES if (value := score(row, f"{name}_seconds")) is not None}
    told = {
        "trial": row.trial or None,
        "haystack_id": row.cluster if row.cluster is not None else row.group,
        "rank_of_first_gold": round(1 / rank) if rank else None,
        "hits": [_picked(hit, ("source_ids", "score", "tokens", "memory_id")) for hit in _hits(answered)],
        "per_k": {k: values for k, values in per_k.items() if values} or None,
        "answer": answered.response,
        "judge": judged or None,
        "error": "; ".join(f"{source}: {text}" for source, text in row.errors.items()) or None,
        "timings_ms": times or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _hits(answered: Answered) -> list[Mapping[str, Any]]:
    found = answered.output.get("hits")
    return [hit for hit in found if isinstance(hit, Mapping)] if isinstance(found, list) else []


# --- a memory ---


class _Counted:
    """Totals of rows: questions, failures by what failed, money, scores by type."""

    def __init__(self) -> None:
        self.questions = self.answered = self.failed = self.timeouts = 0
        self.cost: float | None = None
        self.types: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.asked: dict[str, int] = defaultdict(int)

    def add(self, row: EvalRow) -> None:
        self.questions += 1
        self.failed += row.failed
        self.answered += not row.failed
        self.timeouts += any(text.startswith("TimedOut") for text in row.errors.values())
        if (paid := cost_usd(row)) is not None:
            self.cost = (self.cost or 0.0) + paid
        kind = qa_type(row)
        self.asked[kind] += 1
        for name, value in row.scores.items():
            if (known := real(value)) is not None:
                self.types[kind][name].append(known)

    def totals(self, setups: Iterable[SetupRecord]) -> dict[str, int]:
        """Of questions, and of items that were not stored."""
        lost = sum(int(real(each.output.get("failed")) or 0) for each in setups)
        counts = {"questions": self.questions, "answered": self.answered, "recall_failures": self.failed}
        return {**counts, "store_failures": lost, "timeouts": self.timeouts}

    def by_type(self) -> dict[str, dict[str, Any]]:
        """Means of the scores of each type of question; `n` of each, since not every question has every score."""
        return {
            kind: {
                "questions": n,
                **{
                    name: {"mean": sum(known) / len(known), "n": len(known)} for name, known in self.types[kind].items()
                },
            }
            for kind, n in sorted(self.asked.items())
        }


def _protocol(result: Result, system: str, version: str) -> dict[str, Any]:
    """Everything that a number of this run depends on."""
    manifest = result.manifest
    options, about = mapping(manifest.get("options")), mapping(manifest.get("memory"))
    engine = mapping(manifest.get("engine"))
    fingerprint = next(
        (
            mapping(each.get("fingerprint"))
            for each in engine.get("systems") or []
            if mapping(each).get("name") == system
        ),
        {},
    )
    reader = mapping(fingerprint.get("reader"))
    can = _picked({"capabilities": mapping(about.get("capabilities")).get(system)}, ("capabilities",))
    datasets = [
        {
            **_picked(mapping(each), ("name", "sha256", "revision", "split", "overlay", "mode", "qa_types")),
            "n": mapping(each).get("used"),
        }
        for each in manifest.get("datasets") or []
    ]
    judge = {"url": options.get("judge_url"), "model": options.get("judge_model"), "calibration": about.get("judge")}
    return {
        "dataset": datasets[0] if len(datasets) == 1 else datasets,
        "system": {
            "name": system,
            "config_hash": stable_hash(fingerprint, 16),
            "config": mapping(fingerprint.get("memory")),
            **can,
        },
        "reader": {**reader, "prompt_sha": fingerprint.get("prompt"), "temperature": options.get("temperature")}
        if reader
        else None,
        "judge": judge if judge["url"] else None,
        "k": about.get("k"),
        "budgets": about.get("budget_tokens"),
        "mode": options.get("mode"),
        "seed": options.get("seed"),
        "trials": options.get("trials"),
        "harness": {"name": "context-bench", "version": version},
    }


def _interval(known: Estimate) -> dict[str, Any]:
    return {"mean": known.value, "ci_low": known.low, "ci_high": known.high, "n": known.n}


def _latency(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of single calls."""
    stages = ("search", "search_first", "answer", "overhead", "ingest")
    found = {
        stage: _picked({label: summary.get(f"{stage}_{label}") for label in _PERCENTILES}, _PERCENTILES)
        for stage in stages
    }
    found["ingest"] |= _picked({"items_per_second": summary.get("ingest_items_per_second")}, ("items_per_second",))
    return {stage: values for stage, values in found.items() if values}


def _cost(summary: Mapping[str, Any], counted: _Counted) -> dict[str, Any]:
    told = {
        name.removeprefix("setup_"): summary.get(name)
        for name in ("setup_calls", "setup_input_tokens", "setup_output_tokens")
    }
    setup = _picked({**told, "usd": summary.get("setup_cost")}, ("calls", "input_tokens", "output_tokens", "usd"))
    questions = _picked({"usd": counted.cost, **{name: summary.get(name) for name in _PAID}}, ("usd", *_PAID))
    return {"ingest": setup, "questions": questions}


_PAID = ("retrieved_tokens", "context_share", "score_per_1k_tokens", "tokens_per_fact_used", "usd_per_fact_used")


def _floors(result: Result, system: str) -> dict[str, dict[str, float]]:
    """The means of the floors and ceilings of the same run, under the names of `metrics`."""
    names = mapping(result.manifest.get("memory")).get("floors") or []
    return {
        name: {metric: each.value for metric, each in result.estimates.get(name, {}).items() if metric != "mean_score"}
        for name in names
        if name != system and name in result.summary
    }


def _picked(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name) is not None}
