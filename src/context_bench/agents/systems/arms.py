"""What an arm is: a name, variables for the agent's environment, and scripts that are run in the copy before the agent."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.secrets import names_a_secret

NAME = re.compile(r"[A-Za-z0-9][\w.@+#-]{0,63}")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
#: What may stand in a variable's value, in braces.
PLACES = ("tap", "key", "workspace", "home", "path")
_PLACE = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class ArmSpec:
    """`variables`: set for the agent and the scripts; a value may name `{tap}` (the tap's URL), `{key}` (the one-time key), `{workspace}`,
    `{home}`, `{path}`. `scripts`: run by `sh` in the copy, before the agent, without network.
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
                raise BadInput(f"arm {self.name!r}: {name} asks for {{{found[1]}}}, which this run does not have: it needs --upstream")
            return known

        return _PLACE.sub(put, value)

    @property
    def secrets(self) -> dict[str, str]:
        """The variables that hold a key, going by their names."""
        return {name: value for name, value in self.variables.items() if names_a_secret(name) and value and not _PLACE.search(value)}

    def told(self) -> dict[str, Any]:
        """The arm as JSON, for manifests and identities: scripts by the hash of what is in them, secrets by their names only."""
        hidden = self.secrets
        shown = {name: "(not shown)" if name in hidden else value for name, value in self.variables.items()}
        scripts = [{"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in self.scripts]
        return {"variables": shown, "scripts": scripts}


def parse_arm(text: str) -> ArmSpec:
    """`NAME=` followed by words as a shell splits them: `KEY=VALUE` sets a variable, anything else is a set-up script.

    `base=`, `hr='OPENAI_BASE_URL=http://localhost:18401/v1 HR_MODE=fast'`, `hook=./install-hook.sh`. Raises `BadInput`.
    """
    name, equals, rest = text.partition("=")
    if not NAME.fullmatch(name):
        raise BadInput(f"--arm {text!r}: expected NAME=, NAME='KEY=VALUE …' or NAME=SCRIPT, with a name of letters, digits and . _ @ + -")
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
        elif (path := Path(word).expanduser()).is_file():
            scripts.append(path.absolute())
        else:
            raise BadInput(f"--arm {name}: {word!r} is neither KEY=VALUE nor a script that is there (seen from {Path.cwd()})")
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
