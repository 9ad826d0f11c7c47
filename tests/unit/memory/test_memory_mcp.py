"""A memory behind a real MCP server, started as a program: its tools, its results in every form, its failures."""

import asyncio
import contextlib
import json
import os
import socket
import sys

import pytest

from context_bench.core.errors import BadInput, BadReply, BadSpec, TimedOut, Unreachable
from context_bench.llm.background import run_sync
from context_bench.memory.protocol import Hit, Item
from context_bench.memory.systems import make_memory
from context_bench.memory.systems.mcp import from_dict
from context_bench.testing.memory_contract import acheck_memory

ITEMS = [Item("t1", "The cobalt key is in box 42.", time="2024-03-01"), Item("t2", "Ann has a boat.", speaker="Ann")]

SERVER = """
import os, re, sys, time
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("notes")
kept, count = {}, 0

@server.tool()
def remember(text: str, user: str, source: str = "", when: str = "") -> dict:
    global count
    if "forbidden" in text:
        raise ToolError("that is not kept; key sk-abcdefgh12345678")
    count += 1
    kept[f"m{count}"] = {"id": f"m{count}", "text": text, "user": user, "source": source, "when": when}
    return {"id": f"m{count}"}

def best(query, user, k):
    words = set(re.findall(r"\\w+", query.lower()))
    found = [(len(words & set(re.findall(r"\\w+", one["text"].lower()))), one) for one in kept.values() if one["user"] == user]
    return [{**one, "score": score} for score, one in sorted((x for x in found if x[0]), key=lambda x: -x[0])[:k]]

@server.tool()
def recall(query: str, user: str, k: int) -> list[dict]:
    return best(query, user, k)

@server.tool()
def recall_text(query: str, user: str, k: int) -> str:
    return "\\n\\n".join(one["text"] for one in best(query, user, k))

@server.tool()
def forget(id: str) -> bool:
    return kept.pop(id, None) is not None

@server.tool()
def forget_user(user: str) -> bool:
    for id in [id for id, one in kept.items() if one["user"] == user]:
        del kept[id]
    return True

@server.tool()
def sleep() -> str:
    time.sleep(60)

@server.tool()
def die() -> str:
    print("out of cheese", file=sys.stderr, flush=True)
    os._exit(3)

@server.tool()
def environment(user: str = "") -> list[str]:
    return sorted(os.environ)

if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
"""  # noqa: E501


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "notes.py"
    path.write_text(SERVER)
    return [sys.executable, str(path)]


def table(command=None, **more):
    found = {
        "name": "notes",
        "timeout": 20,
        "add": {
            "tool": "remember",
            "arguments": {"text": "{content}", "user": "{namespace}", "source": "{id}", "when": "{time}"},
            "id": "id",
        },
        "search": {
            "tool": "recall",
            "arguments": {"query": "{query}", "user": "{namespace}", "k": "{k}"},
            "hits": "result",
            "score": "score",
            "id": "id",
            "source": "source",
            "time": "when",
        },
        "delete": {"tool": "forget", "arguments": {"id": "{id}"}},
        "delete_all": {"tool": "forget_user", "arguments": {"user": "{namespace}"}},
        **more,
    }
    return found if command is None else {**found, "command": command}


@contextlib.asynccontextmanager
async def opened(found):
    memory = from_dict(found)
    try:
        yield memory
    finally:
        await memory.close()


async def test_it_keeps_the_contract(program):
    async with opened(table(program)) as memory:
        rounds = iter(range(1000))
        assert await acheck_memory(lambda: memory.namespace(f"round {next(rounds)}")) == []


async def test_tools_are_called_and_results_read_in_every_form(program):
    async with opened(table(program)) as memory:
        ann = memory.namespace("ann")
        assert [receipt.memory_id for receipt in await ann.add(ITEMS)] == ["m1", "m2"]
        await ann.flush(5)
        assert await ann.search("the cobalt key", 3) == [
            Hit("The cobalt key is in box 42.", 3.0, ("t1",), "m1", "2024-03-01")
        ]
        assert await memory.search("the cobalt key", 3) == []
        (receipt,) = await ann.add([Item("x", "something forbidden")])
        assert receipt.error.startswith("Refused: notes: remember refused:")
        assert "not kept" in receipt.error
        assert "sk-abcdefgh" not in receipt.error
        await ann.delete("m1")
        assert await ann.search("cobalt", 3) == []
        for form, wanted in (("lines", ["Ann: Ann has a boat."]), ("blocks", ["Ann: Ann has a boat."])):
            search = {"tool": "recall_text", "arguments": table()["search"]["arguments"]}
            plain = from_dict(
                table(program, format=form, search=search, delete={"tool": "forget", "arguments": {"id": "{id}"}})
            )
            plain._connection = memory._connection  # the same server
            assert [hit.text for hit in await plain.namespace("ann").search("boat", 3)] == wanted
        wrong = from_dict(
            table(program, search={"tool": "environment", "arguments": {"user": "{query}"}, "hits": "nothing.here"})
        )
        wrong._connection = memory._connection
        with pytest.raises(BadReply, match=r"list at 'nothing\.here'"):
            await wrong.search("?", 3)


async def test_the_server_is_given_only_the_variables_named(program, monkeypatch):
    monkeypatch.setenv("NOTES_KEY", "sesame-open-1234567")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-somebody-elses-key")
    search = {"tool": "environment", "arguments": {"user": "{query}"}, "hits": "result", "text": ""}
    async with opened(table(program, env=["NOTES_KEY", "NOT_SET"], search=search)) as memory:
        names = {hit.text for hit in await memory.search("?", 3)}
        assert "NOTES_KEY" in names
        assert not {"OPENAI_API_KEY", "NOT_SET"} & names
        assert "sesame" not in repr(memory.fingerprint())


async def test_what_goes_wrong_is_said_as_what_it_is(program, tmp_path):
    async with opened(table(program, timeout=0.3, search={"tool": "sleep", "arguments": {"x": "{query}"}})) as memory:
        with pytest.raises(TimedOut, match=r"0\.3 s"):
            await memory.search("?", 1)
    async with opened(table(program, search={"tool": "die", "arguments": {"x": "{query}"}})) as memory:
        for _ in range(2):
            with pytest.raises(Unreachable):
                await memory.search("?", 1)
    async with opened(table(program, search={"tool": "look_up", "arguments": {"q": "{query}"}})) as memory:
        with pytest.raises(BadInput, match="no tool look_up; it has: remember, recall"):
            await memory.add(ITEMS)
    async with opened(table([str(tmp_path / "none")])) as memory:
        with pytest.raises(Unreachable, match="no session with its server"):
            await memory.search("?", 1)
    async with opened(table([sys.executable, "-c", "import sys; sys.exit('no licence')"])) as memory:
        with pytest.raises(Unreachable, match="no licence"):
            await memory.search("?", 1)


async def test_a_server_at_a_url(program):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *program, str(port), stdout=quiet, stderr=quiet, env={**os.environ, "NO_PROXY": "127.0.0.1"}
    )
    try:
        while True:
            with contextlib.suppress(OSError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            await asyncio.sleep(0.05)
        async with opened({**table(), "url": f"http://127.0.0.1:{port}/mcp"}) as memory:
            await memory.add(ITEMS)
            assert [hit.source_ids for hit in await memory.search("cobalt", 1)] == [("t1",)]
    finally:
        process.terminate()
        await process.wait()


def test_from_a_file_on_any_loop(program, tmp_path):
    path = tmp_path / "memory.toml"
    arguments = 'arguments = {user = "{namespace}", '
    path.write_text(
        f'command = {json.dumps(program)}\n[add]\ntool = "remember"\n{arguments}text = "{{content}}"}}\n'
        f'[search]\ntool = "recall"\n{arguments}query = "{{query}}", k = "{{k}}"}}\nhits = "result"\n'
    )
    memory = make_memory(f"mcp:{path}")
    assert (memory.name, memory.capabilities) == ("memory", {"add", "search", "namespaces", "persistent"})
    asyncio.run(memory.add(ITEMS))  # one loop to add, another one to search
    assert [hit.text for hit in run_sync(memory.search("cobalt", 1))] == ["[2024-03-01] The cobalt key is in box 42."]
    asyncio.run(memory.close())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"command": None}, "one of `command`"),
        ({"command": ["a"], "url": "http://x"}, "one of `command`"),
        ({"command": "notes --stdio"}, "`command` is expected to be a list"),
        ({"command": ["a"], "format": "xml"}, "`format` is json, lines, blocks"),
        ({"command": ["a"], "add": {"arguments": {"t": "{text}"}}}, r"\[add\] has no `tool`"),
        ({"url": "notes:8000"}, "`url` is expected"),
    ],
)
def test_faults_of_a_file(more, words):
    with pytest.raises(BadSpec, match=words):
        from_dict({key: value for key, value in {**table(), **more}.items() if value is not None})


def test_a_url_alone_names_no_tools():
    with pytest.raises(BadInput, match="a file is expected"):
        make_memory("mcp:http://127.0.0.1:8000/mcp")
