"""Keys out of texts that others wrote: error bodies quote the key they refuse, URLs carry credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from urllib.parse import urlsplit, urlunsplit

from context_bench.core.secrets import Masker, is_searchable, names_a_secret, secrets_in_url, secrets_in_value
from context_bench.llm.keyring import environment_values

MASK = "[key]"
_WINDOW = 8  # so many characters of a key in a row are taken for the key
# Error bodies are anybody's and may be large: every repeat that could be tried from each place of a text has a bound. Compiled when
# first used: most runs see no error, and these take longer to compile than all others together.
_LOOKS_LIKE_A_KEY = (
    r"(?i)\b(?:bearer|basic)\s+[a-z0-9+/=._~-]{16,}"
    r"|\b(?:sk|pk|rk|xai|gsk|hf|ghp|pplx|nvapi)[-_][a-z0-9_-]{8,}"
    r"|\bAIza[\w-]{20,}"
    r"|\beyJ[\w-]{10,400}\.[\w-]{5,}(?:\.[\w-]*)?"
)
_WORD = r"[^\s\"'`<>,;:]+"
_CREDENTIALS = r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://)[^/\s@\"'<>]{0,1024}@"
_PARAMETER = r"(?i)([?&;](?:[\w-]{0,60}(?:key|token|secret|sig|signature|password|auth)[\w-]{0,60})=)[^&;\s\"'<>)]+"
_SECRET_HEADER = re.compile(r"(?i)auth|cookie|(?:^|-)key(?:-|$)|apikey")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without `secrets` (nor eight characters in a row of one), those of the environment, and what else looks like a key."""
    known = [secret for secret in secrets if secret]
    text = Masker([*known, *environment_values()], MASK).cut(text)
    for secret in known:
        if is_searchable(secret):
            text = _mask(text, secret)
    text = _compiled(_CREDENTIALS).sub(rf"\1{MASK}@", text)
    text = _compiled(_PARAMETER).sub(rf"\1{MASK}", text)
    text = _compiled(_LOOKS_LIKE_A_KEY).sub(MASK, text)
    return _compiled(_WORD).sub(lambda word: MASK if "***" in word[0] else word[0], text) if "***" in text else text


def without_parameters(text: str) -> str:
    """`text` without the values of parameters of URLs that are named like a secret (`?api_key=…`)."""
    return _compiled(_PARAMETER).sub(rf"\1{MASK}", text)


def secrets_in(headers: Mapping[str, str], url: str = "") -> list[str]:
    """What a request must not have quoted: the values of those headers that carry credentials, with and without their scheme
    (`Bearer …`), and all that stands in the login and query of `url`.
    """
    values = [value for name, value in headers.items() if names_a_secret(name) or _SECRET_HEADER.search(name)]
    parts = [part for value in values for part in secrets_in_value(value) if len(part) >= 4]
    return list(dict.fromkeys([*parts, *secrets_in_url(url)]))


def bare_url(url: str) -> str:
    """Origin and path of `url`: no credentials, no query, no fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no URL)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _mask(text: str, secret: str) -> str:
    if len(secret) < _WINDOW:
        return text.replace(secret, MASK)
    windows = {secret[i : i + _WINDOW] for i in range(len(secret) - _WINDOW + 1)}
    kept: list[str] = []
    at = 0
    while at < len(text):
        if text[at : at + _WINDOW] not in windows:
            kept.append(text[at])
            at += 1
            continue
        end = at + _WINDOW
        while end < len(text) and text[end - _WINDOW + 1 : end + 1] in windows:
            end += 1
        kept.append(MASK)
        at = end
    return "".join(kept)
