"""An agent without a log: what went through a tap tells what it read, once per call, for every wire."""

import json
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from context_bench.core.errors import BadInput
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.shell.repo import Snapshot
from context_bench.tap import Tap
from context_bench.tap.control_api import record_file
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces import load_traces
from context_bench.wire.apis import render_reply, stream_reader
from context_bench.wire.conversation import PATHS, Chat, message_text, reply_message, to_body, tool_calls_of
from context_bench.wire.request import WireRequest

FILES = {
    "src/calc.py": "".join(f"line_{number} = {number}\n" for number in range(1, 31)),
    "src/util.py": "def half(x):\n    return x / 2\n\n\ndef twice(x):\n    return x * 2\n",
    "README.md": "# Demo\n",
}
COMMANDS = [
    "sed -n 3,7p src/calc.py",
    "cat src/missing.py",
    "cat src/util.py",
    "sed -n 3,7p src/calc.py",
    "tail -n 2 src/calc.py",
]
READ = [
    ("src/calc.py", ((3, 7),)),
    ("src/util.py", ((1, 6),)),
    ("src/calc.py", ((3, 7),)),
    ("src/calc.py", ((29, 30),)),
]
WHOLE = [("src/util.py", "all")]
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": "Runs.", "parameters": {"type": "object", "properties": {}}},
    }
    for name in ("Bash", "Task")
]
SYSTEM = "You repair programs. Working directory: {folder}\nBe brief."
WIRES = [(wire, stream) for wire in ("openai-chat", "openai-responses", "anthropic") for stream in (False, True)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "repo"


def repo() -> Snapshot:
    return Snapshot.from_json({name: {"text": content} for name, content in FILES.items()})


def script(commands: list[str], **when: Any) -> list[dict[str, Any]]:
    """A rule for each step: one command, then a word."""
    rules = [
        {
            "when": when | {"step": step},
            "text": "Next.",
            "tool_calls": [{"name": "Bash", "id": f"{when}-{step}", "arguments": {"command": c}}],
        }
        for step, c in enumerate(commands)
    ]
    return [*rules, {"when": {**when, "step": len(commands)}, "text": "Done."}]


class Agent:
    """A small client: it sends the whole conversation, runs what it is told, and goes on until there is nothing to
    run.
    """

    def __init__(self, url: str, folder: Path, wire: str, stream: bool = False, tools: Any = TOOLS) -> None:
        self.url, self.folder, self.wire, self.stream, self.tools = url, folder, wire, stream, tools

    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        async with aiohttp.ClientSession() as client, client.post(self.url + PATHS[self.wire], json=body) as reply:
            data = await reply.read()
            assert reply.status == 200, data
        if not self.stream:
            return dict(json.loads(data))
        reader = stream_reader(self.wire)
        reader.feed(data)
        reader.close()
        return render_reply(self.wire, reader.reply, WireRequest(self.wire, "m", []))

    def body(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        body = to_body(self.wire, Chat(messages=messages, model="m", tools=self.tools))
        asked = {"stream_options": {"include_usage": True}} if self.wire == "openai-chat" else {}
        return {**body, "stream": True, **asked} if self.stream else body

    async def work(self, task: str, messages: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        messages = messages or [
            {"role": "system", "content": SYSTEM.format(folder=self.folder)},
            {"role": "user", "content": task},
        ]
        while True:
            said = reply_message(self.wire, await self.ask(self.body(messages)))
            assert said
            messages.append(said)
            if not (calls := tool_calls_of(said)):
                return messages
            for call in calls:
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": await self.result(call)})

    async def result(self, call: dict[str, Any]) -> str:
        arguments = json.loads(call["arguments"])
        if call["name"] == "Task":
            return message_text((await self.work(arguments["prompt"]))[-1])
        return self.shell(arguments["command"])

    def shell(self, command: str) -> str:
        done = subprocess.run(command, shell=True, cwd=self.folder, capture_output=True, text=True)
        return done.stdout + done.stderr + (f"\nExit code {done.returncode}" if done.returncode else "")


def observed(command: str, folder: Path) -> str:
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
    return f"<returncode>{done.returncode}</returncode>\n<output>\n{done.stdout}{done.stderr}</output>"


async def taped(path: Path, rules: list[dict[str, Any]], work: Any) -> Path:
    async with ModelServer(Scripted({"rules": rules})) as model:
        with record_file(path) as sink:
            async with Tap(model.url, record="full", sink=sink) as tap:
                await work(tap.url)
    return path


def reads(trace: Trace, *, sidechain: bool = False) -> list[Any]:
    return [
        (event.path, event.ranges)
        for event in trace.events
        if event.kind in ("read", "search") and event.ok and event.strength == "shown" and event.sidechain == sidechain
    ]


@pytest.mark.parametrize(("wire", "stream"), WIRES)
async def test_what_an_agent_read(wire: str, stream: bool, folder: Path, tmp_path: Path) -> None:
    path = await taped(
        tmp_path / "demo-1.jsonl", script(COMMANDS), lambda url: Agent(url, folder, wire, stream).work("Repair it.")
    )
    for known in (None, repo()):
        (trace,) = load_traces(path, repo=known)
        assert (trace.instance_id, trace.cwd, trace.model) == ("demo-1", str(folder), "m")
        assert trace.step_count == len(COMMANDS)
        assert reads(trace) == (READ if known else [READ[0], ("src/util.py", "all"), READ[2], ("src/calc.py", None)])
        assert [event.path for event in trace.events if event.kind == "read" and not event.ok] == ["src/missing.py"]
        assert [event.turn for event in trace.events if event.kind == "exec"] == [1, 2, 3, 4, 5]
        assert not trace.skipped
        assert trace.usage is not None
        assert trace.usage.output_tokens
        assert trace.started is not None


async def test_conversations_stay_apart_and_a_side_question_is_no_run(folder: Path, tmp_path: Path) -> None:
    rules = [*script(COMMANDS[:1], text="first task"), *script(COMMANDS[2:3], text="other task"), {"text": "A title."}]

    async def work(url: str) -> None:
        for task in ("The first task.", "The other task.", "The first task."):
            await Agent(url, folder, "openai-chat").work(task)
        await Agent(url, folder, "openai-chat", tools=[]).work("A title, please.")

    traces = list(load_traces(await taped(tmp_path / "many.jsonl", rules, work)))
    assert [trace.instance_id for trace in traces] == ["many", "many/2", "many/3"]
    assert [reads(trace) for trace in traces] == [READ[:1], WHOLE, READ[:1]]
    assert traces[-1].skipped + traces[0].skipped == {"a conversation without tools": 1}


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic"])
async def test_the_calls_of_a_sub_agent_are_part_of_its_parents_run(wire: str, folder: Path, tmp_path: Path) -> None:
    task = {"name": "Task", "id": "t1", "arguments": {"description": "Look", "prompt": "Find the helper that halves."}}
    rules = [
        *script(["cat src/util.py"], last="^Find"),
        {"when": {"step": 0}, "text": "I ask.", "tool_calls": [task]},
        {
            "when": {"step": 1},
            "text": "I look.",
            "tool_calls": [{"name": "Bash", "id": "b1", "arguments": {"command": COMMANDS[0]}}],
        },
        {"text": "Done."},
    ]
    path = await taped(
        tmp_path / "parent.jsonl", rules, lambda url: Agent(url, folder, wire).work("Repair the program.")
    )
    (trace,) = load_traces(path)
    assert reads(trace) == READ[:1]
    assert reads(trace, sidechain=True) == WHOLE
    assert [(event.tool, event.sidechain) for event in trace.events if event.kind in ("exec", "other")] == [
        ("Task", False),
        ("Bash", True),
        ("Bash", False),
    ]


async def test_commands_in_plain_text(folder: Path, tmp_path: Path) -> None:
    commands = [*COMMANDS[:3], COMMANDS[0], "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    rules = [
        {"when": {"turn": turn}, "text": f"THOUGHT: look.\n```bash\n{command}\n```"}
        for turn, command in enumerate(commands, 1)
    ]

    async def work(url: str) -> None:
        agent = Agent(url, folder, "openai-chat", tools=[])
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "Answer with one block. Every command runs in a new subshell."}
        ]
        for command in commands:
            said = reply_message("openai-chat", await agent.ask(agent.body(messages)))
            assert said
            messages += [said, {"role": "user", "content": observed(command, folder)}]

    (trace,) = load_traces(await taped(tmp_path / "plain.jsonl", rules, work), repo=repo())
    assert reads(trace) == READ[:3]
    assert trace.step_count == len(commands)
    assert [event.path for event in trace.events if not event.ok and event.kind == "read"] == ["src/missing.py"]


async def test_an_answer_that_was_asked_for_again_is_no_step(folder: Path, tmp_path: Path) -> None:
    rules = [
        {
            "when": {"step": 0},
            "calls": [1],
            "tool_calls": [{"name": "Bash", "id": "lost", "arguments": {"command": "cat README.md"}}],
        },
        *script(COMMANDS[:1]),
    ]

    async def work(url: str) -> None:
        agent = Agent(url, folder, "anthropic")
        messages = [{"role": "user", "content": "Repair it."}]
        await agent.ask(agent.body(messages))
        await agent.work("", messages)

    (trace,) = load_traces(await taped(tmp_path / "again.jsonl", rules, work))
    assert reads(trace) == READ[:1]
    assert (trace.step_count, trace.skipped) == (1, {"a call that the agent threw away": 1})


async def test_a_conversation_that_the_provider_keeps(folder: Path, tmp_path: Path) -> None:
    """The Responses wire with `previous_response_id`: no request repeats what was said before."""
    calls = iter(COMMANDS[:3:2])

    async def work(url: str) -> None:
        agent = Agent(url, folder, "openai-responses")
        tools = to_body("openai-responses", Chat(tools=TOOLS))["tools"]
        reply = await agent.ask({"model": "m", "tools": tools, "input": "Repair it."})
        for command in calls:
            (call,) = [item for item in reply["output"] if item["type"] == "function_call"]
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": agent.shell(command)}
            reply = await agent.ask(
                {"model": "m", "tools": tools, "previous_response_id": reply["id"], "input": [result]}
            )

    rules = [
        {"calls": [number], "tool_calls": [{"name": "Bash", "id": f"c{number}", "arguments": {"command": command}}]}
        for number, command in enumerate(COMMANDS[:3:2], 1)
    ]
    (trace,) = load_traces(await taped(tmp_path / "kept.jsonl", [*rules, {"text": "Done."}], work), repo=repo())
    assert reads(trace) == READ[:2]


async def test_a_history_cut_short_repeats_no_call(folder: Path, tmp_path: Path) -> None:
    async def work(url: str) -> None:
        agent = Agent(url, folder, "openai-chat")
        messages = await agent.work("Repair it.")
        short = [
            messages[0],
            messages[1],
            {"role": "user", "content": "What came before was summed up."},
            *messages[6:],
        ]
        await agent.work("", short)

    (trace,) = load_traces(
        await taped(
            tmp_path / "cut.jsonl", [{"when": {"text": "summed up"}, "text": "Done."}, *script(COMMANDS)], work
        ),
        repo=repo(),
    )
    assert reads(trace) == READ
    assert (trace.step_count, trace.skipped) == (len(COMMANDS), {})


@pytest.mark.parametrize("policy", ["meta", "hashes"])
async def test_a_recording_without_bodies_says_what_to_do(policy: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    async with ModelServer(Scripted({"rules": script(COMMANDS[:1])})) as model:
        with record_file(path) as sink:
            async with Tap(model.url, record=policy, sink=sink) as tap:
                await Agent(tap.url, folder, "anthropic").work("Repair it.")
    with pytest.raises(BadInput, match="--record full or redacted to see what was read"):
        list(load_traces(path))
