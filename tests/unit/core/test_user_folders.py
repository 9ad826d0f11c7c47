"""The user's home and cache, also for a user who has none."""

from pathlib import Path

import pytest

from context_bench.core.errors import BadInput
from context_bench.core.machine import cache_folder, home_folder
from context_bench.llm.prices import keep, recalled
from context_bench.viewer.server import shown_place


@pytest.fixture
def homeless(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # nor has the table of users one


def test_a_cache_below_the_home_or_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "context-bench"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "context-bench"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/context-bench")


def test_without_a_home_a_sentence_says_what_to_set(homeless, monkeypatch):
    assert home_folder() is None
    with pytest.raises(BadInput, match=r"no home folder.*HOME or XDG_CACHE_HOME"):
        cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/context-bench")


def test_without_a_home_prices_are_not_remembered_and_the_viewer_shows_its_store(homeless):
    keep("1", "2026-01-01", "m", None)
    assert recalled("1", "2026-01-01", "m") == (False, None)
    assert shown_place("/elsewhere/s.db") == "/elsewhere/s.db"
