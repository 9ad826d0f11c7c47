"""The record of the family *memory*: what memories find of the conversations that they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from context_bench.core.families import Command, Datasets, Export, Family, Sections, Stored
from context_bench.core.lazy import DeclaredNames, deferred
from context_bench.core.records import EvalRow, Result

__all__ = ["FAMILY"]

_FOLDER = Path(__file__).parent
#: Scores that only runs of memories have.
_SCORES = frozenset(
    ("hit_count", "retrieved_tokens", "evidence_found", "session_mrr", "abstained", "answer_current", "stale_in_top_k")
)
#: Figures of set-ups that the sections on memories show; those of scores and metrics have their place declared.
_OF_SETUPS = frozenset(
    (
        *("items", "items_lost", "stored", "bytes", "bytes_per_item", "write_loss"),
        *(f"ingest_{amount}" for amount in ("seconds_per_item", "items_per_second", "first", "p50", "p95", "p99")),
    )
)


def _notes(result: Result, about: Mapping[str, Any], score_field: str | None) -> tuple[list[str], list[str]]:
    """The sentences that stand above the numbers of a memory run, and those about dirt in its data."""
    from context_bench.core.roles import roles_in
    from context_bench.memory.figures import dirt_note, memory_notes

    def rows(system: str) -> Iterator[EvalRow]:
        return (row for row in result.rows if row.system == system)

    threshold = result.manifest.get("options", {}).get("threshold", 0.7)
    by_system = {name: rows(name) for name in result.summary}
    roles = roles_in(result.manifest, result.summary)
    above = memory_notes(
        by_system, about, score_field=score_field, setups=result.setups, threshold=threshold, roles=roles
    )
    dirt = [text for dataset in result.manifest.get("datasets") or [] if (text := dirt_note(dataset))]
    return [*above, *([about["judge"]] if about.get("judge") else [])], dirt


def _complete(result: Result, about: Mapping[str, Any], stored: Stored) -> None:
    """`config` as `evaluate_memory` gives it: its examples are conversations."""
    from context_bench.engine.store.run_records import examples_planned

    result.config = {**result.config, "num_examples": examples_planned(stored.store, stored.id, groups=True)}
    result.config.pop("max_workers", None)


def _apart(context: Any, name: str) -> bool:
    by_type = name.startswith(f"{context.score_field}_") and name not in context.aggregates.score_names
    return by_type or context.measure(name).place == "memory"


def _below(result: Any) -> str:
    """The table by kind of question."""
    from context_bench.memory.sections import per_qa_type

    field = (result.manifest.get("margin") or {}).get("score_field") or "f1"
    return f"\n{found}" if (found := per_qa_type(result.summary, field)) else ""


def _export(
    result: Any, answers: Callable[[str | None], Iterable[Any]], systems: list[str] | None, stream: Any
) -> None:
    """For each question what was found, with its evidence, the answer and the scores."""
    import json

    from context_bench import __version__
    from context_bench.memory.export import memory_summary

    names = systems or list(dict.fromkeys(name for cell in result.manifest["cells"] for name in cell["systems"]))
    found = [memory_summary(result, name, answers(name), __version__) for name in names]
    stream.write(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))


FAMILY = Family(
    name="memory",
    manifest_key="memory",
    commands={
        "memory": Command(
            "context_bench.memory.command.app:app",
            "Measure memories: run, doctor, ops, audit.",
            after="agent",
            default="run",
        ),
    },
    offers={
        "memories": "context_bench.memory.systems:BUILTINS",
        "memory_schemes": "context_bench.memory.systems:SCHEMES",
    },
    datasets=Datasets(
        "memory:",
        owns=deferred("context_bench.memory.datasets:is_memory"),
        load=deferred("context_bench.memory.datasets:memory_examples"),
        names=deferred("context_bench.memory.datasets:memory_names"),
        describe=deferred("context_bench.memory.datasets:about_memory"),
    ),
    # Each file of these folders declares its names.
    evaluators=DeclaredNames("context_bench.memory.evaluators", f"{_FOLDER}/evaluators", "EVALUATORS"),
    metrics=DeclaredNames("context_bench.memory.metrics", f"{_FOLDER}/metrics", "METRICS"),
    notes=_notes,
    complete=_complete,
    setup_totals=deferred("context_bench.memory.figures:setup_figures"),
    checks={"memory": "context_bench.memory.ops:grade_checks"},
    in_order=frozenset(("full_context", "oracle")),  # what they hand over is in the order of the conversation
    by_cluster=True,
    large_controls=True,
    sections=Sections(
        build=deferred("context_bench.memory.sections:memory"),
        belongs=lambda context: not _SCORES.isdisjoint(context.aggregates.score_names),
        shown=_OF_SETUPS,
        apart=_apart,
        alone="--floors runs what it can be compared with",
        below=_below,
        row=deferred("context_bench.memory.sections:found_and_missed"),
    ),
    exports={
        "memory": Export(
            _export, "measured no memories (context-bench memory does); --format json has what it found", newline=True
        )
    },
)
