"""`context-bench grade`: the findings of every check that applies, by published rules, as letters on one page.

A grade is a stored run: a row is one check, its scores are the letters by heading, its metadata the findings. So it can
be resumed, listed and compared as every run, and `gate --min-grade` reads it from the store or from a JSON file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import typer

from context_bench.core.errors import BadInput
from context_bench.core.families import GradeAnswer, GradeCheck, GradeTarget, checks_of
from context_bench.core.machine import quoted
from context_bench.core.records import Example
from context_bench.core.roles import CANDIDATE, described_cell
from context_bench.llm.redact import bare_url, key_in, redact
from context_bench.session import interrupts
from context_bench.session.flags import flag, options_of, own, takes
from context_bench.session.gate import Check, as_junit
from context_bench.session.grade import answer_of, as_output, grade_of_result, heading_points
from context_bench.session.offers import Many
from context_bench.session.options import RunOptions
from context_bench.session.output_files import say, write_out

_FORMS = ("table", "json", "html", "markdown", "junit", "sarif")


class GradeOptions(RunOptions):
    """The options of `context-bench grade`."""

    changes: ClassVar = {
        "proxy": own("A proxy that runs; its own upstream must be the provider of --back.", parse=str),
        "system": own("A compressor or system, behind our own relay.", parse=str),
        "model": own("The model to ask for.", default=[], parse=str, note="one of each API's own"),
    }

    proxy_command: str | None = flag(
        "A proxy to start; {port} and {back} in it stand for its port and its provider's URL.", unit="COMMAND"
    )
    back: int = own("Port of the provider behind the proxy, which the grade brings.", default=0, note="18409")
    header: Many = flag("Sent with each request, {back} is the provider's URL; repeatable.", [], unit="NAME:VALUE")
    memory: str | None = flag("A memory: bm25, mem0, py:pkg.mod:Class, cli:, http:, mcp: …", unit="SPEC")
    agent_log: Path | None = flag("Requests that an agent has sent: a recording of any known kind.", unit="FILE")
    command: str | None = own(
        "An agent to start, with dummy keys and only our base URLs in its environment.", default=None, unit="COMMAND"
    )
    seconds: float = own("Time for all checks; what is left then counts as not asked.", default=120.0, gt=0)
    load: int = flag("Requests at once.", 32, ge=1, le=1000)
    check: Many = flag("Only checks whose name begins so; repeatable.", [], unit="NAME")
    output: str = own("table, json, html, markdown, junit or sarif.")
    badge: Path | None = flag("Also write the grade as a badge to this file.", unit="FILE.svg")
    timeout: float = own("Seconds for one request.", default=15.0, note="15")


@takes(
    GradeOptions,
    "proxy proxy_command back header system memory agent_log command model seconds load check output out badge store "
    "name run resume title tag proxy_key_env timeout quiet",
    name=own("Name of what is graded, as reports show it.", parse=str),
    resume=own(rare=False),
)
def command(context: typer.Context, **_given: Any) -> int:
    """A letter for each heading: faithful requests, faithful replies, cache and money, streaming, errors, concurrency,
    privacy, determinism. Offline, with our own provider behind; nothing is spent.
    """
    return interrupts.run(_grade(options_of(context, GradeOptions)))


def _target(options: GradeOptions) -> GradeTarget:
    """The target of the options; `BadInput` unless it is exactly one thing."""
    given = {
        "proxy": _one("--proxy", options.proxy) or options.proxy_command,
        "system": _one("--system", options.system),
        "memory": options.memory,
        "agent-log": options.agent_log,
        "command": options.command,
    }
    chosen = [name for name, value in given.items() if value]
    if len(chosen) != 1:
        raise BadInput(
            f"grade: {'nothing to grade' if not chosen else 'one thing at a time'}: give one of --proxy URL, "
            "--proxy-command COMMAND, --system SPEC, --memory SPEC, --agent-log FILE, --command COMMAND"
        )
    if options.output not in _FORMS:
        raise BadInput(f"--output {options.output!r}: expected one of {', '.join(_FORMS)}")
    if options.badge is not None and options.badge.suffix.lower() not in ("", ".svg"):
        raise BadInput(f"--badge {options.badge}: a badge is a picture as SVG; give it a name that ends in .svg")
    headers = {}
    for text in options.header:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise BadInput(f"--header {text!r}: expected NAME:VALUE")
        headers[name.strip()] = value.strip()
    running = bool(options.proxy) and options.proxy_command is None
    return GradeTarget(
        subject=chosen[0],
        value=_one("--proxy", options.proxy) if chosen[0] == "proxy" else str(given[chosen[0]]),
        start=options.proxy_command or "",
        back=options.back or (18409 if running else 0),
        headers=headers,
        key=key_in(options.proxy_key_env),
        model=_one("--model", options.model) or None,
        load=options.load,
        timeout=options.timeout,
    )


def _one(option: str, values: Sequence[str]) -> str:
    """The one value of an option that other commands take several of."""
    if len(values) > 1:
        raise BadInput(f"{option} is given {len(values)} times: a grade is of one thing")
    return values[0] if values else ""


async def _grade(options: GradeOptions) -> int:
    from context_bench.engine import open_store, run_of
    from context_bench.reports.cards import store_option
    from context_bench.session.reporting import named
    from context_bench.session.run_session import run_name, store_of
    from context_bench.session.runs import result_of

    target = _target(options)
    async with AsyncExitStack() as stack:
        checks = [
            check for opened in checks_of(target.subject) for check in await stack.enter_async_context(opened(target))
        ]
        wanted = [check for check in checks if not options.check or check.name.startswith(tuple(options.check))]
        if not wanted:
            names = ", ".join(check.name for check in checks[:5])
            raise BadInput(
                f"--check {' '.join(options.check)}: no such check; there are {names} and {len(checks) - 5} more"
            )
        with closing(open_store(store_of(options))) as store:
            run = await _asked(options, target, wanted, store, run_name(store, options))
            record = run_of(store, run)
            document = grade_of_result(result_of(store, record))
    document["run"] = record.name
    _write(document, options)
    if not options.quiet:
        told = f"context-bench gate {quoted(record.name)} --min-grade B{store_option(named(store_of(options)))}"
        say(f"kept as run {record.name}; {told} holds a pipeline to it")
    return 0 if document["grade"] is not None else 1


async def _asked(
    options: GradeOptions, target: GradeTarget, checks: Sequence[GradeCheck], store: Any, name: str | None
) -> str:
    """Ask the checks as a run of the store; returns its id."""
    from context_bench.engine import Arm, RunSettings, execute
    from context_bench.engine.progress import TerminalProgress

    graded = GradedTarget(options.name[0] if options.name else _shown(target), target, checks, options.seconds)
    executed = await execute(
        store,
        name=name,
        arms=[Arm(graded, role=CANDIDATE)],
        examples=graded.examples(),
        evaluators=[Letters()],
        manifest=_manifest(options, target, graded.name),
        settings=RunSettings(max_workers=1, late_grace=0.0, bodies="none"),
        progress=None if options.quiet else TerminalProgress(),
        total=len(checks),
        reuse="run",
    )
    if executed.stopped is not None:
        raise executed.stopped
    return executed.run_id


def _shown(target: GradeTarget) -> str:
    given = target.value or target.start.split()[0].rpartition("/")[2]
    return bare_url(given) if "://" in given else redact(given)


_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def _shown_headers(target: GradeTarget) -> dict[str, str]:
    """The headers for a report: nothing of those that hold a key, or may."""
    return {name: "[key]" if _SECRET_HEADER.search(name) else redact(value) for name, value in target.headers.items()}


def _manifest(options: GradeOptions, target: GradeTarget, name: str) -> dict[str, Any]:
    return {
        "options": {"seed": 0, "trials": 1, "score_field": "grade", "threshold": 0.7},
        "datasets": [{"name": f"grade:{target.subject}", "source": "built in"}],
        "cells": [described_cell({}, {name: CANDIDATE}, None)],
        "margin": {"value": None, "rule": "min(0.02, 10 % of full − none)", "score_field": "grade"},
        "grade": {
            "subject": target.subject,
            "target": redact(target.value),
            "start": redact(target.start),
            "back": target.back,
            "headers": _shown_headers(target),
            "name": options.name[0] if options.name else "",
            "model": target.model or "",
        },
    }


@dataclass(slots=True)
class GradedTarget:
    """The thing that is graded, as a system: an example is a check, its answer what was found.

    What comes after `seconds` is not asked, and says so.
    """

    name: str
    target: GradeTarget
    checks: Sequence[GradeCheck]
    seconds: float
    clock: Callable[[], float] = time.monotonic
    _end: float = field(default=0.0, init=False)

    def examples(self) -> list[Example]:
        """One example for each check."""
        return [
            {
                "id": check.name,
                "dataset": f"grade:{self.target.subject}",
                "context": "",
                "question": check.question,
                "headings": list(check.headings),
            }
            for check in self.checks
        ]

    def process(self, example: Example) -> Example:
        """Only `aprocess` asks."""
        raise NotImplementedError("a check is asked on the loop of its servers: use aprocess")

    async def aprocess(self, example: Example) -> Example:
        """Ask one check."""
        self._end = self._end or self.clock() + self.seconds
        check = next(each for each in self.checks if each.name == example["id"])
        if self.clock() >= self._end:
            answer = GradeAnswer(not_asked=f"the {self.seconds:g} s of --seconds were over")
        else:
            answer = await check.ask()
        found = {**as_output(answer), "headings": list(check.headings)}
        shown = (
            "; ".join(fault.kind for fault in answer.faults) or answer.not_asked or answer.detail or "as it should be"
        )
        return {**example, "response": shown, "found": found, "facts": {"grade": found}}

    def fingerprint(self) -> Mapping[str, Any]:
        """The target, which the answers follow from. What stands there may change; a resumed run keeps its rows."""
        target = self.target
        return {
            "class": "GradedTarget",
            "subject": target.subject,
            "value": redact(target.value),
            "start": redact(target.start),
            "headers": _shown_headers(target),
            "model": target.model,
            "load": target.load,
        }


class Letters:
    """The letters of one check as scores by heading, and the worst of them as `grade`: 1 for A, 0 for F."""

    name = "letters"
    version = "1"

    def applies(self, example: Example, output: Example) -> bool:
        """It was asked, and its target has what it is about."""
        return isinstance(output.get("found"), Mapping)

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """The scores; none for what was not asked."""
        points = heading_points(original["headings"], answer_of(processed["found"]))
        return {**points, "grade": min(points.values())} if points else {}


def _write(document: Mapping[str, Any], options: GradeOptions) -> None:
    from context_bench import __version__
    from context_bench.session.grade import grade_pages

    forms: dict[str, Callable[[], str]] = {
        "table": lambda: grade_pages.text_page(document),
        "json": lambda: grade_pages.json_page(document),
        "html": lambda: grade_pages.html_page(document),
        "markdown": lambda: grade_pages.markdown_page(document),
        "sarif": lambda: grade_pages.sarif_page(document, __version__),
        "junit": lambda: as_junit(_cases(document), "context-bench grade"),
    }
    write_out(forms[options.output](), options.out, "grade")
    if options.badge is not None:
        write_out(grade_pages.badge(document), options.badge, "badge")


def _cases(document: Mapping[str, Any]) -> list[Check]:
    """One case for each heading: A and B pass, a heading that was not asked is skipped."""
    return [
        Check(
            one["heading"],
            one["letter"] in ("A", "B"),
            f"{one['letter'] or 'not asked'}: {', '.join(one['kinds']) or 'nothing found'}",
            skipped=one["letter"] is None,
        )
        for one in document["headings"]
    ]
