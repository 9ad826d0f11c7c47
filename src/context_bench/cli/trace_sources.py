"""What commands about traces read, as options: gold, logs, repositories, tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def labelled(texts: Sequence[str]) -> dict[str, list[Path]]:
    """`NAME=PATH` and paths without a name (the set ""), by name. A path that exists as it is written has no name."""
    out: dict[str, list[Path]] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        named = bool(equals) and "/" not in name and not Path(text).exists()
        out.setdefault(name if named else "", []).append(Path(path if named else text))
    return out
