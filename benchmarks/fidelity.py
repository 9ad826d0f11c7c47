"""How fast `wire.fidelity` is: pairs of about 2 kB each, as a CI gate would check them. Target: 1,000 pairs in under 2
s on one idle core.

    python benchmarks/fidelity.py [--pairs 1000] [--size 2000]

Two kinds of text: what tools give back in an agent's session (dense in atoms) and prose. Half the lines or sentences
are dropped. Times are of the processor, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import random
import time

from context_bench.datasets import sessions
from context_bench.wire.conversation import message_text
from context_bench.wire.fidelity import fidelity, summarise

PROSE = (
    "The committee met on Tuesday to look at what the harbour needs and found that crane {} is worn out and "
    "costs {} EUR a year. "
)


def tool_output() -> str:
    messages = sessions.load_session(sessions.bundled()[0]).messages
    return "\n".join(message_text(message) for message in messages if message.get("role") == "tool")


def prose(draw: random.Random) -> str:
    return "\n".join(PROSE.format(draw.randrange(100), draw.randrange(10_000)) for _ in range(500))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--size", type=int, default=2000)
    options = parser.parse_args()
    draw = random.Random(1)
    for name, text in (("tool output", tool_output()), ("prose", prose(draw))):
        pairs = []
        for _ in range(options.pairs):
            start = draw.randrange(max(1, len(text) - options.size))
            original = text[start : start + options.size]
            pairs.append((original, "\n".join(line for line in original.splitlines() if draw.random() < 0.5)))
        fidelity(*pairs[0])
        begun = time.process_time()
        found = summarise(fidelity(*pair) for pair in pairs)
        seconds = time.process_time() - begun
        size = sum(len(original) for original, _ in pairs) / 1e6
        atoms = sum(tally.total for tally in found.kinds.values())
        print(
            f"{name}: {len(pairs):,} pairs, {size:.1f} MB, {atoms:,} atoms in {seconds:.2f} s = {size / seconds:.1f} "
            "MB/s"
        )


if __name__ == "__main__":
    main()
