"""Compaction at the provider, against a loopback server that speaks its wires: shapes, sizes, what goes on from an
opaque result.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from context_bench.compression.compressors import compressor_for
from context_bench.compression.probes import Probe, ProbeAtom, example_of, packed
from context_bench.compression.systems.compressing import Compressing
from context_bench.compression.systems.sentence import SentenceReader
from context_bench.core.errors import BadInput, BadReply, Refused, SetupFailed
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.protocols import Compressed
from context_bench.wire.conversation import call_of, message_text

PREFIX: list[dict[str, Any]] = [
    {"role": "user", "content": "The gauge shows 4.2 m."},
    {"role": "assistant", "content": None, "tool_calls": [call_of("c1", "read_file", {"path": "a.py"})]},
    {"role": "tool", "tool_call_id": "c1", "content": "value = 42 " * 20},
    {"role": "assistant", "content": None, "tool_calls": [call_of("c2", "read_file", {"path": "b.py"})]},
    {"role": "tool", "tool_call_id": "c2", "content": "value = 43"},
]
TAIL: list[dict[str, Any]] = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Yes."}]


def words(value: Any) -> int:
    return len(json.dumps(value).split())


@dataclass
class Provider:
    """Both providers' compaction in small: OpenAI's encrypted items, Anthropic's edits."""

    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    broken: str = ""

    async def openai_compact(self, request: web.Request) -> web.Response:
        body = await self._kept(request)
        if self.broken == "no item":
            return web.json_response({"object": "response.compaction", "output": body["input"][:1], "usage": {}})
        sealed = self._sealed(self._opened(body["input"]))
        users = [item for item in body["input"] if item.get("role") == "user"]
        usage = {"input_tokens": words(body), "output_tokens": 17, "total_tokens": words(body) + 17}
        return web.json_response(
            {"id": "resp_1", "object": "response.compaction", "output": [*users, sealed], "usage": usage}
        )

    async def openai_answer(self, request: web.Request) -> web.Response:
        body = await self._kept(request)
        known, output = self._opened(body["input"]), []
        for each in body.get("context_management", []):
            assert each["type"] == "compaction"
            if words(known) >= each["compact_threshold"]:
                output.append(self._sealed(known))
        said = "It shows 4.2 m." if "4.2 m" in json.dumps(known) else "I do not know."
        output.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]})
        return web.json_response(
            {"id": "resp_2", "output": output, "status": "completed", "usage": {"input_tokens": 9, "output_tokens": 4}}
        )

    async def openai_count(self, request: web.Request) -> web.Response:
        await self._kept(request)
        return web.json_response({"object": "response.input_tokens", "input_tokens": 23})

    async def anthropic_answer(self, request: web.Request) -> web.Response:
        body = await self._kept(request)
        shown, cleared = self._edited(body)
        edit = body["context_management"]["edits"][0]
        if edit["type"] == "compact_20260112" and words(body["messages"]) >= 1 and self.broken != "below":
            block = {"type": "compaction", "content": None if self.broken == "empty" else "The gauge shows 4.2 m."}
            step = {"input_tokens": 900, "output_tokens": 60}
            steps = [{"type": "compaction", **step}, {"type": "message", **step}]
            usage = {"input_tokens": 1, "output_tokens": 1, "iterations": steps}
            return web.json_response(
                {"type": "message", "content": [block], "stop_reason": "compaction", "usage": usage}
            )
        said = "It was 42." if "value = 42" in json.dumps(shown) else "It was cleared."
        applied = [{"type": edit["type"], "cleared_tool_uses": cleared, "cleared_input_tokens": 1}] if cleared else []
        return web.json_response({
            "content": [{"type": "text", "text": said}], "stop_reason": "end_turn", "type": "message", "role": "assistant",  # noqa: E501
            "usage": {"input_tokens": 5, "output_tokens": 3}, "context_management": {"applied_edits": applied},
        })  # fmt: skip

    async def anthropic_count(self, request: web.Request) -> web.Response:
        body = await self._kept(request)
        shown, _ = self._edited(body)
        return web.json_response({
            "input_tokens": words(shown), "context_management": {"original_input_tokens": words(body["messages"])},
        })  # fmt: skip

    async def _kept(self, request: web.Request) -> Any:
        body = await request.json()
        self.requests.append((request.path, {name.lower(): value for name, value in request.headers.items()}, body))
        if self.broken == "no key":
            raise web.HTTPUnauthorized(text='{"error": {"message": "bad key sk-test-123456789"}}')
        return body

    @staticmethod
    def _sealed(items: Any) -> dict[str, Any]:
        return {
            "id": "cmp_1",
            "type": "compaction",
            "encrypted_content": base64.b64encode(json.dumps(items).encode()).decode(),
        }

    @staticmethod
    def _opened(items: list[Any]) -> list[Any]:
        sealed = [item for item in items if item.get("type") == "compaction"]
        inner = [each for item in sealed for each in json.loads(base64.b64decode(item["encrypted_content"]))]
        return [*inner, *(item for item in items if item.get("type") != "compaction")]

    @staticmethod
    def _edited(body: Any) -> tuple[Any, int]:
        """What the model is shown once old results are cleared, and how many were."""
        edit = body["context_management"]["edits"][0]
        shown = json.loads(json.dumps(body["messages"]))
        results = [block for message in shown for block in message["content"] if block.get("type") == "tool_result"]
        old = (
            results[: -edit["keep"]["value"]]
            if edit["type"] == "clear_tool_uses_20250919" and edit["keep"]["value"]
            else []
        )
        for block in old:
            block["content"] = "[cleared]"
        return shown, len(old)


@asynccontextmanager
async def provider(broken: str = "") -> AsyncIterator[tuple[Provider, str]]:
    state, app = Provider(broken=broken), web.Application()
    app.router.add_post("/v1/responses/compact", state.openai_compact)
    app.router.add_post("/v1/responses/input_tokens", state.openai_count)
    app.router.add_post("/v1/responses", state.openai_answer)
    app.router.add_post("/v1/messages/count_tokens", state.anthropic_count)
    app.router.add_post("/v1/messages", state.anthropic_answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield state, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def probe(points: list[int], question: str, atom: str) -> dict[str, Any]:
    session = packed([{"role": "system", "content": "Be short."}, *PREFIX, *TAIL, {"role": "user", "content": "More."}])
    made = Probe("p", "recall", question, atom, (ProbeAtom(atom),))
    return example_of(made, session=session, group="g", cluster="c", points=points)


async def test_openai_items_are_opaque_and_the_answer_goes_on_from_them() -> None:
    async with provider() as (state, url):
        compressor: Any = compressor_for("openai_compact", url=url, model="gpt-x", key="sk-test-123456789")
        arm = Compressing(compressor, SentenceReader())
        ledger = Ledger(account="system")
        with open_ledger(ledger):
            answered = await arm.aprocess(probe([6], "What does the gauge show?", "4.2 m"))
        assert answered["response"] == "It shows 4.2 m."
        assert answered["compressed"] == {
            "tokens_before": answered["compressed"]["tokens_before"],
            "tokens_after": 17,
            "opaque": True,
        }
        assert answered["context"] == "[opaque, 17 tokens]"
        (path, headers, body), (asked_at, _, asked) = state.requests
        assert path == "/v1/responses/compact"
        assert body.keys() == {"model", "input"}
        assert headers["authorization"] == "Bearer sk-test-123456789"
        assert [item["type"] for item in body["input"]] == [
            "message", "function_call", "function_call_output", "function_call", "function_call_output",
        ]  # fmt: skip
        assert asked_at == "/v1/responses"
        assert asked["instructions"] == "Be short."
        assert any(item.get("type") == "compaction" for item in asked["input"])
        assert [call.account for call in ledger.calls] == ["compressor", "reader"]
        assert ledger.calls[0].usage is not None
        assert ledger.calls[0].usage.output_tokens == 17
        assert "sk-test" not in str(ledger.calls) + str(arm.fingerprint())
        # A second cycle sends the items and what came since, and nothing else.
        again = await arm.aprocess({**probe([6, 8], "What does the gauge show?", "4.2 m"), "group": "h"})
        assert again["response"] == "It shows 4.2 m."
        second = [body for path, _, body in state.requests if path.endswith("compact")][-1]
        assert sum(item.get("type") == "compaction" for item in second["input"]) == 1
        assert not any(item.get("type") == "function_call" for item in second["input"])
        await arm.aclose()


async def test_openai_threshold() -> None:
    async with provider() as (state, url):
        compressor: Any = compressor_for("openai_compact:threshold=20", url=url, model="gpt-x")
        made, held = await compressor.compress(PREFIX, TAIL)
        assert made.tokens_after == 23
        assert [item["type"] for item in made.opaque["items"]] == ["compaction"]
        assert held == made.opaque
        sent = state.requests[0][2]
        assert sent["context_management"] == [{"type": "compaction", "compact_threshold": 20}]
        assert sent["store"] is False
        with pytest.raises(BadReply, match="below the threshold of 9999"):
            await compressor_for("openai_compact:threshold=9999", url=url, model="gpt-x").compress(
                PREFIX, TAIL, state=None, budget=None
            )  # type: ignore[misc]
        await compressor.aclose()


async def test_anthropic_clearing_is_sized_by_the_provider_and_done_in_each_request() -> None:
    async with provider() as (state, url):
        compressor: Any = compressor_for(
            "anthropic_clear:keep=1,clear_at_least=100", url=url, model="claude-x", key="sk-test-123456789"
        )
        arm = Compressing(compressor, SentenceReader())
        answered = await arm.aprocess(probe([6], "What was the value?", "42"))
        assert answered["response"] == "It was cleared."
        assert answered["compressed"]["opaque"]
        (path, headers, body), (_, _, asked) = state.requests
        assert path == "/v1/messages/count_tokens"
        assert headers["anthropic-beta"] == "context-management-2025-06-27"
        assert headers["x-api-key"] == "sk-test-123456789"
        assert body["context_management"]["edits"] == [
            {
                "type": "clear_tool_uses_20250919",
                "trigger": {"type": "input_tokens", "value": 1000},
                "keep": {"type": "tool_uses", "value": 1},
                "clear_at_least": {"type": "input_tokens", "value": 100},
            }
        ]
        assert "max_tokens" not in body
        assert asked["context_management"] == body["context_management"]
        assert asked["messages"][: len(body["messages"]) - 1] == body["messages"][:-1]
        everything: Any = compressor_for("anthropic_clear:keep=9", url=url, model="claude-x")
        made, _ = await everything.compress(PREFIX, TAIL)
        assert "nothing was cleared" in made.warnings[0]
        await arm.aclose()
        await everything.aclose()


async def test_anthropic_compaction_can_be_read_by_anybody() -> None:
    async with provider() as (state, url):
        compressor: Any = compressor_for("anthropic_compact", url=url, model="claude-x")
        ledger = Ledger(account="compressor")
        with open_ledger(ledger):
            made, _ = await compressor.compress(PREFIX, TAIL)
        assert made.opaque is None
        assert message_text(made.messages[0]) == "The gauge shows 4.2 m."
        _, headers, body = state.requests[0]
        assert headers["anthropic-beta"] == "compact-2026-01-12"
        (edit,) = body["context_management"]["edits"]
        assert edit == {
            "type": "compact_20260112",
            "trigger": {"type": "input_tokens", "value": 50_000},
            "pause_after_compaction": True,
        }
        assert ledger.calls[0].usage is not None
        assert (ledger.calls[0].usage.input_tokens, ledger.calls[0].usage.output_tokens) == (
            1800,
            120,
        )  # all steps, not the last
        await compressor.aclose()


@pytest.mark.parametrize(
    ("spec", "broken", "error", "says"),
    [
        ("openai_compact", "no item", BadReply, "no compaction item"),
        ("openai_compact", "no key", Refused, "401"),
        ("anthropic_compact", "empty", BadReply, "empty"),
        ("anthropic_compact", "below", BadReply, "50000 input tokens"),
        ("anthropic_clear", "no key", Refused, "401"),
    ],
)
async def test_what_the_provider_does_not_do_is_a_failure(spec: str, broken: str, error: type, says: str) -> None:
    async with provider(broken) as (_, url):
        compressor: Any = compressor_for(spec, url=url, model="m", key="sk-test-123456789")
        with pytest.raises(error, match=says) as caught:
            await compressor.compress(PREFIX, TAIL)
        assert "sk-test" not in str(caught.value)
        await compressor.aclose()


def test_options_that_the_provider_would_not_take() -> None:
    for spec, says in (
        ("openai_compact", "needs a model"),
        ("openai_compact:model=m,threshold=0", "threshold"),
        ("anthropic_compact:model=m,trigger=1000", "50000"),
        ("anthropic_clear:model=m,keep=-1", "keep=-1"),
    ):
        with pytest.raises(BadInput, match=says):
            compressor_for(spec)


class _Sealed:
    """Gives something opaque and cannot go on from it."""

    name = "sealed"

    def compress(
        self, prefix: list[Any], tail: list[Any], *, state: Any, budget: int | None, query: str | None = None
    ) -> tuple[Compressed, Any]:
        return Compressed([], 9, 3, opaque="?"), None


async def test_an_opaque_result_that_nobody_can_go_on_from_is_refused() -> None:
    with pytest.raises(SetupFailed, match="only its provider can read it"):
        await Compressing(_Sealed(), SentenceReader()).aprocess(probe([6], "What?", "42"))
