"""Chat completions at the front, ccproxy's formatter, and the Responses API behind it."""

import asyncio
import inspect
import json
import urllib.request

from ccproxy.llms.formatters.openai_to_openai import requests as formatters
from ccproxy.llms.models import openai as models
from front import chat, serve

_NAMES = ("convert__openai_chat_to_openai_responses__request", "convert__openai_chat_to_openai_response__request")
_convert = next(getattr(formatters, name) for name in _NAMES if hasattr(formatters, name))


def handle(path, body, back):
    converted = _convert(models.ChatCompletionRequest.model_validate(body))
    if inspect.iscoroutine(converted):
        converted = asyncio.run(converted)
    data = json.dumps(converted.model_dump(exclude_none=True, by_alias=True, mode="json")).encode()
    request = urllib.request.Request(f"{back}/v1/responses", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        output = json.load(reply)["output"]
    texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
    return chat("".join(texts), usage={"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13})


serve(handle)
