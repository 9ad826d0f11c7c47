"""The records that every part of the house passes on: what a call was, what a row says, what a run found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Example = dict[str, Any]
#: Key of an example whose `dataset` is a tag of its own, in a run of several datasets: which of them it is from.
DATASET_GIVEN = "dataset_given"
Account = Literal["system", "reader", "judge", "compressor", "embedder", "preflight"]


@dataclass(slots=True)
class Usage:
    """Tokens as the provider billed them. `None` = it did not say (never 0).

    `input_tokens` is the whole prompt, cached parts included; `cache_read` and `cache_write` are shares of it, and
    `cache_write_1h` is the share of `cache_write` that is stored for an hour (Anthropic bills it at twice the input
    price instead of 1.25 times).
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            _plus(self.input_tokens, other.input_tokens),
            _plus(self.output_tokens, other.output_tokens),
            _plus(self.cache_read, other.cache_read),
            _plus(self.cache_write, other.cache_write),
            _plus(self.reasoning_tokens, other.reasoning_tokens),
            _plus(self.cache_write_1h, other.cache_write_1h),
        )


def _plus(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


@dataclass(slots=True)
class Call:
    """One attempt to reach a model, written into the ledger by whoever made it (failed attempts too).

    Times in seconds. `waited` is time spent in back-off or for a free slot before this attempt: it is never
    part of a latency. `cost` in US dollars, `None` where no price is known. `sent_tokens` is our count of the request.
    `in_flight`: requests under way on the account (by the same limiter) when this one was sent, itself included.
    """

    account: Account
    model: str
    url: str  # origin and path only: no query, no credentials
    started: float
    seconds: float = 0.0
    ttft: float | None = None
    waited: float = 0.0
    attempt: int = 1
    status: int | None = None
    sent_tokens: int | None = None
    exact: bool = False
    usage: Usage | None = None
    cost: float | None = None
    finish_reason: str | None = None
    error: str | None = None
    request: Any = None  # the JSON body as sent (kept in the store's body table, if bodies are kept)
    reply: Any = None  # the assistant message or the provider's error body
    in_flight: int | None = None


@dataclass(slots=True)
class Forwarded:
    """One request that really reached the provider, as the tap saw it.

    `matched_by`: how the tap knew whose it was (`none` = unmatched). `tokens` counts the text of the request by the
    rule of decision 17; `uncounted_parts` are parts (images, files …) that no tokenizer of ours can count. `late`: it
    arrived after the client had been answered. `facts` is the request's anatomy (roles, parameters, tools,
    cache_control …) as JSON, see `wire.request.facts`.
    """

    id: str
    mark: str | None
    matched_by: Literal["key", "header", "serial", "none"]
    wire: str  # "openai-chat", "openai-responses", "anthropic", "anthropic-count", "models", "other"
    method: str
    path: str
    started: float
    seconds: float = 0.0
    ttft: float | None = None
    status: int | None = None
    model: str | None = None
    stream: bool = False
    tokens: int | None = None
    exact: bool = False
    uncounted_parts: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    usage: Usage | None = None
    prefix_tokens: int | None = None  # shared with the longest matching earlier request of the same session
    authorization: bool | None = None  # did the mark arrive in the place where we sent it (None = not sent as a key)
    late: bool = False
    window: int = 0
    error: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    request: Any = None  # body, by the recording policy
    reply: Any = None

    @property
    def oversized(self) -> int:
        """Number of its two bodies that were relayed unread, since they, or all that waited, were too large."""
        return sum(
            str(self.facts.get(name, "")).startswith(("too large", "too much")) for name in ("unread", "reply_unread")
        )


def not_compared(bodies: int) -> str:
    """The sentence on bodies that were too large to be read."""
    return f"{bodies:,} {'body' if bodies == 1 else 'bodies'} not compared: too large"


@dataclass(slots=True)
class EvalRow:
    """Result of one system on one example, in one trial.

    `input_tokens`: tokens our client sent; of a system that shortens before it asks, those of the request with the
    example as it was given. `output_tokens`: tokens of the prompt that went on to the model (tap, else the provider's
    own prompt count; for a Python system the tokens of the `context` it returned). `None` = could not be measured.
    `latency` in seconds, without time spent waiting for a slot or in back-off. `errors` maps a source (`system` or an
    evaluator's name) to `Class: message`; a source with an error has no score.
    Completion tokens and money live in `usage`, what the tap saw in `wire`.
    """

    system: str
    example_id: str | int
    scores: dict[str, float]
    input_tokens: int | None = None
    output_tokens: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    latency: float | None = 0.0
    dataset: str = ""
    trial: int = 0
    group: str | None = None
    cluster: str | None = None
    errors: dict[str, str] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    wire: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """The system gave no answer (an evaluator's failure alone does not make a failed row)."""
        return "system" in self.errors


@dataclass(slots=True)
class Estimate:
    """A number with its uncertainty: 95 % interval `[low, high]`, `None` where none can honestly be given.

    `n` rows were scored, `failures` were owed and are missing; `worst` and `best` are the value if all missing ones
    were wrong or right (only for scores in [0, 1]). `clusters`: independent units behind the interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 0
    failures: int = 0
    worst: float | None = None
    best: float | None = None
    clusters: int = 0
    method: str = ""


@dataclass(slots=True)
class SetupRecord:
    """One attempt to set up a group of a system that keeps state (ingest, compression), before its first question was
    asked.

    `number`: which of the system's groups it is, from 1 in plan order; a row's `metadata["setup"]` is this number.
    `attempt` counts from 1: a run that went on after an interruption sets a half-done group up again, and the last
    attempt is the one that rows speak of. `seconds` on the clock (its calls may have waited side by side), `None` for
    one that never ended. `output`: what the system told of it. `usage`: tokens as in rows. `cost` in US dollars.
    `calls`: attempts to reach a model that were seen. `error`: `Class: message`.
    """

    system: str
    group: str | None
    trial: int
    number: int
    attempt: int = 1
    seconds: float | None = None
    output: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    cost: float | None = None
    calls: int = 0
    error: str | None = None


Verdict = Literal["better", "non-inferior", "inferior", "undecided", "insensitive", "no verdict"]


@dataclass(slots=True)
class Comparison:
    """One system against the baseline on the same examples: mean paired difference, interval, verdict, and the sentence
    to print.

    `changes`: how many examples changed by how much, as bins (above, up to, count) of the score less the baseline's: of
    equal width on both sides of (0, 0, count), the examples that kept theirs. `post_hoc`: margin or score were chosen
    when answers were there already, so the verdict is exploratory.
    """

    system: str
    baseline: str
    metric: str
    dataset: str | None
    shape: str | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: Verdict
    margin: float | None
    n: int
    clusters: int
    excluded: int = 0
    n_needed: int | None = None
    sentence: str = ""
    post_hoc: bool = False
    qa_type: str | None = None  # the kind of question it is about, if it is about one
    changes: tuple[tuple[float, float, int], ...] | None = None


class _Figures:
    """A field of a result or page that holds the figures of one family: the value at `key` of its `families`."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return None if owner is None else owner.families.setdefault(self._key, {})

    def __set__(self, owner: Any, value: Any) -> None:
        if value is not None:
            owner.families = {**owner.families, self._key: value}


def figures_of(key: str) -> Any:
    """A field of a dataclass that stands for `families[key]`; the class has a field `families`, a dict, before it."""
    return _Figures(key)


@dataclass
class Result:
    """Everything a run found. `rows` may be a list or a lazily read sequence of the store.

    `summary[system][metric]` is the documented flat form; `estimates[system][metric]` says how sure; `wire[system]` is
    what the tap saw; `failures[system][source][class]` counts; `notes` are sentences every report must show.
    `families[manifest key]`: figures of the family that the run belongs to (see `core.families`); three have a name of
    their own: `replay`: of a replay of recorded sessions, what its traffic shows (see `context_bench.traffic.figures`).
    `setups`: every attempt to set up a group, by system, number, trial and attempt. `agents`: of a run of agents, its
    figures beside scores (see `context_bench.agents`). `compression`: of a run over probes, what they come to (see
    `compression.figures`). `by_type`: the comparisons again, by kind of question (`metadata["qa_type"]`), where
    there are several kinds; they correct for one another and for nothing else. `lifts`: each system against truncation
    to its own size (their `baseline`), where the run has that; a family of its own.
    """

    rows: Sequence[EvalRow]
    summary: dict[str, dict[str, float]]
    timing: dict[str, float] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    estimates: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    wire: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    families: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False, kw_only=True)
    replay: dict[str, Any] = figures_of("replay")
    setups: list[SetupRecord] = field(default_factory=list)
    agents: dict[str, Any] = figures_of("agents")
    compression: dict[str, Any] = figures_of("compression")
    by_type: list[Comparison] = field(default_factory=list)
    lifts: list[Comparison] = field(default_factory=list)


_PRIMITIVE = frozenset({str, int, float, bool, type(None)})
_MAPPINGS = (dict, Mapping)  # nearly always the first, and to ask for the second only takes ten times as long


def plain(record: Any) -> Any:
    """A record (or a nest of them) as JSON-ready values; `None` fields and non-finite numbers are left out."""
    if type(record) in _PRIMITIVE:  # most of what there is
        return record
    if hasattr(record, "__dataclass_fields__"):
        named = ((each.name, getattr(record, each.name)) for each in fields(record))
        return {name: plain(value) for name, value in named if measured(value)}
    if isinstance(record, _MAPPINGS):
        return {str(k): plain(v) for k, v in record.items() if measured(v)}
    if isinstance(record, list | tuple):
        return [plain(v) for v in record]
    return record


def measured(value: Any) -> bool:
    """False for what could not be measured: `None`, infinity, NaN."""
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))
