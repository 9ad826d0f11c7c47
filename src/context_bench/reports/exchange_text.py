"""What a row opens to, in a terminal: the fragment of `reports.detail` as text that is readable without colour.

Dropped words stand in `[-…-]`, added ones in `{+…+}`, as `wdiff` and `git diff --word-diff` write them; colour only repeats the marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from context_bench.core.records import EvalRow
from context_bench.reports.detail import Detail
from context_bench.reports.exchanges import Piece, ShownExchange, ShownMessage, Unchanged, shown_piece
from context_bench.reports.table import drawn
from context_bench.reports.text import visible

LIMIT = 4000  # characters of each text, unless all is asked for
_STYLES = {"kept": "", "dropped": "red", "added": "green"}
_SIGNS = {"kept": ("", ""), "dropped": ("[-", "-]"), "added": ("{+", "+}")}


def detail_text(
    row: EvalRow, told: Mapping[str, Any] | None, *, full: bool = False, width: int | None = None, color: bool = False, texts: bool = True
) -> str:
    """A row as text of at most `width` columns. `full`: nothing is cut or folded. Without `texts` only what was sent and forwarded."""
    detail = Detail.of(row, told or {}, None if full else LIMIT)

    def parts(columns: int) -> Iterator[RenderableType]:
        trial = f", trial {row.trial}" if row.trial else ""
        yield Text(f"{visible(row.system)} · {visible(row.example_id)}{trial}", style="bold")
        if texts:
            yield from _facts(detail)
        for each in detail.exchanges:
            yield from _exchange(each, full)
        if detail.cut:
            yield Text(f"\nNot all of it is shown here; whole: {detail.command or 'the same command with --full'}", style="dim")

    return drawn(parts, width=width, color=color)


def _facts(detail: Detail) -> Iterator[RenderableType]:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="dim", max_width=18, overflow="fold")
    grid.add_column(overflow="fold")
    for title, text in detail.texts:
        grid.add_row(Text(title), Text(text))
    if detail.scores:
        grid.add_row(Text("Scores"), Text(", ".join(f"{visible(name, 60)} {value}" for name, value in detail.scores)))
    for each in detail.judges:
        grid.add_row(Text(each.evaluator), Text(f"{each.score}: {each.reason}" if each.score else each.reason))
    for source, error in detail.errors:
        grid.add_row(Text("Error"), Text(f"{visible(source, 60)}: {error}", style="red"))
    yield grid


def _exchange(it: ShownExchange, full: bool) -> Iterator[RenderableType]:
    yield Text(f"\n{it.title}", style="bold")
    yield from (Text(said) for said in (it.sentence, visible(it.why, 400)) if said)
    for each in it.changed:
        yield Padding(_said(each.pieces, Text(f"{each.title} {each.badges[0]}: "), full), (0, 0, 0, 2))
    if not it.altered and not full and it.sides == "both":
        return  # forwarded as sent: the sentence says so
    for message in it.messages:
        if isinstance(message, Unchanged):
            if not full:
                yield Text(f"\n… {message.title}: {_words(message.words)} unchanged …", style="dim")
                continue
            for inner in message.messages:
                yield from _message(inner, full)
        else:
            yield from _message(message, full)


def _message(it: ShownMessage, full: bool) -> Iterator[RenderableType]:
    heading = Text("\n")
    heading.append(f"{it.title} ", style="bold")
    heading.append(" · ".join([visible(it.role, 60), *(visible(badge, 100) for badge in it.badges)]))
    yield heading
    yield Padding(_said(it.pieces, Text(), full), (0, 0, 0, 2))


def _said(pieces: Sequence[Piece], line: Text, full: bool) -> Text:
    for piece in pieces:
        if piece.rest:
            line.append(f" … and {_words(piece.words)} more, changed and unchanged …", style="dim")
        elif piece.text is None or (piece.folded and not full):
            done = "unchanged" if piece.kind == "kept" else piece.kind
            line.append(f" … {_words(piece.words)} {done} … ", style="dim")
        else:
            start, end = _SIGNS[piece.kind]
            line.append(f"{start}{shown_piece(piece)}{end}", style=_STYLES[piece.kind])
    return line


def _words(count: int) -> str:
    return f"{count:,} word{'' if count == 1 else 's'}"
