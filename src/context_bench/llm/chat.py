"""The one client that calls models: any of the three wires, plain or streamed, with the only retry loop of the house.

Every attempt becomes a `Call` in the current ledger, failed ones too. What is measured is the attempt itself: waiting
for a slot, for money or before a retry is kept apart in `Call.waited`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from context_bench.core.addresses import endpoint as endpoint, login_apart
from context_bench.core.errors import BadInput, BadReply, CostCapReached, TimedOut, Unreachable, describe
from context_bench.core.keys import TooLarge
from context_bench.core.ledger import Ledger, current_ledger
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.numbers import money
from context_bench.core.protocols import Prices
from context_bench.core.records import Call
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.llm import failures
from context_bench.llm.failures import Failure, RetryPolicy, quotas_of
from context_bench.llm.limits import Limiter, Quota, RequestEnd, billed_beyond
from context_bench.llm.redact import bare_url, checked_key, secrets_in, without_secrets
from context_bench.llm.sessions import leave, transport_for
from context_bench.llm.spend import TokenCount, TokenCounts, worst_case
from context_bench.llm.transport import Address, Broken, Response, Transport, TransportError, address_of, head_of
from context_bench.wire.apis import (
    Reply,
    ShapedRequest,
    StreamReader,
    chat_request,
    parse_reply,
    parse_request,
    seen_stream,
    stream_reader,
)
from context_bench.wire.apis.shared import dump, filled, load_body
from context_bench.wire.request import counted_texts, exactly

#: Bytes of a reply, of a stream, where each token has an event of its own, and of an error.
_LARGEST_REPLY, _LARGEST_STREAM, _LARGEST_ERROR = 16 * 2**20, 64 * 2**20, 64 * 2**10
#: Bytes of a body that are read in a thread of their own, and of a stream that are read at once.
_LONG_TO_READ, _LONG_TO_FEED = 2**20, 16 * 2**10
#: Seconds that a stream has for its bill and last event; those left of an example's time after one more try for it.
_BILL_SECONDS, _MARGIN = 5.0, 1.0
_ANTHROPIC_VERSION, _MOST_HEADS = "2023-06-01", 64
#: The part of a pause that is left where nobody listens: a server that is started again is there soon, or not at all.
_ABSENT = 0.25
_NO_DEADLINE = nullcontext()


class ChatClient:
    """Calls models behind `base_url` (with or without `/v1`, trailing slashes or credentials in it).

    `timeout`: seconds for one attempt (`None` = no limit); the example's own deadline is the ledger's. `max_retries`
    further attempts after 408, 409, 425, 429, 5xx, broken or refused connections and timeouts, waiting
    `retry_base_delay` · 2ⁿ seconds or what the provider asks for, at most `retry_cap`; a quarter of that where nobody
    takes the connection. `headers` are sent with every request and win over the request's own. `proxy_key`: the key
    that the proxy itself checks; it is sent in place of `api_key`. When the ledger has a mark by key, its token is the
    key. Errors are `core.errors.SystemFailed`; no error, record or log holds a key.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        proxy_key: str | None = None,
        timeout: float | None = 60.0,
        max_retries: int = 3,
        retry_base_delay: float = 1.0,
        retry_cap: float = 60.0,
        limiter: Limiter | None = None,
        prices: Prices | None = None,
        clock: Clock = SYSTEM_CLOCK,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._base, basic = login_apart(base_url, "base URL")
        self.base_url = bare_url(self._base)
        self.timeout, self.limiter, self.prices = timeout, limiter, prices
        self.policy = RetryPolicy(max(0, max_retries), max(0.0, retry_base_delay), max(0.0, retry_cap))
        self._api_key = checked_key(proxy_key or api_key)
        self._clock = clock
        self._headers = {"authorization": basic} if basic else {}
        self._headers |= {name.lower(): value for name, value in (headers or {}).items()}
        self._heads: dict[Any, tuple[bytes, list[str]]] = {}
        self._token_counts = TokenCounts()
        self._bills = False  # a reply has told its usage
        self._transport: Transport | None = None  # of the loop on which this client was used last

    async def chat(
        self, model: str, messages: list[dict[str, Any]], *, counter: TokenCounter | None = None, **params: Any
    ) -> Reply:
        """Ask with plain chat messages; `params` are further fields of the body (`temperature`, `max_tokens` …)."""
        return await self.send(chat_request({"model": model, "messages": messages, **params}), counter=counter)

    async def send(
        self, request: ShapedRequest, *, counter: TokenCounter | None = None, tool_calls_ok: bool = False
    ) -> Reply:
        """Send until there is an answer or no attempt is left; the reply always has text (or, if allowed, tool calls).

        `counter` counts the request for `Call.sent_tokens`. Raises `SystemFailed` classes, `CostCapReached` if the
        ledger's money does not allow an attempt, `BadInput` if it cannot be told what the call might cost.
        """
        ledger = current_ledger()
        sending = self._prepared(request, ledger, counter)
        waited, attempt = 0.0, 1
        while True:
            try:
                result = await self._attempt(sending, ledger, attempt, waited, tool_calls_ok)
            except CostCapReached:
                if sending.unbilled is None:
                    raise
                result = sending.unbilled.stands()
            if isinstance(result, Reply):
                return result
            pause = self.policy.delay(attempt, result.asked) * (_ABSENT if result.absent else 1.0)
            left = self._left(ledger, sending)
            last = not result.again or attempt > self._retries(result, ledger)
            if sending.unbilled is not None and (last or (left is not None and pause >= left)):
                return sending.unbilled.stands()
            if last:
                raise result.error
            if left is not None and pause >= left:
                late = "(no time left for another attempt before the example's deadline)"
                raise type(result.error)(f"{result.error} {late}")
            if ledger is not None and ledger.waiting is not None and not result.limited:
                ledger.waiting(str(result.error))
            before = self._clock.monotonic()
            await self._clock.sleep(pause)
            waited, attempt = self._clock.monotonic() - before, attempt + 1

    def _retries(self, result: Failure, ledger: Ledger | None) -> int:
        """Further attempts: where somebody stands by, what looks down is not asked for long."""
        if ledger is None or not ledger.brief or result.limited:
            return self.policy.max_retries
        return 0 if result.absent else min(1, self.policy.max_retries)

    async def aclose(self) -> None:
        """Let go of the shared session; it is closed when no other client of this loop uses it."""
        self._transport = None
        await leave(self)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has what it was made with, and nothing of this loop; no key stands in bytes, where nobody finds it."""
        return self.__dict__ | {"_heads": {}, "_token_counts": TokenCounts(), "_transport": None}

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def _prepared(self, request: ShapedRequest, ledger: Ledger | None, counter: TokenCounter | None) -> _Sending:
        model = str(request.body.get("model") or "")
        address, where = _addresses(self._base, request.path)
        head, secrets = self._head(address, request, ledger)
        sending = _Sending(request, address, where, head, dump(request.body), model, secrets)
        spending = ledger is not None and ledger.spend is not None
        if counter is not None or spending:
            counter = counter or counter_for(model)
            texts = counted_texts(parse_request(request.wire, request.body))
            sending.exact = exactly(counter, texts)
            sending.count_of_tokens = self._token_counts.add(texts, counter)
        if sending.count_of_tokens is not None and (spending or self._paced()):
            sending.sent_tokens = sending.count_of_tokens.now()
        if spending:
            sending.worst = self._worst_case(sending)
        return sending

    def _paced(self) -> bool:
        """True if a request's tokens must be known before it is sent: so many a minute are allowed."""
        return getattr(getattr(self.limiter, "pace", None), "tpm", None) is not None

    def _head(self, address: Address, request: ShapedRequest, ledger: Ledger | None) -> tuple[bytes, list[str]]:
        """The first bytes, and what in them is secret; put together once for requests that are alike and bear no
        mark.
        """
        alike = (
            None
            if ledger is not None and ledger.mark is not None
            else (request.path, request.wire, *request.headers.items())
        )
        if alike is not None and (known := self._heads.get(alike)) is not None:
            return known
        headers = {
            "content-type": "application/json",
            **{name.lower(): value for name, value in request.headers.items()},
        }
        headers |= self._headers | self._auth(request.wire, ledger)
        if request.wire.startswith("anthropic"):
            headers.setdefault("anthropic-version", _ANTHROPIC_VERSION)
        head = (
            head_of(address, headers),
            [*secrets_in(headers, self._base), *([self._api_key] if self._api_key else [])],
        )
        if alike is not None and len(self._heads) < _MOST_HEADS:
            self._heads[alike] = head
        return head

    def _auth(self, wire: str, ledger: Ledger | None) -> dict[str, str]:
        """The key where the wire's clients put it, or the mark in its place; the mark as a header of its own beside
        it.
        """
        mark = ledger.mark if ledger else None
        key = mark.token if mark and mark.mode == "key" else self._api_key
        headers = {"x-context-bench": mark.token} if mark and mark.mode == "header" else {}
        if key:
            headers |= {"x-api-key": key} if wire.startswith("anthropic") else {"authorization": f"Bearer {key}"}
        return headers

    def _worst_case(self, sending: _Sending) -> float:
        dollars = worst_case(sending.request, self.prices, (sending.sent_tokens or 0, sending.exact))
        if dollars is None:
            raise BadInput(
                f"--max-cost cannot be kept: no price is known for model {sending.model!r}; give its price (input and "
                "output $/1M)"
            )
        return dollars

    def _left(self, ledger: Ledger | None, sending: _Sending) -> float | None:
        """Seconds to the example's deadline."""
        if ledger is None or ledger.deadline is None:
            return None
        return ledger.deadline - self._clock.monotonic() - (0 if sending.unbilled is None else _MARGIN)

    async def _attempt(
        self, sending: _Sending, ledger: Ledger | None, attempt: int, waited: float, tool_calls_ok: bool
    ) -> Reply | Failure:
        """One attempt from slot to settled bill, written into the ledger however it ends."""
        account = ledger.account if ledger else "system"
        call = Call(
            account,
            sending.model,
            sending.where,
            self._clock.now(),
            waited=waited,
            attempt=attempt,
            request=sending.request.body,
        )
        call.exact = sending.exact
        about = sending.about_tokens
        before = self._clock.monotonic()
        result: Reply | Failure | None = None
        ticket: int | None = None
        slot = begun = False
        try:
            left = _positive(self._left(ledger, sending))
            async with _NO_DEADLINE if left is None else asyncio.timeout(left):
                if self.limiter is not None:
                    call.in_flight = await self.limiter.acquire(about)
                    slot = True
                if ledger is not None and ledger.spend is not None and sending.worst is not None:
                    ticket = await ledger.spend.reserve(sending.worst)
            call.waited, begun = call.waited + self._clock.monotonic() - before, True
            result = await self._exchange(sending, call, ledger, tool_calls_ok)
            if sending.count_of_tokens is not None and sending.sent_tokens is None:
                sending.sent_tokens = await sending.count_of_tokens.ready()
        except TimeoutError:
            call.waited += self._clock.monotonic() - before
            waiting = "The example's deadline (--example-timeout) passed while waiting for a free slot or for money"
            result = Failure(TimedOut(waiting))
        finally:
            if slot and self.limiter is not None:
                quotas, sending.quotas = sending.quotas, ()
                self.limiter.release(
                    _outcome(result, attempt),
                    self._pause(result),
                    tokens=billed_beyond(about, call.usage),
                    quotas=quotas,
                )
            if begun or result is not None:
                call.sent_tokens = sending.counted()
                self._write_down(call, result, ledger, ticket)
        return result

    def _pause(self, result: Reply | Failure | None) -> float:
        """Seconds for which everybody on this account should stay away."""
        return min(self.policy.cap, result.asked or 0.0) if isinstance(result, Failure) and result.limited else 0.0

    def _write_down(
        self, call: Call, result: Reply | Failure | None, ledger: Ledger | None, ticket: int | None
    ) -> None:
        """Settle the bill and record the attempt; no result means that it was cancelled on its way."""
        failure = result if isinstance(result, Failure) else None
        if failure is not None:
            call.error, call.reply = describe(failure.error), call.reply if call.reply is not None else failure.body
        elif result is None:
            call.error = "Cancelled"
        if call.usage is not None and self.prices is not None:
            call.cost = money(self.prices.cost(call.usage, call.model))
        if ledger is not None:
            if ticket is not None and ledger.spend is not None:
                ledger.spend.settle(ticket, 0.0 if failure is not None and not failure.billed else call.cost)
            ledger.record(call)

    async def _exchange(
        self, sending: _Sending, call: Call, ledger: Ledger | None, tool_calls_ok: bool
    ) -> Reply | Failure:
        """Send and read once; fills in what is learnt for the record."""
        left = self._left(ledger, sending)
        limit = self.timeout if left is None else left if self.timeout is None else min(self.timeout, left)
        transport = self._transport
        if transport is None or not transport.usable():
            transport = self._transport = await transport_for(self)
        call.started, start = self._clock.now(), self._clock.monotonic()
        try:
            result = await self._post(transport, sending, call, start, _positive(limit))
        except TooLarge as error:
            result = failures.unexpected(error, sending.where)
        except (TimeoutError, TransportError) as error:
            by_deadline = left is not None and limit == left
            result = failures.of_exception(
                error, where=sending.where, seconds=limit, deadline=by_deadline, secrets=sending.secrets
            )
        finally:
            over, sending.over = sending.over, None
            call.seconds = (self._clock.monotonic() if over is None else over) - start
        if isinstance(result, Reply) and (failure := failures.too_long(result, sending.where)) is not None:
            return failure
        if isinstance(result, Reply):
            _keep(call, result, sending.secrets)
            failure = failures.of_reply(result, tool_calls_ok=tool_calls_ok)
            return failure or self._for_its_bill(result, sending, call, ledger) or result
        return result

    def _for_its_bill(self, reply: Reply, sending: _Sending, call: Call, ledger: Ledger | None) -> Failure | None:
        """A whole answer whose stream was cut before its bill is asked for once more where the bill is needed, of an
        endpoint that sends bills; should that give nothing, the answer stands.
        """
        self._bills = self._bills or reply.usage is not None
        needed = ledger is not None and ledger.needs_bill and self._bills and sending.unbilled is None
        if reply.usage is not None or not sending.cut or not needed:
            return None
        sending.unbilled = _Unbilled(reply, call)
        said = f"the stream from {sending.where} broke off between the answer and its bill, which a control needs"
        return Failure(Unreachable(said), again=True, billed=True)

    async def _post(
        self, transport: Transport, sending: _Sending, call: Call, start: float, limit: float | None
    ) -> Reply | Failure:
        response = await transport.post(sending.address, sending.head, sending.data, limit)
        try:
            call.status = response.status
            if self.limiter is not None:
                sending.quotas = quotas_of(response.headers, self._clock.now())
            if not 200 <= response.status < 300:
                body, now = await response.read(_LARGEST_ERROR), self._clock.now()
                return failures.of_status(
                    response.status, response.headers, body, where=sending.where, now=now, secrets=sending.secrets
                )
            if response.content_type == "text/event-stream":
                return await self._streamed(response, sending, call, start)
            body = await response.read(_LARGEST_REPLY + 1)
            if len(body) > _LONG_TO_READ:
                return await asyncio.to_thread(self._read, body, response, sending)
            return self._read(body, response, sending)
        finally:
            response.close()

    async def _streamed(self, response: Response, sending: _Sending, call: Call, start: float) -> Reply | Failure:
        reader = stream_reader(sending.request.wire, grammar=True)
        size, sending.cut = 0, False
        while not (reader.over or reader.error) and (chunk := await _more(response, reader, sending)):
            for at in range(0, len(chunk), _LONG_TO_FEED):
                if len(chunk) > _LONG_TO_FEED:
                    await asyncio.sleep(0)  # other requests are read meanwhile
                reader.feed(chunk[at : at + _LONG_TO_FEED])
                if call.ttft is None and reader.started:
                    call.ttft = self._clock.monotonic() - start
            size += len(chunk)
            if size > _LARGEST_STREAM:
                return failures.unexpected("a stream of more than 64 MiB", sending.where)
        sending.over = self._clock.monotonic()
        if reader.over or reader.error:
            await response.take_leave(reader.feed)
        reader.close()
        if reader.error:
            _keep(call, reader.reply, sending.secrets)
            return self._error_in_reply(reader.error, response, sending)
        if not reader.complete:
            _keep(call, reader.reply, sending.secrets)
            broken = Broken("the stream ended before its end mark")
            return failures.of_exception(
                broken, where=sending.where, seconds=None, deadline=False, secrets=sending.secrets
            )
        return seen_stream(reader)

    def _read(self, body: bytes, response: Response, sending: _Sending) -> Reply | Failure:
        """The reply in a whole body."""
        try:
            decoded = load_body(body, _LARGEST_REPLY)
        except TooLarge as error:
            return failures.unexpected(error, sending.where)
        except ValueError:
            return failures.not_json(body, response.content_type, where=sending.where, secrets=sending.secrets)
        if isinstance(decoded, Mapping) and decoded.get("error"):
            return self._error_in_reply(decoded["error"], response, sending)
        try:
            return parse_reply(sending.request.wire, decoded)
        except BadReply as error:
            return Failure(BadReply(f"{error} (from {sending.where})"), billed=True, body=decoded)

    def _error_in_reply(self, error: Any, response: Response, sending: _Sending) -> Failure:
        """An error inside a reply whose status says that all is well."""
        now = self._clock.now()
        return failures.of_error_in_reply(
            error, response.headers, where=sending.where, now=now, secrets=sending.secrets
        )


@dataclass(slots=True)
class _Sending:
    """A request made ready: encoded once, however many attempts it takes."""

    request: ShapedRequest
    address: Address
    where: str  # for people: no credentials, no query
    head: bytes
    data: bytes
    model: str
    secrets: list[str]
    count_of_tokens: TokenCount | None = None
    sent_tokens: int | None = None  # once they are counted
    exact: bool = False
    worst: float | None = None
    cut: bool = False  # the last attempt's stream broke off or stalled, after a whole reply
    unbilled: _Unbilled | None = None
    over: float | None = None  # when the last attempt's stream was at its end, whatever came after it
    quotas: Sequence[Quota] = ()  # what the last attempt's headers said

    def counted(self) -> int | None:
        """The request's tokens, if they are counted at all."""
        if self.sent_tokens is None and self.count_of_tokens is not None:
            self.sent_tokens = self.count_of_tokens.now()
        return self.sent_tokens

    @property
    def about_tokens(self) -> int:
        """The request's tokens, from its length where nobody counted them."""
        return len(self.data) // 4 if self.sent_tokens is None else self.sent_tokens


@dataclass(frozen=True, slots=True)
class _Unbilled:
    """A whole answer whose bill was lost, and its attempt, which counts as failed while there may be a better one."""

    reply: Reply
    call: Call

    def stands(self) -> Reply:
        """There is no better one."""
        self.call.error = None
        return self.reply


@lru_cache(maxsize=256)
def _addresses(base: str, path: str) -> tuple[Address, str]:
    """The address to call, and its URL for people."""
    url = endpoint(base, path)
    return address_of(url), bare_url(url)


async def _more(response: Response, reader: StreamReader, sending: _Sending) -> bytes:
    """The next piece of a stream; none where the reply is whole (only its bill or its end mark may be missing) and
    nothing more comes.
    """
    if not reader.complete:
        return await response.piece()
    try:
        async with asyncio.timeout(_BILL_SECONDS):
            return await response.piece()
    except (TimeoutError, Broken):
        sending.cut = True
        return b""


def _positive(seconds: float | None) -> float | None:
    return None if seconds is None else max(0.0, seconds)


def _outcome(result: Reply | Failure | None, attempt: int) -> RequestEnd:
    if isinstance(result, Reply):
        return RequestEnd.CLEAN if attempt == 1 else RequestEnd.NEUTRAL
    if result is not None and result.limited:
        return RequestEnd.LIMITED
    return RequestEnd.TROUBLED if result is not None and result.again else RequestEnd.NEUTRAL


def _keep(call: Call, reply: Reply, secrets: Sequence[str]) -> None:
    """Take the keys of its request out of a reply, and write its content into the record."""
    without_secrets(reply, secrets)
    call.usage, call.finish_reason = reply.usage, reply.finish_reason
    extra = {name: getattr(reply, name) for name in ("tool_calls", "refusal", "reasoning", "model", "after_done")}
    call.reply = {"role": "assistant", "content": reply.text, **filled(**extra)}
