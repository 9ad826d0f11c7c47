"""Write down an exchange as one `Forwarded`, by the recording policy.

`meta`: no text at all. `hashes`: keyed hashes of the blocks, with a key that dies with the tap. `redacted`: bodies
without secrets and addresses. `full`: bodies. Keys are in none of them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import TooLarge, canonical_json, keyed_digest, stable_hash
from context_bench.core.records import Forwarded
from context_bench.core.tokens import counter_for
from context_bench.llm.coding import Decoder, Undecodable, decode
from context_bench.llm.failures import used_quotas
from context_bench.llm.redact import environment_values, without_pieces
from context_bench.tap.exchange import BODY_LIMIT, KEY_HEADERS, SOCKET, Body, Exchange, Headers, header
from context_bench.tap.masking import (
    FIELDS,
    KINDS,
    NAME_FIELDS,
    client_left,
    credentials,
    cut_off,
    listed,
    map_text,
    mark_failed,
    mask_names,
    mask_private,
    masker,
    may_hold_a_key,
    text_masker,
)
from context_bench.tap.prefix import Joining, Prefixes
from context_bench.wire.apis import (
    Ending,
    Reply,
    StreamReader,
    parse_reply,
    parse_request,
    read_reply,
    render_reply,
    seen_at,
    seen_body,
    seen_stream,
    stream_reader,
    timed,
)
from context_bench.wire.apis.shared import dump, load_body
from context_bench.wire.cache import segments
from context_bench.wire.needles import shown
from context_bench.wire.request import WireRequest, by_lower_name, count_request, facts
from context_bench.wire.violations import cost_stated, reply_faults

POLICIES = ("meta", "hashes", "redacted", "full")
#: Messages, parts, calls and tools of one request that are read; each takes more than its JSON does.
_MOST_PARTS = 100_000

_PROMPTS = ("openai-chat", "openai-responses", "anthropic")
_COUNTED = (*_PROMPTS, "anthropic-count", "embeddings")
_UNASKED = ("stream", "stream_options", "client_metadata")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,39}")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_PLAIN_HEADERS = (
    "anthropic-beta",
    "anthropic-version",
    "content-encoding",
    "content-type",
    "openai-beta",
    "user-agent",
)
_SESSION_HEADERS = ("x-session-id", "session-id", "session_id", "x-claude-code-session-id")


class RecordWriter:
    """Writes the record of an exchange. Not for two threads at once: it remembers the earlier requests of every
    session.
    """

    def __init__(
        self, policy: str = "full", *, counter_model: str | None = None, secrets_known: Iterable[str] = ()
    ) -> None:
        if policy not in POLICIES:
            raise BadInput(f"recording policy {policy!r} is not known; expected one of: {', '.join(POLICIES)}")
        self.policy = policy
        self._counter_model = counter_model
        self._known = frozenset((*secrets_known, *environment_values()))
        self._key = secrets.token_bytes(32)
        self._prefixes = Prefixes()
        self._joining = Joining()

    def write(self, exchange: Exchange) -> Forwarded:
        """The record. Odd bodies are recorded as odd, never raised over: a request that was relayed is always accounted
        for.
        """
        record = _outline(exchange)
        try:
            self._fill(record, exchange)
            self._clean(record, exchange)
        except Exception as error:  # a request that was relayed is always accounted for, whatever is in it
            record = _outline(exchange)
            record.facts["unread"] = (
                "nested too deeply" if isinstance(error, RecursionError) else f"not readable ({type(error).__name__})"
            )
            self._clean(record, exchange)
        record.facts["policy"] = self.policy
        if exchange.arrived_as:
            record.facts["arrived_as"] = exchange.arrived_as
        if exchange.copied:
            record.facts["copied"] = True
        if exchange.assumed:
            record.facts["assumed"] = True
        return record

    def unread(self, exchange: Exchange, why: str) -> Forwarded:
        """The record of an exchange that was not read: its sizes and times."""
        record = _outline(exchange)
        record.facts |= {"unread": why, "policy": self.policy}
        try:
            self._clean(record, exchange)
        except Exception:  # text that cannot be searched for keys is not kept
            record.path, record.error = "", None
        return record

    def _fill(self, record: Forwarded, exchange: Exchange) -> None:
        record.facts["headers"] = _header_facts(exchange.headers)
        request = self._read_request(record, exchange)
        self._read_reply(record, exchange, request)

    def _read_request(self, record: Forwarded, exchange: Exchange) -> WireRequest | None:
        body, why = _read(exchange.body, header(exchange.headers, "content-encoding"))
        if why:
            record.facts["unread"] = why
        if not isinstance(body, Mapping):
            if exchange.body.size and record.wire in _COUNTED and not why:
                record.facts["unread"] = "the body is not a JSON object"
            record.request = self._keep_text(body)
            return None
        if exchange.method == SOCKET:
            body = self._joined(record, exchange, body)
        if exchange.digest:
            exchange.meaning = _meaning(body)
        try:
            request = parse_request(record.wire, body)
            if _parts_of(request) > _MOST_PARTS:
                raise TooLarge(f"too large: more than {_MOST_PARTS:,} messages, parts and tools")
            exchange.request = request
            self._count(record, exchange, request, body)
            record.facts.update(self._facts(request))
        except RecursionError:
            raise
        except TooLarge as error:
            record.facts["unread"], request = str(error), None
            return None
        except Exception as error:  # hostile bodies are relayed like all others and must not end the tap
            record.facts["unread"] = f"the body could not be understood ({type(error).__name__})"
            request = None
        record.request = self._kept(body, request)
        return request

    def _joined(self, record: Forwarded, exchange: Exchange, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Join a WebSocket message with its conversation: the full request that it stands for."""
        owner = self._hash("\n".join(header(exchange.headers, name) for name in KEY_HEADERS))
        joined = self._joining.join(owner, message)
        if exchange.status == 200:
            self._joining.answered(owner, joined, (piece[len(b"data: ") :] for _, piece in exchange.reply.pieces))
        if joined.follows is not None:
            record.facts["joined"] = not joined.missing
        if message.get("generate") is False:
            record.facts["warm_up"] = True
        if exchange.digest:
            exchange.whole = dump(joined.body)
        return joined.body

    def _count(self, record: Forwarded, exchange: Exchange, request: WireRequest, body: Mapping[str, Any]) -> None:
        record.model, record.stream = request.model, request.stream
        if record.wire not in _COUNTED:
            return
        counter = counter_for(self._counter_model or request.model or "")
        counted = count_request(request, counter)
        record.tokens, record.exact, record.uncounted_parts = counted.total, counted.exact, counted.uncounted
        if record.wire in _PROMPTS:
            session = self._hash(_session(exchange, body))
            record.prefix_tokens = self._prefixes.shared(session, segments(request), counter.count)

    def _read_reply(self, record: Forwarded, exchange: Exchange, request: WireRequest | None) -> None:
        encoding = header(exchange.reply_headers, "content-encoding")
        if quotas := used_quotas(by_lower_name(exchange.reply_headers)):
            record.facts["quotas"] = quotas
        if record.wire in _PROMPTS and _streamed(exchange):
            self._read_stream(record, exchange, request, encoding)
            return
        body, why = _read(exchange.reply, encoding)
        if why:
            record.facts["reply_unread"] = why
        elif record.wire in _PROMPTS:
            answer = _answer(exchange, body)
            self._keep_answer(record, exchange, answer)
            if (exchange.method, exchange.error, answer.error, answer.complete) == ("POST", None, None, False):
                mark_failed(record, "unreadable reply")
        if exchange.status is not None and exchange.status >= 400:
            record.error = record.error or _provider_error(
                exchange.status, body if self.policy in ("redacted", "full") else None
            )
        elif record.wire in _PROMPTS:
            self._read_answer(record, exchange, body)
        record.reply = self._kept(body, None) if isinstance(body, Mapping | list) else self._keep_text(body)

    def _read_answer(self, record: Forwarded, exchange: Exchange, body: Any) -> None:
        if exchange.error is not None:
            mark_failed(record, cut_off(exchange.error))
        if not isinstance(body, Mapping):
            return
        if body.get("error"):
            mark_failed(record, "error in the reply")
        try:
            self._bill(record, exchange, parse_reply(record.wire, body))
        except Exception as error:  # a reply that is not what it should be is the client's to complain of
            record.facts["reply_unread"] = f"not a usable reply ({type(error).__name__})"

    def _bill(self, record: Forwarded, exchange: Exchange, reply: Reply) -> None:
        """Record the usage that the provider states; where it states none, our own count of the answer."""
        record.usage = reply.usage
        if exchange.arrived_as and record.mark is not None:  # its client compares it with what came through the proxy
            said_so = [reply.text or "", reply.tool_calls, reply.refusal or "", reply.finish_reason]
            record.facts["answered_as"] = keyed_digest(record.mark, said_so)
        texts = (reply.text, reply.reasoning, *(str(call.get("arguments")) for call in reply.tool_calls))
        if marks := sum(shown(text) for text in texts if text):
            record.facts["needles_shown"] = marks
        if reply.usage is None:
            counter = counter_for(self._counter_model or record.model or "")
            said = [
                reply.text,
                reply.reasoning,
                reply.refusal,
                canonical_json(reply.tool_calls) if reply.tool_calls else None,
            ]
            record.facts["reply_tokens"] = sum(counter.count(text) for text in said if text)

    def _read_stream(self, record: Forwarded, exchange: Exchange, request: WireRequest | None, encoding: str) -> None:
        if not exchange.reply.whole:
            _, record.facts["reply_unread"] = _read(exchange.reply, encoding)
            return
        try:
            reader, decoder = stream_reader(record.wire, grammar=True), Decoder(encoding)
            for at, piece in exchange.reply.pieces:
                reader.feed(decoder.feed(piece))
                if record.ttft is None and reader.started:
                    record.ttft = at - exchange.arrived
            reader.close()
            self._bill(record, exchange, reader.reply)
            record.facts["reply_complete"] = reader.complete
            self._tell_of_the_end(record, exchange, reader)
            self._keep_answer(record, exchange, seen_stream(reader, _ending(exchange)))
            if reader.error:
                mark_failed(record, "error in the stream")
            elif not reader.complete:
                mark_failed(record, cut_off(exchange.error))
            if reader.error and self.policy in ("redacted", "full"):
                record.error = record.error or f"told inside the stream: {reader.error}"
            shown = request or WireRequest(record.wire, record.model, [])
            record.reply = self._kept(render_reply(record.wire, reader.reply, shown), None)
        except Exception as error:  # as above: whatever came was relayed
            known = isinstance(error, Undecodable | TooLarge)
            record.facts["reply_unread"] = str(error) if known else f"stream not readable ({type(error).__name__})"

    def _tell_of_the_end(self, record: Forwarded, exchange: Exchange, reader: StreamReader) -> None:
        """A client that leaves at a stream's last event has its whole answer; what was sent after that event is told
        apart.
        """
        if reader.over and client_left(exchange.error):
            record.error = None
        if (after := reader.reply.after_done) is None:
            return
        text = after.pop("text")
        if self.policy in ("redacted", "full"):
            after["text"] = mask_private(text) if self.policy == "redacted" else text
        record.facts["after_done"] = after

    def _keep_answer(self, record: Forwarded, exchange: Exchange, reply: Reply) -> None:
        """Keep the answer for an observer, and what it shows to be wrong by itself for the record."""
        seen_at(reply, record.wire, exchange.status, by_lower_name(exchange.reply_headers))
        exchange.answer = timed(reply, [at for at, _ in exchange.reply.pieces], exchange.arrived)
        if kinds := sorted({one.kind for one in reply_faults(reply)}):
            record.facts["reply_faults"] = kinds
        if (cost := cost_stated(reply.headers)) is not None:
            record.facts["cost_stated"] = cost

    # What is kept, by policy

    def _kept(self, body: Any, request: WireRequest | None) -> Any:
        if self.policy == "meta":
            return None
        if self.policy == "hashes":
            return self._blocks(request) if request else self._hash(canonical_json(body))
        return body

    def _keep_text(self, body: Any) -> Any:
        if body is None or body == "" or self.policy == "meta":
            return None
        return self._kept(body, None)

    def _blocks(self, request: WireRequest) -> dict[str, Any]:
        return {
            "messages": [
                {
                    "role": listed(message.role, _ROLES),
                    "blocks": [
                        [listed(part.kind, KINDS), self._hash(part.text or canonical_json(part.raw))]
                        for part in message.parts
                    ],
                    "tool_calls": [self._hash(canonical_json(call)) for call in message.tool_calls],
                }
                for message in request.messages
            ],
            "tools": [self._hash(canonical_json(tool)) for tool in request.tools],
        }

    def _facts(self, request: WireRequest) -> dict[str, Any]:
        """The anatomy; strings in it are plain hashes (comparable with the sender's) only where bodies are kept, else
        keyed or empty.
        """
        found = facts(request)
        if self.policy == "full":
            return found
        found["texts"] = [] if self.policy == "meta" else [self._hash(text) for text in found["texts"]]
        if self.policy == "redacted":
            found["params"] = {
                name: self._name(value) if name in NAME_FIELDS else value for name, value in found["params"].items()
            }
            return found
        found["params"] = {listed(name, FIELDS): self._name(value) for name, value in found["params"].items()}
        found["roles"] = [listed(role, _ROLES) for role in found["roles"]]
        found["parts"] = [[listed(kind, KINDS) for kind in kinds] for kinds in found["parts"]]
        found["tool_calls"] = [[self._name(call) for call in calls] for calls in found["tool_calls"]]
        found["tool_results"] = [self._name(call) for call in found["tool_results"]]
        found["tools"] = [self._name(tool) for tool in found["tools"]]
        return found

    def _name(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return "" if self.policy == "meta" else self._hash(value)

    def _hash(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:24]

    def _clean(self, record: Forwarded, exchange: Exchange) -> None:
        """The one place through which everything goes that came from outside: no key stays in any field."""
        known = masker(self._known | credentials(exchange.headers, exchange.target))
        clean, private, request = text_masker(known), self.policy == "redacted", mask_names(record.request)

        def without(text: str) -> str:  # keys first: what only looks private could be a piece of one
            return mask_private(clean(text)) if private else clean(text)

        whole = without if private or may_hold_a_key(request, known) else str

        def answered(text: str) -> str:  # it may end within a key
            return known.trimmed(without(text))

        def asked(text: str) -> str:  # it may hold events that were answered
            text = known.trimmed(whole(text))
            return without_pieces(text, clean) if text.count("\ndata:") > 1 else text

        record.path = clean(record.path)
        record.model = clean(record.model) if record.model else record.model
        if record.error:
            record.error = " ".join(without_pieces(known.cut(clean(record.error)), answered).split())[:2000]
        record.facts = {name: map_text(fact, clean) for name, fact in record.facts.items()}
        if text := record.facts.get("after_done", {}).get("text"):
            record.facts["after_done"]["text"] = without_pieces(text, answered)
        record.request = without_pieces(map_text(request, asked), clean)
        looked = map_text(record.reply, answered if private or may_hold_a_key(record.reply, known) else known.trimmed)
        record.reply = without_pieces(looked, answered)


def _outline(exchange: Exchange) -> Forwarded:
    path = exchange.target.partition("?")[0]
    return Forwarded(
        id=exchange.id,
        mark=exchange.match.token,
        matched_by=exchange.match.by,
        wire=exchange.wire,
        method=exchange.method,
        path=path,
        started=exchange.started,
        seconds=exchange.finished - exchange.arrived,
        status=exchange.status,
        bytes_in=exchange.body.size,
        bytes_out=exchange.reply.size,
        authorization=exchange.match.authorization,
        late=exchange.match.late,
        window=exchange.window.number if exchange.window else 0,
        error=exchange.error,
    )


def _read(body: Body, encoding: str) -> tuple[Any, str | None]:
    """A body as JSON, else as text, and why it is neither. Bytes that are no text are not kept."""
    if not body.size:
        return None, None
    if body.crowded:
        return None, "too much was waiting to be read"
    if not body.whole:
        return None, f"too large: more than {BODY_LIMIT // 2**20} MiB"
    try:
        data = decode(body.data, encoding)
    except (Undecodable, TooLarge) as error:
        return None, str(error)
    try:
        return load_body(data), None
    except TooLarge as error:
        return None, str(error)
    except ValueError:
        pass
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError:
        return None, "neither JSON nor text"


def _parts_of(request: WireRequest) -> int:
    """Messages, parts, calls and tools of a request."""
    return len(request.tools) + sum(1 + len(message.parts) + len(message.tool_calls) for message in request.messages)


def _meaning(body: Mapping[str, Any]) -> bytes:
    """A digest of what is asked, whatever the order of keys.

    Clients ask again without a stream where one broke off, and write the time into what they tell of themselves. Empty
    for what is nested too deeply to be written in order.
    """
    asked = {name: value for name, value in body.items() if name not in _UNASKED}
    try:
        return stable_hash(asked).encode()
    except RecursionError:
        return b""


def _ending(exchange: Exchange) -> Ending:
    """The side that ended the answer, if it ended early."""
    return "whole" if exchange.error is None else "left" if client_left(exchange.error) else "broken"


def _answer(exchange: Exchange, body: Any) -> Reply:
    """An answer that did not come as a stream, or that did not say so."""
    if isinstance(body, str):
        return read_reply(exchange.wire, body.encode(), status=exchange.status, ended=_ending(exchange))
    return seen_body(exchange.wire, body, exchange.status, _ending(exchange))


def _streamed(exchange: Exchange) -> bool:
    kind = header(exchange.reply_headers, "content-type").lower()
    return exchange.status is not None and exchange.status < 400 and kind.startswith("text/event-stream")


def _provider_error(status: int, body: Any) -> str:
    error = body.get("error") if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("type")
    return f"HTTP {status}: {error}" if error else f"HTTP {status}"


def _session(exchange: Exchange, body: Mapping[str, Any]) -> str:
    """The conversation of a request: its mark, else the session or user that the client names, else its key."""
    if exchange.match.token:
        return f"mark {exchange.match.token}"
    metadata = body.get("metadata")
    names = [
        *(header(exchange.headers, name) for name in _SESSION_HEADERS),
        body.get("prompt_cache_key"),
        metadata.get("user_id") if isinstance(metadata, Mapping) else None,
        body.get("user"),
    ]
    name = next((name for name in names if isinstance(name, str) and name), None)
    if name is not None:
        return f"told {name}"
    return "key " + "\n".join(header(exchange.headers, name) for name in KEY_HEADERS)


def _header_facts(headers: Headers) -> dict[str, Any]:
    """Names of the headers, and the values of harmless ones."""
    harmless = {name: header(headers, name)[:200] for name in _PLAIN_HEADERS}
    return {
        "names": sorted({_word(key.lower()) for key, _ in headers})[:64],
        **{name: value for name, value in harmless.items() if value},
    }


def _word(text: str) -> str:
    return text if _WORD.fullmatch(text) else "other"
