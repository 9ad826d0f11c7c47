"""Chat completions at the front, an agent of LangChain that summarises what is older than six messages behind it."""

import json

from front import chat, serve
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI


def handle(path, body, back):
    model = ChatOpenAI(model=body["model"], api_key="k", base_url=f"{back}/v1", max_retries=0)
    middleware = SummarizationMiddleware(model=model, trigger=("messages", 8), keep=("messages", 6))
    agent = create_agent(model, tools=[], middleware=[middleware])
    reply = agent.invoke({"messages": [_message(one) for one in body["messages"]]})["messages"][-1]
    return chat(reply.content)


def _message(one):
    content = one.get("content") or ""
    if one["role"] == "tool":
        return ToolMessage(content, tool_call_id=one["tool_call_id"])
    if one["role"] == "assistant":
        calls = [
            {"name": c["function"]["name"], "args": json.loads(c["function"]["arguments"]), "id": c["id"]}
            for c in one.get("tool_calls", [])
        ]
        return AIMessage(content, tool_calls=calls)
    return (SystemMessage if one["role"] == "system" else HumanMessage)(content)


serve(handle)
