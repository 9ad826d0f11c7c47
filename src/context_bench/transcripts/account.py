"""The account of a recorded session: what its log says was billed, and how much of that the log's own texts explain.

A client's log holds no system prompt, no tool definitions and no cache marks, but states the usage of every reply.
`fit` turns both into one account; `completed` puts the marks and stand-ins for the missing head back into the requests:

* *head*: tokens before the first message that the log does not hold = stated − rebuilt tokens of the first request
  whose reply states them. In the rebuilt request a tool called `STAND_IN` stands for them, which `HeadCounter` counts
  as the head; where the system prompt is missing too, a made text of the usual size stands for that part, so that a
  system which edits system prompts shows: what it would save there is not known.
* *scale*: the provider's tokens for one of ours = slope of the least-squares line of stated over rebuilt tokens.
* *warm*: tokens that the first request read from a cache which an earlier session had filled.

Tokens are counted by our tokenizer, except where they are called *stated*. Nothing here does I/O but reading
`clients.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from context_bench.core.protocols import method
from context_bench.core.records import Usage
from context_bench.core.tokens import TokenCounter
from context_bench.transcripts.session import Session, SessionRequest
from context_bench.wire.apis.shared import as_str

#: Name of the tool that stands in a rebuilt request for those that the log does not hold.
STAND_IN = "tools_that_the_log_does_not_hold"
_DEFINED = f'"name":"{STAND_IN}"'  # as canonical JSON has it: a text that only mentions the tool is none
#: Beginning of the text that stands in it for instructions that the log does not hold.
STAND_IN_TEXT = (
    "The client's own instructions stood here. Its log does not hold them, so this text of about their "
    "size stands for them."
)
#: Share of the head that is text: 0.25 (Claude Code 1.0.60), 0.29 (2.1.197), 0.31 (opencode 1.18.33); the rest are
#: tools.
_TEXT_SHARE = 0.3
_WORDS_A_TOKEN = 0.87  # of `made_text`
_MOST_WORDS = 100_000  # of it
_MOST_TOKENS = 10_000_000  # of one request or reply: no model takes as many, so a log that states more states nothing
#: Parts of a body whose absence from the log leaves out billed tokens.
BILLED_PARTS = ("system", "instructions", "tools", "prompt")
#: Tokens by which rebuilt requests must differ before a slope is taken from them.
_SPREAD = 1_500
_SCALES = (0.5, 2.0)
#: A smaller share of what follows the head, or a larger distance of the cache reads, allows no verdict on money.
LEAST_REBUILT = 0.5
MOST_APART = 0.10


@dataclass(frozen=True, slots=True)
class Account:
    """The bill of one session, as its log states it.

    `missing`: parts that the log leaves out. `stated`: usage summed over the `stated_requests` of `requests` replies
    that state their prompt tokens; `predicted_outputs`: of the replies, those whose output tokens are not stated (or a
    placeholder). `rebuilt`: our tokens of those requests, in the provider's scale and no more than stated; `after` and
    `rebuilt_after`: stated and rebuilt tokens beyond the first request's. `hour`: cache entries were stored for an hour
    instead of five minutes. `client`: program whose log this is. `words`: of the made text that stands for the client's
    instructions, `text_tokens` its size.
    """

    head: int = 0
    scale: float = 1.0
    warm: int = 0
    hour: bool = False
    requests: int = 0
    stated_requests: int = 0
    predicted_outputs: int = 0
    rebuilt: int = 0
    after: int = 0
    rebuilt_after: int = 0
    stated: Usage = field(default_factory=Usage)
    missing: tuple[str, ...] = ()
    client: str | None = None
    words: int = 0
    text_tokens: int = 0

    @property
    def unguarded(self) -> bool:
        """True if a system prompt is missing and no text stands for it, so that a system which edits system prompts
        would not show.
        """
        return bool(self.head) and not self.words and _lacks_prompt(self.missing)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; see `of`."""
        return {**asdict(self), "missing": list(self.missing)}

    @classmethod
    def of(cls, values: Any) -> Account:
        """The account in an example (`as_dict`); an empty one where there is none."""
        if not isinstance(values, Mapping):
            return cls()
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        usage = known.get("stated")
        known["stated"] = Usage(**usage) if isinstance(usage, Mapping) else Usage()
        return cls(**{**known, "missing": tuple(known.get("missing") or ())})


@dataclass(slots=True)
class HeadCounter:
    """Counts like `counter`, and the tool that stands in for others as the `head` tokens that it stands for."""

    counter: TokenCounter
    head: int
    name: str
    exact: bool

    def count(self, text: str) -> int:
        """Tokens of a text."""
        tokens = self.counter.count(text)
        return tokens + self.head if _DEFINED in text else tokens

    def estimates(self, texts: Iterable[str]) -> bool:
        """As the counter itself says."""
        found = method(self.counter, "estimates")
        return found is not None and bool(found(texts))


def weighing(counter: TokenCounter, account: Account) -> TokenCounter:
    """`counter` for the requests of a session with this account."""
    return (
        HeadCounter(counter, account.head - account.text_tokens, counter.name, counter.exact)
        if account.head
        else counter
    )


@lru_cache(maxsize=16)
def made_text(words: int) -> str:
    """A text of about so many words, the same at each call, that says nothing: it stands for instructions that a log
    does not hold.
    """
    import random

    draw, vocabulary = random.Random(words), str(_facts()["made_words"]).split()
    sentences = [STAND_IN_TEXT]
    while words > 0:
        length = draw.randint(8, 16)
        words -= length
        said = " ".join(draw.choice(vocabulary) for _ in range(length))
        sentences.append(f"{said[0].upper()}{said[1:]}.")
    return "\n".join(" ".join(sentences[i : i + 5]) for i in range(0, len(sentences), 5))


def fit(session: Session, rebuilt: Sequence[int], count: Callable[[str], int], *, with_text: bool = True) -> Account:
    """The account of `session`, whose requests have `rebuilt` tokens by `count`. `with_text`: a made text stands for a
    missing system prompt; without it, nothing can be said about money, but no model is sent the text.
    """
    usages = [stated_usage(session, request) for request in session.requests]
    points = [
        (ours, usage.input_tokens) for ours, usage in zip(rebuilt, usages, strict=True) if usage and usage.input_tokens
    ]
    missing = tuple(part for part in session.meta.get("assumed") or () if part in BILLED_PARTS)
    scale = _slope(points) if missing else _ratio(points)
    stated = sum((usage for usage in usages if usage and usage.input_tokens), Usage())
    first = usages[0] if usages else None
    head = max(0, round(points[0][1] / scale) - points[0][0]) if missing and points else 0
    words = min(_MOST_WORDS, round(_TEXT_SHARE * head * _WORDS_A_TOKEN)) if with_text and _lacks_prompt(missing) else 0
    return Account(
        head=head,
        words=words,
        text_tokens=min(head, count(made_text(words))) if words else 0,
        scale=round(scale, 6),
        warm=round((first.cache_read or 0) / scale) if first else 0,
        hour=_hour(stated, session),
        requests=len(usages),
        stated_requests=len(points),
        predicted_outputs=sum(usage is None or usage.output_tokens is None for usage in usages),
        rebuilt=sum(min(told, round(ours * scale)) for ours, told in points),
        after=sum(max(0, told - points[0][1]) for _, told in points),
        rebuilt_after=sum(max(0, ours - points[0][0]) for ours, _ in points),
        stated=stated,
        missing=missing,
        client=str(client["name"]) if (client := _client_of(_format(session))) else None,
    )


def _lacks_prompt(missing: Sequence[str]) -> bool:
    return "system" in missing or "instructions" in missing


def completed(session: Session, account: Account) -> Session:
    """The session with the client's cache marks, and the stand-in for its head, in the requests that had to be rebuilt;
    and with the usage that the log states, placeholders left out.
    """
    finish = partial(_finished, session.wire, account, _marked_messages(session))
    requests = []
    for request in session.requests:
        reply = request.recorded_reply
        if reply is not None:
            reply = replace(reply, usage=stated_usage(session, request))
        make_body = request.make_body if request.exact else partial(finish, request.make_body)
        requests.append(replace(request, make_body=make_body, recorded_reply=reply))
    return replace(session, requests=requests)


def stated_usage(session: Session, request: SessionRequest) -> Usage | None:
    """The usage that the log states for a reply, without an output count that is known to be a placeholder; `None` for
    no real usage.
    """
    reply = request.recorded_reply
    if reply is None or reply.usage is None or any((tokens or 0) > _MOST_TOKENS for tokens in astuple(reply.usage)):
        return None
    placeholder = is_placeholder(_format(session), as_str(session.meta.get("version")), reply.finish_reason)
    return replace(reply.usage, output_tokens=None) if placeholder else reply.usage


def _ratio(points: Sequence[tuple[int, int]]) -> float:
    """The provider's tokens for one of ours, where nothing is missing."""
    ours = sum(point[0] for point in points)
    return _bounded(sum(point[1] for point in points) / ours) if ours else 1.0


def _slope(points: Sequence[tuple[int, int]]) -> float:
    """The same where a constant head is missing: the slope of the line through the points; 1 where they lie too close
    together.
    """
    if len(points) < 2 or max(points)[0] - min(points)[0] < _SPREAD:
        return 1.0
    mean_x, mean_y = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    return _bounded(sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points))


def _bounded(scale: float) -> float:
    return min(max(scale, _SCALES[0]), _SCALES[1])


def _hour(stated: Usage, session: Session) -> bool:
    """True if the cache entries of the session live for an hour: most of what was written, by the log; else by the
    marks of its body.
    """
    if stated.cache_write:
        return 2 * (stated.cache_write_1h or 0) > stated.cache_write
    first = next((request for request in session.requests if request.exact and request.wire == "anthropic"), None)
    system = first.body.get("system") if first is not None else None
    marks = (
        [block.get("cache_control") for block in system if isinstance(block, Mapping)]
        if isinstance(system, list)
        else []
    )
    return any(isinstance(mark, Mapping) and mark.get("ttl") == "1h" for mark in marks)


# What is known of clients
# ------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(Path(__file__).with_name("clients.toml").read_text("utf-8"))


def _client_of(log_format: str) -> dict[str, Any] | None:
    """The program that leaves such logs, if its facts are recorded."""
    return next((client for client in _facts()["clients"] if log_format.startswith(tuple(client["formats"]))), None)


def _format(session: Session) -> str:
    return str(session.meta.get("format") or "")


def _version(text: Any) -> tuple[int, ...]:
    """A dotted version to compare; () where it is none, which is before all others."""
    numbers = []
    for part in str(text or "").split("-")[0].split("."):
        if not part.isdecimal() or len(part) > 6:
            break
        numbers.append(int(part))
    return tuple(numbers)


def _marked_messages(session: Session) -> int:
    """Number of messages that this client version marks at the end of each request; the latest recorded if the log
    names none.
    """
    client = _client_of(_format(session))
    places = (
        client.get("marks") if client and session.meta.get("reconstructed") and session.wire == "anthropic" else None
    )
    if not places:
        return 0
    version = _version(session.meta.get("version"))
    fitting = [place for place in places if not version or _version(place["from"]) <= version] or places[:1]
    return int(fitting[-1]["messages"])


@lru_cache(maxsize=64)
def is_placeholder(log_format: str, version: str | None, finish_reason: str | None) -> bool:
    """True if the output tokens that a log states for a reply without a `finish_reason` are a placeholder in this
    version's logs.
    """
    client = _client_of(log_format)
    if client is None or finish_reason is not None:
        return False
    numbers = _version(version)
    ranges = client.get("placeholders") or ()
    return log_format in client.get("unfinished", ()) or any(
        _version(each["from"]) <= numbers < _version(each["until"]) for each in ranges
    )


# Bodies
# ------------------------------------------------------------------------


def _finished(wire: str, account: Account, marked: int, make_body: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    body = dict(make_body())
    if account.head:
        body["tools"] = [_tool(wire), *(body.get("tools") or [])]
    if wire == "anthropic":
        return _finished_anthropic(body, account, marked)
    if account.words and wire == "openai-responses":
        body["instructions"] = "\n\n".join(filter(None, (made_text(account.words), body.get("instructions"))))
    elif account.words and wire == "openai-chat":
        body["messages"] = [{"role": "system", "content": made_text(account.words)}, *body.get("messages", [])]
    return body


def _tool(wire: str) -> dict[str, Any]:
    """The definition of the tool that stands in for others."""
    said = {"name": STAND_IN, "description": "Stands for the client's tools. Do not call it."}
    empty = {"type": "object", "properties": {}}
    if wire == "anthropic":
        return {**said, "input_schema": empty}
    return (
        {"type": "function", **said, "parameters": empty}
        if wire == "openai-responses"
        else {"type": "function", "function": said}
    )


def _finished_anthropic(body: dict[str, Any], account: Account, marked: int) -> dict[str, Any]:
    mark = {"type": "ephemeral", **({"ttl": "1h"} if account.hour else {})}
    if account.words:
        system = body.get("system") or []
        blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
        text = {"type": "text", "text": made_text(account.words), **({"cache_control": mark} if marked else {})}
        body["system"] = [text, *blocks]
    messages = list(body.get("messages") or [])
    for place in range(max(0, len(messages) - marked), len(messages)):
        messages[place] = _with_mark(messages[place], mark)
    return {**body, "messages": messages}


def _with_mark(message: dict[str, Any], mark: dict[str, str]) -> dict[str, Any]:
    """The message with its last block marked; thinking cannot be."""
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
    if not blocks or not isinstance(blocks[-1], dict) or str(blocks[-1].get("type")).endswith("thinking"):
        return message
    return {**message, "content": [*blocks[:-1], {**blocks[-1], "cache_control": mark}]}
