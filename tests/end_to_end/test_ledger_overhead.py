"""What is asked for a run and for none of its rows is in its books too: checks before it, probes that a model writes, a
judge on trial.
"""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from sqlalchemy import select

from context_bench.cli.app import run_line
from context_bench.core.records import Usage
from context_bench.engine import open_store, spent
from context_bench.engine.store import schema
from context_bench.engine.store.run_records import list_runs
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.wire.apis.shared import Reply

SESSION = "bundled:sessions/order-sync-zh"
PRICE = ["--price", "m=1,2"]


def booked(where, *accounts):
    """Attempts in the store, of these accounts if any are named, and dollars of all its runs."""
    with open_store(str(where)) as store, store.reading() as connection:
        found = connection.execute(select(schema.calls.c.account, schema.calls.c.status, schema.calls.c.cost)).all()
        assert sum(spent(store, run.id) for run in list_runs(store)) == pytest.approx(sum(call.cost for call in found))
    assert all(call.status == 200 and call.cost > 0 for call in found)
    return [call for call in found if not accounts or call.account in accounts]


async def ran(*words):
    return await asyncio.to_thread(run_line, [*words])


async def test_checks_of_systems_and_judges_are_in_the_books(tmp_path):
    lines = [json.dumps({"id": i, "context": "a", "question": f"{i}?", "answer": "word1"}) + "\n" for i in (1, 2)]
    (tmp_path / "two.jsonl").write_text("".join(lines))
    right = {"when": {"text": r"(?s)\b(Paris|word1)\b.*\b\1\b"}, "text": "5"}
    store, model, judge = (
        tmp_path / "s.db",
        ModelServer(Scripted({"default": "word1"})),
        ModelServer(Scripted({"rules": [right, {"text": "1"}]})),
    )
    async with model, judge:
        asked = [
            "--run",
            "one",
            "--dataset",
            f"{tmp_path}/two.jsonl",
            "--model",
            "m",
            "--store",
            f"{store}",
            "--quiet",
            *PRICE,
        ]
        line = [
            "run",
            "--proxy",
            model.url,
            "--judge-url",
            judge.url,
            "--judge-model",
            "m",
            *asked,
            "--out",
            f"{tmp_path}/r.json",
        ]
        assert await ran(*line, "--output", "json") == 0
        assert (model.seen, judge.seen) == (1 + 2, 3 + 2)
        assert (len(booked(store)), len(booked(store, "preflight"))) == (8, 4)
        assert await ran(*line, "--output", "json") == 0  # taken up: only looked at again
        assert (model.seen, judge.seen) == (2 + 2, 6 + 2)
        assert (len(booked(store)), len(booked(store, "preflight"))) == (12, 8)
        again = [
            "rescore",
            "one",
            "--judge-url",
            judge.url,
            "--judge-model",
            "m",
            *PRICE,
            "--store",
            f"{store}",
            "--out",
            f"{tmp_path}/r.txt",
        ]
        assert await ran(*again) == 0
        assert len(booked(store)) == model.seen + judge.seen


class Writing:
    """Writes one probe of each part that it is asked to write of, and answers it where the history it is shown still
    has the answer.
    """

    name = "writing"

    def __init__(self):
        self.calls, self.known = 0, []

    async def reply(self, request, headers):
        self.calls += 1
        text = "\n".join(part.text or "" for message in request.messages for part in message.parts)
        if "You write questions" not in text:
            return self.said(next((each for each in self.known if each in text), "I do not know."))
        number, quote = re.search(r"\[(\d+)\] user: (\S+(?: \S+)?)", text).groups()
        self.known.append(quote)
        evidence = [{"message": int(number), "quote": quote}]
        probe = {"type": "continuation", "question": "Where did it stand?", "answer": quote, "evidence": evidence}
        return self.said(json.dumps({"probes": [probe]}))

    def said(self, text):
        return Reply(text=text, finish_reason="stop", model="m", usage=Usage(10, 10))


async def test_probes_that_a_model_writes_are_paid_for_in_the_books(tmp_path):
    model = Writing()
    store = tmp_path / "s.db"
    async with ModelServer(model) as server:
        asked = [
            "--responder",
            server.url,
            "--model",
            "m",
            "--controls",
            "full,none",
            "--store",
            f"{store}",
            "--run",
            "one",
            "--quiet",
            *PRICE,
        ]
        more = [
            "--probes",
            "model",
            "--points",
            "fraction:0.8",
            "--eligibility",
            "1",
            "--output",
            "json",
            "--out",
            f"{tmp_path}/r.json",
        ]
        assert await ran("compress", "run", SESSION, *asked, *more) == 0
    assert len(booked(store)) == model.calls
    assert len(booked(store, "preflight")) >= 1


@pytest.mark.parametrize(
    ("more", "said"), [(["--max-cost", "1"], "--max-cost needs a price"), (["--dry-run"], "--probes structured")]
)
async def test_no_probe_is_written_where_money_cannot_be_counted_or_is_not_to_be_spent(tmp_path, capsys, more, said):
    model = Writing()
    async with ModelServer(model) as server:
        asked = [
            "--responder",
            server.url,
            "--model",
            "unpriced",
            "--controls",
            "full,none",
            "--store",
            f"{tmp_path}/s.db",
            "--quiet",
        ]
        assert await ran("compress", "run", SESSION, *asked, "--probes", "model", *more) == 2
    assert said in capsys.readouterr().err
    assert model.calls == 0


async def test_a_memory_judge_is_not_tried_out_where_its_money_cannot_be_counted(tmp_path, capsys):
    judge = ModelServer(Scripted({"default": "yes"}))
    async with judge:
        asked = [
            "--system",
            "bm25",
            "--dataset",
            "bundled:recall-lab:turns=40",
            "-n",
            "1",
            "--reader",
            "py:context_bench.testing.lab_reader:LabReader",
        ]
        judged = [
            "--judge-url",
            judge.url,
            "--judge-model",
            "unpriced",
            "--max-cost",
            "1",
            "--store",
            f"{tmp_path}/s.db",
            "--quiet",
        ]
        assert await ran("memory", *asked, *judged) == 2
    assert "--max-cost needs a price for" in capsys.readouterr().err
    assert judge.seen == 0
