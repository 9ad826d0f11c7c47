"""The words of one language, and the people and things that are made of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from context_bench.core.errors import UnknownName
from context_bench.datasets.synthetic.world import Draw, capital, lexicon as harbour

LANGUAGES = ("en", "ru", "zh")
_FAMILIES = 150  # family names of one haystack: few enough for look-alikes, enough for everybody


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody, or somebody's somebody: the name as subject (`who`) and in the genitive (`gen`)."""

    who: str
    gen: str

    def slots(self) -> dict[str, str]:
        return {"who": self.who, "gen": self.gen}


@lru_cache(maxsize=len(LANGUAGES))
def words(code: str) -> dict[str, Any]:
    """The tables of a language: "en", "ru" or "zh"."""
    if code not in LANGUAGES:
        raise UnknownName("language of bundled:recall-lab", code, list(LANGUAGES))
    return tomllib.loads((files(__package__) / f"{code}.toml").read_text("utf-8"))


def sentence(table: Mapping[str, Any], form: str, lead: str = "", tail: str = "", **slots: str) -> str:
    """A finished turn: opening, statement, full stop, afterthought. A form that ends in a question mark needs no full
    stop.
    """
    text = capital(lead + form.format(**slots))
    return f"{text}{'' if text[-1] in '?？' else table['stop']}{tail}"


class People:
    """Everybody of one haystack: pairs of a first and a second name, in an order drawn once. No pair is given out
    twice.
    """

    def __init__(self, code: str, draw: Draw) -> None:
        self._firsts, self._seconds = _name_parts(code)
        self._firsts = draw.shuffled(self._firsts)
        self._seconds = draw.shuffled(self._seconds)[:_FAMILIES]
        self._name = {"en": _latin, "ru": _russian, "zh": _chinese}[code]
        self._order = iter(draw.shuffled(range(len(self._firsts) * len(self._seconds))))
        self._taken: set[int] = set()
        self._pairs: dict[Person, int] = {}

    def somebody(self) -> Person | None:
        """The next one; `None` when all have been given out."""
        for pair in self._order:
            if pair not in self._taken:
                return self._give(pair)
        return None

    def like(self, one: Person, draw: Draw) -> Person:
        """Somebody with one name in common with `one`."""
        first, second = divmod(self._pairs[one], len(self._seconds))
        while True:
            if draw.below(2):
                pair = first * len(self._seconds) + draw.below(len(self._seconds))
            else:
                pair = draw.below(len(self._firsts)) * len(self._seconds) + second
            if pair not in self._taken:
                return self._give(pair)

    def _give(self, pair: int) -> Person:
        self._taken.add(pair)
        first, second = divmod(pair, len(self._seconds))
        person = self._name(self._firsts[first], self._seconds[second])
        self._pairs[person] = pair
        return person


def _name_parts(code: str) -> tuple[list[str], list[str]]:
    if code == "en":
        parts = harbour()["parts"]
        return parts["given"].split(), [
            start + end for start in parts["starts"].split() for end in parts["ends"].split()
        ]
    people = words(code)["people"]
    if code == "ru":
        return [
            *(f"f/{name}" for name in people["women"].split()),
            *(f"m/{name}" for name in people["men"].split()),
        ], people["families"].split()
    return people["families"].split(), [a + b for a in people["starts"].split() for b in people["ends"].split()]


def _latin(given: str, family: str) -> Person:
    name = f"{given} {family}"
    return Person(name, name)


def _chinese(family: str, given: str) -> Person:
    return Person(family + given, family + given)


def _russian(given: str, family: str) -> Person:
    sex, who, gen = given.split("/")
    if sex == "f":
        return Person(f"{who} {family}а", f"{gen} {family}ой")
    return Person(f"{who} {family}", f"{gen} {family}а")


@lru_cache(maxsize=1)
def _russian_given() -> dict[str, str]:
    return {gen: f"{sex}/{who}" for one in _name_parts("ru")[0] for sex, who, gen in [one.split("/")]}


def subject_form(code: str, name: str, genitive: bool) -> str:
    """A name as subject, from the form that stands in a text."""
    if code != "ru" or not genitive:
        return name
    given, _, family = name.partition(" ")
    known = _russian_given().get(given)
    if known is None:
        return name
    sex, who = known.split("/")
    return f"{who} {family[:-2]}а" if sex == "f" else f"{who} {family[:-1]}"


class Values:
    """Names of things, by kind. None is given out twice, and none that was given out is part of another."""

    def __init__(self, code: str, draw: Draw) -> None:
        table = words(code)
        self._pools = {
            kind: draw.shuffled(
                [f"{a}{table['space']}{b}" for a in _list(table, parts["first"]) for b in parts["second"].split()]
            )
            for kind, parts in table["kinds"].items()
        }
        self._given: list[str] = []

    def fresh(self, kind: str) -> str:
        """One that nothing else is called."""
        pool = self._pools[kind]
        while True:
            value = pool.pop()
            if self._free(value):
                self._given.append(value.lower())
                return value

    def others(self) -> dict[str, list[str]]:
        """The values left of each kind, for things that nobody asks about: may be used over and over."""
        return {kind: [value for value in pool if self._free(value)] for kind, pool in self._pools.items()}

    def _free(self, value: str) -> bool:
        low = value.lower()
        return not any(low in given or given in low for given in self._given)


def _list(table: Mapping[str, Any], text: str) -> list[str]:
    return (str(table["lists"][text[1:]]) if text.startswith("@") else text).split()


def chain(code: str, roles: list[str], start: Person) -> Person:
    """The one at the end of a chain, as it is described: the dentist of the tutor of …, nearest role first."""
    table, phrase = words(code), start
    for role in roles:
        forms = table["roles"][role]
        who, gen = (table["chain"]["link"].format(role=form, rest=phrase.gen) for form in (forms[0], forms[-1]))
        phrase = Person(who, gen)
    return phrase


def unchained(code: str, phrase: str, genitive: bool) -> tuple[list[str], str]:
    """The inverse of `chain`: the roles, nearest first, and the name at the start as subject."""
    table, roles = words(code), []
    before, after = table["chain"]["link"].split("{role}")
    while (found := _last_role(table, phrase, before, after)) is not None:
        role, phrase = found
        roles.append(role)
    return roles[::-1], subject_form(code, phrase, genitive or bool(roles))


def _last_role(table: Mapping[str, Any], phrase: str, before: str, after: str) -> tuple[str, str] | None:
    for role, forms in table["roles"].items():
        for form in forms:
            pattern = re.escape(before + form + after).replace(re.escape("{rest}"), "(.+)")
            if found := re.fullmatch(pattern, phrase, re.IGNORECASE):
                return role, found[1]
    return None


def codes() -> Iterator[str]:
    """Every language."""
    return iter(LANGUAGES)
