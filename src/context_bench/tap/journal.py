"""Records as JSON, and as lines of a file that only its owner may read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from context_bench.core.errors import StoreUnusable
from context_bench.core.records import Forwarded, Usage
from context_bench.wire.apis.shared import dump


def as_json(record: Forwarded) -> dict[str, Any]:
    """A record as JSON values, bodies untouched (absent parts of a body stay `null`). `core.usage.forwarded_of` reads it back."""
    values = {one.name: getattr(record, one.name) for one in fields(Forwarded)}
    if record.usage is not None:
        values["usage"] = {one.name: getattr(record.usage, one.name) for one in fields(Usage)}
    return values


@contextlib.contextmanager
def record_file(path: Path) -> Iterator[Callable[[Forwarded], None]]:
    """A sink that appends each record as one line of JSON to a file that only its owner may read (mode 0600). Raises `StoreUnusable`."""
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        os.fchmod(file, 0o600)
        size = os.fstat(file).st_size
        torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    except OSError as error:
        raise StoreUnusable(f"records cannot be written to {path}: {error.strerror or error}") from None

    def write(record: Forwarded) -> None:
        nonlocal torn
        line = dump(as_json(record)) + b"\n"
        if torn:  # an earlier writer was killed within a line: that line is lost, this one must not be
            line = b"\n" + line
        torn = os.write(file, line) != len(line)

    try:
        yield write
    finally:
        os.close(file)
