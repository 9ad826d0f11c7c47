"""A provider that plays whole scenes with real clients and keeps its own books, and the clients as they are started
behind a watch.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.keys import hash_text
from context_bench.core.records import Usage
from context_bench.llm.responders import Delivery, Staged
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.wire.apis.shared import Reply
from context_bench.wire.request import WireRequest

ROOT = Path(__file__).parents[2]
VENDORS = ROOT / ".vendors"
#: What every run leaves, in the shape that scripts/client_fixtures.py reads. Never committed.
LEFT = ROOT / "build" / "clients"
KEY = "sk-a-key-of-no-account-0123456789"

#: USD per million tokens: new, read, written, output. Looked up at the providers' pages in November 2026.
PRICES = {
    "claude-sonnet-4-5": (3, 0.3, 3.75, 15),
    "claude-haiku-4-5": (1, 0.1, 1.25, 5),
    "gpt-4.1": (2, 0.5, 0, 8),
    "gpt-4.1-mini": (0.4, 0.1, 0, 1.6),
}


@dataclass
class Entry:
    """One prompt in the provider's books. `told`: the client is sent the usage; `whole`: the reply is delivered to its
    end.
    """

    wire: str
    model: str
    status: int
    usage: Usage
    told: bool
    whole: bool
    tools: int

    @property
    def cost(self) -> float:
        """In USD, from the prices written above."""
        name = max((name for name in PRICES if self.model.startswith(name)), key=len)
        new, read, written, output = PRICES[name]
        used = self.usage
        plain = used.input_tokens - used.cache_read - (used.cache_write or 0)
        return (
            plain * new + used.cache_read * read + (used.cache_write or 0) * written + used.output_tokens * output
        ) / 1e6


class Provider:
    """Answers by rules (see `context_bench.llm.scripted`), and bills by a cache of its own: a beginning seen before is
    read.

    Tokens are characters / 4. Anthropic's prompts are written to the cache up to the end where any block is marked; the
    others' reads come in steps of 128 tokens from 1,024 on.
    """

    name = "provider"

    def __init__(self, rules: Sequence[Mapping[str, Any]]) -> None:
        self._scripted = Scripted({"rules": list(rules), "default": "All right."})
        self._seen: dict[str, list[list[str]]] = {}
        self.books: list[Entry] = []
        self.asked = asyncio.Event()

    async def models(self) -> list[str]:
        """Two that clients look for."""
        return ["claude-sonnet-4-5", "gpt-4.1"]

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Staged:
        """What the rules say, with usage from the cache."""
        made = await self._scripted.reply(request, headers)
        staged = made if isinstance(made, Staged) else Staged(made, Delivery())
        delivery = staged.delivery
        refused = delivery.status != 200
        usage = Usage(0, 0, 0, 0) if refused else self._billed(request, staged.reply)
        staged.reply.usage = usage
        told = (
            request.wire != "openai-chat"
            or not request.stream
            or bool((request.params.get("stream_options") or {}).get("include_usage"))
        )
        whole = not (refused or delivery.disconnect or delivery.stream_error)
        self.books.append(
            Entry(request.wire, request.model or "", delivery.status, usage, told, whole, len(request.tools))
        )
        self.asked.set()
        return staged

    def _billed(self, request: WireRequest, reply: Reply) -> Usage:
        pieces = [json.dumps(request.tools, sort_keys=True)] if request.tools else []
        pieces += [
            json.dumps([m.role, m.tool_calls, [part.text for part in m.parts]], sort_keys=True)
            for m in request.messages
        ]
        held = [hash_text(piece) for piece in pieces]
        sizes = [-(-len(piece) // 4) for piece in pieces]
        earlier = self._seen.setdefault(request.model or "", [])
        shared = max((sum(sizes[: _common(held, other)]) for other in earlier), default=0)
        earlier.append(held)
        spoken = (reply.text or "") + "".join(call["arguments"] for call in reply.tool_calls)
        prompt, output = sum(sizes), max(1, len(spoken) // 4)
        if request.wire != "anthropic":
            return Usage(prompt, output, shared // 128 * 128 if shared >= 1024 else 0, None)
        marked = any(part.cache_control for message in request.messages for part in message.parts)
        return Usage(prompt, output, shared if marked else 0, prompt - shared if marked else 0)

    @property
    def told(self) -> list[Entry]:
        """What clients were sent whole, with usage."""
        return [entry for entry in self.books if entry.status == 200 and entry.told and entry.whole]


def _common(one: list[str], other: list[str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


# ---- scenes
# ------------------------------------------------------------------------

ASKED = "What does this project do?"
FILES = {
    "README.md": "# Ferry fees\n\n"
    + "".join(f"- fare {i}: from pier {i % 7} to pier {i * 3 % 11}\n" for i in range(40)),
    "fees.py": "RATE = 0.02\n\n\ndef fee(amount):\n    return amount * RATE\n",
}


def repository(folder: Path) -> Path:
    """A small repository; one of its files is long."""
    draw = random.Random(7)
    lines = [f"def fare_{i}(weight):\n    return weight * {draw.randrange(10**6)}\n" for i in range(400)]
    folder.mkdir(parents=True)
    for name, text in {**FILES, "fares.py": "\n".join(lines)}.items():
        (folder / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "A ferry"]):
        subprocess.run([*git, *command], cwd=folder, check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"})
    return folder


@dataclass(frozen=True)
class Client:
    """How a client is started and what its tools are called. `argv`: the words after its name, when the guide's line
    does not say.
    """

    program: Path
    model: str
    argv: tuple[str, ...]
    shell: str
    command: str
    read: tuple[str, str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    ends: str = ""  # a last command of the shell that this client waits for
    log: str = ""  # where its logs are, under its home

    @property
    def vendor(self) -> str:
        """Whose `.ready` says that it is installed."""
        return self.program.relative_to(VENDORS).parts[0]

    def calls(self, *words: str, step: int) -> list[dict[str, Any]]:
        """Calls of one reply: `read FILE` by its own reading tool if it has one, anything else by its shell."""
        made = []
        for i, word in enumerate(words):
            ident = f"call_{step}_{i}"
            kind, _, rest = word.partition(" ")
            if kind == "read" and self.read is not None:
                made.append({"name": self.read[0], "id": ident, "arguments": {self.read[1]: rest}})
            else:
                said = f"cat {rest}" if kind == "read" else word
                more = {"description": "look"} if self.shell == "bash" else {}
                made.append({"name": self.shell, "id": ident, "arguments": {self.command: said, **more}})
        return made

    def scene(
        self, steps: Sequence[Sequence[str]], last: str, *, when: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Rules: `steps` one after another, then `last`."""
        rules: list[dict[str, Any]] = []
        done = 0
        for i, step in enumerate([*steps, *([[self.ends]] if self.ends else [])]):
            rules.append(
                {
                    "when": {**(when or {}), "step": done},
                    "text": f"Step {i + 1}.",
                    "tool_calls": self.calls(*step, step=i),
                }
            )
            done += len(step)
        return [*rules, {"when": {**(when or {}), "step": done}, "text": last}]


CLIENTS = {
    "claude": Client(
        VENDORS / "clients/bin/claude",
        "claude-sonnet-4-5",
        ("-p", ASKED, "--model", "claude-sonnet-4-5", "--dangerously-skip-permissions"),
        shell="Bash",
        command="command",
        read=("Read", "file_path"),
        env={
            "IS_SANDBOX": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        log=".claude",
    ),
    "codex": Client(
        VENDORS / "clients/bin/codex",
        "gpt-4.1",
        ("exec", "-m", "gpt-4.1", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", ASKED),
        shell="exec_command",
        command="cmd",
        log=".codex/sessions",
    ),
    "opencode": Client(
        VENDORS / "clients/bin/opencode",
        "claude-sonnet-4-5",
        ("run", "-m", "anthropic/claude-sonnet-4-5", ASKED),
        shell="bash",
        command="command",
        read=("read", "filePath"),
        env={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
        log=".local/share/opencode",
    ),
    "aider": Client(
        VENDORS / "aider/bin/aider",
        "gpt-4.1",
        ("--model", "openai/gpt-4.1", "--message", ASKED, "--yes-always", "fees.py"),
        shell="",
        command="",
        env={"AIDER_ANALYTICS": "false", "AIDER_CHECK_UPDATE": "false"},
    ),
    "mini": Client(
        VENDORS / "mini-swe-agent/bin/mini",
        "gpt-4.1",
        ("-m", "openai/gpt-4.1", "-t", ASKED, "-y", "--exit-immediately", "-o", "trajectory.json"),
        shell="bash",
        command="command",
        env={"MSWEA_CONFIGURED": "true", "MSWEA_SILENT_STARTUP": "1", "MSWEA_COST_TRACKING": "ignore_errors"},
        ends="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    ),
    "gemini": Client(
        VENDORS / "clients/bin/gemini",
        "gemini-2.5-flash",
        ("-p", ASKED, "-m", "gemini-2.5-flash", "--skip-trust"),
        shell="",
        command="",
        env={"GEMINI_API_KEY": KEY},
    ),
}


# ---- behind a watch
# ------------------------------------------------------------------------


@dataclass
class Room:
    """A folder with a repository and a home, and watches started there."""

    folder: Path
    server: ModelServer
    provider: Provider

    @property
    def home(self) -> Path:
        """The clients' own."""
        return self.folder / "home"

    def env(self, *clients: Client) -> dict[str, str]:
        """Nothing of the user's: a home of its own, a key of nobody's."""
        self.home.mkdir(exist_ok=True)
        paths = [str(client.program.parent) for client in clients] + os.environ["PATH"].split(os.pathsep)
        kept = {name: os.environ[name] for name in ("LANG", "CI", "PYTHONPATH", "TMPDIR") if name in os.environ}
        told = {name: text for client in clients for name, text in client.env.items()}
        keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "TERM": "dumb"}
        return {**kept, **keys, "HOME": str(self.home), "PATH": os.pathsep.join(paths), **told}

    async def start(
        self, front: int, *command: str, env: Mapping[str, str], more: Sequence[str] = ()
    ) -> asyncio.subprocess.Process:
        """A watch with a client, as the leader of a process group, as a terminal would start it."""
        watch = [sys.executable, "-m", "context_bench", "watch", "--front", str(front), "--upstream", self.server.url]
        watch += [
            "--record",
            "full",
            "--records",
            str(self.folder / "records.jsonl"),
            "--store",
            str(self.folder / "store.db"),
        ]
        watch += ["--output", "json", "--out", str(self.folder / "watch.json"), *more]
        streams = {
            "stdin": asyncio.subprocess.DEVNULL,
            "stdout": asyncio.subprocess.PIPE,
            "stderr": asyncio.subprocess.PIPE,
        }
        line = [*watch, *(["--", *command] if command else [])]
        return await asyncio.create_subprocess_exec(
            *line, cwd=self.folder / "work", env=dict(env), start_new_session=True, **streams
        )

    async def ended(self, process: asyncio.subprocess.Process, *, within: float = 150) -> tuple[int, str]:
        """Its exit code and what it and its client wrote; whatever is left of its group is ended."""
        try:
            out, error = await asyncio.wait_for(process.communicate(), within)
        finally:
            end_group(process.pid)
        return process.returncode or 0, (out + error).decode()

    def report(self) -> dict[str, Any]:
        """The watch's report."""
        return dict(json.loads((self.folder / "watch.json").read_text())["arms"]["main"])

    def leave(self, name: str, client: Client, version: str) -> Path:
        """What came of it, in the shape that scripts/client_fixtures.py reads."""
        out = LEFT / name
        shutil.rmtree(out, ignore_errors=True)
        (out / "log").mkdir(parents=True)
        (out / "meta.json").write_text(
            json.dumps({"client": client.program.name, "version": version, "prompts": [ASKED]})
        )
        shutil.copy(self.folder / "records.jsonl", out)
        with (out / "truth.jsonl").open("w") as file:
            prompts = iter(self.provider.books)
            for n, received in enumerate(self.server.requests, 1):
                file.write(json.dumps(_truth(n, received, prompts)) + "\n")
        if client.log:
            kept = ("*.jsonl", "opencode.db") if client.log != ".claude" else ("projects/**/*.jsonl",)
            for pattern in kept:
                for file in (self.home / client.log).rglob(pattern):
                    place = out / "log" / file.relative_to(self.home / client.log)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    _copy(file, place)
        return out


def _copy(file: Path, place: Path) -> None:
    """A database with what still is in its log of writes; any other file as it is."""
    if file.suffix != ".db":
        shutil.copy(file, place)
        return
    with closing(sqlite3.connect(file)) as found, closing(sqlite3.connect(place)) as made:
        found.backup(made)
        made.execute("PRAGMA journal_mode=DELETE")


def _truth(n: int, received: Any, prompts: Any) -> dict[str, Any]:
    row = {"n": n, "t": received.at, "method": received.method, "path": received.path, "body": received.body}
    row["headers"] = {
        name: text for name, text in received.headers.items() if name not in ("authorization", "x-api-key")
    }
    if received.wire not in ("anthropic", "openai-chat", "openai-responses"):
        return {**row, "kind": received.wire, "status": 200}
    entry = next(prompts)
    used = entry.usage
    told = {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cached": used.cache_read,
        "written": used.cache_write,
    }
    return {
        **row,
        "kind": "prompt",
        "api": received.wire,
        "status": entry.status,
        "usage": told,
        "told": entry.told,
        "whole": entry.whole,
    }


def group(leader: int) -> list[int]:
    """Who is alive in a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                rest = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(rest[2]) == leader and rest[0] not in "ZX":
                found.append(int(entry.name))
    return found


def end_group(leader: int) -> None:
    """End what is left of a group, and wait until it is gone."""
    for _ in range(50):
        if not group(leader):
            return
        try:
            os.killpg(leader, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.1)
