"""Run by test_engine_killed.py. Arguments: base URL, store, number of examples, workers, name of the run."""

from forking import main

from context_bench.engine import Arm, RunSettings, execute, open_store
from context_bench.systems import OpenAIProxy


class Right:
    name = "right"
    needs = ("answer",)

    def score(self, original, processed):
        return {"right": float(processed["response"] == original["answer"])}


def examples(n):
    for i in range(n):
        yield {
            "id": i,
            "context": f"<{i}> " + "some words to read " * 20,
            "question": "which?",
            "answer": f"answer {i}",
        }


async def run(url, where, n, workers, name="killed"):
    system = OpenAIProxy(url, model="gpt-4o", name="proxy", max_retries=0)
    with open_store(where) as store:
        done = await execute(
            store,
            name=name,
            arms=[Arm(system)],
            examples=examples(int(n)),
            evaluators=[Right()],
            manifest={},
            settings=RunSettings(max_workers=int(workers)),
        )
    return 0 if done.completed and not done.counts["failed"] else 1


if __name__ == "__main__":
    main(run)
