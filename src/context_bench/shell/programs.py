"""Commands that run a program over lines, or cut pieces out of them: sed, awk, cut."""

from __future__ import annotations

import math
import re

from context_bench.shell.awk import Awk
from context_bench.shell.budget import LINE
from context_bench.shell.call import Call, Result, joined, parse_options
from context_bench.shell.files import Files
from context_bench.shell.model import Blur, Line, Part, Some, Stream, open_ended
from context_bench.shell.sed import Sed
from context_bench.shell.text_commands import unrolled


def _changed(program: Sed, stream: Stream) -> Stream:
    """What a file holds after the program; not known where its text is not."""
    if program.unknown:
        return stream.blurred()
    try:
        return Stream(program.run(stream.texts()), stream.ordered)
    except Blur:
        return stream.blurred()


def sed(call: Call) -> Result:
    """Files through a sed script, or changed in place."""
    program = Sed(call.args, call.files.budget)
    streams, status = call.inputs(program.files)
    if program.in_place:
        for name, stream in streams:
            call.files.write(name, _changed(program, stream), in_place=True)
        return Stream(), status
    out = Stream()
    groups = [stream for _, stream in streams] if program.separate else [joined(streams)]
    for stream in groups:
        lines = unrolled(stream, program.highest() + 1, call.files.budget) if open_ended(stream.parts) else stream.parts
        checked = Stream(lines, stream.ordered).lines()
        if open_ended(checked[:-1]) or (not stream.ordered and program.counts()):
            raise Blur
        out.extend(Stream(program.run(checked), stream.ordered))
    return out, 2 if status else 0


def awk(call: Call) -> Result:
    """Files through an awk program."""
    given = parse_options(call.args, "vfF", "", stop_at_first=True)
    if given.has("f") or not given.rest or any(name not in "vF" for name in given.given):
        raise Blur
    variables = {}
    for setting in given.values("v"):
        name, _, value = setting.partition("=")
        variables[name] = value
    program = Awk(given.rest[0], variables, call.files.budget)
    streams, status = call.inputs([name for name in given.rest[1:] if not re.match(r"[A-Za-z_]\w*=", name)])
    if len(given.rest) > 1 and any(re.match(r"[A-Za-z_]\w*=", name) for name in given.rest[1:]):
        raise Blur
    files = []
    for name, stream in streams:
        if not stream.ordered and program.rules:
            raise Blur
        parts = stream.parts
        if any(isinstance(part, Line) and part.rest for part in parts):
            if not program.numeric or len(streams) > 1 or "%" in given.rest[0]:
                raise Blur
            parts = unrolled(stream, sum(program.numbers) + 2, call.files.budget)
        files.append((name, Stream(parts).lines()))
    return Stream(program.run(files)), status


def cut(call: Call) -> Result:
    """Characters or fields of each line."""
    given = parse_options(call.args, "bcdf", "bytes characters delimiter fields output-delimiter")
    streams, status = call.inputs(given.rest)
    stream = joined(streams)
    spots = given.get("c", "characters", "b", "bytes")
    fields = given.get("f", "fields")
    if given.has("complement", "output-delimiter") or not re.fullmatch(r"[\d,-]+", spots or fields or ""):
        raise Blur
    delimiter = given.get("d", "delimiter") or "\t"
    chosen = _chosen(spots or fields or "")
    out: list[Part] = []
    for line in stream.texts():
        text = line.text or ""
        call.files.budget.make(len(text) // 8, 1)
        call.files.budget.step(LINE + len(text))
        if spots is not None:
            new = "".join(text[first:last] for first, last in chosen)
        elif delimiter not in text:
            new = text
        else:
            parts = text.split(delimiter)
            new = delimiter.join(part for first, last in chosen for part in parts[first:last])
        out.append(remainder(line, new, call.files))
    return Stream(out, stream.ordered), status


def _chosen(spec: str) -> list[tuple[int, int | None]]:
    """The ranges of a list such as `2,5-`, as slices that do not overlap, in order."""
    ranges: list[tuple[int, float]] = []
    for one in spec.split(","):
        low, dash, high = one.partition("-")
        if not (low or high) or len(one) > 15:
            raise Blur
        ranges.append((max(int(low or 1), 1), int(high) if high else math.inf if dash else int(low)))
    slices: list[tuple[int, int | None]] = []
    reached = 0.0
    for first, last in sorted(ranges):
        if last > reached and last >= first:
            slices.append((max(first - 1, int(reached)), None if math.isinf(last) else int(last)))
            reached = last
        if math.isinf(reached):
            break
    return slices


def remainder(line: Line, new: str, files: Files) -> Part:
    """What is left of a line of a file: still that line, no longer text of it, or a fragment that cannot be called either."""
    if line.path is None or not line.no:
        return Line(None, 0, new)
    tree = files.tree
    lines = tree.lines(line.path) if tree is not None else None
    whole = (lines[line.no - 1].text or "").strip() if lines and line.no <= len(lines) else (line.text or "").strip()
    left = new.strip()
    if (whole and whole in new) or (left and whole.startswith(left) and len(left) >= 8) or (not whole and not left):
        return line._replace(text=new)
    if re.fullmatch(r"[\d:\s-]*", left) or line.path.endswith(left):
        return Line(None, 0, new)
    return Some(line.path)
