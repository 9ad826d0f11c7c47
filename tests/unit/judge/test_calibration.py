"""A judge's error on answers whose worth is known, with a scripted model on loopback."""

import pytest

from context_bench.core.errors import BadInput, EvaluatorFailed
from context_bench.evaluators import MemoryJudge
from context_bench.judge.calibration import calibrate_answers, vague
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer

EXAMPLES = [
    {"id": n, "question": f"Where does {who} live?", "answer": town, "qa_type": "place" if n < 4 else "other"}
    for n, (who, town) in enumerate(
        [("Ana", "Oslo"), ("Bo", "Turin"), ("Cem", "Lagos"), ("Dan", "Quito"), ("Eve", "Lima"), ("Fay", "Riga")]
    )
]


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


async def calibrated(reply: str, **more):
    async with ModelServer(Scripted({"default": reply}), port=0) as server:
        return await calibrate_answers(MemoryJudge(server.url, "m"), EXAMPLES, **more)


async def test_a_judge_that_accepts_everything():
    found = await calibrated("YES")
    assert (found.specific.value, found.vague.value, found.right.value, found.failures) == (1, 1, 1, 0)
    assert found.false_accepts.n == 12
    assert 0.7 < found.false_accepts.low < found.false_accepts.high == 1
    assert found.sentence.startswith("memory_judge accepts 100 % [")
    assert "of 6 wrong vague answers" in found.sentence


async def test_a_judge_that_accepts_nothing_and_one_that_says_nothing():
    found = await calibrated("NO", most=4)
    assert (found.false_accepts.value, found.right.value, found.right.n) == (0, 0, 4)
    found = await calibrated("perhaps", most=2)
    assert (found.specific, found.failures) == (None, 6)
    assert found.sentence == "memory_judge could not be calibrated. It gave no verdict on 6 more."
    assert len(found.errors) == 3


class Strict:
    """Accepts an answer that is the gold answer; remembers what it was shown."""

    name = "strict"
    fields = ("ok",)

    def __init__(self):
        self.seen = []

    def score(self, original, processed):
        self.seen.append((original["answer"], processed["response"]))
        return {"ok": float(original["answer"] == processed["response"]), "other": 1.0}


async def test_wrong_answers_are_wrong_of_the_same_type_and_the_same_every_time():
    first, second = Strict(), Strict()
    found = await calibrate_answers(first, EXAMPLES, seed=3)
    await calibrate_answers(second, EXAMPLES, seed=3)
    assert first.seen == second.seen
    assert (found.false_accepts.value, found.right.value) == (0, 1)
    kinds = {example["answer"]: example["qa_type"] for example in EXAMPLES}
    assert all(kinds[gold] == kinds[wrong] and gold != wrong for gold, wrong in first.seen[:6])
    assert not any(gold.lower() in said.lower() for gold, said in first.seen[6:12])


async def test_a_judge_without_the_score_it_promised_fails_and_does_not_pass():
    class Odd:
        name, fields = "odd", ("ok",)

        async def ascore(self, original, processed):
            if processed["response"] == original["answer"]:
                raise EvaluatorFailed("no")
            return {"other": 1.0}

    found = await calibrate_answers(Odd(), EXAMPLES[:2])
    assert (found.specific, found.right, found.failures) == (None, None, 6)


async def test_too_little_to_calibrate_on():
    with pytest.raises(BadInput):
        await calibrate_answers(Strict(), [{"question": "q"}, {"answer": "a"}])
    found = await calibrate_answers(Strict(), EXAMPLES[:1])
    assert found.specific is None  # nobody else's answer to give
    assert (found.vague.n, found.right.n) == (1, 1)


def test_vague_answers_name_the_subject():
    assert vague(EXAMPLES[0]) == "It had to do with ana live, as they said when it came up."
    assert "that" in vague({"question": "?"})
