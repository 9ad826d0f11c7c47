"""The operational suites on memories told in a file: a service on loopback, an MCP server that is started; what they
lack is said.
"""

import json
import sys

import pytest

from context_bench.core.errors import BadInput, BadSpec
from context_bench.memory.doctor import examine
from context_bench.memory.ops import SUITES, run_suites
from context_bench.memory.protocol import Item
from context_bench.memory.systems import make_memory
from context_bench.memory.systems.mcp import from_dict

from .test_memory_http import FILE, Notes, serving

#: Keeps what it is told under the names that it is given, in a file; says nothing of them, finds by single words and
#: has no namespaces.
GRAPH = """
import json, pathlib, re, sys, threading
from mcp.server.mcpserver import MCPServer

server, path, lock = MCPServer("graph"), pathlib.Path(sys.argv[1]), threading.Lock()

def load():
    return json.loads(path.read_text()) if path.exists() else {}

def changed(change):
    with lock:
        kept = load()
        change(kept)
        path.write_text(json.dumps(kept))
    return "done"

@server.tool()
def create(entities: list[dict]) -> str:
    return changed(lambda kept: [kept.setdefault(one["name"], one["says"]) for one in entities])

@server.tool()
def look(query: str) -> dict:
    words = set(re.findall(r"\\w+", query.lower()))
    with lock:
        kept = load()
    found = [(len(words & set(re.findall(r"\\w+", says[0].lower()))), name, says) for name, says in kept.items()]
    best = sorted((one for one in found if one[0]), key=lambda one: -one[0])[:10]
    return {"entities": [{"name": name, "says": says} for _, name, says in best]}

@server.tool()
def remove(names: list[str]) -> str:
    return changed(lambda kept: [kept.pop(name, None) for name in names])

server.run("stdio")
"""


def graph(tmp_path, **more):
    program = tmp_path / "graph.py"
    program.write_text(GRAPH)
    return {
        "name": "graph",
        "command": [sys.executable, str(program), str(tmp_path / "kept.json")],
        "add": {
            "tool": "create",
            "arguments": {"entities": [{"name": "{namespace}/{id}", "says": ["{content}"]}]},
            "id": "{namespace}/{id}",
        },
        "search": {"tool": "look", "arguments": {"query": "{query}"}, "hits": "entities", "text": "says.0"},
        "delete": {"tool": "remove", "arguments": {"names": ["{id}"]}},
        **more,
    }


def outcomes(result):
    return {probe.name: probe.outcome for probe in result.probes if probe.kind != "positive control"}


def told(results):
    return [(probe.suite, probe.name, probe.sentence, probe.findings) for result in results for probe in result.failed]


def without(*steps):
    """The file without some of its steps."""
    parts = FILE.split("\n[")
    return "\n[".join(part for part in parts if part.partition("]")[0] not in steps)


async def test_a_service_without_stats_goes_through_every_suite(tmp_path):
    async with serving(Notes().handle) as url:
        path = tmp_path / "memory.toml"
        path.write_text(without("stats", "update").replace("{url}", url).replace("{{", "{").replace("}}", "}"))
        results = await run_suites(f"http:{path}", SUITES, scale=0.2)
    assert [result.suite for result in results] == list(SUITES)
    assert {result.suite: result.outcome for result in results} == {
        **dict.fromkeys(SUITES, "pass"), "poison": "measured", "update": "measured", "relations": "not applicable",
    }, told(results)  # fmt: skip
    by_suite = {result.suite: outcomes(result) for result in results}
    assert by_suite["growth"]["size"] == "not applicable"
    assert by_suite["growth"]["write loss"] == "pass"
    assert by_suite["delete"]["in the files"] == "not applicable"
    assert by_suite["delete"]["by user"] == "pass"
    assert by_suite["update"]["by update"] == "not applicable"


async def test_a_server_that_keeps_things_under_our_names_is_asked_to_delete_by_them(tmp_path):
    path = tmp_path / "graph.toml"
    path.write_text(
        f"command = {json.dumps(graph(tmp_path)['command'])}\n"
        '[add]\ntool = "create"\narguments = {entities = [{name = "{namespace}/{id}", says = ["{content}"]}]}\nid = '
        '"{namespace}/{id}"\n'
        '[search]\ntool = "look"\narguments = {query = "{query}"}\nhits = "entities"\ntext = "says.0"\n'
        '[delete]\ntool = "remove"\narguments = {names = ["{id}"]}\n'
    )
    results = await run_suites(f"mcp:{path}", ["delete", "update"], scale=0.1, deadline=20)
    by_suite = {result.suite: outcomes(result) for result in results}
    assert {name: by_suite["delete"][name] for name in ("by id: exact text", "by id: nothing else", "after restart: exact text")} == {  # noqa: E501
        "by id: exact text": "pass", "by id: nothing else": "pass", "after restart: exact text": "pass",
    }  # fmt: skip
    assert by_suite["delete"]["by user"] == by_suite["update"]["by update"] == "not applicable"
    assert not {"error"} & {outcome for suite in by_suite.values() for outcome in suite.values()}, told(results)
    assert json.loads((tmp_path / "kept.json").read_text()) == {}  # nothing of ours is left in it
    (found,) = await run_suites(f"mcp:{path}", ["isolation"])  # and so it is empty enough for the next time
    assert outcomes(found) == {"isolation": "not applicable"}


async def test_names_that_we_gave_are_ids_and_what_was_added_can_be_taken_back(tmp_path):
    memory = from_dict(graph(tmp_path))
    try:
        assert {"delete"} <= memory.capabilities
        receipts = await memory.add([Item("t1", "The cobalt key is in box 42."), Item("t2", "Ann has a boat.")])
        assert [receipt.memory_id for receipt in receipts] == ["context-bench/t1", "context-bench/t2"]
        assert await memory.delete("context-bench/t2")
        await memory.flush(1)  # the last one added is not waited for: it is gone
        assert await memory.search("boat", 3) == []
        await memory.reset()
        assert await memory.search("cobalt", 3) == []
    finally:
        await memory.close()
    with pytest.raises(BadSpec, match=r"\[add\]: \{query\} is not known there"):
        from_dict(graph(tmp_path, add={**graph(tmp_path)["add"], "id": "{query}"}))
    with pytest.raises(BadSpec, match=r"\[search\]: id is expected to be a path"):
        from_dict(graph(tmp_path, search={**graph(tmp_path)["search"], "id": "{id}"}))


async def test_what_a_namespace_that_cannot_be_emptied_still_holds_is_said(tmp_path):
    """`reset` of a service without [delete_all] goes on in a new namespace; that is no emptying."""
    for steps, found in (
        (("delete_all",), "the canaries were deleted"),
        (("delete_all", "delete"), "4 canaries stay in it"),
    ):
        service = Notes()
        async with serving(service.handle) as url:
            path = tmp_path / "memory.toml"
            path.write_text(without(*steps).replace("{url}", url).replace("{{", "{").replace("}}", "}"))
            memory = make_memory(f"http:{path}")
            tidied = (await examine(memory))[-1]
            await memory.close()
        assert (tidied.name, tidied.detail.partition(";")[0]) == ("tidy up", found)
        assert sum(map(len, service.users.values())) == (0 if "deleted" in found else 4)


async def test_a_memory_without_namespaces_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "kept.json").write_text(json.dumps({"mine": ["What I remember."]}))
    with pytest.raises(BadInput, match="is not empty"):
        await run_suites(lambda: from_dict(graph(tmp_path)), ["delete"])
    assert len(json.loads((tmp_path / "kept.json").read_text())) == 1


#: The tools of the two servers whose presets are bundled, over a dict; the faults are those that were once shipped.
KNOWN = """
import asyncio, hashlib, json, sys
from datetime import UTC, datetime
from mcp.server.mcpserver import MCPServer

server, fault, kept, removed, links = MCPServer("known"), sys.argv[1], {}, {}, []

@server.tool()
async def create_entities(entities: list[dict]) -> dict:
    before = dict(kept)
    await asyncio.sleep(0.01)
    now = before if fault == "no lock" else kept
    now.update((one["name"], one["observations"]) for one in entities)
    kept.clear() if fault == "no lock" else None
    kept.update(now)
    return {"entities": entities}

def graph(names, both):
    nodes = [{"name": name, "observations": kept[name]} for name in kept if name in names]
    needed = all if both else any
    shown = [one for one in links if needed(one[end] in names for end in ("from", "to"))]
    return {"entities": nodes, "relations": shown}

@server.tool()
def search_nodes(query: str) -> dict:
    return graph({name for name, says in kept.items() if query.lower() in says[0].lower()}, True)

@server.tool()
def read_graph() -> dict:
    return graph(set(kept), True)

@server.tool()
def open_nodes(names: list[str]) -> dict:
    return graph(set(names), fault == "both ends")

@server.tool()
def delete_entities(entityNames: list[str]) -> str:
    for name in entityNames:
        kept.pop(name, None)
    links[:] = [one for one in links if one["from"] in kept and one["to"] in kept]
    return "done"

@server.tool()
def create_relations(relations: list[dict]) -> str:
    links.extend(relations)
    return "done"

def told(found):
    lines = [f"{n}. {text}\\n   Hash: {key}\\n   Created: now [untagged]" for n, (key, text) in enumerate(found, 1)]
    return f"Found {len(lines)} memories (mode: semantic)\\n\\n" + "\\n\\n".join(lines)

@server.tool()
def memory_store(content: str, conversation_id: str = "", metadata: dict | None = None) -> str:
    key = hashlib.sha256(content.strip().lower().encode()).hexdigest()
    if fault == "tombstones" and key in removed:
        return "Error storing memory: UNIQUE constraint failed"
    kept[key] = content
    return f"Memory stored successfully (hash: {key})"

@server.tool()
def memory_search(query: str = "", limit: int = 10, after: str = "", before: str = "") -> str:
    if after:
        inside = after <= datetime.now(UTC).date().isoformat() <= before
        return told([*kept.items(), *(removed.items() if fault == "by time" else ())] if inside else [])
    words = set(query.lower().split())
    return told(sorted(kept.items(), key=lambda one: -len(words & set(one[1].lower().split())))[:limit])

@server.tool()
def memory_list(page: int = 1, page_size: int = 20) -> dict:
    some = list(kept.items())[(page - 1) * page_size : page * page_size]
    return {"memories": [{"content": text, "content_hash": key} for key, text in some]}

@server.tool()
def memory_delete(content_hash: str = "", tags: list[str] | None = None) -> str:
    for key in [content_hash] if content_hash else list(kept):
        removed[key] = kept.pop(key, "")
    return "Deleted"

server.run("stdio")
"""


@pytest.fixture
def known(tmp_path):
    program = tmp_path / "known.py"
    program.write_text(KNOWN)

    async def found(preset, fault, suites):
        spec = f"mcp:preset={preset},SOME_FOLDER={{dir}},command={sys.executable} {program} {fault}"
        results = await run_suites(spec, suites, scale=0.25, deadline=30, many=110)
        return {f"{result.suite}: {name}": outcome for result in results for name, outcome in outcomes(result).items()}

    return found


async def test_the_tools_of_known_servers_are_asked_for_all_that_they_offer(known):
    found = await known("server-memory", "none", ["relations", "residue", "concurrency"])
    assert not {"fail", "error"} & set(found.values()), found
    assert {name for name, outcome in found.items() if outcome == "pass"} >= {
        *("relations: asked by subject", "relations: end deleted", "residue: listed", "residue: by its id"),
        *("residue: stored again", "concurrency: lost", "concurrency: at once"),
    }
    found = await known("mcp-memory-service", "none", ["residue"])
    assert {name for name, outcome in found.items() if outcome == "pass"} == {
        *("residue: by time", "residue: listed", "residue: stored again", "residue: more than a page"),
    }, found


@pytest.mark.parametrize(
    ("preset", "fault", "probe"),
    [
        ("server-memory", "both ends", "relations: asked by subject"),
        ("server-memory", "no lock", "concurrency: at once"),
        ("mcp-memory-service", "by time", "residue: by time"),
        ("mcp-memory-service", "tombstones", "residue: stored again"),
    ],
)
async def test_faults_that_known_servers_had_are_found(known, preset, fault, probe):
    found = await known(preset, f"'{fault}'", [probe.partition(":")[0]])
    assert found[probe] == "fail", found


def test_a_preset_says_what_it_does_not_know():
    with pytest.raises(BadInput, match="one of server-memory, mcp-memory-service, found 'other'"):
        make_memory("mcp:preset=other")
    with pytest.raises(BadInput, match=r"'port=3' is not known there; expected preset=NAME"):
        make_memory("mcp:preset=server-memory,port=3")
    with pytest.raises(BadSpec, match="names in capitals with texts that are no secrets"):
        make_memory("mcp:preset=server-memory,SOME_API_KEY=abc")


def test_a_pattern_has_to_name_what_it_finds(tmp_path):
    for pattern, fault in (("(", "missing"), ("a", "it names no group")):
        with pytest.raises(BadSpec, match=fault):
            from_dict(graph(tmp_path, search={**graph(tmp_path)["search"], "pattern": pattern}))
