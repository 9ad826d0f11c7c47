"""The suites of owners, residue and relations: a memory with every optional ability passes them, each fault is seen by
the probe that is meant for it, and what is not offered cannot be asked.
"""

import json
import urllib.request
from datetime import UTC, datetime

import pytest

from context_bench.core.text import tokens
from context_bench.memory.ops import run_suites
from context_bench.memory.protocol import Hit, Receipt, Relation

SUITES = ("owners", "residue", "relations")


class Everything:
    """A memory in a dict that offers all that can be asked, and does one thing wrong: `fault`."""

    name = "everything"
    batch = 50
    capabilities = frozenset(
        {
            *("add", "search", "delete", "delete_all", "update", "namespaces", "metadata", "list", "by_time", "by_id"),
            *("relations", "begin"),
        }
    )

    def __init__(self, fault="", space="root", shared=None, start=None):
        self.fault, self.space, self.start = fault, space, start
        self.kept, self.relations, self.removed = shared if shared is not None else ({}, [], {})

    def _shares(self, space):
        if self.fault == "wildcards":
            return space == self.space or (self.space.endswith("*") and space.startswith(self.space[:-1]))
        return space.startswith(self.space) if self.fault == "prefixes" else space == self.space

    @property
    def owner(self):
        return {"user_id": self.space}

    def namespace(self, name):
        if self.fault == "refuses names" and not name.isprintable():
            raise ValueError("no such name")
        name = name.partition("\n")[0] if self.fault == "first line" else name
        return type(self)(self.fault, name, (self.kept, self.relations, self.removed))

    def native(self, items):
        return [item.text for item in items]

    def begin(self, native):
        return Everything(self.fault, "begun", None, native if self.fault == "caller's list" else list(native))

    def add(self, items):
        receipts = []
        for item in items:
            ident = f"{self.space}/{item.id}"
            if self.fault == "tombstones" and ident in self.removed:
                receipts.append(Receipt(item.id, error="it was deleted"))
                continue
            space = item.metadata.get("user_id", self.space) if self.fault == "believes metadata" else self.space
            self.kept[ident] = (space, item.text)
            if self.start is not None:
                self.start.append(item.text)
            receipts.append(Receipt(item.id, ident))
        return receipts

    def _mine(self):
        held = [Hit(text, memory_id=ident) for ident, (space, text) in self.kept.items() if self._shares(space)]
        return held + [Hit(text) for text in self.start or ()]

    def search(self, query, k, *, as_of=None):
        words = set(tokens(query))
        found = [(len(words & set(tokens(hit.text))), hit) for hit in self._mine()]
        return [hit for score, hit in sorted(found, key=lambda each: -each[0]) if score][:k]

    def list_all(self):
        gone = [Hit(text) for text in self.removed.values()] if self.fault == "lists the deleted" else []
        return self._mine() + gone

    def between(self, start, end):
        today = datetime.now(UTC).date().isoformat()
        gone = [Hit(text) for text in self.removed.values()] if self.fault == "recalls the deleted" else []
        return self._mine() + gone if start <= today <= end else []

    def get(self, memory_id):
        held = self.kept.get(memory_id)
        if held is None and self.fault == "gets the deleted" and memory_id in self.removed:
            return Hit(self.removed[memory_id])
        return None if held is None else Hit(held[1], memory_id=memory_id)

    def delete(self, memory_id):
        self.removed[memory_id] = self.kept.pop(memory_id, ("", ""))[1]
        if self.fault != "dangles":
            self.relations[:] = [each for each in self.relations if memory_id not in (each.subject, each.object)]

    def delete_all(self):
        mine = [ident for ident, (space, _) in self.kept.items() if self._shares(space)]
        for ident in mine[:100] if self.fault == "one page" else mine:
            del self.kept[ident]

    def update(self, memory_id, text, metadata=None):
        space = (metadata or {}).get("user_id", self.space) if self.fault == "moves" else self.space
        self.kept[memory_id] = (space, text)

    def relate(self, subject, relation, other):
        self.relations.append(Relation(subject, relation, other))

    def related(self, memory_ids):
        whole = self.fault == "both ends"
        needed = all if whole else any
        return [each for each in self.relations if needed(end in memory_ids for end in (each.subject, each.object))]


async def probes(make, suites=SUITES, **options):
    options = {"many": 130, **options}
    return {
        f"{result.suite}: {probe.name}": probe
        for result in await run_suites(make, suites, **options)
        for probe in result.probes
        if probe.kind == "test"
    }


async def test_a_memory_that_does_all_of_it_right_passes_and_what_it_lacks_cannot_be_asked():
    found = await probes(Everything)
    outcomes = {name: probe.outcome for name, probe in found.items()}
    assert outcomes.pop("residue: model after emptying") == "not applicable"
    assert set(outcomes.values()) == {"pass"}, outcomes
    assert set(outcomes) == {
        *("owners: names alike", "owners: names alike: emptying", "owners: caller's list", "owners: one start"),
        *("owners: identity in metadata: add", "owners: identity in metadata: update"),
        *("residue: by time", "residue: listed", "residue: by its id", "residue: stored again"),
        "residue: more than a page",
        *("relations: asked by subject", "relations: asked by object", "relations: end deleted"),
    }
    assert found["residue: more than a page"].numbers["stored"] == 130


@pytest.mark.parametrize(
    ("fault", "probe"),
    [
        ("prefixes", "owners: names alike"),
        ("wildcards", "owners: names alike: emptying"),
        ("first line", "owners: names alike"),
        ("believes metadata", "owners: identity in metadata: add"),
        ("moves", "owners: identity in metadata: update"),
        ("caller's list", "owners: one start"),
        ("recalls the deleted", "residue: by time"),
        ("lists the deleted", "residue: listed"),
        ("gets the deleted", "residue: by its id"),
        ("tombstones", "residue: stored again"),
        ("one page", "residue: more than a page"),
        ("both ends", "relations: asked by subject"),
        ("dangles", "relations: end deleted"),
    ],
)
async def test_each_fault_is_seen_by_its_probe(fault, probe):
    found = await probes(lambda: Everything(fault), [probe.partition(":")[0]])
    assert found[probe].outcome == "fail", found[probe]
    assert not found[probe].sentence.startswith("says nothing")  # its control holds
    assert found[probe].findings


async def test_one_fault_is_not_taken_for_another():
    found = await probes(lambda: Everything("one page"), ["owners", "residue"])
    assert [name for name, probe in found.items() if probe.outcome == "fail"] == ["residue: more than a page"]
    assert found["residue: more than a page"].numbers["held"] == 30
    found = await probes(lambda: Everything("refuses names"), ["owners"])
    assert found["owners: names alike"].outcome == "pass"  # to refuse a name is no fault
    assert found["owners: names alike"].numbers["refused"] == 2


class Plain:
    """Add and search, and nothing else."""

    def __init__(self):
        self.texts = []

    def add(self, text):
        self.texts.append(text)

    def search(self, query, k):
        words = set(tokens(query))
        return sorted(self.texts, key=lambda text: -len(words & set(tokens(text))))[:k]


async def test_an_ability_that_is_not_there_is_neither_a_pass_nor_a_fail():
    found = await probes(Plain)
    assert {probe.outcome for name, probe in found.items() if name != "owners: caller's list"} == {"not applicable"}


class Asking(Everything):
    """Sends what it was told last to its model with every new thing; `fault` "recalls": even after all was deleted."""

    def __init__(self, relay="", fault="", **more):
        super().__init__(fault, **more)
        self.relay, self.recent = relay, []

    def namespace(self, name):
        twin = Asking(self.relay, self.fault, space=name, shared=(self.kept, self.relations, self.removed))
        return twin

    def add(self, items):
        self.recent += [item.text for item in items]
        body = {"model": "m", "messages": [{"role": "user", "content": "\n".join(self.recent[-3:])}]}
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.relay}/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            reply = json.load(response)
        assert json.loads(reply["choices"][0]["message"]["content"])["facts"] == [self.recent[-1]]
        return super().add(items)

    def delete_all(self):
        super().delete_all()
        if self.fault != "recalls":
            self.recent.clear()


@pytest.mark.parametrize(("fault", "outcome"), [("", "pass"), ("recalls", "fail")])
async def test_what_a_memory_sends_to_its_model_after_emptying_is_looked_at(fault, outcome):
    name = f"py:{__name__}:Asking:relay={{model}},fault={fault or 'none'}"
    found = await probes(name, ["residue"], many=5)
    assert found["residue: model after emptying"].outcome == outcome, found["residue: model after emptying"]
    assert found["residue: more than a page"].numbers["stored"] == 5


async def test_a_memory_that_is_too_slow_for_a_page_is_not_asked_for_one():
    class Slow(Everything):
        def add(self, items):
            clock.now += 10.0 * len(items)
            return super().add(items)

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

        async def sleep(self, seconds):
            self.now += seconds

    clock = Clock()
    found = await probes(Slow, ["residue"], clock=clock)
    assert found["residue: more than a page"].outcome == "not applicable"
    assert "deadline" in found["residue: more than a page"].sentence
