"""Golden files: what a user sees, kept as files, so that a change of the code that changes it shows as a change of a file.

`pytest tests/golden --refresh-golden` writes them anew; git then shows what changed, for a commit that says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def refreshing(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written and not compared."""
    return bool(request.config.getoption("--refresh-golden"))


@pytest.fixture
def golden(refreshing: bool) -> Callable[[str, str], None]:
    """(name, text) → the text is that of the golden file of that name; under `--refresh-golden` it becomes it."""

    def hold(name: str, text: str) -> None:
        file = HERE / name
        if refreshing:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        assert text.splitlines() == file.read_text("utf-8").splitlines(), f"{name} differs: see {os.path.relpath(__file__)}"

    return hold
