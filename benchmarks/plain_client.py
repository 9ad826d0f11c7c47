"""The reference of `throughput.py`: the leanest aiohttp loop that asks the same, computes the same F1 and writes a row,
and no more.

python benchmarks/plain_client.py URL DATA.jsonl ROWS.jsonl CONCURRENCY
"""

from __future__ import annotations

import asyncio
import json
import re
import string
import sys
from pathlib import Path

import aiohttp


def words(text: str) -> list[str]:
    """The words that F1 counts."""
    return re.sub(r"\b(a|an|the)\b", " ", "".join(c for c in text.lower() if c not in string.punctuation)).split()


def f1(answer: str, gold: str) -> float:
    """Token F1."""
    a, b = words(answer), words(gold)
    left, same = list(b), 0
    for word in a:
        if word in left:
            left.remove(word)
            same += 1
    return 2 * same / (len(a) + len(b)) if same else 0.0


async def main(url: str, data: str, out: str, concurrency: int) -> None:
    """Ask for every line of `data`, `concurrency` at a time."""
    with Path(data).open(encoding="utf-8") as lines, Path(out).open("w", encoding="utf-8") as rows:  # noqa: ASYNC230 - a reference blocks
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def worker() -> None:
                for line in lines:
                    e = json.loads(line)
                    body = {
                        "model": "mock",
                        "messages": [{"role": "user", "content": e["context"] + "\n\nQuestion: " + e["question"]}],
                    }
                    async with session.post(url + "/v1/chat/completions", json=body) as reply:
                        text = (await reply.json())["choices"][0]["message"]["content"]
                    rows.write(json.dumps({"id": e["id"], "f1": f1(text, e["answer"]), "response": text}) + "\n")

            await asyncio.gather(*(worker() for _ in range(concurrency)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
