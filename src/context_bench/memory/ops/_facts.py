"""Things to remember that nobody has ever said: seeded, each with a word of its own by which it is known again."""

from __future__ import annotations

import random
from dataclasses import dataclass

from context_bench.memory.protocol import Hit, Item

_NAMES = ("Maren", "Tobias", "Ilse", "Ravi", "Noor", "Pavel", "Chiara", "Dembe", "Yuki", "Linnea", "Oskar", "Salma", "Teodor", "Wanjiru")
_SURNAMES = ("Oduya", "Halvorsen", "Kessler", "Brandt", "Achterberg", "Moreau", "Lindqvist", "Takeda", "Varga", "Nkosi", "Solano", "Petrov")
_PLACES = (
    "boathouse", "granary", "lighthouse", "orchard", "foundry", "observatory", "vineyard", "quarry", "chapel", "sawmill", "greenhouse",
    "brewery", "stables", "windmill", "archive", "bakery", "dovecote", "cistern", "forge", "pavilion",
)  # fmt: skip
_FILLER = (
    "The ferry was late again and nobody minded.", "Rain is expected on the coast towards evening.", "They talked about bread for a while.",
    "A new path was cut through the hazel wood.", "The choir meets on alternate weeks in winter.", "Somebody had left the gate ajar.",
)  # fmt: skip
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True, slots=True)
class Fact:
    """A thing to remember. `word` occurs in no other fact; `question` asks for it without saying it; `topic` is name and place."""

    id: str
    word: str
    text: str
    question: str
    topic: str

    def item(self, time: str | None = None) -> Item:
        """As something to hand over."""
        return Item(self.id, self.text, time=time)

    def told(self, word: str) -> str:
        """The same thing with another word."""
        return self.text.replace(self.word, word)


class Facts:
    """A source of facts. All words have one length, so that none is ever part of another."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random("/".join(map(str, seed)))
        self._words: set[str] = set()
        self._number = 0
        self._topics = [(name, surname, place) for name in _NAMES for surname in _SURNAMES for place in _PLACES]
        self._random.shuffle(self._topics)

    def word(self) -> str:
        """A word that this source has not given before: ten letters that can be spoken."""
        while True:
            pairs = (self._random.choice(_CONSONANTS) + self._random.choice(_VOWELS) for _ in range(5))
            word = "".join(pairs)
            if word not in self._words:
                self._words.add(word)
                return word

    def fact(self) -> Fact:
        """A new fact; who and where repeat only after thousands."""
        number, self._number = self._number, self._number + 1
        name, surname, place = self._topics[number % len(self._topics)]
        who, word = f"{name} {surname}", self.word()
        return Fact(
            f"f{number}",
            word,
            f"{who} opens the old {place} with the secret word {word}.",
            f"With which secret word does {who} open the old {place}?",
            f"{who} {place}",
        )

    def facts(self, number: int) -> list[Fact]:
        """So many new facts."""
        return [self.fact() for _ in range(number)]

    def neighbour(self, fact: Fact) -> Fact:
        """A true thing about the same person and place with a word of its own."""
        word = self.word()
        return Fact(
            f"{fact.id}n", word, f"{fact.topic}: the cat there is called {word}.", f"What is the cat called? {fact.topic}", fact.topic
        )

    def long(self, characters: int, head: str, tail: str) -> str:
        """A text of about so many characters that begins with one word and ends with another."""
        parts = [f"The report opens with the word {head}."]
        size = len(parts[0])
        while size < characters - 40:
            parts.append(self._random.choice(_FILLER))
            size += len(parts[-1]) + 1
        return " ".join([*parts, f"The report closes with {tail}."])

    def pick(self, number: int) -> int:
        """A whole number below `number`."""
        return self._random.randrange(number)


def says(hits: list[Hit], *words: str) -> bool:
    """Whether a hit says all of the words."""
    return any(all(word in hit.text.lower() for word in words) for hit in hits)


def whole(text: str, hits: list[Hit]) -> bool:
    """Whether a hit holds the whole text, however it is spaced."""
    wanted = " ".join(text.split())
    return any(wanted in " ".join(hit.text.split()) for hit in hits)
