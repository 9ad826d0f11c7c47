"""Chat completions or Anthropic's messages at the front, pydantic-ai with its Anthropic model behind.

A mark on the last block of the front's last message becomes the setting that asks pydantic-ai for one there.
"""

import asyncio

from anthropic import AsyncAnthropic
from front import chat, event, message, serve
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider


def handle(path, body, back):
    return asyncio.run(answer(path, body, back))


async def answer(path, body, back):
    provider = AnthropicProvider(anthropic_client=AsyncAnthropic(api_key="k", base_url=back, max_retries=0))
    system = _text(body.get("system"))
    agent = Agent(AnthropicModel(body["model"], provider=provider), **({"instructions": system} if system else {}))
    *earlier, last = body["messages"]
    history, settings = _history(earlier), {"max_tokens": body.get("max_tokens", 1024)}
    if isinstance(last["content"], list) and "cache_control" in last["content"][-1]:
        settings["anthropic_cache_messages"] = True
    question = _text(last["content"])
    if not body.get("stream"):
        result = await agent.run(question, message_history=history, model_settings=settings)
        told = chat if path.endswith("/completions") else message
        return told(result.output, usage=_usage(result, path))
    async with agent.run_stream(question, message_history=history, model_settings=settings) as result:
        text = "".join([piece async for piece in result.stream_text(delta=True)])
        return list(_stream(text, _usage(result, path)))


def _history(messages):
    found = []
    for one in messages:
        text = _text(one["content"])
        if one["role"] == "assistant":
            found.append(ModelResponse(parts=[TextPart(text)]))
            continue
        part = SystemPromptPart(text) if one["role"] == "system" else UserPromptPart(text)
        if found and isinstance(found[-1], ModelRequest):
            found[-1].parts.append(part)
        else:
            found.append(ModelRequest(parts=[part]))
    return found


def _text(content):
    return "".join(block["text"] for block in content) if isinstance(content, list) else content or ""


def _usage(result, path):
    """The usage as pydantic-ai tells it, in the words of the front's API."""
    told = result.usage() if callable(result.usage) else result.usage
    if path.endswith("/completions"):
        details = {"cached_tokens": told.cache_read_tokens}
        return {
            "prompt_tokens": told.input_tokens,
            "completion_tokens": told.output_tokens,
            "total_tokens": told.input_tokens + told.output_tokens,
            "prompt_tokens_details": details,
        }
    read, written = told.cache_read_tokens, told.cache_write_tokens
    return {
        "input_tokens": max(0, told.input_tokens - read - written),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": told.output_tokens,
    }


def _stream(text, usage):
    yield event({"type": "message_start", "message": {**message(usage=usage), "content": [], "stop_reason": None}})
    yield event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    yield event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
    yield event({"type": "content_block_stop", "index": 0})
    yield event({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage})
    yield event({"type": "message_stop"})


serve(handle)
