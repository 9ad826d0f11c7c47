"""Set-ups of groups: made once, kept before the first row, never a row's time, repeated only where a group was left
half done.
"""

import asyncio
import itertools

import pytest

from context_bench.core.errors import BadInput, CostCapReached, SystemFailed, TimedOut
from context_bench.core.ledger import current_ledger
from context_bench.core.machine import SystemClock
from context_bench.core.records import Call, SetupRecord, Usage
from context_bench.core.rows import note, standing, totals
from context_bench.engine import export, open_store, purge, rescore, rows, run_of, setups, spent
from context_bench.engine.store import schema

IDS = itertools.count()


class After:
    """A clock that stands at a moment."""

    def __init__(self, seconds):
        self.seconds = seconds

    def now(self):
        return self.seconds


LATER = After(1e12)


def call(cost=0.5, tokens=100, account="system"):
    usage = Usage(input_tokens=tokens, output_tokens=10)
    made = Call(
        account, "m", "http://127.0.0.1/v1", 0.0, seconds=1.0, usage=usage, cost=cost, request={"ask": next(IDS)}
    )
    ledger = current_ledger()
    assert ledger is not None
    ledger.record(made)
    return made


class Memory:
    """Remembers what a group's set-up gave it. Twins share one log of what happened."""

    stateful = True

    def __init__(self, name="memory", log=None, held=None, **fails):
        self.name, self.log, self.held, self.fails = name, [] if log is None else log, held, fails

    def fingerprint(self):
        return {"class": "Memory", "name": self.name}

    async def asetup(self, example):
        self.log.append(("setup", example["group"], self.held))
        await asyncio.sleep(self.fails.get("setup_seconds", 0))
        call()
        if example["group"] in self.fails.get("setup", ()):
            raise self.fails.get("error", RuntimeError("cannot hold it"))
        self.group = example["group"]
        return {"items": 3, "acknowledged": 3, "failed": 0}

    async def aprocess(self, example):
        self.log.append(("ask", example["id"], self.held))
        if example["id"] in self.fails.get("ask", ()):
            raise SystemFailed("lost it")
        call(cost=0.01, tokens=7)
        return {**example, "response": f"{self.group} knows {example['id']}"}


class Spaces(Memory):
    """The same with isolated twins."""

    def namespace(self, name):
        if self.fails.get("namespace"):
            raise ConnectionError("nobody home")
        self.log.append(("namespace", name, None))
        return Spaces(self.name, self.log, name, **self.fails)

    async def aclose(self):
        self.log.append(("close", None, self.held))
        if self.fails.get("close"):
            raise OSError("stuck")


class InTurn(Memory):
    """The same without twins: emptied between groups."""

    def reset(self):
        self.log.append(("reset", None, None))
        self.group = None


def grouped(groups="abc", each=2):
    return [{"id": f"{group}{i}", "context": "c", "group": group} for group in groups for i in range(each)]


def only(log, *kinds):
    return [entry for entry in log if entry[0] in kinds]


async def test_a_group_is_set_up_once_on_its_own_twin_and_its_rows_say_so(store, run):
    memory = Spaces()
    done = await run([memory], grouped(), max_workers=3)
    names = [name for _, name, _ in only(memory.log, "namespace")]
    assert len(set(names)) == 3
    assert sorted(group for _, group, _ in only(memory.log, "setup")) == ["a", "b", "c"]
    for _, group, held in only(memory.log, "setup"):
        mine = [entry[:2] for entry in memory.log if entry[2] == held]
        assert mine == [("setup", group), ("ask", f"{group}0"), ("ask", f"{group}1"), ("close", None)]
    found = setups(store, "r")
    assert [(one.system, one.group, one.trial, one.number, one.attempt) for one in found] == [
        ("memory", group, 0, i + 1, 1) for i, group in enumerate("abc")
    ]
    assert all(one.output == {"items": 3, "acknowledged": 3, "failed": 0} and one.error is None for one in found)
    assert [(one.usage["input_tokens"], one.cost, one.calls) for one in found] == [(100, 0.5, 1)] * 3
    read = list(rows(store, "r"))
    assert [row.metadata["setup"] for row in read] == [1, 1, 2, 2, 3, 3]
    assert [row.usage["cost"] for row in read] == [0.01] * 6  # the set-up's money is not a question's
    assert (done.counts["systems"]["memory"]["setups"], done.counts["set_up_again"]) == (3, 0)
    assert done.counts["systems"]["memory"]["cost"] == pytest.approx(1.56)
    assert spent(store, done.run_id) == pytest.approx(1.56)
    assert run_of(store, "r").counts["unmatched"] == 0


async def test_its_time_is_no_rows_latency_and_not_under_the_examples_timeout(store, run):
    class Jumps(SystemClock):
        ahead = 0.0

        def monotonic(self):
            return super().monotonic() + self.ahead

    clock, deadlines = Jumps(), []

    class Long(InTurn):
        async def asetup(self, example):
            clock.ahead += 1000
            deadlines.append(current_ledger().deadline)
            return await super().asetup(example)

        async def aprocess(self, example):
            deadlines.append(current_ledger().deadline)
            return await super().aprocess(example)

    await run([Long()], grouped("a", 1), example_timeout=500, clock=clock)
    assert rows(store, "r")[0].latency < 500
    assert setups(store, "r")[0].seconds >= 1000
    assert [deadline is None for deadline in deadlines] == [True, False]


async def test_a_plain_setup_may_tell_nothing(store, run):
    class Plain(Memory):
        asetup = None

        def setup(self, example):
            self.group = example["group"]

    await run([Plain()], grouped("a"))
    assert setups(store, "r")[0].output == {}
    assert rows(store, "r")[0].metadata["setup"] == 1


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ({"setup": "b"}, "SetupFailed: RuntimeError: cannot hold it"),
        ({"setup": "b", "error": SystemFailed("model gone")}, "SetupFailed: SystemFailed: model gone"),
        ({"setup": "b", "error": BadInput("no items")}, "SetupFailed: BadInput: no items"),
        ({"setup": "b", "error": TimedOut("slow")}, "SetupFailed: TimedOut: slow"),
    ],
)
async def test_a_set_up_that_fails_fails_every_row_of_its_group_and_no_other(store, run, fails, said):
    memory = Spaces(**fails)
    done = await run([memory], grouped())
    assert done.completed
    assert [row.errors.get("system") for row in rows(store, "r")] == [None, None, said, said, None, None]
    assert [one.error for one in setups(store, "r")] == [None, said, None]
    assert setups(store, "r")[1].cost == 0.5
    assert rows(store, "r")[2].metadata["setup"] == 2
    assert rows(store, "r")[2].usage == {}
    assert len(only(memory.log, "ask")) == 4
    assert len(only(memory.log, "close")) == 3
    memory.fails = {}
    again = await run([memory], grouped())
    assert again.counts["set_up_again"] == 1
    assert [(one.group, one.attempt, one.error) for one in setups(store, "r")] == [
        ("a", 1, None),
        ("b", 1, said),
        ("b", 2, None),
        ("c", 1, None),
    ]
    assert not any(row.failed for row in rows(store, "r"))


async def test_what_is_not_a_mapping_is_a_failure(store, run):
    class Odd(Spaces):
        async def asetup(self, example):
            return ["done"]

        def namespace(self, name):
            return Odd()

    await run([Odd()], grouped("a"))
    assert (
        rows(store, "r")[0]
        .errors["system"]
        .startswith("SetupFailed: BadReply: the set-up of system 'memory' returned list")
    )


async def test_a_set_up_that_takes_too_long(store, run):
    done = await run([Spaces(setup_seconds=30)], grouped("a"), setup_timeout=0.05)
    assert done.completed
    assert (
        rows(store, "r")[0].errors["system"]
        == "SetupFailed: TimedOut: the group was not set up within 0.05 s, the time allowed for it"
    )
    with pytest.raises(BadInput, match="setup_timeout is 0"):
        await run([Spaces()], grouped("a"), setup_timeout=0)


async def test_a_twin_that_cannot_be_had_is_its_groups_failure(store, run):
    done = await run([Spaces(namespace=True), Spaces("other")], grouped("a"))
    assert done.completed
    assert [row.errors.get("system") for row in rows(store, "r", "memory")] == [
        "SetupFailed: ConnectionError: nobody home"
    ] * 2
    assert setups(store, "r", "memory")[0].error == "SetupFailed: ConnectionError: nobody home"
    assert [row.failed for row in rows(store, "r", "other")] == [False, False]


async def test_a_twin_that_cannot_be_closed_is_said_and_ends_nothing(store, run):
    done = await run([Spaces(close=True)], grouped())
    assert done.completed
    assert done.counts["failed"] == 0
    assert done.counts["notes"] == ["memory: what was made for a group could not be closed: OSError: stuck"]


async def test_without_twins_groups_are_set_up_one_at_a_time_after_reset(store, run):
    memory = InTurn()
    await run([memory], grouped("ab"), max_workers=4, trials=2)
    steps = [kind for kind, _, _ in memory.log]
    assert steps == ["reset", "setup", "ask", "ask"] * 4
    found = setups(store, "r")
    assert [(one.group, one.trial, one.number) for one in found] == [("a", 0, 1), ("a", 1, 1), ("b", 0, 2), ("b", 1, 2)]


async def test_examples_without_a_group_are_groups_of_one(store, run):
    class Alone(Memory):
        async def asetup(self, example):
            self.group = example["id"]

    await run([Alone()], [{"id": i, "context": "c"} for i in range(3)])
    assert [(one.group, one.number) for one in setups(store, "r")] == [(None, 1), (None, 2), (None, 3)]
    assert [row.metadata["setup"] for row in rows(store, "r")] == [1, 2, 3]
    assert len(standing(setups(store, "r"))) == 3


async def test_finished_groups_are_never_set_up_again_and_judging_sets_nothing_up(store, run):
    class Length:
        name = "length"

        def score(self, original, processed):
            return {"length": float(len(processed["response"]))}

    memory = InTurn()
    await run([memory], grouped())
    before = list(memory.log)
    done = await run([memory], grouped(), [Length()])
    await rescore(store, "r", [Length()], again=True)
    assert memory.log == before
    assert done.counts["reused"] == 6
    assert all("length" in row.scores for row in rows(store, "r"))
    assert [row.metadata["setup"] for row in rows(store, "r")] == [1, 1, 2, 2, 3, 3]
    assert len(setups(store, "r")) == 3


async def test_a_group_left_half_done_is_set_up_again_in_a_fresh_namespace(store, run):
    memory = Spaces(ask={"b1"})
    await run([memory], grouped(), max_workers=1)
    memory.fails = {}
    again = await run([memory], grouped(), max_workers=1)
    assert again.counts["restarted"] == again.counts["set_up_again"] == 1
    found = setups(store, "r")
    assert [(one.group, one.attempt, one.number) for one in found] == [
        ("a", 1, 1),
        ("b", 1, 2),
        ("b", 2, 2),
        ("c", 1, 3),
    ]
    namespaces = [held for kind, group, held in only(memory.log, "setup") if group == "b"]
    assert len(set(namespaces)) == 2
    assert totals(found) == pytest.approx(
        {
            "groups": 3,
            "setups_failed": 0,
            "setup_calls": 4,
            "setup_input_tokens": 400,
            "setup_output_tokens": 40,
            "setup_cost": 2.0,
            "setup_seconds": sum(one.seconds for one in found),
        }
    )
    assert (
        note(found)
        == "1 group was set up again after an interruption or a failure; what every attempt cost is counted."
    )
    assert spent(store, again.run_id) == pytest.approx(2.0 + 0.01 * 5 + 0.01 * 2)


async def test_a_run_stopped_within_a_set_up_keeps_its_money_and_begins_it_anew(store, run):
    reached = asyncio.Event()

    class Hangs(Spaces):
        async def asetup(self, example):
            if example["group"] == "b" and not self.fails.get("free"):
                call()
                reached.set()
                await asyncio.sleep(60)
            return await super().asetup(example)

        def namespace(self, name):
            self.log.append(("namespace", name, None))
            return Hangs(self.name, self.log, name, **self.fails)

    memory = Hangs()
    task = asyncio.ensure_future(run([memory], grouped(), max_workers=1))
    await reached.wait()
    task.cancel()
    stopped = await task
    assert not stopped.completed
    assert [(one.group, one.error, one.cost) for one in setups(store, "r")] == [
        ("a", None, 0.5),
        ("b", "Interrupted: the run ended while the group was being set up", 0.5),
    ]
    assert spent(store, stopped.run_id) == pytest.approx(1.02)
    memory.fails = {"free": True}
    done = await run([memory], grouped(), max_workers=1)
    assert done.completed
    assert [(one.group, one.attempt) for one in setups(store, "r")] == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]
    assert len({name for _, name, _ in only(memory.log, "namespace")}) == 4
    assert spent(store, done.run_id) == pytest.approx(2.0 + 0.06)


async def test_the_money_limit_holds_for_set_ups(store, run):
    class Limit:
        left = 1

        async def reserve(self, worst):
            if not self.left:
                raise CostCapReached("no more")
            self.left -= 1
            return 0

        def settle(self, ticket, actual):
            pass

    class Pays(Spaces):
        async def asetup(self, example):
            await current_ledger().spend.reserve(1.0)
            return await super().asetup(example)

        def namespace(self, name):
            return Pays(self.name, self.log, name)

    memory, limit = Pays(), Limit()
    done = await run([memory], grouped(), max_workers=1, spend=limit)
    assert isinstance(done.stopped, CostCapReached)
    assert not done.completed
    assert [row.example_id for row in rows(store, "r")] == ["a0", "a1"]
    assert [(one.group, one.error) for one in setups(store, "r")] == [("a", None), ("b", "CostCapReached: no more")]
    limit.left = 10
    assert (await run([memory], grouped(), max_workers=1, spend=limit)).completed
    assert totals(setups(store, "r"))["setups_failed"] == 0
    assert len(rows(store, "r")) == 6


async def test_the_record_is_durable_before_the_first_question_is_asked(store, run, tmp_path):
    seen = []

    class Looks(Spaces):
        async def aprocess(self, example):
            with open_store(tmp_path / "store.db") as other:
                seen.append([(one.group, one.error) for one in setups(other, "r")])
            return await super().aprocess(example)

        async def asetup(self, example):
            with open_store(tmp_path / "store.db") as other:
                seen.append([(one.group, one.error) for one in setups(other, "r")])
            return await super().asetup(example)

        def namespace(self, name):
            return Looks(self.name, self.log, name)

    await run([Looks()], grouped("a", 1))
    assert seen == [[("a", "Interrupted: the set-up never ended")], [("a", None)]]


async def test_two_memories_of_one_kind_never_share_a_namespace(run):
    one, two = Spaces("one"), Spaces("two")
    await run([one, two], grouped("ab"), trials=2)
    names = [name for memory in (one, two) for _, name, _ in only(memory.log, "namespace")]
    assert len(set(names)) == len(names) == 8


async def test_another_system_under_an_old_name_has_set_ups_of_its_own(store, run):
    class Other(Spaces):
        def fingerprint(self):
            return {"class": "another"}

    await run([Spaces()], grouped("a"))
    await run([Other()], grouped("a"))
    assert [(one.group, one.attempt) for one in setups(store, "r")] == [("a", 1)]
    assert spent(store, run_of(store, "r").id) == pytest.approx(1.04)


async def test_what_is_taken_over_from_another_run_brings_its_set_ups_and_purging_keeps_them(store, run):
    memory = Spaces()
    await run([memory], grouped(), name="old")
    done = await run([memory], grouped() + grouped("d"), name="new", reuse="all")
    assert done.counts["reused"] == 6
    assert [(one.group, one.cost) for one in setups(store, "new")] == [("a", 0.5), ("b", 0.5), ("c", 0.5), ("d", 0.5)]
    assert len(only(memory.log, "setup")) == 4
    assert spent(store, done.run_id) == pytest.approx(0.52)  # only what this run paid itself
    await run([Spaces("third")], grouped("x"), name="third")
    with store.writing() as connection:
        connection.execute(schema.runs.update().where(schema.runs.c.name == "new").values(updated=LATER.now()))
    assert sorted(purge(store, older_than=1, clock=LATER)) == ["old", "third"]
    assert [one.group for one in setups(store, "new")] == ["a", "b", "c", "d"]
    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM setups").scalar() == 4
        assert connection.exec_driver_sql("SELECT count(*) FROM calls WHERE setup IS NOT NULL").scalar() == 4
    assert sorted(purge(store, older_than=0, clock=After(2e12))) == ["new"]
    with store.reading() as connection:
        for table in ("setups", "calls", "bodies"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0


async def test_purging_leaves_the_calls_of_a_living_run_without_any_answer(store, run):
    await run([Spaces(setup="ab")], grouped("ab"), name="r")
    await run([Spaces("gone")], grouped("a"), name="gone")
    with store.writing() as connection:
        connection.execute(schema.outputs.delete())
        connection.execute(schema.runs.update().where(schema.runs.c.name == "r").values(updated=LATER.now()))
    assert purge(store, older_than=1, clock=LATER) == ["gone"]
    assert spent(store, run_of(store, "r").id) == pytest.approx(1.0)


async def test_its_calls_are_recorded_under_the_groups_conversation(store, run):
    from context_bench.core.ledger import Mark
    from context_bench.core.records import Forwarded

    class Recorder:
        marker = "key"

        def __init__(self):
            self.begun, self.open, self.after = [], 0, []

        async def begin(self, conversation):
            self.begun.append(conversation)
            self.open += 1
            return Mark("key", conversation)

        async def end(self, mark):
            self.open -= 1
            usage = Usage(input_tokens=90, output_tokens=9)
            body = {"kept": f"body {len(self.begun)}"}
            return [
                Forwarded(
                    "f",
                    mark.token,
                    "key",
                    "openai-chat",
                    "POST",
                    "/v1",
                    0.0,
                    status=200,
                    tokens=90,
                    usage=usage,
                    request=body,
                )
            ]

        async def late(self):
            late, self.after = self.after, []
            return late

        async def unmatched(self):
            return []

    recorder = Recorder()
    memory = Spaces()
    await run([memory], grouped("a"), recorder=recorder)
    assert len(set(recorder.begun)) == 1
    assert recorder.begun[0].endswith("/memory/0/a")
    assert len(recorder.begun) == 3
    assert recorder.open == 0
    with store.reading() as connection:
        found = connection.exec_driver_sql(
            "SELECT count(*), count(output), count(request) FROM forwarded WHERE setup = 1"
        ).one()
        assert tuple(found) == (1, 0, 1)
        assert (
            connection.exec_driver_sql(
                "SELECT count(*) FROM forwarded WHERE setup IS NULL AND output IS NOT NULL"
            ).scalar()
            == 2
        )
    assert run_of(store, "r").counts["unmatched"] == 0
    assert all(len(item["calls"]) == 1 and len(item["forwarded"]) == 1 for item in export(store, "r"))


async def test_a_stateless_system_and_a_played_back_one_are_never_set_up(store, run):
    class Stateless(Memory):
        stateful, group = False, "none"

    class Played(Memory):
        played_back, group = True, "past"

    await run([Stateless("one"), Played("two")], grouped("a"))
    assert setups(store, "r") == []
    assert not any("setup" in row.metadata for row in rows(store, "r"))


async def test_who_watches_is_told(run):
    from io import StringIO

    from context_bench.engine import TerminalProgress

    said = StringIO()
    seconds = itertools.count(0.0, 100.0)  # long enough between two looks for a line at each
    await run([Spaces()], grouped("ab"), progress=TerminalProgress(said, every=0.0, monotonic=lambda: next(seconds)))
    assert "  memory: setting up group a\n" in said.getvalue()
    assert "  memory: setting up group b\n" in said.getvalue()

    class Bare:
        def start(self, systems, total):
            pass

        def advance(self, step):
            pass

        def note(self, text):
            pass

        def close(self):
            pass

    assert (await run([Spaces()], grouped("c"), progress=Bare(), name="bare")).completed


# --- what they come to ------------------------------------------------------------------------------


def record(group="a", attempt=1, **more):
    return SetupRecord("s", group, 0, 1, attempt, **{"seconds": 1.0, **more})


def test_totals_leave_out_what_nobody_told():
    assert totals([]) == {}
    assert totals([record()]) == {"groups": 1, "setups_failed": 0, "setup_calls": 0, "setup_seconds": 1.0}
    found = [
        record(attempt=2, cost=1.0),
        record(attempt=1, seconds=None, error="Interrupted: …"),
        record("b", error="SetupFailed: x"),
    ]
    assert totals(found) == {"groups": 2, "setups_failed": 1, "setup_calls": 0, "setup_seconds": 2.0, "setup_cost": 1.0}
    assert [one.attempt for one in standing(found)] == [2, 1]
    assert "of which it is not known" in note(found)
    assert note([record(), record("b")]) is None
