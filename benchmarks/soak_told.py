"""What a soak run tells: a table for a page, and where two reports differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from soak_watch import Kind

BILL = {
    "wire": ("billed", "source"),
    "usage": ("input_tokens", "output_tokens", "total_tokens", "cost_usd", "cost"),
    "metadata": ("prompt_tokens", "completion_tokens", "total_tokens", "cost_usd", "forwarded_source"),
}  # by part of a row, what comes of the provider's usage
BILLS = (("wire", "billed"), ("usage", "input_tokens"))  # of a row: what a tap saw of its bill, and what we were told
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


@dataclass
class Compared:
    """Two reports side by side. `differences`: path, value, value; `unbilled`: rows of the first without their bill."""

    differences: list[str]
    unbilled: int = 0


def compared(disturbed: str, calm: str) -> Compared:
    """Where the report of a disturbed run differs from that of an undisturbed one. Attempts may, and which of several
    equal answers it was that a judge was paid for.

    A stream that stalls after its answer and before its bill is a whole answer that nobody can price: such a row has no
    usage, and what is summed over bills of its arm is left out of the comparison, notes on what is bought for its price
    among it. Where the bill came as far as the tap and not to us, the wire has it and the row has no usage.

    The day that prices are of is left out: a soak may go on past midnight.
    """
    one, other = json.loads(disturbed), json.loads(calm)
    for report in (one, other):
        _leave_out_day(report.get("manifest") or {})
    unbilled = _leave_out_bills(one, other)
    found: list[str] = []
    _differ(one, other, "", found.append)
    return Compared(found, unbilled)


def _leave_out_day(manifest: dict[str, Any]) -> None:
    """Take the day that prices are of out of a manifest, and what a resume kept beside it for that day alone."""
    earlier = manifest.pop("earlier", [])
    for each in (manifest, *earlier):
        (each.get("prices") or {}).pop("date", None)
    told = [
        each
        for each in earlier
        if any(manifest.get(name) != value for name, value in each.items() if name not in ("limits", "loads"))
    ]
    if told:
        manifest["earlier"] = told


def _leave_out_bills(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Take the bills of rows that have none in `one` out of both reports, with their arms' sums; their number."""
    pairs = list(zip(one.get("rows", []), other.get("rows", []), strict=False))
    rows = [(a, b) for a, b in pairs if any(_has(b, *bill) and not _has(a, *bill) for bill in BILLS)]
    for a, b in rows:
        for row in (a, b):
            for part, names in BILL.items():
                row[part] = {name: value for name, value in (row.get(part) or {}).items() if name not in names}
    for system in {a["system"] for a, _ in rows}:
        for report in (one, other):
            report.get("estimates", {}).get(system, {}).pop("cost_usd", None)
            report.get("wire", {}).get(system, {}).pop("billed", None)
    if rows:
        for report in (one, other):
            report["notes"] = [note for note in report.get("notes", ()) if "at its price" not in note]
    return len(rows)


def _has(row: Mapping[str, Any], part: str, name: str) -> bool:
    return (row.get(part) or {}).get(name) is not None


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
