"""Time against length for every target: `python benchmarks/fuzz/growth.py [TARGET …] [--bytes N]` (see README.md).

Each good input is made longer in several ways, and each odd piece is repeated. What takes more than twice as long again
as its length says is told, with the input. Each target runs in a process of its own, which is ended where it hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from seeds import known
from targets import TARGETS, tried

#: Repeated, they have cost a parser dearly before, somewhere.
PIECES = (
    *("a", " ", "\n", "\r", "\t", "0", "9", ".", ",", ";", ":", "-", "_", "/", "\\", "'", '"', "`", "(", ")",),
    *("[", "]", "{", "}", "<", ">", "|", "&", "$", "#", "@", "*", "+", "=", "~", "!", "?", "%", "é", "\u3000",),
    *("\u202e", "a ", "a.", "a,", "a/", "a\n", "a:", "a=b ", "\n\n", "- ", "* ", "# ", "a: ", "[]", "{}", "()",),
    *("[[", "{{", "((", "$(", "<<", "``", "```\n", "**", "__", "\\\\", "\\n", "//", "../", "./", "a.b.", "{a,",),
    *("@@ -1 +1 @@\n", "--- a\n+++ b\n", "-a\n", "+a\n", "diff --git a/a b/a\n", "data: a\n", "data: {}\n\n",),
    *("event: a\n", "<a>", "</a>", "<!--", "def f():\n", "       \n", "if a:\n ", "import a\n", "class A:\n",),
    *("a(", "1+", "a[", "lambda:", "\\frac{", "\\boxed{", "\\left(", "^{", "_{", "A) ", "(A)", "answer: ",),
    *("yes no ", "1. ", "sk-", "Bearer ", "key=", "http://a ", "a@b.c ", "127.0.0.1 ", "2024-01-01 ",),
    *("Sat, 01 Jan 2000 ", '{"a":', '["', '"a",', '{"a":1},', "null,", "1e9,", '\\"', "\\u0041", "[a]\n",),
    *('a = "b"\n', "a.", "'''", '"""', "&a ", "*a ", "- - ", "? ", "*** Update File: a\n", "*** Begin Patch\n",),
    *("Thought: a\nAction: b\n", "PASSED a\n", "a::b PASSED\n", "0\r\n\r\n", "5\r\nhello\r\n", "A: b\r\n"),
)  # fmt: skip


def inputs(name: str, size: int) -> Iterator[tuple[str, bytes]]:
    """The inputs of about a size, each with the way it was made."""
    for number, data in enumerate(known().get(name, [])):
        yield f"input {number} again and again", data * (size // max(len(data), 1) + 1)
        for piece in ("a", "a ", "a.b/c ", "x\n", '"', "\\", "<a>", "a: 1\n"):
            for place, made in _longer(data, piece * (size // len(piece))):
                yield f"input {number} with {piece!r} in {place}", made
        for place, made in _more(data, size):
            yield f"input {number} with more of {place}", made
    for piece in PIECES:
        yield f"{piece!r} again and again", (piece * (size // len(piece) + 1)).encode()


def _longer(data: bytes, text: str) -> Iterator[tuple[str, bytes]]:
    """The JSON (of its first line) with a long text in the place of each of its texts."""
    first, rest = _first(data)
    for holder, key in list(_places(first)):
        if isinstance(holder[key], str):
            before, holder[key] = holder[key], text
            yield str(key), json.dumps(first[0]).encode() + rest
            holder[key] = before


def _more(data: bytes, size: int) -> Iterator[tuple[str, bytes]]:
    """The same with each of its lists repeated."""
    first, rest = _first(data)
    for holder, key in list(_places(first)):
        if isinstance(holder[key], list) and holder[key]:
            before = holder[key]
            holder[key] = before * (size // len(json.dumps(before)) + 1)
            yield str(key), json.dumps(first[0]).encode() + rest
            holder[key] = before


def _first(data: bytes) -> tuple[list[Any], bytes]:
    line, end, rest = data.partition(b"\n")
    for text, left in ((data, b""), (line, end + rest)):
        try:
            return [json.loads(text)], left
        except ValueError:
            continue
    return [], b""


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _seconds(name: str, data: bytes) -> float:
    began = time.process_time()
    try:
        tried(TARGETS[name], data)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
    return time.process_time() - began


def grown(name: str, size: int, report: Any) -> None:
    """Tell of each way in which time grows faster than length."""
    small = dict(inputs(name, size // 8))
    for way, large in inputs(name, size):
        report(f"{name}: {way}")
        took = _seconds(name, large)
        if took > 0.15:
            before = min(_seconds(name, small[way]) for _ in range(2))
            times = len(large) / max(len(small[way]), 1)
            if took > 2.5 * times * max(before, 0.002):
                print(
                    f"| {name} | {way} | {len(large):,} | {took:.2f} | {before:.3f} | {took / before:.0f} at "
                    f"{times:.0f} |",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time against length for the parsers of text from outside.")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--bytes", type=int, default=64_000)
    given = parser.parse_args()
    print("| target | input | bytes | seconds | seconds for an eighth | times |\n|---|---|---|---|---|---|", flush=True)
    for name in given.targets or TARGETS:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
            signal.setitimer(signal.ITIMER_PROF, 300)
            os.close(reading)
            last = os.fdopen(writing, "w")
            grown(name, given.bytes, lambda way, last=last: print(way, file=last, flush=True))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as told:
            last_way = (told.read().splitlines() or [name])[-1]
        if os.waitpid(child, 0)[1]:
            print(f"| {last_way} | hangs | | | | |", flush=True)


if __name__ == "__main__":
    main()
