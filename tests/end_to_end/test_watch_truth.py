"""What a watch says when something is amiss: no usage, broken streams, failures, repeats, uncounted parts, a proxy that
goes elsewhere.
"""

import asyncio
import contextlib
import json
import random
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from context_bench.__main__ import main
from context_bench.core.measures import dollars
from context_bench.core.records import Forwarded
from context_bench.core.tokens import counter_for
from context_bench.llm.prices import GenaiPrices
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.tap import Watch
from context_bench.testing.hostile import MisbehavingProxy
from context_bench.traffic.sections.watch_board import as_json, line, summary
from context_bench.wire.turns import by_context, by_session, total

from .test_watch import CHAT, KEY, Kept, behind, command, conversation, free_port, lines, send
from .test_watch_replies import serving

PRICES = GenaiPrices()
ABOUT = {"watch": "w"}
QUESTION = [{"role": "user", "content": "Where is the harbour office, and who has the key? " * 20}]


def told(kept: Kept) -> str:
    """The report as one line of text."""
    return " ".join(summary(kept, ABOUT).split())


async def some(watch: Watch, messages: list, **more: object) -> None:
    """A request whose reply may be anything, or nothing."""
    with contextlib.suppress(aiohttp.ClientError):
        await send(watch.url, messages, **more)


async def listed(watch: Watch) -> None:
    """A request that is no prompt."""
    async with aiohttp.ClientSession() as session, session.get(watch.url + "/v1/models") as reply:
        assert reply.status == 200


# Money of calls that told no usage


async def test_calls_without_usage_are_counted_and_their_price_is_predicted():
    rules = {"rules": [{"when": {"stream": True}, "text": "By the pier.", "usage": False}], "default": "fine"}
    async with behind("nothing", rules) as (watch, _, kept):
        await send(watch.url, QUESTION, stream=True)
        await send(watch.url, [{"role": "user", "content": "thanks"}], model="gpt-4o-mini")
    first, second = kept
    answer = counter_for("gpt-4o").count("By the pier.")
    assert first.cost is None
    assert first.guessed == pytest.approx((first.forwarded * 2.5 + answer * 10) / 1e6)
    assert (second.guessed, second.unpriced) == (None, 0)
    figures = total(kept).as_dict()
    assert (figures["answered"], figures["calls_without_usage"]) == (2, 1)
    assert figures["cost"] == second.cost
    assert figures["cost_predicted"] == first.guessed
    assert f"1 of 2 calls told no usage: ≈ {dollars(first.guessed)} is predicted" in told(kept)
    assert f"≈{first.guessed + second.cost:.4f}" in told(kept)
    assert f"≈ ${first.guessed:.4f}" in line(first)


async def test_a_session_without_usage_is_predicted_from_its_cache():
    async with behind("nothing", {"rules": [{"text": "fine", "usage": False}]}) as (watch, _, kept):
        for messages in conversation(3, "tides"):
            await send(watch.url, messages)
    figures = total(kept)
    assert figures.untold == figures.answered == 3
    assert figures.predicted_read > 0
    assert figures.guessed == pytest.approx(figures.predicted_cost + 3 * counter_for("gpt-4o").count("fine") * 10 / 1e6)


async def test_neither_usage_nor_a_price():
    async with behind("nothing", {"rules": [{"text": "fine", "usage": False}]}) as (watch, _, kept):
        await send(watch.url, QUESTION, model="nobody-knows-this-one")
    assert "1 of 1 call told no usage and is not in the money" in told(kept)
    assert "1 call of a model without a known price is not in the money" in told(kept)
    assert "cost_predicted" not in total(kept).as_dict()


# Failures


async def test_failures_of_every_kind_are_counted_by_kind():
    rules = [
        {"when": {"text": "one"}, "status": 404, "error": "no such model"},
        {"when": {"text": "two"}, "text": "half of it", "disconnect": "mid-stream"},
        {"when": {"text": "three"}, "text": "half of it", "stream_error": "overloaded"},
        {"when": {"text": "four"}, "text": "half of it", "disconnect": "mid-body"},
        {"when": {"text": "five"}, "status": 200, "error": "not today"},
        {"when": {"text": "six"}, "disconnect": "before-headers"},
    ]
    async with behind("nothing", {"rules": rules, "default": "fine"}) as (watch, _, kept):
        for word, stream in (
            ("one", False),
            ("two", True),
            ("three", True),
            ("four", False),
            ("five", False),
            ("six", False),
        ):
            await some(watch, [{"role": "user", "content": word}], stream=stream)
        await send(watch.url, QUESTION, stream=True)
    expected = ["404", "broken off", "error in the stream", "broken off", "error in the reply", "502", None]
    assert [turn.failure for turn in kept] == expected
    figures = total(kept)
    assert figures.failed == 6
    assert figures.as_dict()["failures"]["404"] == 1
    assert "6 failed (" in told(kept)
    assert "1 × 404" in told(kept)
    assert "2 × broken off" in told(kept)
    assert "200 error in the stream" in line(kept[2])
    assert json.loads(as_json(kept, ABOUT))["arms"]["main"]["total"]["failures"] == dict(
        sorted(figures.failures.items())
    )


async def test_a_client_that_leaves_is_told_from_a_provider_that_breaks_off():
    async with behind("nothing", {"rules": [{"text": "word " * 200, "chunk_delay": 0.02, "pieces": 100}]}) as (
        watch,
        _,
        kept,
    ):
        body = {"model": "gpt-4o", "messages": QUESTION, "stream": True}
        async with aiohttp.ClientSession() as session, session.post(watch.url + CHAT, json=body, headers=KEY) as reply:
            await reply.content.readany()
            reply.close()
        await asyncio.sleep(0.1)
    assert total(kept).failures == {"client left": 1}


async def test_a_turn_whose_client_left_costs_as_much_with_and_without_a_proxy_that_changes_nothing():
    """The client leaves before there is an answer; the proxy and the provider finish the call all the same."""
    kept, back, asked, left = Kept(), free_port(), asyncio.Event(), asyncio.Event()

    async def proxy(request: web.BaseRequest) -> web.Response:
        body = await request.read()
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{back}{request.path}", data=body) as reply,
        ):
            return web.Response(body=await reply.read(), content_type="application/json")

    async def provider(request: web.BaseRequest) -> web.StreamResponse:
        body = json.loads(await request.read())
        asked.set()
        usage = {"prompt_tokens": 700, "completion_tokens": 1, "total_tokens": 701}
        message = {"message": {"role": "assistant", "content": "fine"}, "index": 0, "finish_reason": "stop"}
        answer = {"object": "chat.completion", "model": body["model"], "choices": [message], "usage": usage}
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)  # the head comes at once, the answer once the client has left
        if "leave" in str(body):
            await left.wait()
        await response.write(json.dumps(answer).encode())
        return response

    def gone(record: Forwarded) -> None:
        if record.status is None:
            left.set()

    async with (
        serving(provider) as upstream,
        serving(proxy) as via,
        Watch(upstream, via=via, back=back, prices=PRICES, keep=kept.keep, sink=gone) as watch,
    ):
        await send(watch.url, QUESTION)
        asked.clear()
        leaving = asyncio.create_task(send(watch.url, [{"role": "user", "content": "I shall leave. " * 200}]))
        await asked.wait()
        leaving.cancel()
        await asyncio.wait([leaving])
        await watch.drain()
    whole, [_, turn] = total(kept), sorted(kept, key=lambda one: one.number)
    assert turn.failure == "client left"
    assert whole.prompt_cost_ratio == pytest.approx(1.0)
    assert turn.alone_cost == turn.predicted_cost > 0
    assert turn.bill_alone == turn.bill_through > 0
    assert (turn.added, turn.added_ttft, turn.added_pause) == (None, None, None)
    assert "prompts ×1.00 of as sent" in told(kept)


# Repeats


async def test_a_repeat_in_another_order_of_keys_is_one_turn_and_its_status_is_told():
    rng = random.Random(1)

    def shuffled(value: object) -> object:
        if isinstance(value, dict):
            return dict(rng.sample([(key, shuffled(item)) for key, item in value.items()], len(value)))
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    metadata = {f"x-codex-{i}": str(i) for i in range(8)}
    body = {"model": "gpt-5", "input": "look around", "client_metadata": metadata, "stream": False}
    rules = {"rules": [{"times": 5, "status": 404, "error": "no"}], "default": "fine"}
    async with behind("nothing", rules) as (watch, _, kept), aiohttp.ClientSession() as session:
        for attempt in range(6):
            body["stream"], metadata["x-codex-ws-stream-request-start-ms"] = attempt % 2 == 0, str(attempt)
            async with session.post(
                watch.url + "/v1/responses", json=shuffled(body), headers={**KEY, "session-id": "one"}
            ) as reply:
                await reply.read()
    figures = total(kept)
    assert (figures.turns, figures.repeats, figures.failed) == (1, 5, 5)
    assert figures.repeated_after == {"404": 5}
    assert "5 repeated by the client (after 5 × 404)" in told(kept)
    assert "5 failed (5 × 404)" in told(kept)
    assert line(kept[1]).split(" · ")[0].endswith("turn 1 again (after 404)")


# What is not counted, and how much is shown


async def test_images_and_documents_are_parts_not_counted():
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 1000}}
    paper = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "B" * 1000}}
    messages = [{"role": "user", "content": [picture, paper, {"type": "text", "text": "what is this?"}]}]
    async with behind("nothing") as (watch, _, kept):
        await send(watch.url, messages, path="/v1/messages", model="claude-sonnet-4-5", max_tokens=9)
    assert total(kept).uncounted == 2
    assert "2 parts not counted" in told(kept)


async def test_one_shot_requests_fold_into_one_line_and_empty_rows_are_left_out():
    async with behind("nothing") as (watch, _, kept):
        for number in range(20):
            await send(watch.url, [{"role": "user", "content": f"question {number}"}])
        for messages in conversation(2, "tides"):
            await send(watch.url, messages)
        await listed(watch)
    text = summary(kept, ABOUT)
    assert len(text.splitlines()) < 15
    assert "20 one-shots" in text
    assert "no session" not in text
    assert "1 other request" in text
    [row] = [each for each in text.splitlines() if each.startswith("20 one-shots")]
    assert row.split()[2] == "20"
    assert len(json.loads(as_json(kept, ABOUT))["arms"]["main"]["sessions"]) == 22


async def test_only_requests_that_are_no_prompts():
    async with behind("nothing") as (watch, _, kept):
        await listed(watch)
    assert summary(kept, ABOUT).splitlines()[1:] == ["1 other request (no prompts)"]


async def test_forecasts_say_that_they_are_those_of_a_cold_cache():
    async with behind("nothing") as (watch, _, kept):
        for messages in conversation(2, "tides"):
            await send(watch.url, messages)
    assert "cold cache by the rules: read" in told(kept)
    assert total(kept).as_dict()["predicted"]["cold_cache"] is True


# Contexts within a session

SESSION = {"x-claude-code-session-id": "5e55"}
TOOLS = [{"name": "Bash", "input_schema": {"type": "object"}}, {"name": "Task", "input_schema": {"type": "object"}}]


def claude(
    *texts: str,
    system: str = "You are an agent.",
    model: str = "claude-sonnet-4-5",
    tools: object = TOOLS,
    most: int = 32000,
) -> dict:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {
        "model": model,
        "max_tokens": most,
        "system": system,
        "messages": messages,
        **({"tools": tools} if tools else {}),
    }


async def test_sub_agents_titles_and_probes_are_contexts_of_their_own():
    small = "claude-haiku-4-5"
    steps = [
        ({}, claude("quota", system="", model=small, tools=None, most=1)),
        ({}, claude("AGENTLY", system="Generate a title for this. Reply in JSON.", model=small, tools=None)),
        ({}, claude("AGENTLY")),
        ({"x-claude-code-agent-id": "agent-a"}, claude("SUBWORK", system="You are a sub-agent.")),
        ({"x-claude-code-agent-id": "agent-b"}, claude("SUBWORK too", system="You are a sub-agent.")),
        ({"x-claude-code-agent-id": "agent-a"}, claude("SUBWORK", "I look.", "a.py", system="You are a sub-agent.")),
        ({}, claude("AGENTLY", "I send one.", "it says: done")),
        ({}, claude("Is `ls` safe?", system="Judge the command.", model=small, tools=None)),
    ]
    async with behind("nothing") as (watch, _, kept), aiohttp.ClientSession() as session:
        for headers, body in steps:
            async with session.post(
                watch.url + "/v1/messages", json=body, headers={**KEY, **SESSION, **headers}
            ) as reply:
                assert reply.status == 200
    names = {name: figures.turns for name, figures in by_context(kept).items()}
    assert names == {"quota probe": 1, "title": 1, "main": 2, "sub-agent 1": 2, "sub-agent 2": 1, "without tools": 1}
    assert len(by_session(kept)) == 1
    rows = [each.split()[:3] for each in summary(kept, ABOUT).splitlines()]
    assert ["sub-agent", "1", "2"] in rows
    assert ["main", "2"] in [row[:2] for row in rows]
    [told_session] = json.loads(as_json(kept, ABOUT))["arms"]["main"]["sessions"].values()
    assert sum(part["calls"] for part in told_session["contexts"].values()) == told_session["calls"] == 8
    assert sum(part["sent"] for part in told_session["contexts"].values()) == told_session["sent"]
    assert "turn 4 (sub-agent 1)" in line(kept[3])


async def test_a_session_with_one_context_has_no_lines_for_it():
    async with behind("nothing") as (watch, _, kept):
        for messages in conversation(2, "tides"):
            await send(watch.url, [{"role": "system", "content": "You write titles."}, *messages])
    text = summary(kept, ABOUT)
    assert "title" not in text
    assert "contexts" not in as_json(kept, ABOUT)


# A proxy whose upstream is not the back tap


async def test_a_watch_that_sees_nothing_says_what_to_set(tmp_path: Path):
    front, back = free_port(), free_port()
    async with ModelServer(Scripted({"default": "fine"})) as server, MisbehavingProxy("nothing", server.url) as proxy:
        options = ["--front", str(front), "--back", str(back), "--via", proxy.url, "--upstream", server.url]
        watch = await command(tmp_path, *options)
        await lines(watch, 2)
        for _ in range(2):
            await send(f"http://127.0.0.1:{front}", QUESTION)
        shown = [*await lines(watch, 2)]
        watch.terminate()
        out, rest = await watch.communicate()
    advice = f"nothing reached the back tap: set the proxy's upstream to http://127.0.0.1:{back}"
    error = "".join(shown) + rest.decode()
    assert error.count(advice) == 1
    assert advice in error.splitlines()[1]
    assert advice in " ".join(out.decode().split())
    report = tmp_path / "report.txt"
    again = ["watch", "--store", str(tmp_path / "store.db"), "--show", "last", "--out", str(report)]
    assert await asyncio.to_thread(main, again) == 0
    assert advice in " ".join(report.read_text().split())


async def test_a_watch_that_sees_some_says_how_many_it_did_not():
    kept, back = Kept(), free_port()
    async with (
        ModelServer(Scripted({"default": "fine"})) as server,
        MisbehavingProxy("nothing", f"http://127.0.0.1:{back}") as proxy,
        Watch(server.url, via=proxy.url, back=back, prices=PRICES, keep=kept.keep) as watch,
    ):
        await send(watch.url, QUESTION)
    kept.append(kept[0].__class__(2, "turn", 0.0, kept[0].session, 2, status=200, front=kept[0].front))
    assert "Mind: 1 of 2 turns were answered without a call that reached the back tap." in told(kept)
    assert "Mind" not in told(Kept(kept[:1]))
