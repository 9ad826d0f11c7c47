"""Golden files: what a user sees, kept as files, so that a change of the code that changes it shows as a change of a file.

`pytest tests/golden --refresh-golden` writes them anew; git then shows what changed, for a commit that says why. Those that end in `.xz`
are packed: `git diff` does not show them, the test that fails does.
"""

from __future__ import annotations

import lzma
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
        if refreshing and (not file.exists() or _read(file) != text):
            _write(file, text)
        difference = first_difference(_read(file), text)
        assert difference is None, f"{name} differs (see tests/golden/conftest.py): {difference}"

    return hold


@pytest.fixture
def same_text() -> Callable[[str, str], None]:
    """(kept, text) → both are the same; a failure shows the first place where they are not."""

    def hold(kept: str, text: str) -> None:
        assert first_difference(kept, text) is None

    return hold


def first_difference(kept: str, text: str) -> str | None:
    """The first line that is another one, around the place; `None` where both texts are the same."""
    if kept == text:
        return None
    before, now = kept.split("\n"), text.split("\n")
    number = next((n for n, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), min(len(before), len(now)))
    one, other = (lines[number] if number < len(lines) else "(no such line)" for lines in (before, now))
    start = max(0, next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0) - 60)
    return f"line {number + 1}\n- {one[start : start + 200]}\n+ {other[start : start + 200]}"


def _read(file: Path) -> str:
    data = file.read_bytes()
    return (lzma.decompress(data) if file.suffix == ".xz" else data).decode("utf-8")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode("utf-8")
    file.write_bytes(lzma.compress(data, preset=9) if file.suffix == ".xz" else data)
