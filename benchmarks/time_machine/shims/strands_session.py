"""A session of Strands Agents against the address given.

`parts`: a tool's result has two texts. `broken`: the session before broke off in a tool call.
"""

import sys

from strands import Agent
from strands.models.openai import OpenAIModel

_CALL = {"toolUse": {"toolUseId": "c1", "name": "read", "input": {}}}
_RESULT = {"toolUseId": "c1", "status": "success", "content": [{"text": "first page"}, {"text": "second page"}]}
_BROKEN = [{"role": "user", "content": [{"text": "Read it."}]}, {"role": "assistant", "content": [_CALL]}]
_WHOLE = [
    *_BROKEN,
    {"role": "user", "content": [{"toolResult": _RESULT}]},
    {"role": "assistant", "content": [{"text": "I have read it."}]},
]

model = OpenAIModel(client_args={"api_key": "k", "base_url": f"{sys.argv[1]}/v1"}, model_id="gpt-4o-mini")
history = _WHOLE if sys.argv[2] == "parts" else _BROKEN
Agent(model=model, messages=history, callback_handler=None)("What does it say?")
