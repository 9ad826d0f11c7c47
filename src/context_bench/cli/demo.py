"""`context-bench demo`: what the instrument can see, offline, with a real small model.

Part 1 asks no model: what of the evidence arrives behind five ways to shorten a context, decided on all questions. Part
2 asks a small model some of the same questions through the same proxies, and says why that decides less. Part 3 catches
a proxy that changes roles. Part 4 is arithmetic: what rewriting the history of a recorded session does to its bill.
Nothing is canned: every figure comes out of the run on the screen.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from context_bench.core.measures import percent
from context_bench.core.roles import CANDIDATE, control_role, described_cell
from context_bench.session import interrupts
from context_bench.session.flags import own, takes
from context_bench.session.options import StoredOptions

TITLE = "what the instrument can see"
QUESTIONS = 24
KEEP = 0.2
MODEL = "smollm2-135m-instruct"
PRICE_MODEL = "gpt-4o-mini"
EVIDENCE = "evidence_all"
SESSION = "invoice-service-en"
#: name → what the proxy does. All that cut anything get the same share of the context.
PROXIES = {
    "full": "full",
    "full#2": "full",
    "head_tail": f"head_tail:keep={KEEP}",
    "random_drop": f"random_drop:keep={KEEP}",
    "bm25": f"bm25:keep={KEEP}",
    "none": "none",
}


@takes(
    StoredOptions,
    run=own("Name of the run in the store; the same name again resumes it.", default="demo"),
    out=own("Where the HTML report goes.", default=Path(".context-bench/demo.html")),
    questions=own("Questions to ask.", unit=None, names="-n", least=2, default=QUESTIONS),
)
def command(run: str, store: str, out: Path, questions: int) -> int:
    """Show what the instrument can see: a bundled model, real proxies, a tap behind them; no key, no network."""
    return interrupts.run(_demo(run, store, out, questions))


async def _demo(run: str, store: str, out: Path, questions: int) -> int:
    from rich.console import Console

    from context_bench.datasets import load
    from context_bench.engine import open_store
    from context_bench.llm.weights import fetch_engine, fetch_weights, find_weights
    from context_bench.runner import details

    console = Console(highlight=False, soft_wrap=False)
    console.print(f"[bold]context-bench demo[/]: {TITLE}\n")
    fetch_engine(console.print)
    if find_weights() is None:
        fetch_weights(console.print)
    opened = open_store(store)
    try:
        evidence = await _ask_evidence(opened, f"{run}-evidence", load("bundled:pydocs-qa"))
        _show_evidence(console, evidence)
        data = load("bundled:pydocs-qa", n=questions)
        result, code = await _measure(opened, run, data, questions)
        _show_measured(console, result, questions)
        roles = await _catch_role_changes(opened, f"{run}-roles", data)
        _show_roles(console, roles)
        rewriting = _rewriting()
        _show_rewriting(console, rewriting)
        result.notes += [f"Part 1 of the demo: {line}" for line in _evidence_lines(evidence)]
        result.notes += [f"Part 3 of the demo: {line}" for line in _role_lines(roles)]
        result.notes += [f"Part 4 of the demo: {line}" for line in _rewriting_lines(rewriting)]
        _write_page(console, result, out, details(opened, run), store)
    finally:
        opened.close()
    return code


@asynccontextmanager
async def _proxies(upstream: Any) -> AsyncIterator[dict[str, str]]:
    """The tap before the model, and one real proxy per system before the tap; yields their URLs by name, and the tap's
    under ``.
    """
    from context_bench.systems.serve import Served

    async with AsyncExitStack() as stack:
        yield {name: (await stack.enter_async_context(Served(spec, upstream))).url for name, spec in PROXIES.items()}


async def _ask_evidence(store: Any, run: str, data: Any) -> Any:
    """Part 1: all questions through every proxy, with an echo in the model's place: did the sentence with the answer
    arrive?
    """
    from context_bench.engine import Arm, RunSettings, execute
    from context_bench.evaluators.answer_quality import EvidenceArrived
    from context_bench.llm.responders import Echo
    from context_bench.llm.servers import ModelServer
    from context_bench.metrics import CompressionRatio, MeanScore
    from context_bench.runner import collect
    from context_bench.systems import OpenAIProxy
    from context_bench.tap import Tap

    names = [name for name in PROXIES if name != "full#2"]  # what arrives has no noise
    roles = {name: CANDIDATE if name == "bm25" else control_role(name) for name in names}
    labels = {"model": PRICE_MODEL, "shape": "plain-user"}
    async with ModelServer(Echo()) as model, Tap(model.url) as tap, _proxies(tap.url) as urls:
        systems = [
            OpenAIProxy(
                urls[name],
                model=PRICE_MODEL,
                name=name,
                shape="plain-user",
                identity=f"demo: {PROXIES[name]}, evidence",
            )
            for name in names
        ]
        executed = await execute(
            store,
            name=run,
            arms=[Arm(system=system, labels=labels) for system in systems],
            examples=data.examples(),
            evaluators=[EvidenceArrived()],
            manifest={
                "title": "evidence",
                "options": {"seed": 0, "score_field": EVIDENCE},
                "design": {"evidence_only": {"score_field": EVIDENCE, "asked": "nobody"}},
                "datasets": [data.manifest()],
                "cells": [described_cell(labels, roles, "full")],
                "margin": {"value": 0.02, "rule": "given", "score_field": EVIDENCE},
            },
            settings=RunSettings(seed=0, max_workers=8),
            recorder=tap,
        )
    return collect(store, _whole(executed).run_id, [MeanScore(EVIDENCE), CompressionRatio()])


def _evidence_lines(result: Any) -> list[str]:
    """The verdicts on the system under test, and what arrived through each proxy."""
    arrived = ", ".join(f"{name} {percent(own[EVIDENCE].value)}" for name, own in result.estimates.items())
    about_it = [one.sentence for one in (*result.lifts, *result.comparisons) if one.system == "bm25"]
    return [f"The sentence that holds the answer arrived, of {len(result.rows)} rows: {arrived}.", *about_it]


def _show_evidence(console: Any, result: Any) -> None:
    console.print("\n[bold]1 · What arrives of the evidence, decided[/] (no model, exact)")
    _say(
        console,
        "Real questions over the Python documentation, through five real proxies. head_tail, random_drop and bm25 "
        f"keep {percent(KEEP)} of each context. Does the sentence that holds the answer get to what answers behind "
        "them?",
    )
    for line in _evidence_lines(result):
        _say(console, line, indent=2)


async def _measure(store: Any, run: str, data: Any, questions: int) -> tuple[Any, int]:
    """Part 2: the same questions through every proxy, answered by the bundled model, recorded by the tap."""
    from context_bench.engine import Arm, RunSettings, execute
    from context_bench.engine.progress import TerminalProgress
    from context_bench.evaluators import AnswerQuality
    from context_bench.llm.embedded import Embedded
    from context_bench.llm.prices import GenaiPrices, PricedAs
    from context_bench.llm.servers import ModelServer
    from context_bench.metrics import CompressionRatio, CostOfPass, Latency, MeanScore, PassRate
    from context_bench.runner import collect
    from context_bench.session.reporting import exit_code
    from context_bench.systems import OpenAIProxy
    from context_bench.tap import Tap

    workers = min(2, os.cpu_count() or 1)  # one copy of the model for each, so that none waits for another
    prices = PricedAs(GenaiPrices(), PRICE_MODEL)
    async with (
        ModelServer(Embedded(instances=workers)) as model,
        Tap(model.url, upstream_key="unused-by-the-bundled-model") as tap,
        _proxies(tap.url) as urls,
    ):

        def client(name: str, through: str) -> OpenAIProxy:
            return OpenAIProxy(
                urls[through],
                model=MODEL,
                name=name,
                shape="plain-user",
                prices=prices,
                timeout=120.0,
                extra_body={"max_tokens": 24, "temperature": 0},
                identity=f"demo: {PROXIES[through]}",
            )

        async def ask(name: str, arms: list[Any], cell: dict[str, Any]) -> Any:
            executed = await execute(
                store,
                name=name,
                arms=arms,
                examples=data.examples(),
                evaluators=[AnswerQuality()],
                manifest={
                    "title": TITLE,
                    "options": {
                        "seed": 0,
                        "dataset": ["bundled:pydocs-qa"],
                        "score_field": "f1",
                        "threshold": 0.5,
                        "max_examples": questions,
                    },
                    "datasets": [data.manifest()],
                    "cells": [cell],
                    "margin": {"value": 0.02, "rule": "given", "score_field": "f1"},
                    "prices": {"model": PRICE_MODEL, "source": prices.source, "date": prices.date},
                    "upstream": "embedded; its prompt cache between requests is off, so no arm profits from another's",
                },
                settings=RunSettings(seed=0, max_workers=workers),
                recorder=tap,
                progress=TerminalProgress(),
                total=questions,
            )
            return _whole(executed)

        labels = {"model": MODEL, "shape": "plain-user"}
        names = list(PROXIES)
        alone = described_cell(labels, {"evidence": CANDIDATE}, None)
        roles = {name: CANDIDATE if name == "bm25" else control_role(name) for name in names}
        await ask(f"{run}-responder", [Arm(system=EvidenceOnly(client("evidence", "full")))], alone)
        arms = [Arm(system=client(name, name), every=3 if name == "full#2" else 1, labels=labels) for name in names]
        executed = await ask(run, arms, described_cell(labels, roles, "full"))
    metrics = [MeanScore("f1"), PassRate(0.5, "f1"), CompressionRatio(), CostOfPass(0.5, "f1"), Latency()]
    result = collect(store, executed.run_id, metrics)
    _add_responder_card(result, store, run)
    return result, exit_code(result, executed, max_failures=0.02)


def _say(console: Any, paragraph: str, *, indent: int = 0) -> None:
    """Print a paragraph, which the console wraps: line ends of its own would be wrapped a second time."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(" ".join(paragraph.split())), (0, 0, 0, indent)))


def _whole(executed: Any) -> Any:
    """A part of the demo that was not interrupted: the next makes no sense without it."""
    if not executed.completed and executed.stopped is None:
        raise KeyboardInterrupt
    return executed


class EvidenceOnly:
    """The responder's short-context score: the same questions over the sentences that hold the answer, and nothing
    else.
    """

    def __init__(self, inner: Any) -> None:
        self.inner, self.name = inner, inner.name

    async def aprocess(self, example: dict[str, Any]) -> dict[str, Any]:
        """Ask with the evidence as the whole context."""
        return dict(await self.inner.aprocess({**example, "context": example["evidence"]}))

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        """The same from plain code."""
        return dict(self.inner.process({**example, "context": example["evidence"]}))

    def fingerprint(self) -> dict[str, Any]:
        """The inner client's identity, over other text."""
        return {**self.inner.fingerprint(), "context": "evidence only"}


def _add_responder_card(result: Any, store: Any, run: str) -> None:
    """Quality of the responder itself: without context, with only the evidence, with all of it."""
    from context_bench.engine import rows
    from context_bench.engine.run_summary import summarise

    alone = f"{run}-responder"
    found = summarise(
        lambda name: rows(store, alone, name), ["evidence"], [], score_field="f1", baseline=None, margin=None, seed=0
    )

    def score(estimates: dict[str, dict[str, Any]], system: str) -> dict[str, Any] | None:
        estimate = estimates.get(system, {}).get("f1")
        return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}

    result.manifest["responder"] = {
        "model": MODEL,
        "closed_book": score(result.estimates, "none"),
        "short": score(found.estimates, "evidence"),
        "full": score(result.estimates, "full"),
        "sentence": "A model of 135M parameters shows that the instrument works; verdicts about your proxy need your "
        "model.",
    }


async def _catch_role_changes(store: Any, run: str, data: Any) -> Any:
    """Part 3: agent-shaped requests through a proxy that turns every role into `user`, and through one that changes
    nothing. No model.
    """
    from context_bench.engine import Arm, RunSettings, execute
    from context_bench.llm.responders import Echo
    from context_bench.llm.servers import ModelServer
    from context_bench.metrics import CompressionRatio
    from context_bench.runner import collect
    from context_bench.systems import OpenAIProxy
    from context_bench.systems.serve import Served
    from context_bench.tap import Tap
    from context_bench.testing.hostile import MisbehavingProxy

    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ModelServer(Echo()))
        tap = await stack.enter_async_context(Tap(model.url))
        honest = await stack.enter_async_context(Served("full", tap.url))
        flattening = await stack.enter_async_context(MisbehavingProxy("user-only", tap.url))
        urls = {"changes nothing": honest.url, "flattens roles": flattening.url}
        systems = [
            OpenAIProxy(url, model="gpt-4o-mini", name=name, shape="openai-agent", identity=f"demo: {name}")
            for name, url in urls.items()
        ]
        executed = await execute(
            store,
            name=run,
            arms=[Arm(system=system, labels={"shape": "openai-agent"}) for system in systems],
            examples=islice(data.examples(), 4),
            evaluators=[],
            manifest={
                "title": "roles",
                "options": {"seed": 0},
                "cells": [described_cell({"shape": "openai-agent"}, dict.fromkeys(urls, CANDIDATE), None)],
            },
            settings=RunSettings(seed=0),
            recorder=tap,
        )
    return collect(store, _whole(executed).run_id, [CompressionRatio()])


def _role_lines(result: Any) -> list[str]:
    """One sentence a system on what the tap saw behind each proxy."""
    lines = []
    for system, seen in result.wire.items():
        changes = {what: count for what, count in (seen.get("changes") or {}).items() if "→" in what}
        changed = ", ".join(f"{what.removeprefix('role: ')} ({count} ×)" for what, count in changes.items())
        tokens = f"{seen['sent']:,} tokens sent, {seen['forwarded']:,} forwarded"
        lines.append(f"“{system}”: {tokens}; role changes: {changed or 'none'}.")
    return lines


def _show_measured(console: Any, result: Any, questions: int) -> None:
    from context_bench.reports import render

    console.print("\n[bold]2 · Five ways to shorten a context, by the answers of a small model[/]")
    _say(
        console,
        "A real model of 135M parameters answers real questions over the Python documentation, its names and numbers "
        f"replaced so that memory is of no help. head_tail, random_drop and bm25 keep {percent(KEEP)} of each context. "
        "The tap counts what reached the model.",
    )
    console.print()
    console.out(render(result, "table", full=False, width=min(console.width, 100), color=console.is_terminal))
    open_still = [one for one in result.comparisons if one.system == "bm25" and one.verdict == "undecided"]
    for one in open_still:
        width = "" if one.low is None or one.high is None else f" ({one.low:+.2f} to {one.high:+.2f})"
        _say(
            console,
            f"Why undecided: a model of 135M parameters misses many of {questions} questions that it could read, so "
            f"its answers say little about what was cut{width}. What arrived is decided in part 1, without a model.",
        )


def _show_roles(console: Any, result: Any) -> None:
    console.print("[bold]3 · A proxy that changes roles, caught in the act[/] (no model, exact)")
    _say(
        console,
        "The same agent-shaped requests (system, user, assistant with tool calls, tool results) through two proxies:",
    )
    for line in _role_lines(result):
        _say(console, line, indent=2)


def _rewriting() -> dict[str, list[Any]]:
    """Part 4: a shipped agent session, its history kept short in six ways, billed by three providers' prompt-cache
    rules.
    """
    from context_bench.compression.cache_strategies import PROFILES, simulate_strategies
    from context_bench.datasets.sessions import load_session

    session = load_session(SESSION)
    return {name: simulate_strategies(session, profile) for name, profile in PROFILES.items()}


def _rewriting_lines(rewriting: dict[str, list[Any]]) -> list[str]:
    """One sentence per strategy: tokens saved, and the bill as a multiple of leaving the history alone."""
    lines = []
    for rows in zip(*rewriting.values(), strict=True):
        bills = ", ".join(f"{row.cost_ratio:.2f} × ({name})" for name, row in zip(rewriting, rows, strict=True))
        lines.append(f"{rows[0].strategy}: {percent(rows[0].token_saving)} fewer prompt tokens, bill {bills}.")
    return lines


def _show_rewriting(console: Any, rewriting: dict[str, list[Any]]) -> None:
    from rich.table import Table

    console.print("\n[bold]4 · What rewriting history does to prompt-cache money[/] (no model, exact)")
    _say(
        console,
        "A recorded agent session of 35 requests, its history kept short in six ways. Bill: 1 = history left alone.",
    )
    table = Table("strategy", box=None, pad_edge=False)
    for title in ("tokens saved", *rewriting):
        table.add_column(title, justify="right")
    for rows in zip(*rewriting.values(), strict=True):
        table.add_row(rows[0].strategy, percent(rows[0].token_saving), *(f"{row.cost_ratio:.2f}" for row in rows))
    console.print(table)
    _say(
        console,
        "automatic: any prefix is cached, reads cost a tenth; + write 1.25: writes cost extra; unit: whole earlier "
        "prompts only.",
    )


def _write_page(console: Any, result: Any, out: Path, details: Any, store: str) -> None:
    from context_bench.reports import build_page, render
    from context_bench.reports.cards import store_option
    from context_bench.session.reporting import named

    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(
        render(build_page(result, title=f"context-bench demo: {TITLE}", details=details, store=named(store)), "html"),
        encoding="utf-8",
    )
    console.print(f"\n[bold]Report[/]: {out.resolve()}", soft_wrap=True)
    _say(
        console,
        "Open the file in a browser: verdicts, pictures, and every request as it was sent and forwarded. From the "
        "store, live:",
    )
    console.print(
        f"  context-bench view{store_option(named(store))}",
        markup=False,
        soft_wrap=True,
    )
    console.print("\n[bold]Your own proxy[/]: start it with its upstream base URL = http://127.0.0.1:18409, then")
    console.print(
        "  context-bench --proxy http://localhost:PORT --dataset bundled:pydocs-qa -n 50 \\\n"
        "      --tap 18409 --upstream https://api.openai.com --model gpt-4o-mini --controls",
        markup=False,
        soft_wrap=True,
    )
