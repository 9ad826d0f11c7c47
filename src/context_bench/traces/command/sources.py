"""What commands about traces read, as options: gold, logs, repositories, tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

GoldOption = Annotated[Path, typer.Option("--gold", help="Gold: parquet, JSONL, JSON, or a folder of annot.json.", metavar="PATH")]
TraceOption = Annotated[
    list[str],
    typer.Option(
        "--trace", help="Log or folder of logs, of any known agent; NAME=PATH puts it in a set; repeatable.", metavar="[NAME=]PATH"
    ),
]
RepoOption = Annotated[
    list[str] | None,
    typer.Option(help="Checkout, git clone (PATH@COMMIT), archive, JSON snapshot, or a folder of them; repeatable.", metavar="PATH"),
]
ToolsOption = Annotated[Path | None, typer.Option(help="Further tools of agents, as TOML.", metavar="FILE")]
InstanceOption = Annotated[str | None, typer.Option(help="The task that all traces are about, where logs do not say.", metavar="ID")]


def labelled(texts: Sequence[str]) -> dict[str, list[Path]]:
    """`NAME=PATH` and paths without a name (the set ""), by name. A path that exists as it is written has no name."""
    out: dict[str, list[Path]] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        named = bool(equals) and "/" not in name and not Path(text).exists()
        out.setdefault(name if named else "", []).append(Path(path if named else text))
    return out
