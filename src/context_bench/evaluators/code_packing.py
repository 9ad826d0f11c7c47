"""Values as plain data and back: what passes between the two processes of `code_sides`, as JSON. Runs inside the
sandbox.
"""

# Imports are paid for in each run: no json, no typing.
from __future__ import annotations

import _json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from context_bench.evaluators.code_sides import Remote, Side, named  # inside, its text comes after this one

#: Classes of the standard library whose instances are values: by (module, name) how one is taken apart into what it is
#: made from.
_VALUES: dict[tuple[str, str], Callable[[Any], list[Any]]] = {
    ("fractions", "Fraction"): lambda value: [value.numerator, value.denominator],
    ("decimal", "Decimal"): lambda value: [str(value)],
    ("datetime", "date"): lambda value: [value.year, value.month, value.day],
    ("datetime", "time"): lambda value: [value.hour, value.minute, value.second, value.microsecond],
    ("datetime", "datetime"): lambda value: [
        *(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond),
    ],
    ("datetime", "timedelta"): lambda value: [value.days, value.seconds, value.microseconds],
    ("collections", "deque"): lambda value: [list(value), value.maxlen],
    ("collections", "Counter"): lambda value: [dict(value)],
    ("collections", "OrderedDict"): lambda value: [dict(value)],
    ("pathlib", "PosixPath"): lambda value: [str(value)],
    ("pathlib", "PurePosixPath"): lambda value: [str(value)],
    ("pathlib._local", "PosixPath"): lambda value: [str(value)],
    ("pathlib._local", "PurePosixPath"): lambda value: [str(value)],
    ("uuid", "UUID"): lambda value: [value.hex],
    ("builtins", "range"): lambda value: [value.start, value.stop, value.step],
    ("builtins", "complex"): lambda value: [value.real, value.imag],
}
_SINGLE = {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}
_BASES: tuple[Any, ...] = (tuple, list, dict, set, frozenset, str, int, float, bytes, bytearray)
_INFINITE = float("inf")


class Packing:
    """Values as lists that begin with what they are: what is changed in place is numbered, and named by its number
    where it comes again.
    """

    def __init__(self, side: Side, seen: Iterable[Any] = ()) -> None:
        self._side = side
        self.seen = list(seen)
        self._places = {id(each): number for number, each in enumerate(self.seen)}

    def pack(self, value: Any) -> Any:
        """The value as None, a bool, an int, a float, a text, or such a list."""
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if isinstance(value, int):
            small = int(value) if kind is int else int.__index__(value)
            return small if -(2**53) < small < 2**53 else ["i", hex(small)]
        if id(value) in self._places:
            return ["=", self._places[id(value)]]
        made = self._made(value, kind)
        return made if made is not None else self._other(value, kind)

    def _made(self, value: Any, kind: Any) -> Any:
        """An instance of a class that both sides have."""
        name = kind.__name__
        if kind.__module__ != "program" or self._side.makers.get(name) is not kind:
            return None
        base: Any = next((each for each in _BASES if isinstance(value, each)), None)
        if base is not None and not isinstance(value, list | dict | set | bytearray):
            return ["m", name, self.pack(_plain(base, value)), self.pack(dict(getattr(value, "__dict__", {})))]
        if base is None and hasattr(value, "__dict__"):
            self._number(value)
            return ["o", name, self.inner(value)]
        return None

    def _other(self, value: Any, kind: Any) -> Any:
        base: Any = next((each for each in _BASES if isinstance(value, each)), None)
        key = (kind.__module__, kind.__name__)
        if key in _VALUES:
            return ["v", *key, Packing(self._side).pack(_VALUES[key](value))]
        if base in (list, dict, set, bytearray):
            self._number(value)
            return self.inner(value)
        if base is not None:
            return self.inner(value)
        for word, one in _SINGLE.items():
            if value is one:
                return ["s", word]
        if kind is type({}.keys()):
            return ["k", *map(self.pack, value)]
        if isinstance(value, type):
            if issubclass(value, BaseException):
                return ["e", *self._side._kind(value)]
            name = value.__name__
            if value.__module__ == "builtins":
                return ["t", name]
            if self._side.makers.get(name) is value:
                return ["c", name]
        if isinstance(value, Remote) and (number := self._side.own(value)) is not None:
            return ["y", number]
        found = self._side.by_name(value)
        return ["r", self._side.number(value)] if found is None else ["n", *found]

    def _number(self, value: Any) -> None:
        self._places[id(value)] = len(self.seen)
        self.seen.append(value)

    def inner(self, value: Any) -> Any:
        """Items of a container."""
        if isinstance(value, list):
            return ["l", *map(self.pack, list.__iter__(value))]
        if isinstance(value, tuple):
            return ["u", *map(self.pack, tuple.__iter__(value))]
        if isinstance(value, dict):
            return ["d", *(self.pack(each) for pair in dict.items(value) for each in pair)]
        if isinstance(value, set):
            return ["a", *map(self.pack, set.__iter__(value))]
        if isinstance(value, frozenset):
            return ["f", *map(self.pack, frozenset.__iter__(value))]
        if isinstance(value, bytes | bytearray):
            return ["x" if isinstance(value, bytes) else "z", bytes(value).hex()]
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, float):
            return float.__float__(value)
        return ["d", *(self.pack(each) for pair in value.__dict__.items() for each in pair)]


def _plain(base: Any, value: Any) -> Any:
    return base(base.__iter__(value)) if hasattr(base, "__iter__") and base is not str else base(value)


class Unpacking:
    """The other way round. Nothing comes of it but plain values, `Remote`s, and instances of classes that this side has
    itself.
    """

    def __init__(self, side: Side, seen: list[Any] | None = None) -> None:
        self._side = side
        self.seen = [] if seen is None else seen

    def unpack(self, told: Any) -> Any:
        """The value that was packed; ValueError, TypeError, KeyError … for what nobody packs."""
        if not isinstance(told, list):
            return told
        return getattr(self, f"_{_KINDS[told[0]]}")(told[1:])

    def inner(self, told: Any) -> Any:
        """The answer of `Packing.inner` for a container that is known already."""
        kind, *rest = told
        if kind == "d":
            return {self.unpack(rest[at]): self.unpack(rest[at + 1]) for at in range(0, len(rest), 2)}
        return bytearray.fromhex(rest[0]) if kind == "z" else list(self._all(rest))

    def _all(self, told: list[Any]) -> Any:
        return map(self.unpack, told)

    def _new(self, made: Any) -> Any:
        self.seen.append(made)
        return made

    def _list(self, told: list[Any]) -> Any:
        made = self._new([])
        made.extend(self._all(told))
        return made

    def _dict(self, told: list[Any]) -> Any:
        made = self._new({})
        for at in range(0, len(told), 2):
            key = self.unpack(told[at])
            made[key] = self.unpack(told[at + 1])
        return made

    def _set(self, told: list[Any]) -> Any:
        made = self._new(set())
        made.update(self._all(told))
        return made

    def _bytearray(self, told: list[Any]) -> Any:
        return self._new(bytearray.fromhex(told[0]))

    def _tuple(self, told: list[Any]) -> Any:
        return tuple(self._all(told))

    def _frozenset(self, told: list[Any]) -> Any:
        return frozenset(self._all(told))

    def _bytes(self, told: list[Any]) -> Any:
        return bytes.fromhex(told[0])

    def _int(self, told: list[Any]) -> Any:
        return int(told[0], 16)

    def _keys(self, told: list[Any]) -> Any:
        return dict.fromkeys(self._all(told)).keys()

    def _single(self, told: list[Any]) -> Any:
        return _SINGLE[told[0]]

    def _again(self, told: list[Any]) -> Any:
        return self.seen[told[0]]

    def _value(self, told: list[Any]) -> Any:
        module, name, inner = told
        if (module, name) not in _VALUES:
            raise ValueError("no such value")
        return getattr(__import__(module), name)(*Unpacking(self._side).unpack(inner))

    def _based(self, told: list[Any]) -> Any:
        name, inner, state = told
        kind, value = self._side.makers[name], self.unpack(inner)
        base: Any = next(each for each in _BASES if issubclass(kind, each))
        made = base.__new__(kind, value)
        if new := self.unpack(state):
            made.__dict__.update(new)
        return made

    def _object(self, told: list[Any]) -> Any:
        kind = self._side.makers[told[0]]
        made = self._new(object.__new__(kind))
        _, *pairs = told[1]
        for at in range(0, len(pairs), 2):
            made.__dict__[str(self.unpack(pairs[at]))] = self.unpack(pairs[at + 1])
        return made

    def _class(self, told: list[Any]) -> Any:
        return self._side.makers[told[0]]

    def _type(self, told: list[Any]) -> Any:
        found = getattr(sys.modules["builtins"], told[0])
        if not isinstance(found, type):
            raise ValueError("no such type")
        return found

    def _error(self, told: list[Any]) -> Any:
        return self._side._class(told)

    def _named(self, told: list[Any]) -> Any:
        if not self._side.is_open():
            raise ValueError("the tests take nothing by name")
        __import__(told[0])
        return named(told[0], told[1])

    def _remote(self, told: list[Any]) -> Any:
        return self._side.remote(int(told[0]))

    def _held(self, told: list[Any]) -> Any:
        return self._side.held(told[0])


_KINDS = {
    **{
        "l": "list",
        "u": "tuple",
        "d": "dict",
        "a": "set",
        "f": "frozenset",
        "x": "bytes",
        "z": "bytearray",
        "i": "int",
        "k": "keys",
    },
    **{"s": "single", "=": "again", "v": "value", "m": "based", "o": "object", "c": "class", "t": "type", "e": "error"},
    **{"r": "remote", "y": "held", "n": "named"},
}


class _Context:
    """Settings of the reader of JSON, without importing json."""

    strict, object_hook, object_pairs_hook, parse_float, parse_int = False, None, None, float, int
    memo: dict[str, str] = {}  # noqa: RUF012

    @staticmethod
    def parse_constant(name: str) -> float:
        return float(name.replace("Infinity", "inf"))


_fast: Any = _json
_scan = _fast.make_scanner(_Context)
_quoted: Callable[[str], str] = _fast.encode_basestring_ascii


def json_of(value: Any) -> str:
    """JSON."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is str:
        return _quoted(value)
    if type(value) is int:
        return str(value)
    if type(value) is float:
        return (
            "NaN"
            if value != value
            else ("Infinity" if value > 0 else "-Infinity")
            if value in (_INFINITE, -_INFINITE)
            else repr(value)
        )
    return "[" + ",".join(map(json_of, value)) + "]"


def value_of(text: str) -> Any:
    """Value of a JSON text; ValueError for anything else."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("that is no JSON") from None
    if end != len(text):
        raise ValueError("that is more than JSON")
    return value
