"""`context-bench compress wire`: what was done to requests that is no compression, in recorded pairs or by proxies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.session.gate import MaxOption, MinOption, hold, limits
from context_bench.session.publishing import OutOption, OutputOption, publish

if TYPE_CHECKING:
    from context_bench.reports.grids import Grid

_HEADERS = ("original_headers", "compressed_headers")
_BODIES = ("original_raw", "compressed_raw")


def wire(
    given: Annotated[
        list[str],
        typer.Argument(
            help="JSON lines with `original` and `compressed`: message lists or whole request bodies. With --proxy: recorded sessions.",
            metavar="PAIRS|SESSIONS...",
        ),
    ],
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Send sessions through this proxy, whose own upstream is the tap, and look at what arrives.", metavar="URL"),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the proxy at the same position; default host:port.")] = None,
    tap: Annotated[str, typer.Option(help="With --proxy: port to start the tap on, or the URL of a running one.")] = "9090",
    wire: Annotated[str | None, typer.Option(help="With --proxy: render sessions for openai, anthropic or responses.")] = None,
    max_sessions: Annotated[int | None, typer.Option("-n", "--max-sessions", help="With --proxy: most sessions to send.")] = None,
    store: Annotated[str | None, typer.Option(help="With --proxy: where results are kept.", metavar="URL")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    output: OutputOption = "table",
    out: OutOption = None,
    minimum: MinOption = None,
    maximum: MaxOption = None,
) -> int:
    """What was done to requests that is no compression: roles, tool calls, parameters, marks, signed blocks, bytes.

    Also read of pairs: `original_headers` and `compressed_headers`, `original_raw` and `compressed_raw` (bodies as text). Every kind of
    violation is a metric (how often it occurred), `violations` their sum but for words in tools: `--max violations=0` is a gate. With
    --proxy nothing is asked of a model (`replay --upstream echo`): also tokens, prefix stability, cache, money, and what was lost; these
    are metrics as well.
    """
    if proxy:
        told: dict[str, Any] = {"proxy": proxy, "name": name, "tap": tap, "wire": wire, "max_examples": max_sessions, "store": store}
        told |= {"sessions": given, "quiet": quiet, "output": output, "out": out}
        return _wire_of_proxies({key: value for key, value in told.items() if value}, minimum or [], maximum or [])
    if len(given) != 1:
        raise BadInput(f"{len(given)} files of pairs; give one, or --proxy URL to send recorded sessions through a proxy")
    pairs = Path(given[0])
    from context_bench.wire.violations import KINDS, by_kind, count_tools, phrase, tools_of, total

    kinds: Counter[str] = Counter()
    affected: Counter[str] = Counter()
    tools: dict[str, dict[str, int]] = {}
    listed: list[dict[str, Any]] = []
    count = 0
    for ident, found in _violations(pairs):
        count += 1
        kinds.update(violation.kind for violation in found)
        affected.update({violation.kind for violation in found})
        count_tools(tools, tools_of(found))
        listed += [{"id": ident, **asdict(violation)} for violation in found]
    document = {
        "schema": "context-bench/compress-wire/1",
        "pairs": count,
        "metrics": {"violations": total(kinds), **by_kind(kinds)},
        "less_is_better": ["violations", *by_kind(kinds)],
        "violations": listed,
    }

    def grids() -> list[Grid]:
        from context_bench.reports.grids import Grid

        rows = [(phrase(kind, tools.get(kind, ())), f"{kinds[kind]:,}", f"{affected[kind]:,}") for kind in KINDS if kinds[kind]]
        shown = [(one["kind"], one["id"], one["detail"]) for one in listed[:20]]
        summary = Grid(f"Violations (requests: {count:,})", ("kind", "times", "requests"), list(rows), "" if rows else "none")
        return [summary, Grid("The first of them", ("kind", "request", "what"), list(shown), words=True)] if shown else [summary]

    publish(document, grids, output, out, minimum, maximum)
    return 0


def _wire_of_proxies(told: dict[str, Any], minimum: list[str], maximum: list[str]) -> int:
    """A replay at level 0; its figures are held against the limits, proxy by proxy."""
    from context_bench.session.options import read_options
    from context_bench.session.replay_run import ReplayOptions, replay_sessions

    def held(result: Any) -> None:
        documents = [_replayed(system, facts) for system, facts in result.replay["systems"].items()]
        hold([check for document in documents for check in limits(document, minimum, maximum)])

    tap = told["tap"]
    upstream = {"upstream": "echo"} if tap.isdigit() else {}
    return replay_sessions(read_options({**told, **upstream, "level": 0}, None, ReplayOptions), held)


def _replayed(system: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one proxy as a document for gates: violations by kind, cache, saving, loss."""
    from context_bench.wire.violations import by_kind, total

    times = {kind: told["times"] for kind, told in facts["violations"].items()}
    shares = {**facts["cache"], **facts["cost"], **facts["fidelity"], "forwarded": facts["tokens"]["forwarded"]}
    figures = {name: value for name, value in shares.items() if isinstance(value, int | float)}
    metrics = {**figures, "violations": total(times), **by_kind(times)}
    return {"system": system, "metrics": metrics}


def _violations(path: Path) -> Iterable[tuple[str, list[Any]]]:
    from context_bench.compression import compare_requests, read_request
    from context_bench.compression.command import pairs

    for pair in pairs.read(path):
        if isinstance(pair.before, str) or isinstance(pair.after, str):
            raise BadInput(f"{path}, pair {pair.id}: a text has no roles; expected message lists or whole request bodies")
        headers = [pairs.texts_by_name(pair.more[name]) if name in pair.more else None for name in _HEADERS]
        raw = [str(pair.more[name]).encode() if name in pair.more else None for name in _BODIES]
        yield (
            pair.id,
            compare_requests(
                read_request(pair.before),
                read_request(pair.after),
                sent_headers=headers[0],
                received_headers=headers[1],
                sent_raw=raw[0],
                received_raw=raw[1],
            ),
        )
