"""Exchanges as HTML: thousands of pieces in a page, so they are joined here and not by a template; every text goes through `escape`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup, escape

from context_bench.reports.exchanges import Piece, ShownExchange, ShownMessage, Unchanged, shown_piece
from context_bench.reports.text import visible

_BOTH = ("kept", "dropped", "added")
_MARKS = {"dropped": "del", "added": "ins"}
_SIDES = '<div class="pair sides" aria-hidden="true"><div>sent</div><div>forwarded</div></div>\n'


def exchange_html(it: ShownExchange) -> Markup:
    """One exchange: its sentence, its changes, its messages side by side."""
    return Markup("".join(_exchange(it)))


def _exchange(it: ShownExchange) -> Iterator[str]:
    yield f'<section class="exchange">\n<h5>{escape(it.title)}</h5>\n'
    if it.sentence:
        yield f'<p class="counts">{escape(it.sentence)}</p>\n'
    if it.why:
        yield f'<p class="why">{escape(visible(it.why, 400))}</p>\n'
    if it.messages or it.changed:
        if it.altered and it.sides == "both":
            yield _SIDES
        elif it.sides != "both":
            yield f'<p class="about">{"As sent:" if it.sides == "sent" else "As forwarded:"}</p>'
    for change in it.changed:
        yield from _message(change)
    for each in it.messages:
        yield from _unchanged(each) if isinstance(each, Unchanged) else _message(each)
    yield "</section>\n"


def _unchanged(it: Unchanged) -> Iterator[str]:
    said = f"… {escape(it.title)}: {_words(it.words)} unchanged"
    if not it.messages:
        yield f'<p class="same">{said}</p>\n'
        return
    yield f'<details class="same"><summary>{said}</summary>'
    for each in it.messages:
        yield from _message(each)
    yield "</details>\n"


def _message(it: ShownMessage) -> Iterator[str]:
    role = f'<span class="role">{escape(visible(it.role, 60))}</span>' if it.role else ""
    badges = "".join(f' <span class="badge">{escape(visible(badge, 100))}</span>' for badge in it.badges)
    yield f'<div class="message {it.state}">\n<h6>{escape(it.title)} {role}{badges}</h6>\n'
    for place, row in enumerate(it.rows):
        yield _row(it, row, place == 0)
    yield "</div>\n"


def _row(it: ShownMessage, row: Sequence[Piece], is_first: bool) -> str:
    if row[0].alone:
        return _alone(row[0])
    if it.state == "kept":
        return f'<div class="text whole">{_cell(row, ("kept",))}</div>\n'
    missing = {"added": "not sent", "dropped": "not forwarded"}.get(it.state)
    note = f'<span class="none">{missing}</span>' if is_first and missing else ""
    left = f"{note if it.state == 'added' else ''}{_cell(row, _BOTH)}"
    right = note if it.state == "dropped" else _cell(row, ("kept", "added"))
    return f'<div class="pair"><div class="text sent">{left}</div><div class="text forwarded">{right}</div></div>\n'


def _alone(piece: Piece) -> str:
    """What stands over both sides: a long unchanged run, or all that there was no room for."""
    words = _words(piece.words)
    if piece.rest:
        return f'<p class="same">… and {words} more, changed and unchanged, not in this page</p>\n'
    if piece.text is None:
        return f'<p class="same">… {words} unchanged</p>\n'
    return f'<details class="same"><summary>… {words} unchanged</summary><div class="text">{_text(piece)}</div></details>\n'


def _cell(pieces: Iterable[Piece], kinds: Sequence[str]) -> str:
    return "".join(_piece(piece) for piece in pieces if piece.kind in kinds)


def _piece(piece: Piece) -> str:
    if piece.text is None:
        said = "unchanged" if piece.kind == "kept" else piece.kind
        return f'<span class="gone">… {_words(piece.words)} {said}, not in this page …</span>'
    mark = _MARKS.get(piece.kind)
    text = f"<{mark}>{_text(piece)}</{mark}>" if mark else _text(piece)
    return f"<details><summary>… {_words(piece.words)} {piece.kind}</summary>{text}</details>" if piece.folded else text


def _text(piece: Piece) -> str:
    return str(escape(shown_piece(piece)))


def _words(count: int) -> str:
    return f"{count:,} word{'s' if count != 1 else ''}"
