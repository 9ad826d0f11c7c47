"""The model that costs nothing."""

from __future__ import annotations

import math

from context_bench.core.tokens import count_tokens
from context_bench.llm.responders import Echo
from context_bench.wire.apis import parse_request


async def test_the_same_prompt_gets_the_same_words_and_our_own_count() -> None:
    ask = {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello there, how are you?"},
        ],
    }
    one, two = [await Echo().reply(parse_request("openai-chat", ask), {}) for _ in range(2)]
    assert one == two
    assert one.usage is not None
    assert one.usage.input_tokens == count_tokens("Be brief.") + count_tokens("Hello there, how are you?")
    assert one.usage.output_tokens == count_tokens(one.text or "")
    assert f"{one.usage.input_tokens} tokens in 2 messages" in (one.text or "")
    ask["messages"][1]["content"] += "!"
    assert (await Echo().reply(parse_request("openai-chat", ask), {})).text != one.text


async def test_embeddings_are_unit_vectors_and_near_for_shared_words() -> None:
    near, same, far, empty = await Echo().embed(
        ["the red harbour bridge", "the red harbour gate", "completely other words", ""]
    )
    dots = [sum(a * b for a, b in zip(near, other, strict=True)) for other in (near, same, far, empty)]
    assert math.isclose(dots[0], 1.0)
    assert dots[0] > dots[1] > dots[2]
    assert set(empty) == {0.0}
