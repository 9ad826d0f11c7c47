"""Any memory behind an MCP server, told in a file: which tools add and search, with what, and where in their results
things are.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import IO, Any

from context_bench.core.addresses import EXPECTED, fault_of, shown
from context_bench.core.errors import BadInput, BadReply, MissingExtra, Refused, TimedOut, Unreachable, describe
from context_bench.core.keys import load_json
from context_bench.core.secrets import names_a_secret
from context_bench.core.templates import fill, read_description
from context_bench.llm.background import BACKGROUND
from context_bench.llm.redact import redact
from context_bench.memory.systems.described import Described
from context_bench.memory.systems.descriptions import STEPS, DescriptionReader, MemoryDescription, MemoryStep
from context_bench.memory.systems.http_memory import auth_of

SCHEMES = {"mcp": "from_spec"}

_KEYS: dict[str, tuple[type, ...]] = {"tool": (str,), "arguments": (dict,), "pattern": (str,)}
_KNOWN = Path(__file__).with_name("known_servers.toml")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_SEVERAL = ("search", "list", "between", "related")
_FORMATS = ("json", "lines", "blocks")
_CLOSED = -32000  # what the library calls a connection that is closed
_START = 30.0  # seconds at least for a server to start in: some of them are downloaded then


class MCPMemory(Described):
    """`mcp:FILE`: a memory whose `[add]`, `[search]`, … are tools of an MCP server, started by `command` or reached at
    `url`.

    ```toml
    name = "notes"
    command = ["notes-mcp", "--stdio"]
    env = ["NOTES_KEY"]                 # variables that the server is given, by name; it gets no others but PATH, HOME and the like
    [add]
    tool = "remember"
    arguments = {text = "{content}", user = "{namespace}", source = "{id}"}
    id = "id"
    [search]
    tool = "recall"
    arguments = {query = "{query}", limit = "{k}", user = "{namespace}"}
    hits = "result"
    text = "text"
    source = "source"
    ```

    Other steps, paths and `wait` are those of `HTTPMemory`. `format`: how a result is read: "json" (its structured
    content, else its text as JSON), "lines" (every line a memory) or "blocks" (every text block a memory). `pattern` of
    a step: a regular expression with named groups, for a tool that answers in words; paths then name its groups. A text
    that does not match is a refusal, where one memory is expected. `preset`: a server whose tools are known; what the
    file says beside it goes first. With `url`: `[auth]` as there. Needs the extra `memory`.
    """  # noqa: E501

    def __init__(
        self, description: MemoryDescription, namespace: str = "context-bench", *, connection: _Connection | None = None
    ) -> None:
        super().__init__(description, namespace)
        self._owned = connection is None
        self._connection = connection or _Connection(description)

    def _isolated(self, namespace: str) -> MCPMemory:
        return MCPMemory(self.description, namespace, connection=self._connection)

    async def close(self) -> None:
        """End the server, unless this is a namespace of one that lives on."""
        if self._owned:
            await _there(self._connection.close())

    async def _send(self, step: MemoryStep, values: Mapping[str, Any], seconds: float) -> Any:
        arguments = fill(step.call.get("arguments", {}), values)
        result = await _there(self._connection.call(str(step.call["tool"]), arguments, seconds))
        texts = [block.text for block in result.content if getattr(block, "type", None) == "text"]
        if result.is_error:
            raise Refused(
                f"{self.name}: {step.call['tool']} refused: {redact(' '.join(texts))[:500] or 'it said nothing'}"
            )
        return self._document(result.structured_content, texts, step)

    def _document(self, structured: Any, texts: list[str], step: MemoryStep) -> Any:
        pattern = step.call.get("pattern")
        if pattern is not None:
            text = "\n".join(texts)
            entries = [match.groupdict() for match in re.finditer(pattern, text)]
            if step.name in _SEVERAL:
                return entries
            if not entries:
                raise Refused(f"{self.name}: {step.call['tool']} said: {redact(text)[:500] or 'nothing'}")
            return entries[0]
        if self.description.more["format"] != "json" and step.name == "search":
            lines = (
                texts
                if self.description.more["format"] == "blocks"
                else [line for text in texts for line in text.splitlines()]
            )
            return [line for line in lines if line.strip()]
        if structured is not None:
            return structured
        text = "\n".join(texts)
        try:
            return load_json(text)
        except ValueError:
            if step.name == "search":
                raise BadReply(
                    f"{self.name}: {step.call['tool']} is expected to give JSON, found {text!r:.200}; for plain text "
                    'give format = "lines"'
                ) from None
            return text


class _Connection:
    """One session with a server, held by a task of its own on the background loop; all twins share it."""

    def __init__(self, description: MemoryDescription) -> None:
        self._description = description
        self._lock: asyncio.Lock | None = None
        self._task: asyncio.Task[None] | None = None
        self._client: Any = None
        self._over: asyncio.Event | None = None
        self._ended: str | None = None

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        name = self._description.name
        client = await self._connected(seconds)
        error = importlib.import_module("mcp").MCPError
        try:
            async with asyncio.timeout(seconds):
                return await client.call_tool(tool, dict(arguments))
        except TimeoutError:
            raise TimedOut(f"{name}: {tool} had not ended after {seconds:g} s") from None
        except error as failure:
            if failure.code == _CLOSED:
                raise Unreachable(f"{name}: its server went away during {tool}") from None
            raise Refused(f"{name}: {tool}: {redact(str(failure))[:500]}") from None
        except (OSError, RuntimeError, CancelledError) as failure:
            raise Unreachable(
                f"{name}: the connection to its server broke during {tool}: {describe(failure)}"
            ) from None
        except Exception as failure:
            if type(failure).__module__.partition(".")[0] != "anyio":
                raise
            raise Unreachable(
                f"{name}: the connection to its server broke during {tool}: {type(failure).__name__}"
            ) from None

    async def close(self) -> None:
        """End the session and, if we started it, the server."""
        task, self._task, self._client = self._task, None, None
        if task is not None and self._over is not None:
            self._over.set()
            with contextlib.suppress(Exception):
                await task

    async def _connected(self, seconds: float) -> Any:
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._client is None:
                if self._ended is not None:
                    raise Unreachable(self._ended)
                await self._connect(max(_START, seconds))
            return self._client

    async def _connect(self, seconds: float) -> None:
        self._over = asyncio.Event()
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready, self._over))
        name = self._description.name
        try:
            async with asyncio.timeout(seconds):
                self._client = await ready
        except TimeoutError:
            self._task.cancel()
            raise TimedOut(f"{name}: its server was not ready after {seconds:g} s") from None

    async def _live(self, ready: asyncio.Future[Any], over: asyncio.Event) -> None:
        """Begin and end the session in one task, as its library wants."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            try:
                async with importlib.import_module("mcp").Client(self._transport(errors)) as client:
                    await self._check(client)
                    ready.set_result(client)
                    await over.wait()
            except Exception as error:
                failure = self._failed(error, errors)
                self._client, self._ended = None, str(failure)
                if not ready.done():
                    ready.set_exception(failure)

    def _failed(self, error: BaseException, errors: IO[str]) -> BadInput | Unreachable:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, BadInput):
            return error
        errors.seek(0)
        said = [line for line in redact(errors.read()[-4000:]).splitlines() if line.strip()]
        more = f"; it said: {said[-1][:300]}" if said else ""
        return Unreachable(f"{self._description.name}: no session with its server: {describe(error)}{more}")

    async def _check(self, client: Any) -> None:
        """The tools that the file names have to be there: better said before anything is stored."""
        offered: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            offered += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        wanted = {str(step.call["tool"]) for step in self._description.steps.values()}
        if missing := sorted(wanted - set(offered)):
            raise BadInput(
                f"{self._description.name}: its server has no tool {', '.join(missing)}; it has: "
                f"{', '.join(offered) or 'none'}"
            )

    def _transport(self, errors: IO[str]) -> Any:
        more = self._description.more
        if more["command"] is None:
            http = importlib.import_module("mcp.client.streamable_http")
            headers = {} if more["key"] is None else {more["key"].header: more["key"].value}
            return http.streamable_http_client(more["url"], http_client=http.create_mcp_http_client(headers=headers))
        stdio = importlib.import_module("mcp.client.stdio")
        program, *args = more["command"]
        given = {name: os.environ[name] for name in more["env"] if name in os.environ} | more["variables"]
        return stdio.stdio_client(stdio.StdioServerParameters(command=program, args=args, env=given), errlog=errors)


async def _there(work: Any) -> Any:
    """Do `work` on the background loop, wherever we are: a session lives on the loop it was begun on."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, BACKGROUND.loop()))


def from_spec(target: str) -> MCPMemory:
    """Make the memory of an `mcp:` spec: a description's file, or `preset=NAME`, `command=…` and `VARIABLE=value`."""
    if target.startswith("preset="):
        return from_dict(_of_preset(target), f"mcp:{target}")
    if not target or target.startswith(("http:", "https:", "//")):
        raise BadInput(
            f"mcp:{target}: a file is expected that names the server and its tools, as in mcp:memory.toml "
            "(docs/guide/memory.md)"
        )
    return from_dict(read_description(Path(target)), target)


def from_dict(given: Mapping[str, Any], where: str = "the description of the MCP memory") -> MCPMemory:
    """From what such a file says; `BadSpec` lists every fault."""
    if importlib.util.find_spec("mcp") is None:
        raise MissingExtra("mcp:", "memory")
    given = _completed(given, where)
    reading = DescriptionReader(given, where, call=_KEYS, needed="tool")
    command, url = reading.take("command", list), reading.take("url", str)
    env, form, auth = reading.take("env", list, []), reading.take("format", str, "json"), reading.take("auth", dict)
    if (command is None) == (url is None):
        reading.faults.append("one of `command` (a list of arguments) and `url` is needed")
    if command is not None and (not command or not all(isinstance(word, str) for word in command)):
        reading.faults.append('`command` is expected to be a list of arguments, as in ["program", "--stdio"]')
    if url is not None and (fault := fault_of(url)) is not None:
        reading.faults.append(f"`url` is expected to be {EXPECTED}; found {shown(url)!r}: {fault}")
    if not all(isinstance(name, str) for name in env):
        reading.faults.append("`env` is expected to be a list of names of variables")
    if form not in _FORMATS:
        reading.faults.append(f"`format` is {', '.join(_FORMATS)}, found {form!r:.40}")
    if form != "json" and isinstance(given.get("search"), Mapping) and "text" not in given["search"]:
        given = {**given, "search": {**given["search"], "text": ""}}
        reading.given = given
    variables = reading.take("variables", dict, {})
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name) or not isinstance(value, str) or names_a_secret(name):
            reading.faults.append(
                "`variables` are names in capitals with texts that are no secrets (name those in `env`), found "
                f"{name!r:.40}"
            )
    for name in STEPS:
        step = given.get(name)
        if isinstance(step, Mapping) and isinstance(step.get("pattern"), str) and (fault := _fault(step["pattern"])):
            reading.faults.append(
                f"[{name}]: `pattern` is expected to be a regular expression with named groups: {fault}"
            )
    key = None if auth is None else auth_of(reading, auth)
    return MCPMemory(
        reading.done({"command": command, "url": url, "env": env, "variables": variables, "format": form, "key": key})
    )


def _fault(pattern: str) -> str | None:
    try:
        return None if re.compile(pattern).groupindex else "it names no group"
    except re.error as error:
        return str(error)


def _completed(given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The description with the steps of the server that its `preset` names."""
    if "preset" not in given:
        return given
    known = read_description(_KNOWN)
    if given["preset"] not in known:
        raise BadInput(f"{where}: `preset` is one of {', '.join(known)}, found {given['preset']!r:.40}")
    return {**known[given["preset"]], **{name: value for name, value in given.items() if name != "preset"}}


def _of_preset(target: str) -> dict[str, Any]:
    given: dict[str, Any] = {"variables": {}}
    for part in target.split(","):
        name, equals, value = part.partition("=")
        if name in ("preset", "command") and equals:
            given[name] = shlex.split(value) if name == "command" else value
        elif equals and _VARIABLE.fullmatch(name):
            given["variables"][name] = value
        else:
            raise BadInput(
                f"mcp:{target}: {part!r} is not known there; expected preset=NAME, command=PROGRAM WITH ARGUMENTS, "
                "or VARIABLE=value for the server's environment"
            )
    return given
