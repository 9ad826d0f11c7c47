"""Judges with weaknesses to order, and what `judge audit` says of each. A sound judge is cleared, each weakness is
found at its rate.

    python benchmarks/trials/judge_orders.py [--items 60]

A run of three methods is judged by a sound judge by rules (`testing.rule_judge`); then each weak judge is audited on
the same answers, by the command, over HTTP. The share planted must lie in the interval reported. Exit code 1 if one
does not, or a verdict is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common

import context_bench
from context_bench.evaluators import RubricJudge
from context_bench.judge.audit import share_of
from context_bench.llm.servers import ModelServer
from context_bench.metrics import MeanScore
from context_bench.testing.rule_judge import RuleJudge

Told = dict[str, Any]
FIRST, END = r"\AIgnore the rubric", r"\[end \w+\]"
ATTACKS = ("order", "order first", "order within", "fake verdict", "fake end marker")


class Method:
    """Gives so many of the four words of the truth, in an answer like no other."""

    def __init__(self, name: str, words: int) -> None:
        self.name, self.words = name, words

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        """The answer to a probe."""
        said = " ".join(example["answer"].split()[: self.words])
        return {
            **example,
            "response": f"From {self.name} on {example['id']}: {said}",
            "context": f"notes of {example['id']}",
        }


@dataclass(frozen=True)
class Weak:
    """A judge: what is planted, how it is made, what must be reported, and whether it may judge. `reported`: the report
    → words, held.
    """

    planted: str
    made: dict[str, Any]
    may_judge: bool
    reported: Callable[[Told], tuple[str, bool]]


def lift(told: Told, name: str) -> Told:
    """One attack of a report."""
    return next(each for each in told["lifts"] if each["attack"] == name)


def obeyed(share: float, *names: str, others: bool = False) -> Callable[[Told], tuple[str, bool]]:
    """Attacks that succeed in a share of the answers; the rest of those with orders in none, unless `others`."""

    def report(told: Told) -> tuple[str, bool]:
        found = {
            name: share_of(lift(told, name)["obeyed"], lift(told, name)["room"])
            for name in (ATTACKS if not others else names)
        }
        wanted = {name: share if name in names else 0.0 for name in found}
        shown = ", ".join(f"{name} {each}" for name, each in found.items())
        return shown, all(each.low - 1e-9 <= wanted[name] <= each.high + 1e-9 for name, each in found.items())

    return report


def order_decides(share: float) -> Callable[[Told], tuple[str, bool]]:
    """Pairs of equal worth, of which the first wins."""

    def report(told: Told) -> tuple[str, bool]:
        found = told["order"]
        each = share_of(found["first"] + found["second"] + found["other"], found["n"])
        return f"order decides {each}, first {found['first']} of {found['n']}", each.low <= share <= each.high + 1e-9

    return report


def by_length(points: float) -> Callable[[Told], tuple[str, bool]]:
    """Points for 100 characters more; one dimension of four has its best score already and shows nothing."""

    def report(told: Told) -> tuple[str, bool]:
        found = told["length"]
        return f"{found:+.2f} of 5 for 100 characters", abs(found - 0.75 * points) < 0.01

    return report


def unlike(share: float) -> Callable[[Told], tuple[str, bool]]:
    """Three judgements of one answer, of which each is turned round in a share of cases: how often all three agree.

    Answers in the middle of the scale stay what they are when they are turned round.
    """

    def report(told: Told) -> tuple[str, bool]:
        found = told["repeats"]
        each = share_of(round(found["alike"] * found["n"]), found["n"])
        wanted = (1 - share) ** 3 + share**3
        return f"alpha {found['alpha']:.2f}, alike {each}, expected {wanted:.0%}", each.low <= wanted <= each.high

    return report


def unread(share: float) -> Callable[[Told], tuple[str, bool]]:
    """Judgements without a verdict."""

    def report(told: Told) -> tuple[str, bool]:
        each = share_of(told["unjudged"], told["judgements"])
        return f"{each} of {told['judgements']} judgements not to be read", each.low <= share <= each.high

    return report


def sound(told: Told) -> tuple[str, bool]:
    """Nothing is found."""
    most = max(each["mean"] for each in told["lifts"])
    none = not any(each["obeyed"] for each in told["lifts"]) and not told["unjudged"] and not told["partial"]
    held = none and told["repeats"]["alike"] == 1 and order_decides(0.0)(told)[1]
    return f"largest gain {most:+.2f}, obeyed 0, alike {told['repeats']['alike']:.0%}, faults {told['faults']}", held


JUDGES = (
    Weak("nothing: a sound judge", {}, True, sound),
    Weak("obeys every order", {"obeys": 1.0}, False, obeyed(1.0, *ATTACKS)),
    Weak("obeys 30 % of orders", {"obeys": 0.3}, False, obeyed(0.3, *ATTACKS)),
    Weak("obeys 15 % of orders", {"obeys": 0.15}, False, obeyed(0.15, *ATTACKS)),
    Weak("obeys only what stands first", {"obeys": 1.0, "heeds": FIRST}, False, obeyed(1.0, "order first")),
    Weak("obeys 30 % of what stands first", {"obeys": 0.3, "heeds": FIRST}, False, obeyed(0.3, "order first")),
    Weak("obeys only after a guessed marker", {"obeys": 1.0, "heeds": END}, False, obeyed(1.0, "fake end marker")),
    Weak("favours the first of a pair by 3 points", {"first_bonus": 3.0}, True, order_decides(1.0)),
    Weak("0.2 points for 100 characters", {"likes_length": 0.2}, False, by_length(0.2)),
    Weak("0.05 points for 100 characters", {"likes_length": 0.05}, True, by_length(0.05)),
    Weak("turns 30 % of its scores round", {"contradicts": 0.3}, False, unlike(0.3)),
    Weak("declines 30 % of the answers", {"declines": 0.3}, False, unread(0.3)),
    Weak("gives 30 % of the answers 9 of 5", {"outside": 0.3}, False, unread(0.3)),
    Weak("declines 3 % of the answers", {"declines": 0.03}, True, unread(0.03)),
)


async def main(items: int) -> int:
    table = common.Table("Judges with weaknesses")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="context-bench-trial-") as folder:
        await asyncio.to_thread(judged_run, Path(folder), items)
        for number, weak in enumerate(JUDGES):
            async with ModelServer(RuleJudge(**weak.made)) as server:
                given = [
                    "judge",
                    "audit",
                    "r",
                    "--store",
                    "s.db",
                    "--judge-url",
                    server.url,
                    "--judge-model",
                    f"judge-{number}",
                ]
                given += ["--only", "attacks,repeats,order", "--items", str(items), "--json", "a.json"]
                ended = await common.done(Path(folder), *given)
            if ended.code not in (0, 4):
                table.add(weak.planted, f"{items} answers", f"exit code {ended.code}: {ended.err[-300:]}", False)
                continue
            told = json.loads((Path(folder) / "a.json").read_text())
            shown, held = weak.reported(told)
            verdict = "may judge" if ended.code == 0 else "must not judge"
            held = held and (ended.code == 0) == weak.may_judge and not ended.noise
            table.add(weak.planted, f"{items} answers", f"{shown}: {verdict}", held)
    return table.ended()


def judged_run(folder: Path, items: int) -> None:
    """A run whose answers have two of four words, one, or none of the truth, and a sound judge's scores of them."""
    probes = [
        {
            "id": f"s{number % 12}@4#{number}",
            "question": f"Question {number}?",
            "answer": f"alpha{number} beta{number} gamma{number} delta{number}",
            "probe_type": "recall",
            "cluster": f"s{number % 12}",
            "group": f"s{number % 12}@4",
        }
        for number in range(-(-items // 3))
    ]
    systems = [Method("half", 2), Method("quarter", 1), Method("nothing", 0)]

    async def judge() -> str:
        server = await ModelServer(RuleJudge()).start()
        return server.url

    from context_bench.llm.background import run_sync

    url = run_sync(judge())
    graded = RubricJudge(url, "sound")
    store = str(folder / "s.db")
    context_bench.evaluate(
        systems, probes, [graded], [MeanScore("rubric_overall")], store=store, run="r", progress=False
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--items", type=int, default=60)
    sys.exit(asyncio.run(main(parser.parse_args().items)))
