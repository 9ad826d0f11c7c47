"""Any service that takes a session over HTTP and sends a shorter one: by its URL alone if it speaks our plain form,
else told in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from context_bench.compression.compressors.provider_api import post_json
from context_bench.compression.compressors.texts import Messages, result_of
from context_bench.compression.probes import rendered, tokens_of
from context_bench.core.addresses import base_url
from context_bench.core.errors import BadInput, BadReply, BadSpec
from context_bench.core.numbers import duration
from context_bench.core.protocols import Compressed
from context_bench.core.templates import at, fill, names_in, read_description
from context_bench.core.tokens import counter_for
from context_bench.llm.redact import bare_url, key_in, secrets_in
from context_bench.llm.sessions import leave

SCHEMES = {"http": "from_spec"}
TIMEOUT = 120.0
_PLAIN = {"messages": "{messages}", "budget": "{budget}", "query": "{query}"}
_PLACES = frozenset(("messages", "text", "budget", "query"))
_KEYS = frozenset(("url", "name", "timeout", "headers", "auth", "body", "messages", "text", "needs_query"))


class HTTPCompressor:
    """`http:URL`: gets `{"messages", "budget", "query"}` by POST, gives messages, `{"messages"}` or `{"text"}`.
    `http:FILE.toml` says more:

    ```toml
    name = "morph"
    url = "https://api.example.com/v1/compact"
    timeout = 60                                   # seconds
    [auth]                                         # the variable's name stands here, its value nowhere
    env = "COMPACT_KEY"
    header = "Authorization"                       # value = "Bearer {key}"
    [body]                                         # {messages} {text} {budget} {query}; what has no value is left out
    input = "{text}"
    target_tokens = "{budget}"
    ```

    `text = "output.0"` or `messages = "result.messages"` (beside `url`) is the path to the result in the reply.
    """

    def __init__(self, url: str, *, more: Mapping[str, Any] | None = None, key: tuple[str, str] | None = None) -> None:
        given = more or {}
        parts = urlsplit(url := base_url(url, "http: the URL of the service"))
        if parts.username or parts.password:
            raise BadInput("http: the URL holds a login; give it through [auth] in a file (docs/guide/compressors.md)")
        self._url, self._key = url, key
        self.name: str = given.get("name") or parts.hostname or ""
        self._timeout, self._headers = float(given.get("timeout", TIMEOUT)), dict(given.get("headers", {}))
        self._body: Any = given.get("body", _PLAIN)
        found = next(((str(given[kind]), kind) for kind in ("messages", "text") if kind in given), ("", "either"))
        self._path, self._reads = found
        self.needs_query = bool(given.get("needs_query", False))

    def __repr__(self) -> str:
        return f"HTTPCompressor({bare_url(self._url)!r})"

    def fingerprint(self) -> dict[str, Any]:
        """The address and the settings; no key."""
        return {
            "class": "HTTPCompressor",
            "url": bare_url(self._url),
            "body": self._body,
            "headers": sorted(self._headers),
        }

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The reply of the service."""
        counter = counter_for()
        values = {"messages": prefix, "text": rendered(prefix), "budget": budget, "query": query}
        headers = {**self._headers, **({self._key[0]: self._key[1]} if self._key else {})}
        document = await post_json(self, self._url, fill(self._body, values), headers=headers, timeout=self._timeout)
        found = at(document, self._path)
        if found is None or (self._reads == "text" and not isinstance(found, str)):
            raise BadReply(
                f"{self.name}: nothing to read at {self._path or 'the top'!r} of the reply of {bare_url(self._url)}"
            )
        made = result_of(found, self.name)
        return Compressed(made, tokens_of(prefix, counter), tokens_of(made, counter)), state

    async def aclose(self) -> None:
        """Let go of the connections."""
        await leave(self)


def from_spec(target: str) -> HTTPCompressor:
    """The text after `http:`: a URL, or a description's file."""
    if target.startswith(("http://", "https://")):
        return HTTPCompressor(target)
    given = read_description(Path(target))
    faults = [f"`{name}` is not known; expected {', '.join(sorted(_KEYS))}" for name in sorted(given.keys() - _KEYS)]
    for name, kind, what in (
        ("url", str, "text"),
        ("name", str, "text"),
        ("headers", dict, "a table"),
        ("auth", dict, "a table"),
        ("messages", str, "a path"),
        ("text", str, "a path"),
        ("needs_query", bool, "true or false"),
    ):
        if not isinstance(given.get(name, kind()), kind):
            faults.append(f"`{name}` is expected to be {what}, found {given[name]!r:.40}")
    timeout = given.get("timeout", TIMEOUT)
    if not duration(timeout):
        faults.append(f"`timeout` is expected to be seconds above 0, found {timeout!r}")
    if "body" in given and (odd := sorted(names_in(given["body"]) - _PLACES)):
        faults.append(
            f"`body`: {{{odd[0]}}} is not known; expected {', '.join(f'{{{name}}}' for name in sorted(_PLACES))}"
        )
    if not given.get("url"):
        faults.append("no `url`")
    if faults:
        raise BadSpec(target, faults)
    if loud := [name for name, value in given.get("headers", {}).items() if secrets_in({str(name): str(value)})]:
        raise BadSpec(
            target, [f"header {loud[0]!r} looks like a key; give it through [auth] and an environment variable"]
        )
    return HTTPCompressor(given["url"], more=given, key=_key(target, given.get("auth")))


def _key(target: str, auth: Mapping[str, Any] | None) -> tuple[str, str] | None:
    if auth is None:
        return None
    variable, header, value = auth.get("env"), auth.get("header", "Authorization"), auth.get("value", "Bearer {key}")
    if (
        not all(isinstance(one, str) for one in (variable, header, value))
        or "{key}" not in value
        or auth.keys() - {"env", "header", "value"}
    ):
        raise BadSpec(
            target,
            [
                "[auth] is expected to have env (the name of a variable), and may have header and value (with {key} "
                "in it)"
            ],
        )
    found = key_in(str(variable))
    if not found:
        raise BadInput(f"{target} takes its key from {variable}, which is not set")
    return header, value.replace("{key}", found.strip())
