"""Commands that show whole files: cat, bat, nl, and those that show them in another form."""

from __future__ import annotations

import re
from collections.abc import Callable

from context_bench.shell import options
from context_bench.shell.call import Call, Result, joined
from context_bench.shell.model import Blur, Line, Part, Some, Stream
from context_bench.shell.picking import picked


def cat(call: Call) -> Result:
    """cat, less, more: whole files."""
    given = options.parse(call.args, "")
    streams, status = call.inputs(given.rest)
    stream = joined(streams)
    if given.has("s", "squeeze-blank"):
        stream = squeezed(stream)
    if given.has("n", "number") or given.has("b", "number-nonblank"):
        call.files.budget.make(*_size(stream, 7))
        stream = number_lines(stream, numbered(6, "\t"), given.has("b", "number-nonblank"))
    if given.has("A", "show-all", "E", "show-ends", "e", "v", "T", "t"):
        ends = given.has("A", "show-all", "E", "show-ends", "e")
        call.files.budget.make(*_size(stream, 1))
        parts = [
            part._replace(text=part.text.replace("\t", "^I") + "$" * ends) if isinstance(part, Line) and part.text is not None else part
            for part in stream.parts
        ]
        stream = Stream(parts, stream.ordered)
    return stream, status


def _size(stream: Stream, more: int) -> tuple[int, int]:
    """Characters and lines of a stream with so many characters more in each line."""
    return sum(len(part.text or "") + more for part in stream.parts if isinstance(part, Line)), len(stream.parts)


def squeezed(stream: Stream) -> Stream:
    """Runs of blank lines as one (`cat -s`)."""
    out: list[Part] = []
    blank = False
    for line in stream.texts():
        if line.text or not blank:
            out.append(line)
        blank = not line.text
    return Stream(out, stream.ordered)


def bat(call: Call) -> Result:
    """bat, with its line ranges."""
    given = options.parse(
        call.args,
        "lrHm",
        "language line-range highlight-line map-syntax style theme color paging decorations tabs wrap terminal-width file-name",
    )
    streams, status = call.inputs(given.rest)
    window = given.get("r", "line-range")
    if len(given.values("r", "line-range")) > 1:
        raise Blur
    out = Stream()
    for _, stream in streams:
        if window:
            low, colon, high = window.partition(":")
            if not re.fullmatch(r"\d*:?\+?\d*", window):
                raise Blur
            first = int(low or 1)
            last = None if colon and not high else first + int(high[1:]) if high.startswith("+") else int(high or first)
            stream = picked(stream, first, last, call.files.budget)
        out.extend(stream)
    return out, status


def numbered(width: int, tab: str) -> Callable[[int, str], str]:
    """How `cat -n` and `nl` write a number before a line."""
    return lambda number, text: f"{number:>{width}}{tab}{text}"


def number_lines(stream: Stream, form: Callable[[int, str], str], skip_blank: bool = False, gap: str = "") -> Stream:
    """The lines with their numbers before them."""
    out: list[Part] = []
    number = 0
    for part in stream.parts:
        if isinstance(part, Some) or part.text is None:
            out.append(part)
        elif skip_blank and not part.text:
            out.append(part._replace(text=gap))
        else:
            number += 1
            out.append(part._replace(text=form(number, part.text)))
    return Stream(out, stream.ordered)


def nl(call: Call) -> Result:
    """Files with line numbers."""
    given = options.parse(
        call.args, "bdfhilnsvw", "body-numbering number-width number-separator number-format starting-line-number line-increment"
    )
    style = given.get("b", "body-numbering") or "t"
    streams, status = call.inputs(given.rest)
    if style not in ("a", "t") or given.has("v", "i", "n", "l", "number-format", "starting-line-number", "line-increment"):
        raise Blur
    width = min(given.number("w", "number-width") or 6, 100)
    tab = given.get("s", "number-separator")
    tab = "\t" if tab is None else tab
    gap = " " * (width + len(tab))
    stream = joined(streams)
    call.files.budget.make(*_size(stream, len(gap)))
    return number_lines(stream, numbered(width, tab), style == "t", gap), status


_VALUED = {"fold": "w", "expand": "t", "unexpand": "t", "column": "csoNRHWTEO"}
"""Letters of options with a value."""
#: Programs whose first argument is what they look for, or what they do.
_PROGRAMMED = ("jq", "yq", "ag", "ack")
_FILE = re.compile(r"[\w@+./~-]*[\w-]\.\w+|[\w@+~.-]*(?:/[\w@+.~-]+)+")


def retold(call: Call) -> Result:
    """tr, expand, fold, column and so on: every line is shown, its text changed."""
    given = options.parse(call.args, _VALUED.get(call.name, ""), "width tabs separator output-separator columns")
    streams, status = call.inputs([] if call.name == "tr" else given.rest)
    if call.name == "tr" and any(arg.startswith("-") for arg in call.args):
        raise Blur
    stream = joined(streams)
    call.files.budget.make(0, len(stream.parts))
    return Stream(
        [Line(part.path, part.no, None, rest=part.rest) if isinstance(part, Line) else part for part in stream.parts], stream.ordered
    ), status


def other_form(call: Call) -> Result:
    """xxd, jq, strings: text of the file in another form."""
    plain = [arg for arg in call.args if not arg.startswith("-")]
    told = plain[1:] if call.name in _PROGRAMMED else plain
    guessed = [arg for arg in told if _FILE.fullmatch(arg)] if call.files.tree is None else ()
    streams, status = call.inputs(
        [arg for arg in call.args if arg in call.files.pipes or arg in guessed or (arg in plain and _is_file(call, arg))]
    )
    return joined(streams).blurred(), status


def _is_file(call: Call, name: str) -> bool:
    return bool(call.files.is_file(call.files.resolve(name) or ""))
