"""One recorded run of an agent, whatever program recorded it: what was said, thought, called and returned, with times and usage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from context_bench.core.records import Usage
from context_bench.transcripts.trace import Event

#: Stands for a prompt that the log does not hold.
NO_PROMPT = "(The prompt was not recorded.)"
#: So many contexts of one run are told apart; what starts another one after that stays in the last.
_MOST_CONTEXTS = 200


@dataclass(slots=True)
class ToolCall:
    """One call of a tool and what came of it.

    `arguments` is an object, or text for tools that take text. `output` is the text that the model was given (`None`: the log has none),
    `structured` the program's own record of the result. `failed`, `exit_code` and `cut` are what the log says of it, not what the text
    suggests. `cwd` is the folder of this one call, `lasting_cwd` the folder the log says the shell is in before it. `then`: what the same
    call did afterwards, such as show the file that it edited.
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

    def answer(self, output: str | None, *, failed: bool | None = None, exit_code: int | None = None, structured: Any = None) -> None:
        """Record the result; a second one for the same call is kept out."""
        if not self.answered:
            self.answered, self.output, self.failed, self.exit_code = True, output, failed, exit_code
            self.structured = structured


@dataclass(slots=True)
class Message:
    """What one side said. `made`: the model made it in this run, in answer to a request. `ident`: what the log calls it.

    `content`: text or chat parts. `thoughts` is what the model thought first, `seal` the provider's signature of it. `calls` are the
    model's, each with the result it was given; `acts` what the program did besides (files put into the chat, edits taken from the text).
    `items`: the message as it stood on the transcript's wire, where the log keeps it so, and `results` those of its calls.
    """

    role: Literal["system", "user", "assistant"]
    content: Any = None
    ident: str | None = None
    made: bool = False
    thoughts: str = ""
    seal: str | None = None
    calls: list[ToolCall] = field(default_factory=list)
    acts: list[ToolCall] = field(default_factory=list)
    usage: Usage | None = None
    cost: float | None = None
    model: str | None = None
    at: float | None = None
    finish: str | None = None
    items: list[dict[str, Any]] | None = None
    results: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Context:
    """Messages that grow together. The first `carried` were in the context before, or stand for it, and are not counted again."""

    messages: list[Message] = field(default_factory=list)
    carried: int = 0


@dataclass
class Transcript:
    """One run.

    `format` names the log's format, `agent` the program. `wire`: the one the model was asked on, as far as the log tells. `assumed`: parts
    of the requests that the log does not hold. `parent`: the run that this one helped; `within`: the runs that helped this one.
    `outputs`: the log records what tools returned. `meta`: what the format tells besides.
    """

    ident: str
    format: str
    agent: str
    wire: str = "openai-chat"
    named: bool = True
    model: str | None = None
    version: str | None = None
    cwd: str | None = None
    repo: str | None = None
    commit: str | None = None
    patch: str | None = None
    cost: float | None = None
    usage: Usage | None = None
    final: list[Event] | None = None
    claims: list[Event] = field(default_factory=list)
    lasting_shell: bool = False
    outputs: bool = True
    parent: str | None = None
    within: list[Transcript] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    contexts: list[Context] = field(default_factory=lambda: [Context()])

    @property
    def context(self) -> Context:
        """The context as it is now."""
        return self.contexts[-1]

    def add(self, message: Message) -> Message:
        """Add a message to the context."""
        self.context.messages.append(message)
        return message

    @property
    def closed(self) -> bool:
        """Whether so many contexts were told apart that no more are."""
        return len(self.contexts) >= _MOST_CONTEXTS

    def restart(self, carried: list[Message]) -> None:
        """Go on with another context, which begins with these messages."""
        if not self.closed:
            self.contexts.append(Context(carried, len(carried)))

    def messages(self) -> Iterator[Message]:
        """Every message once, in order."""
        for context in self.contexts:
            yield from context.messages[context.carried :]

    def family(self) -> Iterator[Transcript]:
        """The run itself, and all that helped it."""
        yield self
        for one in self.within:
            yield from one.family()
