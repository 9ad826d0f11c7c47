"""Run by test_ledger.py. Arguments: base URL, store, number of examples, workers, and `stop` to end the run by its
deadline.
"""

from forking import main

from context_bench.engine import Arm, RunSettings, execute, open_store
from context_bench.evaluators import LLMJudge
from context_bench.llm.limits import AdaptiveLimiter
from context_bench.llm.prices import GenaiPrices
from context_bench.systems import OpenAIProxy

PRICES = {"m": {"input": 2.0, "output": 8.0}}


def examples(n):
    for i in range(n):
        yield {"id": i, "context": f"<{i}> some words", "question": "which?", "answer": "42"}


async def run(url, where, n, workers):
    limiter, prices = AdaptiveLimiter(int(workers)), GenaiPrices(PRICES)
    own = {"model": "m", "retry_base_delay": 0.001, "timeout": 5, "prices": prices, "limiter": limiter}
    with open_store(where) as store:
        done = await execute(
            store,
            name="ledger",
            arms=[Arm(OpenAIProxy(url, name="proxy", max_retries=6, stream=True, **own))],
            examples=examples(int(n)),
            evaluators=[LLMJudge(url, max_retries=6, **own)],
            manifest={},
            settings=RunSettings(max_workers=int(workers)),
        )
    return 0 if done.completed and not done.counts["failed"] else 1


if __name__ == "__main__":
    main(run)
