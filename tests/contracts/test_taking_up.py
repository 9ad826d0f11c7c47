"""A run that is taken up owes the same whether its examples are known by what is told of them or are read again."""

import random

import pytest

from context_bench.core.errors import CostCapReached
from context_bench.datasets import load
from context_bench.datasets.examples import Chained
from context_bench.engine import Arm, open_store, rows
from context_bench.engine.store import pending as known

WAYS = ("told", "read")


class Book:
    """Examples as a file has them: they can be told without being read. Counts those that are made; `edited`: after
    that many.
    """

    def __init__(self, texts, edited=None):
        self.texts, self.made, self.still = texts, 0, True
        self.edited = edited

    def __iter__(self):
        for number, text in enumerate(self.texts):
            self.made += 1
            self.still = self.still and self.made != self.edited
            yield {"id": number, "context": text, "group": f"g{number // 4}"}

    def fingerprint(self):
        return list(self.texts)

    def unchanged(self):
        return self.still


class Teller:
    """Answers; fails at some texts, and stops the run at one."""

    def __init__(self, name="a", version=1, fails=(), stops=None):
        self.name, self.version, self.fails, self.stops, self.asked = name, version, fails, stops, []

    def fingerprint(self):
        return {"version": self.version}

    async def aprocess(self, example):
        if example["context"] == self.stops:
            raise CostCapReached("that is enough")
        self.asked.append((example["id"], example.get("budget")))
        if example["context"] in self.fails:
            raise RuntimeError("no")
        return {**example, "response": f"{example['context']} {self.version}", "context": example["context"][:3]}


class Grouped(Teller):
    stateful = True

    def reset(self):
        pass


class Length:
    version = "1"

    def __init__(self, name="length", fails=()):
        self.name, self.fails, self.asked = name, fails, []

    def fingerprint(self):
        return {}

    def score(self, original, processed):
        self.asked.append(original["id"])
        if original["context"] in self.fails:
            raise RuntimeError("no")
        return {self.name: float(len(processed["response"]))}


def outcome(executed):
    told = executed.counts
    systems = {name: (each["done"], each["failed"], each["reused"]) for name, each in told["systems"].items()}
    return (
        executed.completed,
        executed.examples,
        told["owed"],
        told["done"],
        told["failed"],
        told["reused"],
        told["restarted"],
        systems,
    )


def kept(store):
    return [
        (row.system, row.example_id, row.dataset, row.trial, dict(row.scores), dict(row.errors), row.output_tokens)
        for row in rows(store, "r")
    ]


@pytest.fixture
def small_spans(monkeypatch):
    from context_bench.engine import planner as planning

    monkeypatch.setattr(planning, "SPAN", 5)


async def test_what_is_done_is_not_read_again(run, store):
    book, judge = Book([f"text {n}" for n in range(40)]), Length()
    first = await run([Teller(fails={"text 7"})], book, [judge])
    assert (first.counts["done"], first.counts["failed"], book.made) == (40, 1, 40)

    again, mended = Book(book.texts), Teller()
    found = await run([mended], again, [Length()])
    assert mended.asked == [(7, None)]
    assert (found.counts["owed"], found.counts["reused"], found.counts["done"], found.examples) == (40, 39, 1, 40)
    assert again.made == 8  # a plain iterable can only be passed over by being read

    done = Book(book.texts)
    found = await run([Teller()], done, [Length()])
    assert (done.made, found.counts["reused"], found.counts["owed"], found.completed) == (0, 40, 40, True)
    assert found.counts["reused_age"] >= 0

    wordy = Length("words")  # a new evaluator judges what is there
    found = await run([Teller()], Book(book.texts), [Length(), wordy])
    assert (found.counts["done"], len(wordy.asked)) == (0, 40)
    assert all(row.scores.keys() == {"length", "words"} for row in rows(store, "r"))


async def test_other_examples_are_planned_anew(run, store):
    texts = [f"text {n}" for n in range(20)]
    await run([Teller()], Book(texts))
    changed = Teller()
    await run([changed], Book([*texts[:5], "other", *texts[6:], "more"]))
    assert changed.asked == [(5, None), (20, None)]
    back = Teller()
    found = await run([back], Book(texts))  # what was answered once is still there
    assert (back.asked, found.counts["reused"], len(rows(store, "r"))) == ([], 20, 20)


async def test_a_plan_that_was_broken_off_goes_on_where_it_was(run):
    texts = [f"text {n}" for n in range(400)]
    stopped = await run([Teller(stops="text 150")], Book(texts))
    assert not stopped.completed
    book, teller = Book(texts), Teller()
    found = await run([teller], book)
    assert [number for number, _ in teller.asked] == list(range(150, 400))
    assert (found.counts["reused"], found.counts["owed"], found.completed) == (150, 400, True)


async def test_what_changes_while_it_is_read_is_not_known(run):
    texts = [f"text {n}" for n in range(300)]
    await run([Teller()], Book(texts, edited=150))
    book = Book(texts)
    found = await run([Teller()], book)
    assert (book.made, found.counts["reused"]) == (300, 300)
    book = Book(texts)
    await run([Teller()], book)
    assert book.made == 0


async def test_a_budget_that_is_no_longer_taken_makes_other_answers(run):
    book = Book(["some words to count", "and some more of them"])
    await run([Teller("a"), Arm(Teller("b"), budget_from="a")], book)
    alone = Teller("b")
    await run([Teller("a"), alone], Book(book.texts))
    assert alone.asked == [(0, None), (1, None)]


async def test_only_what_a_tap_saw_counts_where_there_is_one(run):
    class Silent:
        marker = "key"

        async def begin(self, conversation):
            from context_bench.core.ledger import Mark

            return Mark("key", conversation)

        async def end(self, mark):
            return []

        late = unmatched = lambda self: _nothing()

    async def _nothing():
        return []

    book = Book(["one", "two"])
    await run([Teller()], book)
    seen = Teller()
    await run([seen], Book(book.texts), recorder=Silent())
    assert len(seen.asked) == 2


def test_the_table_of_sources_goes_with_its_run(store):
    from context_bench.engine import purge

    with store.writing() as connection:
        connection.execute(
            known.schema.sources.insert(), {"run": 7, "source": b"s" * 16, "positions": 3, "ended": True}
        )
    assert purge(store, older_than=0.0) == []


# --- both ways, through a history of changes
# -----------------------------------------------------------------------------------------


class History:
    """The same changes to a run whose examples are told, and to one whose examples have to be read."""

    def __init__(self, run, stores):
        self.run, self.stores = run, stores
        self.arms = {"a": {"version": 1, "every": 1, "budget_from": None}}
        self.texts = [f"text {n % 9}" for n in range(24)]  # equal ones among them
        self.trials, self.evaluators, self.grouped = 1, ["length"], False

    def change(self, chance):
        """One change, or none."""
        what = chance.choice(
            [
                "nothing",
                "fails",
                "stops",
                "trials",
                "arm",
                "gone",
                "every",
                "version",
                "text",
                "shorter",
                "longer",
                "judge",
            ]
        )
        self.fails = {f"text {chance.randrange(9)}"} if what == "fails" else set()
        self.unjudged = {f"text {chance.randrange(9)}"} if what == "judge" and chance.random() < 0.5 else set()
        self.stops = f"text {chance.randrange(9)}" if what == "stops" else None
        if what == "trials":
            self.trials = chance.randint(1, 2)
        elif what == "arm":
            self.arms["b"] = {"version": 1, "every": 1, "budget_from": chance.choice([None, "a"])}
        elif what == "gone":
            self.arms.pop("b", None)
        elif what == "every":
            self.arms.setdefault("c", {"version": 1, "every": 2, "budget_from": None})["every"] = chance.choice([2, 3])
        elif what == "version":
            self.arms["a"]["version"] = chance.randint(1, 2)
        elif what == "text":
            self.texts[chance.randrange(len(self.texts))] = f"text {chance.randrange(12)}"
        elif what == "shorter":
            self.texts = self.texts[: max(6, len(self.texts) - 5)]
        elif what == "longer":
            self.texts = [*self.texts, *(f"text {n}" for n in range(7))]
        elif what == "judge":
            self.evaluators = chance.choice([["length"], ["length", "words"], ["words"]])
        return what

    async def step(self):
        """Both runs go on; what they did."""
        found = []
        for way, store in zip(WAYS, self.stores, strict=True):
            kind = Grouped if self.grouped else Teller
            systems = {
                name: kind(name, arm["version"], self.fails, self.stops)
                if arm["budget_from"] is None
                else Teller(name, arm["version"])
                for name, arm in self.arms.items()
            }
            arms = [
                Arm(system, self.arms[name]["budget_from"], every=self.arms[name]["every"])
                for name, system in systems.items()
            ]
            judges = [Length(name, self.unjudged) for name in self.evaluators]
            book = Book(list(self.texts))
            executed = await self.run(
                arms, book if way == "told" else iter(book), judges, into=store, trials=self.trials
            )
            asked = {name: system.asked for name, system in systems.items()}
            judged = {each.name: sorted(each.asked) for each in judges}
            found.append((outcome(executed), asked, judged, kept(store)))
        return found


@pytest.mark.parametrize("seed", [0, 3])
async def test_both_ways_owe_the_same_through_all_changes(run, place, small_spans, seed):
    chance = random.Random(seed)
    with open_store(place()) as told, open_store(place()) as read:
        history = History(run, (told, read))
        history.grouped = seed == 3
        done = []
        for _ in range(9):
            done.append(history.change(chance))
            one, other = await history.step()
            assert one == other, done


# --- files
# ------------------------------------------------------------------------


def lines(path, texts):
    path.write_text("".join(f'{{"id": {n}, "context": "{text}", "question": "q"}}\n' for n, text in enumerate(texts)))
    return path


async def test_a_file_is_known_by_what_is_in_it(run, store, tmp_path, monkeypatch):
    texts = [f"text {n}" for n in range(30)]
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        lines(tmp_path / name / "d.jsonl", texts)
    monkeypatch.chdir(tmp_path / "here")
    await run([Teller(fails={"text 20"})], Chained([load("d.jsonl")]))
    monkeypatch.chdir(tmp_path / "there")
    elsewhere = Teller()
    found = await run([elsewhere], Chained([load("d.jsonl")]))
    assert (elsewhere.asked, found.counts["reused"]) == ([(20, None)], 29)
    by_another_name = Teller()
    whole = str(tmp_path / "here" / "d.jsonl")
    found = await run([by_another_name], Chained([load(whole)]))
    assert (by_another_name.asked, {row.dataset for row in rows(store, "r")}) == ([], {whole})
    lines(tmp_path / "here" / "d.jsonl", [*texts[:3], "new", *texts[4:]])
    changed = Teller()
    await run([changed], Chained([load(whole)]))
    assert changed.asked == [(3, None)]


async def test_several_datasets_one_after_the_other_are_known_together(run, tmp_path):
    one, two = lines(tmp_path / "one.jsonl", ["a", "b"]), lines(tmp_path / "two.jsonl", ["c", "d", "e"])
    await run([Teller(fails={"b", "e"})], Chained([load(str(one)), load(str(two), n=3)]))
    teller = Teller()
    found = await run([teller], Chained([load(str(one)), load(str(two), n=3)]))
    assert (teller.asked, found.counts["reused"]) == ([(1, None), (2, None)], 3)
    chained = Chained([load(str(one)), load(str(two), n=2)])
    last = await run([Teller()], chained)
    assert iter(chained).skip(9) == 4
    assert (last.examples, last.counts["reused"]) == (4, 4)
