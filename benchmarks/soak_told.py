"""What a soak run tells: a table for a page, and where two reports differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from soak_watch import Kind

ATTEMPTS = ("calls", "client_calls", "bytes", "prefix_tokens")  # of a row: they tell how often it was tried


def table(figures: Mapping[str, str], programs: list[Kind]) -> str:
    """Figures by name, the first as the head, and the programs' memory and files, in Markdown."""
    lines = [f"| {name} | {value} |" for name, value in figures.items()]
    lines.insert(1, "|---|---|")
    for each in programs:
        memory, files = ("{:.0f} → {:.0f} (most {:.0f})".format(*three) for three in (each.memory, each.files))
        lines.append(f"| {each.name}: MB when warm → at the end; files open | {memory}; {files} |")
    lines += [f"| {each.name}: slope of memory | {each.trend} |" for each in programs]
    return "\n".join(lines)


def differences(one: str, other: str) -> list[str]:
    """Where two reports differ: path, value, value. Attempts may, and which of several equal answers it was that a
    judge was paid for.
    """
    found: list[str] = []
    _differ(json.loads(one), json.loads(other), "", found.append)
    return found


def _differ(one: object, other: object, path: str, add: Callable[[str], None]) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            if key in ATTEMPTS or (key == "judge" and path.endswith(".usage")):
                continue
            _differ(one.get(key), other.get(key), f"{path}.{key}", add)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            _differ(a, b, f"{path}[{place}]", add)
    elif one != other:
        add(f"{path}: {str(one)[:80]} instead of {str(other)[:80]}")
