"""Plan a conversation of the lab and write its turns.

The plan holds facts with their days, look-alikes, and questions with their evidence. `Stream` turns it into sessions of
turns: what is asked about, facts of other people that look alike, and small talk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Any

from context_bench.datasets.synthetic.world import Draw, capital
from context_bench.memory.datasets.recall_lab.language import People, Person, Values, chain, sentence, words
from context_bench.memory.protocol import Item

VERSION = 1  # of the generator: another number, other haystacks

#: Every type of question; what a row's `qa_type` says.
TYPES = (
    "single", "chain-2", "chain-3", "chain-4", "chain-5",
    "temporal-order", "temporal-duration", "temporal-as-of",
    "update-latest", "update-previous", "update-count",
    "preference", "assistant-said", "aggregate-count", "aggregate-sum",
    "absent-subject", "absent-relation", "absent-before", "contradiction",
)  # fmt: skip
SITTINGS = 24  # days on which something happens that is asked about, in a haystack of any length
_EVERY = 32  # days from one to the next, about
DAYS = SITTINGS * _EVERY
_STATIC = ("school", "pet")  # what never changes and can stand at the end of a chain
_MOVING = ("home", "job")


@dataclass(slots=True, eq=False)
class Fact:
    """One statement in one turn. `sitting`: which of the `SITTINGS` it falls on."""

    relation: str
    subject: str
    value: str
    sitting: int
    text: str
    role: str = "user"


@dataclass(slots=True, eq=False)
class LabQuestion:
    """A question, its answers (best first; none = it cannot be answered), and the facts that decide it.

    `near`: look-alikes that do not decide it. `versions`: the values that followed one another, where the one of a
    moment is asked for (now, or `as_of`), each with whether that is it. `history`: the same where something else is
    asked for. `computed`: the answer is worked out and stands in no turn.
    """

    kind: str
    form: str
    text: str
    answers: list[str]
    evidence: list[Fact]
    near: list[Fact] = field(default_factory=list)
    versions: list[tuple[Fact, bool]] = field(default_factory=list)
    history: list[tuple[Fact, bool]] = field(default_factory=list)
    computed: bool = False
    as_of: str | None = None

    @property
    def facts(self) -> list[Fact]:
        """All that it is about: what decides it, look-alikes, and the values before and after."""
        return [*self.evidence, *self.near, *(fact for fact, _ in (*self.versions, *self.history))]


class Calendar:
    """The days of one haystack. The sittings are the same however long it is; longer ones have more days between
    them.
    """

    def __init__(self, *seed: Any) -> None:
        draw = Draw(*seed, "calendar")
        self.first = date(2021, 1, 4) + timedelta(days=draw.below(700))
        self._sittings = [_EVERY * i + 1 + draw.below(_EVERY - 6) for i in range(SITTINGS)]
        rest = set(range(DAYS)) - set(self._sittings)
        self._between = draw.shuffled(sorted(rest))

    def day(self, sitting: int) -> date:
        return self.first + timedelta(days=self._sittings[sitting])

    def sessions(self, count: int) -> list[tuple[date, int | None]]:
        """`count` days in order, with the sitting that falls on them."""
        sittings = {day: i for i, day in enumerate(self._sittings)}
        days = sorted([*self._sittings, *self._between[: max(0, count - SITTINGS)]])
        return [(self.first + timedelta(days=day), sittings.get(day)) for day in days]

    @property
    def asked(self) -> str:
        """The moment of every question: after the last day."""
        return datetime.combine(self.first + timedelta(days=DAYS + 1), time(9)).isoformat()


class Plan:
    """`sets` rounds of questions of every type, and what they need. The first rounds are the same however many
    follow.
    """

    def __init__(self, code: str, seed: int, index: int, sets: int) -> None:
        self.code, self.table = code, words(code)
        key = ("recall-lab", VERSION, code, seed, index)
        self.calendar = Calendar(*key)
        self.people, self.values = People(code, Draw(*key, "people")), Values(code, Draw(*key, "values"))
        self.facts: list[Fact] = []
        self.cast: list[Person] = []
        self.subjects: list[Person] = []
        self.questions: list[tuple[int, LabQuestion]] = []
        self.owner = self._new()
        for number in range(sets):
            _Round(self, Draw(*key, "round", number), index + number, number).build()

    def _new(self) -> Person:
        person = self.people.somebody()
        assert person is not None  # a haystack has thousands of names, its plan a few hundred people
        return person

    def asked(self) -> Person:
        """Somebody new whom a question names."""
        self.subjects.append(person := self.other())
        return person

    def other(self) -> Person:
        """Somebody new whom no question names."""
        self.cast.append(person := self._new())
        return person

    def like(self, one: Person, draw: Draw) -> Person:
        """Somebody who could be taken for `one`."""
        self.cast.append(person := self.people.like(one, draw))
        return person


class _Round:
    """One question of every type (two of `single`), in one haystack."""

    def __init__(self, plan: Plan, draw: Draw, turn: int, number: int) -> None:
        self.plan, self.draw, self.turn, self.number = plan, draw, turn, number
        self.table, self.values = plan.table, plan.values

    def build(self) -> None:
        """Everything, in a fixed order."""
        self._single()
        for hops in (2, 3, 4, 5):
            self._chain(hops)
        self._trips()
        self._relocations()
        self._preference()
        self._assistant_claim()
        self._count()
        self._sum()
        self._contradiction()

    # --- pieces ---

    def _ask(
        self,
        kind: str,
        form: str,
        asking: str,
        slots: Mapping[str, str],
        answers: Sequence[str],
        evidence: Sequence[Fact],
        near: Sequence[Fact] = (),
        **more: Any,
    ) -> None:
        text = capital(self.draw.pick(self.table["ask"][asking]).format(**slots))
        question = LabQuestion(kind, form, text, list(answers), list(evidence), list(near), **more)
        self.plan.questions.append((self.number, question))

    def _tell(
        self, relation: str, who: Person, value: str, sitting: int | None = None, by: str = "user", **slots: str
    ) -> Fact:
        """A statement. `sitting`: any one, if it does not matter."""
        form = self.draw.pick(self.table["say"][relation])
        lead, tail = self.draw.pick(self.table["leads"]), self.draw.pick(self.table["tails"])
        text = sentence(self.table, form, lead, tail, **{**who.slots(), "value": value, **slots})
        fact = Fact(relation, who.who, value, self.draw.below(SITTINGS) if sitting is None else sitting, text, by)
        self.plan.facts.append(fact)
        return fact

    def _fresh(self, relation: str, who: Person, sitting: int | None = None, by: str = "user", **slots: str) -> Fact:
        """A statement with a value that nothing else has."""
        kind = "allergy" if relation == "correction" else relation
        return self._tell(relation, who, self.values.fresh(kind), sitting, by, **slots)

    def _has(self, who: Person, role: str, other: Person) -> Fact:
        """`who` has `other` as dentist, landlord …"""
        return self._tell("role", who, other.who, role=self.table["roles"][role][0])

    def _sittings(self, count: int, first: int = 0) -> list[int]:
        """Different ones, in order."""
        return sorted(self.draw.shuffled(range(first, SITTINGS))[:count])

    def _on(self, sitting: int, days: int) -> str:
        return (self.plan.calendar.day(sitting) + timedelta(days=days)).isoformat()

    def _numbered(self, n: int) -> list[str]:
        return [str(n), self.table["units"]["numbers"][n]]

    # --- types ---

    def _single(self) -> None:
        for relation, other in (_STATIC, _STATIC[::-1]):
            who = self.plan.asked()
            fact, same = self._fresh(relation, who), self._fresh("goods", who)
            alike = self._fresh(relation, self.plan.like(who, self.draw))
            self._ask("single", relation, relation, who.slots(), [fact.value], [fact], [alike, same])
            if relation == _STATIC[self.turn % 2]:
                self._ask("absent-relation", other, other, who.slots(), [], [], [fact, same])
            else:
                nobody = self.plan.people.like(who, self.draw)  # a name that is never said: only the question knows it
                self._ask("absent-subject", relation, relation, nobody.slots(), [], [], [fact, alike])

    def _chain(self, hops: int) -> None:
        roles = self.draw.shuffled(list(self.table["roles"]))[: hops - 1]
        people = [self.plan.asked(), *(self.plan.other() for _ in range(hops - 1))]
        links = [self._has(a, role, b) for a, role, b in zip(people, roles, people[1:], strict=False)]
        relation = _STATIC[(self.turn + hops) % 2]
        end = self._fresh(relation, people[-1])
        alike = self.plan.like(people[0], self.draw)
        near = [self._has(alike, roles[0], self.plan.other()), self._fresh(relation, people[0])]
        described = chain(self.plan.code, roles, people[0])
        self._ask(f"chain-{hops}", relation, relation, described.slots(), [end.value], [*links, end], near)

    def _trips(self) -> None:
        who, count = self.plan.asked(), 3 + self.turn % 2
        trips = [self._fresh("trip", who, sitting) for sitting in self._sittings(count)]
        near = [self._fresh("trip", self.plan.like(who, self.draw)) for _ in range(2)]
        at = self.draw.below(count - 1)
        before, after = trips[at : at + 2]
        slots = {**who.slots(), "other": before.value}
        self._ask("temporal-order", "next", "trip_next", slots, [after.value], [before, after], near)
        first, last = trips[0], trips[-1]
        days = (self.plan.calendar.day(last.sitting) - self.plan.calendar.day(first.sitting)).days
        slots = {**who.slots(), "other": first.value, "value": last.value}
        answers = [self.table["units"]["days"].format(n=days), str(days)]
        self._ask("temporal-duration", "days", "trip_days", slots, answers, [first, last], near, computed=True)

    def _relocations(self) -> None:
        relation, other = _MOVING[self.turn % 2], _MOVING[(self.turn + 1) % 2]
        who, count = self.plan.asked(), 3 + (self.turn // 2) % 3
        moves = [self._fresh(relation, who, sitting) for sitting in self._sittings(count, 2)]
        near = [self._fresh(relation, self.plan.like(who, self.draw)), self._fresh(other, who)]
        slots, last = who.slots(), moves[-1]
        versions = [(fact, fact is last) for fact in moves]
        self._ask("update-latest", relation, f"{relation}_latest", slots, [last.value], [last], near, versions=versions)
        self._ask(
            "update-previous",
            relation,
            f"{relation}_previous",
            slots,
            [moves[-2].value],
            moves[-2:],
            near,
            history=versions,
        )
        self._ask(
            "update-count",
            relation,
            f"{relation}_count",
            slots,
            self._numbered(count),
            moves,
            near,
            computed=True,
            history=versions,
        )
        at = self.draw.below(count - 1)
        day = self._on(moves[at].sitting, 1 + self.draw.below(4))  # sittings are further apart than that
        asking, then = f"{relation}_as_of", [(fact, fact is moves[at]) for fact in moves]
        dated = {**slots, "date": day}
        self._ask(
            "temporal-as-of", relation, asking, dated, [moves[at].value], [moves[at]], near, versions=then, as_of=day
        )
        day = self._on(moves[0].sitting, -1 - self.draw.below(20))
        self._ask("absent-before", relation, asking, {**slots, "date": day}, [], [], [moves[0], *near], as_of=day)

    def _preference(self) -> None:
        who = self.plan.asked()
        fact, same = self._fresh("dish", who), self._fresh("allergy", who)
        near = [self._fresh("dish", self.plan.like(who, self.draw)), same]
        self._ask("preference", "dish", "preference", who.slots(), [fact.value], [fact], near)

    def _assistant_claim(self) -> None:
        who = self.plan.asked()
        fact, user = self._fresh("book", who, by="assistant"), self._fresh("book", who)
        near = [user, self._fresh("book", self.plan.like(who, self.draw), by="assistant")]
        self._ask("assistant-said", "book", "book", who.slots(), [fact.value], [fact], near)

    def _count(self) -> None:
        who, count = self.plan.asked(), 3 + (self.turn // 2 + self.number) % 3
        facts = [self._fresh("goods", who, sitting) for sitting in self._sittings(count)]
        near = [self._fresh("goods", self.plan.like(who, self.draw)), self._fresh("pet", who)]
        self._ask("aggregate-count", "goods", "goods", who.slots(), self._numbered(count), facts, near, computed=True)

    def _sum(self) -> None:
        who, count = self.plan.asked(), 3 + (self.turn + self.number) % 3
        amounts = [
            34 + self.draw.below(64) for _ in range(count)
        ]  # at most 97 each, more than 99 in sum: no turn says the sum
        facts = [self._tell("gift", who, str(n), at) for n, at in zip(amounts, self._sittings(count), strict=True)]
        near = [self._tell("gift", self.plan.like(who, self.draw), str(34 + self.draw.below(64)))]
        answers = list(dict.fromkeys([self.table["units"]["coins"].format(n=sum(amounts)), str(sum(amounts))]))
        self._ask("aggregate-sum", "gift", "gift", who.slots(), answers, facts, near, computed=True)

    def _contradiction(self) -> None:
        who = self.plan.asked()
        if self.turn % 2:
            said, put_right = self._sittings(2)
            wrong = self._fresh("allergy", who, said)
            right = self._fresh("correction", who, put_right, old=wrong.value)
            near = [wrong, self._fresh("allergy", self.plan.like(who, self.draw))]
            versions = [(wrong, False), (right, True)]
            self._ask(
                "contradiction", "put right", "allergy", who.slots(), [right.value], [right], near, versions=versions
            )
            return
        witnesses = [self.plan.other(), self.plan.other()]
        claims = [self._fresh("key", who, witness=witness.who) for witness in witnesses]
        slots = {**who.slots(), "witness": witnesses[0].who}
        near = [claims[1], self._fresh("key", self.plan.like(who, self.draw), witness=witnesses[0].who)]
        self._ask("contradiction", "two witnesses", "key", slots, [claims[0].value], [claims[0]], near)


_PER_SESSION = 20  # turns, until every day has a session
_LOOKALIKES = 35  # of a hundred turns that nobody asks about: statements of the same kinds about other people
_SHARES = (
    30,
    90,
    # Of a hundred turns of talk: about people who are asked about; short haystacks have little talk, and spend it on
    # them
)
_BEGIN = time(8)
_STEP = timedelta(seconds=40)  # from turn to turn; the longest sessions last a few hours


class Stream:
    """The turns of one haystack. `ids[fact]`: where each fact of the plan was said, known once its session has
    passed.
    """

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
        return self._fact(
            relation, who, value, role, draw.pick(self._table["say"]["role" if "role" in slots else relation]), slots
        )

    def _meet(self) -> None:
        relations = [
            *(name for name in self._table["say"] if name not in ("role", "correction")),
            *self._table["roles"],
        ]
        for _ in range(6):
            if (person := self._plan.people.somebody()) is not None:
                self._others.append(person)
                self._untold += [(person, relation) for relation in relations]

    def _fact(self, relation: str, who: Person, value: str, role: str, form: str, slots: dict[str, str]) -> Fact:
        lead, tail = self._draw.pick(self._table["leads"]), self._draw.pick(self._table["tails"])
        return Fact(
            relation,
            who.who,
            value,
            -1,
            sentence(self._table, form, lead, tail, **who.slots(), value=value, **slots),
            role,
        )
