"""Two processes that call each other and exchange nothing but plain data: tests on one side, a model's program on the
other.

Runs inside the sandbox (see `code_program`). What a program returns comes to the tests as JSON, from which *their* side
makes numbers, texts, lists …; so an object whose `==` or `-` says what is wanted never meets a test. Objects of the
program's own classes stay where they are: the tests get a `Remote`, which can be called and has attributes and items,
but is equal to no plain value and calculates with none.
"""

# Imports are paid for in each run: no json, enum, abc, typing.
from __future__ import annotations

import _io
import _operator
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from context_bench.evaluators.code_packing import (
        Packing,
        Unpacking,
        json_of,
        value_of,
    )  # inside, its text comes before this one

_UNARY = {name: getattr(_operator, name) for name in ("neg", "pos", "abs", "invert", "index")}
_UNARY |= {
    "len": len,
    "iter": iter,
    "next": next,
    "str": str,
    "repr": repr,
    "int": int,
    "float": float,
    "bool": bool,
    "reversed": reversed,
}
_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift", "lt", "le", "gt", "ge"),
)
_SAME_NAME = {"and": "and_", "or": "or_"}
_ASKED = {
    name: getattr(_operator, _SAME_NAME.get(name, name)) for name in (*_BINARY, "eq", "getitem", "setitem", "delitem")
}


#: Characters of what a program prints that go with one answer.
_MOST_SAID = 2**20


_FUNCTION, _BUILTIN, _WRAPPER = type(lambda: 0), type(len), type((1).__add__)
_METHOD = type(type("_", (), {"of": lambda self: 0})().of)
#: What a program may call, beside objects and classes of the tests' own.
_CALLED = (_FUNCTION, _BUILTIN, _WRAPPER, _METHOD)
#: What a program finds itself, where it is the standard library's.
_NAMED = (_FUNCTION, _BUILTIN, type(str.upper), type(int.__add__), type(dict.__dict__["fromkeys"]))
#: Of these the program may read what is named; nothing else but items can be had of them.
_READABLE: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (type(_ for _ in ()), ("send", "throw", "close")),
    (BaseException, ("args", "errno", "strerror", "filename", "value", "code", "msg", "reason")),
    (
        _io._IOBase,
        (
            "read",
            "readline",
            "readlines",
            "write",
            "writelines",
            "flush",
            "close",
            "seek",
            "tell",
            "truncate",
            "getvalue",
            "closed",
        ),
    ),
)
#: Instances of classes of these modules hold nothing but data; all that has no underscore may be read.
_DATA = (
    "random",
    "re",
    "queue",
    "_queue",
    "uuid",
    "array",
    "unittest.mock",
    "datetime",
    "decimal",
    "fractions",
    "collections",
)


def _for_program(what: str, held: Any, args: list[Any]) -> bool:
    """True if a program may do this with an object of the tests. What it gets by it is handed over under the same
    rules.

    Anything can be asked for its items. A function is called and not looked into, an object of a class of the tests'
    own shows what has no underscore. Of a generator, a frame or a module there is nothing to be had that leads into the
    tests' process.
    """
    if what in ("iter", "next", "len"):
        return True
    kind = type(held)
    own = getattr(held if isinstance(held, type) else kind, "__module__", None) in ("program", "unittest.mock")
    if what == "call":
        return own or isinstance(held, _CALLED) or kind.__module__ in ("functools", "operator")
    if what != "get" or type(args[0]) is not str or args[0].startswith("_"):
        return False
    if isinstance(held, type):
        return any(args[0] in vars(each) for each in held.__mro__ if each.__module__ == "program")
    if isinstance(held, type(sys)):
        return False
    if own or kind.__module__ in _DATA or any(isinstance(held, each) and args[0] in names for each, names in _READABLE):
        return True
    return args[0] in getattr(held, "__dict__", ())


def named(module: str, name: str) -> Any:
    """Attribute of a loaded module under a name with dots; the module itself under none."""
    thing: Any = sys.modules.get(module)
    for part in name.split(".") if name else ():
        thing = getattr(thing, part, None)
    return thing


class OtherSideClosed(BaseException):
    """The other side has ended."""


class NotPlain(TypeError):
    """An object of the program's own was to be compared or calculated with by plain data."""


class Remote:
    """An object of the other side."""

    def __init__(self, side: Side, number: int) -> None:
        object.__setattr__(self, "_at", (side, number))

    def __call__(self, *args: Any, **named: Any) -> Any:
        return _ask(self, "call", list(args), named)

    def __getattr__(self, name: str) -> Any:
        return _ask(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "set", name, value)

    def __delattr__(self, name: str) -> None:
        _ask(self, "del", name)

    def __eq__(self, other: object) -> Any:
        return _ask(self, "eq", other) is True if isinstance(other, Remote) else NotImplemented

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_at")[1])

    def __iter__(self) -> Any:
        return _ask(self, "iter")

    def __contains__(self, wanted: Any) -> bool:
        return any(each is wanted or each == wanted for each in self)

    def __instancecheck__(self, one: Any) -> bool:
        return isinstance(one, Remote) and _ask(self, "instance", one) is True

    def __getitem__(self, key: Any) -> Any:
        return _ask(self, "getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _ask(self, "setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        _ask(self, "delitem", key)

    def __enter__(self) -> Any:
        return self.__getattr__("__enter__")()

    def __exit__(self, *error: Any) -> Any:
        return self.__getattr__("__exit__")(None, None, None)


def _ask(remote: Remote, what: str, *args: Any) -> Any:
    side, number = object.__getattribute__(remote, "_at")
    return side.ask(what, number, *args)


def _unary(name: str) -> Callable[[Remote], Any]:
    return lambda self: _ask(self, name)


def _binary(name: str) -> Callable[[Remote, Any], Any]:
    def calculated(self: Remote, other: Any) -> Any:
        if isinstance(other, Remote):
            return _ask(self, name, other)
        raise NotPlain(
            "an object of the program's own class meets plain data; expected a plain value"
        )  # which it would be told of

    return calculated


for _name in _UNARY:
    setattr(Remote, f"__{_name}__", _unary(_name))
for _name in _BINARY:
    setattr(Remote, f"__{_name}__", _binary(_name))
    if _name not in ("lt", "le", "gt", "ge"):
        setattr(Remote, f"__r{_name}__", _binary(_name))


class Side:
    """One end of the two pipes. `makers`: classes by name that both sides have, whose instances travel by value.

    `open_to_all`: whether the other side may do everything with what it was given (it is the tests), or only what
    `_for_program` lists (it is the program).
    """

    def __init__(self, read: int, write: int, makers: dict[str, Any], open_to_all: bool) -> None:
        self._read, self._write, self.makers, self._open = read, write, makers, open_to_all
        self._held: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._remotes: dict[int, Any] = {}
        self.said: list[str] = []
        self._room = _MOST_SAID

    # --- talking

    def ask(self, what: str, number: int, *args: Any) -> Any:
        """Have the other side do something with an object of its own; what it raises is raised here."""
        taken = Packing(self)
        self.send(["do", what, number, taken.pack(list(args))])
        while (told := self.receive())[0] == "do":
            self._serve(told)
        return self._taken(told, taken.seen)

    def serve(self) -> None:
        """Do what the other side asks for until it ends."""
        try:
            while True:
                self._serve(self.receive())
        except OtherSideClosed:
            return

    def answer(self, made: Callable[[], Any]) -> None:
        """Tell what `made` gives or raises."""
        try:
            self.send(["gave", Packing(self).pack(made()), None, self._spoken()])
        except OtherSideClosed:
            raise
        except BaseException as error:
            self.send(self._raised(error))

    def first(self) -> Any:
        """The value that the other side gives by `answer`."""
        while (told := self.receive())[0] == "do":
            self._serve(told)
        return self._taken(told, [])

    def _taken(self, told: list[Any], given: list[Any]) -> Any:
        if told[-1]:
            sys.stdout.write(str(told[-1]))
        if told[0] == "raised":
            raise self._error(*told[1:4])
        if told[2] is not None:
            self._changed(told[2], given)
        return Unpacking(self).unpack(told[1])

    def _changed(self, told: Any, given: list[Any]) -> None:
        """Repeat here the changes that the other side made in place to what was given."""
        unpacking = Unpacking(self, list(given))
        for held, new in zip(given, [unpacking.inner(packed) for packed in told], strict=True):
            if isinstance(held, list | bytearray):
                held[:] = new
            elif isinstance(held, dict | set):
                held.clear()
                held.update(new)
            else:
                held.__dict__.clear()
                held.__dict__.update(new)

    def _serve(self, told: list[Any]) -> None:
        _, what, number, packed = told
        try:
            unpacking = Unpacking(self)
            held, args = self._held[number], unpacking.unpack(packed)
            before = Packing(self).pack(args)
            given = self._done(what, held, args)
            changed = None
            if unpacking.seen and Packing(self).pack(args) != before:
                packing = Packing(self, unpacking.seen)
                changed = [packing.inner(each) for each in unpacking.seen]
            self.send(["gave", Packing(self).pack(given), changed, self._spoken()])
        except OtherSideClosed:
            raise
        except BaseException as error:
            self.send(self._raised(error))

    def _done(self, what: str, held: Any, args: list[Any]) -> Any:
        if not self._open and not _for_program(what, held, args):
            raise TypeError("that is not for the program")
        if what == "call":
            return held(*args[0], **args[1])
        if what == "get":
            return getattr(held, args[0])
        if what == "set":
            return setattr(held, args[0], args[1])
        if what == "del":
            return delattr(held, args[0])
        if what == "instance":
            return isinstance(args[0], held)
        return _UNARY[what](held) if what in _UNARY else _ASKED[what](held, *args)

    def _spoken(self) -> str:
        said = "".join(self.said)
        self.said.clear()
        self._room = _MOST_SAID
        return said

    def write(self, text: str) -> int:
        """As of a text file: what the program prints goes with its next answer."""
        if self._room > 0:
            self.said.append(str(text)[: self._room])
            self._room -= len(text)
        return len(text)

    def flush(self) -> None:
        """As of a file."""

    # --- errors

    def _raised(self, error: BaseException) -> list[Any]:
        kind = type(error)
        try:
            args = Packing(self).pack(list(error.args))
            text = str(error)
        except BaseException:
            args, text = ["l"], ""
        return ["raised", self._kind(kind), args, text[:1000], self._spoken()]

    def _kind(self, kind: type) -> list[Any]:
        """The next class that both sides have, and (where it is not that one itself) its number here and its name."""
        base = next(
            each.__name__
            for each in kind.__mro__
            if each.__module__ == "builtins" or self.makers.get(each.__name__) is each
        )
        return [base, None, ""] if base == kind.__name__ else [base, self.number(kind), kind.__name__]

    def _class(self, told: list[Any]) -> Any:
        base, number, name = told
        known = self.makers.get(base) or getattr(sys.modules["builtins"], base)
        if not (isinstance(known, type) and issubclass(known, BaseException)):
            raise TypeError(f"{base} is no error")
        if number is None:
            return known
        if number not in self._remotes:
            self._remotes[number] = type(str(name), (known,), {})
        return self._remotes[number]

    def _error(self, told: list[Any], args: Any, text: str) -> BaseException:
        kind = self._class(told)
        try:
            return kind(*Unpacking(self).unpack(args))  # type: ignore[no-any-return]
        except Exception:
            return Exception(f"{told[2] or told[0]}: {text}")

    # --- objects

    def is_open(self) -> bool:
        """The program's side, not the tests'."""
        return self._open

    def by_name(self, thing: Any) -> list[str] | None:
        """The module of the standard library and the name there by which a program finds `thing` itself; never where
        the tests would.
        """
        if self._open:
            return None
        if type(thing) is type(sys):
            module, name = thing.__name__, ""
        elif isinstance(thing, type) or type(thing) in _NAMED:
            owner = getattr(thing, "__objclass__", thing)
            module, name = str(getattr(owner, "__module__", "")), str(thing.__qualname__)
        else:
            return None
        return (
            [module, name]
            if module.partition(".")[0] in sys.stdlib_module_names and named(module, name) is thing
            else None
        )

    def number(self, thing: Any) -> int:
        """Under which the other side knows an object of this one; it is kept."""
        if id(thing) not in self._numbers:
            self._numbers[id(thing)] = len(self._held)
            self._held.append(thing)
        return self._numbers[id(thing)]

    def share(self, space: dict[str, Any], names: list[str]) -> None:
        """Classes whose instances travel by value from now on: those of `names` that are classes in `space`."""
        self.makers = {name: space[name] for name in names if isinstance(space.get(name), type)}

    def own(self, thing: Remote) -> int | None:
        """The number of an object of the other side; None if it is of neither."""
        side, number = object.__getattribute__(thing, "_at")
        return number if side is self else None

    def held(self, number: int) -> Any:
        """The object of this side with that number."""
        return self._held[number]

    def remote(self, number: int) -> Any:
        """The object of the other side with that number, always the same."""
        if number not in self._remotes:
            self._remotes[number] = Remote(self, number)
        return self._remotes[number]

    # --- frames

    def send(self, told: list[Any]) -> None:
        """One message."""
        data = memoryview(json_of(told).encode("ascii"))
        data = memoryview(len(data).to_bytes(8, "big") + data)
        try:
            while data:
                data = data[os.write(self._write, data) :]
        except OSError:
            raise OtherSideClosed("the other side has ended") from None

    def receive(self) -> list[Any]:
        """One message; `OtherSideClosed` at the end, ValueError for what is none."""
        size = int.from_bytes(self._exactly(8), "big")
        told = value_of(self._exactly(size).decode("ascii"))
        if not isinstance(told, list) or not told:
            raise ValueError("that is no message")
        return told

    def _exactly(self, count: int) -> bytes:
        pieces, missing = [], count
        while missing:
            try:
                piece = os.read(self._read, min(missing, 2**20))
            except OSError:
                piece = b""
            if not piece:
                raise OtherSideClosed("the program left before its end")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)
