"""Files that commands write: whole or not at all, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from context_bench.core.errors import BadInput

#: What a disk answers that cannot take more, or nothing at all.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


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
