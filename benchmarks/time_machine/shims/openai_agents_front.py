"""Responses at the front, the OpenAI Agents SDK behind it, with what its users may put between.

`handoff`: a first agent, whose model is played here, hands over to a second with the history nested. `trim`: the SDK's
trimmer of tool outputs.
"""

import asyncio
import os
import sys

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents import Agent, Model, ModelResponse, OpenAIResponsesModel, RunConfig, Runner, Usage
from front import serve
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall

_CALL = ResponseFunctionToolCall(
    type="function_call", id="f1", call_id="c1", name="transfer_to_second", arguments="{}", status="completed"
)


class HandsOver(Model):
    """A model that always hands over."""

    async def get_response(self, *args, **kwargs):
        return ModelResponse(output=[_CALL], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError("this shim does not stream")


def handle(path, body, back):
    return asyncio.run(answer(body, back))


async def answer(body, back):
    model = OpenAIResponsesModel(body["model"], AsyncOpenAI(api_key="k", base_url=f"{back}/v1", max_retries=0))
    agent, config = Agent(name="second", model=model), RunConfig()
    if sys.argv[3] == "handoff":
        agent, config = Agent(name="first", model=HandsOver(), handoffs=[agent]), RunConfig(nest_handoff_history=True)
    else:
        from agents.extensions.tool_output_trimmer import ToolOutputTrimmer

        config = RunConfig(call_model_input_filter=ToolOutputTrimmer(max_output_chars=400, preview_chars=60))
    result = await Runner.run(agent, body["input"], run_config=config)
    text = {"type": "output_text", "text": str(result.final_output), "annotations": []}
    said = {"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": [text]}
    reply = {"id": "resp_shim", "object": "response", "created_at": 1, "status": "completed", "model": body["model"]}
    return {**reply, "output": [said], "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}


serve(handle)
