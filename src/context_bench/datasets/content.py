"""What local files hold, told by a hash, and whether they still hold it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path


class Content:
    """A file as it was when its hash was first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: tuple[int, ...] | None = None

    @cached_property
    def sha256(self) -> str:
        """In hex digits. The file is read once. Raises `OSError`."""
        with self.path.open("rb") as file:
            self._state = _state(os.fstat(file.fileno()))
            return hashlib.file_digest(file, "sha256").hexdigest()

    def unchanged(self) -> bool:
        """Is it still the file that `sha256` is about? Any writing shows, also what leaves it as it was."""
        try:
            return self._state is not None and _state(self.path.stat()) == self._state
        except OSError:
            return False

    @property
    def size(self) -> int:
        """Bytes."""
        return self.path.stat().st_size


class Contents:
    """Several files in order, each read once for its hash."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.files = [Content(path) for path in paths]

    def unchanged(self) -> bool:
        """Are all of them still what their hashes are about?"""
        return all(each.unchanged() for each in self.files)


def _state(known: os.stat_result) -> tuple[int, ...]:
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns
