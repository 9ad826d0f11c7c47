"""What a run's rows name by number: its arms, its evaluators, the endpoints that were asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, select, update

from context_bench.core.keys import hash_text
from context_bench.core.records import Call
from context_bench.core.tokens import utf8_safe
from context_bench.engine.plan import PlannedArm, PlannedEvaluator
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import insert
from context_bench.engine.store.encoding import dumps
from context_bench.engine.store.serializing import Serializer

#: Characters of a model's or a server's name that an index takes in any database.
_LONGEST = 600


def identity_of(arms: Sequence[PlannedArm], evaluators: Sequence[PlannedEvaluator], settings: dict[str, Any], datasets: Any) -> str:
    """What makes two commands the same run: arms and their partners, evaluators, seed and trials, datasets."""
    parts = [
        [[arm.name, arm.key, arm.arm.budget_from] for arm in arms],
        [each.key for each in evaluators],
        settings,
        dumps(datasets).decode("utf-8", "replace"),
    ]
    return hash_text(dumps(parts).decode("utf-8", "replace"))


def register_arms(connection: Connection, run: int, chosen: Sequence[PlannedArm]) -> None:
    """Give arms their numbers, and drop the plan of those that are gone."""
    arms, plan = schema.arms, schema.plan
    stored = {row.name: row for row in connection.execute(select(arms).where(arms.c.run == run))}
    known = {name: row.arm for name, row in stored.items()}
    number = max(known.values(), default=-1)
    connection.execute(update(arms).where(arms.c.run == run).values(ordinal=None))
    for ordinal, arm in enumerate(chosen):
        name = utf8_safe(arm.name)
        if name not in known:
            number += 1
            known[name] = number
        arm.number = known[name]
        values = {"name": name, "ordinal": ordinal, "key": bytes.fromhex(arm.key)}
        if name in stored and stored[name].key != values["key"]:  # another system under an old name: its answers are not this one's
            connection.execute(update(plan).where(plan.c.run == run, plan.c.arm == arm.number).values(output=None))
        adding = insert(connection, arms).values(run=run, arm=arm.number, **values)
        connection.execute(adding.on_conflict_do_update(index_elements=["run", "arm"], set_=values))
    present = [arm.number for arm in chosen]
    connection.execute(delete(plan).where(plan.c.run == run, plan.c.arm.not_in(present)))


def find_arms(connection: Connection, run: int, chosen: Sequence[PlannedArm]) -> None:
    """Give arms the numbers that the run knows their names by."""
    a = schema.arms.c
    known = {row.name: row.arm for row in connection.execute(select(a.name, a.arm).where(a.run == run))}
    for arm in chosen:
        arm.number = known[utf8_safe(arm.name)]


def register_evaluators(connection: Connection, run: int, chosen: Sequence[PlannedEvaluator], *, keep: bool = False) -> None:
    """Give evaluators their ids and make them the run's; with `keep`, those of other names stay."""
    table, links = schema.evaluators, schema.run_evaluators
    for each in sorted(chosen, key=lambda each: each.key):
        key = bytes.fromhex(each.key)
        connection.execute(insert(connection, table).values(key=key, name=utf8_safe(each.name)).on_conflict_do_nothing())
        found = connection.scalar(select(table.c.id).where(table.c.key == key))
        assert found is not None
        each.id = int(found)
    ids: list[int] = []
    if keep:
        names = {utf8_safe(each.name) for each in chosen}
        linked = select(table.c.id, table.c.name).join(links, links.c.evaluator == table.c.id)
        before = linked.where(links.c.run == run).order_by(links.c.ordinal)
        ids = [row.id for row in connection.execute(before) if row.name not in names]
    ids = list(dict.fromkeys([*ids, *(each.id for each in chosen)]))
    connection.execute(delete(links).where(links.c.run == run))
    if ids:
        connection.execute(links.insert(), [{"run": run, "ordinal": n, "evaluator": one} for n, one in enumerate(ids)])


@dataclass(slots=True)
class Endpoints:
    """Numbers of the models and servers that calls went to, as calls name them."""

    serializer: Serializer
    known: dict[tuple[str, str], int] = field(default_factory=dict)

    def meet(self, connection: Connection, calls: Iterable[Call]) -> None:
        """Give those of these calls their numbers: in the order of their names, as every writer does."""
        new = {(call.model, call.url) for call in calls if (call.model, call.url) not in self.known}
        if not new:
            return
        e, text = schema.endpoints, self.serializer.text
        named = sorted(((text(model)[:_LONGEST], text(url)[:_LONGEST]), (model, url)) for model, url in new)
        for (model, url), told in named:
            connection.execute(insert(connection, e).values(model=model, url=url).on_conflict_do_nothing())
            number = connection.scalar(select(e.c.id).where(e.c.model == model, e.c.url == url))
            assert number is not None
            self.known[told] = int(number)

    def number(self, call: Call) -> int:
        """The number of an endpoint that was met."""
        return self.known[call.model, call.url]

    def forget(self) -> None:
        """The transaction that met them was not made."""
        self.known.clear()
