"""Judges that are asked a question to be answered with YES or NO."""

from __future__ import annotations

import re

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import PreflightFailed
from context_bench.core.protocols import Prices, ReplyCache
from context_bench.core.records import Example
from context_bench.judge.base import Judge, Line
from context_bench.llm.limits import Limiter
from context_bench.wire.apis.read import Reply

_FIRST = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_VERDICT = re.compile(
    r"[\W_]*(?i:(?:the\s+|my\s+|final\s+)*(?:answer|verdict|judge?ment)\W{0,4}(?:is\b)?\W{0,6})?"
    r"(?:(YES|NO|(?i:yes))\b|((?i:no))\b(?=\s*(?:[^\w\s]|$)))"  # "No doubt …" is no verdict
    r"(?i:(?!\W{0,3}(?:or|and)?\W{0,3}(?:yes|no)\b))"  # nor are "yes/no" and "yes and no"
)


def first_word(text: str) -> bool | None:
    """The documented rule: the first standalone YES or NO, in any case."""
    found = _FIRST.search(text)
    return None if found is None else found.group(1).lower() == "yes"


def verdict(text: str) -> bool | None:
    """A verdict that cannot be mistaken: the first line begins with it, or the last, after the last `</think>` if there is one."""
    lines = [line for line in text.rpartition("</think>")[2].split("\n") if line.strip(" \t*_`#>-")]
    for line in (*lines[:1], *lines[-1:]):
        found = _VERDICT.match(line)
        if found is not None:
            return (found.group(1) or found.group(2)).lower() == "yes"
    return None


class YesNoJudge(Judge):
    """What such judges have in common: their arguments, how a reply is read, and how they are tried out."""

    #: Pairs with a known verdict: (original, processed, yes).
    known: tuple[tuple[Example, Example, bool], ...] = ()

    def __init__(
        self,
        base_url: str,
        model: str = "claude-haiku-4-5-20251001",
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        retry_base_delay: float = 1.0,
        *,
        adapt: bool = False,
        max_completion_tokens: int = 2048,
        prices: Prices | None = None,
        limiter: Limiter | None = None,
        cache: ReplyCache | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        line = Line(base_url, api_key, timeout, max_retries, retry_base_delay, prices, limiter, clock)
        super().__init__(line, model, max_tokens=64, adapt=adapt, max_completion_tokens=max_completion_tokens, cache=cache)

    async def preflight(self) -> None:
        """The judge must tell a known yes from a known no; else `PreflightFailed`."""
        prompts = {str(number): self.prompt_for(*pair[:2]) for number, pair in enumerate(self.known)}
        said = list((await self._calls.try_out(prompts, self._strictly)).values())
        if said != [yes for _, _, yes in self.known]:
            wrong = ", ".join("YES" if yes else "NO" for yes in said)
            raise PreflightFailed(
                f"the judge {self.model} does not tell a right answer from a wrong one for {self.name} (it said {wrong} "
                f"instead of {', '.join('YES' if yes else 'NO' for _, _, yes in self.known)}); use another judge"
            )

    def _strictly(self, reply: Reply) -> bool:
        return self._read(reply, verdict(reply.text or ""))

    def _as_documented(self, reply: Reply) -> bool:
        return self._read(reply, first_word(reply.text or ""))

    def _read(self, reply: Reply, said: bool | None) -> bool:
        if said is None:
            raise self._unread("no clear YES or NO in the judge's reply", reply)
        return said
