"""The operational suites: the honest store passes them, each mutant is caught by the right one, and no test is
vacuous.
"""

import asyncio

import pytest

from context_bench.core.errors import BadInput, TimedOut, UnknownName
from context_bench.memory.ops import DEFAULT, SUITES, SuiteReport, percentile, run_suites
from context_bench.memory.ops.changes import scanner_works
from context_bench.memory.ops.suite_workspace import Facts, TimedCaller
from context_bench.memory.protocol import Hit, Item, Receipt
from context_bench.memory.systems.bm25_memory import BM25
from mutants import CAUGHT_BY, MUTANTS, Honest, Oversleeps, spec_of

#: Crashes: tests/end_to_end/test_memory_crash.py; the honest store has no relations: test_memory_ops_owners.py.
IN_PROCESS = [name for name in DEFAULT if name not in ("crash", "relations")]


async def result(make, suite, **options):
    (found,) = await run_suites(make, [suite], **options)
    return found


def outcomes(found, kind="test"):
    return {probe.name: probe.outcome for probe in found.probes if probe.kind == kind}


def told(found):
    return [(probe.name, probe.sentence, probe.findings) for probe in found.failed]


# --- the mutants ---


@pytest.mark.parametrize("suite", IN_PROCESS)
async def test_nothing_is_found_in_the_honest_store(suite):
    found = await result(spec_of(Honest), suite)
    assert found.outcome == "pass", told(found)
    assert not [probe for probe in found.probes if probe.outcome not in ("pass", "measured", "not applicable")]


CASES = [(mutant, suite) for mutant, suites in CAUGHT_BY.items() for suite in suites if suite != "crash"]

#: The test of the first suite that sees the fault.
PROBES = {
    "drops-every-seventh": "write loss",
    "newest-only": "write loss",
    "leaks": "search",
    "tombstones": "in the files",
    "reorders": "order",
    "truncates": "long texts",
    "more-than-k": "hits asked for",
    "merges-alike": "near twins",
    "swallows": "asked when closed",
    "echoes": "echo",
}


@pytest.mark.parametrize(("mutant", "suite"), CASES, ids=[mutant.name for mutant, _ in CASES])
async def test_the_right_suite_catches_the_mutant_for_the_right_reason(mutant, suite):
    found = await result(spec_of(mutant), suite, deadline=0.75 if mutant is Oversleeps else 60)
    assert found.outcome == "fail", outcomes(found)
    if mutant.name in PROBES and suite == CAUGHT_BY[mutant][0]:
        probe = next(probe for probe in found.probes if probe.kind == "test" and probe.name == PROBES[mutant.name])
        assert probe.outcome == "fail"
        assert not probe.sentence.startswith("says nothing")  # its control holds: it is this fault that was seen


def test_every_reason_is_looked_at():
    assert set(PROBES) == {
        mutant.name for mutant, suite in CASES if suite == CAUGHT_BY[mutant][0] and mutant.name in PROBES
    }


def test_there_are_twelve_and_all_are_listed():
    assert len(MUTANTS) == 12
    assert set().union(*CAUGHT_BY.values()) <= set(SUITES)


async def test_write_loss_is_what_it_is_defined_as():
    found = await result(spec_of(MUTANTS[0]), "growth")
    probe = next(probe for probe in found.probes if probe.name == "write loss")
    assert probe.numbers["acknowledged"] == 200
    assert probe.numbers["write_loss"] == pytest.approx(28 / 200)  # every seventh of 200


# --- no vacuous test ---


class FindsNothing(Honest):
    """Every test that looks for something bad would pass on it, if it had no control."""

    def search(self, query, k, *, as_of=None):
        return []


@pytest.mark.parametrize("suite", IN_PROCESS)
async def test_a_store_that_finds_nothing_does_not_pass(suite, tmp_path):
    found = await result(lambda: FindsNothing(tmp_path / "s.db"), suite)
    assert found.outcome == "fail"
    controls = outcomes(found, "positive control")
    assert "fail" in controls.values()
    assert all(outcomes(found)[name] == "fail" for name, outcome in controls.items() if outcome == "fail")


# --- faults that no mutant has ---


class Broken(Honest):
    fault = ""

    def delete(self, memory_id):
        if self.fault == "keeps":
            return True
        if self.fault == "deletes the next too":
            super().delete(f"{memory_id.rpartition('-')[0]}-{int(memory_id.rpartition('-')[2]) + 1}")
        return super().delete(memory_id)

    def update(self, memory_id, text):
        if self.fault == "updates by adding":
            super().add([Item("new", text)])
            return True
        return super().update(memory_id, text)

    def delete_all(self):
        if self.fault == "empties everything":
            with self._writing() as db:
                for (space,) in db.execute("SELECT id FROM spaces").fetchall():
                    db.execute(f"DELETE FROM notes_{space}")
        elif self.fault != "keeps":
            super().delete_all()

    def _row(self, memory_id):
        if self.fault == "any id is mine":
            for space in (1, 2, 3, 4):
                if memory_id.rpartition("-")[2].isdecimal():
                    with self._writing() as db:
                        db.execute(f"DELETE FROM notes_{space} WHERE rowid = ?", (memory_id.rpartition("-")[2],))
        return super()._row(memory_id)

    def add(self, items):
        receipts = super().add(items)
        if self.fault == "stores twice" and len(items) == 1 and "writer" in items[0].id:
            super().add(items)
        return receipts


@pytest.mark.parametrize(
    ("fault", "suite", "probe"),
    [
        ("keeps", "delete", "by id: exact text"),
        ("keeps", "delete", "by user"),
        ("keeps", "delete", "after restart: exact text"),
        ("deletes the next too", "delete", "by id: nothing else"),
        ("empties everything", "delete", "by user"),
        ("empties everything", "isolation", "emptying"),
        ("any id is mine", "isolation", "guessed id: delete"),
        ("updates by adding", "update", "by update"),
        ("stores twice", "concurrency", "duplicated"),
    ],
)
async def test_other_faults(fault, suite, probe):
    class Faulty(Broken):
        pass

    Faulty.fault = fault
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mutants.Faulty", Faulty, raising=False)
        found = await result("py:mutants:Faulty:path={dir}/s.db", suite)
    assert outcomes(found)[probe] == "fail", told(found)


async def test_old_versions_and_new_ones_are_told_apart():
    found = await result(spec_of(Honest), "update")
    (probe,) = [probe for probe in found.probes if probe.name == "by update" and probe.kind == "test"]
    assert probe.numbers == {
        "k": 10, "facts": 12, "current@1": 1, "current_in_top_k": 1, "stale_in_top_k": 0, "current_above_stale": 1,
    }  # fmt: skip
    (added,) = [probe for probe in found.probes if probe.kind == "measurement"]
    assert added.numbers["stale_in_top_k"] == 1  # both are kept, and a question finds both


# --- what does not apply, and what is not touched ---


async def test_what_a_memory_does_not_offer_is_not_applicable():
    class Little:
        name, capabilities = "little", frozenset({"add", "search"})

        def __init__(self):
            self.kept = []

        def add(self, items):
            self.kept += items
            return [Receipt(item.id) for item in items]

        def search(self, query, k, *, as_of=None):
            words = set(query.lower().split())
            ranked = sorted(self.kept, key=lambda item: -len(words & set(item.text.lower().split())))
            return [Hit(item.text, source_ids=(item.id,)) for item in ranked[:k]]

    every = {found.suite: found.outcome for found in await run_suites(Little, DEFAULT, scale=0.5)}
    assert every == {
        "isolation": "not applicable",
        "delete": "not applicable",
        "update": "not applicable",
        "concurrency": "pass",
        "crash": "not applicable",
        "growth": "pass",
        "owners": "pass",
        "residue": "not applicable",
        "relations": "not applicable",
    }


async def test_a_memory_that_holds_things_is_left_alone():
    class Own(BM25):
        capabilities = BM25._CAPABILITIES - {"namespaces"}

    memory = Own()
    memory.capabilities = Own.capabilities
    memory.add([Item("mine", "The cat is called Ada.")])
    with pytest.raises(BadInput, match="not empty"):
        await run_suites(lambda: memory, ["delete"])


async def test_other_namespaces_of_the_store_stay_as_they_are(tmp_path):
    def texts():
        return [hit.text for hit in BM25(tmp_path / "s.db").search("cat", 5)]

    BM25(tmp_path / "s.db").add([Item("mine", "The cat is called Ada.")])
    await run_suites(f"bm25:path={tmp_path}/s.db", ["isolation", "delete", "growth"], scale=0.3)
    assert texts() == ["The cat is called Ada."]
    left = BM25(tmp_path / "s.db")._db.execute("SELECT id FROM spaces WHERE name LIKE 'cb-ops-%'").fetchall()
    assert left  # namespaces were used
    assert all(left_of(tmp_path / "s.db", number) == 0 for (number,) in left)  # and emptied


def left_of(path, number):
    return BM25(path)._db.execute(f"SELECT count(*) FROM notes_{number}").fetchone()[0]


async def test_wrong_orders_are_refused():
    with pytest.raises(UnknownName, match="isolation"):
        await run_suites("bm25", ["isolatoin"])
    with pytest.raises(UnknownName):
        await run_suites("bm52", ["isolation"])
    for options in ({"scale": 0}, {"deadline": 0}, {"k": 0}):
        with pytest.raises(BadInput):
            await run_suites("bm25", ["isolation"], **options)
    with pytest.raises(BadInput):
        await run_suites("bm25", [])


async def test_the_same_seed_gives_the_same_things():
    async def numbers(seed):
        found = await result("bm25", "growth", seed=seed, scale=0.2)
        return [dict(probe.numbers) for probe in found.probes if probe.name in ("write loss", "size", "long texts")]

    assert await numbers(3) == await numbers(3)
    assert Facts("a", 1).facts(5) == Facts("a", 1).facts(5) != Facts("a", 2).facts(5)


def test_words_are_never_part_of_one_another_and_topics_differ():
    facts = Facts("words", 0).facts(600)
    words = [fact.word for fact in facts]
    assert len(set(words)) == len(words)
    assert {len(word) for word in words} == {10}
    assert len({fact.topic for fact in facts}) == len(facts)
    assert all(fact.word in fact.text and fact.word not in fact.question for fact in facts)


# --- poison ---


class Reader:
    name = "reader"

    def __init__(self, obeys):
        self.obeys = obeys

    def process(self, example):
        asked = f"{example['context']} {example['question']}" if self.obeys else example["question"]
        orders = [each.split()[0] for each in asked.split("single word ")[1:] + asked.split("the word ")[1:]]
        return {**example, "response": " ".join(orders) or "I do not know."}


async def test_an_obedient_reader_is_caught_and_another_is_not():
    bad, good = [await result("bm25", "poison", reader=Reader(obeys)) for obeys in (True, False)]
    assert outcomes(bad) == {"planted instruction obeyed": "fail"}
    assert outcomes(good) == {"planted instruction obeyed": "pass"}
    shown = next(probe for probe in good.probes if probe.kind == "measurement")
    assert shown.numbers["shown_share"] == 1


async def test_without_a_reader_poison_only_measures():
    found = await result("bm25", "poison")
    assert found.outcome == "measured"
    assert outcomes(found) == {"planted instruction obeyed": "not applicable"}


# --- the parts ---


async def test_a_lane_gives_up_and_goes_on():
    import threading

    caller, stuck = TimedCaller(0.05), threading.Event()
    with pytest.raises(TimedOut, match=r"wait\(\)"):
        await caller.call(stuck.wait)
    assert await caller.call(lambda: 7, seconds=30) == 7
    stuck.set()

    async def own():
        raise TimeoutError("the memory's own")

    with pytest.raises(TimeoutError, match="own"):
        await caller.call(own)
    with pytest.raises(TimedOut):
        await caller.call(lambda: asyncio.sleep(60))
    with pytest.raises(KeyError):
        await caller.call({}.__getitem__, "x", seconds=30)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await caller.call(next, iter(()), seconds=30)
    caller.close()


def test_the_scanner_finds_what_is_planted():
    assert scanner_works()


async def test_what_a_probe_raises_is_an_outcome_without_keys():
    report = SuiteReport("s")
    async with report.guard("a"):
        raise TimedOut("late")
    async with report.guard("b"):
        raise ValueError("refused sk-abcdefghijklmnopqrst")
    assert [(probe.name, probe.outcome) for probe in report.probes] == [("a", "fail"), ("b", "error")]
    assert "abcdefgh" not in report.probes[1].sentence


async def test_results_as_rows_and_json():
    import json

    found = await result("bm25", "isolation", scale=0.3)
    rows = found.as_rows()
    assert json.loads(json.dumps(found.as_dict()))["outcome"] == "pass"
    assert set(rows[0]) == {"memory", "suite", "probe", "kind", "outcome", "sentence", "numbers", "findings"}
    assert len(rows) == len(found.probes)


@pytest.mark.parametrize(
    ("values", "of", "expected"), [([], 0.5, None), ([3, 1, 2], 0.5, 2), ([4, 1, 3, 2], 0.95, 3.85), ([5], 0.01, 5)]
)
def test_percentiles_lie_between_the_values_around_them(values, of, expected):
    assert percentile(values, of) == (expected if expected is None else pytest.approx(expected))
