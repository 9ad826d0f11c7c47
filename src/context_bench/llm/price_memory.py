"""What the price table said of a model earlier the same day, in the user's cache: to load the table takes as long as a short run.

One small file for each version of the table and each day whose prices hold. It can be removed at any time; where it cannot be read or
written, the table is asked.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from context_bench.core.numbers import count, money
from context_bench.llm.folders import cache_folder

MOST = 200  # models in a file
#: Five rates and the model's window (`None`: not known).
Rates = tuple[float, float, float, float, float, int | None]
_LARGEST = 100_000  # bytes


def recalled(version: str, day: str, model: str) -> tuple[bool, Rates | None]:
    """(whether that table was asked about this model for that day, its rates). No rates: the table does not have it."""
    with contextlib.suppress(OSError, RuntimeError):  # no home, not readable
        told = _read(_file(version, day))
        if model in told:
            return (True, None) if told[model] is None else _checked(told[model])
    return False, None


def keep(version: str, day: str, model: str, rates: Rates | None) -> None:
    """Remember it; files of other days and versions go."""
    with contextlib.suppress(OSError, RuntimeError):
        file = _file(version, day)
        told = _read(file)
        if len(told) >= MOST:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".prices-", delete=False, encoding="utf-8") as part:
            json.dump({**told, model: rates}, part)
        Path(part.name).replace(file)  # whole at every moment, whoever else writes
        for old in set(file.parent.glob("prices-*.json")) - {file}:
            old.unlink(missing_ok=True)


def _file(version: str, day: str) -> Path:
    return cache_folder() / f"prices-{version}-{day}.json"


def _read(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text("utf-8")) if file.stat().st_size <= _LARGEST else {}
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _checked(told: Any) -> tuple[bool, Rates | None]:
    """As it was kept, or as if it had not been: a file in a cache can be anything."""
    if not isinstance(told, list) or len(told) != 6:
        return False, None
    *rates, window = told
    known = [rate for told in rates if (rate := money(told)) is not None]
    if len(known) < len(rates) or not (window is None or count(window)):
        return False, None
    return True, (known[0], known[1], known[2], known[3], known[4], window)
