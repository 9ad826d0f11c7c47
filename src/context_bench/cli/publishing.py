"""A result as tables, JSON or Markdown, to the terminal or a file, and then held against its limits."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.cli.gate import hold, limits
from context_bench.core.errors import BadInput

if TYPE_CHECKING:
    pass


OutputOption = Annotated[str, typer.Option("--output", help="table, json, markdown.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Write to this file instead of stdout.")]


def publish(
    document: Mapping[str, Any], grids: Any, output: str, out: Path | None, minimum: list[str] | None, maximum: list[str] | None
) -> None:
    """Write the result, then hold it against the limits."""
    if output not in ("table", "json", "markdown"):
        raise BadInput(f"--output {output!r}: expected table, json or markdown")
    from context_bench.reports.grids import as_markdown, as_table
    from context_bench.reports.text import json_ready

    if output == "json":
        text = json.dumps(json_ready(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        text = as_markdown(grids()) if output == "markdown" else as_table(grids(), width=_width(out))
    if out is None:
        sys.stdout.write(text)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        print(f"context-bench: written to {out}", file=sys.stderr)
    hold(limits(document, minimum or [], maximum or []))


def _width(out: Path | None) -> int:
    import shutil

    return max(80, shutil.get_terminal_size((120, 24)).columns) if out is None else 120
