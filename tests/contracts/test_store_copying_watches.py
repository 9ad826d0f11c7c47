"""Watches and remembered replies copied between stores, also of another kind and back: each once, counted right, taken
up where it was.
"""

from contextlib import contextmanager

import pytest

from context_bench.core.errors import BadInput, StoreUnusable, UnknownName
from context_bench.core.machine import ManualClock
from context_bench.core.records import Forwarded
from context_bench.engine import copy_replies, copy_watch, list_watches, open_store, open_watch, watch_of, watched
from context_bench.engine.encoding import Secrets
from context_bench.engine.store import copied_rows
from context_bench.engine.store.outcomes import StoredReplies
from context_bench.engine.store.postgresql import StoreLost
from context_bench.wire.turns import Turn

#: What does not hang on the kind of store is tried with files.
of_files = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
HOSTILE = "a\x00b </script> é"


@pytest.fixture
def file(tmp_path):
    with open_store(tmp_path / "other.db") as opened:
        yield opened


@pytest.fixture
def seen(store, monkeypatch):
    """A watch of eleven turns, one of them of nobody's body, and seven replies; copied three rows at a time."""
    monkeypatch.setattr(copied_rows, "ROWS", 3)
    log = open_watch(store, {"via": HOSTILE}, name="w")
    bodies = [{"messages": [(HOSTILE if number % 2 else "a") * 600]} for number in range(10)]
    log.write([turn(number, body) for number, body in enumerate([*bodies, None], 1)])
    log.end()
    replies = StoredReplies(store, Secrets(()), clock=ManualClock(100.0))
    for number in range(7):
        replies.put(f"k{number}", {"content": HOSTILE})
    return told(store)


def turn(number, body):
    record = Forwarded(f"f{number}", None, "none", "openai-chat", "POST", "/v1", 1.0, request=body, reply=body)
    return Turn(number=number, arm="via", session=HOSTILE, turn=number, kind="chat", at=1.0, front=record)


def told(store, name="w"):
    watch = watch_of(store, name)
    return (watch.status, watch.created, watch.updated, watch.settings, watch.records), list(
        watched(store, name, bodies=True)
    )


def stepping(store, monkeypatch, each):
    """`each(turn, transaction)` is asked before and after every transaction of the store."""
    writing, turns = store.writing, 0

    @contextmanager
    def counting(**how):
        nonlocal turns
        turns += 1
        with writing(**how) as connection:
            yield connection
            each(turns, "before")
        each(turns, "after")

    monkeypatch.setattr(store, "writing", counting)


def test_a_watch_goes_to_another_kind_of_store_and_back(store, file, place, seen):
    assert (copied := copy_watch(store, file, "w")).records == 11
    assert not copied.there
    assert copy_watch(store, file, "last").there
    with open_store(place()) as back:
        copy_watch(file, back, "w")
        assert told(back) == told(file) == seen
        assert (copy_replies(store, file), copy_replies(file, back), copy_replies(store, back)) == (7, 7, 0)
        StoredReplies(store, Secrets(()), clock=ManualClock(200.0)).put("k3", {"content": "newer"})
        assert (copy_replies(store, back), copy_replies(file, back)) == (1, 0)  # what is newer there stays
        assert StoredReplies(back, Secrets(())).get("k3") == {"content": "newer"}
        assert StoredReplies(back, Secrets(())).get("k0") == {"content": HOSTILE}


@of_files
def test_a_copy_broken_off_is_no_watch_and_goes_on(store, file, seen, monkeypatch):
    def killed(number, place):
        if (number, place) == (5, "before"):  # begun, and three pieces of nine rows
            raise KeyboardInterrupt

    stepping(file, monkeypatch, killed)
    with pytest.raises(KeyboardInterrupt):
        copy_watch(store, file, "w")
    assert [(watch.status, watch.records) for watch in list_watches(file)] == [("copying", 9)]
    with pytest.raises(UnknownName):
        watch_of(file, "w")
    assert copy_watch(store, file, "w").records == 2
    assert told(file) == seen


@of_files
def test_nothing_is_lost_doubled_or_counted_twice_when_answers_are_lost(store, file, seen, monkeypatch):
    def gone(number, place):
        if number % 4 == (2 if place == "after" else 0):
            raise StoreLost("gone")

    stepping(file, monkeypatch, gone)
    assert copy_watch(store, file, "w").records == 11
    assert copy_replies(store, file) == 7
    assert told(file) == seen


@of_files
def test_names_do_not_clash_and_a_watch_that_goes_on_is_not_copied(store, file, seen):
    open_watch(file, {}, name="w").end()
    with pytest.raises(BadInput, match="--as NAME"):
        copy_watch(store, file, "w")
    copy_watch(store, file, "w", name="mine")
    assert told(file, "mine") == seen
    open_watch(store, {}, name="going on")
    with pytest.raises(StoreUnusable, match="going on"):
        copy_watch(store, file, "going on")
