"""Commands that show nothing of a file, or only text of their own: echo, printf, wc, tee."""

from __future__ import annotations

import re

from context_bench.shell import options
from context_bench.shell.call import Call, Result
from context_bench.shell.model import UNKNOWN, Line, Some, Stream, plain


def wc(call: Call) -> Result:
    """Counts: no text of the file."""
    given = options.parse(call.args, "", "files0-from")
    streams, status = call.inputs(given.rest)
    if set(given.given) == {"l"} and len(streams) == 1:
        name, stream = streams[0]
        if all(isinstance(part, Line) and not part.rest for part in stream.parts):
            count = sum(1 for part in stream.parts if isinstance(part, Line) and part.eol)
            return Stream([Line(None, 0, f"{count} {name}".strip())]), status
    return Stream([Some(None)] if streams else []), status


def silent(call: Call) -> Result:
    """Commands that tell nothing of a file's text."""
    return Stream(), 0


def tee(call: Call) -> Result:
    """Pass standard input on and write it to files."""
    given = options.parse(call.args, "")
    stream = call.stdin or Stream()
    for name in given.rest:
        call.files.write(name, stream, append=given.has("a", "append"))
    return stream, 0


def echo(call: Call) -> Result:
    """The arguments."""
    end, escapes, first = True, False, 0
    while first < len(call.args) and re.fullmatch(r"-[neE]+", call.args[first]):
        end, escapes = end and "n" not in call.args[first], "e" in call.args[first]
        first += 1
    text = " ".join(call.args[first:])
    if escapes:
        text = text.replace("\\n", "\n").replace("\\t", "\t")
    return _own(call, text + "\n" * end)


def _own(call: Call, text: str) -> Result:
    """Text of the command itself."""
    if UNKNOWN in text:
        return Stream([Some(None)]), 0
    return plain(text, call.files.budget) if text else Stream(), 0


def printf(call: Call) -> Result:
    """The arguments, as far as the format is understood."""
    args = call.args[1:] if call.args[:1] == ["--"] else call.args
    if not args:
        return Stream(), 1
    form = args[0].replace("\\n", "\n").replace("\\t", "\t")
    if form in ("%s\n", "%s") and len(args) > 1:
        return _own(call, "".join(arg + form[2:] for arg in args[1:]))
    if "%" not in form and "\\" not in form:
        return _own(call, form)
    return Stream([Some(None)]), 0
