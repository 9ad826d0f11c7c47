"""Lines by their place in a stream: head, tail, and the ranges that other commands name."""

from __future__ import annotations

import re
from collections.abc import Callable

from context_bench.shell import options
from context_bench.shell.budget import Budget
from context_bench.shell.call import Call, Result
from context_bench.shell.model import Blur, Line, Part, Some, Stream, all_lines, open_ended

_FURTHEST = 100_000
_new = tuple.__new__  # for lines by the thousand: half the time of `Line(…)`


def picked(stream: Stream, first: int, last: int | None, budget: Budget) -> Stream:
    """Lines first … last of a stream, counted from 1."""
    if last is not None and last < first:
        return Stream()
    parts = unrolled(stream, max(first, last or 0) + 1, budget)
    return cut_out(parts, stream.ordered, first, last)


def unrolled(stream: Stream, upto: int, budget: Budget) -> list[Part]:
    """The parts, an open file among them written out up to its line `upto`."""
    if not open_ended(stream.parts):
        return stream.parts
    if upto > _FURTHEST:
        raise Blur
    out: list[Part] = []
    for part in stream.parts:
        if isinstance(part, Line) and part.rest:
            fewer = upto - len(out)
            budget.make(0, max(fewer, 1))
            path, no = part.path, part.no
            out += [_new(Line, (path, number, None, True, False)) for number in range(no, no + fewer)]
            out.append(Line(part.path, part.no + max(fewer, 0), None, rest=True))
        else:
            out.append(part)
    return out


def cut_out(parts: list[Part], ordered: bool, first: int, last: int | None) -> Stream:
    """Parts first … last, if their positions are known."""
    chosen = parts[first - 1 : last]
    before = parts[:last] if last is not None else parts
    # lines of an unknown number, or after an open file, have no known position
    for at, part in enumerate(before) if open_ended(before) or not all_lines(before) else ():
        if isinstance(part, Some) and (at < len(before) - 1 or last is not None or first > 1):
            raise Blur
        if isinstance(part, Line) and part.rest and at < len(parts) - 1:
            raise Blur
    if not ordered and len(chosen) < len(parts):
        raise Blur
    return Stream(chosen, ordered)


def _counted(args: list[str]) -> list[str]:
    """`-20` is `-n20`, unless it is the value of another option."""
    return [
        "-n" + arg[1:]
        if re.fullmatch(r"-\d+", arg) and (at == 0 or not re.fullmatch(r"-[a-z]*[nc]|--lines|--bytes", args[at - 1]))
        else arg
        for at, arg in enumerate(args)
    ]


def head(call: Call) -> Result:
    """The first lines or bytes of each file."""
    budget = call.files.budget
    args = _counted(call.args)
    given = options.parse(args, "nc", "lines bytes")
    size = given.get("c", "bytes")
    count = given.get("n", "lines") or "10"
    if not re.fullmatch(r"-?\d{1,9}", size if size is not None else count):
        raise Blur
    return _per_file(
        call, given, lambda stream: _first_bytes(stream, int(size)) if size is not None else _first_lines(stream, int(count), budget)
    )


def _first_lines(stream: Stream, count: int, budget: Budget) -> Stream:
    if count < 0:
        stream.lines()
        if any(isinstance(part, Line) and part.rest for part in stream.parts):
            raise Blur
        return cut_out(stream.parts, stream.ordered, 1, max(len(stream.parts) + count, 0))
    return picked(stream, 1, count, budget) if count else Stream()


def tail(call: Call) -> Result:
    """The last lines or bytes of each file, or all from a line on."""
    budget = call.files.budget
    args = _counted(call.args)
    if args and re.fullmatch(r"\+\d+", args[0]):
        args[0] = "-n" + args[0]
    given = options.parse(args, "nc", "lines bytes pid")
    if given.has("f", "F", "follow"):
        raise Blur
    size, count = given.get("c", "bytes"), given.get("n", "lines") or "10"
    if not re.fullmatch(r"[+-]?\d{1,9}", size if size is not None else count):
        raise Blur
    return _per_file(call, given, lambda stream: _last_bytes(stream, size) if size is not None else _last_lines(stream, count, budget))


def _last_lines(stream: Stream, count: str, budget: Budget) -> Stream:
    if count.startswith("+"):
        return picked(stream, max(int(count), 1), None, budget)
    number = abs(int(count))
    if number == 0:
        return Stream()
    last = stream.parts[-number:]
    if any(isinstance(part, Some) or part.rest for part in last):
        raise Blur
    if not stream.ordered and len(last) < len(stream.parts):
        raise Blur
    return Stream(last, stream.ordered)


def _bytes(line: Line) -> bytes:
    return ((line.text or "") + "\n" * line.eol).encode("utf-8", "surrogateescape")


def _first_bytes(stream: Stream, size: int) -> Stream:
    lines = stream.texts()
    if not stream.ordered:
        raise Blur
    if size < 0:
        size = max(sum(len(_bytes(line)) for line in lines) + size, 0)
    out: list[Part] = []
    for line in lines:
        raw = _bytes(line)
        if size <= 0:
            break
        out.append(
            line if len(raw) <= size else line._replace(text=raw[:size].decode("utf-8", "surrogateescape").removesuffix("\n"), eol=False)
        )
        size -= len(raw)
    return Stream(out)


def _last_bytes(stream: Stream, count: str) -> Stream:
    lines = stream.texts()
    if not stream.ordered:
        raise Blur
    total = sum(len(_bytes(line)) for line in lines)
    skip = max(int(count) - 1, 0) if count.startswith("+") else max(total - abs(int(count)), 0)
    out: list[Part] = []
    for line in lines:
        raw = _bytes(line)
        if skip < len(raw):
            left = raw[max(skip, 0) :]
            out.append(line if skip <= 0 else line._replace(text=left.decode("utf-8", "surrogateescape").removesuffix("\n")))
        skip -= len(raw)
    return Stream(out)


def _per_file(call: Call, given: options.Options, pick: Callable[[Stream], Stream]) -> Result:
    """Both head and tail: each file by itself, under its name if there are several."""
    streams, status = call.inputs(given.rest)
    titled = (len(given.rest) > 1 or given.has("v", "verbose")) and not given.has("q", "quiet", "silent")
    out = Stream()
    for at, (name, stream) in enumerate(streams):
        if titled:
            out.extend(Stream([*([Line(None, 0, "")] if at else []), Line(None, 0, f"==> {name or 'standard input'} <==")]))
        out.extend(pick(stream))
    return out, status
