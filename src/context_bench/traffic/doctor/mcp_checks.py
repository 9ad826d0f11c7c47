"""Compare an MCP proxy with the server behind it: tools, resources and prompts, as they are listed and as they answer.

Without a server of the user's, ours stands behind: `{behind}` in the proxy's command becomes the command that starts
it. It offers what proxies have lost: several contents of one result, binaries, structured results, errors, odd schemas,
more than one page of a listing. Run as a program, this module is that server.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from context_bench.core.errors import BadInput, MissingExtra, Unreachable, describe
from context_bench.llm.redact import redact
from context_bench.session.activity import Finding

BEHIND = "{behind}"
_SECONDS = 30.0
_SHOWN = 3
_DEEPEST = 12  # of a schema that refers to itself
_LONGEST = 160
#: Keys that say nothing of what a model gets, or that a proxy may rightly set itself.
_ASIDE = frozenset({"_meta", "icons", "uri", "uriTemplate", "resultType", "ttlMs", "cacheScope", "execution"})
_Asked = Callable[[Any, str], Awaitable[Any]]

# --- the server behind ---
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_ODD = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "The words title and description are names here."},
        "description": {"type": "string", "enum": ["a", "b", ""]},
        "default": {"type": ["string", "null"], "default": None},
        "items": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1},
        "either": {"anyOf": [{"type": "integer", "minimum": 0}, {"const": "none"}]},
    },
    "required": ["title", "items"],
    "additionalProperties": False,
    "$defs": {"part": {"type": "object", "properties": {"größe": {"type": "number"}}, "required": ["größe"]}},
}
_PLAIN = {"type": "object", "properties": {}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_RESULTS: dict[str, dict[str, Any]] = {
    "several_texts": {"content": [_text(f"part {part}") for part in range(3)]},
    "text_and_image": {"content": [_text("see"), {"type": "image", "data": _PNG, "mimeType": "image/png"}]},
    "structured": {"content": [_text('{"n": 3}')], "structuredContent": {"n": 3, "deep": {"list": [1, 2.5, None]}}},
    "an_error": {"content": [_text("disk full"), _text("tried 3 times")], "isError": True},
    "empty": {"content": []},
}
_TOOLS: list[dict[str, Any]] = [
    *({"name": name, "description": f"Gives {name}.", "inputSchema": _PLAIN} for name in _RESULTS),
    {"name": "echo", "title": "Echo", "description": "Says its arguments.\nAs JSON.", "inputSchema": _ODD},
    *({"name": f"more_{number}", "description": "One more.", "inputSchema": _PLAIN} for number in range(20)),
]
_ECHOED = {
    "title": "naïve “quotes” \U0001f642",
    "items": [{"größe": 1e16}, {"größe": 0.1}],
    "default": "",
    "either": 2**53,
}
_RESOURCES: dict[str, list[dict[str, Any]]] = {
    "memo://three": [{"mimeType": "text/plain", "text": f"part {part}"} for part in range(3)],
    "memo://mixed": [{"mimeType": "text/markdown", "text": "# a\r\n\tb\n"}, {"mimeType": "image/png", "blob": _PNG}],
    "memo://one": [{"mimeType": "application/json", "text": '{"a": 1}'}],
    "memo://empty": [{"mimeType": "text/plain", "text": ""}],
}
_PROMPTS: dict[str, list[dict[str, Any]]] = {
    "two_turns": [
        {"role": "user", "content": _text("Who goes first?")},
        {"role": "assistant", "content": _text("You do.")},
        {"role": "user", "content": {"type": "image", "data": _PNG, "mimeType": "image/png"}},
    ],
}
_ARGUMENTS = [{"name": "tone", "description": "How to say it.", "required": True}]
_PAGE = 10


def _served(method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result of one request; `None` for a method that is not offered."""
    listed = {
        "tools/list": ("tools", _TOOLS),
        "resources/list": (
            "resources",
            [{"uri": uri, "name": uri, "mimeType": parts[0]["mimeType"]} for uri, parts in _RESOURCES.items()],
        ),
        "resources/templates/list": (
            "resourceTemplates",
            [{"uriTemplate": "memo://page/{number}", "name": "page", "mimeType": "text/plain"}],
        ),
        "prompts/list": ("prompts", [{"name": name, "arguments": _ARGUMENTS} for name in _PROMPTS]),
    }
    if method in listed:
        name, items = listed[method]
        start = int(params.get("cursor") or 0)
        more: dict[str, Any] = {"nextCursor": str(start + _PAGE)} if start + _PAGE < len(items) else {}
        return {name: items[start : start + _PAGE], **more}
    if method == "initialize":
        offered: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        about = {"name": "context-bench-behind", "version": "1"}
        version = params.get("protocolVersion", "2024-11-05")
        return {"protocolVersion": version, "capabilities": offered, "serverInfo": about}
    if method == "tools/call":
        if params["name"] in _RESULTS:
            return _RESULTS[params["name"]]
        return {"content": [_text(json.dumps(params.get("arguments"), ensure_ascii=False, sort_keys=True))]}
    if method == "resources/read":
        uri = str(params["uri"])
        parts = _RESOURCES.get(uri, [{"mimeType": "text/plain", "text": f"this is {uri}"}])
        return {"contents": [{"uri": uri, **part} for part in parts]}
    if method == "prompts/get":
        return {"description": "Turns.", "messages": _PROMPTS[params["name"]]}
    return {} if method == "ping" else None


def serve() -> None:
    """Answer requests on standard input until it ends: one JSON object a line."""
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        try:
            result = _served(request["method"], request.get("params") or {})
        except (KeyError, ValueError) as error:
            fault = {"code": -32602, "message": f"{type(error).__name__}: {error}"}
        else:
            fault = {"code": -32601, "message": "Method not found"}
            if result is not None:
                fault = {}
        reply = {"error": fault} if fault else {"result": result}
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}).encode() + b"\n")
        sys.stdout.buffer.flush()


def own_command() -> str:
    """The command that starts the server of ours."""
    return shlex.join([sys.executable, "-m", __name__])


# --- the comparison ---
async def examine_mcp(front: str, behind: str | None = None) -> list[Finding]:
    """Compare the MCP proxy that `front` starts (a command, or the URL of one that runs) with the server `behind`.

    Without `behind` ours is; `front` then has to say `{behind}` where the proxy is told what to start. Of a server of
    the user's only tools are called that say that they only read and that need no argument. `Unreachable` for what
    cannot be started, `MissingExtra` without the extra `memory`.
    """
    if importlib.util.find_spec("mcp") is None:
        raise MissingExtra("doctor --mcp", "memory")
    if behind is None and BEHIND not in front:
        raise BadInput(
            f"--mcp {front!r} does not say {BEHIND}, where our own server is to be started; or give --behind COMMAND"
        )
    there = behind or own_command()
    async with AsyncExitStack() as stack:
        proxy = await _connected(stack, front.replace(BEHIND, there), "--mcp")
        server = await _connected(stack, there, "--behind")
        findings = []
        for kind in ("tools", "resources", "resource templates", "prompts"):
            findings += await _kind(kind, proxy, server, own=behind is None)
        return findings


async def _connected(stack: AsyncExitStack, command: str, option: str) -> Any:
    mcp = importlib.import_module("mcp")
    target: Any = command
    if not command.startswith(("http://", "https://")):
        words = shlex.split(command)
        if not words:
            raise BadInput(f"{option} is empty; expected a command, or the URL of an MCP server")
        errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        stack.callback(errors.close)
        stdio = importlib.import_module("mcp.client.stdio")
        target = stdio.stdio_client(
            stdio.StdioServerParameters(command=words[0], args=words[1:]),
            errlog=errors,
        )
    try:
        async with asyncio.timeout(_SECONDS):
            return await stack.enter_async_context(mcp.Client(target))
    except Exception as error:  # of a program that we know nothing about
        why = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
        raise Unreachable(f"{option}: no session with {command!r}: {redact(describe(why))}") from None


_LISTS = {
    "tools": ("list_tools", "tools", "name"),
    "resources": ("list_resources", "resources", "uri"),
    "resource templates": ("list_resource_templates", "resource_templates", "uriTemplate"),
    "prompts": ("list_prompts", "prompts", "name"),
}


async def _kind(kind: str, proxy: Any, server: Any, *, own: bool) -> list[Finding]:
    """Compare one kind of thing: its listing, and what each of it answers."""
    behind = await _listed(server, kind)
    if isinstance(behind, str):
        return [Finding(kind, "unknown", f"the server behind does not list them: {behind}")]
    front = await _listed(proxy, kind)
    if isinstance(front, str):
        if not behind:
            return [Finding(kind, "ok", "neither side has any")]
        return [Finding(kind, "fail", f"{len(behind)} are behind the proxy, which does not list them: {front}")]
    named = {name: _named_alike(name, front) for name in behind}
    lost = [name for name, here in named.items() if here is None]
    there = {name: here for name, here in named.items() if here is not None}
    odd = [f"{name}: {fault}" for name, here in there.items() if (fault := _differs(behind[name], front[here]))]
    findings = [_finding(kind, len(behind), [f"{name} is gone" for name in lost] + odd, "are listed as they are")]
    answers = [(name, here, request) for name, here in there.items() for request in _requests(kind, behind[name], own)]
    if answers:
        faults = [
            f"{name}: {fault}"
            for name, here, request in answers
            if (fault := await _answers(request, server, proxy, name, here))
        ]
        findings.append(_finding(f"{kind}: answers", len(answers), faults, "answers arrive as they were given"))
    return findings


def _finding(name: str, number: int, faults: Sequence[str], fine: str) -> Finding:
    if not faults:
        return Finding(name, "ok", f"{number} {fine}")
    shown = "; ".join(faults[:_SHOWN]) + (f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else "")
    return Finding(name, "fail", f"{len(faults)} of {number} differ behind the proxy and in front of it: {shown}")


async def _listed(client: Any, kind: str) -> dict[str, Any] | str:
    """Everything listed, by name; or the reason why there is no listing."""
    method, part, key = _LISTS[kind]
    found: dict[str, Any] = {}
    cursor = None
    try:
        async with asyncio.timeout(_SECONDS):
            for _ in range(1000):
                page = await getattr(client, method)(cursor=cursor)
                found |= {str(each[key]): each for each in map(_plain, getattr(page, part))}
                cursor = page.next_cursor
                if not cursor:
                    break
    except Exception as error:  # of a server that we know nothing about
        return redact(describe(error))[:_LONGEST]
    return found


def _plain(record: Any) -> dict[str, Any]:
    plain = dict(record.model_dump(mode="json", by_alias=True, exclude_none=True))
    return plain | {key: _resolved(plain[key], plain[key]) for key in ("inputSchema", "outputSchema") if key in plain}


def _resolved(schema: Any, whole: Mapping[str, Any], depth: int = 0) -> Any:
    """A schema with its own definitions put where it refers to them: that is another form and the same meaning."""
    if depth > _DEEPEST:
        return schema
    if isinstance(schema, list):
        return [_resolved(each, whole, depth + 1) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    place, _, name = str(schema.get("$ref", "")).rpartition("/")
    defined = whole.get(place.removeprefix("#/"), {}) if place in ("#/$defs", "#/definitions") else {}
    if name in defined:
        rest = {key: each for key, each in schema.items() if key != "$ref"}
        return _resolved({**defined[name], **rest}, whole, depth + 1)
    return {
        key: _resolved(each, whole, depth + 1)
        for key, each in schema.items()
        if schema is not whole or key not in ("$defs", "definitions", "$schema")
    }


def _named_alike(name: str, front: Mapping[str, Any]) -> str | None:
    """The name in front: the same, or the only one that ends with it after a prefix of the proxy's own."""
    if name in front:
        return name
    tail = name.partition("://")[2] or name
    alike = [each for each in front if each.endswith(tail)]
    return alike[0] if len(alike) == 1 else None


def _differs(behind: Any, front: Any, path: str = "") -> str | None:
    """The first place where two values of JSON differ, with both; keys that say nothing are passed over."""
    if isinstance(behind, Mapping) and isinstance(front, Mapping):
        aside = _ASIDE | ({"name"} if not path else set())
        for key in [*behind, *(key for key in front if key not in behind and path)]:
            if key in aside or (key not in front and behind[key] in (None, False, [], {})):
                continue
            if key not in behind and front[key] in (None, False, [], {}):
                continue
            if (fault := _differs(behind.get(key, ...), front.get(key, ...), f"{path}.{key}".lstrip("."))) is not None:
                return fault
        return None
    if isinstance(behind, list) and isinstance(front, list):
        if len(behind) != len(front):
            return f"{path} has {len(front)} of {len(behind)} entries: {_short(front)} for {_short(behind)}"
        faults = (
            _differs(one, other, f"{path}.{place}")
            for place, (one, other) in enumerate(zip(behind, front, strict=True))
        )
        return next((fault for fault in faults if fault is not None), None)
    same = behind == front and isinstance(behind, bool) == isinstance(front, bool)
    return None if same else f"{path} is {_short(front)}, was {_short(behind)}"


def _short(value: Any) -> str:
    text = "absent" if value is ... else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _requests(kind: str, listed: Mapping[str, Any], own: bool) -> list[_Asked]:
    """The requests that show what one listed thing answers; none where asking might change something."""
    if kind == "resources":
        return [lambda client, name: client.read_resource(name)]
    if kind == "prompts":
        needed = {each["name"]: "calm" for each in listed.get("arguments", ()) if each.get("required")}
        return [lambda client, name: client.get_prompt(name, needed)]
    if kind != "tools":
        return []
    harmless = bool((listed.get("annotations") or {}).get("readOnlyHint")) and not listed["inputSchema"].get("required")
    if not own and not harmless:
        return []
    arguments = _ECHOED if own and listed["name"] == "echo" else {}
    return [lambda client, name: client.call_tool(name, arguments)]


async def _answers(request: _Asked, server: Any, proxy: Any, name: str, here: str) -> str | None:
    """Ask both for the same; the first difference of their answers."""
    behind = await _answer(request, server, name)
    front = await _answer(request, proxy, here)
    if "refused" in behind and "refused" in front:
        return None
    return _differs(behind, front, "answer")


async def _answer(request: _Asked, client: Any, name: str) -> dict[str, Any]:
    try:
        async with asyncio.timeout(_SECONDS):
            return _plain(await request(client, name))
    except Exception as error:  # of a server that we know nothing about
        return {"refused": redact(describe(error))[:_LONGEST]}


if __name__ == "__main__":
    serve()
