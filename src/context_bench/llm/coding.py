"""Bodies unpacked: gzip, deflate, br and zstd, piece by piece, and never more of one than a limit. What is relayed is
not touched.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from context_bench.core.keys import MOST_BYTES, TooLarge

#: A body may unpack to so many times its size; texts of models pack to a tenth, and seldom to a fiftieth.
MOST_RATIO = 200
#: Up to so many bytes the ratio does not matter.
_FREE = 8 * 2**20
_SLICE = 64 * 1024
_PIECE = 2**20
_MOST_CODINGS, _MOST_MEMBERS = 4, 1_000


class Undecodable(ValueError):
    """The body is not what its `Content-Encoding` says."""


class _Undo(Protocol):
    @property
    def whole(self) -> bool:
        """The packed bytes that have come are a whole body."""

    def __call__(self, data: bytes) -> Iterator[bytes]:
        """The decoded pieces of one slice of encoded data."""


class Decoder:
    """Unpacks a body as it comes, by the value of its `Content-Encoding` header (several codings are undone last
    first).

    `limit`: bytes in all that are unpacked, the steps in between included.
    """

    def __init__(self, encoding: str = "", limit: int = MOST_BYTES) -> None:
        names = [name.strip().lower() for name in encoding.split(",")]
        names = [name for name in reversed(names) if name not in ("", "identity")]
        if len(names) > _MOST_CODINGS:
            raise Undecodable(f"{len(names)} content encodings one upon the other; expected at most {_MOST_CODINGS}")
        self._undo = [_undo(name) for name in names]
        self._limit, self._came, self._made = limit, 0, 0

    @property
    def whole(self) -> bool:
        """The packed bytes that have come are whole bodies."""
        return all(undo.whole for undo in self._undo)

    def feed(self, data: bytes) -> bytes:
        """The plain bytes that `data` completes. Raises `Undecodable`, and `TooLarge` beyond the limit or
        `MOST_RATIO`.
        """
        return b"".join(self.pieces(data))

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The same, a mebibyte at a time; to be taken to its end before more is fed."""
        self._came += len(data)
        pieces: Iterator[bytes] = iter((data,))
        for undo in self._undo:
            pieces = self._through(undo, pieces)
        return pieces

    def _through(self, undo: _Undo, packed: Iterator[bytes]) -> Iterator[bytes]:
        for data in packed:
            for start in range(0, len(data), _SLICE):
                for piece in undo(data[start : start + _SLICE]):
                    self._made += len(piece)
                    self._check()
                    yield piece

    def _check(self) -> None:
        if self._made > self._limit:
            raise TooLarge(f"too large: unpacks to more than {self._limit // 2**20} MiB")
        if self._made > max(_FREE, MOST_RATIO * self._came):
            raise TooLarge(f"too large: unpacks to more than {MOST_RATIO} times its size")


def decode(data: bytes, encoding: str = "", limit: int = MOST_BYTES) -> bytes:
    """A whole body, unpacked; one that ends too early gives what there is. Raises `Undecodable` and `TooLarge`."""
    return Decoder(encoding, limit).feed(data)


def unpacks_to_more(data: bytes, encoding: str, limit: int) -> bool:
    """Unpack a body as far as `limit`. Returns True if it may be longer."""
    try:
        decode(data, encoding, limit)
    except Undecodable:
        return False
    except Exception:  # too large, or something that is tried again where it does no harm
        return True
    return False


def _undo(name: str) -> _Undo:
    if name in ("gzip", "x-gzip"):
        return _Gzip()
    if name == "deflate":
        return _Deflate()
    if name == "br":
        return _Brotli()
    if name == "zstd":
        return _Zstd()
    raise Undecodable(f"content encoding {name[:20]!r} is not known")


class _Deflate:
    """With the zlib header that the standard asks for, or without, as some servers send it."""

    def __init__(self, header: int = 15) -> None:
        self._stream = zlib.decompressobj(header)
        self._begun = False

    @property
    def whole(self) -> bool:
        return self._stream.eof

    def __call__(self, data: bytes) -> Iterator[bytes]:
        if not self._begun and data[0] & 0x0F != 8:
            self._stream = zlib.decompressobj(-15)
        self._begun = True
        yield from self._inflated(data)

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        while data:
            yield _inflate(self._stream, data)
            data = self._stream.unconsumed_tail


class _Gzip(_Deflate):
    """Also several gzip members one after another."""

    def __init__(self) -> None:
        super().__init__(31)
        self._members = 1

    def __call__(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream.eof:
                self._members += 1
                if self._members > _MOST_MEMBERS:
                    raise TooLarge(f"too large: more than {_MOST_MEMBERS} gzip members")
                self._stream = zlib.decompressobj(31)
            yield from self._inflated(data)
            data = self._stream.unused_data


def _inflate(stream: zlib._Decompress, data: bytes) -> bytes:
    try:
        return stream.decompress(data, _PIECE)
    except zlib.error as error:
        raise Undecodable(f"not readable as gzip or deflate: {error}") from None


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._error = brotli.error
        self._stream = brotli.Decompressor()

    @property
    def whole(self) -> bool:
        return bool(self._stream.is_finished())

    def __call__(self, data: bytes) -> Iterator[bytes]:
        try:
            piece = self._stream.process(data, output_buffer_limit=_PIECE)
            while piece or not self._stream.can_accept_more_data():  # output may be held back after all input is taken
                yield piece
                piece = self._stream.process(b"", output_buffer_limit=_PIECE)
        except self._error as error:
            raise Undecodable(f"not readable as br: {error}") from None


class _Zstd:
    """Frames one after another. Slices are kept small: a block gives at most 128 KiB, and takes at least 4 bytes.

    The first byte of a frame is fed alone: given a whole frame at once, the library takes another way, which refuses
    some broken frames that it reads in pieces, and a body must not depend on where it was cut.
    """

    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        self._frame: Any = None
        self._frames = 0

    @property
    def whole(self) -> bool:
        return self._frame is None

    def __call__(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            piece = data[at : at + (256 if self._frame is not None else 1)]
            at += len(piece)
            if self._frame is None:
                self._begin()
            try:
                yield self._frame.decompress(piece)
            except self._error as error:
                raise Undecodable(f"not readable as zstd: {error}") from None
            if self._frame.eof:
                at -= len(self._frame.unused_data)
                self._frame = None

    def _begin(self) -> None:
        self._frames += 1
        if self._frames > _MOST_MEMBERS:
            raise TooLarge(f"too large: more than {_MOST_MEMBERS} zstd frames")
        self._frame = self._unpacker.decompressobj()
