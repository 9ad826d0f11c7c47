"""Programs, services, recorded pairs and systems as compressors."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from context_bench.compression.compressors import compressor_for, compressor_of
from context_bench.compression.compressors.outside import CommandFilter
from context_bench.core.errors import BadInput, BadReply, BadSpec, Refused, ServerFailed, TimedOut
from context_bench.llm.background import run_sync
from context_bench.systems.recorded_answers import NotRecorded
from context_bench.testing.compressor_contract import acheck_compressor, check_compressor

PREFIX = [
    {"role": "user", "content": "The gauge shows 4.2 m."},
    {"role": "assistant", "content": "I look."},
    {"role": "user", "content": "Good."},
]
TAIL = [{"role": "user", "content": "Go on."}]


def program(text: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(text)}"


async def made_by(spec: Any, **options: Any) -> list[dict[str, Any]]:
    from context_bench.core.protocols import call

    made, _ = await call(
        compressor_for(spec).compress, PREFIX, TAIL, state=None, budget=options.get("budget"), query=None
    )
    return made.messages


# --- cli: ---


async def test_a_filter_of_text() -> None:
    spec = "cli:" + program("import sys; print(sys.stdin.read().splitlines()[0].upper())")
    assert await made_by(spec) == [{"role": "user", "content": "USER: THE GAUGE SHOWS 4.2 M.\n"}]


async def test_a_filter_of_messages_gets_the_budget() -> None:
    text = "import json, sys; given = json.load(sys.stdin); json.dump(given['messages'][-given['budget']:], sys.stdout)"
    assert await made_by("cli:json:" + program(text), budget=2) == PREFIX[-2:]
    argument = "import sys; sys.stdin.read(); print(sys.argv[1])"
    assert (await made_by("cli:" + program(argument) + " {budget}", budget=7))[0]["content"] == "7\n"
    with pytest.raises(BadInput, match="budget"):
        await made_by("cli:" + program(argument) + " {budget}")


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("import sys; sys.stderr.write('no licence'); sys.exit(3)", Refused, "exit status 3: no licence"),
        ("print('not json')", BadReply, "not json"),
        ('print(\'[{"content": "x"}]\')', BadReply, "role"),
        ("print('{\"summary\": 1}')", BadReply, "summary"),
        ("print(4)", BadReply, "int"),
    ],
)
async def test_a_filter_that_fails_is_a_failure(text: str, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        await made_by("cli:json:" + program(text))


def test_a_filter_that_does_not_end_is_killed_with_what_it_started() -> None:
    text = (
        "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; "
        "time.sleep(60)']); time.sleep(60)"
    )
    with pytest.raises(TimedOut, match="killed"):
        CommandFilter([sys.executable, "-c", text], timeout=0.4).compress(PREFIX, [])


async def test_a_filter_told_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "squeeze.toml"
    command = json.dumps([sys.executable, "-c", "print('short')"])
    file.write_text(f'name = "squeeze"\ncommand = {command}\ntimeout = 9\n')
    compressor: Any = compressor_for(f"cli:{file}")
    assert (compressor.name, compressor.timeout) == ("squeeze", 9)
    assert (await made_by(f"cli:{file}"))[0]["content"] == "short\n"
    file.write_text('command = "rm"\ntimeout = 0\nformat = "xml"\nshell = true\n')
    with pytest.raises(BadSpec, match="shell") as caught:
        compressor_for(f"cli:{file}")
    assert all(word in str(caught.value) for word in ("command", "timeout", "format"))


def test_a_filter_keeps_the_contract() -> None:
    text = "import json, sys; m = json.load(sys.stdin); print(json.dumps(m['messages'] if m['budget'] is None else []))"
    assert check_compressor(lambda: compressor_for("cli:json:" + program(text)), huge=5000) == []


# --- http: ---


@asynccontextmanager
async def service(handle: Any) -> AsyncIterator[str]:
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/compact", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/compact"
    finally:
        await runner.cleanup()


async def test_a_service_by_its_url() -> None:
    async def handle(request: web.Request) -> web.Response:
        given = await request.json()
        assert given["budget"] == 50
        return web.json_response({"messages": given["messages"][:1]})

    async with service(handle) as url:
        assert await made_by(url, budget=50) == PREFIX[:1]


async def test_a_service_told_in_a_file_with_a_key_that_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.headers.get("X-Key"), await request.json()))
        return (
            web.json_response({"output": [{"said": "short"}]})
            if len(seen) < 2
            else web.json_response({"why": "k-123456789"}, status=401)
        )

    file = tmp_path / "service.toml"
    async with service(handle) as url:
        file.write_text(
            f'url = "{url}"\nname = "svc"\ntext = "output.0.said"\n[auth]\nenv = "SVC_KEY"\nheader = "X-Key"\nvalue = '
            f'"{{key}}"\n'
            '[body]\ninput = "{text}"\ntarget = "{budget}"\n'
        )
        with pytest.raises(BadInput, match="SVC_KEY"):
            compressor_for(f"http:{file}")
        monkeypatch.setenv("SVC_KEY", "k-123456789")
        assert await made_by(f"http:{file}") == [{"role": "user", "content": "short"}]
        key, body = seen[0]
        assert key == "k-123456789"
        assert body == {"input": "user: The gauge shows 4.2 m.\n\nassistant: I look.\n\nuser: Good."}
        with pytest.raises(Refused) as caught:
            await made_by(f"http:{file}")
        assert "k-123456789" not in str(caught.value)
        assert "k-123456789" not in repr(compressor_for(f"http:{file}")) + str(
            compressor_for(f"http:{file}").fingerprint()
        )  # type: ignore[attr-defined]
    file.write_text('url = "ftp"\nspeed = 1\n[body]\na = "{message}"\n')
    with pytest.raises(BadSpec, match="speed"):
        compressor_for(f"http:{file}")
    with pytest.raises(BadInput, match="login"):
        compressor_for("http://me:secret@127.0.0.1/x")


async def test_a_service_that_fails_is_asked_again_and_then_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    times = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal times
        times += 1
        if times == 1:
            return web.json_response({"error": "busy"}, status=503, headers={"retry-after-ms": "1"})
        return web.json_response(["nothing"]) if times > 2 else web.json_response({"text": "ok"})

    async with service(handle) as url:
        assert await made_by(url) == [{"role": "user", "content": "ok"}]
        with pytest.raises(BadReply, match="message 1"):
            await made_by(url)

    async def down(request: web.Request) -> web.Response:
        return web.Response(status=500, headers={"x-should-retry": "false"})

    async with service(down) as url:
        with pytest.raises(ServerFailed):
            await made_by(url)


async def test_a_service_keeps_the_contract() -> None:
    async def handle(request: web.Request) -> web.Response:
        given = await request.json()
        return web.json_response(given["messages"] if given.get("budget") is None else [])

    async with service(handle) as url:
        assert await acheck_compressor(lambda: compressor_for(url), huge=5000) == []


# --- pairs: ---


async def test_recorded_pairs_are_found_by_what_they_say(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    short = [{"role": "user", "content": "short"}]
    system = {"role": "system", "content": "You are."}
    other = [{"role": "user", "content": "Something else."}]
    rows = [
        {"id": "a", "original_messages": [system, *PREFIX], "compressed_messages": [system, *short]},
        {"id": "b", "original": [system, *other, *TAIL], "compressed": [*short, *TAIL]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs: Any = compressor_for(f"pairs:{file}")
    parts = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in PREFIX]
    assert pairs.compress(PREFIX, TAIL)[0].messages == pairs.compress(parts, [])[0].messages == short
    assert pairs.compress(other, TAIL)[0].messages == short
    assert pairs.compress(PREFIX, TAIL, budget=0)[0].warnings
    with pytest.raises(NotRecorded, match="2 originals"):
        pairs.compress(PREFIX[:1], TAIL)
    file.write_text(file.read_text() + json.dumps({"id": "c", "original": PREFIX, "compressed": []}) + "\n")
    with pytest.raises(BadInput, match="'c'"):
        compressor_for(f"pairs:{file}")
    with pytest.raises(BadInput, match="names nothing"):
        compressor_for("pairs:")


# --- systems ---


class Shortens:
    """A system that changes the context."""

    name = "shortens"

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        return {**example, "context": example["context"][:20]}


class Replaces:
    name = "replaces"

    async def aprocess(self, example: dict[str, Any]) -> dict[str, Any]:
        return {"compressed": {"messages": example["messages"][-1:]}}


class Answers:
    name = "answers"

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        return {"response": "4.2 m"}


async def test_a_system_is_adapted() -> None:
    assert await made_by(Shortens()) == [{"role": "user", "content": "user: The gauge show"}]
    assert await made_by(Replaces()) == PREFIX[-1:]
    assert await made_by("py:context_bench.compression.compressors.trivial_baselines:Full") == PREFIX
    with pytest.raises(BadReply, match="no compressed, messages or context"):
        await made_by(Answers())
    with pytest.raises(BadInput, match="neither compress"):
        compressor_of(object())  # type: ignore[arg-type]


def test_an_adapted_system_is_in_a_run() -> None:
    from context_bench.compression.probes import Probe, ProbeAtom, example_of, packed
    from context_bench.compression.systems.compressing import Compressing
    from context_bench.compression.systems.sentence import SentenceReader

    probe = Probe("p", "recall", "What does the gauge show?", "4.2 m", (ProbeAtom("4.2 m"),))
    example = example_of(probe, session=packed([*PREFIX, *TAIL]), group="g", cluster="c", points=[3])
    arm = Compressing(Replaces(), SentenceReader())  # type: ignore[arg-type]
    answered = run_sync(arm.aprocess(example))
    assert answered["compressed"]["tokens_after"] < answered["compressed"]["tokens_before"]


# --- objects that take one thing ---


class OfMessages:
    def compress(self, messages):
        return messages[-1:]


class OfText:
    name = "of_text"

    def compress(self, text, budget=None):
        return text[:budget]


class Asked:
    name = "asked"

    async def compress(self, messages, query):
        return {"text": query or "nothing"}


async def test_compress_may_take_messages_or_a_text_alone() -> None:
    assert await made_by(OfMessages()) == PREFIX[-1:]
    assert compressor_for(OfMessages()).name == "OfMessages"
    assert await made_by(OfText(), budget=10) == [{"role": "user", "content": "user: The "}]
    assert await made_by(Asked()) == [{"role": "user", "content": "nothing"}]
    assert getattr(compressor_for(Asked()), "needs_query") is True  # noqa: B009 - optional in the protocol
    assert await acheck_compressor(lambda: compressor_for(OfText())) == []
    with pytest.raises(BadReply, match=r"compress\(\) gave int"):
        await made_by(type("Odd", (), {"compress": lambda self, messages: 3})())


class TakesTwo:
    name = "two"

    def compress(self, one, another):
        return one


class TakesNone:
    name = "none_taken"

    def process(self):
        return {}


class Neither:
    def shorten(self, text):
        return text


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            TakesTwo,
            "compress(one, another): missing a required argument: 'another'; expected compress(messages), "
            "compress(text), or",
        ),
        (TakesNone, "process() takes no argument; expected process(example) -> dict"),
        (Neither, "Neither has neither process(example) nor compress(messages)"),
    ],
)
def test_what_cannot_be_called_is_refused_before_anything_is_asked(made: type, words: str) -> None:
    from context_bench.systems.control import system_of
    from context_bench.systems.openai_proxy import OpenAIProxy
    from context_bench.systems.serve import Served

    spec = f"py:{__name__}:{made.__name__}"
    for use in (
        lambda: compressor_for(spec),
        lambda: system_of(spec, inner=OpenAIProxy("http://127.0.0.1:9", "m")),
        lambda: Served(spec, "http://127.0.0.1:9"),
    ):
        with pytest.raises(BadInput) as told:
            use()
        assert words in str(told.value)


class Unnamed:
    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        return {**example, "context": example["context"][:9]}


async def test_a_class_without_a_name_goes_by_the_name_of_the_class() -> None:
    from context_bench.core.protocols import fingerprint
    from context_bench.systems.control import system_of
    from context_bench.systems.serve import Served

    spec = f"py:{__name__}:Unnamed"
    assert (system_of(spec).name, Served(spec, "http://127.0.0.1:9").name, compressor_for(spec).name) == (
        "Unnamed",
    ) * 3
    assert fingerprint(system_of(spec))["system"]["name"] == "Unnamed"
    assert fingerprint(compressor_for(OfMessages()))["of"]["name"] == "OfMessages"
    assert await made_by(spec) == [{"role": "user", "content": "user: The"}]
