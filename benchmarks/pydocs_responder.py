"""What the bundled model answers to `bundled:pydocs-qa` with the whole context and with none:
`python benchmarks/pydocs_responder.py [N]`.

The order of the questions was fixed by these answers (whole context, seed 0); the closed-book column is the floor that
renaming promises. Needs the bundled model (`context-bench model fetch`). About 10 s per question on an idle core.
"""

from __future__ import annotations

import asyncio
import sys

from context_bench.datasets import load
from context_bench.evaluators import AnswerQuality
from context_bench.llm.embedded import Embedded
from context_bench.wire.apis import parse_request


async def main(n: int | None) -> None:
    model, judge = Embedded(), AnswerQuality()
    totals = {"full": [0.0, 0.0], "none": [0.0, 0.0]}
    examples = list(load("bundled:pydocs-qa", n=n).examples())
    for example in examples:
        line = [example["id"], example["answer"]]
        for arm, text in (("full", f"{example['context']}\n\n"), ("none", "")):
            body = {
                "model": model.model,
                "messages": [{"role": "user", "content": f"{text}Question: {example['question']}"}],
                "max_tokens": 24,
            }
            reply = await model.reply(parse_request("openai-chat", body), {})
            scores = judge.score(example, {**example, "response": reply.text or ""})
            totals[arm][0] += scores["f1"]
            totals[arm][1] += scores["contains"]
            line.append(f"{arm}: {reply.text!r}")
        print(" | ".join(line), flush=True)
    for arm, (f1, contains) in totals.items():
        print(f"{arm}: F1 {f1 / len(examples):.2f}, contains {contains / len(examples):.2f}, n {len(examples)}")
    await model.aclose()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
