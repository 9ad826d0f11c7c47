"""Bodies are undone for the record, whatever way they were coded and cut, and bombs are not."""

import gzip
import itertools
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given, strategies as st

from context_bench.core.keys import TooLarge
from context_bench.llm.coding import Decoder, Undecodable, decode


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODINGS = {
    "": lambda data: data,
    "identity": lambda data: data,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP ": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=3),
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("coding", CODINGS)
@given(data=st.binary(max_size=3_000), cuts=st.lists(st.integers(0, 3_100), max_size=5))
def test_any_coding_cut_anywhere(coding, data, cuts):
    encoded = CODINGS[coding](data)
    edges = [0, *sorted(min(cut, len(encoded)) for cut in cuts), len(encoded)]
    decoder = Decoder(coding)
    assert b"".join(decoder.feed(encoded[a:b]) for a, b in itertools.pairwise(edges)) == data


def test_deflate_without_its_header():
    assert decode(raw_deflate(b"hello" * 100), "deflate") == b"hello" * 100


def test_several_codings_are_undone_last_first():
    data = b"text " * 1_000
    assert decode(brotli.compress(gzip.compress(data)), "gzip, br") == data


def test_several_members():
    assert decode(gzip.compress(b"one ") + gzip.compress(b"two"), "gzip") == b"one two"
    assert decode(zstandard.compress(b"one ") + zstandard.compress(b"two"), "zstd") == b"one two"


def test_large_bodies():
    data = bytes(range(256)) * 20_000
    for coding in ("gzip", "deflate", "br", "zstd"):
        assert decode(CODINGS[coding](data), coding) == data


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_not_unpacked(coding):
    bomb = CODINGS[coding](bytes(50_000_000))
    with pytest.raises(TooLarge, match="too large"):
        decode(bomb, coding, limit=1_000_000)


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
def test_garbage(coding):
    with pytest.raises(Undecodable, match="not readable"):
        decode(b"\xff\xff this is not compressed at all", coding)


def test_unknown_coding():
    with pytest.raises(Undecodable, match="'aws-chunked'"):
        decode(b"x", "aws-chunked")


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
def test_a_body_cut_short_gives_what_there_is(coding):
    data = b"".join(str(n).encode() for n in range(50_000))
    encoded = CODINGS[coding](data)
    assert data.startswith(decode(encoded[: len(encoded) // 2], coding))


def test_a_broken_zstd_frame_reads_the_same_wherever_it_is_cut():
    body = b"(\xb5/\xfd c\x05\x00\x00"  # a compressed block of no bytes, found by fuzzing
    for cut in range(len(body)):
        decoder = Decoder("zstd")
        assert decoder.feed(body[:cut]) + decoder.feed(body[cut:]) == decode(body, "zstd")


def test_a_zstd_body_cut_short_is_not_whole_and_frames_are_bounded():
    body = zstandard.compress(b"one two three " * 50)
    for cut, whole in ((len(body), True), (len(body) - 1, False), (3, False), (0, True)):
        decoder = Decoder("zstd")
        decoder.feed(body[:cut])
        assert decoder.whole is whole
    with pytest.raises(TooLarge, match="frames"):
        decode(zstandard.compress(b"") * 1_001, "zstd")
