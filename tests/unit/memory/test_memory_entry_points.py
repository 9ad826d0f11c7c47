"""A memory that an installed package brings along: the entry point group `context_bench.memories`."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_bench.core.errors import UnknownName
from context_bench.memory.protocol import Item
from context_bench.memory.systems import make_memory

MODULE = """
class Notes:
    def __init__(self, shout=False):
        self.shout, self.kept = shout, []

    def add(self, text):
        self.kept.append(text.upper() if self.shout else text)

    def search(self, query, limit=10):
        return self.kept[:limit]
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brought_along_notes.py").write_text(MODULE)
    info = tmp_path / "brought_along-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought-along\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[context_bench.memories]\nbrought = brought_along_notes:Notes\n")
    monkeypatch.syspath_prepend(str(tmp_path))


async def test_it_is_made_by_its_name_with_options(package: None) -> None:
    memory = make_memory("brought:shout=true")
    await memory.add([Item("a", "The boat is Heron.")])
    (hit,) = await memory.search("boat", 3)
    assert "THE BOAT IS HERON." in hit.text


def test_it_is_named_where_a_name_is_unknown(package: None) -> None:
    with pytest.raises(UnknownName, match="brought"):
        make_memory("braught")
