"""A memory told in a file, against a server on loopback: what is sent, how replies are read, what is repeated and what
is kept secret.
"""

import asyncio
import contextlib
import json
import re
from collections import Counter

import pytest
from aiohttp import web
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput, BadReply, BadSpec, Refused, ServerFailed, TimedOut, Unreachable
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.core.templates import at, fill, names_in
from context_bench.memory.protocol import Hit, Item, NotSupported
from context_bench.memory.systems import make_memory
from context_bench.memory.systems.adapting import Answer
from context_bench.memory.systems.http_memory import from_dict, from_spec
from context_bench.testing.memory_contract import acheck_memory

BIKE = Item("D1:1", "I bought a red bike.", speaker="Ann", time="2023-05-08", session="1")
BOAT = Item("D1:2", "The boat is blue.", role="assistant")

FILE = """
name = "notes"
base_url = "{url}"
timeout = 5
[add]
path = "/v1/users/{namespace}/notes"
body = {{text = "{content}", metadata = {{source_id = "{id}", time = "{time}"}}}}
id = "id"
[search]
path = "/v1/users/{namespace}/search"
body = {{query = "{query}", limit = "{k}"}}
hits = "results"
text = "text"
score = "score"
id = "id"
source = "metadata.source_id"
time = "metadata.time"
[update]
method = "PUT"
path = "/v1/users/{namespace}/notes/{id}"
body = {{text = "{content}"}}
[delete]
method = "DELETE"
path = "/v1/users/{namespace}/notes/{id}"
[delete_all]
method = "DELETE"
path = "/v1/users/{namespace}"
[stats]
method = "GET"
path = "/v1/users/{namespace}/stats"
items = "count"
bytes = "size"
"""


class Notes:
    """A small service that remembers. `hidden`: looks that pass before what was added can be found; `broken`: 503s
    before each answer.
    """

    def __init__(self, hidden=0, broken=0, key=None):
        self.users, self.seen, self.hidden, self.broken, self.key = {}, [], hidden, broken, key
        self.looks, self.failures, self.count = Counter(), Counter(), 0

    async def handle(self, request):
        self.seen.append((request.method, request.raw_path, dict(request.headers), await request.text()))
        if self.key and request.headers.get("Authorization") != f"Token {self.key}":
            return web.json_response({"error": f"bad key {request.headers.get('Authorization')}"}, status=401)
        kind = request.match_info["kind"]
        self.failures[kind] += 1
        if self.failures[kind] <= self.broken:
            return web.json_response({"error": "busy"}, status=503)
        held = self.users.setdefault(request.match_info["user"], {})
        body = json.loads(await request.text() or "null")
        return getattr(self, f"_{request.method.lower()}_{kind}")(held, request.match_info["rest"].strip("/"), body)

    def _post_notes(self, held, rest, body):
        self.count += 1
        held[f"n{self.count}"] = body
        return web.json_response({"id": f"n{self.count}"}, status=201)

    def _post_search(self, held, rest, body):
        self.looks[id(held)] += 1
        shown = list(held.items()) if self.looks[id(held)] > self.hidden else []
        asked = set(re.findall(r"\w+", body["query"].lower()))
        found = [(len(asked & set(re.findall(r"\w+", note["text"].lower()))), ident, note) for ident, note in shown]
        best = sorted((one for one in found if one[0]), key=lambda one: -one[0])[: body["limit"]]
        return web.json_response({"results": [{"id": ident, "score": score, **note} for score, ident, note in best]})

    def _put_notes(self, held, rest, body):
        if rest not in held:
            return web.Response(status=404)
        held[rest] = {**held[rest], **body}
        return web.Response(status=204)

    def _delete_notes(self, held, rest, body):
        return web.Response(status=204 if held.pop(rest, None) else 404)

    def _delete_(self, held, rest, body):
        held.clear()
        return web.Response(status=204)

    def _get_stats(self, held, rest, body):
        return web.json_response({"count": len(held), "size": sum(len(note["text"]) for note in held.values())})


@contextlib.asynccontextmanager
async def serving(handle, path="/v1/users/{user}{sep:/?}{kind:[a-z]*}{rest:.*}"):
    app = web.Application()
    app.router.add_route("*", path, handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def notes(tmp_path, more="", **options):
    service = Notes(**options)
    async with serving(service.handle) as url:
        path = tmp_path / "memory.toml"
        path.write_text(more + FILE.replace("{url}", url).replace("{{", "{").replace("}}", "}"))
        memory = make_memory(f"http:{path}")
        yield memory, service
        await memory.close()


async def test_it_keeps_the_contract(tmp_path):
    async with notes(tmp_path) as (memory, _):
        rounds = iter(range(1000))
        assert await acheck_memory(lambda: memory.namespace(f"round/{next(rounds)} é")) == []


async def test_what_is_sent_and_what_comes_back(tmp_path):
    async with notes(tmp_path) as (memory, service):
        ann = memory.namespace("Ann / Zoë?")
        first, second = await ann.add([BIKE, BOAT])
        assert (first.item_id, first.memory_id, second.memory_id) == ("D1:1", "n1", "n2")
        assert [json.loads(body) for *_, body in service.seen] == [
            {"text": "Ann: I bought a red bike.", "metadata": {"source_id": "D1:1", "time": "2023-05-08"}},
            {"text": "The boat is blue.", "metadata": {"source_id": "D1:2"}},  # no time, no key
        ]
        assert service.seen[0][:2] == ("POST", "/v1/users/Ann%20%2F%20Zo%C3%AB%3F/notes")
        await ann.flush(5)
        assert await ann.search("bike", 3) == [Hit("Ann: I bought a red bike.", 1.0, ("D1:1",), "n1", "2023-05-08")]
        assert json.loads(service.seen[-1][3]) == {"query": "bike", "limit": 3}
        assert await memory.search("bike", 3) == []
        assert await ann.update("n2", "The boat is green.")
        assert not await ann.update("n9", "?")
        assert await ann.delete("n1")
        assert not await ann.delete("n1")
        assert await ann.stats() == {"items": 1, "bytes": 18}
        await ann.reset()
        assert await ann.stats() == {"items": 0, "bytes": 0}
        assert {
            "namespaces",
            "delete",
            "update",
            "delete_all",
            "stats",
            "scores",
            "source_ids",
            "timestamps",
        } <= memory.capabilities


async def test_flush_looks_until_the_last_item_is_there(tmp_path):
    async with notes(tmp_path, hidden=3) as (memory, service):
        await memory.flush(5)  # nothing was added
        await memory.add([BIKE, BOAT, Item("x", "  ")])
        await memory.flush(5)
        assert len(await memory.search("boat", 1)) == 1
        looks = [json.loads(body)["query"] for method, path, _, body in service.seen if path.endswith("search")]
        assert looks == ["The boat is blue."] * 4 + ["boat"]
    async with notes(tmp_path, hidden=1_000) as (memory, _):
        await memory.add([BIKE])
        with pytest.raises(TimedOut, match=r"did not find the last item added after 0\.1 s"):
            await memory.flush(0.1)
    async with notes(tmp_path, 'wait = "no"\n', hidden=1_000) as (memory, service):
        await memory.add([BIKE])
        await memory.flush(0.1)
        assert len(service.seen) == 1


async def test_only_what_may_be_repeated_is_repeated(tmp_path):
    async with notes(tmp_path, broken=2) as (memory, service):
        (receipt,) = await memory.add([BIKE])
        assert receipt.error.startswith("ServerFailed: HTTP 503")
        assert "busy" in receipt.error
        assert len(service.seen) == 1
        assert await memory.search("bike", 1) == []  # the third attempt
        assert len(service.seen) == 4
    async with notes(tmp_path, broken=100) as (memory, service):
        with pytest.raises(ServerFailed, match="503"):
            await memory.search("bike", 1)
        assert len(service.seen) == 4


async def test_the_key_comes_from_the_environment_and_is_nowhere_shown(tmp_path, monkeypatch):
    auth = '[auth]\nenv = "NOTES_KEY"\nvalue = "Token {key}"\n'
    secret = "sesame-open-1234567"
    monkeypatch.delenv("NOTES_KEY", raising=False)
    with pytest.raises(BadInput, match=r"NOTES_KEY, which is not set"):
        from_dict({"base_url": "http://127.0.0.1:1", "auth": {"env": "NOTES_KEY"}})
    monkeypatch.setenv("NOTES_KEY", secret)
    service = Notes(key=secret)
    async with serving(service.handle) as url:
        path = tmp_path / "memory.toml"
        top, rest = FILE.replace("{url}", url).replace("{{", "{").replace("}}", "}").split("[add]")
        path.write_text(f"{top}{auth}[add]{rest}")
        memory = make_memory(f"http:{path}")
        assert (await memory.add([BIKE]))[0].error is None
        monkeypatch.setenv("NOTES_KEY", "another-key-7654321")
        wrong = make_memory(f"http:{path}")
        with pytest.raises(Refused, match="401") as refused:
            await wrong.search("bike", 1)
        shown = f"{memory!r} {memory.fingerprint()} {vars(memory)} {wrong.description} {refused.value}"
        assert "another-key" not in shown
        assert secret not in shown
        assert "NOTES_KEY" in shown


async def reply_with(response, **more):
    """A memory whose search gets `response`."""

    async def handle(request):
        return response(request) if callable(response) else response

    async with serving(handle, "/{rest:.*}") as url:
        table = {"base_url": url, "timeout": 5, "add": {"path": "/a", "body": "{content}"}, **more}
        table.setdefault("search", {"path": "/s", "query": {"q": "{query}"}, "hits": "hits"})
        return await from_dict(table).search("what?", 3)


async def test_replies_that_are_none():
    with pytest.raises(BadReply, match="expected to send JSON, found '<html>"):
        await reply_with(web.Response(text="<html>login</html>"))
    with pytest.raises(BadReply, match="expected to give a list at 'hits'"):
        await reply_with(web.json_response({"results": []}))
    with pytest.raises(BadReply, match="without any text at 'text'"):
        await reply_with(web.json_response({"hits": [{"memory": "a"}]}))
    with pytest.raises(BadReply, match="expected to be text"):
        await reply_with(web.json_response({"hits": [{"text": 7}]}))
    with pytest.raises(BadReply, match="expected to give a list"):
        await reply_with(web.Response(status=204))
    with pytest.raises(Refused, match="elsewhere"):
        await reply_with(web.Response(status=302, headers={"Location": "http://elsewhere.test/"}))
    with pytest.raises(Refused, match="404"):
        await reply_with(web.Response(status=404))
    with pytest.raises(Unreachable):
        await from_dict(
            {
                "base_url": "http://127.0.0.1:9",
                "timeout": 0.5,
                "add": {"path": "/{id}{text}"},
                "search": {"path": "/{query}"},
            }
        ).search("?", 1)


async def test_nothing_waits_longer_than_it_may():
    over = asyncio.Event()

    async def handle(request):
        await over.wait()
        return web.json_response([])

    async with serving(handle, "/{rest:.*}") as url:
        table = {
            "base_url": url,
            "timeout": 0.1,
            "add": {"path": "/a", "body": "{text}"},
            "search": {"path": "/s", "body": "{query}"},
        }
        with pytest.raises(TimedOut, match=r"no whole reply from .* within 0.1 s"):
            await from_dict(table).search("?", 1)
        with open_ledger(Ledger(deadline=SYSTEM_CLOCK.monotonic() + 0.05)), pytest.raises(TimedOut):
            await from_dict({**table, "timeout": 60}).search("?", 1)
        with (
            open_ledger(Ledger(deadline=SYSTEM_CLOCK.monotonic() - 1)),
            pytest.raises(TimedOut, match="no time was left"),
        ):
            await from_dict(table).search("?", 1)
        over.set()


async def test_a_store_that_has_to_be_opened_a_status_and_an_answer():
    """As services do that give out ids: a place is made once a namespace, and gone when it is emptied."""
    made, seen, polls = [], [], iter(["indexing", "indexing", "ready"])

    async def handle(request):
        seen.append(f"{request.method} {request.path_qs}")
        if request.path == "/graphs":
            made.append((await request.json())["name"])
            return web.json_response({"graph": {"uuid": f"g{len(made)}"}})
        if request.path.endswith("/status"):
            return web.json_response({"state": next(polls)})
        if request.path.endswith("/ask"):
            return web.json_response({"answer": {"text": "It is red."}})
        return web.json_response({})

    async with serving(handle, "/{rest:.*}") as url:
        memory = from_dict({
            "base_url": url,
            "open": {"path": "/graphs", "body": {"name": "{namespace}"}, "id": "graph.uuid"},
            "add": {"path": "/graphs/{space}/episodes", "body": {"text": "{text}", "at": "{time}"}},
            "answer": {"path": "/graphs/{space}/ask", "method": "GET", "query": {"q": "{query}"}, "text": "answer.text"},  # noqa: E501
            "status": {"path": "/graphs/{space}/status", "method": "GET", "ready": "state", "equals": "ready"},
            "delete_all": {"path": "/graphs/{space}", "method": "DELETE"},
        })  # fmt: skip
        assert memory.capabilities == {"add", "answer", "delete_all", "timestamps", "namespaces", "persistent"}
        ann = memory.namespace("ann")
        await ann.reset()
        assert seen == []  # nothing was made, nothing is taken away
        await ann.add([BIKE, BOAT])
        await ann.flush(5)
        assert await ann.answer("Which colour?") == Answer("It is red.")
        await ann.reset()
        await ann.add([BIKE])
        assert made == ["ann", "ann"]
        assert seen == [
            "POST /graphs", "POST /graphs/g1/episodes", "POST /graphs/g1/episodes", *["GET /graphs/g1/status"] * 3,
            "GET /graphs/g1/ask?q=Which+colour?", "DELETE /graphs/g1", "POST /graphs", "POST /graphs/g2/episodes",
        ]  # fmt: skip
        with pytest.raises(NotSupported, match=r"no \[search\]"):
            await ann.search("?", 1)


async def test_without_a_way_to_empty_it_goes_on_in_another_namespace():
    users = []

    async def handle(request):
        users.append((await request.json())["user"])
        return web.json_response([])

    async with serving(handle, "/") as url:
        table = {"base_url": url, "add": {"path": "/", "body": {"user": "{namespace}", "text": "{text}"}}}
        memory = from_dict(
            {**table, "search": {"path": "/", "body": {"user": "{namespace}", "q": "{query}"}}}
        ).namespace("ann")
        await memory.add([BIKE])
        await memory.reset()
        await memory.add([BIKE])
        assert users == ["ann", "ann-1"]
        alone = from_dict(
            {"base_url": url, "add": {"path": "/", "body": "{text}"}, "search": {"path": "/", "body": "{query}"}}
        )
        assert not hasattr(alone, "reset")
        assert "namespaces" not in alone.capabilities
        with pytest.raises(NotSupported, match="namespace"):
            alone.namespace("ann")


def test_every_fault_of_a_file_is_told_at_once(tmp_path):
    path = tmp_path / "memory.toml"
    path.write_text(
        'base_url = "ftp://x"\ncolour = "red"\ntimeout = 0\nwait = "status"\nheaders = {Authorization = "Bearer '
        'sk-abcdefgh12345678"}\n'
        '[add]\npath = "/a"\nbody = {q = "{query}"}\n[search]\nbody = {}\nhits = 3\nspeed = 1\n[delete]\npath = "/x"\n'
    )
    with pytest.raises(BadSpec) as found:
        make_memory(f"http:{path}")
    text = str(found.value)
    for words in (
        "base_url", "`colour` is not known", "`timeout`", "`wait`", "'Authorization' looks like a key", "[add]: {query} is not known",  # noqa: E501
        "[search]: hits is expected to be a path", "[search]: 'speed' is not known", "[search] has no `path`", "[delete] never says {id}",  # noqa: E501
    ):  # fmt: skip
        assert words in text
    assert "sk-abcdefgh" not in text
    path.write_text('base_url = "http://u:secretword@h"\n')
    with pytest.raises(BadSpec, match="holds a login") as found:
        make_memory(f"http:{path}")
    assert "secretword" not in str(found.value)


@pytest.mark.parametrize("spec", ["http:", "http://host/v1", "https://host/v1", "http:http://host"])
def test_a_url_alone_says_nothing_of_requests(spec):
    with pytest.raises(BadInput, match="a file is expected"):
        make_memory(spec)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match="cannot read"):
        from_spec(str(tmp_path / "none.toml"))
    path = tmp_path / "x.yaml"
    path.write_text("base_url: http://127.0.0.1:1\nadd: {path: /a, body: '{text}'}\nsearch: {path: '/s/{query}'}\n")
    assert from_spec(str(path)).name == "x"
    path.write_text("- a\n")
    with pytest.raises(BadInput, match="table"):
        from_spec(str(path))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(JSON, st.text())
def test_any_path_in_any_document_is_found_or_not(document, path):
    at(document, path)
    assert at(document, "") == document


@given(st.text(), st.integers())
def test_what_is_filled_in_is_not_looked_at_again(text, k):
    values = {"query": text, "k": k, "time": None}
    assert fill({"a": ["{query}", "{k}"], "b": "{time}", "c": "<{query}|{k}|{time}>"}, values) == {
        "a": [text, k],
        "c": f"<{text}|{k}|>",
    }
    assert names_in({"a": ["{query}", {"b": "x {k} {time}"}], "c": 3}) == {"query", "k", "time"}
