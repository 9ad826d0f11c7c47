"""No parser of text from outside falls over: the targets of `benchmarks/fuzz`, for a moment each."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

_PLACE = Path(__file__).parents[2] / "benchmarks" / "fuzz" / "targets.py"
_SPEC = importlib.util.spec_from_file_location("fuzz_targets", _PLACE)
targets = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(targets)

PIECES = [
    b'{"messages": [{"role": "user", "content": ', b'"x"', b"]}", b"{", b"[", b'"', b"\\ud800", b"\xff", b"\x00", b"null", b"-1e999", b"\n",
    b"\r", b"data: ", b"event: ", b"[DONE]", b"\n\n", b"$(", b"`", b"<<EOF\n", b"EOF", b"| sed -n '", b"cat ", b"a.py", b"\\boxed{",
    b"\\frac", b"}", b"(A)", b"answer is ", b"yes", b"Sat, 01 Jan 2000 00:00:00 GMT", b"1h2m", b"99999999999999999999", b"py:", b"a.b:C?k=",
    b"http://", b"@", b"[::1", b"sk-", b"Bearer ", b"PK\x03\x04", b"PK\x05\x06", b"PAR1", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b",", b";",
]  # fmt: skip
ANY = st.binary(max_size=200) | st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=30).map(b"".join)


@pytest.mark.parametrize("name", targets.TARGETS)
@settings(max_examples=40)
@given(data=ANY)
def test_any_bytes_are_read_or_refused(name, data):
    targets.tried(targets.TARGETS[name], data)
