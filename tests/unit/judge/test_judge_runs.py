"""Judges inside runs: failures are never averaged in, and nothing is asked twice."""

import asyncio
import json
import sqlite3

import pytest

import context_bench
from context_bench.core.errors import JudgeUnreadable
from context_bench.core.machine import ManualClock
from context_bench.engine import StoredReplies, open_store, purge, rescore
from context_bench.engine.encoding import Secrets, secrets_of, unpack
from context_bench.evaluators import LLMJudge, MemoryJudge
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.metrics import MeanScore

SLOW = {"text": "slow down", "status": 503}


class Answers:
    """Answers a question with its own number."""

    def __init__(self, name="plain", prefix="number"):
        self.name, self.prefix = name, prefix

    def process(self, example):
        return {**example, "response": f"{self.prefix} {example['id']:03}"}


def examples(n):
    return [{"id": i, "context": "c", "question": "Which?", "answer": f"number {i:03}"} for i in range(n)]


def means(result, system="plain", field="judge_score"):
    return result.summary[system]["mean_score"], result.estimates[system][field]


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def run(systems, n, judge, **more):
    """As a script would: a plain function, away from the loop on which the model runs."""
    more = {"progress": False, **more}
    return asyncio.to_thread(context_bench.evaluate, systems, examples(n), [judge], [MeanScore("judge_score")], **more)


# --- failures
# ------------------------------------------------------------------------


async def test_a_judge_that_fails_on_some_rows_moves_no_mean():
    """Every row that is judged gets 4 (0.75); a third of them is not judged."""
    script = {"rules": [{"when": {"text": "number 00[0369]\n"}, **SLOW}], "default": "4"}
    async with ModelServer(Scripted(script)) as model:
        result = await run(Answers(), 12, LLMJudge(model.url, max_retries=0, retry_base_delay=0.0))
    unjudged = [row for row in result.rows if "llm_judge" in row.errors]
    assert [row.example_id for row in unjudged] == [0, 3, 6, 9]
    assert all("judge_score" not in row.scores for row in unjudged)
    assert all(row.errors["llm_judge"].startswith("EvaluatorFailed: ServerFailed") for row in unjudged)
    mean, estimate = means(result)
    assert mean == estimate.value == 0.75
    assert (estimate.n, estimate.failures) == (8, 4)
    assert estimate.worst == pytest.approx(0.5)  # as if each failure were the worst answer
    assert estimate.best == pytest.approx((8 * 0.75 + 4) / 12)
    assert result.failures["plain"]["llm_judge"] == {"EvaluatorFailed": 4}
    assert any("4 of 12 rows could not be scored by llm_judge" in note for note in result.notes)


async def test_a_dead_judge_gives_no_clean_table():
    async with ModelServer(Scripted({"rules": [{"text": "no", "status": 401}]})) as model:
        result = await run(Answers(), 6, LLMJudge(model.url))
    assert all(row.scores == {} and "llm_judge" in row.errors for row in result.rows)
    assert "judge_score" not in result.estimates["plain"]


async def test_a_judge_that_fails_on_one_system_only_is_said_to():
    script = {"rules": [{"when": {"text": "strange 0"}, **SLOW}], "default": "4"}
    async with ModelServer(Scripted(script)) as model:
        judge = LLMJudge(model.url, max_retries=0)
        result = await run([Answers(), Answers("odd", "strange")], 20, judge)
    assert any(note.startswith("llm_judge failed on some systems more often") for note in result.notes)


# --- nothing is asked twice
# ------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def replies(store):
    return StoredReplies(store, Secrets())


ITEM, SAID = {"question": "Which?", "answer": "one"}, {"response": "one"}


async def test_equal_answers_of_two_systems_are_judged_once(tmp_path):
    where = str(tmp_path / "store.db")
    async with ModelServer(Scripted({"default": "4"})) as model:
        judge = LLMJudge(model.url)
        result = await run([Answers(), Answers("same")], 5, judge, store=where, run="one")
        assert model.seen == judge.stats.calls == 5
        assert judge.stats.cache_hits == 5
        assert means(result)[0] == means(result, "same")[0] == 0.75
        assert judge.cache is None  # what was lent is given back

        again = LLMJudge(model.url, diagnostics=True)  # another evaluator over the same questions, in another run
        await run([Answers()], 6, again, store=where, run="two")
        assert (again.stats.calls, again.stats.cache_hits) == (1, 5)


async def test_a_rescore_asks_only_what_is_new_and_again_asks_all(tmp_path):
    where = str(tmp_path / "store.db")
    async with ModelServer(Scripted({"default": "4"})) as model:
        await run([Answers()], 4, LLMJudge(model.url), store=where, run="one")
        with open_store(where) as store:
            strict = LLMJudge(model.url, strict=True)
            await rescore(store, "one", [strict])
            assert (strict.stats.calls, strict.stats.cache_hits) == (0, 4)
            await rescore(store, "one", [strict], again=True)
            assert strict.stats.calls == 4
            other = LLMJudge(model.url, model="other")
            await rescore(store, "one", [other])
            assert other.stats.calls == 4  # another judge's replies are not its own


async def test_what_makes_a_reply_anothers(endpoint, replies):
    endpoint.says("5")

    async def calls(original=ITEM, processed=SAID, **more):
        judge = LLMJudge(more.pop("url", endpoint.url), cache=replies, **more)
        await judge.ascore(original, processed)
        return judge.stats.calls

    assert [await calls(), await calls()] == [1, 0]
    assert await calls(url=endpoint.url + "/v1/") == 0
    assert await calls(url=endpoint.url.replace("//", "//user:pass@")) == 0
    assert await calls(api_key="other") == 0
    assert await calls(model="other") == 1
    assert await calls(processed={"response": "two"}) == 1
    assert await calls(original={**ITEM, "answer": "two"}) == 1
    assert await calls(logprobs=True) == 1
    assert await calls(url=endpoint.url + "/other") == 1


async def test_probabilities_come_back_whole(endpoint, replies):
    told = {
        "content": [
            {
                "token": "4",
                "logprob": -0.7,
                "top_logprobs": [{"token": "4", "logprob": -0.7}, {"token": "5", "logprob": -0.7}],
            }
        ]
    }
    choice = {"message": {"content": "4"}, "finish_reason": "stop", "logprobs": told}
    endpoint.answers = [(200, {"choices": [choice]})]
    first = await LLMJudge(endpoint.url, logprobs=True, diagnostics=True, cache=replies).ascore(ITEM, SAID)
    second = await LLMJudge(endpoint.url, logprobs=True, diagnostics=True, cache=replies).ascore(ITEM, SAID)
    assert first == second
    assert first["judge_weighted"] == pytest.approx(4.5)
    assert len(endpoint.seen) == 1


async def test_what_could_not_be_read_is_not_remembered(endpoint, replies):
    endpoint.says("hm", "4")
    judge = LLMJudge(endpoint.url, cache=replies)
    with pytest.raises(JudgeUnreadable):
        await judge.ascore(ITEM, SAID)
    assert await judge.ascore(ITEM, SAID) == {"judge_score": 0.75}
    assert await judge.ascore(ITEM, SAID) == {"judge_score": 0.75}
    assert (judge.stats.calls, judge.stats.cache_hits, judge.stats.unparsed) == (2, 1, 1)


async def test_a_preflight_always_asks(endpoint, replies):
    judge = LLMJudge(endpoint.says("5", "2", "1", "5", "2", "1").url, cache=replies)
    await judge.preflight()
    await judge.preflight()
    assert len(endpoint.seen) == 6


async def test_all_judges_can_remember(endpoint, replies):
    judge = MemoryJudge(endpoint.says("YES").url, cache=replies)
    assert await judge.ascore(ITEM, SAID) == await asyncio.to_thread(judge.score, ITEM, SAID)
    assert judge.stats.as_dict()["cache_hits"] == 1


# --- the store's part
# ------------------------------------------------------------------------


def test_replies_are_kept_in_the_file_without_what_was_asked_and_without_keys(store):
    replies = StoredReplies(store, secrets_of([LLMJudge("http://localhost:1", api_key="sk-planted-0123456789")], {}))
    replies.put("k", {"text": "4 (sk-planted-0123456789)", "finish_reason": None})
    replies.put("k", {"text": "5 (sk-planted-0123456789)", "finish_reason": None})
    assert replies.get("k") == {"text": "5 ([redacted])", "finish_reason": None}
    assert replies.get("other") is None
    assert StoredReplies(store, Secrets()).get("k") is not None
    with sqlite3.connect(store.path) as raw:
        rows = raw.execute("SELECT key, reply FROM replies").fetchall()
    raw.close()
    assert len(rows) == 1
    assert len(rows[0][0]) == 16
    assert b"sk-planted" not in unpack(rows[0][1])
    assert json.loads(unpack(rows[0][1])) == replies.get("k")


async def test_many_threads_write_at_once(replies):
    await asyncio.gather(*(asyncio.to_thread(replies.put, str(n % 10), {"text": str(n)}) for n in range(60)))
    assert all(int(replies.get(str(n))["text"]) % 10 == n for n in range(10))


def test_a_purge_takes_replies_that_are_as_old(store):
    clock = ManualClock()
    old, new = (
        StoredReplies(store, Secrets(), clock=clock),
        StoredReplies(store, Secrets(), clock=ManualClock(clock.now() + 100)),
    )
    old.put("old", {"text": "1"})
    new.put("new", {"text": "2"})
    later = ManualClock(clock.now() + 100)
    assert purge(store, older_than=50, dry_run=True, clock=later) == []
    assert old.get("old")
    assert purge(store, older_than=50, clock=later) == []
    assert (old.get("old"), old.get("new")) == (None, {"text": "2"})
