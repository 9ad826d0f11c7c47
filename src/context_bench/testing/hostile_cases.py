"""Cases of the hostile provider: each case as the bytes it sends, with what a careful client makes of it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum
from typing import Any

from context_bench.core import errors
from context_bench.core.records import Usage


class Act(Enum):
    """Actions on a connection besides sending bytes."""

    TICK = "wait for the provider's tick"
    STALL = "wait for ever"
    RESET = "end it with a TCP reset"
    CLOSE = "end it"


Step = bytes | Act


@dataclass(slots=True)
class Scene:
    """One request, as far as a case needs to know. `usage`: what the reply tells, if it tells any; filled in by the
    case.
    """

    model: str
    answer: str
    stream: bool
    words: int
    now: float
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class HostileCase:
    """`error`: the failure with which a client ends that meets the case at every attempt, `None` if it is an answer.
    `again`: whether another attempt is worth while. `asks`: seconds for which the provider wants to be left alone,
    `None` if it does not say. `stream`: a streamed reply must be asked for. `slow`: only a client's own time limit ends
    it.
    """

    name: str
    about: str
    steps: Callable[[Scene], Iterable[Step]]
    error: type[errors.SystemFailed] | None = None
    again: bool = False
    asks: float | None = None
    stream: bool = False
    slow: bool = False


CASES: dict[str, HostileCase] = {}


def _case(
    name: str,
    about: str,
    steps: Callable[[Scene], Iterable[Step]],
    error: type[errors.SystemFailed] | None = None,
    **more: Any,
) -> None:
    CASES[name] = HostileCase(name, about, steps, error, **more)


# --- pieces of replies
# ------------------------------------------------------------------------


def _http(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, *, kind: str = "application/json"
) -> bytes:
    told = {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}
    return _head(status, told) + body


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Trouble'}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _usage(scene: Scene) -> dict[str, int]:
    """Tokens by a rule anybody can redo: words."""
    scene.usage = Usage(scene.words, len(scene.answer.split()))
    return {"prompt_tokens": scene.words, "completion_tokens": len(scene.answer.split())}


def _whole(scene: Scene, message: Mapping[str, Any] | None = None, finish: str = "stop") -> bytes:
    """The body of a plain reply."""
    said = {"role": "assistant", **({"content": scene.answer} if message is None else message)}
    return _json(
        {
            "model": scene.model,
            "choices": [{"index": 0, "message": said, "finish_reason": finish}],
            "usage": _usage(scene),
        }
    )


def _delta(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    return _json({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _event(data: bytes, end: bytes = b"\n") -> bytes:
    return b"data: " + data + end + end


_STREAM = _head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
_ROLE = _delta({"role": "assistant", "content": ""})
_STOP = _delta({}, "stop")
_DONE = b"[DONE]"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _stream(pieces: Iterable[bytes]) -> Iterator[Step]:
    """A stream of which each piece is a chunk of its own."""
    yield _STREAM
    for piece in pieces:
        yield _chunk(piece)
    yield b"0\r\n\r\n"


def _words(scene: Scene) -> list[bytes]:
    """The answer's deltas, cut in two."""
    half = len(scene.answer) // 2
    return [_delta({"content": part}) for part in (scene.answer[:half], scene.answer[half:]) if part]


def _tail(scene: Scene) -> bytes:
    return _json({"choices": [], "usage": _usage(scene)})


def _answer(scene: Scene) -> Iterator[Step]:
    if scene.stream:
        return _stream(_event(each) for each in [_ROLE, *_words(scene), _STOP, _tail(scene), _DONE])
    return iter([_http(_whole(scene))])


_case("answer", "a right reply, plain or streamed", _answer)

# --- refused for quota
# ------------------------------------------------------------------------

_LIMITED = _json({"error": {"message": "slow down", "type": "rate_limit_exceeded", "code": "rate_limit_exceeded"}})


def _limited(name: str, about: str, headers: Callable[[float], Mapping[str, str]], asks: float | None) -> None:
    _case(
        f"429-{name}", f"429, {about}", lambda s: [_http(_LIMITED, 429, headers(s.now))], errors.RateLimited, again=True, asks=asks  # noqa: E501
    )  # fmt: skip


def _iso(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat().replace("+00:00", "Z")


_limited("seconds", "Retry-After in seconds", lambda now: {"Retry-After": "7"}, 7)
_limited(
    "date-ahead",
    "Retry-After as an HTTP date in the future",
    lambda now: {"Retry-After": formatdate(now + 9, usegmt=True)},
    9,
)
_limited(
    "date-past",
    "Retry-After as an HTTP date in the past",
    lambda now: {"Retry-After": formatdate(now - 9, usegmt=True)},
    0,
)
_limited("date-naive", "Retry-After as a date without a zone", lambda now: {"Retry-After": formatdate(now + 9)[:-6]}, 9)
_limited("negative", "Retry-After below 0", lambda now: {"Retry-After": "-7"}, 0)
_limited("three-days", "Retry-After of three days", lambda now: {"Retry-After": "259200"}, 259_200)
_limited("garbage", "Retry-After that is no time", lambda now: {"Retry-After": "in a while"}, None)
_limited("bare", "without Retry-After", lambda now: {}, None)
_limited("milliseconds", "retry-after-ms", lambda now: {"retry-after-ms": "2500"}, 2.5)
_limited("reset-duration", "x-ratelimit-reset-* as a duration", lambda now: {"x-ratelimit-reset-requests": "1m6s"}, 66)
_limited("reset-iso", "x-ratelimit-reset-* as an ISO time", lambda now: {"x-ratelimit-reset-tokens": _iso(now + 8)}, 8)
_limited("reset-unix", "x-ratelimit-reset as a Unix time", lambda now: {"x-ratelimit-reset": str(int(now) + 4)}, 4)
_limited(
    "reset-unix-ms",
    "x-ratelimit-reset as Unix milliseconds",
    lambda now: {"x-ratelimit-reset": str(int(now + 5) * 1000)},
    5,
)
_limited("anthropic", "anthropic-ratelimit-*-reset", lambda now: {"anthropic-ratelimit-tokens-reset": _iso(now + 3)}, 3)
_case(
    "429-in-a-reply", "a refusal for quota in a reply with status 200", lambda s: [_http(_LIMITED, 200, {"Retry-After": "3"})],  # noqa: E501
    errors.RateLimited, again=True, asks=3,
)  # fmt: skip
_case(
    "429-in-a-stream", "a refusal for quota in the middle of a stream",
    lambda s: _stream(_event(each) for each in [_ROLE, *_words(s)[:1], _LIMITED]), errors.RateLimited, again=True, stream=True,  # noqa: E501
)  # fmt: skip
_case(
    "429-no-money", "429 because the account is empty: asking again is no use",
    lambda s: [_http(_json({"error": {"message": "pay", "code": "insufficient_quota"}}), 429)], errors.RateLimited,
)  # fmt: skip

# --- broken ones
# ------------------------------------------------------------------------

_PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


def _failed(status: int) -> None:
    body = _json({"error": {"message": "not now", "type": "server_error"}})
    _case(f"{status}", f"HTTP {status}", lambda s: [_http(body, status)], errors.ServerFailed, again=True)


for _status in (500, 503, 529):
    _failed(_status)
_case(
    "502",
    "HTTP 502 with a page for people",
    lambda s: [_http(_PAGE, 502, kind="text/html")],
    errors.ServerFailed,
    again=True,
)
_case("400", "HTTP 400", lambda s: [_http(_json({"error": {"message": "no"}}), 400)], errors.Refused)


def _half(scene: Scene) -> list[Step]:
    body = _http(_whole(scene))
    scene.usage = None
    return [body[: -len(body) // 3]]


def _half_stream(scene: Scene) -> list[Step]:
    return [_STREAM, *(_chunk(_event(each)) for each in [_ROLE, *_words(scene)[:1]])]


def _cut(act: Act, name: str, kind: type[errors.SystemFailed], *, slow: bool = False) -> None:
    more = {"again": True, "slow": slow}
    _case(f"{name}-before-headers", f"{act.value}, before the first byte", lambda s: [act], kind, **more)
    _case(f"{name}-mid-body", f"{act.value}, in the middle of the body", lambda s: [*_half(s), act], kind, **more)
    _case(
        f"{name}-mid-stream",
        f"{act.value}, in the middle of a stream",
        lambda s: [*_half_stream(s), act],
        kind,
        stream=True,
        **more,
    )


_cut(Act.RESET, "reset", errors.Unreachable)
_cut(Act.CLOSE, "close", errors.Unreachable)
_cut(Act.STALL, "stall", errors.TimedOut, slow=True)


def _drip(scene: Scene) -> Iterator[Step]:
    for byte in _http(_whole(scene)):
        yield bytes([byte])
        yield Act.TICK


_case("drip", "one byte at each tick", _drip, errors.TimedOut, again=True, slow=True)
_case(
    "length-too-long", "a Content-Length beyond the body, then the end",
    lambda s: [_head(200, {"Content-Type": "application/json", "Content-Length": "99999"}) + _json({}), Act.CLOSE],
    errors.Unreachable, again=True,
)  # fmt: skip
_case(
    "length-too-short", "a Content-Length within the body",
    lambda s: [_head(200, {"Content-Type": "application/json", "Content-Length": "10"}) + _json({"choices": ["x" * 50]}), Act.CLOSE],  # noqa: E501
    errors.BadReply, again=True,
)  # fmt: skip
_case(
    "no-http",
    "bytes that are no HTTP",
    lambda s: [b"\x16\x03\x01 go away\r\n\r\n", Act.CLOSE],
    errors.BadReply,
    again=True,
)
_case("html", "a page with status 200", lambda s: [_http(_PAGE, kind="text/html")], errors.BadReply)
_case("empty-body", "nothing, with status 200", lambda s: [_http(b"")], errors.BadReply)
_case(
    "half-json",
    "half of the JSON, of the length told",
    lambda s: [_http(_json({"choices": [1, 2, 3]})[:9])],
    errors.BadReply,
)
_case("json-list", "JSON that is no object", lambda s: [_http(b"[1, 2]")], errors.BadReply)
_case("no-choices", "a reply without choices", lambda s: [_http(_json({"choices": []}))], errors.BadReply)
_case("bytes", "bytes that are no text", lambda s: [_http(bytes(range(256)))], errors.BadReply)
_case(
    "error-in-a-reply", "an error object with status 200", lambda s: [_http(_json({"error": {"message": "boom", "type": "server_error"}}))],  # noqa: E501
    errors.ServerFailed, again=True,
)  # fmt: skip
_case(
    "error-unknown",
    "an error of no known kind with status 200",
    lambda s: [_http(_json({"error": "no"}))],
    errors.BadReply,
)
_case(
    "redirect", "a redirect", lambda s: [_http(b"", 307, {"Location": "http://127.0.0.1:9/elsewhere"})], errors.Refused
)

# --- streams that are in order, but odd
# -------------------------------------------------------------------------------------------------


def _odd(name: str, about: str, pieces: Callable[[Scene], Iterable[bytes]]) -> None:
    _case(name, f"a stream {about}", lambda s: _stream(pieces(s)), stream=True)


def _split(scene: Scene) -> Iterator[bytes]:
    """One byte a chunk, so that every character of several bytes is cut."""
    whole = b"".join(_event(each) for each in [_ROLE, *_words(scene), _STOP, _tail(scene), _DONE])
    return (whole[place : place + 1] for place in range(len(whole)))


def _calls(scene: Scene) -> list[bytes]:
    """Two tool calls whose arguments come by turns."""

    def piece(index: int, **call: Any) -> bytes:
        return _delta({"tool_calls": [{"index": index, **call}]})

    return [
        piece(0, id="call_a", type="function", function={"name": "first", "arguments": ""}),
        piece(1, id="call_b", type="function", function={"name": "second", "arguments": ""}),
        piece(0, function={"arguments": '{"a":'}),
        piece(1, function={"arguments": '{"b":'}),
        piece(0, function={"arguments": "1}"}),
        piece(1, function={"arguments": "2}"}),
    ]


_odd("split-characters", "cut inside characters", _split)
_odd(
    "cr-only", "whose lines end with CR", lambda s: [_event(each, b"\r") for each in [_ROLE, *_words(s), _STOP, _DONE]]
)
_odd(
    "crlf",
    "whose lines end with CR LF",
    lambda s: [_event(each, b"\r\n") for each in [_ROLE, *_words(s), _STOP, _DONE]],
)
_odd(
    "comments",
    "with keep-alives",
    lambda s: [b": keep-alive\n\n" + _event(each) for each in [_ROLE, *_words(s), _STOP, _DONE]],
)
_odd(
    "role-first",
    "whose first delta is a role only",
    lambda s: [_event(each) for each in [_ROLE, _ROLE, *_words(s), _STOP, _DONE]],
)
_odd(
    "reasoning", "that begins with reasoning",
    lambda s: [_event(each) for each in [_ROLE, _delta({"reasoning_content": "hm"}), *_words(s), _STOP, _DONE]],
)  # fmt: skip
_odd(
    "usage-last",
    "with usage in a chunk of its own",
    lambda s: [_event(each) for each in [_ROLE, *_words(s), _STOP, _tail(s), _DONE]],
)
_odd("no-done", "without [DONE]", lambda s: [_event(each) for each in [_ROLE, *_words(s), _STOP]])
_odd("two-dones", "with two [DONE]s", lambda s: [_event(each) for each in [_ROLE, *_words(s), _STOP, _DONE, _DONE]])
_odd(
    "two-tools", "with an answer and two interleaved tool calls",
    lambda s: [_event(each) for each in [_ROLE, *_words(s), *_calls(s), _delta({}, "tool_calls"), _DONE]],
)  # fmt: skip

# --- streams that go on after their end
# -------------------------------------------------------------------------------------------------


def _after(name: str, about: str, *more: Step) -> None:
    """A whole stream of which only the end of the HTTP body is missing, and what comes in its place."""

    def steps(scene: Scene) -> Iterator[Step]:
        *whole, _ = _answer(scene)
        yield from whole
        yield from more

    _case(f"done-then-{name}", f"a stream that {about} after [DONE]", steps, stream=True)


_MORE = _chunk(_event(_delta({"content": " EVIL"})))
_after("stall", "stays open", Act.STALL)
_after("reset", "ends with a TCP reset", Act.RESET)
_after("close", "ends without an end of its body", Act.CLOSE)
_after("more", "goes on", _MORE, _MORE, b"0\r\n\r\n")
_after("more-and-stall", "goes on and stays open", _MORE, Act.STALL)
_after(
    "another-end",
    "says another usage and finish reason",
    _chunk(_event(_delta({}, "length"))),
    _chunk(_event(_DONE)),
    b"0\r\n\r\n",
)
_after("error", "complains", _chunk(_event(_LIMITED)), b"0\r\n\r\n")
_after("no-json", "says what is no JSON", _chunk(_event(b'{"choices": [')), b"0\r\n\r\n")
_after("no-http", "breaks its framing", _chunk(b": so far\n\n"), Act.TICK, b"zz\r\n", Act.STALL)
_after("flood", "never ends", *[_chunk(_event(_delta({"content": "x" * 2**15})))] * 64, Act.STALL)

# --- replies in order that hold no answer
# -----------------------------------------------------------------------------------------------


def _unanswered(
    name: str, about: str, error: type[errors.SystemFailed], message: Mapping[str, Any], finish: str = "stop"
) -> None:
    _case(name, about, lambda s: [_http(_whole(s, message, finish))], error)


_unanswered(
    "length",
    "the output limit went on reasoning",
    errors.OutputSpent,
    {"content": "", "reasoning_content": "hm"},
    "length",
)
_unanswered("filtered", "the content filter held the answer back", errors.Filtered, {"content": None}, "content_filter")
_unanswered("declined", "the model refused", errors.Declined, {"content": None, "refusal": "I will not."})
_unanswered("null", "null content", errors.EmptyReply, {"content": None})
_unanswered("blank", "white space", errors.EmptyReply, {"content": " \n"})
