"""Findings of watching live traffic: one `Turn` per request of a client, figures per session and in all. Plain data, no
I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from context_bench.core.measures import percent
from context_bench.core.numbers import real
from context_bench.core.records import Forwarded, Usage
from context_bench.wire.violations import count_tools

#: turn: a request to a model · late: calls that reached the provider after their turn was over · stray: calls nobody
#: can be named for · other: requests that are no turn (lists of models, token counts …).
Kind = Literal["turn", "late", "stray", "other"]


@dataclass(slots=True)
class Turn:
    """One request of a client, and the calls that reached the provider because of it.

    `number` counts the records of a watch from 1. `session`: a short label, with a keyed hash of what identifies the
    session. `turn`: its place in the session, from 1 (a repeated request keeps its turn). `context`: what it is for
    within the session. `arm`: `main`, `shadow` for a mirrored request, `holdout` for one of a conversation that goes
    past the proxy; `unit`: a keyed hash of the conversation that was drawn, `reply`: of the reply that a later request
    may go on from. `failure`: how it failed, as the client saw it: a status, or words of ours. `repeat`: the client
    itself sent the same before, and `after` is how that attempt failed. Tokens: `sent` by the client and
    `forwarded` to the provider, by our count (`exact`: by the model's own tokenizer); `usage` and `cost` (US
    dollars) are the provider's, summed over `calls`; `guessed` is our own sum for answered calls whose usage nobody
    told. `extra`: calls beyond the client's own, `retries`: the same request again, `refusals`: how attempts failed
    that were made again. `pending`: calls that may be its own and were still being answered when all patience was
    over; they are told of as late. Times in seconds; `added` is the client's time without the provider's, `first_byte`
    the client's to the first byte of the answer, `pause` its longest wait between two pieces of a stream, with what was
    added to each. `cost_stated`: US dollars that what stands in between told in a header.
    `violations` counts what was done to the request and to its reply by kind (see `wire.violations`); `details` tells
    each, where bodies may be kept. `tools` names the tools that some kinds are about. `needles_planted`: facts put into
    the request's tool results, `needles_lost`: those that did not arrive behind, of `needle_ages` by the turns since
    their result came; `needles_without`: why there are none; `needles_damaged`: pieces that were taken out behind;
    `needles_shown`: such markers in the reply.
    `predicted_*`: what the cache rules say of the prompts as forwarded; `alone_*`: of the prompts as sent, had
    nothing stood in between. `bill_alone`, `bill_through`: what the turn costs without and with what stands in
    between, by the same cache rules and with the replies. `front` and `calls` are the taps' own records, by the
    recording policy.
    """

    number: int
    kind: Kind
    at: float
    session: str = ""
    turn: int = 0
    arm: Literal["main", "shadow", "holdout"] = "main"
    unit: str = ""
    reply: str = ""
    model: str | None = None
    wire: str = ""
    status: int | None = None
    repeat: bool = False
    after: str | None = None
    failure: str | None = None
    context: str = "main"
    sent: int | None = None
    forwarded: int | None = None
    exact: bool = False
    usage: Usage | None = None
    cost: float | None = None
    guessed: float | None = None
    unpriced: int = 0  # calls of models that we have no price for
    seconds: float | None = None
    added: float | None = None
    ttft: float | None = None
    added_ttft: float | None = None
    first_byte: float | None = None
    added_first_byte: float | None = None
    pause: float | None = None
    added_pause: float | None = None
    cost_stated: float | None = None
    extra: int = 0
    retries: int = 0
    pending: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    predicted_read: int | None = None
    predicted_write: int | None = None
    predicted_cost: float | None = None  # of the prompts only
    alone_cost: float | None = None
    bill_alone: float | None = None
    bill_through: float | None = None
    violations: dict[str, int] = field(default_factory=dict)
    tools: dict[str, list[str]] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)
    unchanged: bool | None = None  # the provider got the client's body byte for byte
    needles_planted: int = 0
    needles_lost: int = 0
    needle_ages: dict[str, dict[str, int]] = field(default_factory=dict)
    needles_without: str = ""
    needles_damaged: int = 0
    needles_shown: int = 0
    front: Forwarded | None = None
    calls: list[Forwarded] = field(default_factory=list)

    @property
    def oversized(self) -> int:
        """Number of its bodies that were relayed unread, since they were too large."""
        return sum(record.oversized for record in (self.front, *self.calls) if record is not None)


MOST_QUOTAS = 16


@dataclass(slots=True)
class Quotas:
    """Shares of an account's quotas that are used up, as replies tell them one after the other.

    `shares`: quota → (share as first told, as last told, what was used up in between). A share that fell is of a window
    that began anew.
    """

    shares: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    def take(self, facts: Any) -> None:
        """Take in what a record of a reply says of quotas (its `facts`)."""
        given = facts.get("quotas") if isinstance(facts, Mapping) else None
        for key, each in given.items() if isinstance(given, Mapping) else ():
            name, value = str(key)[:80], real(each)
            if value is None or (len(self.shares) >= MOST_QUOTAS and name not in self.shares):
                continue
            first, last, used = self.shares.get(name, (value, value, 0.0))
            self.shares[name] = (first, value, used + (value - last if value >= last else value))

    def as_dict(self) -> dict[str, dict[str, float]]:
        """JSON-ready: quota → `first`, `last`, `used`."""
        return {name: {"first": first, "last": last, "used": used} for name, (first, last, used) in self.shares.items()}

    def sentence(self) -> str:
        """Say what was used up of each quota; empty where no reply told any."""
        parts = [f"{name} {percent(used)} (now {percent(last)})" for name, (_, last, used) in self.shares.items()]
        whole = f"Used up of the account's quotas: {', '.join(parts)}; what else ran on the account is in it."
        return whole if parts else ""


#: Wires on which a model is asked, and billed for.
_PROMPTS = frozenset({"openai-chat", "openai-responses", "anthropic"})
_PLAIN = (
    *("turns", "repeats", "failed", "calls", "answered", "sent", "forwarded", "exact", "uncounted", "cost", "unpriced"),
    *(
        "extra",
        "retries",
        "late",
        "stray",
        "other",
        "oversized",
        "silent",
        "pending",
        "unchanged",
        "compared",
        "added",
        "added_ttft",
        "added_first_byte",
        "added_pause",
    ),
)
_NEEDLES = ("needles_planted", "needles_lost", "needles_damaged", "needles_shown")
_SUMS = (
    "sent",
    "forwarded",
    "cost",
    "guessed",
    "cost_stated",
    "predicted_read",
    "predicted_write",
    "predicted_cost",
    "alone_cost",
)


@dataclass(slots=True)
class Figures:
    """Sums over turns: of one session, or of all. `None` = nobody told, never 0.

    `failures` counts failed turns by how; `repeated_after` the client's repeats by how the attempt before failed,
    `refusals` the failed attempts of what stands in between. `answered`: calls that a model answered; `untold` of these
    told no usage, so that they are in `guessed` and not in `cost`. `uncounted`: images and other parts of what clients
    sent that no tokenizer of ours counts. `silent`: turns that were answered though no call of theirs was seen behind;
    `cost_stated`: what the thing in between says, `stated_for`: what the same turns cost by the provider's usage.
    `pending`: turns whose call was seen and still being answered when they were written down. `oversized`: bodies that
    were too large to be read. `needles_*` as in turns: each needle counts once for each request that it was in.
    """

    turns: int = 0
    repeats: int = 0
    calls: int = 0
    answered: int = 0
    untold: int = 0
    uncounted: int = 0
    oversized: int = 0
    silent: int = 0
    pending: int = 0
    sent: int | None = None
    forwarded: int | None = None
    exact: bool = True
    usage: Usage | None = None
    cost: float | None = None
    guessed: float | None = None
    cost_stated: float | None = None
    stated_for: float | None = None
    unpriced: int = 0
    extra: int = 0
    retries: int = 0
    late: int = 0
    stray: int = 0
    other: int = 0
    predicted_read: int | None = None
    predicted_write: int | None = None
    predicted_cost: float | None = None
    alone_cost: float | None = None
    unchanged: int = 0
    compared: int = 0
    needles_planted: int = 0
    needles_lost: int = 0
    needle_ages: dict[str, dict[str, int]] = field(default_factory=dict)
    needles_without: Counter[str] = field(default_factory=Counter)
    needles_damaged: int = 0
    needles_shown: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    repeated_after: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    tools: dict[str, dict[str, int]] = field(default_factory=dict)
    models: Counter[str] = field(default_factory=Counter)
    _alone: float = 0.0  # with `_through`: prompts of the turns whose cost is known both as sent and as forwarded
    _through: float | None = None
    _added: list[float] = field(default_factory=list)
    _added_ttft: list[float] = field(default_factory=list)
    _added_first_byte: list[float] = field(default_factory=list)
    _added_pause: list[float] = field(default_factory=list)

    def add(self, turn: Turn) -> None:
        """Count one record in."""
        self.calls += len(turn.calls)
        self.oversized += turn.oversized
        if turn.kind == "other":
            self.other += 1
            return
        if turn.kind == "turn":
            self._add_turn(turn)
        elif turn.kind == "late":
            self.late += len(turn.calls)
        else:
            self.stray += len(turn.calls)
        self.exact = self.exact and turn.exact
        for name in _SUMS:
            setattr(self, name, plus(getattr(self, name), getattr(turn, name)))
        self.usage = plus(self.usage, turn.usage)
        self.unpriced += turn.unpriced
        answered = [
            call for call in turn.calls if call.wire in _PROMPTS and call.status is not None and call.status < 400
        ]
        self.answered += len(answered)
        self.untold += sum(call.usage is None for call in answered)
        if turn.kind != "turn":
            self._through = plus(self._through, turn.predicted_cost)
        elif turn.alone_cost is not None and not (answered and turn.predicted_cost is None):
            self._alone += turn.alone_cost
            self._through = plus(self._through, turn.predicted_cost)

    def _add_turn(self, turn: Turn) -> None:
        self.repeats += turn.repeat
        self.turns += not turn.repeat
        failure = failure_of(turn)
        if failure is not None:
            self.failures[failure] += 1
        if turn.after is not None:
            self.repeated_after[turn.after] += 1
        self.refusals.update(turn.refusals)
        self.extra += turn.extra
        self.retries += turn.retries
        self.violations.update(turn.violations)
        self._add_needles(turn)
        count_tools(self.tools, turn.tools)
        sent = turn.front or (turn.calls[0] if turn.calls else None)
        self.uncounted += sent.uncounted_parts if sent is not None else 0
        alone = turn.front is not None and not turn.calls and failure is None
        self.silent += alone and not turn.pending
        self.pending += alone and turn.pending > 0
        if turn.unchanged is not None:
            self.compared += 1
            self.unchanged += turn.unchanged
        if turn.model:
            self.models[turn.model] += 1
        if turn.cost_stated is not None:
            self.stated_for = plus(self.stated_for, turn.cost if turn.cost is not None else turn.guessed)
        for name in ("added", "added_ttft", "added_first_byte", "added_pause"):
            if (seconds := getattr(turn, name)) is not None:
                getattr(self, f"_{name}").append(seconds)

    def _add_needles(self, turn: Turn) -> None:
        for name in _NEEDLES:
            setattr(self, name, getattr(self, name) + getattr(turn, name))
        self.needle_ages = plus(self.needle_ages, turn.needle_ages)
        self.needles_without.update([turn.needles_without] if turn.needles_without else [])

    def absorb(self, other: Figures) -> None:
        """Count in what another one has counted."""
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, mine and theirs if one.name == "exact" else plus(mine, theirs))

    @property
    def failed(self) -> int:
        """Turns that failed, as the client saw them."""
        return self.failures.total()

    @property
    def new_tokens(self) -> int | None:
        """Billed input tokens that were neither read from nor written to a cache."""
        if self.usage is None or self.usage.input_tokens is None:
            return None
        return self.usage.input_tokens - (self.usage.cache_read or 0) - (self.usage.cache_write or 0)

    @property
    def added(self) -> float | None:
        """Median seconds that what stands in between added to a request."""
        return _median(self._added)

    @property
    def added_ttft(self) -> float | None:
        """Median seconds added before the first token of a streamed reply."""
        return _median(self._added_ttft)

    @property
    def added_first_byte(self) -> float | None:
        """Median seconds added before the first byte of a reply."""
        return _median(self._added_first_byte)

    @property
    def added_pause(self) -> float | None:
        """Median seconds that a client's longest wait between two pieces was longer than the provider's own."""
        return _median(self._added_pause)

    @property
    def prompt_cost_ratio(self) -> float | None:
        """Predicted prompt cost as forwarded over that as sent, of turns where both are known: above 1, what stands in
        between makes prompts dearer.
        """
        return self._through / self._alone if self._alone and self._through is not None else None

    def as_dict(self) -> dict[str, Any]:
        """All figures by name, JSON-ready; what nobody told is left out."""
        usage = self.usage or Usage()
        billed = {
            "input": usage.input_tokens,
            "new": self.new_tokens,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "output": usage.output_tokens,
        }
        found = {name: getattr(self, name) for name in _PLAIN}
        found |= {"calls_without_usage": self.untold, "cost_predicted": self.guessed}
        predicted = {
            "cache_read": self.predicted_read,
            "cache_write": self.predicted_write,
            "prompt_cost": self.predicted_cost,
        }
        predicted |= {"prompt_cost_as_sent": self.alone_cost, "prompt_cost_ratio": self.prompt_cost_ratio}
        predicted |= {"cold_cache": None if self.predicted_read is None else True}
        nested: dict[str, dict[str, Any]] = {"billed": billed, "predicted": predicted}
        found |= {
            name: {key: value for key, value in values.items() if value is not None} for name, values in nested.items()
        }
        if self.needles_planted or self.needles_without or self.needles_shown:
            found["needles"] = {name.removeprefix("needles_"): getattr(self, name) for name in _NEEDLES}
            found["needles"] |= {"ages": self.needle_ages, "without": dict(sorted(self.needles_without.items()))}
        if self.cost_stated is not None:
            found["cost_stated"] = {"told": self.cost_stated, "by_usage": self.stated_for}
        if self.tools:
            found["tools"] = dict(sorted(self.tools.items()))
        for name in ("failures", "repeated_after", "refusals", "violations", "models"):
            found[name] = dict(sorted(getattr(self, name).items()))
        return {name: value for name, value in found.items() if value is not None}


def failure_of(turn: Turn) -> str | None:
    """Failure of a turn, as its client saw it; also of turns that were kept before that was written down."""
    if turn.failure is not None:
        return turn.failure
    return "no answer" if turn.status is None else str(turn.status) if turn.status >= 400 else None


def by_context(turns: Iterable[Turn]) -> dict[str, Figures]:
    """Figures by context, in the order in which these appeared."""
    found: dict[str, Figures] = {}
    for turn in turns:
        found.setdefault(turn.context, Figures()).add(turn)
    return found


def by_session(turns: Iterable[Turn]) -> dict[tuple[str, str], Figures]:
    """Figures by (arm, session), in the order in which sessions appeared; records of no session are under an empty
    label.
    """
    found: dict[tuple[str, str], Figures] = {}
    for turn in turns:
        found.setdefault((turn.arm, turn.session), Figures()).add(turn)
    return found


def total(turns: Iterable[Turn], arm: str = "main") -> Figures:
    """Figures of all records of one arm."""
    found = Figures()
    for turn in turns:
        if turn.arm == arm:
            found.add(turn)
    return found


def plus(a: Any, b: Any) -> Any:
    """The sum of two counts, of which either may be unknown; tables of counts are summed entry by entry."""
    if a is None or b is None:
        return b if a is None else a
    if type(a) is dict:
        return {key: plus(a.get(key), b.get(key)) for key in {**a, **b}}
    return a + b


def _median(values: list[float]) -> float | None:
    import statistics  # a plain run counts no turns

    return statistics.median(values) if values else None
