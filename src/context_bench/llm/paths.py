"""The user's home and cache directories."""

from __future__ import annotations

from pathlib import Path

from context_bench.core.errors import BadInput


def home_folder() -> Path | None:
    """The user's home; `None` for a user without one, such as a container's numbered user where HOME is not set."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def cache_folder() -> Path:
    """Model files and looked-up prices: `$XDG_CACHE_HOME/context-bench`, else `~/.cache/context-bench` or the system's
    own place for caches; `BadInput` without a home.
    """
    from platformdirs import user_cache_path

    try:
        return user_cache_path("context-bench", appauthor=False)
    except RuntimeError as error:
        raise BadInput(
            "there is no home folder to keep a cache in (HOME is not set); set HOME or XDG_CACHE_HOME"
        ) from error
