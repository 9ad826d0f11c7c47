"""A vendor's compressor in a process of its own: run by the Python that has the vendor's package, never imported by
context-bench.

`python worker/compress_once.py NAME` reads a line `{"messages", "options", "relay", "model"}` on standard input and
writes one: `{"result": {"messages": …, "calls": […], "failure": …}}`. `calls`: requests to the model, made before a
failure too. Nothing here may import context-bench.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
import urllib.request
from typing import Any


def headroom(asked: dict[str, Any], calls: list[dict[str, Any]]) -> Any:
    """`headroom.compress`: everything is decided there."""
    return importlib.import_module("headroom").compress(asked["messages"], **asked["options"]).messages


def langchain_clear(asked: dict[str, Any], calls: list[dict[str, Any]]) -> Any:
    """`ClearToolUsesEdit`, applied as `ContextEditingMiddleware` does it before a call."""
    middleware = importlib.import_module("langchain.agents.middleware")
    count = importlib.import_module("langchain_core.messages.utils").count_tokens_approximately
    messages = _read(asked["messages"])
    middleware.ClearToolUsesEdit(**asked["options"]).apply(messages, count_tokens=count)
    return _written(messages)


def langchain_summary(asked: dict[str, Any], calls: list[dict[str, Any]]) -> Any:
    """`SummarizationMiddleware` before a call that is sure to trigger it."""
    middleware = importlib.import_module("langchain.agents.middleware")
    options = {**asked["options"], "keep": tuple(asked["options"]["keep"]), "trigger": ("messages", 1)}
    made = middleware.SummarizationMiddleware(_model(asked, calls), **options)
    messages = _read(asked["messages"])
    changed = made.before_model({"messages": messages}, None)
    if changed is None:
        return asked["messages"]
    kept = [message for message in changed["messages"] if type(message).__name__ != "RemoveMessage"]
    return _written(kept)


def _read(messages: list[dict[str, Any]]) -> list[Any]:
    """A list that may be changed in place."""
    return list(importlib.import_module("langchain_core.messages").convert_to_messages(messages))


def _written(messages: list[Any]) -> list[dict[str, Any]]:
    return [
        importlib.import_module("langchain_core.messages").convert_to_openai_messages(message, text_format="string")
        for message in messages
    ]


def _model(asked: dict[str, Any], calls: list[dict[str, Any]]) -> Any:
    """A chat model of LangChain's kind over an OpenAI-compatible relay; every call is noted."""
    models = importlib.import_module("langchain_core.language_models.chat_models")
    core, outputs = (
        importlib.import_module("langchain_core.messages"),
        importlib.import_module("langchain_core.outputs"),
    )

    class RelayModel(models.BaseChatModel):  # type: ignore[misc, name-defined]
        @property
        def _llm_type(self) -> str:
            return "relay"

        def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
            body = {"model": asked["model"], "messages": _written(messages), "temperature": 0}
            start = time.time()
            reply = _post(f"{asked['relay']}/chat/completions", body)
            calls.append(
                {"request": body, "started": start, "seconds": time.time() - start, "usage": reply.get("usage")}
            )
            said = core.AIMessage(content=reply["choices"][0]["message"]["content"] or "")
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=said)])

    return RelayModel()


def _post(url: str, body: dict[str, Any]) -> Any:
    key = os.environ.get("CONTEXT_BENCH_WORKER_RELAY_KEY") or "none"
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.load(reply)


KINDS = {"headroom": headroom, "langchain_clear": langchain_clear, "langchain_summary": langchain_summary}


def main() -> None:
    """Compress once."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what packages print is no reply
    with tempfile.TemporaryDirectory(prefix="context-bench-compressor-") as home:
        os.environ["HOME"] = home  # packages keep stores there; the user's is not ours
        calls: list[dict[str, Any]] = []
        result: dict[str, Any] = {"calls": calls}
        try:
            result["messages"] = KINDS[sys.argv[1]](json.loads(sys.stdin.readline()), calls)
        except Exception as error:  # of a package that we know nothing about
            result["failure"] = f"{type(error).__name__}: {str(error)[:2000]}"
    replies.write(
        json.dumps({"result": result}, default=str) + "\n"
    )  # after the folder is gone: who reads it ends this process
    replies.flush()


if __name__ == "__main__":
    main()
