"""Detail of a row, as HTML for report and viewer and as text for a terminal.

It holds question, gold, answer, scores with their reasons, what was sent and forwarded. As text it is readable without
colour: dropped words stand in `[-…-]`, added ones in `{+…+}`, as `wdiff` and `git diff --word-diff` write them. As HTML
thousands of pieces stand in a page, so they are joined here and not by a template; every text goes through `escape`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from context_bench.core.keys import load_json
from context_bench.core.measures import dollars, took, unit_of_score
from context_bench.core.records import EvalRow
from context_bench.reports.arm_aggregates import first
from context_bench.reports.exchanges import (
    OF_CONTEXT,
    Difference,
    ShownExchange,
    ShownMessage,
    TextPiece,
    Unchanged,
    differences,
    shown_piece,
)
from context_bench.reports.page import Figure
from context_bench.reports.row_parts import ShownPart, page_limit, part_lines, shown_parts, without_replaced
from context_bench.reports.table import drawn
from context_bench.reports.visible_text import command_on, json_ready, option, visible

_BOTH = ("kept", "dropped", "added")
_MARKS = {"dropped": "del", "added": "ins"}
_SIDES = (
    '<div class="pair sides" aria-hidden="true"><div>{}</div><div>{}</div></div>\n'
    '<p class="about narrow">Struck out: left out on the way; underlined: put in.</p>\n'
)


def exchange_html(it: ShownExchange) -> Markup:
    """One exchange: its sentence, its changes, its messages side by side."""
    return Markup("".join(_exchange(it)))


def turn_html(sent: Any, forwarded: Any, wires: Sequence[str | None], title: str) -> Markup:
    """The changes to one request on its way, by its two bodies; nothing where one of them is not known. Needs the
    style of `detail.css`.
    """
    if sent is None or forwarded is None:
        return Markup("")
    told = {"exchanges": [{"turn": 0, "sent": sent, "forwarded": forwarded, "wires": list(wires)}]}
    (found,) = differences(told)
    shown = replace(found, title=title).shown(page_limit(told))
    return Markup(f'<div class="told">{exchange_html(shown)}</div>')


def _exchange(it: ShownExchange) -> Iterator[str]:
    yield f'<section class="exchange">\n<h5>{escape(it.title)}</h5>\n'
    if it.sentence:
        yield f'<p class="counts">{escape(it.sentence)}</p>\n'
    if it.why:
        yield f'<p class="why">{escape(visible(it.why, 400))}</p>\n'
    beside = it.altered and it.sides == "both"
    if it.messages or it.changed:
        if beside:
            yield _SIDES.format(*(("before", "after") if it.title == OF_CONTEXT else ("sent", "forwarded")))
        elif it.sides != "both":
            yield f'<p class="about">{"As it went out:" if it.sides == "sent" else "As forwarded:"}</p>'
    for change in it.changed:
        yield from _message(change, it.same, beside)
    for each in it.messages:
        if isinstance(each, Unchanged):
            yield from _unchanged(each, it.same, beside)
        else:
            yield from _message(each, it.same, beside)
    yield "</section>\n"


def _unchanged(it: Unchanged, same: str, beside: bool) -> Iterator[str]:
    said = f"… {escape(it.title)}: {_words(it.words, same)}"
    if not it.messages:
        yield f'<p class="same">{said}</p>\n'
        return
    yield f'<details class="same"><summary>{said}</summary>'
    for each in it.messages:
        yield from _message(each, same, beside)
    yield "</details>\n"


def _message(it: ShownMessage, same: str, beside: bool) -> Iterator[str]:
    role = f'<span class="role">{escape(visible(it.role, 60))}</span>' if it.role else ""
    badges = "".join(f' <span class="badge">{escape(visible(badge, 100))}</span>' for badge in it.badges)
    yield f'<div class="message {it.state}">\n<h6>{escape(it.title)} {role}{badges}</h6>\n'
    for place, row in enumerate(it.rows):
        yield _row(it, row, same, (place == 0, beside))
    yield "</div>\n"


def _row(it: ShownMessage, row: Sequence[TextPiece], same: str, where: tuple[bool, bool]) -> str:
    """One row of a message. `where`: is it the first, and do both sides stand beside each other?"""
    is_first, beside = where
    if row[0].alone:
        return _alone(row[0], same)
    if it.state == "kept":
        text = _cell(row, ("kept",), same)
        if not beside:
            return f'<div class="text whole">{text}</div>\n'
        note = f'<div class="text forwarded"><span class="none">{same}</span></div>'
        return f'<div class="pair"><div class="text sent">{text}</div>{note}</div>\n'
    missing = {"added": "not sent", "dropped": "not forwarded"}.get(it.state)
    note = f'<span class="none">{missing}</span>' if is_first and missing else ""
    left = f"{note if it.state == 'added' else ''}{_cell(row, _BOTH, same)}"
    right = note if it.state == "dropped" else _cell(row, ("kept", "added"), same)
    right = right or ('<span class="none">nothing</span>' if is_first else "")
    return f'<div class="pair"><div class="text sent">{left}</div><div class="text forwarded">{right}</div></div>\n'


def _alone(piece: TextPiece, same: str) -> str:
    """Text over both sides: a long unchanged run, or all that there was no room for."""
    if piece.rest:
        kinds = ", changed and unchanged" if same == "unchanged" else ""
        return f'<p class="same">… and {_words(piece.words)} more{kinds}, not in this page</p>\n'
    words = _words(piece.words, same)
    if piece.text is None:
        return f'<p class="same">… {words}</p>\n'
    return f'<details class="same"><summary>… {words}</summary><div class="text">{_text(piece)}</div></details>\n'


def _cell(pieces: Iterable[TextPiece], kinds: Sequence[str], same: str) -> str:
    return "".join(_piece(piece, same) for piece in pieces if piece.kind in kinds)


def _piece(piece: TextPiece, same: str) -> str:
    if piece.text is None:
        said = same if piece.kind == "kept" else piece.kind
        return f'<span class="gone">… {_words(piece.words, said)}, not in this page …</span>'
    mark = _MARKS.get(piece.kind)
    text = f"<{mark}>{_text(piece)}</{mark}>" if mark else _text(piece)
    return f"<details><summary>… {_words(piece.words)} {piece.kind}</summary>{text}</details>" if piece.folded else text


def _text(piece: TextPiece) -> str:
    return str(escape(shown_piece(piece)))


def _words(count: int, said: str = "") -> str:
    """`72 words unchanged`; `72 more words` of a text that stands beside no other."""
    words = f"word{'s' if count != 1 else ''}"
    return f"{count:,} more {words}" if said == "more" else f"{count:,} {words} {said}".rstrip()


_WHOLE = 2**40  # characters: no text is longer
_KNOWN = (
    "question",
    "answer",
    "context",
    "response",
    "context_after",
    "judges",
    "exchanges",
    "calls",
    "where",
    "parts",
)


def detail_html(
    row: EvalRow,
    told: Mapping[str, Any] | None,
    *,
    limit: int | None = None,
    worked_out: Sequence[Difference] | None = None,
    leading: str | None = None,
) -> Markup:
    """The fragment for one row. `told`: what `details(row)` gave (see `runner.details`). `limit`: characters kept of
    each text (`None`: all of it, long unchanged runs folded); what was cut is said, with the command that shows all.
    Needs the style of `detail.css`.

    `worked_out`: the differences of `told`, for a caller that tries several limits. `leading`: the score that stands
    first.
    """
    from context_bench.reports.html_page import environment

    detail = Detail.of(row, without_replaced(told or {}), limit, worked_out)
    detail.scores.sort(key=lambda each: each[0] != leading)
    return Markup(environment().get_template("detail.html.j2").render(detail=detail, exchange=exchange_html))


@dataclass(frozen=True, slots=True)
class Judged:
    """A judge's reasons, as lines to read."""

    evaluator: str
    score: str
    reason: str


_CALL_COLUMNS = (
    *("by", "model", "attempt", "status", "tokens sent", "tokens in", "tokens out", "from cache", "in flight"),
    *("time", "first token", "cost", "error"),
)


@dataclass(frozen=True, slots=True)
class Detail:
    """Everything in the fragment, ready to be laid out; texts are visible and cut already, those of exchanges are
    not.
    """

    texts: list[tuple[str, str]]
    parts: list[ShownPart]
    scores: list[tuple[str, str]]
    judges: list[Judged]
    errors: list[tuple[str, str]]
    exchanges: list[ShownExchange]
    calls: list[list[str]]
    context: str
    cut: bool
    command: str

    @property
    def call_table(self) -> list[tuple[str, list[str]]]:
        """The columns of the table of calls that have something in them: heading and cells."""
        columns = zip(_CALL_COLUMNS, zip(*self.calls, strict=True), strict=True) if self.calls else ()
        return [(name, list(cells)) for name, cells in columns if any(cells)]

    @classmethod
    def of(
        cls, row: EvalRow, told: Mapping[str, Any], limit: int | None, worked_out: Sequence[Difference] | None = None
    ) -> Detail:
        """All of it from a row and what stands behind it."""
        most = _WHOLE if limit is None else limit
        exchanges = [each.shown(limit) for each in (differences(told) if worked_out is None else worked_out)]
        texts = list(_texts(told, most))
        known = [str(value) for value in told.values() if isinstance(value, str)]
        shows_context = limit is None or not any(each.messages for each in exchanges)
        context = visible(told["context"], most, lines=True) if shows_context and told.get("context") else ""
        parts = shown_parts(told, limit)
        return cls(
            texts=texts,
            parts=parts,
            scores=[(name, _score(value, name)) for name, value in row.scores.items()],
            judges=[_judged(each, most) for each in told.get("judges") or []],
            errors=[(source, visible(error, most, lines=True)) for source, error in row.errors.items()],
            exchanges=exchanges,
            calls=[_call(each) for each in told.get("calls") or []],
            context=context,
            cut=any(each.hidden_words for each in exchanges)
            or any(len(text) > most for text in known)
            or any(each.cut for each in parts),
            command=command_for(told.get("where") or {}),
        )


def placed(told: Mapping[str, Any] | None, store: str) -> Mapping[str, Any] | None:
    """Details of a row, for who names its store this way in commands; `""` is the usual one."""
    where = (told or {}).get("where")
    return {**(told or {}), "where": {**where, "store": store}} if store and where else told


def command_for(where: Mapping[str, Any]) -> str:
    """The command that shows a row whole in a terminal; empty where it is not known which run it is of."""
    if not where:
        return ""
    named = [str(where.get(name)) for name in ("run", "example_id")]
    options = option("--system", str(where.get("system")))
    options += f" --trial {where['trial']}" if where.get("trial") else ""
    options += option("--store", str(where["store"])) if where.get("store") else ""
    return command_on("context-bench diff", named, f"{options} --full")


def _texts(told: Mapping[str, Any], most: int) -> Iterator[tuple[str, str]]:
    for name, title in (("question", "Question"), ("answer", "Expected"), ("response", "Answer")):
        if told.get(name) not in (None, ""):
            yield title, visible(told[name], most, lines=True)
        elif name == "response" and not any("answer" in part.replaces for part in told.get("parts") or []):
            yield title, "(none)"
    for name, value in told.items():  # what a caller of its own adds
        if name not in _KNOWN and value not in (None, "", {}, []):
            text = value if isinstance(value, str) else json.dumps(json_ready(value), ensure_ascii=False, indent=2)
            yield visible(name, 60), visible(text, most, lines=True)


def _judged(told: Mapping[str, Any], most: int) -> Judged:
    score = told.get("score")
    shown = _score(score) if isinstance(score, int | float) else ""
    return Judged(
        visible(told.get("evaluator") or "judge"),
        shown,
        visible(readable_reason(str(told.get("reason") or "")), most, lines=True),
    )


def readable_reason(reply: str) -> str:
    """A judge's reply to read: of a reply in JSON its reasoning by criterion, of any other the reply itself."""
    try:
        value = load_json(reply)
    except ValueError:
        return reply
    if not isinstance(value, dict):
        return reply
    results = value.get("criterionResults")
    if isinstance(results, list) and all(isinstance(each, dict) for each in results):
        return "\n".join(
            f"{each.get('criterionId')}: {each.get('score')}. {each.get('reasoning') or ''}".rstrip()
            for each in results
        )
    if "reasoning" in value:
        rest = ", ".join(f"{name} {each}" for name, each in value.items() if name != "reasoning")
        return f"{rest}. {value['reasoning']}" if rest else str(value["reasoning"])
    return reply


def _call(told: Mapping[str, Any]) -> list[str]:
    """The cells of a call, see `_CALL_COLUMNS`."""
    usage = told.get("usage") or {}
    cost = first(told, "cost")
    return [
        visible(told.get("evaluator") or told.get("account") or ""),
        visible(told.get("model") or ""),
        str(told.get("attempt", "")),
        str(told.get("status", "")),
        *(
            _count(each)
            for each in (
                told.get("sent_tokens"),
                *(usage.get(name) for name in ("input_tokens", "output_tokens", "cache_read")),
                told.get("in_flight"),
            )
        ),
        _seconds(told.get("seconds")),
        _seconds(told.get("ttft")),
        "" if cost is None else dollars(cost),
        visible(told.get("error") or "", 400),
    ]


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _seconds(value: Any) -> str:
    return took(value) if isinstance(value, int | float) else ""


def _score(value: float, name: str = "") -> str:
    """A score with the three digits that it has everywhere; what is smaller is not told as 0, and what can only be a
    count has none. Times, amounts and counts among the scores of ours in their units.
    """
    if (unit := unit_of_score(name)) != "score":
        return Figure(value, unit).short
    if math.isfinite(value) and value == int(value) and abs(value) > 1:
        return f"{value:,.0f}"
    if 0 < abs(value) < 0.0005:
        return f"{value:.1g}"
    return Figure(value, "score").short


LIMIT = 4000  # characters of each text, unless all is asked for
_STYLES = {"kept": "", "dropped": "red", "added": "green"}
_SIGNS = {"kept": ("", ""), "dropped": ("[-", "-]"), "added": ("{+", "+}")}


def detail_text(
    row: EvalRow,
    told: Mapping[str, Any] | None,
    *,
    full: bool = False,
    width: int | None = None,
    color: bool = False,
    texts: bool = True,
) -> str:
    """A row as text of at most `width` columns. `full`: nothing is cut or folded. Without `texts` only what was sent
    and forwarded.
    """
    detail = Detail.of(row, told or {}, None if full else LIMIT)

    def parts(columns: int) -> Iterator[RenderableType]:
        trial = f", trial {row.trial}" if row.trial else ""
        yield Text(f"{visible(row.system)} · {visible(row.example_id)}{trial}", style="bold")
        if texts:
            yield from _facts(detail)
            for part in detail.parts:
                yield from part_lines(part)
        for each in detail.exchanges:
            yield from _exchange_lines(each, full)
        if detail.cut:
            yield Text(
                f"\nNot all of it is shown here; whole: {detail.command or 'the same command with --full'}", style="dim"
            )

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


def _exchange_lines(it: ShownExchange, full: bool) -> Iterator[RenderableType]:
    yield Text(f"\n{it.title}", style="bold")
    yield from (Text(said) for said in (it.sentence, visible(it.why, 400)) if said)
    for each in it.changed:
        yield Padding(_marked(each.pieces, Text(f"{each.title} {each.badges[0]}: "), full, it.same), (0, 0, 0, 2))
    if not it.altered and not full and it.sides == "both":
        return  # forwarded as sent: the sentence says so
    for message in it.messages:
        if isinstance(message, Unchanged):
            if not full:
                yield Text(f"\n… {message.title}: {_words(message.words, it.same)} …", style="dim")
                continue
            for inner in message.messages:
                yield from _message_lines(inner, full, it.same)
        else:
            yield from _message_lines(message, full, it.same)


def _message_lines(it: ShownMessage, full: bool, same: str) -> Iterator[RenderableType]:
    heading = Text("\n")
    heading.append(f"{it.title} ", style="bold")
    heading.append(" · ".join([visible(it.role, 60), *(visible(badge, 100) for badge in it.badges)]))
    yield heading
    yield Padding(_marked(it.pieces, Text(), full, same), (0, 0, 0, 2))


def _marked(pieces: Sequence[TextPiece], line: Text, full: bool, same: str) -> Text:
    for piece in pieces:
        if piece.rest:
            kinds = ", changed and unchanged" if same == "unchanged" else ""
            line.append(f" … and {_words(piece.words)} more{kinds} …", style="dim")
        elif piece.text is None or (piece.folded and not full):
            line.append(f" … {_words(piece.words, same if piece.kind == 'kept' else piece.kind)} … ", style="dim")
        else:
            start, end = _SIGNS[piece.kind]
            line.append(f"{start}{shown_piece(piece)}{end}", style=_STYLES[piece.kind])
    return line
