"""The bundled model, really loaded and asked (a few short questions: about ten seconds of one core)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_bench.core import errors
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.llm.chat import ChatClient
from context_bench.llm.embedded import Embedded, fetch_weights
from context_bench.llm.responders import ResponderError
from context_bench.llm.servers import ModelServer
from context_bench.llm.weights import SMOLLM2, cache_folder, fast_copy
from context_bench.wire.request import Part, WireMessage, WireRequest

TEXT = "The port of Lorn has 14 docks and two lighthouses. Its harbour master is Mira Holt, who came from Tamm in 1998."
WHO = f"{TEXT}\n\nQuestion: Who is the harbour master?"
HOW_MANY = f"{TEXT}\n\nQuestion: How many docks has the port?"


def request(text: str, **params: object) -> WireRequest:
    return WireRequest("openai-chat", "m", [WireMessage("user", [Part("text", text)])], params=dict(params))


@pytest.fixture(scope="module")
def weights() -> Path:
    return fetch_weights()


@pytest.fixture(scope="module")
def model(weights: Path) -> Iterator[Embedded]:
    """One for all tests: it belongs to no event loop, and loads itself again after being closed."""
    model = Embedded()
    yield model
    asyncio.run(model.aclose())


async def test_answers_come_from_the_text_and_are_not_cached(model: Embedded) -> None:
    first = await model.reply(request(WHO), {})
    head = model.timings.head_tokens
    assert first.text is not None
    assert "Mira Holt" in first.text
    assert first.finish_reason == "stop"
    again = await model.reply(request(WHO), {})
    assert again == first
    assert (
        model.timings.head_tokens == 2 * head
    )  # the worked examples and not a token more, although the text was the same
    other = await model.reply(request(HOW_MANY), {})
    assert other.text is not None
    assert "14" in other.text
    without = await model.reply(request("Question: Who is the harbour master?"), {})
    assert "Mira Holt" not in (without.text or "")
    assert model.timings.requests == 4
    assert first.usage is not None
    assert without.usage is not None
    assert 5 < without.usage.input_tokens < 20  # type: ignore[operator]
    assert first.usage.input_tokens - without.usage.input_tokens == pytest.approx(33, abs=6)  # type: ignore[operator]
    assert model.timings.prompt_seconds > 0


async def test_over_http_in_every_way_it_can_be_asked(model: Embedded) -> None:
    ledger = Ledger()
    async with ModelServer(model) as server, ChatClient(server.url, max_retries=0) as client:
        messages = [{"role": "user", "content": WHO}]
        with open_ledger(ledger):
            plain = await client.chat("smollm2", messages)
            streamed = await client.chat("smollm2", messages, stream=True, stream_options={"include_usage": True})
            assert plain.text == streamed.text
            with pytest.raises(errors.ContextTooLong, match="exceed_context_size_error"):
                await client.chat("smollm2", [{"role": "user", "content": "word " * 9000}])
            with pytest.raises(errors.Refused, match="no text"):
                await client.chat("smollm2", [{"role": "user", "content": " "}])
        assert ledger.calls[0].usage == ledger.calls[1].usage
        assert ledger.calls[2].status == 400
        one_word = await client.chat("smollm2", messages, max_tokens=1)
        assert one_word.finish_reason == "length"
        assert await model.models() == ["smollm2-135m-instruct"]
    vectors = await model.embed(["a", "b"])
    assert [len(vector) for vector in vectors] == [384, 384]


async def test_two_instances_answer_at_once_and_alike(weights: Path) -> None:
    model = Embedded(instances=2)
    await model.load()
    one, two = await asyncio.gather(*(model.reply(request(WHO), {}) for _ in range(2)))
    assert one == two
    assert model.timings.requests == 2
    await model.aclose()


async def test_chat_style_with_a_file_of_ones_own(weights: Path) -> None:
    model = Embedded(weights, style="chat", n_ctx=512)
    messages = [WireMessage("system", [Part("text", "Be brief.")]), WireMessage("user", [Part("text", "Say hello.")])]
    reply = await model.reply(WireRequest("openai-chat", None, messages, params={"max_tokens": 8}), {})
    assert reply.text
    assert reply.usage is not None
    assert reply.usage.output_tokens == 8
    assert model.fingerprint()["style"] == "chat"
    await model.aclose()


async def test_a_text_beyond_every_window_is_refused_before_it_is_read(model: Embedded) -> None:
    held = held_memory()
    with pytest.raises(ResponderError, match=r"exceeds the available context size \(8192 tokens\)") as refused:
        await model.reply(request("x " * 20_000_000), {})
    assert refused.value.kind == "exceed_context_size_error"
    assert held_memory() - held < 200  # MB; reading it took 3,500
    vectors = await model.embed(["word " * 4_000_000, "word " * 300])
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-6)
    assert held_memory() - held < 500


def held_memory() -> float:
    """MB that this process had at most."""
    return float(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def test_the_fast_copy_is_made_once(weights: Path) -> None:
    copy = fast_copy(weights)
    assert copy == cache_folder() / "SmolLM2-135M-Instruct.Q8_0.gguf"
    made = copy.stat().st_mtime_ns
    assert fast_copy(weights).stat().st_mtime_ns == made
    assert copy.stat().st_size > SMOLLM2.size


def test_what_cannot_be_loaded_is_told(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.BadInput, match="style 'poem'"):
        Embedded(style="poem")  # type: ignore[arg-type]
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    with pytest.raises(errors.PreflightFailed, match=r"llama\.cpp cannot load"):
        asyncio.run(Embedded(broken).load())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(errors.PreflightFailed, match="context-bench model fetch"):
        Embedded()
