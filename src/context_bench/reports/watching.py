"""Live traffic on the terminal and at its end: a line per session that fits 80 columns, plain lines for logs, JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from context_bench.core.records import Usage
from context_bench.core.violations import phrase
from context_bench.core.watching import Figures, Turn
from context_bench.reports.text import json_ready, visible

WIDTH = 80
_LIVE_SESSIONS = 8
_COLUMNS = (("turns", 5), ("sent", 6), ("forw.", 6), ("new", 6), ("read", 6), ("write", 6), ("out", 6), ("USD", 9))


@dataclass
class Board:
    """Figures that grow turn by turn, as something `rich` can show. `head`: lines above them."""

    head: list[str] = field(default_factory=list)
    figures: dict[tuple[str, str], Figures] = field(default_factory=dict)
    sums: dict[str, Figures] = field(default_factory=dict)

    def add(self, turn: Turn) -> None:
        """Count one record."""
        key = (turn.arm, turn.session)
        figures = self.figures.pop(key, None) or Figures()
        figures.add(turn)
        self.figures[key] = figures  # the latest is last
        self.sums.setdefault(turn.arm, Figures()).add(turn)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.head:
            yield Text(visible(line, 400), style="dim")
        shown = list(self.figures.items())[-_LIVE_SESSIONS:]
        if not shown:
            yield Text("waiting for the first request …")
            return
        yield from self.parts(shown, brief=True)

    def parts(self, shown: list[tuple[tuple[str, str], Figures]], *, brief: bool) -> Iterator[Table | Text]:
        """The lines of some sessions, and of each arm that has several."""
        yield from _tables(shown, brief=brief)
        hidden = len(self.figures) - len(shown)
        if hidden:
            yield Text(f"and {hidden:,} earlier sessions", style="dim")
        for arm, figures in self.sums.items():
            if sum(key[0] == arm for key in self.figures) > 1:
                yield from _tables([((arm, "all"), figures)], brief=brief, heads=False)


def line(turn: Turn) -> str:
    """One record on one plain line."""
    where = {"turn": f"turn {turn.turn}", "late": "late call", "stray": "stray call", "other": turn.wire or "other"}[turn.kind]
    told = [f"{turn.session or '-'} {where}{' again' if turn.repeat else ''}{' (shadow)' if turn.arm == 'shadow' else ''}"]
    told += [f"{turn.status or '---'}", f"{short(turn.sent)} → {short(turn.forwarded)} tokens{'' if turn.exact else ' (est.)'}"]
    if turn.cost is not None:
        told.append(f"${turn.cost:.4f}")
    if turn.added is not None:
        told.append(f"+{turn.added * 1000:.0f} ms")
    told += [f"{count} {what}" for count, what in ((turn.extra, "extra"), (turn.retries, "retried")) if count]
    told += [f"{phrase(kind, turn.tools.get(kind, ()))}{f' ×{count}' if count > 1 else ''}" for kind, count in turn.violations.items()]
    return visible(" · ".join(told), 400)


def summary(turns: Iterable[Turn], about: Mapping[str, Any], notes: Iterable[str] = ()) -> str:
    """The final report as text of at most 80 columns, without colour."""
    board = _counted(turns)
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, color_system=None, highlight=False, emoji=False)
    console.print(Text(" · ".join(visible(f"{name} {value}", 200) for name, value in about.items() if value is not None)))
    if not board.figures:
        console.print("Nothing came through.")
    else:
        for part in board.parts(list(board.figures.items()), brief=False):
            console.print(part)
    for note in notes:
        console.print(Text(visible(note, 1000)))
    return "\n".join(text.rstrip() for text in stream.getvalue().splitlines()).strip("\n") + "\n"


def as_json(turns: Iterable[Turn], about: Mapping[str, Any], notes: Iterable[str] = ()) -> str:
    """The final report as JSON: `watch`, `total` and `sessions` by arm, `notes`."""
    board = _counted(turns)
    arms: dict[str, Any] = {arm: {"total": figures.as_dict(), "sessions": {}} for arm, figures in board.sums.items()}
    for (arm, session), figures in board.figures.items():
        arms[arm]["sessions"][session or "-"] = figures.as_dict()
    return json.dumps(json_ready({"schema": 1, "watch": dict(about), "arms": arms, "notes": list(notes)}), indent=2) + "\n"


def _counted(turns: Iterable[Turn]) -> Board:
    """One pass, since a long watch does not fit the memory."""
    board, order = Board(), dict[tuple[str, str], None]()
    for turn in turns:
        order.setdefault((turn.arm, turn.session))
        board.add(turn)
    board.figures = {key: board.figures[key] for key in order}
    return board


def short(tokens: int | None) -> str:
    """A number of tokens in at most six characters; `–` for not known."""
    if tokens is None:
        return "–"
    if tokens < 10_000:
        return f"{tokens:,}"
    value, unit = next((tokens / size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if tokens >= size)
    return f"{value:.1f}{unit}" if value < 999.95 else f"{value:.0f}{unit}"


def _tables(rows: list[tuple[tuple[str, str], Figures]], *, brief: bool, heads: bool = True) -> Iterator[Table | Text]:
    """Per session its figures, and under them what else there is to say."""
    table = _table(heads)
    for (arm, session), figures in rows:
        table.add_row(Text(_name(arm, session), style="bold"), *_cells(figures))
        if table.row_count == 1 and heads:
            yield table
        else:
            table.show_header = False
            yield table
        for text in _more(figures, brief):
            yield Text(f"  {text}", style="dim")
        table = _table(False)


def _table(heads: bool) -> Table:
    table = Table(box=None, show_header=heads, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("session", width=18, no_wrap=True, overflow="ellipsis")
    for name, width in _COLUMNS:
        table.add_column(name, width=width, justify="right", no_wrap=True)
    return table


def _name(arm: str, session: str) -> str:
    name = visible(session or "no session", 60)
    return f"{name} shadow" if arm == "shadow" else name


def _cells(figures: Figures) -> list[str]:
    usage = figures.usage or Usage()
    billed = (figures.new_tokens, usage.cache_read, usage.cache_write, usage.output_tokens)
    counted = (figures.turns, figures.sent, figures.forwarded, *billed)
    return [*(short(value) for value in counted), "–" if figures.cost is None else f"{figures.cost:.4f}"]


def _more(figures: Figures, brief: bool) -> Iterator[str]:
    told = []
    if figures.added is not None:
        told.append(f"added {_seconds(figures.added)}")
    if figures.added_ttft is not None:
        told.append(f"to first token {_seconds(figures.added_ttft)}")
    counts = (
        (figures.extra, "extra calls"),
        (figures.retries, "sent again"),
        (figures.late, "late calls"),
        (figures.stray, "stray calls"),
        (figures.repeats, "repeated by the client"),
        (figures.failed, "failed"),
        (figures.other, "other requests"),
    )
    told += [f"{count:,} {what}" for count, what in counts if count]
    if figures.compared and not brief:
        told.append(f"{figures.unchanged:,} of {figures.compared:,} byte for byte")
    if not figures.exact:
        told.append("tokens estimated")
    if told:
        yield " · ".join(told)
    yield from _cache(figures)
    if figures.violations:
        yield "wire: " + ", ".join(_kind(kind, count, figures.tools.get(kind, {})) for kind, count in sorted(figures.violations.items()))
    if not brief and figures.unpriced:
        yield f"{figures.unpriced:,} calls of a model without a known price are not in the money"


def _kind(kind: str, count: int, tools: Mapping[str, int]) -> str:
    named = phrase("", [visible(name, 60) for name in tools]).strip()
    return f"{visible(kind, 60)} {count:,}{f' ({named})' if named else ''}"


def _cache(figures: Figures) -> Iterator[str]:
    if figures.predicted_read is None:
        return
    told = f"cache by the rules: read {short(figures.predicted_read)}, write {short(figures.predicted_write)}"
    usage = figures.usage
    if usage is None or (usage.cache_read is None and usage.cache_write is None):
        told += " · the provider told none"
    else:
        told += f" · told: read {short(usage.cache_read)}, write {short(usage.cache_write)}"
    if figures.prompt_cost_ratio is not None and figures.compared:
        told += f" · prompts ×{figures.prompt_cost_ratio:.2f} of as sent"
    yield told


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if abs(value) < 1 else f"{value:.1f} s"
