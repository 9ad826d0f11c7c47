"""One recorded run of an agent, whatever program recorded it: messages, thoughts, calls and results, with times and
usage.

Beside the record: commands and claims that stand in the text of the model's answers (fenced commands, blocks of
explored code), and the folders of a shell as a log states them after each command.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from context_bench.core.errors import BadInput
from context_bench.core.numbers import whole
from context_bench.core.records import Usage
from context_bench.transcripts.format import LogSource, mapping, parsed, texts
from context_bench.transcripts.session import SessionRequest
from context_bench.transcripts.trace import Event, spans

if TYPE_CHECKING:
    from context_bench.shell.repo import FilesByPath

_MOVING = re.compile(r"\b(?:cd|pushd|popd)\b")
_CONTAINER = re.compile(r"/testbed(?=/|$)|/workspace/[^/]+(?=/|$)")


def folder_before(command: str, after: str) -> str | None:
    """The folder a command began in that ended in `after`; `None` where it cannot be told, as after `cd` to an absolute
    path.
    """
    if not _MOVING.search(command):
        return after
    try:
        from context_bench.shell import read_shell

        moved = read_shell(command, "", None).new_cwd
    except ImportError:
        return None
    if moved.startswith("/"):
        return None
    return after.removesuffix("/" + moved) if moved and after.endswith("/" + moved) else None if moved else after


def root_among(folders: Iterable[str], repo: FilesByPath | None, *, begun: bool) -> str | None:
    """The folder of the repository, by the folders that a shell was in; `begun`: the one it began in is among them.

    With its files: the one from which most of them are folders of the repository. Without: the usual places of
    containers, else what all have in common; one folder that the agent went to tells nothing.
    """
    seen = list(dict.fromkeys(posixpath.normpath(folder) for folder in folders if folder.startswith("/")))
    if repo is not None:
        from context_bench.shell.files import tree_of

        inside = tree_of(repo).dirs
        found: dict[str, int] = {}
        for base in {parent for folder in seen for parent in _parents(folder)}:
            below = [folder[len(base) + 1 :] for folder in seen if folder == base or folder.startswith(base + "/")]
            if any(below) and all(path in inside for path in below):
                found[base] = len(below)
        if found:
            return min(found, key=lambda base: (-found[base], len(base)))
    usual = {hit[0] for folder in seen if (hit := _CONTAINER.match(folder))}
    if len(usual) == 1:
        return usual.pop()
    return (posixpath.commonpath(seen) if len(seen) > 1 or (begun and seen) else "/").rstrip("/") or None


def _parents(folder: str) -> list[str]:
    """A folder and those above it, but the top."""
    parts = folder.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts) + 1)]


#: Stands for a prompt that the log does not hold.
NO_PROMPT = "(The prompt was not recorded.)"
#: Facts that a transcript and its trace both have, under the same names.
FACTS = (
    *(
        "agent",
        "model",
        "models",
        "events",
        "patch",
        "final",
        "usage",
        "cost",
        "started",
        "ended",
        "cwd",
        "repo",
        "commit",
    ),
    *("skipped", "notes", "steps", "first_test_command", "path"),
)
#: So many contexts of one run are told apart; what starts another one after that stays in the last.
_MOST_CONTEXTS = 200


@dataclass(slots=True)
class ToolCall:
    """One call of a tool and what came of it.

    `arguments` is an object, or text for tools that take text. `output` is the text that the model was given (`None`:
    the log has none), `structured` the program's own record of the result. `failed`, `exit_code` and `cut` are what the
    log says of it, not what the text suggests. `cwd` is the folder of this one call, `lasting_cwd` the folder the log
    says the shell is in before it. `then`: what the same call did afterwards, such as show the file that it edited.
    """

    tool: str
    arguments: Any
    ident: str | None = None
    output: str | None = None
    structured: Any = None
    failed: bool | None = None
    exit_code: int | None = None
    cut: bool = False
    cwd: str | None = None
    lasting_cwd: str | None = None
    turn: int | None = None
    t: float | None = None
    tokens_before: int | None = None
    sidechain: bool = False
    place: str | None = None
    answered: bool = False
    then: ToolCall | None = None

    def answer(
        self, output: str | None, *, failed: bool | None = None, exit_code: int | None = None, structured: Any = None
    ) -> None:
        """Record the result; a second one for the same call is kept out."""
        if not self.answered:
            self.answered, self.output, self.failed, self.exit_code = True, output, failed, exit_code
            self.structured = structured


@dataclass(slots=True)
class Message:
    """A message of one side. `made`: the model made it in this run, in answer to a request. `ident`: its id in the log.

    `content`: text or chat parts. `thoughts` is what the model thought first, `seal` the provider's signature of it.
    `calls` are the model's, each with the result it was given; `acts` what the program did besides (files put into the
    chat, edits taken from the text). `items`: the message as it stood on the transcript's wire, where the log keeps it
    so. `head`: the fields of the request that it answers, where they are its own.
    """

    role: Literal["system", "user", "assistant"]
    content: Any = None
    ident: str | None = None
    made: bool = False
    thoughts: str = ""
    seal: str | None = None
    calls: list[ToolCall] = field(default_factory=list)
    acts: Sequence[ToolCall] = ()
    usage: Usage | None = None
    cost: float | None = None
    model: str | None = None
    at: float | None = None
    finish: str | None = None
    head: dict[str, Any] | None = None
    items: list[dict[str, Any]] | None = None

    def say(self, said: str) -> None:
        """Add a text to the content."""
        self.content = [*(self.content or []), {"type": "text", "text": said}]


@dataclass(slots=True)
class Context:
    """Messages that grow together. The first `carried` were in the context before, or stand for it, and are not counted
    again. `boundary`: the compaction with which it began, if it was one.
    """

    messages: list[Message] = field(default_factory=list)
    carried: int = 0
    boundary: Boundary | None = None


@dataclass(slots=True)
class Boundary:
    """A compaction as a log records it: `opening` took the place of the context `before`. `summary` is the text that
    stands for the history, "" where only outputs of tools were cleared; `made`: the answer that it was taken from.
    `stated_before`, `stated_after`: tokens; `seconds`: the time it took; `trigger`: as the log calls it.
    """

    before: Context | None = None
    opening: list[Message] = field(default_factory=list)
    summary: str = ""
    made: Message | None = None
    trigger: str | None = None
    stated_before: int | None = None
    stated_after: int | None = None
    seconds: float | None = None
    at: float | None = None


@dataclass
class Transcript:
    """One run: the conversation in `contexts`, the tool calls in `calls`, and the run's facts.

    `format` names the log's format, `agent` the program. `named`: `ident` is the task's, not only the session's.
    `wire`: the one the model was asked on, as far as the log tells. `head`: fields of the request bodies that the log
    holds. `assumed`: parts of the requests that the log does not hold; `tools`: names of tools to define in their place
    (`None`: none are defined). `sent`: the requests themselves, for logs that keep them. `parent`: the run that this
    one helped; `within`: the runs that helped this one; `helper`: its calls are in another transcript of the file.
    `calls` in the order of the log, sub-agents' included; a reader that leaves it empty has them in its messages.
    `lasting_shell`: `cd` carries over from one command to the next. `outputs`: the log records what tools returned.
    `settled`: the events are there, and final. `retrace` fills in what only a trace needs, when one is made. `opened`:
    the log holds the run's head. `path`: the file or folder it was read from. `skipped` counts records that were
    passed over, `strays` those that only a trace has no use for.
    """

    ident: str = ""
    format: str = ""
    agent: str = ""
    wire: str = "openai-chat"
    named: bool = True
    model: str | None = None
    models: list[str] | None = None
    version: str | None = None
    cwd: str | None = None
    repo: str | None = None
    commit: str | None = None
    patch: str | None = None
    cost: float | None = None
    usage: Usage | None = None
    started: float | None = None
    ended: float | None = None
    events: list[Event] = field(default_factory=list)
    final: list[Event] | None = None
    steps: int | None = None
    notes: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    strays: Counter[str] = field(default_factory=Counter)
    lasting_shell: bool = False
    outputs: bool = True
    settled: bool = False
    first_test_command: str | None = None
    path: str | None = None
    parent: str | None = None
    within: list[Transcript] = field(default_factory=list)
    helper: bool = False
    head: dict[str, Any] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    tools: list[str] | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    sent: Callable[[], list[SessionRequest]] | None = None
    retrace: Callable[[Transcript], None] | None = None
    opened: bool = False
    prompted: bool = False
    contexts: list[Context] = field(default_factory=lambda: [Context()])
    calls: list[ToolCall] = field(default_factory=list)
    turns: int = 0
    processed: int | None = None
    answer_id: str | None = None
    #: Where the shell was after each command, as far as the log tells, and (`begun`) before the first.
    shell_dirs: list[str] = field(default_factory=list)
    begun: bool = False
    _open: dict[str, ToolCall] = field(default_factory=dict)

    # --- the conversation ---

    @property
    def context(self) -> Context:
        """The context as it is now."""
        return self.contexts[-1]

    def add(self, message: Message) -> Message:
        """Add a message to the context."""
        self.context.messages.append(message)
        return message

    def given(self, role: Literal["system", "user"], said: str | None, at: float | None = None) -> None:
        """Add what the model was given, if it is anything."""
        if said:
            self.prompted = self.prompted or role == "user"
            self.add(Message(role, said, at=at))

    def reply(self, content: Any = None, **facts: Any) -> Message:
        """Add a message of the model's, behind a stand-in for the prompt where the log holds none."""
        if not self.prompted:
            self.given("user", NO_PROMPT)
        return self.add(Message("assistant", content, made=True, **facts))

    def speaking(self, ident: str | None = None, **facts: Any) -> Message:
        """The message that the model goes on with: the last one, while it has the same id or until a call of it is
        answered.
        """
        last = self.context.messages[-1] if self.context.messages else None
        if last is not None and last.made:
            going_on = last.ident == ident if ident is not None else not (last.calls and last.calls[0].answered)
            if going_on:
                return last
        return self.reply(ident=ident, **facts)

    @property
    def closed(self) -> bool:
        """True if so many contexts were told apart that no more are."""
        return len(self.contexts) >= _MOST_CONTEXTS

    def restart(self, carried: list[Message], boundary: Boundary | None = None) -> None:
        """Go on with another context, which begins with these messages. `boundary`: the compaction that this is."""
        if self.closed:
            return
        if boundary is not None:
            boundary.before = boundary.before or self.context
            boundary.opening = list(carried)
        self.contexts.append(Context(carried, len(carried), boundary))

    def messages(self) -> Iterator[Message]:
        """Every message once, in order."""
        for context in self.contexts:
            yield from context.messages[context.carried :]

    @property
    def missing(self) -> list[str]:
        """Parts of the requests that no message of the log holds."""
        roles = {"prompt" if message.content == NO_PROMPT else message.role for message in self.context.messages}
        spoken = any(message.made and (message.content or message.thoughts) for message in self.context.messages)
        lost = {
            "system": "system" not in roles,
            "prompt": "prompt" in roles,
            "what was said between the calls": not spoken,
        }
        return ["tools", *(name for name, absent in lost.items() if absent)]

    def family(self) -> Iterator[Transcript]:
        """The run itself, and all that helped it."""
        yield self
        for one in self.within:
            yield from one.family()

    # --- the calls ---

    def call(self, tool: Any, arguments: Any, ident: Any = None, **more: Any) -> ToolCall:
        """A new call; `arguments` in JSON text are parsed."""
        made = ToolCall(
            tool if isinstance(tool, str) else str(tool),
            parsed(arguments),
            ident if isinstance(ident, str) else None,
            **more,
        )
        made.lasting_cwd = made.lasting_cwd or (self.shell_dirs[-1] if self.shell_dirs else None)
        made.turn = made.turn if made.turn is not None else self.turns or None
        made.tokens_before = made.tokens_before if made.tokens_before is not None else self.processed
        self.calls.append(made)
        if made.ident is not None:
            self._open[made.ident] = made
        return made

    def find(self, ident: Any) -> ToolCall | None:
        """The last call with this id."""
        return self._open.get(ident) if isinstance(ident, str) else None

    def result(self, ident: Any, output: str | None, *, stray: bool = False, **facts: Any) -> None:
        """Record what came of the call with this id. A result without its call is counted; `stray`: for traces only."""
        if (call := self.find(ident)) is not None:
            call.answer(output, **facts)
        else:
            (self.strays if stray else self.skipped)["a result without its call"] += 1

    def note_folder(self, folder: str, call: ToolCall | None) -> None:
        """Note the folder that the shell was in after a call; of the first one it is worked out where it began."""
        command = mapping(call.arguments).get("command") if call is not None else None
        if call is not None and not self.shell_dirs and isinstance(command, str):
            call.lasting_cwd = folder_before(command, folder)
            self.begun = call.lasting_cwd is not None
            self.shell_dirs += [call.lasting_cwd] if call.lasting_cwd else []
        if self.shell_dirs[-1:] != [folder]:
            self.shell_dirs.append(folder)

    def at(self, stamp: float | None) -> float | None:
        """Note that something happened then; returns the moment."""
        if stamp is not None:
            self.started = stamp if self.started is None else min(self.started, stamp)
            self.ended = stamp if self.ended is None else max(self.ended, stamp)
        return stamp

    def billed(self, usage: Usage | None) -> None:
        """Add the usage of one answer."""
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage + usage
            self.processed = (self.processed or 0) + (usage.input_tokens or 0) + (usage.output_tokens or 0)

    def skip(self, reason: str) -> None:
        """Count a record of the log that the format has no use for."""
        self.skipped[reason[:80]] += 1

    def values_of(self, path: Path) -> Iterator[Any]:
        """Values of one file of a folder that is a run. Values that cannot be read are counted and never end the
        run.
        """
        source = LogSource(path)
        try:
            yield from source.values()
        except BadInput:
            self.skip("a file that cannot be read")
        self.skipped.update(source.skipped)

    @property
    def filled(self) -> bool:
        """True if there is anything of a run in it."""
        return bool(self.calls or self.events or self.final or self.patch or self.usage or self.turns or self.opened)


def run(agent: str, ident: Any, **facts: Any) -> Transcript:
    """An empty transcript of a program's run; a task's id that is no text is taken from the file's name later."""
    named = isinstance(ident, str) and bool(ident)
    return Transcript(str(ident) if named else "", agent=agent, named=named, **facts)


def log_calls(one: Transcript) -> None:
    """Put the calls of the messages in order, with what the model had processed before each."""
    costs: list[float] = []
    told = [(message, part is not one) for part in one.family() for message in part.messages()]
    if one.within and all(message.at is not None for message, _ in told):
        told.sort(key=lambda pair: pair[0].at or 0.0)
    usage, one.usage = one.usage, None
    for message, aside in told:
        one.turns += message.made
        one.model = one.model or message.model
        one.at(message.at)
        for call in [*message.acts, *message.calls]:
            call.turn = one.turns or None
            call.tokens_before, call.sidechain = one.processed, aside
            one.at(call.t)
            one.calls.append(call)
        one.billed(message.usage)
        if message.cost is not None:
            costs.append(message.cost)
    one.usage = usage or one.usage
    one.cost = one.cost if one.cost is not None else sum(costs) if costs else None


FENCE = re.compile(r"```(?:bash|sh|shell|mswea_bash_command)[ \t]*\n(.*?)\n?```", re.S)
_EXPLORE = re.compile(r"<explore_context>(.*?)</explore_context>", re.S | re.I)
_FINAL = re.compile(r"<PATCH_CONTEXT>(.*?)</PATCH_CONTEXT>", re.S | re.I)
_SUBMIT = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")


def fenced(said: str) -> list[str]:
    """The command that an answer in plain text gives: its first fenced block, if it has one."""
    return FENCE.findall(said)[:1]


def tool_of(command: Any) -> str:
    """`submit` for the command that hands the work in, which reads nothing, else `bash`."""
    return "submit" if isinstance(command, str) and any(mark in command for mark in _SUBMIT) else "bash"


def observation(content: str, extra: Mapping[str, Any]) -> tuple[str, int | None, bool]:
    """Of what the agent was shown: the command's output, its exit code if that is told, and whether the middle was cut
    out.
    """
    told, code = parsed(content), whole(extra.get("returncode"))
    if isinstance(told, Mapping) and ("output" in told or "output_head" in told):
        code = whole(told.get("returncode")) if code is None else code
        return texts(told.get("output", told.get("output_head"))) or "", code, "output_head" in told
    if "raw_output" in extra and "<output_head>" not in content and "elided" not in content:
        return texts(extra.get("raw_output")) or "", code, False
    return content, code, False


def claims(said: str, one: Transcript) -> None:
    """Note what the agent says of itself in an answer: blocks that it explores, and the last context it names for its
    patch.
    """
    for block in _EXPLORE.findall(said):
        one.events += spans(block, len(one.calls) + 1, "explore_context")
    if blocks := _FINAL.findall(said):
        one.final = spans(blocks[-1], 1, "PATCH_CONTEXT")
