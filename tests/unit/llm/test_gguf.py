"""Rewriting a model file: the same weights, nothing else changed."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from context_bench.core.errors import BadInput
from context_bench.llm.weights import _SIZES, _Head, as_q8_0

Tensor = tuple[str, tuple[int, ...], int, bytes]


def q4_1(rng: np.random.Generator, blocks: int) -> bytes:
    scale = rng.uniform(-0.1, 0.1, (blocks, 1)).astype("<f2")
    least = rng.uniform(-1, 1, (blocks, 1)).astype("<f2")
    scale[0] = least[0] = 0  # a block of zeros
    nibbles = rng.integers(0, 256, (blocks, 16), dtype=np.uint8)
    return np.concatenate([scale.view(np.uint8), least.view(np.uint8), nibbles], axis=1).tobytes()


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def write(path: Path, tensors: list[Tensor], alignment: int | None = 64) -> None:
    values = [
        text("general.name") + struct.pack("<I", 8) + text("tiny"),
        text("a.list") + struct.pack("<IIQ2i", 9, 5, 2, 7, -7),
    ]
    values += [
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("ß"),
        text("flag") + struct.pack("<I?", 7, True),
    ]
    if alignment:
        values.append(text("general.alignment") + struct.pack("<II", 4, alignment))
    head, data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(values)) + b"".join(values), b""
    for name, shape, kind, raw in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += raw + b"\0" * (-len(raw) % (alignment or 32))
    path.write_bytes(head + b"\0" * (-len(head) % (alignment or 32)) + data)


def weights(path: Path) -> dict[str, np.ndarray]:
    """Every tensor of a file, decoded as the format's definition says, one block at a time."""
    data = np.fromfile(path, dtype=np.uint8)
    head = _Head(data)
    found = {}
    for tensor in head.tensors:
        start = head.data_start + tensor.offset
        raw = data[start : start + tensor.size(tensor.kind)].tobytes()
        found[tensor.name.decode()] = np.array(list(decoded(raw, tensor.kind)), dtype=np.float64)
    return found


def decoded(raw: bytes, kind: int):
    size = _SIZES[kind][0]
    for at in range(0, len(raw), size):
        block = raw[at : at + size]
        if kind == 3:
            scale, least = struct.unpack("<2e", block[:4])
            yield from (scale * (byte & 15) + least for byte in block[4:])
            yield from (scale * (byte >> 4) + least for byte in block[4:])
        elif kind == 8:
            (scale,) = struct.unpack("<e", block[:2])
            yield from (scale * quant for quant in struct.unpack("<32b", block[2:]))
        else:
            yield struct.unpack("<f" if kind == 0 else "<e", block)[0]


@pytest.mark.parametrize("alignment", [None, 64])
def test_same_weights_in_the_new_form(tmp_path: Path, alignment: int | None) -> None:
    rng = np.random.default_rng(7)
    tensors: list[Tensor] = [
        ("norm", (5,), 0, rng.normal(size=5).astype("<f4").tobytes()),
        ("matrix", (64, 3), 3, q4_1(rng, 6)),
        ("half", (3,), 1, rng.normal(size=3).astype("<f2").tobytes()),
        ("matrix.2", (32, 2), 3, q4_1(rng, 2)),
    ]
    write(tmp_path / "a.gguf", tensors, alignment)
    as_q8_0(tmp_path / "a.gguf", tmp_path / "b.gguf")
    before, after = weights(tmp_path / "a.gguf"), weights(tmp_path / "b.gguf")
    assert list(after) == ["norm", "matrix", "half", "matrix.2"]
    for name in ("norm", "half"):
        assert (after[name] == before[name]).all()
    for name in ("matrix", "matrix.2"):
        was, now = before[name].reshape(-1, 32), after[name].reshape(-1, 32)
        largest = np.abs(was).max(axis=1, keepdims=True)
        assert (np.abs(was - now) <= largest * (1 / 254 + 2**-10)).all()
        assert np.abs(was - now).max() > 0
    assert (tmp_path / "b.gguf").read_bytes()[:4] == b"GGUF"
    as_q8_0(tmp_path / "b.gguf", tmp_path / "c.gguf")
    assert (tmp_path / "c.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_what_is_no_model_file_is_told(tmp_path: Path) -> None:
    for content in (
        b"",
        b"GG",
        b"PK\x03\x04" + b"\0" * 60,
        b"GGUF" + struct.pack("<I", 9),
        b"GGUF" + struct.pack("<IQQ", 3, 5, 5),
    ):
        (tmp_path / "x.gguf").write_bytes(content or b"\0")
        with pytest.raises(BadInput, match="GGUF"):
            as_q8_0(tmp_path / "x.gguf", tmp_path / "y.gguf")
    write(tmp_path / "z.gguf", [("t", (32,), 12, b"\0" * 144)])
    with pytest.raises(BadInput, match=r"types \[12\]"):
        as_q8_0(tmp_path / "z.gguf", tmp_path / "y.gguf")
