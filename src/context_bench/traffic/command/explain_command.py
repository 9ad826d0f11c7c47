"""`context-bench explain`: where the tokens and the money of recorded sessions went, and what a tool could save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.session.flags import flag, own, takes
from context_bench.session.options import StoredOptions

if TYPE_CHECKING:
    from context_bench.traffic.explain import Explained


class ExplainOptions(StoredOptions):
    """The options of `context-bench explain`."""

    reach: list[str] | None = flag(
        "Bound of what a tool could save: bash, tool-results>2k, mcp:NAME, tools-unused, history, reread, thinking, "
        "minify, csv, toon, py:MODULE:FUNCTION; repeatable.",
        unit="WHAT",
    )
    html: Path | None = flag("A page with pictures, to open from disk or to share.", unit="FILE")
    web: bool = flag("A page on loopback that takes a log; nothing is written, nothing leaves this machine.", False)
    texts: bool = flag("Names of your own and beginnings of texts in pages too.", False)
    no_index: bool = flag("Read every log anew, and keep nothing of it.", False)


@takes(
    ExplainOptions,
    output=own("table, json or markdown."),
    out=own("Write here instead of standard output.", unit="FILE"),
    system=own("Of a stored run: only this system.", unit=None, default=None),
    port=own("Port of --web (loopback; 0: any free one).", default=0),
    quiet=own(),
)
def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Logs, folders of logs, records of watch, bundled:sessions/NAME, or a stored run.",
            metavar="PATH|RUN...",
        ),
    ] = None,
    *,
    reach: list[str] | None,
    html: Path | None,
    web: bool,
    texts: bool,
    no_index: bool,
    system: list[str] | None,
    store: str,
    port: int,
    no_open: bool,
    output: str,
    out: Path | None,
    quiet: bool,
    minimum: list[str] | None,
    maximum: list[str] | None,
) -> int:
    """Account for every billed token of recorded sessions: by source, new or carried again, cached, in dollars.

    Metrics for gates: `usd`, `input`, `new`, `carried`, `read`, `written`, `output`, `cache_breaks`, `cached_share`,
    `missing_share` (billed, but not in the log).
    """
    from context_bench.traffic.explain import reach_of

    reaches = list(dict.fromkeys(reach or []))
    for spec in reaches:
        reach_of(spec)
    if web:
        if paths:
            raise BadInput("--web takes logs in the browser; give no PATH, or leave --web out")
        from context_bench.session import interrupts
        from context_bench.traffic.explain.web import serve

        with suppress(KeyboardInterrupt):
            interrupts.looped(serve(port, reaches, texts=texts, browser=not no_open))
        return 0
    if not paths:
        raise BadInput("nothing to explain: give logs, a folder of logs or a stored run, or --web")
    told, each = _explained(paths, store, system, reaches, texts=texts, index=not no_index, quiet=quiet)
    _publish(told, each, html, texts, output, out, minimum, maximum)
    return 0


def _publish(
    told: Explained,
    each: list[dict[str, Any]],
    page: Path | None,
    texts: bool,
    output: str,
    out: Path | None,
    minimum: list[str] | None,
    maximum: list[str] | None,
) -> None:
    from context_bench.session.output_files import write_out
    from context_bench.session.reporting import publish
    from context_bench.traffic.explain.bill_page import grids, html, sums

    if page is not None:
        from context_bench.traffic.explain import shareable

        write_out(html(told if texts else shareable(told), texts=texts), page, "page")
    metrics = dict(sums(told))
    document = {**told.document(each), "metrics": metrics, "known": list(metrics), "less_is_better": list(metrics)[:-2]}
    publish(document, lambda: grids(told), output, out, minimum, maximum)


def _explained(
    paths: list[str],
    store: str,
    system: list[str] | None,
    reaches: list[str],
    *,
    texts: bool,
    index: bool,
    quiet: bool,
) -> tuple[Explained, list[dict[str, Any]]]:
    """The sums, and of at most a few sessions their summaries in full."""
    from context_bench.traffic.explain import Explained

    told, each = Explained(), list[dict[str, Any]]()
    for one in _summaries(paths, store, system, reaches, texts=texts, index=index, quiet=quiet):
        told.add(one)
        each = [*each, one] if len(each) < _IN_FULL else each
    return told, each if told.sessions <= _IN_FULL else []


_IN_FULL = 4


def _summaries(
    paths: list[str],
    store: str,
    system: list[str] | None,
    reaches: list[str],
    *,
    texts: bool,
    index: bool,
    quiet: bool,
) -> Iterator[dict[str, Any]]:
    from context_bench.traffic.explain.logs import LogScan, ProgressLine, index_file, summarised

    files = [path for path in paths if Path(path).exists()]
    for name in (path for path in paths if path not in files):
        for session in _sessions(name, store, system):
            yield summarised(session, reaches, turns=True, texts=texts)
    single = len(files) == len(paths) == 1 and Path(files[0]).is_file()
    if single:
        from context_bench.transcripts import read_sessions

        for session in read_sessions(files[0]):
            yield summarised(session, reaches, turns=True, texts=texts)
    elif files:
        line = ProgressLine()
        kept = index_file() if index and not texts else None
        reading = LogScan(reaches, kept, None if quiet else line, texts=texts)
        try:
            yield from reading.summaries(files)
        finally:
            line.close()
        if reading.skipped and not quiet:
            from context_bench.session.output_files import say

            say(f"passed over: {reading.skipped:,} files that are no logs of a known format")


def _sessions(name: str, store: str, system: list[str] | None) -> Iterable[Any]:
    """Sessions under a name that is no path: bundled ones, or those of a stored run."""
    if name.startswith("bundled:"):
        from context_bench.datasets import sessions

        names = sessions.bundled() if name == sessions.PREFIX.rstrip("/") else [name]
        return [sessions.load_session(each) for each in names]
    from context_bench.traffic.explain.logs import sessions_of_run

    return sessions_of_run(store, name, system)
