"""PairwiseJudge against real sockets: both orders, no guess at a winner, nothing in its prompt but question, truth and
answers.
"""

import json

import pytest

from context_bench.core.errors import JudgeUnreadable, PreflightFailed
from context_bench.judge.pairwise_judge import PairVerdict, PairwiseJudge, last_object
from context_bench.llm.servers import ModelServer
from context_bench.testing.rule_judge import RuleJudge

PROBE = {"question": "What failed?", "answer": "alpha beta", "id": "hidden"}
GOOD, BAD = {"response": "alpha beta", "context": "secret notes"}, {"response": "gamma"}


async def test_asks_both_orders(endpoint):
    endpoint.says('{"reasoning": "x", "winner": "first"}')
    assert await PairwiseJudge(endpoint.url).acompare(PROBE, GOOD, BAD) == PairVerdict("first", "first")
    prompts = [body["messages"][1]["content"] for _, _, body in endpoint.seen]
    told = [json.loads(text.split("\n[end ")[0].partition("\n")[2]) for text in prompts]
    assert [(each["first_response"], each["second_response"]) for each in told] == [
        ("alpha beta", "gamma"),
        ("gamma", "alpha beta"),
    ]
    assert not any(word in text for text in prompts for word in ("hidden", "secret notes"))


async def test_a_better_answer_wins_in_both_orders():
    async with ModelServer(RuleJudge()) as model:
        judge = PairwiseJudge(model.url)
        await judge.preflight()
        assert (await judge.acompare(PROBE, GOOD, BAD)).win == 1.0
        assert (await judge.acompare(PROBE, BAD, GOOD)).win == 0.0
        calls = judge.stats.calls
        assert await judge.acompare(PROBE, GOOD, dict(GOOD)) == PairVerdict("tie", "tie")
        assert judge.stats.calls == calls


async def test_a_judge_that_looks_at_the_order_only_is_refused(endpoint):
    with pytest.raises(PreflightFailed, match="both orders"):
        await PairwiseJudge(endpoint.says('{"winner": "first"}').url).preflight()


@pytest.mark.parametrize("said", ["the first one", '{"winner": "A"}', '{"winner": 1}', "first"])
async def test_no_winner_is_a_failure(endpoint, said):
    with pytest.raises(JudgeUnreadable, match="no winner"):
        await PairwiseJudge(endpoint.says(said).url).acompare(PROBE, GOOD, BAD)


def test_the_last_object_counts():
    assert last_object('{"winner": "second"} no: {"reasoning": "a {brace}", "winner": "tie"}', "winner") == "tie"
    assert last_object('<think>{"winner": "second"}</think> none', "winner") is None
