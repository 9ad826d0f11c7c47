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

from context_bench.core.clock import Clock
from context_bench.core.errors import EvaluatorFailed, JudgeUnreadable, PreflightFailed, Refused, SystemFailed
from context_bench.core.keys import canonical_json, hash_text, stable_hash
from context_bench.core.ledger import Ledger, current_ledger, open_ledger
from context_bench.core.protocols import Prices, ReplyCache
from context_bench.core.records import Call, Example
from context_bench.llm.chat import ChatClient, ChatRequest, endpoint, worst_case
from context_bench.llm.limits import Limiter
from context_bench.llm.redact import bare_url
from context_bench.wire.apis.read import Reply

T = TypeVar("T")
_PARAMETERS = re.compile(r"max_tokens|temperature", re.IGNORECASE)
#: Fields of a request that can be done without → what the refusal of an endpoint that does not know them names.
_DISPENSABLE = {
    "response_format": re.compile(r"response_format|json_schema|structured", re.IGNORECASE),
    "logprobs": re.compile(r"logprobs", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class Question:
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


@dataclass(frozen=True, slots=True)
class Line:
    """Endpoint of a judging model; all as of `ChatClient`. `api_key`: else the variable OPENAI_API_KEY, else none is
    sent.
    """

    base_url: str
    api_key: str | None = field(repr=False)
    timeout: float
    max_retries: int
    retry_base_delay: float
    prices: Prices | None
    limiter: Limiter | None
    clock: Clock

    def client(self, max_retries: int) -> ChatClient:
        """A client that tries again so many times."""
        return ChatClient(
            self.base_url,
            api_key=self.api_key or os.environ.get("OPENAI_API_KEY") or None,
            timeout=self.timeout,
            max_retries=max_retries,
            retry_base_delay=self.retry_base_delay,
            prices=self.prices,
            limiter=self.limiter,
            clock=self.clock,
        )


class JudgeCalls:
    """Asks a judging model. `adapt`: where the endpoint refuses `max_tokens` or `temperature`, go on with
    `max_completion_tokens` and without temperature. `cache`: replies to remember by content; only ones that could be
    read are kept. `cache_only`: nothing is sent; what is not remembered fails.
    """

    def __init__(
        self,
        line: Line,
        model: str,
        *,
        max_tokens: int,
        adapt: bool,
        max_completion_tokens: int,
        cache: ReplyCache | None,
        extra: dict[str, Any] | None = None,
        cache_only: bool = False,
    ) -> None:
        self.cache_only = cache_only
        self.model, self.adapt, self.cache, self.stats = model, adapt, cache, JudgeStats()
        self._max_tokens, self._max_completion_tokens, self._extra = max_tokens, max_completion_tokens, extra or {}
        self._patient, self._once = line.client(line.max_retries), line.client(0)
        self.base_url = self._patient.base_url
        self._endpoint = bare_url(endpoint(line.base_url, ChatRequest({}).path))

    async def ask(
        self, prompt: str | Question, read: Callable[[Reply], T], *, once: bool = False, fresh: bool = False
    ) -> T:
        """The result of `read` for the judge's reply to `prompt`. Replies that `read` raises for are not remembered.

        `once`: no second attempt; `fresh`: ask, whatever is remembered. The calls go to the ledger if a judge's is
        open, else to one of their own. Raises `EvaluatorFailed`, and what `read` raises.
        """
        open_now = current_ledger()
        ours = open_now is not None and open_now.account in ("judge", "preflight")
        ledger = open_now if open_now and ours else Ledger(account="judge", spend=open_now.spend if open_now else None)
        before = len(ledger.calls)
        try:
            with open_ledger(ledger):
                return await self._adapting(
                    prompt, read, self._once if once else self._patient, None if fresh else self.cache
                )
        except SystemFailed as error:
            raise EvaluatorFailed(f"{type(error).__name__}: {error}") from error
        finally:
            for call in ledger.calls[before:]:
                self.stats.count(call)

    async def _adapting(
        self, prompt: str | Question, read: Callable[[Reply], T], client: ChatClient, cache: ReplyCache | None
    ) -> T:
        key = stable_hash(["judge", self._endpoint, self._meant(prompt)])
        while True:
            body = self._body(prompt)
            try:
                return await self._remembering(key, body, read, client, cache)
            except Refused as error:
                if not self._gave_way(body, str(error)):
                    raise

    def _gave_way(self, body: dict[str, Any], refusal: str) -> bool:
        """True if the request can be sent again without what the endpoint said that it does not take."""
        for name, named in _DISPENSABLE.items():
            if name in body and (name == "response_format" or self.adapt) and named.search(refusal):
                self.stats.dropped += (
                    [name] if name not in self.stats.dropped else []
                )  # others in flight may have met the same
                return True
        if self.adapt and "max_tokens" in body and _PARAMETERS.search(refusal):
            self.stats.adapted = True
            return True
        return False

    async def _remembering(
        self, key: str, body: dict[str, Any], read: Callable[[Reply], T], client: ChatClient, cache: ReplyCache | None
    ) -> T:
        if cache is None and not self.cache_only:
            return read(await self._sent(body, client))
        known = None if cache is None else await asyncio.to_thread(cache.get, key)
        if known is not None:
            found = read(
                Reply(text=known.get("text"), finish_reason=known.get("finish_reason"), logprobs=known.get("logprobs"))
            )
            self.stats.cache_hits += 1
            return found
        if cache is None or self.cache_only:
            raise EvaluatorFailed(f"no reply of {self.model} to this is remembered, and none is asked for (cache_only)")
        reply = await self._sent(body, client)
        found = read(reply)
        told = {
            "text": reply.text,
            "finish_reason": reply.finish_reason,
            "logprobs": reply.logprobs,
            "model": reply.model,
        }
        await asyncio.to_thread(cache.put, key, told)
        return found

    async def _sent(self, body: dict[str, Any], client: ChatClient) -> Reply:
        reply = await client.send(ChatRequest(body))
        self.stats.finish_reasons[str(reply.finish_reason)] += 1
        return reply

    def _meant(self, prompt: str | Question) -> dict[str, Any]:
        """The request as it would be if the endpoint took everything: what replies are remembered by, whatever had to
        be left out.
        """
        question = _question(prompt)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": question.messages,
            "temperature": 0,
            "max_tokens": self._max_tokens,
        }
        return body | self._extra | question.more

    def _body(self, prompt: str | Question) -> dict[str, Any]:
        body = self._meant(prompt)
        if self.stats.adapted:
            del body["temperature"], body["max_tokens"]
            body |= {"max_completion_tokens": self._max_completion_tokens}
        for name in self.stats.dropped:
            body.pop(name, None)
            if name == "logprobs":
                body.pop("top_logprobs", None)
        return body

    async def try_out(self, prompts: Mapping[str, str | Question], read: Callable[[Reply], T]) -> dict[str, T]:
        """The result of `read` for the reply to each prompt, asked afresh for the preflight; `PreflightFailed` if there
        is none.
        """
        around = current_ledger() or Ledger()
        with open_ledger(Ledger(account="preflight", spend=around.spend, calls=around.calls, brief=True)):
            try:
                return {kind: await self.ask(prompt, read, fresh=True) for kind, prompt in prompts.items()}
            except EvaluatorFailed as error:
                hint = (
                    ""
                    if self.adapt or not _PARAMETERS.search(str(error))
                    else " (adapt=True leaves such parameters out)"
                )
                raise PreflightFailed(
                    f"the judge {self.model} at {self.base_url} cannot be used: {error}{hint}"
                ) from error

    def worst_case(self, prompt: str | Question, response_tokens: int) -> float | None:
        """Dollars that one judgement of a response of at most so many tokens can cost; `None` where no price is
        known.
        """
        return worst_case(ChatRequest(self._body(prompt)), self._patient.prices, more=response_tokens)

    async def aclose(self) -> None:
        """Close kept-open connections of this event loop."""
        await self._patient.aclose()
        await self._once.aclose()


class Judge(ABC):
    """Protocol of all judges: a line to a model, a prompt for each pair, the facts that make the scores what they
    are.
    """

    name = ""
    version = "1"
    #: The template of `prompt_for`.
    prompt = ""

    def __init__(self, line: Line, model: str, **calling: Any) -> None:
        """`calling`: the arguments of `JudgeCalls`."""
        self._calls = JudgeCalls(line, model, **calling)
        self.base_url, self.model, self.timeout, self.adapt = (
            line.base_url.rstrip("/"),
            model,
            line.timeout,
            self._calls.adapt,
        )

    @abstractmethod
    def prompt_for(self, original: Example, processed: Example) -> str:
        """The prompt about a pair."""

    @property
    def stats(self) -> JudgeStats:
        """Counts of the calls so far."""
        return self._calls.stats

    @property
    def cache(self) -> ReplyCache | None:
        """Cache of replies by content, so that nothing is asked twice; `None` = no cache."""
        return self._calls.cache

    @cache.setter
    def cache(self, cache: ReplyCache | None) -> None:
        self._calls.cache = cache

    def fingerprint(self) -> dict[str, Any]:
        """Facts that determine the scores; no key."""
        told = {
            "class": type(self).__name__,
            "version": self.version,
            "base_url": self._calls.base_url,
            "model": self.model,
        }
        return {**told, "prompt": hash_text(self.prompt, 16), "adapt": self.adapt}

    def worst_case(self, original: Example, response_tokens: int) -> float | None:
        """Dollars that judging a response of at most so many tokens can cost; `None` where no price is known."""
        return self._calls.worst_case(self.prompt_for(original, {"response": ""}), response_tokens)

    async def aclose(self) -> None:
        """Close kept-open connections of this event loop."""
        await self._calls.aclose()

    def _unread(self, what: str, reply: Reply) -> JudgeUnreadable:
        """The error for a reply without a verdict, which is counted."""
        self.stats.unparsed += 1
        return JudgeUnreadable(f"{what}: {shown(reply.text or '')}")


def _question(prompt: str | Question) -> Question:
    return prompt if isinstance(prompt, Question) else Question([{"role": "user", "content": prompt}])


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
    """A reply as it is quoted in a message."""
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
