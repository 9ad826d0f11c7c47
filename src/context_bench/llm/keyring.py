"""Secrets in the environment: variables whose name says so, and those that were named as one that holds a key. Keys typed as an option are
secrets of the process like them.

A name alone need not tell: `--api-key-env WORK`. What is kept of a run is searched for these values (`core/secrets`), whoever says them: a
provider that quotes what it was sent, a program that prints its environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from context_bench.core.secrets import is_searchable, names_a_secret, secrets_in_value, secrets_in_variable

_NAMED: set[str] = set()
_GIVEN: dict[str, set[str]] = {}  # by option: keys that were typed, and need be in no variable
_FILE = re.compile(r"(?:~|\.{1,2})?/(?:[\w.+@ -]+/)*[\w.+@ -]*\.(?:json|pem|key|pub|p12|pfx|crt|cer|txt|ya?ml|toml|ini|conf|cfg|env)")


def key_in(variable: str | None) -> str | None:
    """The key in the environment's `variable`, `None` if there is none."""
    if not variable:
        return None
    _NAMED.add(variable)
    return os.environ.get(variable)


def given(option: str, key: str) -> None:
    """Take note of a key that an option of the command line gave."""
    if key.strip():
        _GIVEN.setdefault(option, set()).add(key)


def environment_secrets(environment: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """The secrets of each variable that has any, and of each option that gave a key.

    Where a variable says where a file is, that is no secret.
    """
    chosen = os.environ if environment is None else environment
    found = {name: list(secrets_in_variable(name, value)) for name, value in chosen.items() if not _says_where(value)}
    for name in sorted(_NAMED):
        if value := os.environ.get(name):
            found[name] = [*found.get(name, []), *secrets_in_value(value)]
    for option, keys in sorted(_GIVEN.items()):
        found[option] = [secret for key in sorted(keys) for secret in secrets_in_value(key)]
    return {name: list(dict.fromkeys(values)) for name, values in found.items() if values}


def environment_values() -> list[str]:
    """All of them."""
    return [each for values in environment_secrets().values() for each in values]


def environment_notes(environment: Mapping[str, str] | None = None) -> list[str]:
    """What the search for the environment's secrets cannot do, or does to ordinary words: sentences that name variables, never values."""
    found = {
        name: values[0]
        for name, values in environment_secrets(environment).items()
        if names_a_secret(name) or name in _NAMED or name in _GIVEN
    }
    short = sorted(name for name, value in found.items() if not is_searchable(value))
    words = sorted(
        name for name, value in found.items() if is_searchable(value) and len(value) < 16 and (value.isalpha() or value.isdigit())
    )
    notes = []
    if short:
        notes.append(
            f"Secrets too short to search for: {', '.join(short)}. Such values, and placeholders, are masked only where they are a "
            "whole value of a header or of a query."
        )
    if words:
        notes.append(
            f"Secrets that could be ordinary words or figures: {', '.join(words)}. They are masked wherever these occur, in answers "
            "before they are scored as well."
        )
    return notes


def _says_where(value: str) -> bool:
    if not value.startswith(("/", "./", "../", "~/")) or len(value) > 4096 or "\n" in value:
        return False
    if _FILE.fullmatch(value):
        return True
    try:
        return Path(value).exists()
    except (OSError, ValueError):
        return False
