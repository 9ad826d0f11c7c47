"""Secrets in texts: the names that announce one, the values that are one, and every way in which a text may write such
a value.

A value is searched for as it is, in capitals and in none, escaped as JSON, Python, URLs or XML would write it (letters
and digits too, and one after the other), in Base64 and in hexadecimal. Of what is too
short or too common to be searched for (`EMPTY`, `test`), only a whole value of a header or of a query counts.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

from context_bench.core.keys import Sieve, sieve
from context_bench.core.text import all_escaped, as_written, in_base64, longest_plain

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
    r"|connectionstring|masterkey|signingkey|encryptionkey|deploykey|sshkey|seedphrase|recoveryphrase|keymaterial"
)
#: Words of several without a gap between them.
_JOINED = re.compile(
    r"(?:app|api|client|server|admin|root|service|storage|account|shared|consumer|licen[sc]e|priv|sec|pass|auth|jwt|ssl|tls"
    r"|rsa|gpg|pgp|host|db|aes|hmac|openai|anthropic|claude|gemini|google|azure|mistral|groq|cohere|deepseek|openrouter|hf"
    r"|huggingface|github|gitlab|stripe)keys?|(?:db|my|pg|ssh|smtp|mail|ftp|ldap|root|admin|user|sql|mysql|redis|mongo|rpc)"
    r"(?:pass|pw|pwd)"
)
_SIGNED = ("rsa", "ssl", "tls", "ssh", "gpg", "pgp", "jwk", "ecdsa", "dkim")
#: What is secret only of these: `OAUTH_REFRESH`, `CERT_PRIVATE`, `WALLET_SEED`, `RECOVERY_CODES`.
_OF_WHAT = tuple(
    (re.compile(last), frozenset(of))
    for last, of in {
        "refresh|access|bearer|offline": ("oauth", "auth", "jwt"),
        "private|priv": ("cert", "certificate", "pem", *_SIGNED),
        "cert|pem|rsa|jwk|jwks|ecdsa": ("private", "priv"),
        "codes?": ("auth", "access", "recovery", "backup", "security", "verification", "otp", "mfa"),
        "seed": ("wallet", "totp", "otp", "mfa", "mnemonic"),
    }.items()
)
_LAST = re.compile(
    r"pat|pats|jwt|bearer|auth|pw|pwd|pass|passwd|cookie|cookies|cred|creds|sas|sig|signature|otp|authheader|totp|hotp"
    r"|psk|mnemonic|unseal|sk|webhook|salt|pepper"
)
_LAST_OF_FIELDS = re.compile(r"(?:^|_)(?:key|token|pat|jwt|bearer|pwd|cookie|auth_header|[a-z]+token)$")
_ANYWHERE = frozenset(("key", "token", "keys"))
#: After these words a name says where a secret is or something about it, not the secret itself.
_PLACES = re.compile(r"(?:file|path|dir|directory|folder|home|sock|socket|location|askpass|url|uri|urls|endpoint)$")
_ABOUT = re.compile(
    r"host|hostname|port|name|names|type|env|header|prefix|size|length|limit|limits|count|algorithm|alg|"
    r"format|ttl|expiry|expires|expiration|timeout|version|region|counter|budget|price|field|fields|style|"
    r"mode|kind|bindings|map|rate|server|backend|manager|provider|class|enabled|rotation"
)
_OF_KEYS = frozenset(("id", "ids", "per", "minute", "function", "func", "order", "space"))


#: Parameters of URLs whose values say nothing secret, and values that are versions, dates or figures.
_PLAIN_NAMES = re.compile(
    r"alt|api[-_]version|deployment|deployment[-_]id|engine|format|lang|language|locale|location|model|region|stream|version"
)
_A_NAME = re.compile(r"[\w.:$\[\]-]{1,100}")  # behind a URL in a program its own text may go on
_FIGURES = re.compile(r"[\d.,:+_-]+(?:-preview)?")


@lru_cache(maxsize=4096)
def names_a_secret(name: str) -> bool:
    """True if a variable, header, parameter, field or attribute of this name holds a secret, going by the name
    alone.
    """
    words = [word.lower() for word in _WORDS.findall(name[:200])]
    said = [word for word in words if not word.isdigit()]
    if not said or _PLACES.search(said[-1]) or (_ABOUT.fullmatch(said[-1]) and said[-2:] != ["auth", "header"]):
        return False
    if _ALWAYS.search("".join(said)):
        return said[-1] not in _OF_KEYS or "accesskey" not in "".join(said)
    if said[-1] in _OF_KEYS:
        return False
    if said[-1] == "tokens":
        return len(said) > 1 and said[-2] in ("api", "auth", "access", "bearer", "refresh", "bot")
    if any(word in _ANYWHERE or (word.endswith("token") and word != "token") for word in said):
        return True
    if said[-1] == "oauth" or any(_JOINED.fullmatch(word) for word in said[-2:]):
        return True
    if any(last.fullmatch(said[-1]) and not of.isdisjoint(said[:-1]) for last, of in _OF_WHAT):
        return True
    return any(_LAST.fullmatch(word) for word in said[-2:]) and said != ["pwd"]


_PLACE_WORD = re.compile(r"[_-]?(?:file|path|location)$", re.IGNORECASE)


def _is_what_a_place_holds(name: str, value: str) -> bool:
    """True if a variable like `KEYFILE` holds the key itself: lines, or what no file is called."""
    stem = _PLACE_WORD.sub("", name)
    if stem == name or not names_a_secret(stem):
        return False
    material = re.fullmatch(r"[A-Za-z0-9+=_-]{20,}", value) and re.search(r"[0-9]", value) and re.search("[A-Z]", value)
    return "\n" in value or value.startswith("{") or bool(material and re.search("[a-z]", value))


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


def is_ordinary(value: str) -> bool:
    """True if a value could be an ordinary word or figure."""
    return len(value) < 16 and (value.isalpha() or value.isdigit())


def secrets_in_variable(name: str, value: str) -> Iterator[str]:
    """The secrets in a variable's value: all of it if its name says so, else logins and parameters of URLs and fields
    named like one.
    """
    value = value.strip()
    if not value or value.lower() in _SWITCHES or len(value) > _LONGEST:
        return
    if not (names_a_secret(name) or "PRIVATE KEY-----" in value or _is_what_a_place_holds(name, value)):
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
    return _PLAIN_NAMES.fullmatch(name.lower()) is not None or (
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
        query = urlsplit(url).query if len(url) <= 4096 and not any(map(str.isspace, url)) else ""
    except ValueError:
        return []
    pairs = (
        (unquote(name), unquote(value))
        for name, _, value in (pair.partition("=") for pair in re.split("[&;]", query)[:_MOST_PARTS])
        if _A_NAME.fullmatch(unquote(name))
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

_PIECE = 8  # characters of a secret, cut off, that give it away
_LARGE, _SIEVED = 2**11, 2**20  # bytes of a text that is sieved, and from which on numpy is loaded for it
_LONGEST_CODED = 4096  # characters of a secret that is looked for in Base64 and the like
_SIGNS = (b"\\u", b"\\x", b"\\\\", b"%", b"&")  # with one of these everything begins that is escaped


def _folded(text: str) -> bytes:
    """The bytes of `text` with small letters for capitals: in them needles are looked for."""
    return text.encode("utf-8", "surrogatepass").lower()


class _Sought:
    """A secret and how it is found: for each way of writing it, bytes that occur then and cost little to look for.

    `needle`: in every way but those that write each letter otherwise: Base64 (`coded`), hexadecimal (`hexed`), nothing
    but escapes (`escaped`). What could be an ordinary word or figure is looked for in its own capitals alone.
    """

    __slots__ = ("__weakref__", "_any_case", "_patterns", "coded", "escaped", "hexed", "needle", "value", "word")

    def __init__(self, value: str) -> None:
        self.value = value
        self.word = re.fullmatch(r"[a-z_]{1,15}", value) is not None
        self._any_case = not is_ordinary(value) and value.lower() != value.upper()
        self.needle = longest_plain(value).lower().encode()
        short = len(value) <= _LONGEST_CODED
        self.coded = (
            {each.lower().encode(): form for each, form in in_base64(value)} if short and len(value) > 6 else {}
        )
        cases = dict.fromkeys((value, value.lower(), value.upper()) if self._any_case else (value,)) if short else ()
        self.hexed = value.encode("utf-8", "surrogatepass").hex().encode() if short else b""
        self.escaped = tuple(dict.fromkeys(each.encode() for case in cases for each in all_escaped(case)))
        self._patterns: dict[tuple[bool, bool], re.Pattern[str]] = {}

    def replaced(self, text: str, mask: str, data: bytes | None = None) -> str:
        """`text` without this secret. `data`: the text, perhaps a longer one, as needles are looked for in it."""
        data = _folded(text) if data is None else data
        if self.needle in data:
            text = self._pattern(all_escaped=False, any_case=False).sub(lambda _: mask, text)
            if self._any_case and self.needle in _folded(text):
                text = self._pattern(all_escaped=False, any_case=True).sub(lambda _: mask, text)
        for needle, pattern in self.coded.items():
            if needle in data:
                text = re.sub(pattern, lambda _: mask, text)
        if self.hexed and self.hexed in data:
            text = re.sub(f"(?i:{self.hexed.decode()})", lambda _: mask, text)
        if any(each in data for each in self.escaped):
            text = self._pattern(all_escaped=True, any_case=self._any_case).sub(lambda _: mask, text)
        return text

    def _pattern(self, *, all_escaped: bool, any_case: bool) -> re.Pattern[str]:
        pattern = self._patterns.get((all_escaped, any_case))
        if pattern is None:
            pattern = re.compile(as_written(self.value, all_escaped=all_escaped, any_case=any_case))
            self._patterns[all_escaped, any_case] = pattern
        return pattern


@lru_cache(maxsize=2048)
def _sought(value: str) -> _Sought:
    return _Sought(value)


def _in_capitals(value: str) -> tuple[str, ...]:
    """`value`, and how its capitals are written where they are other letters: those of `ß` are `SS`."""
    if value.isascii() or is_ordinary(value) or isinstance(value, Whole):
        return (value,)
    capitals = value.upper()
    return (value,) if len(capitals) == len(value) else (value, capitals)


class Masker:
    """Cuts `values` out of texts. What cannot be searched for everywhere is masked where it is a whole value of a
    header or query.

    `fields`: gives names of fields that are in use, asked for only where a secret occurs in one.
    """

    def __init__(self, values: Iterable[str], mask: str, fields: Callable[[], Collection[str]] = frozenset) -> None:
        self._fields = fields
        given = {form for value in values if value for form in _in_capitals(value)}
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
        found = dict.fromkeys(
            each for one in self._sought for each in (one.needle, one.hexed or one.needle, *one.coded)
        )
        self._few = tuple(each for each in found if len(each) < Sieve.SHORTEST)
        self._long = tuple(each for each in found if len(each) >= Sieve.SHORTEST)
        escaped = dict.fromkeys(each for one in self._sought for each in one.escaped)
        by_sign = [(sign, tuple(each for each in escaped if each.startswith(sign))) for sign in _SIGNS]
        self._escaped = [(sign, forms) for sign, forms in by_sign if forms]
        self._least = min((len(value) for value in self.values), default=0)

    def __bool__(self) -> bool:
        return bool(self.values or self.short)

    def may_be_in(self, data: bytes) -> bool:
        """True if `data`, JSON or text, could hold one. Quick, and wrong on the safe side only."""
        if len(data) < self._least and not self.short:
            return False
        return self._holds(data.lower()) or any(short in data for short in self._short_bytes)

    def _holds(self, data: bytes) -> bool:
        """True if `data`, in small letters, could hold one that is searched for everywhere."""
        for needle in self._few:  # a third faster than `any`, and asked of every blob
            if needle in data:
                return True
        sieved = len(data) >= (_LARGE if "numpy" in sys.modules else _SIEVED)
        if sieved and not self._sieve.may_be_in(data):
            return False
        for needle in self._long:
            if needle in data:
                return True
        return any(sign in data and any(each in data for each in forms) for sign, forms in self._escaped)

    def text(self, text: str) -> str:
        """`text` without any of them."""
        if len(text) >= self._least and self._holds(data := _folded(text)):
            for one in self._sought:
                text = one.replaced(text, self.mask, data)
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
        return self.trimmed(self.text(text))

    def trimmed(self, text: str) -> str:
        """A clean `text` without the piece of a secret with which it begins or ends."""
        for secret in self.values if len(text) >= _PIECE else ():
            sizes = range(len(secret) - 1, _PIECE - 1, -1)
            if text[:_PIECE] in secret and (size := next((n for n in sizes if text.startswith(secret[-n:])), 0)):
                text = self.mask + text[size:]
            if text[-_PIECE:] in secret and (size := next((n for n in sizes if text.endswith(secret[:n])), 0)):
                text = text[:-size] + self.mask
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
    def _sieve(self) -> Sieve:
        return sieve((*self._long, *(each for _, forms in self._escaped for each in forms)))

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
