"""`context-bench import`: answers that another harness recorded become a stored run, to be scored again and
compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.core.keys import hash_file, stable_hash
from context_bench.core.records import Example
from context_bench.core.roles import CANDIDATE, described_cell
from context_bench.session import interrupts
from context_bench.session.flags import own, takes
from context_bench.session.options import StoredOptions
from context_bench.session.output_files import say

if TYPE_CHECKING:
    from context_bench.transcripts.harness_results import AnswerLog, RecordedAnswer

#: So many rows per answer may be missing.
_HOLES = 100
#: Rows in one transaction: nothing is waited for but the disk.
_AT_ONCE = 256


@takes(
    StoredOptions,
    name=own("Name of the run.", unit="RUN", note="made of the first file's name"),
    system=own("Name of the system in the file at the same position.", unit="NAME", note="as the file says"),
    dataset=own("Name of the dataset, in place of the file's.", unit="NAME"),
    format=own("inspect, lm-eval or jsonl.", note="recognised by content"),
    output=own("table, markdown, json, html, csv."),
)
def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Inspect logs (.eval, .json), lm-eval samples (.jsonl), or JSON lines of answers.", metavar="FILE..."
        ),
    ],
    name: str | None,
    system: list[str] | None,
    dataset: str | None,
    format: str | None,  # noqa: A002
    store: str,
    output: str,
    out: Path | None,
) -> int:
    """Make a stored run of answers that were given elsewhere: nothing is called, times and tokens are as recorded."""
    from contextlib import closing

    from context_bench.engine import open_store, run_of
    from context_bench.session.runs import report_stored, result_of

    found = _Import(files, system or [], dataset, format)
    with closing(open_store(store)) as opened:
        run = interrupts.run(_stored(opened, name or f"import-{files[0].stem}", found))
        record = run_of(opened, run)
        report_stored(opened, record.id, result_of(opened, record), output, out, place=store)
        say(f"stored as {record.name}: {record.rows:,} rows, {record.failed:,} of them failures")
        _tell(found)
    return 0


class _Import:
    """Everything that the files hold, read once: the answers by system, and each example once."""

    def __init__(self, files: Sequence[Path], systems: Sequence[str], dataset: str | None, format: str | None) -> None:  # noqa: A002
        self.answers: dict[str, list[RecordedAnswer]] = {}
        self.examples: dict[tuple[str, Any], Example] = {}
        self.sources: dict[str, str] = {}  # system → who recorded it
        self.about: list[dict[str, Any]] = []
        self.trials = 1
        self.scores: Counter[str] = Counter()
        for place, path in enumerate(files):
            self._read(path, systems[place] if place < len(systems) else None, dataset, format)
        if not self.examples:
            raise BadInput(f"no answers in {', '.join(map(str, files))}")
        found = sum(map(len, self.answers.values()))
        owed = len(self.answers) * len(self.examples) * self.trials
        if owed > _HOLES * found:
            raise BadInput(
                f"{len(self.answers)} systems, {len(self.examples):,} examples, {self.trials:,} trials would be "
                f"{owed:,} rows, but there "
                f"are only {found:,} answers; import the files one by one, or see whether their trials are numbered "
                "as meant"
            )

    def _read(self, path: Path, system: str | None, dataset: str | None, format: str | None) -> None:  # noqa: A002
        from context_bench.transcripts.harness_results import read_answers

        log = read_answers(path, format)
        for answer in log.answers:
            self._take(answer, log, path, system, dataset)
        told = {"file": path.name, "sha256": hash_file(path), "source": log.source, **log.facts}
        self.about.append({**told, **({"skipped": log.skipped} if log.skipped else {})})

    def _take(
        self, answer: RecordedAnswer, log: AnswerLog, path: Path, system: str | None, dataset: str | None
    ) -> None:
        if system is not None:
            answer.system = system
        if dataset is not None:
            answer.example["dataset"] = dataset
        key = (answer.example["dataset"], answer.example["id"])
        first = self.examples.setdefault(key, answer.example)
        if first is not answer.example and first != answer.example:
            raise BadInput(
                f"{path}: example {key[1]!r} of {key[0]!r} is not the one of that id in the answers before it; "
                "what was asked differently cannot be one run: import the files one by one"
            )
        answer.example = first
        if self.sources.setdefault(answer.system, log.source) != log.source:
            raise BadInput(
                f"{path}: {answer.system!r} was already in a file of another format; name one of them with --system"
            )
        self.answers.setdefault(answer.system, []).append(answer)
        self.trials = max(self.trials, answer.trial + 1)
        self.scores.update(f"{log.source}.{name}" for name in answer.scores)

    def manifest(self) -> dict[str, Any]:
        """The run's manifest: the source of the answers, and the score that most of them have."""
        systems = list(self.answers)
        score = next((name for name, _ in self.scores.most_common(1)), "f1")
        names = list(dict.fromkeys(name for name, _ in self.examples))
        files = ", ".join(f"{each['file']} ({each['source']})" for each in self.about)
        return {
            "options": {"seed": 0, "trials": self.trials, "score_field": score, "threshold": 0.7},
            "datasets": [{"name": name, "source": "imported"} for name in names],
            "cells": [described_cell({}, dict.fromkeys(systems, CANDIDATE), systems[0] if len(systems) > 1 else None)],
            "margin": {"value": None, "rule": "min(0.02, 10 % of full − none)", "score_field": score},
            "imported": self.about,
            "notes": [
                f"Imported from {files}: answers, times and tokens are as recorded there; what was sent could not be "
                "observed."
            ],
        }


async def _stored(store: Any, name: str, found: _Import) -> str:
    """Replay what was recorded through the engine, as any other run; returns the run's id."""
    from context_bench.engine import Arm, RunSettings, execute
    from context_bench.systems.recorded_answers import RecordedAnswers

    identity = stable_hash([each["sha256"] for each in found.about])
    arms = [
        Arm(
            RecordedAnswers(system, answers, source=found.sources[system], identity=identity),
            labels={"imported": found.sources[system]},
        )
        for system, answers in found.answers.items()
    ]
    executed = await execute(
        store,
        name=name,
        arms=arms,
        examples=list(found.examples.values()),
        evaluators=[RecordedScores(source) for source in dict.fromkeys(found.sources.values())],
        manifest=found.manifest(),
        settings=RunSettings(trials=found.trials, max_workers=_AT_ONCE, late_grace=0.0, bodies="all"),
    )
    if executed.stopped is not None:
        raise executed.stopped
    return executed.run_id


def _tell(found: _Import) -> None:
    """Sentences on the parts of the files that had no place in the run."""
    for each in found.about:
        for reason, times in each.get("skipped", {}).items():
            say(f"{each['file']}: {times:,} passed over: {reason}")
        if each.get("status") not in (None, "success"):
            say(f"{each['file']}: its run ended as {each['status']!r}, so answers may be missing")


class RecordedScores:
    """The numbers under `recorded_scores` of an imported answer, each named `SOURCE.NAME`, so that they never stand for
    scores of ours.
    """

    version = "1"

    def __init__(self, source: str) -> None:
        self.name = source

    def applies(self, example: Example, output: Example) -> bool:
        """The source gave this answer a score."""
        return bool(output.get("recorded_scores"))

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """The recorded scores."""
        return {f"{self.name}.{name}": value for name, value in (processed.get("recorded_scores") or {}).items()}

    def fingerprint(self) -> dict[str, Any]:
        """The source."""
        return {"class": "RecordedScores", "source": self.name}
