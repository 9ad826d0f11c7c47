"""Keys out of texts that others wrote: error bodies quote the key they refuse, URLs carry credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from urllib.parse import urlsplit, urlunsplit

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
_SECRET_HEADER = re.compile(r"(?i)auth|key|token|secret|cookie|password|credential")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without `secrets` (nor eight characters in a row of one), and without anything else that looks like a key."""
    for secret in secrets:
        text = _mask(text, secret)
    text = _compiled(_CREDENTIALS).sub(rf"\1{MASK}@", text)
    text = _compiled(_PARAMETER).sub(rf"\1{MASK}", text)
    text = _compiled(_LOOKS_LIKE_A_KEY).sub(MASK, text)
    return _compiled(_WORD).sub(lambda word: MASK if "***" in word[0] else word[0], text) if "***" in text else text


def masked(text: str, secrets: Iterable[str]) -> str:
    """`text` without `secrets` of eight characters and more, and otherwise as it is: for answers, which guesses would falsify."""
    for secret in secrets:
        if len(secret) >= _WINDOW and secret in text:
            text = text.replace(secret, MASK)
    return text


def without_parameters(text: str) -> str:
    """`text` without the values of parameters of URLs that are named like a secret (`?api_key=…`)."""
    return _compiled(_PARAMETER).sub(rf"\1{MASK}", text)


def secrets_in(headers: Mapping[str, str]) -> list[str]:
    """The values of those headers that carry credentials, with and without their scheme (`Bearer …`)."""
    values = [value for name, value in headers.items() if _SECRET_HEADER.search(name)]
    return [part for value in values for part in (value, value.rpartition(" ")[2]) if len(part) >= 4]


def bare_url(url: str) -> str:
    """Origin and path of `url`: no credentials, no query, no fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no URL)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _mask(text: str, secret: str) -> str:
    if len(secret) < _WINDOW:
        return text.replace(secret, MASK) if secret else text
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
