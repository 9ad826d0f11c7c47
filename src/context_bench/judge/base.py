"""Base of all judging models: their calls, counts, cached replies, and the form in which texts are shown."""

from __future__ import annotations

import asyncio
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from context_bench.core.errors import EvaluatorFailed, JudgeUnreadable, PreflightFailed, Refused, SystemFailed
from context_bench.core.keys import canonical_json, hash_text, stable_hash
from context_bench.core.ledger import Ledger, current_ledger, open_ledger
from context_bench.core.machine import Clock
from context_bench.core.protocols import Prices, ReplyCache
from context_bench.core.records import Call, Example
from context_bench.llm.chat import ChatClient, endpoint
from context_bench.llm.limits import Limiter
from context_bench.llm.redact import bare_url, redact
from context_bench.llm.spend import worst_case
from context_bench.wire.apis import Reply, chat_request

T = TypeVar("T")
_PARAMETERS = re.compile(r"max_tokens|temperature", re.IGNORECASE)
#: Fields of a request that can be done without → what the refusal of an endpoint that does not know them names.
_DISPENSABLE = {
    "response_format": re.compile(r"response_format|json_schema|structured", re.IGNORECASE),
    "logprobs": re.compile(r"logprobs", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """Request to a judge where it is more than one message. `more`: fields of the request that are left out where they
    are refused.
    """

    messages: list[dict[str, str]]
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class JudgeStats:
    """Counts of the calls so far.

    `calls`: attempts that were sent; `cache_hits`: questions answered from memory instead. `bad_replies`: status 200
    without usable text (empty, null, not JSON); `empty`: those of them that were empty or null. `unparsed`: text
    without a verdict. `lenient`: ratings read by the first-digit rule from replies that were no plain rating.
    `repaired`: verdicts that came when a judge was shown why its first reply could not be read; `partial`: verdicts on
    less than was asked. `dropped`: fields that the endpoint refused and then did without.
    """

    calls: int = 0
    cache_hits: int = 0
    http_errors: Counter[str] = field(default_factory=Counter)
    timeouts: int = 0
    unreachable: int = 0
    bad_replies: int = 0
    empty: int = 0
    unparsed: int = 0
    lenient: int = 0
    repaired: int = 0
    partial: int = 0
    adapted: bool = False
    dropped: list[str] = field(default_factory=list)
    finish_reasons: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in told.items()}

    def plus(self, other: JudgeStats) -> JudgeStats:
        """Both together, as new ones."""
        told = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        return JudgeStats(
            **told | {"adapted": self.adapted or other.adapted, "dropped": list(dict.fromkeys(told["dropped"]))}
        )

    def count(self, call: Call) -> None:
        """Take one attempt in."""
        self.calls += 1
        if call.status is not None and call.status >= 400:
            self.http_errors[str(call.status)] += 1
        elif call.error is not None and call.error.startswith("TimedOut"):
            self.timeouts += 1
        elif call.error is not None:
            self.unreachable += call.status is None
            self.bad_replies += call.status is not None
            self.empty += "The reply holds no answer" in call.error


class Judge(ABC):
    """Base of judges: asks a model behind an OpenAI-compatible endpoint, with a prompt for each pair.

    `api_key`: else the variable OPENAI_API_KEY, else none is sent. `adapt`: where the endpoint refuses `max_tokens` or
    `temperature`, go on with `max_completion_tokens` and without temperature. `extra`: further fields of each request.
    `cache_only`: nothing is sent; what is not cached fails. The rest: as of `ChatClient`.
    """

    name = ""
    version = "1"
    #: The template of `prompt_for`.
    prompt = ""
    #: Replies by content, so that nothing is asked twice; only those that could be read are kept. `None`: no cache.
    cache: ReplyCache | None
    #: Counts of the calls so far.
    stats: JudgeStats

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None,
        timeout: float,
        *,
        max_tokens: int,
        max_completion_tokens: int,
        adapt: bool,
        max_retries: int,
        retry_base_delay: float,
        prices: Prices | None,
        limiter: Limiter | None,
        cache: ReplyCache | None,
        clock: Clock,
        extra: dict[str, Any] | None = None,
        cache_only: bool = False,
    ) -> None:
        settings: dict[str, Any] = {"timeout": timeout, "retry_base_delay": retry_base_delay, "prices": prices}
        settings |= {"api_key": api_key or os.environ.get("OPENAI_API_KEY") or None, "limiter": limiter, "clock": clock}
        self._patient = ChatClient(base_url, max_retries=max_retries, **settings)
        self._once = ChatClient(base_url, max_retries=0, **settings)
        self.base_url, self.model, self.timeout, self.adapt = base_url.rstrip("/"), model, timeout, adapt
        self.cache, self.cache_only, self.stats = cache, cache_only, JudgeStats()
        self._max_tokens, self._max_completion_tokens, self._extra = max_tokens, max_completion_tokens, extra or {}
        self._endpoint = bare_url(endpoint(base_url, chat_request({}).path))

    @abstractmethod
    def prompt_for(self, original: Example, processed: Example) -> str:
        """The prompt about a pair."""

    def fingerprint(self) -> dict[str, Any]:
        """Facts that determine the scores; no key."""
        return {
            "class": type(self).__name__,
            "version": self.version,
            "base_url": self._patient.base_url,
            "model": self.model,
            "prompt": hash_text(self.prompt, 16),
            "adapt": self.adapt,
        }

    def worst_case(self, original: Example, response_tokens: int) -> float | None:
        """Dollars that judging a response of at most so many tokens can cost; `None` where no price is known."""
        return self._worst_case(self.prompt_for(original, {"response": ""}), response_tokens)

    async def aclose(self) -> None:
        """Close kept-open connections of this event loop."""
        await self._patient.aclose()
        await self._once.aclose()

    async def _ask(
        self, prompt: str | JudgeRequest, read: Callable[[Reply], T], *, once: bool = False, fresh: bool = False
    ) -> T:
        """The result of `read` for the judge's reply to `prompt`. Replies that `read` raises for are not cached.

        `once`: no second attempt; `fresh`: ask, whatever is cached. The calls go to the ledger if a judge's is open,
        else to one of their own. Raises `EvaluatorFailed`, and what `read` raises.
        """
        open_now = current_ledger()
        ours = open_now is not None and open_now.account in ("judge", "preflight")
        ledger = open_now if open_now and ours else Ledger(account="judge", spend=open_now.spend if open_now else None)
        before = len(ledger.calls)
        try:
            with open_ledger(ledger):
                return await self._adapting(
                    _question(prompt), read, self._once if once else self._patient, None if fresh else self.cache
                )
        except SystemFailed as error:
            raise EvaluatorFailed(f"{type(error).__name__}: {error}") from error
        finally:
            for call in ledger.calls[before:]:
                self.stats.count(call)

    async def _adapting(
        self, question: JudgeRequest, read: Callable[[Reply], T], client: ChatClient, cache: ReplyCache | None
    ) -> T:
        while True:
            body = self._body(question)
            try:
                return await self._cached(question, body, read, client, cache)
            except Refused as error:
                if not self._gave_way(body, str(error)):
                    raise

    def _gave_way(self, body: dict[str, Any], refusal: str) -> bool:
        """Drop from the request what the endpoint refuses. Returns True if it can be sent again."""
        for name, named in _DISPENSABLE.items():
            if name in body and (name == "response_format" or self.adapt) and named.search(refusal):
                if name not in self.stats.dropped:  # others in flight may have met the same
                    self.stats.dropped.append(name)
                return True
        if self.adapt and "max_tokens" in body and _PARAMETERS.search(refusal):
            self.stats.adapted = True
            return True
        return False

    async def _cached(
        self,
        question: JudgeRequest,
        body: dict[str, Any],
        read: Callable[[Reply], T],
        client: ChatClient,
        cache: ReplyCache | None,
    ) -> T:
        if cache is None and not self.cache_only:
            return read(await self._sent(body, client))
        key = stable_hash(["judge", self._endpoint, self._intended(question)])
        cached = None if cache is None else await asyncio.to_thread(cache.get, key)
        if cached is not None:
            text, reason = cached.get("text"), cached.get("finish_reason")
            result = read(Reply(text=text, finish_reason=reason, logprobs=cached.get("logprobs")))
            self.stats.cache_hits += 1
            return result
        if cache is None or self.cache_only:
            raise EvaluatorFailed(f"no reply of {self.model} to this is remembered, and none is asked for (cache_only)")
        reply = await self._sent(body, client)
        result = read(reply)
        kept = {name: getattr(reply, name) for name in ("text", "finish_reason", "logprobs", "model")}
        await asyncio.to_thread(cache.put, key, kept)
        return result

    async def _sent(self, body: dict[str, Any], client: ChatClient) -> Reply:
        reply = await client.send(chat_request(body))
        self.stats.finish_reasons[str(reply.finish_reason)] += 1
        return reply

    def _intended(self, question: JudgeRequest) -> dict[str, Any]:
        """The request as it would be if the endpoint took everything: the key of cached replies, whatever had to be
        left out.
        """
        settings = {"temperature": 0, "max_tokens": self._max_tokens}
        return {"model": self.model, "messages": question.messages, **settings, **self._extra, **question.more}

    def _body(self, question: JudgeRequest) -> dict[str, Any]:
        body = self._intended(question)
        if self.stats.adapted:
            del body["temperature"], body["max_tokens"]
            body |= {"max_completion_tokens": self._max_completion_tokens}
        for name in self.stats.dropped:
            body.pop(name, None)
            if name == "logprobs":
                body.pop("top_logprobs", None)
        return body

    async def _try_out(self, prompts: Mapping[str, str | JudgeRequest], read: Callable[[Reply], T]) -> dict[str, T]:
        """The result of `read` for the reply to each prompt, asked afresh for the preflight; `PreflightFailed` if there
        is none.
        """
        around = current_ledger() or Ledger()
        with open_ledger(Ledger(account="preflight", spend=around.spend, calls=around.calls, brief=True)):
            try:
                return {kind: await self._ask(prompt, read, fresh=True) for kind, prompt in prompts.items()}
            except EvaluatorFailed as error:
                hint = (
                    ""
                    if self.adapt or not _PARAMETERS.search(str(error))
                    else " (adapt=True leaves such parameters out)"
                )
                raise PreflightFailed(
                    f"the judge {self.model} at {self._patient.base_url} cannot be used: {error}{hint}"
                ) from error

    def _worst_case(self, prompt: str | JudgeRequest, response_tokens: int) -> float | None:
        """As `worst_case`, for a prompt."""
        return worst_case(chat_request(self._body(_question(prompt))), self._patient.prices, more=response_tokens)

    def _unread(self, what: str, reply: Reply) -> JudgeUnreadable:
        """The error for a reply without a verdict, which is counted."""
        self.stats.unparsed += 1
        return JudgeUnreadable(f"{what}: {shown(reply.text or '')}")


def _question(prompt: str | JudgeRequest) -> JudgeRequest:
    return prompt if isinstance(prompt, JudgeRequest) else JudgeRequest([{"role": "user", "content": prompt}])


def fenced(template: str, **texts: str) -> str:
    """`template` with the texts in it, and `{code}`: a word that depends on all of them, so that none of them can hold
    it.
    """
    code = hash_text(canonical_json(list(texts.values())), 12)
    return template.format(code=code, **texts)


def response_of(processed: Example) -> str:
    """The text to be judged."""
    response = processed.get("response")
    return "" if response is None else str(response)


def shown(text: str) -> str:
    """A reply as it is quoted in a message: without keys, looked for before it is cut."""
    text = redact(text)
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
