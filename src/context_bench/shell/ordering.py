"""Commands that bring lines into another order or leave repeated ones out: sort, tac, shuf, uniq."""

from __future__ import annotations

from itertools import pairwise

from context_bench.shell import options
from context_bench.shell.call import Call, Result, joined
from context_bench.shell.model import Blur, Line, Part, Stream


def keep_lines(call: Call) -> Result:
    """sort, tac, shuf: all lines, in another order."""
    given = options.parse(call.args, "kotST" if call.name == "sort" else "ns", "key output field-separator lines")
    if given.has("u", "unique", "m", "c", "check", "n") and call.name in ("sort", "shuf") and given.has("u", "unique", "c", "check", "m"):
        raise Blur
    if call.name == "shuf" and (given.rest[1:] or given.given):
        raise Blur
    streams, status = call.inputs(given.rest)
    stream = joined(streams)
    call.files.budget.make(0, len(stream.parts))
    target = given.get("o", "output") if call.name == "sort" else None
    if call.name == "tac":
        stream = Stream([line._replace(eol=True) for line in reversed(stream.texts())], stream.ordered)
    elif (
        call.name == "sort"
        and not set(given.given) - {"r", "reverse", "o", "output"}
        and all(isinstance(part, Line) and part.text is not None and not part.rest for part in stream.parts)
    ):
        lines = sorted(stream.texts(), key=lambda line: line.text or "", reverse=given.has("r", "reverse"))
        stream = Stream([line._replace(eol=True) for line in lines], ordered=False)
    else:
        stream = Stream([part._replace(eol=True) if isinstance(part, Line) else part for part in stream.parts], ordered=False)
    if target:
        call.files.write(target, stream)
        return Stream(), status
    return stream, status


def uniq(call: Call) -> Result:
    """Neighbouring equal lines as one."""
    given = options.parse(call.args, "fsw", "skip-fields skip-chars check-chars")
    if given.given:
        raise Blur
    streams, status = call.inputs(given.rest[:1])
    stream = joined(streams)
    lines = stream.texts()
    if any(one.text == two.text and one.no for one, two in pairwise(lines)):
        raise Blur
    out: list[Part] = []
    for line in lines:
        if not out or not isinstance(out[-1], Line) or out[-1].text != line.text:
            out.append(line)
    return Stream(out, stream.ordered), status
