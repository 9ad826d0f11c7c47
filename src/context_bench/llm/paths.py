"""The user's cache directory: files that can be had again."""

from __future__ import annotations

import os
from pathlib import Path

from context_bench.core.errors import BadInput


def home_folder() -> Path | None:
    """The user's home; `None` for a user without one, such as a container's numbered user where HOME is not set."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def cache_folder() -> Path:
    """Model files and looked-up prices: `$XDG_CACHE_HOME/context-bench`, else `~/.cache/context-bench`; `BadInput`
    without a home.
    """
    root, home = Path(os.environ.get("XDG_CACHE_HOME", "")), home_folder()
    if not root.is_absolute():
        if home is None:
            raise BadInput("there is no home folder to keep a cache in (HOME is not set); set HOME or XDG_CACHE_HOME")
        root = home / ".cache"
    return root / "context-bench"
