"""Commands on lines of text.

Order and repeats (sort, tac, shuf, uniq), places (head, tail, and ranges that other commands name), whole files (cat,
bat, nl, and other forms), and commands that show nothing of a file or only text of their own (echo, printf, wc, tee).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from context_bench.shell.model import (
    UNKNOWN,
    Budget,
    CommandCall,
    FileLine,
    LineStream,
    Part,
    Result,
    Unknown,
    UnknownLines,
    all_lines,
    give_up_if,
    joined,
    parse_options,
    plain,
    unbounded,
)


def keep_lines(call: CommandCall) -> Result:
    """sort, tac, shuf: all lines, in another order."""
    sorts = call.name == "sort"
    given = parse_options(call.args, "kotST" if sorts else "ns", "key output field-separator lines")
    give_up_if(sorts and given.has("u", "unique", "m", "c", "check"))
    give_up_if(call.name == "shuf" and (given.rest[1:] or given.given))
    streams, status = call.inputs(given.rest)
    stream = joined(streams)
    call.files.budget.make(0, len(stream.parts))
    parts = [part._replace(eol=True) if isinstance(part, FileLine) else part for part in stream.parts]
    if call.name == "tac":
        stream.texts()  # all of them are known
        return LineStream(reversed(parts), stream.ordered), status
    plain_sort = sorts and not set(given.given) - {"r", "reverse", "o", "output"}
    if plain_sort and all(isinstance(part, FileLine) and part.text is not None and not part.rest for part in parts):
        parts.sort(key=_text_of, reverse=given.has("r", "reverse"))
    if sorts and (target := given.get("o", "output")):
        call.files.write(target, LineStream(parts, ordered=False))
        return LineStream(), status
    return LineStream(parts, ordered=False), status


def _text_of(part: Part) -> str:
    return part.text or "" if isinstance(part, FileLine) else ""


def uniq(call: CommandCall) -> Result:
    """Neighbouring equal lines as one."""
    given = parse_options(call.args, "fsw", "skip-fields skip-chars check-chars")
    give_up_if(given.given)
    streams, status = call.inputs(given.rest[:1])
    stream = joined(streams)
    lines = stream.texts()
    give_up_if(any(one.text == two.text and one.no for one, two in pairwise(lines)))
    out: list[Part] = []
    for line in lines:
        if not out or not isinstance(out[-1], FileLine) or out[-1].text != line.text:
            out.append(line)
    return LineStream(out, stream.ordered), status


_FURTHEST = 100_000
_new = tuple.__new__  # for lines by the thousand: half the time of `Line(…)`


def picked(stream: LineStream, first: int, last: int | None, budget: Budget) -> LineStream:
    """Lines first … last of a stream, counted from 1."""
    if last is not None and last < first:
        return LineStream()
    parts = unrolled(stream, max(first, last or 0) + 1, budget)
    return cut_out(parts, stream.ordered, first, last)


def unrolled(stream: LineStream, upto: int, budget: Budget) -> list[Part]:
    """The parts, an open file among them written out up to its line `upto`."""
    if not unbounded(stream.parts):
        return stream.parts
    give_up_if(upto > _FURTHEST)
    out: list[Part] = []
    for part in stream.parts:
        if isinstance(part, FileLine) and part.rest:
            fewer = upto - len(out)
            budget.make(0, max(fewer, 1))
            path, no = part.path, part.no
            out += [_new(FileLine, (path, number, None, True, False)) for number in range(no, no + fewer)]
            out.append(FileLine(part.path, part.no + max(fewer, 0), None, rest=True))
        else:
            out.append(part)
    return out


def cut_out(parts: list[Part], ordered: bool, first: int, last: int | None) -> LineStream:
    """Parts first … last, if their positions are known."""
    chosen = parts[first - 1 : last]
    before = parts[:last] if last is not None else parts
    # lines of an unknown number, or after an open file, have no known position
    for at, part in enumerate(before) if unbounded(before) or not all_lines(before) else ():
        if isinstance(part, UnknownLines) and (at < len(before) - 1 or last is not None or first > 1):
            raise Unknown
        if isinstance(part, FileLine) and part.rest and at < len(parts) - 1:
            raise Unknown
    give_up_if(not ordered and len(chosen) < len(parts))
    return LineStream(chosen, ordered)


def _counted(args: list[str]) -> list[str]:
    """`-20` is `-n20`, unless it is the value of another option."""
    return [
        "-n" + arg[1:]
        if re.fullmatch(r"-\d+", arg) and (at == 0 or not re.fullmatch(r"-[a-z]*[nc]|--lines|--bytes", args[at - 1]))
        else arg
        for at, arg in enumerate(args)
    ]


def ends(call: CommandCall) -> Result:
    """head, tail: the first or last lines or bytes of each file, or all from a line on; each file by itself, under its
    name if there are several.
    """
    first, args, budget = call.name == "head", _counted(call.args), call.files.budget
    if not first and args and re.fullmatch(r"\+\d+", args[0]):
        args[0] = "-n" + args[0]
    given = parse_options(args, "nc", "lines bytes" if first else "lines bytes pid")
    size, count = given.get("c", "bytes"), given.get("n", "lines") or "10"
    give_up_if(not first and given.has("f", "F", "follow"))
    give_up_if(not re.fullmatch(r"-?\d{1,9}" if first else r"[+-]?\d{1,9}", count if size is None else size))
    streams, status = call.inputs(given.rest)
    titled = (len(given.rest) > 1 or given.has("v", "verbose")) and not given.has("q", "quiet", "silent")
    out = LineStream()
    for at, (name, stream) in enumerate(streams):
        if titled:
            out.parts += [FileLine(None, 0, "")] * bool(at) + [FileLine(None, 0, f"==> {name or 'standard input'} <==")]
        if size is not None:
            out.extend(_first_bytes(stream, int(size)) if first else _last_bytes(stream, size))
        else:
            out.extend(_first_lines(stream, int(count), budget) if first else _last_lines(stream, count, budget))
    return out, status


def _first_lines(stream: LineStream, count: int, budget: Budget) -> LineStream:
    if count < 0:
        stream.lines()
        if any(isinstance(part, FileLine) and part.rest for part in stream.parts):
            raise Unknown
        return cut_out(stream.parts, stream.ordered, 1, max(len(stream.parts) + count, 0))
    return picked(stream, 1, count, budget) if count else LineStream()


def _last_lines(stream: LineStream, count: str, budget: Budget) -> LineStream:
    if count.startswith("+"):
        return picked(stream, max(int(count), 1), None, budget)
    number = abs(int(count))
    if number == 0:
        return LineStream()
    last = stream.parts[-number:]
    if any(isinstance(part, UnknownLines) or part.rest for part in last):
        raise Unknown
    give_up_if(not stream.ordered and len(last) < len(stream.parts))
    return LineStream(last, stream.ordered)


def _bytes(line: FileLine) -> bytes:
    return ((line.text or "") + "\n" * line.eol).encode("utf-8", "surrogateescape")


def _first_bytes(stream: LineStream, size: int) -> LineStream:
    lines = stream.texts()
    give_up_if(not stream.ordered)
    if size < 0:
        size = max(sum(len(_bytes(line)) for line in lines) + size, 0)
    out: list[Part] = []
    for line in lines:
        raw = _bytes(line)
        if size <= 0:
            break
        out.append(
            line
            if len(raw) <= size
            else line._replace(text=raw[:size].decode("utf-8", "surrogateescape").removesuffix("\n"), eol=False)
        )
        size -= len(raw)
    return LineStream(out)


def _last_bytes(stream: LineStream, count: str) -> LineStream:
    lines = stream.texts()
    give_up_if(not stream.ordered)
    total = sum(len(_bytes(line)) for line in lines)
    skip = max(int(count) - 1, 0) if count.startswith("+") else max(total - abs(int(count)), 0)
    out: list[Part] = []
    for line in lines:
        raw = _bytes(line)
        if skip < len(raw):
            left = raw[max(skip, 0) :]
            out.append(
                line if skip <= 0 else line._replace(text=left.decode("utf-8", "surrogateescape").removesuffix("\n"))
            )
        skip -= len(raw)
    return LineStream(out)


def cat(call: CommandCall) -> Result:
    """cat, less, more: whole files."""
    given = parse_options(call.args, "")
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
            part._replace(text=part.text.replace("\t", "^I") + "$" * ends)
            if isinstance(part, FileLine) and part.text is not None
            else part
            for part in stream.parts
        ]
        stream = LineStream(parts, stream.ordered)
    return stream, status


def _size(stream: LineStream, more: int) -> tuple[int, int]:
    """Characters and lines of a stream with so many characters more in each line."""
    return sum(len(part.text or "") + more for part in stream.parts if isinstance(part, FileLine)), len(stream.parts)


def squeezed(stream: LineStream) -> LineStream:
    """Runs of blank lines as one (`cat -s`)."""
    out: list[Part] = []
    blank = False
    for line in stream.texts():
        if line.text or not blank:
            out.append(line)
        blank = not line.text
    return LineStream(out, stream.ordered)


def bat(call: CommandCall) -> Result:
    """bat, with its line ranges."""
    given = parse_options(
        call.args,
        "lrHm",
        "language line-range highlight-line map-syntax style theme color paging decorations tabs wrap terminal-width "
        "file-name",
    )
    streams, status = call.inputs(given.rest)
    window = given.get("r", "line-range")
    give_up_if(len(given.values("r", "line-range")) > 1)
    out = LineStream()
    for _, stream in streams:
        if window:
            low, colon, high = window.partition(":")
            give_up_if(not re.fullmatch(r"\d*:?\+?\d*", window))
            first = int(low or 1)
            last = None if colon and not high else first + int(high[1:]) if high.startswith("+") else int(high or first)
            stream = picked(stream, first, last, call.files.budget)
        out.extend(stream)
    return out, status


def numbered(width: int, tab: str) -> Callable[[int, str], str]:
    """Line with its number before it, as `cat -n` and `nl` print it."""
    return lambda number, text: f"{number:>{width}}{tab}{text}"


def number_lines(
    stream: LineStream, form: Callable[[int, str], str], skip_blank: bool = False, gap: str = ""
) -> LineStream:
    """The lines with their numbers before them."""
    out: list[Part] = []
    number = 0
    for part in stream.parts:
        if isinstance(part, UnknownLines) or part.text is None:
            out.append(part)
        elif skip_blank and not part.text:
            out.append(part._replace(text=gap))
        else:
            number += 1
            out.append(part._replace(text=form(number, part.text)))
    return LineStream(out, stream.ordered)


def nl(call: CommandCall) -> Result:
    """Files with line numbers."""
    given = parse_options(
        call.args,
        "bdfhilnsvw",
        "body-numbering number-width number-separator number-format starting-line-number line-increment",
    )
    style = given.get("b", "body-numbering") or "t"
    streams, status = call.inputs(given.rest)
    give_up_if(
        style not in ("a", "t")
        or given.has("v", "i", "n", "l", "number-format", "starting-line-number", "line-increment")
    )
    width = min(given.number("w", "number-width") or 6, 100)
    tab = given.get("s", "number-separator")
    tab = "\t" if tab is None else tab
    gap = " " * (width + len(tab))
    stream = joined(streams)
    call.files.budget.make(*_size(stream, len(gap)))
    return number_lines(stream, numbered(width, tab), style == "t", gap), status


#: Letters of options with a value.
_VALUED = {"fold": "w", "expand": "t", "unexpand": "t", "column": "csoNRHWTEO"}
#: Programs whose first argument is what they look for, or what they do.
_PROGRAMMED = ("jq", "yq", "ag", "ack")
_FILE = re.compile(r"[\w@+./~-]*[\w-]\.\w+|[\w@+~.-]*(?:/[\w@+.~-]+)+")


def retold(call: CommandCall) -> Result:
    """tr, expand, fold, column and so on: every line is shown, its text changed."""
    given = parse_options(call.args, _VALUED.get(call.name, ""), "width tabs separator output-separator columns")
    streams, status = call.inputs([] if call.name == "tr" else given.rest)
    give_up_if(call.name == "tr" and any(arg.startswith("-") for arg in call.args))
    stream = joined(streams)
    call.files.budget.make(0, len(stream.parts))
    return LineStream(
        [
            FileLine(part.path, part.no, None, rest=part.rest) if isinstance(part, FileLine) else part
            for part in stream.parts
        ],
        stream.ordered,
    ), status


def other_form(call: CommandCall) -> Result:
    """xxd, jq, strings: text of the file in another form."""
    plain = [arg for arg in call.args if not arg.startswith("-")]
    told = plain[1:] if call.name in _PROGRAMMED else plain
    guessed = [arg for arg in told if _FILE.fullmatch(arg)] if call.files.tree is None else ()
    streams, status = call.inputs(
        [
            arg
            for arg in call.args
            if arg in call.files.pipes or arg in guessed or (arg in plain and _is_file(call, arg))
        ]
    )
    return joined(streams).unknown_selection(), status


def _is_file(call: CommandCall, name: str) -> bool:
    return bool(call.files.is_file(call.files.resolve(name) or ""))


def wc(call: CommandCall) -> Result:
    """Counts: no text of the file."""
    given = parse_options(call.args, "", "files0-from")
    streams, status = call.inputs(given.rest)
    if set(given.given) == {"l"} and len(streams) == 1:
        name, stream = streams[0]
        if all(isinstance(part, FileLine) and not part.rest for part in stream.parts):
            count = sum(1 for part in stream.parts if isinstance(part, FileLine) and part.eol)
            return LineStream([FileLine(None, 0, f"{count} {name}".strip())]), status
    return LineStream([UnknownLines(None)] if streams else []), status


def tee(call: CommandCall) -> Result:
    """Pass standard input on and write it to files."""
    given = parse_options(call.args, "")
    stream = call.stdin or LineStream()
    for name in given.rest:
        call.files.write(name, stream, append=given.has("a", "append"))
    return stream, 0


def echo(call: CommandCall) -> Result:
    """The arguments."""
    end, escapes, first = True, False, 0
    while first < len(call.args) and re.fullmatch(r"-[neE]+", call.args[first]):
        end, escapes = end and "n" not in call.args[first], "e" in call.args[first]
        first += 1
    text = " ".join(call.args[first:])
    if escapes:
        text = text.replace("\\n", "\n").replace("\\t", "\t")
    return _own(call, text + "\n" * end)


def _own(call: CommandCall, text: str) -> Result:
    """Text of the command itself."""
    if UNKNOWN in text:
        return LineStream([UnknownLines(None)]), 0
    return plain(text, call.files.budget) if text else LineStream(), 0


def printf(call: CommandCall) -> Result:
    """The arguments, as far as the format is understood."""
    args = call.args[1:] if call.args[:1] == ["--"] else call.args
    if not args:
        return LineStream(), 1
    form = args[0].replace("\\n", "\n").replace("\\t", "\t")
    if form in ("%s\n", "%s") and len(args) > 1:
        return _own(call, "".join(arg + form[2:] for arg in args[1:]))
    if "%" not in form and "\\" not in form:
        return _own(call, form)
    return LineStream([UnknownLines(None)]), 0
