"""Keys of long texts: made a slice at a time, equal to those made at once."""

from __future__ import annotations

import datetime
import hashlib
import json
import uuid
from collections import Counter, OrderedDict
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from context_bench.core import keys

TEXT = st.text(st.characters() | st.sampled_from('"\\\n\x1b\x7f😀\ud800'), max_size=12)
VALUES = st.recursive(
    TEXT | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)


@pytest.fixture(params=[3, 2**20])
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_SLICE", request.param)


@pytest.mark.usefixtures("slices")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VALUES)
def test_a_value_is_written_and_hashed_alike_whatever_a_slice_is(value: Any) -> None:
    written = plain(value)
    assert keys.canonical_json(value) == written
    digest = hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()
    assert keys.stable_hash(value, 64) == digest
    assert keys.canonical_json({"b": (value, object), "a": "long text"}) == plain(
        {"b": (value, object), "a": "long text"}
    )


class _Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "value",
    [
        {"b": _Number.ONE, "a": Counter("aab")},
        OrderedDict(b=1, a=[uuid.UUID(int=7), datetime.date(2026, 1, 2)]),
        {2: "two", 10: "ten"},
        [2**63 - 1, 2**64 - 1, 2**64, -(2**63) - 1],
        {"\U00010000": 1, "\uffff": 2, "\u2028\x7f\x1f": 3},
        [1e16, 1e-7, float("nan"), float("-inf"), -0.0],
        b"bytes",
    ],
)
def test_values_that_the_fast_writer_would_write_in_another_way(value: Any) -> None:
    assert keys.canonical_json(value) == plain(value)
    assert keys.canonical_json({"held": [value]}) == plain({"held": [value]})


@pytest.mark.usefixtures("slices")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXT, TEXT)
def test_a_text_is_named_alike_whatever_a_slice_is(kind: str, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    assert keys.hash_text(text, 64) == hashlib.sha256(data).hexdigest()
    named = f"{len(kind)}:{kind}".encode("utf-8", "surrogatepass") + data
    assert keys.digest_of(kind, text) == hashlib.blake2b(named, digest_size=16).digest()
