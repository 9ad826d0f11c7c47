"""What the demo says, on terminals of several widths."""

from __future__ import annotations

import io
from itertools import pairwise
from types import SimpleNamespace

import pytest
from rich.console import Console

from context_bench.cli import demo


@pytest.mark.parametrize("width", [60, 80, 100])
def test_paragraphs_of_the_demo_are_wrapped_once(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_bench.reports.render", lambda *_, **__: "")
    undecided = SimpleNamespace(
        system="bm25", verdict="undecided", low=-0.31, high=0.12, sentence="bm25: undecided against full. " * 6
    )
    result = SimpleNamespace(
        rows=range(120),
        estimates={name: {demo.EVIDENCE: SimpleNamespace(value=0.5)} for name in demo.PROXIES},
        lifts=[],
        comparisons=[undecided],
        wire={name: {"sent": 12345, "forwarded": 1234, "changes": {"role: a → [b]": 3}} for name in ("one", "two")},
    )
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False)
    demo._show_evidence(console, result)
    demo._show_measured(console, result, 24)
    demo._show_roles(console, result)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    text = " ".join(stream.getvalue().split())
    assert "that it could read, so its answers say little about what was cut (-0.31 to +0.12)." in text
    assert "role changes: a → [b] (3 ×)." in text
    assert max(map(len, lines)) <= width
    for line, following in pairwise(lines):
        within = line and not line.endswith((".", "?", ":", ")", "model")) and following
        assert not within or len(line) + 1 + len(following.split()[0]) > width, (line, following)
