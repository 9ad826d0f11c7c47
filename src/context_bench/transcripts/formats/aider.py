"""Aider's chat history (`.aider.chat.history.md`): Markdown in which the user's lines begin with `####` and the
program's with `>`.

What the program says ends with two blanks, on its last line; what the model says has no mark. The files in the chat,
the repository map and the system prompt were sent with every request and are not kept; tokens and cost are kept
rounded.

Edits stand in the model's answers: SEARCH/REPLACE blocks, and whole files in fences under their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.machine import opened
from context_bench.core.numbers import MOST, amount, money
from context_bench.core.records import Usage
from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.transcript import NO_PROMPT, Message, ToolCall, Transcript, log_calls

_SEARCH = re.compile(r"^<{5,9} ?SEARCH>?\s*$")
_MIDDLE = re.compile(r"^={5,9}\s*$")
_REPLACE = re.compile(r"^>{5,9} ?REPLACE\s*$")
_FENCE = re.compile(r"^(`{3,}|~{3,})\S*\s*$")
_MOST = 500


def edits_of(said: str, applied: set[str], failed: str) -> list[ToolCall]:
    """The calls that the edits in a reply amount to.

    `applied`: the files that the program says it edited. `failed`: what it said of blocks that did not fit, which names
    each with its file. A block of a file of neither was not carried out.
    """
    calls: list[ToolCall] = []
    rest = "were applied successfully" in failed
    blocks = list(_blocks(said.split("\n")))
    for path, arguments in blocks:
        if "content" in arguments and path not in applied:
            continue  # a fence under a line that is no name, or a file that was only shown
        missed = f"match lines in {path}\n" in failed and str(arguments.get("old_string", "")).strip() in failed
        made = path in applied or (rest and bool(failed) and not missed)
        call = ToolCall("write" if "content" in arguments else "edit", {"path": path, **arguments})
        call.answer("", failed=True if missed or not made else None)
        calls.append(call)
    named = {path for path, _ in blocks}
    for path in sorted(applied - named):
        call = ToolCall("edit", {"path": path})
        call.answer("")
        calls.append(call)
    return calls


def _blocks(lines: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The file and the change of each block, at most so many."""
    found = 0
    at, path = 0, ""
    while at < len(lines) and found < _MOST:
        line = lines[at]
        if _SEARCH.match(line):
            path = _name(lines, at) or path
            middle, end = _next(lines, at, _MIDDLE), 0
            end = _next(lines, middle, _REPLACE) if middle else 0
            if not end:
                return
            if path:
                found += 1
                yield path, {"old_string": _text(lines[at + 1 : middle]), "new_string": _text(lines[middle + 1 : end])}
            at = end + 1
        elif (fence := _FENCE.match(line)) and (name := _name(lines, at)):
            end = next((n for n in range(at + 1, len(lines)) if lines[n].rstrip() == fence[1]), 0)
            if not end:
                return
            if not any(_SEARCH.match(inner) for inner in lines[at + 1 : end]):
                found += 1
                yield name, {"content": _text(lines[at + 1 : end])}
                at = end + 1
            else:
                at += 1
        else:
            at += 1


def _name(lines: list[str], at: int) -> str:
    """The file's name above a block: the last line before it that is neither blank nor a fence."""
    for line in reversed(lines[max(0, at - 3) : at]):
        bare = line.strip().strip("*`:").removeprefix("# ").strip()
        if bare and not _FENCE.match(line) and not _REPLACE.match(line):
            return (
                bare if len(bare) < 1000 and not re.search(r"\s{2}|[<>|\"?]|[.!,]$", bare) and " " not in bare else ""
            )
    return ""


def _next(lines: list[str], at: int, mark: re.Pattern[str]) -> int:
    return next((n for n in range(at + 1, len(lines)) if mark.match(lines[n])), 0)


def _text(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


NAME = "aider"
_STARTED = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*$")
_OPENING = b"# aider chat started at "
_SNIFFED = re.compile(rb"(?:\A|\n)" + _OPENING + rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*\n")
_NUMBER = r"([\d.,]{1,12})([kM]?)"
_TOKENS = re.compile(
    rf"Tokens: {_NUMBER} sent(?:, {_NUMBER} cache write)?(?:, {_NUMBER} cache hit)?, {_NUMBER} received\.?"
    r"(?: Cost: \$([\d.]{1,15}) message)?"
)
_VERSION = re.compile(r"Aider v(\d[\w.+-]{0,40})")
_MODEL = re.compile(r"(?:Main model|Model|Models): (\S{1,200})(?: with (\S{1,40}) edit format)?")
_ADDED = re.compile(r"Added (\S.{0,1000}?) to (?:the chat(?: \(read-only\))?|read-only files)\.?$")
_OUTPUT = re.compile(r"Added \d+ lines? of output to the chat\.?$")
_ADD_FILE = re.compile(r"Add file to the chat\? .*: [yad]", re.I)
_APPLIED = re.compile(r"Applied edit to (\S.{0,1000})$")
_RUN = re.compile(r"(?:/run|!)\s*(\S.{0,5000})$")
#: The beginning of what the program sends back to the model by itself when its edits did not fit.
_REFLECTED = re.compile(r"# \d+ (?:SEARCH/REPLACE block|\S+ )")
_LARGEST = 64 * 1024 * 1024
_LONGEST_LINE = 1024 * 1024


def sniff(peek: Peek) -> bool:
    """True if a chat's first line is at the beginning of the file."""
    return (
        _OPENING in peek.start  # told in a hundredth of the search's time, and every file of calls is asked
        and b"\0" not in peek.start[:4096]
        and _SNIFFED.search(peek.start) is not None
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per start of the program that anything was said in."""
    chat: _Chat | None = None
    seen: dict[str, int] = {}
    for line in _lines(source):
        if started := _STARTED.match(line):
            if chat is not None and chat.finished().context.messages:
                yield chat.one
            stamp = started[1].replace(" ", "T")
            seen[stamp] = seen.get(stamp, 0) + 1
            chat = _Chat(f"aider-{stamp}" + (f"#{seen[stamp]}" if seen[stamp] > 1 else ""))
        elif chat is not None:
            chat.line(line)
        elif line.strip():
            source.skip("a line before any chat")
    if chat is not None and chat.finished().context.messages:
        yield chat.one


def _lines(source: LogSource) -> Iterator[str]:
    read = 0
    with opened(source.path) as file:
        while line := file.readline(_LONGEST_LINE):
            read += len(line)
            if read > _LARGEST:
                source.skip("text beyond the most that is read")
                return
            yield line.decode("utf-8", "replace").rstrip("\r\n")


@dataclass
class _Speech:
    """A text being read: whose it is, and its lines. `open`: the program's text has not ended yet."""

    whose: str = "program"
    lines: list[str] = field(default_factory=list)
    open: bool = False


class _Chat:
    """One run of the program, fed line by line. `asked`: whether a message of the user's waits for its reply."""

    def __init__(self, ident: str) -> None:
        self.one = Transcript(ident, NAME, NAME, named=False, outputs=False, retrace=log_calls)
        self.one.assumed = ["system", "the files in the chat", "repository map"]
        self.one.meta["chat"] = ident
        self.now = _Speech()
        self.asked = False
        self.reply: Message | None = None
        self.acts: list[ToolCall] = []
        self.before = ""  # what the program said last
        self.command = ""
        self.notes: list[str] = []

    def line(self, line: str) -> None:
        """Read one line."""
        if self.now.open and not (line.startswith("#### ") and line.endswith("  ")):
            self._program(line)
        elif line.startswith("#### ") or line == "####":
            self._turn("user")
            self.now.lines.append(line[5:].removesuffix("  "))
        elif line.startswith("> ") and (line.endswith("  ") or self.now.whose != "model"):
            self._turn("program")
            self._program(line[2:])
        elif line.strip() or self.now.whose == "model":
            self._turn("model")
            self.now.lines.append(line)

    def finished(self) -> Transcript:
        """The run, once all its lines are read."""
        self._turn("end")
        self._settle()
        return self.one

    def _turn(self, whose: str) -> None:
        """Another one speaks: what was said so far is whole."""
        if whose == self.now.whose:
            return
        said, lines = self.now.whose, self.now.lines
        self.now = _Speech(whose)
        body = "\n".join(lines).strip("\n")
        if said == "user" and body.strip():
            self._user(body)
        elif said == "model" and body.strip():
            self._model(body)

    def _user(self, body: str) -> None:
        if body.startswith(("/", "!")) and not body.startswith(("/ask ", "/code ", "/architect ")):
            run = _RUN.match(body)
            self.command = run[1] if run else ""
            return
        self._settle()
        self._ask(body)

    def _ask(self, body: str) -> None:
        self.one.add(Message("user", body, acts=self.acts))
        self.acts, self.asked = [], True

    def _model(self, body: str) -> None:
        if not self.asked:  # the program asked by itself
            failed = next((note for note in self.notes if _REFLECTED.match(note)), None)
            self._settle()
            if failed is None and "prompt" not in self.one.assumed:
                self.one.assumed.append("prompt")
            self._ask(failed or NO_PROMPT)
        self.asked, self.notes = False, []
        self.reply = self.one.add(Message("assistant", body, made=True, model=self.one.model))

    def _program(self, line: str) -> None:
        """A line of the program's; a text of several ends with the line that ends with two blanks."""
        self.now.lines.append(line)
        self.now.open = not line.endswith("  ")
        if not self.now.open:
            text = "\n".join(self.now.lines).rstrip()
            self.now.lines = []
            self._heard(text)
            self.notes.append(text)
            del self.notes[:-50]
            self.before = text

    def _heard(self, text: str) -> None:
        """Note what the program tells of the run."""
        first = text.partition("\n")[0].rstrip()
        if version := _VERSION.match(first):
            self.one.version = version[1]
        elif model := _MODEL.match(first):
            self.one.model = self.one.model or model[1]
            self.one.wire = "anthropic" if model[1].startswith(("anthropic/", "claude-")) else self.one.wire
        elif tokens := _TOKENS.match(first):
            self._billed(tokens)
        elif _OUTPUT.match(first):
            if self.command:
                self.acts.append(ToolCall("bash", {"command": self.command}))
            self.command = ""
        elif added := _ADDED.match(first):
            self.acts.append(ToolCall("/add", {"path": added[1]}))
        elif _ADD_FILE.search(first) and self.before:
            self.acts.append(ToolCall("/add", {"path": self.before.strip()}))

    def _billed(self, tokens: re.Match[str]) -> None:
        if self.reply is None:
            return
        sent, written, read, made = (_tokens(tokens[at], tokens[at + 1]) for at in (1, 3, 5, 7))
        self.reply.usage = Usage(sent, made, read, written)
        self.reply.cost = (
            money(float(tokens[9])) if tokens[9] and tokens[9].count(".") < 2 and tokens[9] != "." else None
        )
        self.one.meta["usage_rounded"] = True

    def _settle(self) -> None:
        """Decide, by what the program said after the last reply, which of its edits were made."""
        if self.reply is not None:
            applied = {
                hit[1].strip() for note in self.notes if (hit := _APPLIED.match(note.partition("\n")[0].rstrip()))
            }
            failed = next((note for note in self.notes if _REFLECTED.match(note)), "")
            self.reply.acts = edits_of(str(self.reply.content), applied, failed)
            self.reply = None


def _tokens(number: str | None, unit: str | None) -> int | None:
    """A count as the program writes it: 62, 2.5k, 12k."""
    try:
        found = (
            None
            if number is None
            else amount(float(number.replace(",", "")) * {"": 1, "k": 1000, "M": 1_000_000}[unit or ""], MOST)
        )
    except ValueError:
        return None
    return None if found is None else round(found)


FORMAT = Format(NAME, 20, sniff, read, conversation=True)
