"""An arm: a name, variables for the agent's environment, scripts that run before the agent, and limits that end its
run.

Limits are declared beforehand and hold for every arm alike. Addresses that an arm's agent needs are tried before
anything is run, for an arm would lose if nobody answered there.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, CopyUnusable, PreflightFailed
from context_bench.core.machine import expanded
from context_bench.core.protocols import Prices
from context_bench.core.records import Forwarded
from context_bench.core.secrets import names_a_secret
from context_bench.llm.failures import says_too_long
from context_bench.llm.sessions import unreachable
from context_bench.llm.transport import Unusable, address_of

NAME = re.compile(r"[A-Za-z0-9][\w.@+#-]{0,63}")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
#: What may stand in a variable's value, in braces.
PLACES = ("tap", "key", "workspace", "home", "path")
_PLACE = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class ArmSpec:
    """`variables`: set for the agent and the scripts; a value may name `{tap}` (the tap's URL), `{key}` (the one-time
    key), `{workspace}`, `{home}`, `{path}`. `scripts`: run by `sh` in the copy, before the agent, without network.
    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    scripts: tuple[Path, ...] = ()

    def values(self, places: Mapping[str, str | None]) -> dict[str, str]:
        """The variables with their places filled in. Raises `BadInput` for one that is not known in this run."""
        return {name: self._filled(name, value, places) for name, value in self.variables.items()}

    def _filled(self, name: str, value: str, places: Mapping[str, str | None]) -> str:
        def put(found: re.Match[str]) -> str:
            if found[1] not in PLACES:
                return found[0]
            known = places.get(found[1])
            if known is None:
                raise BadInput(
                    f"arm {self.name!r}: {name} asks for {{{found[1]}}}, which this run does not have: it needs "
                    "--upstream"
                )
            return known

        return _PLACE.sub(put, value)

    @property
    def secrets(self) -> dict[str, str]:
        """The variables that hold a key, going by their names."""
        return {
            name: value
            for name, value in self.variables.items()
            if names_a_secret(name) and value and not _PLACE.search(value)
        }

    def told(self) -> dict[str, Any]:
        """The arm as JSON, for manifests and identities: scripts by the hash of what is in them, secrets by their names
        only.
        """
        hidden = self.secrets
        shown = {name: "(not shown)" if name in hidden else value for name, value in self.variables.items()}
        scripts = [
            {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in self.scripts
        ]
        return {"variables": shown, "scripts": scripts}


def parse_arm(text: str) -> ArmSpec:
    """`NAME=` followed by words as a shell splits them: `KEY=VALUE` sets a variable, anything else is a set-up script.

    `base=`, `hr='OPENAI_BASE_URL=http://localhost:18401/v1 HR_MODE=fast'`, `hook=./install-hook.sh`. Raises `BadInput`.
    """
    name, equals, rest = text.partition("=")
    if not NAME.fullmatch(name):
        raise BadInput(
            f"--arm {text!r}: expected NAME=, NAME='KEY=VALUE …' or NAME=SCRIPT, with a name of letters, digits and . "
            "_ @ + -"
        )
    if not equals:
        raise BadInput(f"--arm {text!r}: the = is missing; an arm that changes nothing is --arm {name}=")
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise BadInput(f"--arm {text!r}: {str(error).lower()} in what follows the =") from None
    variables: dict[str, str] = {}
    scripts: list[Path] = []
    for word in words:
        if found := _ASSIGNMENT.fullmatch(word):
            variables[found[1]] = found[2]
        elif (path := expanded(word)).is_file():
            scripts.append(path.absolute())
        else:
            raise BadInput(
                f"--arm {name}: {word!r} is neither KEY=VALUE nor a script that is there (seen from {Path.cwd()})"
            )
    return ArmSpec(name, variables, tuple(scripts))


def twice(specs: list[ArmSpec]) -> list[ArmSpec]:
    """The arms, where one that is given a second time word for word is called `NAME#2` (a third `NAME#3`).

    Raises `BadInput` if two differ.
    """
    seen: dict[str, list[ArmSpec]] = {}
    made: list[ArmSpec] = []
    for spec in specs:
        before = seen.setdefault(spec.name, [])
        if before and (before[0].variables, before[0].scripts) != (spec.variables, spec.scripts):
            raise BadInput(f"two arms are called {spec.name!r} and are not the same; give each its own name")
        before.append(spec)
        made.append(spec if len(before) == 1 else again(spec, len(before)))
    names = [spec.name for spec in made]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two arms are called {name!r}; give each its own name")
    return made


def again(spec: ArmSpec, number: int = 2) -> ArmSpec:
    """The same arm once more, under a name of its own."""
    return ArmSpec(f"{spec.name}#{number}", spec.variables, spec.scripts)


TIME, STEPS, MONEY, OVERFLOW = "time limit", "step limit", "money limit", "context overflow"
AGENT, VERIFY = "agent error", "verify error"
#: All classes, in the order in which they are tried: a run that met several is counted under the first.
CLASSES = (STEPS, MONEY, TIME, OVERFLOW, AGENT, VERIFY)
SECONDS = 1800.0
_CHAT = ("openai-chat", "openai-responses", "anthropic")
_REFUSED_FOR_LENGTH = (400, 413, 422, 500)


@dataclass(frozen=True, slots=True)
class AbortRules:
    """The most that one run of an agent may take: seconds on the clock, answered calls of the model, US dollars.

    `None` = no such limit; for seconds the task's own `timeout`, which is the same for all arms too, else 1800.
    """

    max_seconds: float | None = None
    max_calls: int | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (math.isfinite(value) and value > 0):
                raise BadInput(f"{name.replace('_', ' ')} of one run is {value}; expected a number above 0")

    @property
    def watching(self) -> bool:
        """A limit demands that the traffic is watched while the agent works."""
        return self.max_calls is not None or self.max_cost is not None

    def seconds(self, example: Mapping[str, Any]) -> float:
        """Seconds that an agent has for this task."""
        return self.max_seconds or float(example.get("timeout") or SECONDS)

    def broken(self, records: Sequence[Forwarded], prices: Prices | None) -> str | None:
        """The limit that these calls have passed, if any. Calls that the provider did not answer do not count."""
        served = answered(records)
        if self.max_calls is not None and len(served) > self.max_calls:
            return STEPS
        if self.max_cost is not None and (spent := cost_of(served, prices)) is not None and spent > self.max_cost:
            return MONEY
        return None

    def told(self) -> dict[str, Any]:
        """The rules as JSON."""
        return asdict(self)


def is_agents(error: Exception) -> bool:
    """True if a failure after an agent's work is the agent's own doing. Its run then scores 0; any other failure is no
    result at all.
    """
    return isinstance(error, CopyUnusable)


def calls_of(records: Sequence[Forwarded]) -> list[Forwarded]:
    """The calls of a model among what went by."""
    return [record for record in records if record.wire in _CHAT]


def answered(records: Sequence[Forwarded]) -> list[Forwarded]:
    """The calls of a model that were answered."""
    return [
        record
        for record in calls_of(records)
        if record.error is None and (record.status is None or record.status < 400)
    ]


def cost_of(served: Sequence[Forwarded], prices: Prices | None) -> float | None:
    """US dollars of calls; `None` if no price is known for any of them."""
    known = (
        [prices.cost(one.usage, one.model or "") for one in served if one.usage is not None]
        if prices is not None
        else []
    )
    told = [cost for cost in known if cost is not None]
    return sum(told) if told else None


def overflowed(records: Sequence[Forwarded]) -> bool:
    """True if the last call was refused because it does not fit the model's window, and nothing came after it."""
    calls = calls_of(records)
    if not calls or calls[-1].status not in _REFUSED_FOR_LENGTH:
        return False
    return says_too_long(json.dumps(calls[-1].reply, ensure_ascii=False, default=str) + (calls[-1].error or ""))


#: Variables that say where the model is.
WHERE = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL")


async def require_reachable(arms: Iterable[ArmSpec]) -> None:
    """One TCP connection to each place that an arm names as the model's; no request is sent.

    Raises `PreflightFailed` where nothing listens, `BadInput` for what is no URL.
    """
    for arm in arms:
        for name in WHERE:
            value = arm.variables.get(name, "")
            if value and "{" not in value:
                await _require(arm.name, name, value)


async def _require(arm: str, name: str, value: str) -> None:
    try:
        address_of(value)
    except Unusable:
        raise BadInput(f"arm {arm!r}: {name}={value} is no URL; expected http://HOST:PORT/… or https://…") from None
    if (reason := await unreachable(value)) is not None:
        raise PreflightFailed(
            f"arm {arm!r}: nothing listens at {name}={value} ({reason}). Start the proxy first, with the tap as its "
            "upstream"
        )
