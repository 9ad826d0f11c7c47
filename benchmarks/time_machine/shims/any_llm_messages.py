"""Anthropic's messages at the front, any-llm's bridge to an OpenAI provider behind it."""

from any_llm import messages
from front import serve

_NAMED = ("system", "tools", "tool_choice", "temperature", "stop_sequences", "thinking", "metadata", "top_p", "top_k")


def handle(path, body, back):
    more = {name: body[name] for name in _NAMED if name in body}
    reply = messages(
        body["model"],
        body["messages"],
        body["max_tokens"],
        provider="openai",
        api_key="k",
        api_base=f"{back}/v1",
        **more,
    )
    return reply.model_dump(exclude_none=True)


serve(handle)
