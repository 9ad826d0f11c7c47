"""What the soak run's provider does: a seeded mix of the hostile provider's cases, and answers that follow from the
text alone.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from context_bench.core.keys import seed_of, stable_hash
from context_bench.testing import hostile_cases
from context_bench.testing.hostile import Asked, Hostile, Order
from context_bench.testing.hostile_cases import CASES, Act, HostileCase, Scene, Step

WORDS = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "heron")
_EXAMPLE = re.compile(r"soak-(\d+)-(\d+)")

#: Share of the attempts that meet a case of each kind; those that stop a whole account for long are rare, or nothing
#: else would happen.
KINDS: dict[str, tuple[float, tuple[str, ...]]] = {
    "refused, no wait": (0.02, ("429-date-past", "429-negative", "429-garbage", "429-bare")),
    "refused, seconds": (
        0.0015,
        (
            *("429-seconds", "429-date-ahead", "429-date-naive", "429-milliseconds", "429-reset-iso", "429-reset-unix"),
            *("429-reset-unix-ms", "429-anthropic", "429-in-a-reply", "429-in-a-stream"),
        ),
    ),
    "refused, a minute or days": (0.0001, ("429-three-days", "429-reset-duration")),
    "5xx": (0.03, ("500", "502", "503", "529", "error-in-a-reply")),
    "broken off": (
        0.03,
        (
            "reset-before-headers",
            "reset-mid-body",
            "reset-mid-stream",
            "close-before-headers",
            "close-mid-body",
            "close-mid-stream",
        ),
    ),
    "stalled": (0.003, ("stall-before-headers", "stall-mid-body", "stall-mid-stream")),
    "slow": (0.02, ("drip", "slow-stream")),
    "wrong length, no HTTP": (0.02, ("no-http", "length-too-long", "length-too-short")),
    "no answer": (
        0.004,
        (
            *(
                "html",
                "empty-body",
                "half-json",
                "json-list",
                "no-choices",
                "bytes",
                "error-unknown",
                "400",
                "redirect",
                "429-no-money",
            ),
            *("length", "filtered", "declined", "null", "blank"),
        ),
    ),
    "odd stream": (0.05, ("split-characters", "usage-last")),
}
KIND_OF = {case: kind for kind, (_, cases) in KINDS.items() for case in cases}


def _slowly(scene: Scene) -> Iterator[Step]:
    """A right stream, one piece at each tick."""
    for step in CASES["split-characters"].steps(scene):
        yield step
        yield Act.TICK


CASES.setdefault(
    "slow-stream", HostileCase("slow-stream", "a right stream, one byte at each tick", _slowly, stream=True)
)
assert hostile_cases.CASES is CASES


class Faults:
    """Which case a request gets: what is drawn from its text, its attempt and the seed; a right answer while `on` is
    false.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.on = seed, True
        self.seen: Counter[int] = Counter()  # requests by round, a judge's not counted

    def __call__(self, asked: Asked) -> str:
        if (found := place(asked)) is None:  # what is asked before a run is no part of it
            return "answer"
        self.seen[found[0]] += asked.model != "judge"
        if not self.on:
            return "answer"
        drawn = seed_of(stable_hash([asked.text, asked.attempt]), self.seed)
        at, which = drawn % 1_000_000 / 1_000_000, drawn // 1_000_000
        for share, cases in KINDS.values():
            if at < share:
                fitting = [name for name in cases if asked.stream or not CASES[name].stream]
                return fitting[which % len(fitting)] if fitting else "answer"
            at -= share
        return "answer"


class Pace:
    """The rate at which several providers together take requests while faults are on; none while they are off, or it is
    `free`.
    """

    def __init__(self, faults: Faults, each_second: float) -> None:
        self.faults, self.gap, self.next, self.free = faults, 1 / each_second, 0.0, False

    async def wait(self) -> None:
        """Wait for this request's turn."""
        if self.faults.on and not self.free:
            now = time.monotonic()
            self.next = max(now, self.next + self.gap)
            await asyncio.sleep(self.next - now)


class Paced(Hostile):
    """The hostile provider, which takes requests at a pace that it shares with others."""

    def __init__(self, pace: Pace, order: Order, **options: Any) -> None:
        super().__init__(order, **options)
        self.pace = pace

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Asked | None:
        asked = await super()._read(reader, writer)
        if asked is not None:
            await self.pace.wait()
        return asked


def example(round_: int, number: int, seed: int) -> dict[str, object]:
    """A question about one word in a context; where it stands follows from the seed, so that a proxy that cuts loses
    some.
    """
    drawn = seed_of(f"{round_} {number}", seed)
    word, at = WORDS[drawn % len(WORDS)], drawn // 8 % 40
    filler = [f"Shelf {drawn // 320 % 9973 + i} of the store was counted and found in order." for i in range(40)]
    filler[at] = f"The box of soak-{round_}-{number} holds {word}."
    question = f"What does the box of soak-{round_}-{number} hold?"
    return {"id": f"{round_}-{number}", "context": " ".join(filler), "question": question, "answer": word}


def answer(asked: Asked) -> str:
    """What the provider says: the word if the text holds it, with an error in every twentieth example; a judge's mark
    to a judge.
    """
    if asked.model == "judge":
        gold, response = (
            re.search(rf"\[{name} \w+\]\n(.*?)\n\[End", asked.text, re.DOTALL)
            for name in ("Reference answer", "Assistant's response")
        )
        return "5" if gold and response and gold[1].lower() in response[1].lower() else "1"
    found = re.search(r"box of soak-\d+-(\d+) holds (\w+)", asked.text)
    if found is None:
        return "That is not known here."
    return f"It holds {found[2] if int(found[1]) % 20 else 'nothing at all'}."


def place(asked: Asked) -> tuple[int, int] | None:
    """(round, number) of the example that a request is about."""
    found = _EXAMPLE.search(asked.text)
    return (int(found[1]), int(found[2])) if found else None


def injected(providers: Iterable[Hostile], since: int = 0) -> tuple[Counter[str], Counter[str]]:
    """How often each kind and each case was met."""
    cases = Counter(asked.case for provider in providers for asked in provider.log if asked.case != "answer")
    kinds: Counter[str] = Counter()
    for case, count in cases.items():
        kinds[KIND_OF[case]] += count
    return kinds, cases
