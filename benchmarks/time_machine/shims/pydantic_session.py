"""A session of pydantic-ai against the address given: a streamed reply that is read twice, then the next question."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main(back):
    agent = Agent(OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url=f"{back}/v1", api_key="k")))
    async with agent.run_stream("How long is the bridge?") as reply:
        async for _ in reply.stream_output():
            pass
        await reply.get_output()
        history = reply.all_messages()
    await agent.run("And how old is it?", message_history=history)


asyncio.run(main(sys.argv[1]))
