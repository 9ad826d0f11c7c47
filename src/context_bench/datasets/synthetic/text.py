"""From facts to a text of a wanted length: sentences among prose that nobody asks about, in paragraphs and sections."""

from __future__ import annotations

from dataclasses import dataclass

from context_bench.core.errors import BadInput
from context_bench.core.tokens import TokenCounter
from context_bench.datasets.synthetic.world import Draw, Piece, World, capital, lexicon

SHORTEST = 1200  # tokens: what the six questions need, with their near misses
SECTION = 450  # tokens of a section, about
FACTS = 0.4  # share of the text that facts take, asked ones included; the rest is prose


@dataclass(slots=True)
class Text:
    """A finished text, its length in tokens, and where each sentence stands (`spans[id(piece)]`: begin and end in
    characters).
    """

    text: str
    tokens: int
    spans: dict[int, tuple[int, int]]


def compose(world: World, tokens: int, counter: TokenCounter) -> Text:
    """The text of `world` with at most `tokens` tokens, and hardly fewer. Raises `BadInput` if what is asked does not
    fit.
    """
    prose = _Prose(world.draw)
    sections = max(5, tokens // SECTION)
    spent = _cost([*world.opening, *world.pieces], counter) + sections * 9
    for added in world.more():
        if spent >= FACTS * tokens:
            world.pieces = [piece for piece in world.pieces if piece not in added]
            break
        spent += _cost(added, counter)
    filler: list[tuple[Piece, int]] = []
    while spent < tokens:
        piece = prose.sentence()
        filler.append((piece, cost := counter.count(f" {piece.text}")))
        spent += cost
    return _fitted(_Layout(world.draw, sections), world, filler, tokens, counter)


def _cost(pieces: list[Piece], counter: TokenCounter) -> int:
    return sum(counter.count(f" {piece.text}") for piece in pieces)


def _fitted(layout: _Layout, world: World, filler: list[tuple[Piece, int]], tokens: int, counter: TokenCounter) -> Text:
    """Prose is taken out until the text is short enough."""
    while True:
        text, spans = layout.render(world.opening, [*world.pieces, *(piece for piece, _ in filler)])
        over = (found := counter.count(text)) - tokens
        if over <= 0:
            return Text(text, found, spans)
        while over > 0:
            if not filler:
                raise BadInput(
                    f"{tokens} tokens are too few for the six questions and what they need; try {found + 100} or more"
                )
            over -= filler.pop()[1]


class _Prose:
    """Sentences about nothing that is asked, none twice in a row of many."""

    def __init__(self, draw: Draw) -> None:
        self._draw, self._words = draw, lexicon()["filler"]
        self._said: set[str] = set()

    def sentence(self) -> Piece:
        for _ in range(8):  # in a very long text repetition is bearable, an endless search is not
            slots = {name: self._draw.pick(values) for name, values in self._words.items() if name != "forms"}
            text = capital(self._draw.pick(self._words["forms"]).format(**slots)) + "."
            if text not in self._said:
                break
        self._said.add(text)
        return Piece(text, self._draw.below(1 << 30) / (1 << 30))


class _Layout:
    """Title, opening, and sections of equal length in the order of `at`."""

    def __init__(self, draw: Draw, sections: int) -> None:
        frame = lexicon()["frame"]
        self._title = frame["title"].format(town=lexicon()["parts"]["starts"].split()[draw.below(40)] + "mouth")
        self._opening = frame["opening"]
        papers = draw.shuffled(frame["papers"])
        self._headings = [f"{papers[i % len(papers)]}, week {i + 1}" for i in range(sections)]
        self._lengths = [4 + draw.below(4) for _ in range(61)]  # sentences of the paragraphs, over and over

    def render(self, opening: list[Piece], pieces: list[Piece]) -> tuple[str, dict[int, tuple[int, int]]]:
        """The text, and where each piece is in it."""
        ordered = sorted(pieces, key=lambda piece: piece.at)
        blocks: list[str | list[Piece]] = [self._title, self._opening, opening]
        paragraph = 0
        for number, heading in enumerate(self._headings):
            begin, end = (len(ordered) * i // len(self._headings) for i in (number, number + 1))
            blocks.append(heading)
            while begin < end:
                stop = min(end, begin + self._lengths[paragraph % len(self._lengths)])
                blocks.append(ordered[begin:stop])
                begin, paragraph = stop, paragraph + 1
        return _joined(blocks)


def _joined(blocks: list[str | list[Piece]]) -> tuple[str, dict[int, tuple[int, int]]]:
    parts: list[str] = []
    spans: dict[int, tuple[int, int]] = {}
    length = 0
    for block in blocks:
        between = "\n\n"
        for piece in [block] if isinstance(block, str) else block:
            text = piece if isinstance(piece, str) else piece.text
            if parts:
                parts.append(between)
                length += len(between)
            if not isinstance(piece, str):
                spans[id(piece)] = (length, length + len(text))
            parts.append(text)
            length += len(text)
            between = " "
    return "".join(parts), spans
