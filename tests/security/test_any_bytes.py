"""No parser of text from outside falls over: the targets of `benchmarks/fuzz`, for a moment each."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

_FOLDER = Path(__file__).parents[2] / "benchmarks" / "fuzz"


def _module(name):
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


seeds, guided, targets = (_module(name) for name in ("seeds", "guided", "targets"))

PIECES = [
    b'{"messages": [{"role": "user", "content": ', b'"x"', b"]}", b"{", b"[", b'"', b"\\ud800", b"\xff", b"\x00", b"null", b"-1e999", b"\n",  # noqa: E501
    b"\r", b"data: ", b"event: ", b"[DONE]", b"\n\n", b"$(", b"`", b"<<EOF\n", b"EOF", b"| sed -n '", b"cat ", b"a.py", b"\\boxed{",  # noqa: E501
    b"\\frac", b"}", b"(A)", b"answer is ", b"yes", b"Sat, 01 Jan 2000 00:00:00 GMT", b"1h2m", b"99999999999999999999", b"py:", b"a.b:C?k=",  # noqa: E501
    b"http://", b"@", b"[::1", b"sk-", b"Bearer ", b"PK\x03\x04", b"PK\x05\x06", b"PAR1", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b",", b";",  # noqa: E501
]  # fmt: skip
ANY = st.binary(max_size=200) | st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=30).map(b"".join)


@pytest.mark.parametrize("name", targets.TARGETS)
@settings(max_examples=40)
@given(data=ANY)
def test_any_bytes_are_read_or_refused(name, data):
    targets.tried(targets.TARGETS[name], data)


@pytest.mark.parametrize("name", targets.NEAR)
def test_what_is_nearest_to_the_network_holds_what_it_promises(name):
    """Changes of the inputs that guided fuzzing kept: read or refused, storable, the same wherever it is cut, and
    quick.
    """
    target = partial(targets.tried, targets.TARGETS[name])
    done = guided.fuzz(target, list(guided.beginnings(name)), inputs=500, seed=zlib.crc32(name.encode()), guided=False)
    assert not done.findings
    assert done.inputs >= 500


def test_twenty_targets_are_near_and_begin_with_something():
    assert len(targets.NEAR) == len(set(targets.NEAR)) == 20
    assert all(list(guided.beginnings(name)) for name in targets.NEAR)
    assert guided.CORPUS.stat().st_size <= 300_000


HIDDEN = """
def parse(data):
    if data[:1] == b"{":
        if data[1:2] == b"[":
            if data[2:3] == b"}":
                if data[3:4] == b"]":
                    raise KeyError(data)
"""


def test_coverage_leads_to_what_chance_does_not_find(tmp_path):
    (tmp_path / "hidden.py").write_text(HIDDEN)
    spec = importlib.util.spec_from_file_location("hidden", tmp_path / "hidden.py")
    hidden = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hidden)
    led, again = (guided.fuzz(hidden.parse, [b"aaaa"], inputs=20_000, seed=3, under=str(tmp_path)) for _ in range(2))
    blind = guided.fuzz(hidden.parse, [b"aaaa"], inputs=20_000, seed=3, under=str(tmp_path), guided=False)
    assert next(iter(led.findings.values()))[:4] == b"{[}]"
    assert led.lines == 6  # and the one that calls it a function
    assert led.corpus == again.corpus
    assert led.findings == again.findings
    assert not blind.findings


def test_a_finding_names_its_error_and_what_is_slow(monkeypatch):
    def broken(data):
        raise IndexError("list index out of range")

    assert list(guided.fuzz(broken, [b"a"], inputs=3, guided=False).findings) == ["IndexError in ?"]
    monkeypatch.setattr(guided, "SLOW", -1.0)
    assert "slow" in guided.fuzz(len, [b"a"], inputs=3, guided=False).findings
