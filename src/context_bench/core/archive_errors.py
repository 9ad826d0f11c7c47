"""Exceptions that the archive modules raise for corrupt, encrypted or unsupported files."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib

FAULTS: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    ValueError,
    IndexError,  # a member without a name
    RuntimeError,  # encrypted
    NotImplementedError,  # a version or method that is not known
    struct.error,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
)
