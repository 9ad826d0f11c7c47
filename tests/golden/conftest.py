"""Golden files: texts that a user sees, kept as files, so that a change of them shows as a change of a file.

`pytest tests/golden --refresh-golden` writes them anew; git then shows the changes, for a commit that says why. Files
that end in `.xz` are packed: `git diff` does not show them, the test that fails does.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Sequence
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
        difference = first_difference(kept, text)
        assert difference is None, difference

    return hold


def first_difference(kept: str, text: str) -> str | None:
    """The first line that is another one, around the place; `None` where both texts are the same."""
    if kept == text:
        return None
    before, now = kept.split("\n"), text.split("\n")
    number = _first_other(before, now)
    one, other = (lines[number] if number < len(lines) else "(no such line)" for lines in (before, now))
    start = max(0, _first_other(one, other) - 60)
    return f"line {number + 1}\n- {one[start : start + 200]}\n+ {other[start : start + 200]}"


def _first_other(kept: Sequence[str], found: Sequence[str]) -> int:
    """The index of the first element that is another one."""
    pairs = enumerate(zip(kept, found, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(kept), len(found)))


def _read(file: Path) -> str:
    data = file.read_bytes()
    return (lzma.decompress(data) if file.suffix == ".xz" else data).decode("utf-8")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode("utf-8")
    file.write_bytes(lzma.compress(data, preset=9) if file.suffix == ".xz" else data)
