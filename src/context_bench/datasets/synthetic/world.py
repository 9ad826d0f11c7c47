"""Content of one text: facts as sentences, the questions about them, and facts of the same form that nobody asks about.

Each question records which sentences its answer follows from (`needs`) and which look like them (`near`).

Randomness, words and number forms are ours: nothing here depends on the version of Python. Made-up people, firms,
houses, towns, ships and rooms never occur twice in one text.
"""

from __future__ import annotations

import hashlib
import string
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import chain, cycle
from typing import Any, TypeVar

from context_bench.core.keys import canonical_json

T = TypeVar("T")
_ROMAN = ((90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


class Draw:
    """Random choices by hashing a counter: the same for the same seed in every version of Python, on every machine."""

    def __init__(self, *seed: Any) -> None:
        self._key = hashlib.sha256(canonical_json(list(seed)).encode()).digest()
        self._turn = 0
        self._ready: list[int] = []

    def _bits(self) -> int:
        if not self._ready:
            digest = hashlib.blake2b(self._turn.to_bytes(8, "little"), key=self._key).digest()
            self._ready = [int.from_bytes(digest[i : i + 8], "little") for i in range(0, 64, 8)]
            self._turn += 1
        return self._ready.pop()

    def below(self, n: int) -> int:
        """A whole number from 0 to n − 1."""
        return self._bits() * n >> 64

    def pick(self, values: Sequence[T]) -> T:
        """One of `values`."""
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """All of `values` in another order (Fisher and Yates)."""
        mixed = list(values)
        for i in range(len(mixed) - 1, 0, -1):
            j = self.below(i + 1)
            mixed[i], mixed[j] = mixed[j], mixed[i]
        return mixed


@lru_cache(maxsize=1)
def lexicon() -> dict[str, Any]:
    """The words and sentence forms of `lexicon.toml`."""
    return tomllib.loads((files(__package__) / "lexicon.toml").read_text("utf-8"))


def number_word(value: int) -> str:
    """A whole number from 0 to 99 in letters: 47 → forty-seven."""
    ones, tens = (lexicon()["numbers"][name] for name in ("ones", "tens"))
    if value < 20:
        return str(ones[value])
    return f"{tens[value // 10 - 2]}-{ones[value % 10]}" if value % 10 else str(tens[value // 10 - 2])


def roman(value: int) -> str:
    """A whole number from 1 to 99 in Roman numerals: 47 → XLVII."""
    numeral = ""
    for size, sign in _ROMAN:
        numeral += sign * (value // size)
        value %= size
    return numeral


def capital(sentence: str) -> str:
    """`sentence` with its first letter large."""
    return sentence[:1].upper() + sentence[1:]


class Names:
    """Names for one text. Roots are not shared between names until all have been used once."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        parts = lexicon()["parts"]
        self._forms = {kind: parts[kind] for kind in ("firm", "house", "town")}
        self._given = parts["given"].split()
        roots = [start + end for start in parts["starts"].split() for end in parts["ends"].split()]
        self._roots: Iterator[str] = cycle(draw.shuffled(roots))
        self._vessels = draw.shuffled(
            [f"{a} {b}" for a in parts["vessel_first"].split() for b in parts["vessel_second"].split() if a[0] != b[0]]
        )
        self._rooms = draw.shuffled([f"{a} {b}" for a in parts["room_first"].split() for b in parts["room_second"]])
        self._used: set[str] = set()

    def person(self) -> str:
        """Given name and surname."""
        return self._fresh(lambda: f"{self._draw.pick(self._given)} {next(self._roots)}")

    def place(self, kind: str) -> str:
        """A firm (some begin with a small "the"), a house with a name or a harbour town: `firm`, `house`, `town`."""
        return self._fresh(lambda: self._draw.pick(self._forms[kind]).replace("{root}", next(self._roots)))

    def mark(self) -> str:
        """A firm's mark in the roll, such as K-417."""
        return self._fresh(lambda: f"{self._draw.pick(string.ascii_uppercase)}-{100 + self._draw.below(900)}")

    def vessel(self) -> str | None:
        """A ship without its article, `None` when there are no more."""
        return self._vessels.pop() if self._vessels else None

    def storerooms(self, count: int) -> Sequence[str]:
        """`count` rooms without their article; a room may come again in another call."""
        return self._draw.shuffled(self._rooms)[:count]

    def _fresh(self, make: Callable[[], str]) -> str:
        while (name := make()) in self._used:
            pass
        self._used.add(name)
        return name


SPAN, HOPS, AGGREGATE, UPDATES, CONSTRAINT, ABSENT = KINDS = (
    "span",
    "multi-hop",
    "aggregate",
    "updates",
    "constraint",
    "absent",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
FEWEST = 5  # sentences of which an aggregate consists
Shop = tuple[str, str]  # what it is, and beside what: both as the text names them


@dataclass(eq=False, slots=True)
class Piece:
    """One sentence and where it stands: `at` from 0 (begin) to 1 (end of the text)."""

    text: str
    at: float


@dataclass(slots=True)
class WorldQuestion:
    """One question: its kind and form, the accepted answers (best first), and the sentences it is about."""

    kind: str
    form: str
    question: str
    answers: list[str]
    needs: list[Piece]
    near: list[Piece] = field(default_factory=list)


class World:
    """The facts behind text number `index` of a seed, for a text of about `tokens` tokens.

    Five of the six questions, what they need and where it stands (as a share of the text) are the same at any length;
    an aggregate grows.

    `asked`: one question of each kind. `pieces`: the sentences they need, with near misses. `opening`: the standing
    rules, in front. `more()` gives further facts of the same forms, round by round, until the words run out.
    """

    def __init__(self, seed: int, index: int, tokens: int) -> None:
        self.draw = Draw("long-context", seed, index)
        self.names = Names(self.draw)
        self.pieces: list[Piece] = []
        self.opening: list[Piece] = []
        words = lexicon()
        self._say, self._ask = words["say"], words["ask"]
        self._shops: list[Shop] = self.draw.shuffled(
            [(trade, mark) for trade in words["trades"] for mark in words["landmarks"]]
        )
        self._goods, self._objects = (
            self.draw.shuffled(list(words["goods"])),
            self.draw.shuffled(list(words["objects"])),
        )
        self._numbers = {name: self._supply(low, high) for name, low, high in _RANGES}
        self.rules = self._rules()
        questions = [make(index) for make in (self._span, self._hops, self._updates, self._constraint, self._absent)]
        questions.append(self._aggregate(index, tokens))  # the only one that depends on the length
        self.asked = sorted(questions, key=lambda asked: KINDS.index(asked.kind))

    def more(self) -> Iterator[list[Piece]]:
        """Further facts, a round at a time. No round touches what a question is about."""
        while (
            self._shops and (vessel := self.names.vessel()) is not None and (second := self.names.vessel()) is not None
        ):
            before = len(self.pieces)
            for relation in ("keeper", self.draw.pick(_SHOP_FACTS), self.draw.pick(_SHOP_FACTS)):
                if self._shops:
                    self._shop_fact(relation, self._shop())
            self._chain(self._say_command(vessel), 2 + self.draw.below(3))
            self._ship_fact(self.draw.pick(_SHIP_FACTS), second)
            for _ in range(3):
                self._arrival(self.draw.pick(self._goods), self.names.place("town"))
            if self._objects:
                self._relocations(self._objects.pop(), 1 + self.draw.below(3))
            yield self.pieces[before:]

    # Sentences.

    def _sentence(self, relation: str, **slots: str | int) -> Piece:
        return self._sentence_at(self._anywhere(), relation, **slots)

    def _anywhere(self) -> float:
        return self.draw.below(1 << 30) / (1 << 30)

    def _sentence_at(self, at: float, relation: str, **slots: str | int) -> Piece:
        text = self.draw.pick(self._say["leads"]) + self.draw.pick(self._say[relation]).format(**slots)
        piece = Piece(capital(text) + ".", at)
        self.pieces.append(piece)
        return piece

    def _question(self, form: str, **slots: str) -> str:
        return capital(self.draw.pick(self._ask[form]).format(**slots))

    def _supply(self, low: int, high: int) -> Iterator[int]:
        # The first dozen go to what is asked; when all are used, only the others come again.
        values = self.draw.shuffled(range(low, high))
        return chain(values, cycle(values[12:]))

    # Places of business.

    def _shop(self, trade: str | None = None, landmark: str | None = None, unlike: Shop | None = None) -> Shop:
        """A place that nothing has been said of, if wanted of one trade or beside one landmark."""
        for i, shop in enumerate(self._shops):
            if trade in (None, shop[0]) and landmark in (None, shop[1]) and shop != unlike:
                return self._shops.pop(i)
        raise AssertionError("the words suffice for what is asked")

    def _shop_text(self, shop: Shop) -> str:
        return str(self.draw.pick(self._say["shop"]).format(trade=shop[0], landmark=shop[1]))

    def _shop_asked(self, shop: Shop) -> str:
        words = lexicon()
        return str(
            self.draw.pick(self._ask["shop"]).format(
                trade=words["trades"][shop[0]], landmark=words["landmarks"][shop[1]]
            )
        )

    def _shop_fact(self, relation: str, shop: Shop) -> tuple[Piece, str]:
        value = self._value(relation)
        return self._sentence(relation, shop=self._shop_text(shop), **{_SLOT.get(relation, "value"): value}), value

    def _value(self, relation: str) -> str:
        if relation == "shut":
            return self.draw.pick(DAYS)
        if relation == "policy":
            return self.names.place("firm")
        return self.names.person() if relation in _SLOT else str(next(self._numbers[relation]))

    def _lookalikes(self, relation: str, shop: Shop) -> list[Piece]:
        """The same fact about a place of the same trade elsewhere, and about another one at the same spot."""
        alike = (self._shop(trade=shop[0]), self._shop(landmark=shop[1]))
        return [self._shop_fact(relation, other)[0] for other in alike]

    # The six kinds.

    def _span(self, index: int) -> WorldQuestion:
        relation = ("keeper", "launched", "opened", "crew", "rent")[index % 5]
        if relation in _SHIP_FACTS:
            return self._span_of_ship(relation)
        shop = self._shop()
        near = self._lookalikes(relation, shop)
        piece, value = self._shop_fact(relation, shop)
        answers = [f"{value} florins", value] if relation == "rent" else [value]
        return WorldQuestion(
            SPAN, relation, self._question(relation, shop=self._shop_asked(shop)), answers, [piece], near
        )

    def _span_of_ship(self, relation: str) -> WorldQuestion:
        vessel, *others = (self._vessel() for _ in range(3))
        near = [self._ship_fact(relation, other)[0] for other in others]
        piece, value = self._ship_fact(relation, vessel)
        return WorldQuestion(SPAN, relation, self._question(relation, vessel=vessel), [value], [piece], near)

    def _vessel(self) -> str:
        vessel = self.names.vessel()
        assert vessel is not None  # a text asks about a handful of more than two thousand
        return vessel

    def _ship_fact(self, relation: str, vessel: str) -> tuple[Piece, str]:
        if relation == "launched":
            town = self.names.place("town")
            return self._sentence(relation, vessel=vessel, town=town), town
        value = str(next(self._numbers[relation]))
        return self._sentence(relation, vessel=vessel, value=value), value

    def _hops(self, index: int) -> WorldQuestion:
        hops = 2 + index % 3
        if index // 3 % 2:
            shop = self._shop()
            near = self._lookalikes("keeper", shop)
            first = self._shop_fact("keeper", shop)
            start = self._question("runner", shop=self._shop_asked(shop))
        else:
            vessel = self._vessel()
            other = self._say_command(self._vessel())
            near = [other[0], *self._chain(other, hops)[0]]
            first = self._say_command(vessel)
            start = self._question("skipper", vessel=vessel)
        rest, answer = self._chain(first, hops)
        question = self._question(f"hops{hops}", start=start[0].lower() + start[1:])
        return WorldQuestion(HOPS, f"{hops} hops", question, [answer], [first[0], *rest], near)

    def _say_command(self, vessel: str) -> tuple[Piece, str]:
        person = self.names.person()
        return self._sentence("command", person=person, vessel=vessel), person

    def _chain(self, first: tuple[Piece, str], hops: int) -> tuple[list[Piece], str]:
        """A person → house (→ firm (→ town)): the sentences after `first`, and where they lead."""
        house = self.names.place("house")
        sentences, end = [self._sentence("lodging", person=first[1], house=house)], house
        if hops > 2:
            firm = end = self.names.place("firm")
            sentences.append(self._sentence("deed", firm=firm, house=house))
            if hops > 3:
                end = self.names.place("town")
                sentences.append(self._sentence("bank", firm=firm, town=end))
        return sentences, end

    def _aggregate(self, index: int, tokens: int) -> WorldQuestion:
        good = self._goods.pop()
        count = max(FEWEST, 4 + 2 * (tokens // 4000).bit_length())
        top = (count + 6) // 4  # the smallest number by which one of four towns can lead with all others behind
        towns = [self.names.place("town") for _ in range(4)]
        where = [towns[0]] * top + [towns[1 + i % 3] for i in range(count - top)]
        values = [2 + self.draw.below(18) for _ in where]
        needs = [self._arrival(good, town, value) for town, value in zip(where, values, strict=True)]
        near = [self._sentence("missed", value=2 + self.draw.below(18), good=good, town=self.draw.pick(towns))]
        near += [self._arrival(other, self.draw.pick(towns)) for other in self._goods[:3]]
        form = ("sum", "count", "most")[index % 3]
        answers = {
            "sum": [str(sum(values)), f"{sum(values)} casks"],
            "count": [str(count), number_word(count)],
            "most": [towns[0]],
        }[form]
        return WorldQuestion(AGGREGATE, form, self._question(form, good=lexicon()["goods"][good]), answers, needs, near)

    def _arrival(self, good: str, town: str, value: int | None = None) -> Piece:
        return self._sentence(
            "arrival", value=2 + self.draw.below(18) if value is None else value, good=good, town=town
        )

    def _updates(self, index: int) -> WorldQuestion:
        thing = self._objects.pop()
        changes = 3 + index % 3
        sentences, room = self._relocations(thing, changes)
        self._relocations(self._objects.pop(), 2)
        question = self._question("room", object=lexicon()["objects"][thing])
        return WorldQuestion(
            UPDATES,
            f"{changes} changes",
            question,
            [f"the {room}", room],
            [sentences[-2]],
            [*sentences[:-2], sentences[-1]],
        )

    def _relocations(self, thing: str, changes: int) -> tuple[list[Piece], str]:
        """A first place, `changes` changes of it, and a last one that did not happen; the sentences in order, and the
        room in the end.
        """
        rooms = self.names.storerooms(changes + 2)
        times = sorted(self._anywhere() for _ in rooms)
        relations = ["placed", *["moved"] * changes, "mooted"]
        sentences = [
            self._sentence_at(at, r, object=thing, room=room)
            for r, at, room in zip(relations, times, rooms, strict=True)
        ]
        return sentences, rooms[-2]

    def _rules(self) -> dict[str, tuple[str, Piece]]:
        """The standing rules of this text, by the fact that they are about: which form is demanded, and the
        sentence.
        """
        texts = lexicon()["rules"]
        chosen = {"hands": self.draw.pick(("words", "roman")), "shut": self.draw.pick(("monday", "sunday"))}
        chosen |= {"licence": "initials", "policy": "mark"}
        rules = {relation: (form, Piece(texts[form], 0.0)) for relation, form in chosen.items()}
        others = [Piece(text, 0.0) for text in self.draw.shuffled(texts["others"])[:3]]
        self.opening = self.draw.shuffled(
            [Piece(texts["order"], 0.0), *(piece for _, piece in rules.values()), *others]
        )
        return rules

    def _constraint(self, index: int) -> WorldQuestion:
        relation = ("hands", "policy", "shut", "licence")[index % 4]
        form, rule = self.rules[relation]
        shop = self._shop()
        near = self._lookalikes(relation, shop)
        piece, value = self._shop_fact(relation, shop)
        needs = [rule, piece]
        if form == "mark":
            mark = self.names.mark()
            needs.append(self._sentence("mark", firm=value, value=mark))
            near += [self._sentence("mark", firm=self.names.place("firm"), value=self.names.mark()) for _ in range(2)]
            value = mark
        answers = _obeying(form, value)
        return WorldQuestion(
            CONSTRAINT, form, self._question(relation, shop=self._shop_asked(shop)), answers, needs, near
        )

    def _absent(self, index: int) -> WorldQuestion:
        relation = ("keeper", "opened", "rent")[index % 3]
        shop = self._shop()
        near = self._lookalikes(relation, shop)
        place_exists = index // 3 % 2 == 1
        if place_exists:  # the place is in the text, but not what is asked of it
            near += [self._shop_fact(other, shop)[0] for other in ("keeper", "opened", "rent") if other != relation]
        question = self._question(relation, shop=self._shop_asked(shop))
        answers = list(lexicon()["unsaid"]["answers"])
        return WorldQuestion(ABSENT, "no such fact" if place_exists else "no such place", question, answers, [], near)


_RANGES = (("opened", 1700, 1900), ("rent", 21, 200), ("hands", 11, 98), ("crew", 11, 98))
_SHOP_FACTS = ("opened", "rent", "hands", "shut", "licence", "policy")
_SHIP_FACTS = ("launched", "crew")
_SLOT = {"keeper": "person", "licence": "person", "policy": "firm"}


def _obeying(form: str, value: str) -> list[str]:
    """The answer `value` in the form that a rule demands."""
    if form == "words":
        word = number_word(int(value))
        return list(dict.fromkeys([word, word.replace("-", " ")]))
    if form == "roman":
        return [roman(int(value))]
    if form in ("monday", "sunday"):
        day = DAYS.index(value)
        return [str(day + 1 if form == "monday" else (day + 1) % 7 + 1)]
    if form == "initials":
        first, last = (name[0] for name in value.split())
        return [f"{first}.{last}.", f"{first}. {last}."]
    return [value]
