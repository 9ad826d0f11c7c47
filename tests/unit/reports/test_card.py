"""The card of a run: its words, and that no word of the data is in it or in any other picture of the run."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import context_bench
from context_bench.__main__ import main
from context_bench.core.errors import BadInput
from context_bench.metrics import CompressionRatio, MeanScore

WINDOW = 12  # letters of a prompt that would tell what it is about


class Keeps:
    def __init__(self, name: str, share: float) -> None:
        self.name, self.share = name, share

    def process(self, example):
        kept = example["context"][: int(len(example["context"]) * self.share)]
        return {**example, "context": kept, "response": example["answer"] if self.share == 1 else kept[:30]}


class Right:
    name = "f1"
    fields = ("f1",)

    def score(self, original, processed):
        return {"f1": float(processed["response"] == original["answer"])}


def _examples(count=24):
    dice = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyz"

    def words(n):
        return " ".join("".join(dice.choice(letters) for _ in range(7)) for _ in range(n))

    return [
        {"id": n, "context": words(30), "question": words(6), "answer": words(3), "qa_type": "x"} for n in range(count)
    ]


EXAMPLES = _examples()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A result and the store that it is kept in."""
    path = tmp_path_factory.mktemp("card") / "s.db"
    systems = [Keeps("full", 1.0), Keeps("half", 0.5), Keeps('<b>"&\x1b[31m', 0.2)]
    metrics = [MeanScore(score_field="f1"), CompressionRatio()]
    found = context_bench.evaluate(
        systems, EXAMPLES, [Right()], metrics, store=str(path), run="mine", baseline="full", progress=False
    )
    return found, path


def texts(drawing: str) -> str:
    return " ".join(element.text or "" for element in ET.fromstring(drawing.encode()).iter())


def holds_a_prompt(text: str) -> str | None:
    """The first twelve letters of any example that are in the text."""
    parts = [example[key] for example in EXAMPLES for key in ("context", "question", "answer")]
    windows = (part[at : at + WINDOW] for part in parts for at in range(len(part) - WINDOW + 1))
    return next((window for window in windows if window in text), None)


def test_the_search_finds_what_is_there():
    assert holds_a_prompt(f"x{EXAMPLES[5]['question'][3:15]}y") == EXAMPLES[5]["question"][3:15]


def test_a_card_says_what_each_system_did(run):
    said = texts(run[0].plot())
    assert "half" in said
    assert "loss" in said
    assert "% fewer tokens" in said
    assert "f1, difference: -1.000 [" in said
    assert "24 examples. Against full." in said
    assert "\x1b" not in run[0].plot()


@pytest.mark.parametrize("width", [390, 720])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_card_holds_no_word_of_the_data(run, width, theme):
    assert holds_a_prompt(run[0].plot(width=width, theme=theme)) is None


def test_every_picture_of_the_run_holds_none(run):
    assert all(holds_a_prompt(run[0].plot(kind)) is None for kind in ("card", "pareto", "forest", "latency"))


def test_a_stored_run_gives_the_same_card(run, tmp_path):
    result, store = run
    out = tmp_path / "card.svg"
    assert main(["card", "mine", "--store", str(store), "--out", str(out)]) == 0
    again = tmp_path / "again.svg"
    assert main(["plot", "mine", "--kind", "card", "--width", "720", "--store", str(store), "--out", str(again)]) == 0
    result.plot().save(tmp_path / "python.svg")
    assert out.read_text() == again.read_text() == (tmp_path / "python.svg").read_text()


def test_a_card_as_png(run, tmp_path):
    out = tmp_path / "card.png"
    assert main(["card", "mine", "--store", str(run[1]), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_picture_shows_itself_in_a_notebook(run):
    assert run[0].plot()._repr_svg_() == run[0].plot()


def test_a_chart_that_is_not_there_is_told(run):
    with pytest.raises(BadInput, match="no such chart; charts of this run: card, "):
        run[0].plot("pie")


def test_one_system_alone_has_no_card():
    alone = context_bench.evaluate([Keeps("alone", 1.0)], EXAMPLES, [Right()], progress=False)
    with pytest.raises(BadInput, match="this run has no data for it"):
        alone.plot()


def test_the_documented_card_is_a_picture(run):
    drawing = ET.fromstring(run[0].plot().encode())
    assert drawing.get("role") == "img"
    assert drawing.get("aria-label", "").startswith("What 2 systems do")


def test_a_card_is_written_where_asked(run, tmp_path):
    run[0].plot().save(tmp_path / "x.svg")
    assert Path(tmp_path / "x.svg").read_text(encoding="utf-8") == run[0].plot()
