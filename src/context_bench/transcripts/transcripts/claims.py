"""What a prediction, or an agent about itself, says was read: blocks of `File:` and `Lines: a-b`."""

from __future__ import annotations

import re

from context_bench.transcripts.trace import Event, Ranges

_SPAN = re.compile(r"File:[ \t]*(\S[^\n]*?)[ \t]*\n\s*Lines:[ \t]*(\d{1,9})[ \t]*-[ \t]*(\d{1,9})", re.I)


def claim(
    path: str, ranges: Ranges, step: int, tool: str, symbols: tuple[str, ...] = (), *, shown: bool = False, named: bool = True
) -> Event:
    """What a prediction, or the agent about itself, says was read. `named`: see `Event`."""
    return Event(step, None, "read", tool, path, ranges, "self_report", "shown" if shown else "claimed", symbols=symbols, named=named)


def spans(block: str, step: int, tool: str) -> list[Event]:
    """Claims in a block of `File:` and `Lines: a-b`."""
    lines: dict[str, list[tuple[int, int]]] = {}
    for hit in _SPAN.finditer(block):
        lines.setdefault(hit[1], []).append((int(hit[2]), int(hit[3])))
    return [claim(path, tuple(found), step, tool) for path, found in lines.items()]
