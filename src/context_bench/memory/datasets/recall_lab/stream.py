"""From a plan to turns, one session at a time: what is asked about, look-alikes of other people, and talk."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta

from context_bench.datasets.synthetic.world import Draw
from context_bench.memory.datasets.recall_lab.language import Person, sentence
from context_bench.memory.datasets.recall_lab.plan import DAYS, SITTINGS, VERSION, Fact, Plan
from context_bench.memory.protocol import Item

_PER_SESSION = 20  # turns, until every day has a session
_LOOKALIKES = 35  # of a hundred turns that nobody asks about: statements of the same kinds about other people
_SHARES = (30, 90)  # of a hundred turns of talk: about people who are asked about; short haystacks have little talk, and spend it on them
_BEGIN = time(8)
_STEP = timedelta(seconds=40)  # from turn to turn; the longest sessions last a few hours


class Stream:
    """The turns of one haystack. `ids[fact]`: where each fact of the plan was said, known once its session has passed."""

    def __init__(self, plan: Plan, seed: int, index: int, turns: int) -> None:
        self.plan, self.turns, self.table = plan, turns, plan.table
        self.ids: dict[Fact, str] = {}
        self._draw = Draw("recall-lab", VERSION, plan.code, seed, index, "turns", turns)
        self._rest = _Rest(plan, self._draw, _SHARES[turns < 1000])

    def sessions(self) -> Iterator[list[Item]]:
        """Session by session, in the order of their days."""
        planned: list[list[Fact]] = [[] for _ in range(SITTINGS)]
        for fact in self.plan.facts:
            planned[fact.sitting].append(fact)
        days = self.plan.calendar.sessions(min(DAYS, max(SITTINGS, self.turns // _PER_SESSION)))
        more, number = self.turns - len(self.plan.facts), 0
        for i, (day, sitting) in enumerate(days):
            facts = planned[sitting] if sitting is not None else []
            other = [self._rest.turn() for _ in range(more * (i + 1) // len(days) - more * i // len(days))]
            if facts or other:
                number += 1
                yield self._session(f"s{number}", day, [*facts, *other])

    def _session(self, name: str, day: date, said: list[Fact]) -> list[Item]:
        begin, items = datetime.combine(day, _BEGIN), []
        for i, fact in enumerate(self._draw.shuffled(said)):
            identity = f"{name}:{i + 1}"
            if fact.sitting >= 0:
                self.ids[fact] = identity
            speaker = self.plan.owner.who if fact.role == "user" else self.table["assistant"]
            items.append(Item(identity, fact.text, fact.role, speaker, (begin + i * _STEP).isoformat(), name))
        return items


class _Rest:
    """Turns that nobody asks about."""

    def __init__(self, plan: Plan, draw: Draw, share: int) -> None:
        self._share = share
        self._plan, self._draw, self._table = plan, draw, plan.table
        self._values = plan.values.others()
        self._untold: list[tuple[Person, str]] = []  # whoever is new has one statement of each kind, in any order
        self._others: list[Person] = []

    def turn(self) -> Fact:
        """The next one; its `sitting` is -1."""
        draw = self._draw
        if draw.below(100) < _LOOKALIKES and (told := self._statement()) is not None:
            return told
        role = ("user", "assistant")[draw.below(2)]
        talk = self._table["chatter"]
        form = draw.pick(talk[role])
        slots = {"when": draw.pick(talk["when"]), "thing": draw.pick(talk["thing"])}
        return self._fact("", draw.pick(self._talked_of()), "", role, form, slots)

    def _talked_of(self) -> list[Person]:
        if self._draw.below(100) < self._share:
            return self._plan.subjects
        return self._others if self._others and self._draw.below(2) else self._plan.cast

    def _statement(self) -> Fact | None:
        if len(self._untold) < 60:  # a few people at a time, so that one person's statements lie apart
            self._meet()
        if not self._untold:
            return None
        at = self._draw.below(len(self._untold))
        self._untold[at], self._untold[-1] = self._untold[-1], self._untold[at]
        who, relation = self._untold.pop()
        draw, slots = self._draw, {}
        if relation in self._table["roles"]:
            value, slots = draw.pick(self._others).who, {"role": self._table["roles"][relation][0]}
        elif relation == "gift":
            value = str(34 + draw.below(64))
        else:
            value = draw.pick(self._values[relation])
        if relation == "key":
            slots = {"witness": draw.pick(self._others).who}
        role = "assistant" if relation == "book" and draw.below(2) else "user"
        return self._fact(relation, who, value, role, draw.pick(self._table["say"]["role" if "role" in slots else relation]), slots)

    def _meet(self) -> None:
        relations = [*(name for name in self._table["say"] if name not in ("role", "correction")), *self._table["roles"]]
        for _ in range(6):
            if (person := self._plan.people.somebody()) is not None:
                self._others.append(person)
                self._untold += [(person, relation) for relation in relations]

    def _fact(self, relation: str, who: Person, value: str, role: str, form: str, slots: dict[str, str]) -> Fact:
        lead, tail = self._draw.pick(self._table["leads"]), self._draw.pick(self._table["tails"])
        return Fact(relation, who.who, value, -1, sentence(self._table, form, lead, tail, **who.slots(), value=value, **slots), role)
