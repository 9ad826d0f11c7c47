"""What an agent looked at, told by its requests as the tap kept them: whatever program it is, with or without a log of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.records import Forwarded
from context_bench.transcripts.trace import Rereads, rereads
from context_bench.transcripts.traces import load_traces


def reading_of(records: Sequence[Forwarded]) -> dict[str, Any]:
    """`reads`, `again`, `redundancy` (see `core.rereads`) and `tool_calls`; empty where no body was kept or nothing can be made of them.

    Blocking.
    """
    if not records:
        return {}
    with tempfile.TemporaryDirectory(prefix="context-bench-") as folder:
        path = Path(folder, "records.jsonl")
        with path.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(json.dumps(_plain(record), ensure_ascii=True, default=str) + "\n" for record in records)
        try:
            traces = list(load_traces(path))
        except BadInput:  # nothing that could be read, or no body at all
            return {}
    total = Rereads()
    for trace in traces:
        total += rereads(trace.events)
    told = {"reads": total.reads, "again": total.again, "redundancy": total.redundancy, "tool_calls": sum(one.step_count for one in traces)}
    return {name: value for name, value in told.items() if value is not None}


def _plain(record: Forwarded) -> dict[str, Any]:
    values = {one.name: getattr(record, one.name) for one in fields(Forwarded)}
    return {**values, "usage": None if record.usage is None else asdict(record.usage)}
