"""Values survive the store, whatever they are; texts are kept once; secrets are not kept."""

import gc
import hashlib
import json
import math
import tracemalloc

from hypothesis import given, settings, strategies as st

from context_bench.core.keys import canonical_json, hash_text
from context_bench.engine.encoding import (
    _REFERENCE,
    DICTIONARY,
    Bodies,
    Secrets,
    Skeleton,
    dumps,
    loads,
    pack,
    secrets_of,
    unpack,
)
from context_bench.engine.plan import content_key

text = st.text(st.characters(blacklist_categories=()), max_size=20) | st.text(
    st.characters(blacklist_categories=()), min_size=1024, max_size=1030
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text | st.just(_REFERENCE), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60)
@given(json_values)
def test_json_comes_back_as_it_was(value):
    assert loads(unpack(pack(dumps(value)))) == value


@settings(max_examples=60)
@given(json_values)
def test_bodies_come_back_as_they_were(value):
    bodies = Bodies()
    key = bodies.add(value)
    stored = {name: unpack(data) for name, data in bodies.fresh.items()}
    skeleton = Skeleton(stored[key])
    assert skeleton.joined({part: loads(stored[part]) for part in skeleton.parts if part in stored}) == value
    assert {link["part"] for link in bodies.links} <= set(stored)


def test_a_text_that_many_bodies_share_is_kept_once():
    bodies, context = Bodies(), "long ago " * 200
    bodies.add({"context": context, "id": 1})
    bodies.add({"messages": [{"role": "user", "content": context}], "model": "m"})
    assert sum(len(unpack(data)) > 1_500 for data in bodies.fresh.values()) == 1
    assert len(bodies.links) == 2
    bodies.committed()
    bodies.add({"context": context, "id": 2})
    assert len(bodies.fresh) == 1


def test_the_oldest_bodies_are_forgotten_an_eighth_at_a_time():
    bodies = Bodies(remembered=16)
    for number in range(100):
        bodies.add({"id": number})
        bodies.committed()
        assert min(number + 1, 15) <= len(bodies.stored) <= 17
    bodies.add({"id": 99})
    assert not bodies.fresh
    bodies.add({"id": 0})
    assert len(bodies.fresh) == 1


def test_odd_values_do_not_end_a_run():
    circle = {}
    circle["self"] = circle
    assert "self" in loads(dumps(circle))
    assert loads(dumps({1: {2, 3}})) == {"1": "{2, 3}"}
    assert loads(dumps([math.nan, math.inf])) == [None, None]
    assert loads(dumps("\ud800")) == "\ud800"
    assert loads(dumps(10**40)) == 10**40


class WithKeys:
    name = "s"

    def __init__(self):
        self.api_key = "constructor-key-1234"
        self.headers = {"Authorization": "Bearer bearer-token-5678", "accept": "application/json"}
        self.base_url = "http://user:url-p%40ssword9@host/v1"
        self.model = "plain-model-name"


def test_secrets_of_environment_and_plugins_are_found():
    secrets = secrets_of(
        [WithKeys()],
        {"OPENAI_API_KEY": "sk-environment-1", "HOME": "/home/someone", "MY_TOKEN": "short", "TERM": "xterm-256color"},
    )
    found = set(secrets.texts)
    assert {
        "constructor-key-1234",
        "bearer-token-5678",
        "url-p%40ssword9",
        "url-p@ssword9",
        "sk-environment-1",
    } <= found
    assert not found & {"plain-model-name", "/home/someone", "short", "xterm-256color", "application/json"}


def test_secrets_are_cut_out_of_texts_json_and_names():
    secrets = secrets_of([WithKeys()], {"A_SECRET": 'quo"te-\u00e9-secret'})
    assert (
        secrets.text("Incorrect API key constructor-key-1234 at http://u:p@h/x")
        == "Incorrect API key [redacted] at http://h/x"
    )
    for value in ({"said": 'quo"te-\u00e9-secret'}, ["constructor-key-1234"]):
        for data in (dumps(value), json.dumps(value).encode()):
            assert b"[redacted]" in secrets.clean(data)
    assert secrets.value({"api_key": "x", "url": "http://u:p@h/", "n": 3}) == {"url": "http://h/", "n": 3}


@settings(max_examples=30)
@given(json_values)
def test_without_secrets_nothing_is_changed(value):
    data = dumps(value)
    assert Secrets().clean(data) == data


def test_what_was_packed_with_familiar_words_is_read_by_every_version():
    told = b'{"f1":0.25,"exact_match":0.0,"recall":1.0,"contains":1.0}'
    kept = bytes.fromhex("0220397d0000183235300300a0115b44c76c840802")
    assert unpack(kept) == told
    assert len(pack(told)) < len(told) / 2
    assert (
        hashlib.sha256(DICTIONARY).hexdigest()[:16] == "333bfbf0454d0878"
    )  # never change it: stores were written with it


def test_examples_have_the_same_key_whichever_way_it_is_worked_out():
    odd = {
        "id": "\x7f\x1f\u2028/<é😀",
        "context": "a\ud800",
        "n": [1, 2**70, True, None, {"b": 1.5, "a": []}],
        "z": {"é": 1, "z": 2, "\uffff": 3},
    }
    for example in (
        odd,
        {**odd, "context": "a"},
        {**odd, "n": [1, 2**53, {"b": -1, "a": []}], "context": '"\\\b\f\n\r\t'},
    ):
        assert content_key({**example, "dataset": "d"}) == hash_text(canonical_json(example))


def test_a_small_value_that_is_remembered_takes_its_own_length():
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(2_000):
            pack(dumps({"of": "a test of what is remembered", "number": number}))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000, "orjson gives every text of JSON 4 kB"


def test_what_has_times_of_its_own_is_not_remembered():
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(2_000):
            pack(dumps({"of": "a record of a request " * 20, "number": number}))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100_000
