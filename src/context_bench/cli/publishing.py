"""A result as tables, JSON or Markdown, to the terminal or a file, and then held against its limits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_bench.cli.files import write_out
from context_bench.cli.gate import hold, limits
from context_bench.core.errors import BadInput


def publish(
    document: Mapping[str, Any], grids: Any, output: str, out: Path | None, minimum: list[str] | None, maximum: list[str] | None
) -> None:
    """Write the result, then hold it against the limits."""
    if output not in ("table", "json", "markdown"):
        raise BadInput(f"--output {output!r}: expected table, json or markdown")
    from context_bench.reports.grids import as_markdown, as_table

    if output == "json":
        text = json_text(document)
    else:
        text = as_markdown(grids()) if output == "markdown" else as_table(grids(), width=_width(out))
    write_out(text, out)
    hold(limits(document, minimum or [], maximum or []))


def json_text(value: Any) -> str:
    """A document for other programs: indented, and JSON by the letter (what is no number is null)."""
    from context_bench.reports.text import json_ready

    return json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _width(out: Path | None) -> int:
    return max(80, shutil.get_terminal_size((120, 24)).columns) if out is None else 120
