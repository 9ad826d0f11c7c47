"""Keys and addresses are masked; ordinary text is left as it is."""

import pytest
from hypothesis import given, strategies as st

from context_bench.tap.masking import (
    MASK,
    credentials,
    map_text,
    mask_names,
    mask_private,
    mask_text,
    masker,
    may_hold_a_key,
    text_masker,
)

KEYS = [
    "sk-abcdefghijklmnop1234",
    "sk-ant-api03-abc_DEF-0123456789",
    "sk-proj-0123456789abcdef0123",
    "sk_live_0123456789abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA-0123456789abcdefghijklmnopqrstu",
    "ghp_0123456789abcdefghij0123456789abcdef",
    "github_pat_0123456789abcdefghij_0123",
    "glpat-0123456789abcdefghij",
    "hf_0123456789abcdefghijABCDEFGHIJ",
    "gsk_0123456789abcdefghijABCDEFGHIJ",
    "xai-0123456789abcdefghijABCDEFGHIJ",
    "xoxb-1234567890-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123",
    "cb-0123456789abcdef0123456789abcdef01234567",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK=\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("key", KEYS)
def test_key_shapes(key):
    assert mask_text(f"before {key} after") == f"before {MASK} after"
    assert key not in mask_text(f'{{"k":"{key}"}}')


def test_bearer_tokens_lose_the_token_only():
    assert mask_text("Authorization: Bearer abcdef0123456789.xyz==") == f"Authorization: Bearer {MASK}"


@pytest.mark.parametrize(
    "text", ["task-oriented", "a sk-ip", "ask-me-anything-please-now", "the bearer of news", "cb-1", "ghosts", "xoxo"]
)
def test_words_are_left_alone(text):
    assert mask_text(text) == text


def test_known_secrets_go_whatever_they_look_like():
    assert mask_text("it was hunter2-hunter2!", ["hunter2-hunter2"]) == f"it was {MASK}!"


def test_credentials_of_a_request():
    headers = [
        ("Authorization", "Bearer tok-1234567"),
        ("X-Api-Key", "plain-key-1"),
        ("Cookie", "sid=cookie-value-1; a=b"),
        ("Accept", "text/html-long"),
    ]
    found = credentials(headers, "/x?key=query%2Dkey-1&code=function-code&api_key=other-key-9")
    assert {"tok-1234567", "plain-key-1", "cookie-value-1", "query-key-1", "function-code", "other-key-9"} <= found
    assert "text/html-long" not in found
    assert mask_text("a dummy b", credentials([("Authorization", "Bearer dummy")], "/")) == "a dummy b"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("write to jane.doe+x@mail.example.org now", f"write to {MASK} now"),
        ("postgres://user:pa55word@db/x", f"postgres://{MASK}@db/x"),
        ('password = "tops3cret"', f'password = "{MASK}"'),
        ("api_key: abcd1234, next", f"api_key: {MASK}, next"),
        ("no secrets here: a = b, token economy", "no secrets here: a = b, token economy"),
    ],
)
def test_private(text, masked):
    assert mask_private(text) == masked


def test_private_does_not_stall_on_hostile_text():
    for hostile in ("a@" * 20_000, "a." * 20_000 + "@", "://" * 20_000, "password" * 20_000, "a@b" + ".c" * 20_000):
        mask_private(hostile)
        mask_text(hostile)


def test_names_lose_short_keys_but_messages_do_not():
    body = {"user": "sk-1234", "metadata": {"user_id": "token_abcd", "n": 1}, "messages": [{"content": "sk-1234"}]}
    assert mask_names(body) == {
        "user": MASK,
        "metadata": {"user_id": MASK, "n": 1},
        "messages": [{"content": "sk-1234"}],
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_a_change_that_changes_nothing_gives_an_equal_value(value):
    assert map_text(value, lambda text: text) == value


def test_depth_is_limited():
    deep: object = "x"
    for _ in range(500):
        deep = [deep]
    with pytest.raises(RecursionError):
        map_text(deep, str.upper)


def test_a_text_looked_at_once_is_masked_for_the_secrets_that_are_known():
    one, other = masker(frozenset({"harbour-key-1234"})), masker(frozenset({"lighthouse-key-5678"}))
    texts = ["role", "x harbour-key-1234", "lighthouse-key-5678", "sk-" + "a" * 24, f"{'long ' * 20}harbour-key-1234"]
    for _ in range(2):
        for known in (one, other):
            assert [text_masker(known)(text) for text in texts] == [mask_text(text, known) for text in texts]


_KNOWN = masker(frozenset(("hunter2-hunter2", "Zwölf/Boxkämpfer+7=", "short", 'with "marks" and \\ lines\n')))


@pytest.mark.parametrize(
    "text", [*KEYS, "Bearer abcdef0123456789.xyz==", "HUNTER2-hunter2", "hunter2\\u002dhunter2", "?key=short"]
)
def test_a_body_with_a_key_in_any_text_is_looked_at_text_by_text(text):
    assert map_text({"a": [{"b": f"say {text} now"}]}, lambda each: mask_text(each, _KNOWN)) != {
        "a": [{"b": f"say {text} now"}]
    }
    assert may_hold_a_key({"a": [{"b": f"say {text} now"}]}, _KNOWN)
    assert may_hold_a_key({f"say {text} now": 1}, _KNOWN)
    assert may_hold_a_key(f"say {text} now", _KNOWN)


def test_a_body_without_one_is_looked_at_once():
    body = {"model": "m", "messages": [{"role": "user", "content": "Where is the ferry? \n — «там»"}] * 50}
    assert not may_hold_a_key(body, _KNOWN)
    assert may_hold_a_key({"half": "\ud800"}, _KNOWN), "what cannot be looked at as a whole"


_TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from([*KEYS, *_KNOWN.values, b"hunter2-hunter2".hex(), "aHVudGVyMi1odW50ZXIy", "sk-", "earer "]),
)


@given(st.recursive(_TEXTS, lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner), max_leaves=8))
def test_what_needs_no_second_look_is_left_as_it_is(value):
    if not may_hold_a_key(value, _KNOWN):
        assert map_text(value, lambda text: mask_text(text, _KNOWN)) == value
