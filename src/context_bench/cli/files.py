"""What commands write: to standard output, or into files, which are whole or not there, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from context_bench.core.errors import BadInput

#: What a disk answers that cannot take more, or nothing at all.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


@contextmanager
def destination(out: Path | None, mode: str = "w", what: str = "") -> Iterator[IO[Any]]:
    """Where a result goes: standard output, or a file that is there once it is whole, which is said. `what` it is: report, picture."""
    if out is None:
        stream = sys.stdout.buffer if "b" in mode else sys.stdout
        yield stream
        stream.flush()
        return
    with replacing(out, mode, **({} if "b" in mode else {"encoding": "utf-8", "newline": ""})) as stream:
        yield stream
    print(f"context-bench: {what}{' ' if what else ''}written to {out}", file=sys.stderr)


def write_out(text: str, out: Path | None, what: str = "") -> None:
    """A text that is whole already, to its `destination`."""
    with destination(out, what=what) as stream:
        stream.write(text)


@contextmanager
def replacing(path: Path, mode: str, **how: Any) -> Iterator[IO[Any]]:
    """A new file that takes the place of `path`, whose folder is made, when the block ends well; until then the old one stays as it is.

    What is no plain file (a pipe, a device) is written as it is. Raises `BadInput` where it cannot be written.
    """
    if path.exists() and not path.is_file():
        with _explained(path), path.open(mode, **how) as stream:
            yield stream
        return
    target = Path(os.path.realpath(path))  # a link stays a link
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    with _explained(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        stream = part.open(mode, **how)
    try:
        with _explained(path, _NO_ROOM), stream:
            yield stream
        with _explained(path):
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


@contextmanager
def _explained(path: Path, only: tuple[int, ...] | None = None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        raise BadInput(f"cannot write {path}: {error.strerror or error}") from error
