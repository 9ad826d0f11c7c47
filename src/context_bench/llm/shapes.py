"""The same example in the shapes in which real clients send requests; a proxy's behaviour depends on the shape.

| shape | wire | where the context is |
| --- | --- | --- |
| `plain-system` | OpenAI chat | system message; the question is the user message |
| `plain-user` | OpenAI chat | one user message: context, blank line, `Question: …`; for choices, that a letter is wanted |
| `tool-result` | OpenAI chat | the result of a tool call `read_file` |
| `openai-agent` | OpenAI chat | one of two results of parallel tool calls, several tools, `tool_choice` auto |
| `claude-code` | Anthropic messages | a `tool_result` with `cache_control` marks, tools, streaming, that client's headers |
| `codex` | OpenAI Responses | a `function_call_output`, instructions, tools, streaming, `store` false, that client's headers |

Descriptions and instructions are our own words and short: what is measured is the handling of the context, not of a
long system prompt. Every request is a pure function of its arguments: ids are hashes of the example, so a repeated
request is byte-equal.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.keys import canonical_json, stable_hash
from context_bench.core.records import Example
from context_bench.core.tokens import TokenCounter
from context_bench.wire.apis import ShapedRequest
from context_bench.wire.request import SYSTEM_ROLES

#: The default text of a plain user message.
PLAIN_PROMPT = "{context}\n\nQuestion: {question}"
#: What `plain-user` says after choices of which one letter is right.
ASK_FOR_A_LETTER = "Answer with the letter of the right choice."
_PLAIN = ("plain-system", "plain-user")
_LETTERS = "ABCDEFGHIJ"
_NOTHING_ASKED = "Read {path} and do what it asks."


@dataclass(frozen=True, slots=True)
class _Content:
    """Content of an example, apart from its shape."""

    context: str
    question: str  # choices included
    asked: bool  # whether there is a question apart from the context
    system: str | None
    history: list[dict[str, Any]] = field(default_factory=list)
    about: tuple[str, ...] = ()  # what makes the example this one

    @property
    def key(self) -> str:
        """A hash by which the agent shapes name files, calls and sessions."""
        return _key(self.about)

    @property
    def path(self) -> str:
        """The file that the agent shapes read."""
        return f"docs/{self.key[:8]}.txt"

    @property
    def task(self) -> str:
        """Task that the user of an agent gives."""
        return self.question if self.asked else _NOTHING_ASKED.replace("{path}", self.path)


def build(
    shape: str,
    example: Example,
    model: str,
    *,
    system_prompt: str | None = None,
    prompt: str | None = None,
    params: Mapping[str, Any] | None = None,
    stream: bool = False,
    namespace: str | None = None,
    build_messages: Callable[[Example], list[dict[str, Any]]] | None = None,
) -> ShapedRequest:
    """The request for `example` in `shape`.

    `system_prompt` goes first (in the agent shapes: beside their own). `prompt`: a template with `{context}` and
    `{question}` for the text of `plain-user`. `params`: body fields laid over everything else. `namespace`: a line
    `[namespace]` in front of the first text, so that the prompt caches of two arms never mix. `build_messages(example)`
    gives the messages verbatim (chat shapes only). An example with `turns` sends them verbatim in the chat shapes
    without tools, as history in the others. Raises `UnknownName`, `BadInput`.
    """
    maker = _MAKERS.get(shape)
    if maker is None:
        raise UnknownName("shape", shape, _MAKERS)
    if prompt is not None and shape != "plain-user":
        raise BadInput(
            f"A prompt template goes with --shape plain-user, not with {shape!r}, whose layout is its client's"
        )
    if build_messages is not None:
        if shape in ("claude-code", "codex"):
            raise BadInput(f"build_messages gives chat messages; the shape {shape!r} speaks another wire")
        request = _chat(shape, model, list(build_messages(example)), stream)
    else:
        request = maker(_read(example, system_prompt), example, model, prompt, stream)
    if namespace is not None:
        _put_in_front(request.body, first_line(namespace))
    request.body.update(params or {})
    return request


def first_line(namespace: str) -> str:
    """The line in front of the first text that keeps the prompt cache of one arm apart."""
    return f"[{namespace}]\n"


def require_text(example: Example) -> None:
    """Raises `BadInput` for an example of which only an empty message could be made."""
    if all(example.get(name) is None for name in ("context", "question", "turns", "choices")):
        raise BadInput(
            f'example {example.get("id")!r}: nothing to send: needs a "context", a "question" or "turns"; its keys are '
            f"{sorted(map(str, example))}"
        )


def without_context(example: Example) -> Example:
    """The example with an empty context: what remains of a request is not context."""
    return {**example, "context": ""}


def context_tokens(
    forwarded_total: int, shape: str, example: Example, model: str, counter: TokenCounter | None = None, **options: Any
) -> int:
    """Tokens of the context part in a request of `forwarded_total` tokens: less the same request without context, never
    below 0.
    """
    return max(0, forwarded_total - build(shape, without_context(example), model, **options).tokens(counter))


# What the example says
# ------------------------------------------------------------------------


def _read(example: Example, system_prompt: str | None) -> _Content:
    context, question = _text(example.get("context")), _text(example.get("question"))
    turns = example.get("turns")
    history = [dict(turn) for turn in turns if isinstance(turn, Mapping)] if isinstance(turns, list) else []
    if not question and history and history[-1].get("role") == "user":
        question = _text(history[-1].get("content"))
    asked = bool(question.strip())
    choices = render_choices(example.get("choices"))
    if choices and not _has_choices(example["choices"], context, question):
        question = f"{question}\n{choices}" if asked else choices
        asked = True
    about = (str(example.get("dataset", "")), str(example.get("id", "")), question, context if not asked else "")
    return _Content(context, question, asked, system_prompt, history, about)


@lru_cache(maxsize=64)
def _key(about: tuple[str, ...]) -> str:
    return stable_hash(list(about))


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else canonical_json(value)


def render_choices(choices: Any) -> str:
    """`A) text  B) text` on one line, up to ten; empty if there are none."""
    if not isinstance(choices, list | tuple):
        return ""
    return "  ".join(f"{letter}) {_text(choice)}" for letter, choice in zip(_LETTERS, choices, strict=False))


def _has_choices(choices: Any, *texts: str) -> bool:
    """True if one of the texts already lists all choices behind their letters (`A) x`, `A. x`, `(A) x`, `A: x`)."""
    offered = [(letter, _text(choice).strip()) for letter, choice in zip(_LETTERS, choices, strict=False)]
    return any(
        all(re.search(rf"\b{letter}[).:]\s*{re.escape(choice)}", text) for letter, choice in offered) for text in texts
    )


def _separate(content: _Content) -> bool:
    """True if context and question are two things: not where the context is the question, perhaps with its choices."""
    context, question = content.context.strip(), content.question.strip()
    return not (
        question.startswith(context) or (context.startswith(question) and _only_choices(context[len(question) :]))
    )


def _only_choices(rest: str) -> bool:
    return not rest.strip() or re.match(r"\s*\(?A[).:]\s", rest) is not None


def _fill(template: str, content: _Content) -> str:
    """The template with its two names replaced once; what the texts themselves say is never expanded."""
    values = {"context": content.context, "question": content.question}
    return re.sub(r"\{(context|question)\}", lambda found: values[found[1]], template)


# Plain shapes
# ------------------------------------------------------------------------


def _chat(shape: str, model: str, messages: list[dict[str, Any]], stream: bool, **more: Any) -> ShapedRequest:
    body: dict[str, Any] = {"model": model, "messages": messages, **more}
    if stream:
        body.update(stream=True, stream_options={"include_usage": True})
    headers = {"content-type": "application/json", "accept": "text/event-stream" if stream else "application/json"}
    if shape == "openai-agent":
        headers["user-agent"] = "Agents/Python 0.3.3"
    return ShapedRequest("openai-chat", "/v1/chat/completions", headers, body)


def _first(content: _Content) -> list[dict[str, Any]]:
    return [{"role": "system", "content": content.system}] if content.system else []


def _plain_system(content: _Content, example: Example, model: str, prompt: str | None, stream: bool) -> ShapedRequest:
    messages = _first(content)
    if content.history:
        messages += content.history
    elif content.asked:
        messages += [{"role": "system", "content": content.context}] if content.context else []
        messages.append({"role": "user", "content": content.question})
    else:
        messages.append({"role": "user", "content": content.context})
    return _chat("plain-system", model, messages, stream)


def _plain_user(content: _Content, example: Example, model: str, prompt: str | None, stream: bool) -> ShapedRequest:
    if content.history:
        return _chat("plain-user", model, [*_first(content), *content.history], stream)
    if prompt is not None:
        text = _fill(prompt, content)
    elif not content.asked:
        text = content.context
    elif not content.context:
        text = _fill(PLAIN_PROMPT, content).lstrip(
            "\n"
        )  # the same words as with a context: what differs is the context
    elif not _separate(content):
        text = max(content.context, content.question, key=len)
    else:
        text = _fill(PLAIN_PROMPT, content)
    if prompt is None and example.get("correct_letter") and example.get("choices"):
        text = f"{text}\n\n{ASK_FOR_A_LETTER}"
    return _chat("plain-user", model, [*_first(content), {"role": "user", "content": text}], stream)


# Agent shapes
# ------------------------------------------------------------------------

_TEXT = {"type": "string"}
_TOOLS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "read_file": ("Read a text file of the workspace.", {"path": _TEXT}, ["path"]),
    "list_files": ("List the files of a folder.", {"folder": _TEXT}, ["folder"]),
    "search": ("Search the files for a regular expression.", {"pattern": _TEXT, "folder": _TEXT}, ["pattern"]),
    "run": ("Run a shell command and return its output.", {"command": _TEXT}, ["command"]),
    "Read": (
        "Read a file; gives its text.",
        {"file_path": _TEXT, "offset": {"type": "number"}, "limit": {"type": "number"}},
        ["file_path"],
    ),
    "Bash": (
        "Run a shell command.",
        {"command": _TEXT, "timeout": {"type": "number"}, "description": _TEXT},
        ["command"],
    ),
    "Grep": (
        "Find lines that match a regular expression.",
        {"pattern": _TEXT, "path": _TEXT, "glob": _TEXT},
        ["pattern"],
    ),
    "Glob": ("Find files by name.", {"pattern": _TEXT, "path": _TEXT}, ["pattern"]),
    "Edit": (
        "Replace text in a file.",
        {"file_path": _TEXT, "old_string": _TEXT, "new_string": _TEXT},
        ["file_path", "old_string", "new_string"],
    ),
    "Write": ("Write a file.", {"file_path": _TEXT, "content": _TEXT}, ["file_path", "content"]),
    "shell": (
        "Run a command.",
        {"command": {"type": "array", "items": _TEXT}, "workdir": _TEXT, "timeout_ms": {"type": "number"}},
        ["command"],
    ),
    "update_plan": (
        "Keep the list of steps.",
        {"plan": {"type": "array", "items": {"type": "object"}}, "explanation": _TEXT},
        ["plan"],
    ),
    "view_image": ("Show an image file to the model.", {"path": _TEXT}, ["path"]),
}


def _schema(name: str) -> dict[str, Any]:
    _, properties, required = _TOOLS[name]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _chat_tools(*names: str) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": n, "description": _TOOLS[n][0], "parameters": _schema(n)}}
        for n in names
    ]


def _chat_call(content: _Content, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    ident = f"call_{stable_hash([content.key, name], 24)}"
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": canonical_json(arguments)}}


def _before(content: _Content) -> list[dict[str, Any]]:
    """Earlier turns of a conversation, the last user turn left out (it is the task)."""
    turns = content.history
    return turns[:-1] if turns and turns[-1].get("role") == "user" else turns


def _tool_result(content: _Content, example: Example, model: str, prompt: str | None, stream: bool) -> ShapedRequest:
    call = _chat_call(content, "read_file", {"path": content.path})
    messages = [
        *_first(content),
        *_before(content),
        {"role": "user", "content": content.task},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": content.context},
    ]
    return _chat("tool-result", model, messages, stream, tools=_chat_tools("read_file"))


def _openai_agent(content: _Content, example: Example, model: str, prompt: str | None, stream: bool) -> ShapedRequest:
    listing = _chat_call(content, "list_files", {"folder": "docs"})
    reading = _chat_call(content, "read_file", {"path": content.path})
    own = "You are a helpful agent. Use the tools to look things up, then answer the user's question briefly."
    messages = [
        {"role": "system", "content": f"{own}\n\n{content.system}" if content.system else own},
        *_before(content),
        {"role": "user", "content": content.task},
        {"role": "assistant", "content": None, "tool_calls": [listing, reading]},
        {"role": "tool", "tool_call_id": listing["id"], "content": content.path},
        {"role": "tool", "tool_call_id": reading["id"], "content": content.context},
    ]
    tools = _chat_tools("read_file", "list_files", "search", "run")
    return _chat("openai-agent", model, messages, stream, tools=tools, tool_choice="auto", parallel_tool_calls=True)


_CLAUDE_SYSTEM = (
    "You are a coding agent working in the user's terminal.",
    "Use the tools to look at files before you answer. Be brief. Answer questions about a file from the file's own "
    "text.",
)
_CLAUDE_HEADERS = {
    "accept": "application/json",
    "content-type": "application/json",
    "user-agent": "claude-cli/2.1.92 (external, cli)",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14",
    "x-app": "cli",
    "x-stainless-lang": "js",
    "x-stainless-package-version": "0.80.0",
    "x-stainless-os": "Linux",
    "x-stainless-arch": "x64",
    "x-stainless-runtime": "node",
    "x-stainless-runtime-version": "v24.3.0",
    "x-stainless-retry-count": "0",
    "x-stainless-timeout": "600",
}
_EPHEMERAL = {"type": "ephemeral"}


def _block(text: str, cached: bool = False) -> dict[str, Any]:
    return {"type": "text", "text": text, **({"cache_control": dict(_EPHEMERAL)} if cached else {})}


def _claude_code(content: _Content, example: Example, model: str, prompt: str | None, stream: bool) -> ShapedRequest:
    told = [_text(turn.get("content")) for turn in _before(content) if turn.get("role") in SYSTEM_ROLES]
    system = [_block(text) for text in (*_CLAUDE_SYSTEM, content.system, *told) if text]
    for block in system[-2:]:
        block["cache_control"] = dict(_EPHEMERAL)
    use = f"toolu_{stable_hash([content.key, 'Read'], 24)}"
    session = _uuid(content.key)
    reading = {"type": "tool_use", "id": use, "name": "Read", "input": {"file_path": f"/workspace/{content.path}"}}
    result = {"type": "tool_result", "tool_use_id": use, "content": content.context, "cache_control": dict(_EPHEMERAL)}
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            *(turn for turn in _before(content) if turn.get("role") not in SYSTEM_ROLES),
            {"role": "user", "content": [_block(content.task, cached=True)]},
            {"role": "assistant", "content": [_block("I will read the file."), reading]},
            {"role": "user", "content": [result]},
        ],
        "system": system,
        "tools": [
            {"name": n, "description": _TOOLS[n][0], "input_schema": _schema(n)}
            for n in ("Bash", "Read", "Edit", "Write", "Grep", "Glob")
        ],
        "metadata": {"user_id": f"user_{stable_hash('context-bench', 64)}_account__session_{session}"},
        "max_tokens": 8192,
        "temperature": 1,
        "stream": True,
    }
    return ShapedRequest("anthropic", "/v1/messages", {**_CLAUDE_HEADERS, "x-claude-code-session-id": session}, body)


_CODEX_INSTRUCTIONS = (
    "You are a coding agent running in a terminal. Look at files with the shell before you "
    "answer, and answer from what they say. Be brief."
)


def _codex(content: _Content, example: Example, model: str, prompt: str | None, stream: bool) -> ShapedRequest:
    session, call = _uuid(content.key), f"call_{stable_hash([content.key, 'shell'], 24)}"
    earlier = [_spoken(str(turn.get("role")), _text(turn.get("content"))) for turn in _before(content)]
    body: dict[str, Any] = {
        "model": model,
        "instructions": f"{_CODEX_INSTRUCTIONS}\n\n{content.system}" if content.system else _CODEX_INSTRUCTIONS,
        "input": [
            _spoken(
                "user", "<environment_context>\n  <cwd>/workspace</cwd>\n  <shell>bash</shell>\n</environment_context>"
            ),
            *earlier,
            _spoken("user", content.task),
            {
                "type": "function_call",
                "name": "shell",
                "arguments": canonical_json({"command": ["cat", content.path], "workdir": "/workspace"}),
                "call_id": call,
            },
            {"type": "function_call_output", "call_id": call, "output": content.context},
        ],
        "tools": [
            {"type": "function", "name": n, "description": _TOOLS[n][0], "strict": False, "parameters": _schema(n)}
            for n in ("shell", "update_plan", "view_image")
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "store": False,
        "stream": True,
        "include": [],
        "prompt_cache_key": session,
    }
    if re.match(r"(o\d|gpt-5|codex)", model.rsplit("/", 1)[-1]):  # other models refuse these two
        body.update(reasoning={"effort": "medium", "summary": "auto"}, include=["reasoning.encrypted_content"])
    headers = {
        "accept": "text/event-stream",
        "content-type": "application/json",
        "user-agent": "codex_cli_rs/0.98.0 (Linux 6.8.0; x86_64) xterm-256color",
        "originator": "codex_cli_rs",
        "session-id": session,
        "thread-id": session,
    }
    return ShapedRequest("openai-responses", "/v1/responses", headers, body)


def _spoken(role: str, text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "role": role,
        "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": text}],
    }


def _uuid(key: str) -> str:
    return f"{key[:8]}-{key[8:12]}-7{key[13:16]}-8{key[17:20]}-{key[20:32]}"


def _put_in_front(body: dict[str, Any], line: str) -> None:
    """Put `line` before the first text that the model reads."""
    for name in ("system", "instructions"):
        if isinstance(body.get(name), str):
            body[name] = line + body[name]
            return
    for block in body.get("system") or []:
        block["text"] = line + block["text"]
        return
    messages = body.setdefault("messages", [])
    for place, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, str):
            messages[place] = {**message, "content": line + content}
            return
        for i, part in enumerate(content if isinstance(content, list) else []):
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                parts = [*content[:i], {**part, "text": line + part["text"]}, *content[i + 1 :]]
                messages[place] = {**message, "content": parts}
                return
    messages.insert(0, {"role": "system", "content": line.rstrip("\n")})


_MAKERS: dict[str, Callable[[_Content, Example, str, str | None, bool], ShapedRequest]] = {
    "plain-system": _plain_system,
    "plain-user": _plain_user,
    "tool-result": _tool_result,
    "claude-code": _claude_code,
    "codex": _codex,
    "openai-agent": _openai_agent,
}

#: All shapes, the plain ones first.
SHAPES: tuple[str, ...] = tuple(_MAKERS)
