"""Every built-in compressor keeps the contract, and the contract finds what breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from context_bench.compression.compressors import COMPRESSORS, compressor_of
from context_bench.core.protocols import Compressed
from context_bench.testing.compressor_contract import assert_compressor, check_compressor


class _Words:
    """An embedder that needs no model: letters counted."""

    name = "letters"

    def embed(self, texts: Any) -> list[list[float]]:
        return [[float(text.lower().count(letter)) + 0.1 for letter in "aeiousrtln"] for text in texts]


@pytest.mark.parametrize("name", sorted(COMPRESSORS))
def test_built_ins_keep_the_contract(name: str) -> None:
    if name == "extractive":
        from context_bench.compression.compressors.ranked_sentences import Extractive

        assert_compressor(lambda: Extractive(embedder=_Words()), huge=60_000)
    else:
        assert_compressor(lambda: compressor_of(name), huge=60_000)


class _Base:
    name = "bad"

    def compress(self, prefix: Any, tail: Any, *, state: Any, budget: int | None, query: str | None = None) -> Any:
        return Compressed(list(prefix)), state


class _Orphans(_Base):
    def compress(self, prefix: Any, tail: Any, *, state: Any, budget: int | None, query: str | None = None) -> Any:
        kept = [message for message in prefix if message["role"] == "tool"]
        return Compressed(kept, warnings=["too long"]), state


class _InPlace(_Base):
    def compress(self, prefix: Any, tail: Any, *, state: Any, budget: int | None, query: str | None = None) -> Any:
        prefix.clear()
        return Compressed([]), state


class _Random(_Base):
    deterministic = True
    calls = 0

    def compress(self, prefix: Any, tail: Any, *, state: Any, budget: int | None, query: str | None = None) -> Any:
        _Random.calls += 1
        return Compressed([{"role": "user", "content": str(_Random.calls)}] if prefix and budget != 0 else []), state


class _NoTuple(_Base):
    def compress(self, prefix: Any, tail: Any, *, state: Any, budget: int | None, query: str | None = None) -> Any:
        return list(prefix)


class _Stateful(_Base):
    deterministic = True

    def compress(self, prefix: Any, tail: Any, *, state: Any, budget: int | None, query: str | None = None) -> Any:
        state = [] if state is None else state
        state.append(len(prefix))
        return Compressed([]), state


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (_Base, "keeps_budgets_or_says_so"),
        (_Orphans, "gives_messages"),
        (_InPlace, "changes_nothing_it_was_given"),
        (_Random, "is_as_deterministic_as_it_says"),
        (_NoTuple, "gives_messages"),
        (_Stateful, "goes_on_from_its_state"),
    ],
)
def test_what_breaks_it_is_found(broken: type, check: str) -> None:
    assert check in {finding.check for finding in check_compressor(broken, huge=2000)}
