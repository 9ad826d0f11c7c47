"""The role that each arm of a run was declared to have. No rule reads a name, but for runs from before roles.

A run's manifest holds one entry an arm in each cell: `"roles": {"none": {"role": "known_bad", "kind": "none"}}`.
The manifest of a comparison of two runs, which has no cells, holds them itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from context_bench.core.errors import BadInput, UnknownName

#: `candidate`: under test. `baseline`: the others are compared with it. `control`: there for comparison.
#: `known_bad`: must lose, else the run could not have shown a loss. `noise_floor`: another arm once more.
Role = Literal["candidate", "baseline", "control", "known_bad", "noise_floor"]

#: Kinds that stand for the whole context and for no context. `passthrough` and `tail_only` are other words for them.
WHOLE, NOTHING = ("full", "passthrough"), ("none", "tail_only")


@dataclass(frozen=True, slots=True)
class ArmRole:
    """The role of one arm.

    `kind`: the built-in reference that the arm is (`full`, `none`, `head_tail`, `random_drop`, `oracle` …); `None` for
    any other system.
    `of`: the arm whose size it has, or which it repeats; `None` in a known-bad arm: it must lose whatever it is held
    beside.
    `added`: true for a baseline that was added for comparison and is itself no system under test.
    """

    role: Role = "candidate"
    kind: str | None = None
    of: str | None = None
    added: bool = False

    @property
    def is_control(self) -> bool:
        """An arm that is no system under test."""
        return self.added or self.role in ("control", "known_bad", "noise_floor")

    def as_baseline(self) -> ArmRole:
        """The same arm as the one that the others are compared with."""
        return replace(self, role="baseline", added=self.is_control)

    def described(self) -> dict[str, str]:
        """The entry of the manifest; absent fields are left out."""
        return {
            key: value
            for key, value in (("role", self.role), ("kind", self.kind), ("of", self.of))
            if value is not None
        }


CANDIDATE = ArmRole()


def control_role(name: str, *, of: str | None = None, suffix: str = "") -> ArmRole:
    """The role of the control `name`. `of`: the arm whose size it has; `suffix`: of names in this cell."""
    kind, again, _ = name.partition("#")
    if again:
        return ArmRole("noise_floor", kind, kind + suffix)
    return ArmRole("known_bad" if kind in ("none", "random_drop") else "control", kind, of)


def described_cell(labels: Mapping[str, str], roles: Mapping[str, ArmRole], baseline: str | None) -> dict[str, Any]:
    """The manifest of one cell: arms that are compared with each other, in their order."""
    placed = with_baseline(roles, baseline)
    return {
        "labels": dict(labels),
        "systems": list(placed),
        "baseline": baseline,
        "controls": [name for name, own in placed.items() if own.is_control],
        "roles": {name: own.described() for name, own in placed.items()},
    }


def with_baseline(roles: Mapping[str, ArmRole], baseline: str | None) -> dict[str, ArmRole]:
    """The roles, with the baseline's own."""
    return {
        name: own.as_baseline() if name == baseline and own.role != "baseline" else own for name, own in roles.items()
    }


def declared(
    names: Sequence[str], given: Mapping[str, Role | ArmRole] | None, baseline: str | None
) -> tuple[dict[str, ArmRole], str | None]:
    """The roles of `names` and the baseline: the one named, else the one with that role, else the first of two or more.

    Raises `UnknownName` for a role of no system and `BadInput` for no role at all, or for two baselines.
    """
    for name, role in (given or {}).items():
        if name not in names:
            raise UnknownName("system", name, names)
        if not isinstance(role, ArmRole) and role not in get_args(Role):
            raise BadInput(f"the role of {name!r} is {role!r}; expected one of {', '.join(get_args(Role))}")
    roles = {name: _role(given[name]) if given and name in given else CANDIDATE for name in names}
    bases = [name for name, own in roles.items() if own.role == "baseline"]
    if len({*bases, *([baseline] if baseline else [])}) > 1:
        raise BadInput(
            "a run has one baseline; declared were "
            f"{', '.join(dict.fromkeys([*([baseline] if baseline else []), *bases]))}"
        )
    usual = next((name for name, own in roles.items() if own.role == "candidate"), names[0]) if len(names) > 1 else None
    return roles, baseline or next(iter(bases), usual)


def _role(given: Role | ArmRole) -> ArmRole:
    return given if isinstance(given, ArmRole) else ArmRole(given, added=given == "baseline")


def of_kind(roles: Mapping[str, ArmRole], *kinds: str) -> str | None:
    """The first arm of one of these kinds; an arm that repeats another, or has another's size, stands for no kind."""
    return next((name for name, own in roles.items() if own.kind in kinds and own.of is None), None)


def second_answer(design: Any, baseline: str) -> str | None:
    """The arm that is the second answer of `baseline` by a manifest's `design`; `None` without one."""
    arms = design.get("second_baseline") if isinstance(design, Mapping) else None
    arm = arms.get(baseline) if isinstance(arms, Mapping) else None
    return arm if isinstance(arm, str) else None


def roles_in(manifest: Mapping[str, Any], systems: Iterable[str] = ()) -> dict[str, ArmRole]:
    """The roles of all arms of a run, and of `systems` that its manifest does not list."""
    cells, told = manifest.get("cells"), manifest.get("roles")
    found = {str(name): _read(one, False) for name, one in told.items()} if isinstance(told, Mapping) else {}
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, Mapping):
            found |= roles_of_cell(cell)
    missing = [name for name in systems if name not in found]
    return found | (dict.fromkeys(missing, CANDIDATE) if found else roles_of_old_names(missing))


def roles_of_cell(cell: Mapping[str, Any]) -> dict[str, ArmRole]:
    """The roles of the arms of one cell."""
    names, controls = (
        [str(name) for name in listed] if isinstance(listed := cell.get(key), list) else []
        for key in ("systems", "controls")
    )
    told, baseline = cell.get("roles"), cell.get("baseline")
    if not isinstance(told, Mapping):
        return roles_of_old_names(names, baseline, controls)
    return {name: _read(told.get(name), name in controls) for name in names}


def _read(told: Any, listed: bool) -> ArmRole:
    if not isinstance(told, Mapping) or told.get("role") not in get_args(Role):
        return ArmRole("control") if listed else CANDIDATE
    kind, of = (value if isinstance(value := told.get(key), str) else None for key in ("kind", "of"))
    return ArmRole(told["role"], kind, of, told["role"] == "baseline" and listed)


# Runs from before roles were declared ---------------------------------------------------------------------------------

_REFERENCE = re.compile(r"(full|none|random_drop)(?:#2)?(?![\w#])")
_TRUNCATION = re.compile(r"head_tail(?![\w#])")
_AGAIN = re.compile(r"#2(?=(?:\[.*\])?(?: · .*)?$)")
_METHOD = re.compile(r"(window|mask_observations|dedupe|bm25|embedding|regenerative|anchored(?:_iterative)?)(?=[@:]|$)")
_WHOLE_NAME = (
    "oracle",
    "full_context",
    "random",
    "passthrough",
    "tail_only",
)  # kinds that only the whole name stood for
_BARE = re.compile(r"(tail_only|(?:head_tail|bm25)(?:@.*)?)(?: \[.*\])?")  # controls of a result that lists none


def roles_of_old_names(
    names: Collection[str], baseline: str | None = None, controls: Collection[str] | None = None
) -> dict[str, ArmRole]:
    """The roles in a run whose manifest declares none: guessed from names, as such runs were read when made."""
    return with_baseline({name: role_of_old_name(name, controls) for name in names}, baseline)


def role_of_old_name(name: str, controls: Collection[str] | None = None) -> ArmRole:
    """The role that a name had before roles were declared: the only rule that reads a name, for no run of today.

    `controls`: the arms that the manifest lists as controls; `None` where nothing is listed, as in a result without a
    manifest. `full#2` repeats `full`, and so for every name; `x@y` is control `x` in the size of `y`; `none` and
    `random_drop` must lose, if they are listed, or nothing is.
    """
    reference, size = _REFERENCE.match(name), name.partition("@")[2] or None
    method = _METHOD.match(name)
    kind = reference[1] if reference else method[1] if method else name if name in _WHOLE_NAME else None
    kind = "head_tail" if _TRUNCATION.match(name) else kind
    if (again := _AGAIN.search(name)) is not None:
        return ArmRole("noise_floor", kind, name[: again.start()] + name[again.end() :])
    if kind in ("none", "random_drop") and (not controls or name in controls):
        return ArmRole("known_bad", kind, size)
    listed = name in controls if controls is not None else _BARE.fullmatch(name) is not None
    return ArmRole("control" if listed or reference or size else "candidate", kind, size)
