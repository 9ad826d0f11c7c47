"""Where this program keeps what can be had again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Model files and looked-up prices: `$XDG_CACHE_HOME/context-bench`, else `~/.cache/context-bench`."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if Path(root).is_absolute() else Path.home() / ".cache") / "context-bench"
