"""`context-bench explain`: where the tokens and the money of recorded sessions went, and what a tool could save."""

from __future__ import annotations

import sys
import time
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
    from context_bench.traffic.explain.logs import LogScan
    from context_bench.traffic.meters import Meter


class ExplainOptions(StoredOptions):
    """The options of `context-bench explain`."""

    reach: list[str] | None = flag(
        "Bound of what a tool could save: bash, tool-results>2k, mcp:NAME, tools-unused, history, reread, thinking, "
        "minify, csv, toon, py:MODULE:FUNCTION; repeatable.",
        unit="WHAT",
    )
    meter: list[str] | None = flag(
        "What a tool says of itself, beside these sessions: FILE, URL or COMMAND that gives JSON; repeatable.",
        unit="SOURCE",
    )
    compactions: bool = flag("Also recorded compactions: size, money, what was lost and missed afterwards.", False)
    reading: bool = flag("Also files that were read: tokens, read again, never used.", False)
    html: Path | None = flag("A page with pictures, to open from disk or to share.", unit="FILE")
    web: bool = flag("A page on loopback that takes a log; nothing is written, nothing leaves this machine.", False)
    texts: bool = flag("Names of your own and beginnings of texts in pages too.", False)
    no_index: bool = flag("Read every log anew, and keep nothing of it.", False)


@takes(
    ExplainOptions,
    output=own("table, json or markdown."),
    out=own("Write here instead of standard output.", unit="FILE"),
    system=own("Of a stored run: only this system.", unit=None, default=None),
    against=own("Records of watch beside the client: the logs are held against these.", unit="FILE", complete=None),
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
    meter: list[str] | None,
    compactions: bool,
    reading: bool,
    html: Path | None,
    web: bool,
    texts: bool,
    no_index: bool,
    system: list[str] | None,
    store: str,
    against: str | None,
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
    from context_bench.traffic.meters import read_meter

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
    meters = [read_meter(source) for source in meter or []]
    told, each = _explained(_summaries(paths, store, system, reaches, texts=texts, index=not no_index, quiet=quiet))
    more = _meters(meters, told)
    more |= _wire(paths, against, told) if against is not None else {}
    more |= _compactions(paths, store, system) if compactions else {}
    more |= _reading(paths) if reading else {}
    _publish(told, each, more, html, texts, output, out, minimum, maximum)
    return 0


_IN_FULL = 4  # sessions whose turns stand in the JSON
#: Sections beside the bill: key in JSON → (its value, its tables).
More = dict[str, tuple[Any, list[Any]]]


def _meters(meters: list[Meter], told: Explained) -> More:
    """Figures of tools beside the sessions: usage beside that of the logs, savings as shares of the prompts."""
    from context_bench.core.records import Usage
    from context_bench.reports.table import Grid, share
    from context_bench.traffic.explain.bill_page import sums
    from context_bench.traffic.meters import DENOMINATORS, explained_usage, meter_grids, shares_of

    if not meters:
        return {}
    known = {name: round(value) for name, value in dict(sums(told)).items() if name != "usd"}
    logged = Usage(known["input"], known["output"], known["read"], known["written"])
    reports = [explained_usage(one, logged) for one in meters if one.spent is not None]
    savings = [one for one in meters if one.saved is not None]
    rows = []
    for one in savings:
        shares = shares_of(one.saved or 0.0, passed=one.before or 0.0, results=None, prompts=known["input"])
        rows.append((one.name, f"{one.saved:,.0f}", share(shares.get("passed")), share(shares.get("prompts"))))
    head = ("meter", "claims saved", DENOMINATORS["passed"], DENOMINATORS["prompts"])
    about = "As claimed; a prompt carries what was saved again at each later turn, which no meter of commands counts."
    grids = [*meter_grids(reports), *([Grid("Savings that tools claim", head, list(rows), about)] if rows else [])]
    return {"meters": ([*(one.as_dict() for one in reports), *(one.as_dict() for one in savings)], grids)}


def _wire(paths: list[str], records: str, told: Explained) -> More:
    """The logs held against the wire: missing calls, fields that are too small, quotas, and both by source."""
    from context_bench.llm.prices import GenaiPrices
    from context_bench.traffic.explain import Explained
    from context_bench.traffic.explain.bill_page import wire_grids
    from context_bench.traffic.explain.logs import held_against, summaries_of

    if missing := [path for path in paths if not Path(path).exists()]:
        raise BadInput(f"--against holds logs against the wire; {missing[0]} is no file or folder")
    check = held_against(paths, records).as_dict(GenaiPrices())
    bodies = summaries_of(records)
    wire = Explained()
    for one in bodies if isinstance(bodies, list) else []:
        wire.add(one)
    whole = wire if wire.turns else None
    document = {**check, "by_source": whole.by_kind() if whole is not None else None}
    return {"wire": (document, wire_grids(check, told, whole))}


def _compactions(paths: list[str], store: str, system: list[str] | None) -> More:
    """Recorded compactions of the sessions, audited."""
    from context_bench.core.families import offered
    from context_bench.llm.prices import GenaiPrices
    from context_bench.transcripts import read_sessions

    prices, audits = GenaiPrices(), []
    for path in paths:
        for session in read_sessions(path) if Path(path).exists() else _sessions(path, store, system):
            audits += offered("compactions")(session, prices=prices)
    return {"compactions": ([one.as_dict() for one in audits], offered("compaction_grids")(audits))}


def _reading(paths: list[str]) -> More:
    """Files that the runs of the logs read; of several runs by repository."""
    from context_bench.core.families import offered

    found = [one for path in paths if Path(path).exists() for one in offered("readings")(path)]
    groups = offered("readings_by_repository")(found) if len(found) > 1 else found
    grids = [grid for one in groups[:_IN_FULL] for grid in offered("reading_grids")(one)]
    return {"reading": ([one.as_dict() for one in groups], grids)}


def _publish(
    told: Explained,
    each: list[dict[str, Any]],
    more: More,
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
    document |= {name: value for name, (value, _) in more.items()}
    tables = [grid for _, own in more.values() for grid in own]
    publish(document, lambda: [*grids(told), *tables], output, out, minimum, maximum)


def _explained(summaries: Iterable[dict[str, Any]]) -> tuple[Explained, list[dict[str, Any]]]:
    """The sums, and of at most a few sessions their summaries in full."""
    from context_bench.traffic.explain import Explained

    told, each = Explained(), list[dict[str, Any]]()
    for one in summaries:
        told.add(one)
        each = [*each, one] if len(each) < _IN_FULL else each
    return told, each if told.sessions <= _IN_FULL else []


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
    from context_bench.traffic.explain.logs import LogScan, index_file, summarised

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
        line = _ProgressLine()
        kept = index_file() if index and not texts else None
        reading = LogScan(reaches, kept, None if quiet else line, texts=texts)
        try:
            yield from reading.summaries(files)
        finally:
            line.close()
        if not quiet:
            _tell(reading)


class _ProgressLine:
    """Files and megabytes read so far, on one line of a terminal."""

    def __init__(self) -> None:
        self._begun = self._last = time.monotonic()
        self._shown = False

    def __call__(self, done: int, files: int, read: int, total: int) -> None:
        """Show how far it is, at most five times a second."""
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._last < 0.2:
            return
        self._last, self._shown = now, True
        rate = read / max(now - self._begun, 1e-9) / 1e6
        text = f"\r{done:,} of {files:,} logs, {read / 1e6:,.0f} of {total / 1e6:,.0f} MB, {rate:,.0f} MB/s "
        sys.stderr.write(text)
        sys.stderr.flush()

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def _tell(reading: LogScan) -> None:
    from context_bench.session.output_files import say

    if reading.skipped:
        first = f", first: {reading.faults[0]}" if reading.faults else ""
        say(f"passed over: {reading.skipped:,} files that are no logs of a known format{first}")
    if reading.twice:
        say(f"sessions that stand in more than one file, counted once: {reading.twice:,}")


def _sessions(name: str, store: str, system: list[str] | None) -> Iterable[Any]:
    """Sessions under a name that is no path: bundled ones, or those of a stored run."""
    if name.startswith("bundled:"):
        from context_bench.datasets import sessions

        names = sessions.bundled() if name == sessions.PREFIX.rstrip("/") else [name]
        return [sessions.load_session(each) for each in names]
    return _of_run(name, store, system)


def _of_run(name: str, store: str, system: list[str] | None) -> Iterator[Any]:
    from context_bench.core.errors import UnknownName
    from context_bench.traffic.explain.logs import sessions_of_run

    try:
        yield from sessions_of_run(store, name, system)
    except (UnknownName, BadInput) as error:
        if isinstance(error, UnknownName) or "no store" in str(error):
            raise BadInput(f"no file or folder {name!r} is here, and no such run: {error}") from None
        raise
