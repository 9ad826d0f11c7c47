"""A session of the OpenAI Agents SDK against the address given: a limit of two items, after a turn with a tool."""

import asyncio
import os
import sys

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, SessionSettings, SQLiteSession
from openai import AsyncOpenAI

_TEXT = {"type": "output_text", "text": "It is sunny.", "annotations": []}
_EARLIER = [
    {"role": "user", "content": "What is the weather?"},
    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "message", "role": "assistant", "content": [_TEXT]},
]


async def main(back):
    model = OpenAIResponsesModel("gpt-4o-mini", AsyncOpenAI(api_key="k", base_url=f"{back}/v1"))
    session = SQLiteSession("s")
    await session.add_items(_EARLIER)
    settings = RunConfig(session_settings=SessionSettings(limit=2))
    await Runner.run(Agent(name="a", model=model), "And tomorrow?", session=session, run_config=settings)


asyncio.run(main(sys.argv[1]))
