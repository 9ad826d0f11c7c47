"""Run by test_setups_killed.py: runs with set-ups. Arguments: base URL, store, folder of the memory's files."""

from pathlib import Path

from forking import main

from context_bench.engine import Arm, RunSettings, execute, open_store
from context_bench.systems import OpenAIProxy

GROUPS, ITEMS, QUESTIONS, WORKERS = 8, 4, 2, 2


class Dear:
    """A cent for a token."""

    def cost(self, usage, model):
        return 0.01 * usage.input_tokens


class Notebook:
    """A memory on disk: asks the model about each item before it writes it down. A namespace used twice would hold too
    much.
    """

    stateful = True

    def __init__(self, proxy, folder, path=None):
        self.name, self.proxy, self.folder, self.path = "notebook", proxy, folder, path

    def fingerprint(self):
        return {"class": "Notebook"}

    def namespace(self, name):
        return Notebook(self.proxy, self.folder, self.folder / name)

    async def asetup(self, example):
        for item in range(ITEMS):
            await self.proxy.aprocess({"id": "", "context": f"<{example['group']} item {item}>", "question": "note"})
            with self.path.open("a") as file:
                file.write(f"{example['group']} {item}\n")
        return {"items": ITEMS, "acknowledged": ITEMS, "failed": 0}

    async def aprocess(self, example):
        held = self.path.read_text().split("\n")[:-1]
        asked = await self.proxy.aprocess({**example, "context": f"<{example['id']}> {held}"})
        return {**example, "response": asked["response"], "held": held}


class Whole:
    name = "whole"

    def score(self, original, processed):
        return {"whole": float(processed["held"] == [f"{original['group']} {item}" for item in range(ITEMS)])}


def examples():
    return [
        {"id": f"g{group}q{i}", "context": "c", "question": "which?", "group": f"g{group}"}
        for group in range(GROUPS)
        for i in range(QUESTIONS)
    ]


async def run(url, where, folder):
    proxy = OpenAIProxy(url, model="gpt-4o", name="proxy", max_retries=0, prices=Dear())
    with open_store(where) as store:
        done = await execute(
            store,
            name="killed",
            arms=[Arm(Notebook(proxy, Path(folder)))],
            examples=examples(),
            evaluators=[Whole()],
            manifest={"cells": [{"labels": {}, "systems": ["notebook"], "baseline": None, "controls": []}]},
            settings=RunSettings(max_workers=WORKERS),
        )
    return 0 if done.completed and not done.counts["failed"] else 1


if __name__ == "__main__":
    main(run)
