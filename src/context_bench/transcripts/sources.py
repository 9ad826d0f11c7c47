"""Sources of the tokens in a prompt: which part of a request is the system prompt, whose tool definition, whose result.

A request is read as its provider reads it: tools, then messages in order. Each part becomes a `SourcedPart` with its
source, a kind (`KINDS`) and a name: the tool, or the command that a shell ran (`Bash: git log`). Texts that a client
puts into a user's message (`<system-reminder>`, memory files) are the client's, not the user's.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from context_bench.core.keys import canonical_json, stable_hash
from context_bench.transcripts.account import STAND_IN, STAND_IN_TEXT
from context_bench.transcripts.format import mapping, parsed, sequence
from context_bench.wire.apis import parse_request
from context_bench.wire.conversation import ITEMS
from context_bench.wire.request import RESULT_ROLES, SYSTEM_ROLES, WireMessage

#: Kinds of sources in the order of a prompt, as they are shown. `missing`: billed, but not in the log.
KINDS = {
    "tools": "tool definitions",
    "system": "system prompt",
    "memory": "memory files, reminders",
    "summary": "summaries of compactions",
    "user": "user text",
    "assistant": "assistant text",
    "thinking": "thinking",
    "calls": "tool calls",
    "results": "tool results",
    "images": "images, files",
    "missing": "not in the log",
}
SHELLS = frozenset(
    (
        *("bash", "shell", "exec", "exec_command", "local_shell", "local_shell_call", "container.exec", "terminal"),
        *("run_shell_command", "run_terminal_cmd", "execute_command", "execute_bash", "shell_command", "run_command"),
    )
)
_READERS = frozenset(("read", "read_file", "view", "cat", "readfile", "open_file", "view_file", "read_many_files"))
#: Programs whose first argument says what they do.
_COMMANDS = frozenset(
    (
        *("apt", "brew", "bun", "bundle", "cargo", "conda", "deno", "docker", "dotnet", "gh", "git", "go", "gradle"),
        *("helm", "kubectl", "make", "mvn", "npm", "npx", "pip", "pip3", "pipx", "pnpm", "poetry", "ruff", "rustup"),
        *("systemctl", "terraform", "uv", "uvx", "yarn"),
    )
)
_BEFORE = frozenset(("sudo", "env", "time", "nice", "nohup", "command", "exec", "stdbuf", "xargs", "timeout"))
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,23}")
_SETTING = re.compile(r"[A-Za-z_]\w*=\S*$")
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.S)
_MEMORY = re.compile(
    r"<user_instructions>|# AGENTS\.md instructions|# claudeMd|Contents of \S*(?:CLAUDE|AGENTS|GEMINI|MEMORY)\w*\.md"
)
_OPENED_BY_CLIENT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<session_context>")
#: How the summaries begin that clients put in the place of a history which they compacted.
_SUMMARIES = (
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem and produced a summary",
    "You were originally given instructions from a user over one or more turns. Here were the user messages",
    "<state_snapshot>",
    "<context_summary>",
)


class TokenSource(NamedTuple):
    """Origin of tokens: a kind of `KINDS`, and a name within it (a tool, a command, "" for none)."""

    kind: str
    name: str = ""

    @property
    def server(self) -> str | None:
        """The MCP server whose tool this is; `None` for a tool of the client's own."""
        return server_of(self.name) if self.kind in ("tools", "calls", "results") else None

    @property
    def title(self) -> str:
        """The source as it is shown."""
        return f"{KINDS[self.kind]}: {self.name}" if self.name else KINDS[self.kind]


_NOT_IN_LOG = TokenSource("missing")  # source of what stands in a rebuilt request for what the log does not hold


class SourcedPart(NamedTuple):
    """A part of a prompt. `text` is `None` for what is no text, whose `tokens` are then those that it is billed as, so
    far as known. `marked`: the client marked the prompt for caching after it. `call`: what a tool's result answers.
    """

    source: TokenSource
    text: str | None
    tokens: int = 0
    marked: bool = False
    digest: str = ""
    call: str = ""


def server_of(tool: str) -> str | None:
    """The MCP server in a tool's name, as clients write it (`mcp__SERVER__TOOL`)."""
    return tool.split("__", 2)[1] if tool.startswith("mcp__") and tool.count("__") >= 2 else None


def is_reader(source: TokenSource) -> bool:
    """True for results of tools that read a file."""
    return source.kind == "results" and source.name.lower() in _READERS


def tool_label(tool: str, arguments: Any) -> str:
    """Name of a tool; of a shell, with the program that it ran, and with what a program such as git was to do."""
    if tool.lower() not in SHELLS:
        return tool
    given = mapping(parsed(arguments))
    command = given.get("command", given.get("cmd", given.get("script", arguments)))
    words = [str(word) for word in command] if isinstance(command, list) else str(command or "").split()[:40]
    if isinstance(command, list) and len(words) > 2 and words[1] in ("-c", "-lc"):
        words = words[2].split()[:40]
    program = _program(words)
    return f"{tool}: {program}" if program else tool


def _program(words: list[str]) -> str:
    at = 0
    while at < len(words):
        word = words[at].strip("(\"';").rpartition("/")[2]
        if word in ("cd", "source", "."):  # what comes after it is what was meant
            stop = next((n for n in range(at, len(words)) if words[n] in ("&&", ";") or words[n].endswith(";")), None)
            if stop is None:
                return word
            at = stop + 1
        elif word in _BEFORE or _SETTING.match(word) or word.startswith("-") or word.isdecimal() or not word:
            at += 1
        else:
            return _with_command(word, words[at + 1 :])
    return ""


def _with_command(word: str, rest: list[str]) -> str:
    found = _PROGRAM.match(word)
    if found is None:
        return ""
    if re.fullmatch(r"python[\d.]*", word) and rest[:1] == ["-m"]:
        return f"python -m {inner[0]}" if len(rest) > 1 and (inner := _PROGRAM.match(rest[1])) else "python"
    if word in _COMMANDS:
        inner = next((_PROGRAM.match(each) for each in rest if not each.startswith("-")), None)
        return f"{word} {inner[0]}" if inner else word
    return found[0]


@dataclass(slots=True)
class SourceReader:
    """Reads the requests of one session on one wire; remembers which call a result answers."""

    wire: str
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)  # id → label, hash of what was asked

    def tool(self, raw: Any) -> SourcedPart:
        """One tool's definition."""
        inner = mapping(raw)
        named = mapping(inner.get("function")).get("name") or inner.get("name") or inner.get("type")
        marked = bool(inner.get("cache_control"))
        plain = {key: value for key, value in inner.items() if key != "cache_control"} if marked else raw
        source = _NOT_IN_LOG if named == STAND_IN else TokenSource("tools", str(named or "")[:80])
        return SourcedPart(source, canonical_json(plain), marked=marked)

    def system(self, given: Any) -> list[SourcedPart]:
        """The instructions that stand beside the messages."""
        name = "instructions" if self.wire == "openai-responses" else "system"
        return self._pieces({name: given})

    def message(self, raw: Any) -> list[SourcedPart]:
        """One item of the conversation."""
        return self._pieces({ITEMS[self.wire]: [raw]})

    def _pieces(self, body: dict[str, Any]) -> list[SourcedPart]:
        request = parse_request(self.wire, body)
        found = [self.tool(raw) for raw in request.tools]
        for message in request.messages:
            found += self._of(message)
        return found

    def _of(self, message: WireMessage) -> Iterator[SourcedPart]:
        source, asked = self._source(message)
        for part in message.parts:
            marked = bool(part.cache_control)
            if part.text is None:
                kind = "thinking" if part.kind in ("redacted_thinking", "reasoning") else "images"
                own = TokenSource("thinking") if kind == "thinking" else TokenSource("images", source.name)
                yield SourcedPart(own, None, image_tokens(part.raw, self.wire), marked, stable_hash(part.raw), asked)
            elif part.kind == "reasoning":
                yield SourcedPart(TokenSource("thinking"), part.text, marked=marked)
            elif part.kind != "tool_use":
                yield from _without_client_texts(source, part.text, marked, asked)
            elif marked:
                yield SourcedPart(source, "", marked=True)
        for call in message.tool_calls:
            label = tool_label(str(call.get("name") or "")[:80], call.get("arguments"))
            asked = stable_hash([call.get("name"), parsed(call.get("arguments"))], 16)
            if isinstance(call.get("id"), str):
                self.calls[call["id"]] = (label, asked)
            yield SourcedPart(TokenSource("calls", label), canonical_json(call))

    def _source(self, message: WireMessage) -> tuple[TokenSource, str]:
        if message.role in RESULT_ROLES:
            label, asked = self.calls.get(message.tool_call_id or "", ("", ""))
            return TokenSource("results", label), asked
        if message.role in SYSTEM_ROLES:
            return TokenSource("system"), ""
        return TokenSource("assistant" if message.role == "assistant" else "user"), ""


def _without_client_texts(source: TokenSource, text: str, marked: bool, asked: str) -> Iterator[SourcedPart]:
    """Parts of a text, those that a client put into it apart from the rest."""
    if source.kind == "user" and text.startswith(_SUMMARIES):
        yield SourcedPart(TokenSource("summary"), text, marked=marked)
    elif source.kind == "user" and text.startswith(_OPENED_BY_CLIENT):
        yield SourcedPart(_of_client(text), text, marked=marked)
    elif source.kind == "system" and text.startswith(STAND_IN_TEXT):
        stood_for, _, rest = text.partition("\n\n")  # what follows are instructions that the log does hold
        yield SourcedPart(_NOT_IN_LOG, stood_for, marked=marked and not rest)
        if rest:
            yield SourcedPart(source, rest, marked=marked)
    elif source.kind not in ("user", "results") or "<system-reminder>" not in text:
        yield SourcedPart(source, text, marked=marked, call=asked)
    else:
        at, found = 0, []
        for reminder in _REMINDER.finditer(text):
            if text[at : reminder.start()].strip():
                found.append(SourcedPart(source, text[at : reminder.start()], call=asked))
            found.append(SourcedPart(_of_client(reminder[0]), reminder[0]))
            at = reminder.end()
        if text[at:].strip():
            found.append(SourcedPart(source, text[at:], call=asked))
        yield from found[:-1]
        yield from (piece._replace(marked=marked) for piece in found[-1:])


def _of_client(text: str) -> TokenSource:
    return TokenSource("memory", "memory files" if _MEMORY.search(text[:4_000]) else "reminders")


_MOST_IMAGE = 1_600  # tokens: what is larger is made smaller before it is billed


def image_tokens(raw: Any, wire: str) -> int:
    """Tokens that a picture is billed as, by its size; 0 where that is not known.

    Anthropic: width × height ÷ 750, at most about 1,600. OpenAI: 85, and 170 for each tile of 512 × 512 pixels once the
    picture is scaled into 2,048 × 2,048 and its shorter side to 768 (the providers' documentation of vision).
    """
    size = _size(raw)
    if size is None:
        return 0
    width, height = size
    if wire == "anthropic":
        return min(_MOST_IMAGE, round(width * height / 750))
    scale = min(1.0, 2_048 / max(width, height))
    scale *= min(1.0, 768 / max(1.0, min(width, height) * scale))
    tiles = -(-round(width * scale) // 512) * -(-round(height * scale) // 512)
    return 85 + 170 * tiles


def _size(raw: Any) -> tuple[int, int] | None:
    """Width and height of a PNG or GIF in a request."""
    data = _data(raw, 3)
    if data is None:
        return None
    try:
        head = base64.b64decode(data[:64], validate=True)
    except (binascii.Error, ValueError):
        return None
    if head.startswith(b"\x89PNG") and len(head) >= 24:
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    if head.startswith(b"GIF8") and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return None


def _data(raw: Any, depth: int) -> str | None:
    if isinstance(raw, str):
        return raw.partition(";base64,")[2] if raw.startswith("data:") else None
    if depth == 0:
        return None
    if isinstance(raw, Mapping):
        if isinstance(raw.get("data"), str):
            return str(raw["data"])
        return next((found for value in raw.values() if (found := _data(value, depth - 1)) is not None), None)
    return next((found for value in sequence(raw) if (found := _data(value, depth - 1)) is not None), None)
