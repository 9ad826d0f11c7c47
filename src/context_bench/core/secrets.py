"""Secrets in texts: the names that announce one, the values that are one, and every way in which a text may write such
a value.

A value is searched for as it is, escaped as JSON, Python, URLs or XML would write it, and in Base64. Of what is too
short or too common to be searched for (`EMPTY`, `test`), only a whole value of a header or of a query counts.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

SHORTEST = 6
_LONGEST = 2**18  # characters of a value that is taken apart
_LONG_LINE = 16  # a line of a key in several lines is searched for by itself from this length on
_MOST_PARTS = 500

_PLACEHOLDERS = re.compile(
    r"x+|[*.…-]+|empty|none|null|nil|undefined|unset|test|testing|tests|dummy|fake|example|sample|default|placeholder|"
    r"unused|anything|whatever|local|changeme|change-me|change_me|replaceme|replace-me|replace_me|todo|"
    r"notneeded|not-needed|not_needed|not-used|no-key|nokey|no-key-needed|no-key-required|not-required|"
    r"sk-no-key-required|your-key|your-key-here|your-api-key|your_api_key|your-api-key-here|"
    r"your_api_key_here|password|passwd|secret|token|apikey|api-key|api_key|ollama|lm-studio"
)
_SWITCHES = frozenset(("0", "1", "true", "false", "yes", "no", "on", "off"))

# Names

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALWAYS = re.compile(
    r"passw|passphrase|passcode|secret|credential|apikey|privatekey|accesskey|authkey|authorization|authtoken"
    r"|connectionstring|masterkey|signingkey|encryptionkey|deploykey|sshkey"
)
_LAST = re.compile(
    r"pat|pats|jwt|bearer|auth|pw|pwd|pass|passwd|cookie|cookies|cred|creds|sas|sig|signature|otp|authheader"
)
_LAST_OF_FIELDS = re.compile(r"(?:^|_)(?:key|token|pat|jwt|bearer|pwd|cookie|auth_header|[a-z]+token)$")
_ANYWHERE = frozenset(("key", "token", "keys"))
#: After these words a name says where a secret is or something about it, not the secret itself.
_PLACES = (
    "file",
    "path",
    "dir",
    "directory",
    "folder",
    "home",
    "sock",
    "socket",
    "location",
    "askpass",
    "url",
    "uri",
    "urls",
    "endpoint",
)
_ABOUT = re.compile(
    r"host|hostname|port|name|names|type|env|header|prefix|size|length|limit|limits|count|algorithm|alg|"
    r"format|ttl|expiry|expires|expiration|timeout|version|region|counter|budget|price|field|fields|style|"
    r"mode|kind|bindings|map|rate|server|backend|manager|provider|class|enabled|rotation"
)
_OF_KEYS = frozenset(("id", "ids", "per", "minute", "function", "func", "order", "space"))


#: Parameters of URLs whose values say nothing secret, and values that are versions, dates or figures.
_PLAIN_NAMES = frozenset(
    {
        "alt",
        "api-version",
        "api_version",
        "deployment",
        "deployment-id",
        "deployment_id",
        "engine",
        "format",
        "lang",
        "language",
        "locale",
        "location",
        "model",
        "region",
        "stream",
        "version",
    }
)
_FIGURES = re.compile(r"[\d.,:+_-]+(?:-preview)?")


@lru_cache(maxsize=4096)
def names_a_secret(name: str) -> bool:
    """True if a variable, header, parameter, field or attribute of this name holds a secret, going by the name
    alone.
    """
    words = [word.lower() for word in _WORDS.findall(name[:200])]
    said = [word for word in words if not word.isdigit()]
    if not said or said[-1].endswith(_PLACES) or (_ABOUT.fullmatch(said[-1]) and said[-2:] != ["auth", "header"]):
        return False
    if _ALWAYS.search("".join(said)):
        return said[-1] not in _OF_KEYS or "accesskey" not in "".join(said)
    if said[-1] in _OF_KEYS:
        return False
    if said[-1] == "tokens":
        return len(said) > 1 and said[-2] in ("api", "auth", "access", "bearer", "refresh", "bot")
    if any(word in _ANYWHERE or (word.endswith("token") and word != "token") for word in said):
        return True
    return any(_LAST.fullmatch(word) for word in said[-2:]) and said != ["pwd"]


@lru_cache(maxsize=4096)
def surely_names_a_secret(name: str) -> bool:
    """True if a name can mean nothing else: `api_key` and `password`, but not `sort_key`."""
    return (
        names_a_secret(name)
        and _ALWAYS.search("".join(word.lower() for word in _WORDS.findall(name[:200]))) is not None
    )


@lru_cache(maxsize=4096)
def field_names_a_secret(name: str) -> bool:
    """True if a field or attribute of a program holds a secret. Fewer do than variables of these names: `token_saving`,
    `keys`, `pass`.
    """
    said = [word.lower() for word in _WORDS.findall(name[:200]) if not word.isdigit()]
    return names_a_secret(name) and (surely_names_a_secret(name) or _LAST_OF_FIELDS.search("_".join(said)) is not None)


# Values


class Whole(str):
    """A value that is masked only where it is the whole value of a header or of a query: an answer may hold it by
    right.
    """

    __slots__ = ()


def is_searchable(value: str) -> bool:
    """True if a value is long and rare enough to be searched for in any text."""
    return len(value) >= SHORTEST and not isinstance(value, Whole) and not _PLACEHOLDERS.fullmatch(value.lower())


def secrets_in_variable(name: str, value: str) -> Iterator[str]:
    """The secrets in a variable's value: all of it if its name says so, else logins and parameters of URLs and fields
    named like one.
    """
    value = value.strip()
    if not value or value.lower() in _SWITCHES or len(value) > _LONGEST:
        return
    if not names_a_secret(name):
        yield from _named_inside(value)
        return
    yield from secrets_in_value(value)
    if name.lower().rstrip("0123456789_").endswith("s"):
        yield from (
            part.strip() for part in re.split(r"[,;\s]", value)[:_MOST_PARTS] if len(part.strip()) >= 2 * SHORTEST
        )


def secrets_in_value(value: str) -> Iterator[str]:
    """A value that is secret and what in it is secret by itself: lines, fields of JSON, what stands after a scheme or
    in Base64.
    """
    value = value.strip()
    yield value
    scheme, _, rest = value.partition(" ")
    if scheme.lower() in ("bearer", "basic", "token", "apikey") and rest:
        yield rest.strip()
    if scheme.lower() == "basic":
        yield from _of_login(_decoded(rest))
    plain = value.replace("\\n", "\n") if "-----BEGIN" in value else value
    if "\n" in plain:
        yield from (
            line
            for each in plain.splitlines()[:_MOST_PARTS]
            if len(line := each.strip()) >= _LONG_LINE and "-----" not in line
        )
    yield from _named_inside(value)
    if len(value) >= 24 and (inner := _decoded(value)).lstrip().startswith(("{", "-----BEGIN")):
        yield from secrets_in_value(inner)


def _named_inside(value: str) -> Iterator[str]:
    """Secrets in a value by the names that stand in it: JSON, `name=value;…`, a URL."""
    if value[:1] in "{[":
        try:
            yield from _of_document(json.loads(value), 0)
        except (ValueError, RecursionError):
            return
        return
    if "://" in value:
        yield from secrets_in_url(value, every=False)
    elif "=" in value:
        for name, found in re.findall(r"(?:^|[;&\s])([A-Za-z][\w ]{0,60}?)\s?=\s?([^;&\s]+)", value[:4096]):
            if names_a_secret(name):
                yield found.strip("'\"")


def _of_document(document: Any, depth: int) -> Iterator[str]:
    if depth > 6:
        return
    if isinstance(document, Mapping):
        for name, item in list(document.items())[:_MOST_PARTS]:
            if isinstance(item, str) and names_a_secret(str(name)):
                yield from secrets_in_value(item)
            else:
                yield from _of_document(item, depth + 1)
    elif isinstance(document, list):
        for item in document[:_MOST_PARTS]:
            yield from _of_document(item, depth + 1)


def secrets_in_url(url: str, *, every: bool = True) -> Iterator[str]:
    """The login of a URL and the values of its query, as they stand there and decoded.

    `every`: all of the query, as for a URL that requests are sent to; else only parameters that are named like a
    secret. Versions, dates, models, regions and plain words are `Whole`, unless the name says that they are secret.
    """
    if len(url) > 4096 or any(each.isspace() for each in url):
        return
    try:
        parts = urlsplit(url)
        login = parts.netloc.rpartition("@")[0]
    except ValueError:
        return
    if login:
        yield from _of_login(login)
    for pair in re.split("[&;]", parts.query)[:_MOST_PARTS]:
        name, _, value = pair.partition("=")
        if value and names_a_secret(unquote(name)):
            yield from dict.fromkeys((value, unquote(value), unquote_plus(value)))
        elif value and every:
            for form in dict.fromkeys((value, unquote(value), unquote_plus(value))):
                yield Whole(form) if _is_plain(unquote(name), form) else form


def _is_plain(name: str, value: str) -> bool:
    """True if a parameter that does not name a secret holds what many texts hold: a version, a date, a model, a
    word.
    """
    return name.lower() in _PLAIN_NAMES or (
        len(value) < _LONG_LINE and (value.isalpha() or _FIGURES.fullmatch(value) is not None)
    )


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"'<>`]+")


def urls_in(text: str) -> list[str]:
    """The URL that a setting is, or the URLs (100 at most) that a longer text holds, such as a command or a program."""
    if _URL.match(text) and "\n" not in text:
        return [text]
    return [found[0] for found in islice(_URL.finditer(text), 100)]


def plain_parameters(url: str) -> list[str]:
    """The names of a URL's query parameters that do not name a secret, though their values are searched for."""
    try:
        query = urlsplit(url).query if len(url) <= 4096 else ""
    except ValueError:
        return []
    pairs = (
        (unquote(name), unquote(value))
        for name, _, value in (pair.partition("=") for pair in re.split("[&;]", query)[:_MOST_PARTS])
    )
    return [
        name
        for name, value in pairs
        if is_searchable(value) and not names_a_secret(name) and not _is_plain(name, value)
    ]


def _of_login(login: str) -> Iterator[str]:
    """The password; the name too where there is no password or where it is as long as a key."""
    name, _, password = login.partition(":")
    if password:
        yield from dict.fromkeys((password, unquote(password)))
    if name and (not password or len(name) >= _LONG_LINE):
        yield from dict.fromkeys((name, unquote(name)))


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text.strip().encode("ascii"), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return ""


# Search

_SAFE = re.compile(r"[A-Za-z0-9]+")  # what no coding but Base64 writes otherwise
_MOST_ENCODED = 16_384
_ENTITIES = {'"': "quot", "&": "amp", "<": "lt", ">": "gt", "'": "apos"}
_PIECE = 8  # characters of a secret, cut off, that give it away
_BLANK = r"(?:\s|\\{1,8}[nrt]|(?i:%(?:25){0,4}(?:20|0[ad9]))|\+|&\#(?i:x[ad9]|x20|10|13|9|32);){1,64}"


class _Sought:
    """A secret and how it is found: `needle` occurs in every way of writing it but Base64, so a text without it needs
    no more.
    """

    __slots__ = ("__weakref__", "_pattern", "coded", "needle", "needle_bytes", "value", "word")

    def __init__(self, value: str) -> None:
        self.value = value
        self.needle = max(_SAFE.findall(value), key=len, default="")
        self.needle_bytes = self.needle.encode()
        self.coded = tuple(_in_base64(value)) if 7 <= len(value) <= 4096 else ()
        self.word = re.fullmatch(r"[a-z_]{1,15}", value) is not None
        self._pattern: re.Pattern[str] | None = None

    def replaced(self, text: str, mask: str) -> str:
        """`text` without this secret."""
        if self.needle in text:
            if self._pattern is None:
                self._pattern = re.compile(_written(self.value))
            text = self._pattern.sub(lambda _: mask, text)
        for needle, _, pattern in self.coded:
            if needle in text:
                text = re.sub(pattern, lambda _: mask, text)
        return text


@lru_cache(maxsize=2048)
def _sought(value: str) -> _Sought:
    return _Sought(value)


def _written(value: str) -> str:
    """The expression for every way of writing `value`."""
    if len(value) > _MOST_ENCODED:
        forms = (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
        return "|".join(re.escape(form) for form in dict.fromkeys(forms))
    pieces = []
    for piece in re.findall(r"[A-Za-z0-9]+|\s+|.", value, re.DOTALL):
        pieces.append(_BLANK if piece.isspace() else re.escape(piece) if _SAFE.match(piece) else _letter(piece))
    return "".join(pieces)


@lru_cache(maxsize=512)
def _letter(letter: str) -> str:
    """A character that codings write otherwise."""
    units = letter.encode("utf-16-be", "surrogatepass")
    escaped = "".join(rf"\\{{1,8}}u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    octets = letter.encode("utf-8", "surrogatepass")
    percent, hexed = (
        "".join(f"%(?:25){{0,4}}{each:02x}" for each in octets),
        "".join(rf"\\{{1,8}}x{each:02x}" for each in octets),
    )
    point = ord(letter)
    ways = [escaped, percent, hexed, rf"\\{{1,8}}x{point:02x}", rf"&(?:amp;){{0,4}}\#(?:{point}|x0{{0,4}}{point:x});"]
    if letter in _ENTITIES:
        ways.append(f"&(?:amp;){{0,4}}{_ENTITIES[letter]};")
    plain = r"\\{1,16}" if letter == "\\" else rf"\\{{0,8}}{re.escape(letter)}"
    return f"(?:(?i:{'|'.join(ways)})|{plain})"  # the longest first: a value may end with it


def _in_base64(value: str) -> Iterator[tuple[str, bytes, str]]:
    """The part that is the same in Base64 whatever stands around `value`, for each of the three places where it may
    begin.
    """
    data = value.encode("utf-8", "surrogatepass")
    for shift, first in enumerate((0, 2, 3)):
        coded = base64.b64encode(b"\0" * shift + data).decode()[first : (shift + len(data)) * 8 // 6]
        needle = max(re.split("[+/]", coded), key=len)
        if len(needle) >= 8:
            yield needle, needle.encode(), re.sub(r"[+/]", lambda found: {"+": "[+-]", "/": "[/_]"}[found[0]], coded)


class Masker:
    """Cuts `values` out of texts. What cannot be searched for everywhere is masked where it is a whole value of a
    header or query.

    `fields`: gives names of fields that are in use, asked for only where a secret occurs in one.
    """

    def __init__(self, values: Iterable[str], mask: str, fields: Callable[[], Collection[str]] = frozenset) -> None:
        self._fields = fields
        given = {value for value in values if value}
        self.mask = mask
        self.values = tuple(
            sorted((value for value in given if is_searchable(value)), key=lambda value: (-len(value), value))
        )
        self.short = tuple(
            sorted(
                value
                for value in given
                if not is_searchable(value) and 2 <= len(value) <= 64 and value not in _SWITCHES
            )
        )
        self._sought = tuple(map(_sought, self.values))
        coded = (each[1] for one in self._sought for each in one.coded)
        self._bytes = tuple(dict.fromkeys((*(one.needle_bytes for one in self._sought), *coded)))
        self._needles = tuple(needle.decode() for needle in self._bytes)
        self._least = min((len(value) for value in self.values), default=0)

    def __bool__(self) -> bool:
        return bool(self.values or self.short)

    def may_be_in(self, data: bytes) -> bool:
        """True if `data`, JSON or text, could hold one. Quick, and wrong on the safe side only."""
        if len(data) < self._least and not self.short:
            return False
        for needle in self._bytes:  # a third faster than `any`, and asked of every blob
            if needle in data:
                return True
        return any(short in data for short in self._short_bytes)

    def text(self, text: str) -> str:
        """`text` without any of them."""
        if len(text) >= self._least:
            for needle in self._needles:
                if needle in text:
                    for one in self._sought:
                        text = one.replaced(text, self.mask)
                    break
        return (
            self._whole.sub(rf"\1{self.mask}", text)
            if self.short and any(short in text for short in self.short)
            else text
        )

    def key(self, name: str) -> str:
        """The name of a field, cleaned too; but a secret that is an ordinary word does not cost a field in use its
        name.
        """
        for one in self._sought:
            if not (one.word and one.value in name and name in self._fields()):
                name = one.replaced(name, self.mask)
        return name

    def cut(self, text: str) -> str:
        """`text`, cleaned, and without the piece of a secret that is left where a longer text was cut off."""
        text = self.text(text)
        for secret in self.values:
            if text[:_PIECE] in secret:
                text = next(
                    (
                        self.mask + text[size:]
                        for size in range(len(secret) - 1, _PIECE - 1, -1)
                        if text.startswith(secret[-size:])
                    ),
                    text,
                )
            if text[-_PIECE:] in secret:
                text = next(
                    (
                        text[:-size] + self.mask
                        for size in range(len(secret) - 1, _PIECE - 1, -1)
                        if text.endswith(secret[:size])
                    ),
                    text,
                )
        return text

    def value(self, value: Any, name: str = "", unchanged: Callable[[Mapping[str, Any]], bool] | None = None) -> Any:
        """A JSON value with every text cleaned. `name`: of the field that holds it; `unchanged` says which mappings
        stay as they are.
        """
        if isinstance(value, str):
            return self.mask if value in self.short and names_a_secret(name) else self.text(value)
        if isinstance(value, Mapping):
            if unchanged is not None and unchanged(value):
                return value
            return {self.key(str(key)): self.value(item, str(key), unchanged) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(item, name, unchanged) for item in value]
        return value

    @cached_property
    def _short_bytes(self) -> tuple[bytes, ...]:
        return tuple(json.dumps(short)[1:-1].encode() for short in self.short)

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        values = "|".join(re.escape(short) for short in sorted(self.short, key=len, reverse=True))
        header = r"(?i:authorization|api[-_]?key|[-_]key|token|secret|passw[a-z]{1,8}|cookie)[\"'\\]{0,8}\s{0,3}[:=]\s{0,3}[\"'\\]{0,8}"  # noqa: E501
        return re.compile(
            rf"((?:[?&;][\w.~-]{{1,60}}=)|{header}(?:(?i:bearer|basic|token) )?)(?:{values})(?![\w%.~+/-])"
        )
