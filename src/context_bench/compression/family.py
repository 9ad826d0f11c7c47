"""The record of the family *compression*: what compressors leave of recorded sessions, asked by probes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from context_bench.compression.compressors import COMPRESSORS
from context_bench.core.families import Command, Export, Family, Sections, Stored
from context_bench.core.lazy import DeclaredNames, deferred
from context_bench.core.records import Result

__all__ = ["FAMILY"]


def _complete(result: Result, about: Mapping[str, Any], stored: Stored) -> None:
    from context_bench.compression.figures import add_compression

    add_compression(result, about, ((each.row, each.example, each.output) for each in stored.answers()))


def _build(material: Any) -> list[Any]:
    from context_bench.compression.sections import compression

    return compression(material)


def _facts(material: Any) -> list[tuple[str, Any]]:
    from context_bench.compression.sections import run_facts

    return run_facts(material)


def _graded(material: Any) -> str:
    from context_bench.compression.sections import grader

    return f" Graded by: {grader(material)}."


def _notes(result: Result, about: Mapping[str, Any], score_field: str | None) -> tuple[list[str], list[str]]:
    if not about.get("commands_unread"):
        return [], []
    return [], [
        "Shell commands in the sessions were not read, for the extra `traces` was not installed: files that only "
        "commands touched are in no probe and in no sentence reader's answer. With it the same sessions give other "
        "probes, and other scores."
    ]


@lru_cache(maxsize=1)
def _scores() -> frozenset[str]:
    """Scores that only runs over probes have."""
    from context_bench.core.rubric import default_rubric

    rubric = default_rubric()
    own = ("probe_rating", "probe_recall", "probe_contradiction", "pass_rate")
    return frozenset(
        (*own, *(dimension.id for dimension in rubric.dimensions), *(criterion.id for criterion in rubric.criteria))
    )


def _export(
    result: Any, answers: Callable[[str | None], Iterable[Any]], systems: list[str] | None, stream: Any
) -> None:
    """Everything that the report is made of: probes, answers, scores, each compressed text once."""
    from context_bench.compression.evaluate import write_results

    write_results(result, answers(systems[0] if systems else None), stream)


FAMILY = Family(
    name="compression",
    manifest_key="compression",
    commands={
        "compress": Command(
            "context_bench.compression.command.app:app",
            "What a compressor did to recorded texts and sessions.",
            after="memory",
        ),
    },
    systems=COMPRESSORS.with_more({"sentence": "context_bench.compression.systems.sentence:SentenceReader"}),
    evaluators=DeclaredNames(
        "context_bench.compression.evaluators", Path(__file__).parent / "evaluators", "EVALUATORS"
    ),
    offers={
        "compactions": "context_bench.compression.recorded:audit",
        "compaction_grids": "context_bench.compression.recorded:compaction_grids",
        "compressors": "context_bench.compression.compressors:COMPRESSORS",
        "adapted_compressors": "context_bench.compression.compressors:ADAPTED",
        "compressor_of": "context_bench.compression.compressors.specs:compressor_of",
        "sentence_reader": "context_bench.compression.systems.sentence:SentenceReader",
        "sentence_model": "context_bench.compression.systems.sentence:SentenceModel",
    },
    complete=_complete,
    notes=_notes,
    by_cluster=True,
    sections=Sections(
        build=_build,
        facts=_facts,
        apart=lambda material, name: name != material.score_field and name in _scores(),
        graded=_graded,
        replaces=("setup", "truncation", "tokens", "time", "metrics"),
        row=deferred("context_bench.compression.sections:facts_and_text"),
    ),
    exports={
        "results": Export(
            _export, "compressed no sessions (context-bench compress run does); --format jsonl has its rows"
        )
    },
    judges="context_bench.compression.command.run:judges_again",
)
