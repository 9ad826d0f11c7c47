"""Chat completions at the front, litellm's SDK, Anthropic's API behind it; marks are put where litellm is told to."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from front import serve

_NAMED = ("tools", "tool_choice", "temperature", "max_tokens", "stop", "parallel_tool_calls", "response_format")
_MARK = [{"location": "message", "role": "user"}]


def handle(path, body, back):
    more = {name: body[name] for name in _NAMED if name in body}
    model = f"anthropic/{body['model']}"
    reply = litellm.completion(
        model, body["messages"], api_key="k", api_base=back, cache_control_injection_points=_MARK, **more
    )
    return reply.model_dump(exclude_none=True)


serve(handle)
