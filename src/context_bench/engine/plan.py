"""The plan of a run: arms × examples × trials, each known by its content, so that only what changed is done again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput, NotStored, SameName, SetupFailed, Stop, describe
from context_bench.core.keys import canonical_json, hash_bytes, hash_text, seed_of, stable_hash
from context_bench.core.numbers import bounded_calls, duration
from context_bench.core.records import DATASET_GIVEN, Call, Example, Forwarded
from context_bench.core.roles import CANDIDATE, ArmRole
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import Secrets

#: With `bodies="auto"`: rows up to which every body is kept; from then on only those that a proxy changed.
BODIES_UP_TO = 10_000


@dataclass(frozen=True, slots=True)
class Arm:
    """One system of a run.

    `budget_from`: name of another arm; this one runs after it and gets `example["budget"]` = tokens of the context that
    arm forwarded. `paired_with`: name of the baseline, which is asked about each example before this arm; what arrives
    at the tap as the baseline's request did counts as no difference. `copies`: the tap answers such a request with the
    baseline's reply; `only_lost`: one in which all of the example's evidence arrived, too. `labels` go into the
    metadata of its rows (such as model and shape). `every`: it takes every n-th example only, the first included (a
    noise floor need not cost a whole arm). `role`: what it is there for, for the manifest.
    """

    system: Any
    budget_from: str | None = None
    labels: dict[str, Any] = field(default_factory=dict)
    every: int = 1
    role: ArmRole = CANDIDATE
    paired_with: str | None = None
    copies: bool = True
    only_lost: bool = False

    @property
    def name(self) -> str:
        """The system's name."""
        return str(self.system.name)

    def takes(self, position: int) -> bool:
        """True if the example at this position of the run is this arm's to answer."""
        return position % self.every == 0


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings of a run.

    `trials`: times each example is asked. `seed` orders the arms. `max_workers`: rows in work at once (`None` = 1).
    `example_timeout` and `run_timeout` in seconds. `bodies`: "all", "changed" (only what a proxy changed), "none", or
    "auto" (all up to 10,000 rows, then changed). `text_fields`: example fields whose tokens are compared where a system
    makes no call, default `("context",)`. `late_grace`: seconds to wait after the last row for requests that a proxy
    still sends on. `setup_timeout`: seconds that the set-up of one group may take; `example_timeout` does not hold for
    it.
    """

    trials: int = 1
    seed: int = 0
    max_workers: int | None = 1
    example_timeout: float | None = None
    run_timeout: float | None = None
    bodies: str = "auto"
    text_fields: tuple[str, ...] | None = None
    late_grace: float = 0.25
    setup_timeout: float | None = None

    def check(self) -> None:
        """Raise `BadInput` for a value that cannot be used."""
        if self.trials < 1:
            raise BadInput(f"trials is {self.trials}; expected 1 or more")
        if self.max_workers is not None and self.max_workers < 0:
            raise BadInput(f"max_workers is {self.max_workers}; expected 1 or more")
        for name in ("example_timeout", "run_timeout", "setup_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadInput(f"{name} is {value}; expected a number of seconds above 0")
        if self.bodies not in ("auto", "all", "changed", "none"):
            raise BadInput(f"bodies is {self.bodies!r}; expected all, changed, none or auto")


@dataclass(slots=True)
class PlannedArm:
    """An arm with its identity: `key` says what makes its outputs what they are; `number` is its place in the store."""

    arm: Arm
    key: str
    fingerprint: dict[str, Any]
    number: int = -1
    partner: int | None = None  # index of the arm that gives the budget
    feeds: bool = False  # another arm's budget comes from it
    base: int | None = None  # index of the arm that it is paired with
    paired: bool = False  # others are paired with it

    @property
    def name(self) -> str:
        return self.arm.name

    @property
    def system(self) -> Any:
        return self.arm.system

    @property
    def waits(self) -> bool:
        """Other arms are asked about an example before this one."""
        return self.base is not None or self.partner is not None

    @property
    def stateful(self) -> bool:
        """Examples of one group share state."""
        return bool(getattr(self.arm.system, "stateful", False))

    @property
    def played_back(self) -> bool:
        """Its answers were given elsewhere: it is told the trial, and a row's latency is what its calls say."""
        return bool(getattr(self.arm.system, "played_back", False))


@dataclass(slots=True)
class PlannedEvaluator:
    """An evaluator with its identity; `id` is its place in the store."""

    evaluator: Any
    key: str
    fingerprint: dict[str, Any]
    id: int = -1

    @property
    def name(self) -> str:
        return str(self.evaluator.name)

    @property
    def after(self) -> bool:
        """It judges in a second pass, over the outputs of all systems."""
        return getattr(self.evaluator, "stage", None) == "after"


@dataclass(slots=True)
class StoredAnswer:
    """A stored output that answers a key. `own`: made by this run."""

    id: int
    key: bytes
    own: bool
    created: float
    takes: int
    failed: bool
    tapped: bool
    source: str | None
    output_tokens: int | None
    context_tokens: int | None
    scored: tuple[int, ...] = ()


@dataclass(slots=True)
class WorkItem:
    """One thing owed: an arm's answer to one example in one trial, or only the scores of an answer that exists
    (`output` is its id).
    """

    arm: int
    position: int
    trial: int
    example: Example
    content: str
    occurrence: int
    key: bytes
    group: str | None = None
    budget: int | None = None
    unsized: bool = False  # the arm that gives the budget has answered, and nobody knows what it forwarded
    output: int | None = None  # an output that exists under this key
    done: bool = False  # it needs no call of the system
    scored: tuple[int, ...] = ()  # evaluators (store ids) that need not judge it again
    takes: int = 0  # how often it was tried before
    block: DependencyGroup | None = None
    before: StoredAnswer | None = None  # the stored output that its row of the plan pointed to when planning began
    found: StoredAnswer | None = None  # the stored output that was found for it
    copies: bool = False  # the baseline has answered: what arrives as its request did gets its reply


@dataclass(slots=True)
class DependencyGroup:
    """One example in one trial, where some arms wait for others: each becomes ready when those are finished.

    `awaited`: arms (by index) of the example that are not finished; `dependents`: items that wait for some of them.
    """

    awaited: set[int]
    dependents: list[WorkItem]
    forwarded: dict[int, int | None] = field(
        default_factory=dict
    )  # arm index → context tokens forwarded, None = unknown or failed
    unsized: set[int] = field(default_factory=set)  # arms that have an answer of which it is not known
    answered: set[int] = field(default_factory=set)  # arms that gave an answer in this process


@dataclass(slots=True)
class Batch:
    """The work that one worker does without interruption: units of one arm, in order. More than one for a group of a
    stateful system.
    """

    arm: int
    units: list[WorkItem]
    group: str | None = None
    restarted: bool = False
    number: int = 0  # of the group among those of its arm, from 1 in plan order


def planned_arms(arms: Sequence[Arm], secrets: Secrets) -> list[PlannedArm]:
    """Arms with their keys. Raises `SameName` and `BadInput`.

    The n-th arm with an equal fingerprint is a repetition with outputs of its own: that is how the noise floor is
    measured.
    """
    names = [arm.name for arm in arms]
    if not arms:
        raise BadInput("nothing to measure: a run needs at least one system")
    for name in names:
        if names.count(name) > 1:
            raise SameName(
                f"two systems are called {name!r}, so their rows could not be told apart; give each its own name"
            )
        if utf8_safe(name) != name:
            raise BadInput(f"a system is called {name!r}: half a surrogate pair cannot be stored; give it another name")
    planned: list[PlannedArm] = []
    repetitions: dict[str, int] = {}
    for arm in arms:
        fingerprint = secrets.value(calling.fingerprint(arm.system))
        plain = stable_hash(fingerprint)
        repetition = repetitions[plain] = repetitions.get(plain, -1) + 1
        planned.append(PlannedArm(arm, stable_hash([plain, repetition]), fingerprint))
    for index, arm in enumerate(arms):
        if arm.budget_from is not None:
            _link(planned, index, arm.budget_from, names)
        if arm.paired_with is not None:
            _pair(planned, index, arm.paired_with, names)
    return planned


def _pair(planned: list[PlannedArm], index: int, base: str, names: list[str]) -> None:
    here = planned[index]
    if base not in names or base == here.name:
        raise BadInput(f"{here.name!r} is paired with {base!r}, which is no other system of this run")
    there = planned[names.index(base)]
    if there.arm.paired_with is not None or there.arm.budget_from is not None or there.stateful or here.stateful:
        raise BadInput(
            f"{here.name!r} is paired with {base!r}: a baseline waits for no other arm, and neither keeps state between"
            " examples"
        )
    here.base, there.paired = names.index(base), True


def paired_at(planned: Sequence[PlannedArm], base: int, position: int) -> int:
    """The number of arms that are paired with the one at index `base` and take the example at this position."""
    return sum(each.base == base and each.arm.takes(position) for each in planned)


def _link(planned: list[PlannedArm], index: int, partner: str, names: list[str]) -> None:
    here = planned[index]
    if partner not in names:
        raise BadInput(
            f"{here.name!r} takes its budget from {partner!r}, which is not a system of this run; it has: "
            f"{', '.join(names)}"
        )
    there = planned[names.index(partner)]
    if there.arm.budget_from is not None or there is here:
        raise BadInput(f"{here.name!r} takes its budget from {partner!r}, which itself waits for a budget")
    if here.arm.every % there.arm.every:
        raise BadInput(f"{here.name!r} takes examples that {partner!r}, whose budget it needs, leaves out")
    if here.stateful:
        raise BadInput(
            f"{here.name!r} keeps state between examples, so it cannot take a budget from {partner!r} example by "
            "example"
        )
    here.partner, there.feeds = names.index(partner), True


def planned_evaluators(evaluators: Sequence[Any], secrets: Secrets) -> list[PlannedEvaluator]:
    """Evaluators with their keys: name, version, fingerprint, and the datasets that they have no say in."""
    planned = []
    for evaluator in evaluators:
        fingerprint = secrets.value(calling.fingerprint(evaluator))
        if elsewhere := getattr(evaluator, "not_for", ()):
            fingerprint = {**fingerprint, "not_for": sorted(elsewhere)}
        key = stable_hash([str(evaluator.name), getattr(evaluator, "version", None), fingerprint])
        planned.append(PlannedEvaluator(evaluator, key, fingerprint))
    return planned


def content_key(example: Example) -> str:
    """The content of an example, apart from where it came from (`dataset` may be a path)."""
    content = {key: value for key, value in example.items() if key not in ("dataset", DATASET_GIVEN)}
    try:
        return hash_bytes(
            _canonical(content) if _is_plain_json(content) else canonical_json(content).encode("utf-8", "surrogatepass")
        )
    except (TypeError, ValueError, RecursionError):  # keys that cannot be sorted, circles
        return hash_text(repr(sorted(((str(key), value) for key, value in content.items()), key=lambda item: item[0])))


def _canonical(value: Any) -> bytes:
    """The bytes of `canonical_json`, ten times as fast, of what `_is_plain_json`."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError, RecursionError):  # half a surrogate pair, an integer beyond 64 bits
        return canonical_json(value).encode("utf-8", "surrogatepass")


def _is_plain_json(value: Any) -> bool:
    """Does every writer of JSON write this the same? Not so of floats, nor of what is not JSON."""
    kind = type(value)
    if kind is str or kind is int or value is None or kind is bool:
        return True
    if kind is dict:
        return all(type(key) is str for key in value) and all(
            type(item) is str or _is_plain_json(item) for item in value.values()
        )
    return kind is list and all(_is_plain_json(item) for item in value)


def output_key(arm: PlannedArm, content: str, trial: int, occurrence: int, budget: int | None = None) -> bytes:
    """The key of an output. `occurrence`: how many examples of equal content came before it in the run; each is owed
    its own answer.
    """
    return sha256(f"{arm.key}|{content}|{trial}|{occurrence}|{'' if budget is None else budget}".encode()).digest()[:16]


def example_facts(example: Example, position: int) -> tuple[Any, str, str | None, str | None]:
    """`id`, `dataset`, `group`, `cluster` of an example as rows carry them. Without an id, the position is one."""
    found = example.get("id", position)
    if isinstance(found, bool) or not isinstance(found, str | int):
        found = str(found)
    group = None if example.get("group") is None else utf8_safe(str(example["group"]))
    cluster = example.get("cluster")
    named = group if cluster is None else utf8_safe(str(cluster))
    return found, utf8_safe(str(example.get("dataset") or "")), group, named


def ordered(arms: Sequence[int], seed: int, content: str, trial: int) -> list[int]:
    """Arms in the random order that belongs to this example and seed."""
    if len(arms) < 2:
        return list(arms)
    shuffled = list(arms)
    random.Random(seed_of("order", seed, content, trial)).shuffle(shuffled)
    return shuffled


_FORSAKEN = 3  # times that a piece of work is tried with less and less of it


@dataclass(slots=True)
class EvaluatorScore:
    """Verdict of one evaluator (store id): `values`, or `error`, or neither where it does not apply. `replies`: to be
    remembered, by key.
    """

    evaluator: int
    values: dict[str, float] | None = None
    error: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class WorkOutcome:
    """The outcome of a unit. `ran`: the system was called (or refused for want of a budget); else only `scores` are
    new.

    `output` is what the system added to the example or changed in it. `latency` in seconds without waiting.
    """

    unit: WorkItem
    ran: bool = True
    error: str | None = None
    output: Example = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    context_tokens: int | None = None
    source: str | None = None
    latency: float | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    wire: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    forwarded: list[Forwarded] = field(default_factory=list)
    scores: list[EvaluatorScore] = field(default_factory=list)
    arrived: list[str] | None = None  # texts that went on to the model, for evaluators that read them; not kept
    mark: str | None = None  # by which a tap knows its requests
    id: int | None = None  # of the stored output, once committed
    stop: Stop | None = None  # what ended the work on it early; what was finished is kept all the same
    setup: int | None = None  # id of its group's stored set-up
    forsaken: int = 0  # how much of it was given up because it cannot be stored

    def forsake(self, reason: str) -> bool:
        """Give up what cannot be stored, and keep why: first all but the calls' money and tokens, then those. False if
        nothing is left.
        """
        error = describe(NotStored(f"what came back cannot be kept ({reason})"))
        self.forsaken += 1
        self.calls = bounded_calls(self.calls) if self.forsaken == 1 else []
        for score in self.scores:
            score.values, score.error, score.usage, score.replies = None, error, {}, {}
            score.calls = bounded_calls(score.calls) if self.forsaken == 1 else []
        if self.ran:
            self.calls += [call for score in self.scores for call in score.calls]
            self.error, self.scores, self.output, self.wire, self.forwarded = error, [], {}, {}, []
            self.usage = {"cost": money} if (money := sum(call.cost or 0.0 for call in self.calls)) else {}
            self.metadata = {name: value for name, value in self.metadata.items() if isinstance(value, str)}
            self.input_tokens = self.output_tokens = self.context_tokens = self.source = None
            self.latency = duration(self.latency)
        return self.forsaken < _FORSAKEN


@dataclass(slots=True)
class SetUp:
    """One attempt to get a group ready for its units. `id` and `attempt` come from the store. `seconds` on the clock,
    `None` while it lasts. `output` is what the system told.
    """

    arm: int
    trial: int
    group: str | None
    position: int  # of the group's first example
    number: int
    id: int = -1
    attempt: int = 1
    seconds: float | None = None
    output: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    forwarded: list[Forwarded] = field(default_factory=list)
    error: str | None = None
    mark: str | None = None
    stop: Stop | None = None
    forsaken: int = 0

    def forsake(self, reason: str) -> bool:
        """The same for a set-up."""
        self.forsaken += 1
        self.error = describe(SetupFailed(describe(NotStored(f"what came back cannot be kept ({reason})"))))
        self.calls = bounded_calls(self.calls) if self.forsaken == 1 else []
        self.output, self.usage, self.forwarded, self.seconds = {}, {}, [], duration(self.seconds) or 0.0
        return self.forsaken < _FORSAKEN
