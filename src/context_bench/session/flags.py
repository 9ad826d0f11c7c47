"""Options declared once: the parser's parameter, its help, its completion and a field of a validated record come from
one line.

A class of options names each with its type and `flag(...)`; `own(...)` states in what a command's option differs from
the declared one.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

import typer

from context_bench.core.errors import BadInput, BadSpec
from context_bench.core.machine import file_text
from context_bench.session.offers import Misfit, Misfits, ValueReader, json_of, too_far


class Flag(NamedTuple):
    """One option. Fields that a declaration leaves out follow from the name and the type of its field.

    Attributes:
        help: The line of the help.
        default: The value where nothing is given.
        names: Names on the command line, such as "-n --max-examples".
        unit: The value's placeholder in the help.
        note: Text for `[default: …]` where a missing value stays open; empty: none.
        rare: Only `--help-all` shows it.
        pair: A switch that can be turned off, as `--x/--no-x`.
        parse: Type that the parser reads, where it is not the field's.
        least, most: Bounds that the parser checks.
        bounds: Bounds that the record checks: `ge`, `gt`, `le`, `lt`.
        secret: Left out of manifests.
        complete: Values that the shell offers.
    """

    help: str
    default: Any = None
    names: str = ""
    unit: str | None = None
    note: str | None = None
    rare: bool = False
    pair: bool = False
    parse: Any = None
    least: float | None = None
    most: float | None = None
    bounds: Mapping[str, float] | None = None
    secret: bool = False
    complete: Callable[[Any, list[str], str], list[str]] | None = None
    type: Any = None


class Own(dict[str, Any]):
    """In what one command's option differs from the declared one."""


_LIMITS = ("ge", "gt", "le", "lt")


def flag(help: str, default: Any = None, names: str = "", unit: str | None = None, **more: Any) -> Any:  # noqa: A002
    """Declare an option; bounds of its record are given as `ge`, `gt`, `le`, `lt`."""
    bounds: dict[str, float] = {name: more.pop(name) for name in _LIMITS if name in more}
    return Flag(help, default, names, unit, bounds=bounds, **more)


def own(help: str | None = None, **changes: Any) -> Any:  # noqa: A002
    """State a command's own help, default or other field of an option that is declared elsewhere; `of` names it where
    the field has another name.
    """
    bounds = {name: changes.pop(name) for name in _LIMITS if name in changes}
    return Own(changes | ({} if help is None else {"help": help}) | ({"bounds": bounds} if bounds else {}))


#: The default of an option that has to be given.
REQUIRED = object()

#: Every option of the program, by the name of its field.
DECLARED: dict[str, Flag] = {}


@dataclass_transform(kw_only_default=True)
class OptionSet:
    """Base of the classes of options. An instance has a value for each of them, of its type and within its bounds.

    `Misfits` names every value that does not fit.
    """

    flags: ClassVar[dict[str, Flag]] = {}
    #: In what inherited options differ here.
    changes: ClassVar[Mapping[str, Any]] = {}
    #: A TOML file may hold the values, so that those of flags that are not given stay open.
    in_file: ClassVar[bool] = False

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        types = inspect.get_annotations(cls, eval_str=True)
        cls.flags = dict(cls.flags)
        for name, type_ in types.items():
            value = vars(cls).get(name, REQUIRED)
            if isinstance(value, Flag | Own):
                delattr(cls, name)
                cls.flags[name] = _declared(name, value, cls.flags, type_)
            elif ClassVar not in (type_, get_origin(type_)):
                cls.flags[name] = Flag("", value, type=type_)
        for name, change in vars(cls).get("changes", {}).items():
            cls.flags[name] = _declared(name, change, cls.flags, None)

    def __init__(self, **values: Any) -> None:
        reader = ValueReader()
        for name, option in self.flags.items():
            if name in values:
                vars(self)[name] = reader.read(values[name], option.type, (name,), option.bounds)
            elif option.default is REQUIRED:
                reader.found.append(Misfit((name,), values, "this has to be given"))
            else:
                vars(self)[name] = copy(option.default)
        reader.found += [Misfit((name,), value, "") for name, value in values.items() if name not in self.flags]
        if reader.found:
            raise Misfits(reader.found)
        vars(self)["_given"] = set(values)
        self.settled()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.given.add(name)

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name, option in self.flags.items() if not option.secret)
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def given(self) -> set[str]:
        """Names of the values that were given, or set since."""
        found: set[str] = vars(self)["_given"]
        return found

    def settled(self) -> None:
        """Set what follows from other options."""

    def as_json(self, leave_out: Collection[str] = ()) -> dict[str, Any]:
        """The values for JSON, without those that are secret."""
        shown = {name for name, option in self.flags.items() if not option.secret}.difference(leave_out)
        return {name: json_of(getattr(self, name)) for name in self.flags if name in shown}

    def replaced(self, **values: Any) -> Self:
        """The same options with some values replaced, which are not checked."""
        made = copy(self)
        vars(made).update(values, _given=self.given | set(values))
        return made


def _declared(name: str, value: Flag | Own, inherited: Mapping[str, Flag], type_: Any) -> Flag:
    if isinstance(value, Flag):
        if name in DECLARED:
            raise TypeError(f"the option {name} is declared twice")
        return DECLARED.setdefault(name, value._replace(type=type_))
    stated = dict(value)
    of = stated.pop("of", name)
    base = inherited.get(name) or DECLARED[of]
    return base._replace(**stated, **({} if type_ is None else {"type": type_}))


# --- the parser's parameters ---

Command = TypeVar("Command", bound=Callable[..., Any])
Read = TypeVar("Read", bound=OptionSet)


def takes(kind: type[OptionSet], names: str = "", /, **changes: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Give a command its options: those of `names`, as `**given`, and its own parameters, each as `kind` or another
    class declares it.

    `changes` states in what they differ from that. A parameter whose type admits `None` stays `None` if it is not
    given.
    """

    def with_options(function: Command) -> Command:
        found = list(_parameters(function, kind, names.split(), changes))
        if any(one.name == "json" and one.annotation.__origin__ is bool for one in found):
            function, found = _with_output(function, found)
        function = _with_bounds(function, found)
        setattr(function, "__signature__", inspect.Signature(found, return_annotation=int))  # noqa: B010
        function.__annotations__ = {one.name: one.annotation for one in found} | {"return": int}
        return function

    return with_options


def _with_bounds(function: Any, found: list[inspect.Parameter]) -> Any:
    """A command whose numbers are ones that can be worked with."""
    names = {one.name: str(get_args(one.annotation)[1].default) for one in found if _is_number(one.annotation)}

    @wraps(function)
    def called(*args: Any, **given: Any) -> Any:
        for name, option in names.items():
            if (expected := too_far(name, given.get(name))) is not None:
                raise BadInput(f"{option} {given[name]!s:.40}: {expected}")
        return function(*args, **given)

    return called if names else function


def _is_number(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and get_args(annotation)[0] in (int, float, int | None, float | None)


def _with_output(function: Any, found: list[inspect.Parameter]) -> tuple[Any, list[inspect.Parameter]]:
    """A command that writes a table or JSON: `--output json`, as the reports have it, is the same as its `--json`."""

    @wraps(function)
    def called(*args: Any, output: str = "table", **given: Any) -> Any:
        if output not in ("table", "json"):
            raise BadInput(f"--output {output!r}: expected table or json")
        return function(*args, **{**given, "json": given["json"] or output == "json"})

    output = DECLARED["output"]._replace(help="table or json.", note=None, unit="TEXT", complete=None)
    return called, [*found, _parameter("output", output, str, str, in_file=False)]


def _parameters(
    function: Any, kind: type[OptionSet], names: list[str], changes: Mapping[str, Mapping[str, Any]]
) -> Iterator[inspect.Parameter]:
    for one in inspect.signature(function, eval_str=True).parameters.values():
        if one.kind is one.VAR_KEYWORD:
            for name in names:
                option = (kind.flags.get(name) or DECLARED[name])._replace(**changes.get(name, {}))
                yield _parameter(name, option, option.type, option.parse or _parsed(option.type), in_file=kind.in_file)
        elif one.annotation is typer.Context:
            yield one
        elif get_origin(one.annotation) is Annotated:
            yield _argument(one)
        else:
            option = (kind.flags.get(one.name) or DECLARED[one.name])._replace(**changes.get(one.name, {}))
            stays_open = NoneType in get_args(one.annotation) and "default" not in changes.get(one.name, {})
            yield _parameter(one.name, option, one.annotation, one.annotation, in_file=stays_open)


def _argument(one: inspect.Parameter) -> inspect.Parameter:
    """An argument offers the values of the option of its name, unless it has others."""
    info = get_args(one.annotation)[1]
    if info.autocompletion is None and one.name in DECLARED:
        info.autocompletion = DECLARED[one.name].complete
    return one


def _parameter(name: str, option: Flag, declared: Any, parsed: Any, *, in_file: bool) -> inspect.Parameter:
    names = option.names.split() or [f"--{name.replace('_', '-')}"]
    if option.pair:
        names = [f"{names[0]}/--no-{names[0][2:]}"]
    info = typer.Option(
        *names,
        help=f"{option.help} [default: {note}]" if in_file and (note := _note(option)) else option.help,
        metavar=option.unit,
        hidden=option.rare,
        min=option.least,
        max=option.most,
        autocompletion=option.complete,
    )
    default = None if in_file else option.default
    if in_file or NoneType in get_args(declared):
        parsed = parsed | None
    elif default is None:
        default = inspect.Parameter.empty  # it has to be given
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[parsed, info])


def _note(option: Flag) -> str:
    """The text of a default that stays open until the options are read."""
    if option.note is not None or isinstance(option.default, bool | None):
        return option.note or ""
    value = option.default
    return f"{value:g}" if isinstance(value, float) else ",".join(value) if isinstance(value, list) else str(value)


def _parsed(type_: Any) -> Any:
    """The type that the parser reads for a field: a number, a switch, a path, several texts, else one text."""
    if get_origin(type_) is Annotated:
        inner, *marks = get_args(type_)
        return str if any(getattr(mark, "split", False) for mark in marks) else _parsed(inner)
    if get_origin(type_) in (Union, UnionType):
        found = [each for each in get_args(type_) if each is not NoneType]
        return _parsed(found[0]) if len(found) == 1 else str
    if get_origin(type_) is list:
        return list[str]
    return type_ if isinstance(type_, type) and type_ is not Any else str


# --- values ---


def options_of(context: typer.Context, kind: type[Read], **more: Any) -> Read:
    """The options that a command line gave and, below them, its `--config` file."""
    values = {name: value for name, value in {**context.params, **more}.items() if name in kind.flags}
    given = {name: value for name, value in values.items() if value not in (None, [], ())}
    config = context.params.get("config")
    return read_options(given, Path(config) if config is not None else None, kind)


def read_options(given: dict[str, Any], config: Path | None, kind: type[Read]) -> Read:
    """Defaults, then the TOML file, then the flags really given. Every fault is reported at once, by the name it has
    there.
    """
    values = {**(_read_toml(config) if config else {}), **given}
    try:
        return kind(**values)
    except Misfits as misfits:
        in_file = config is not None and not any(each.place[0] in given for each in misfits.found)
        raise BadSpec(
            str(config) if in_file else "the command line",
            [_fault(each, kind, given, config) for each in misfits.found],
        ) from None


def _read_toml(path: Path) -> dict[str, Any]:
    from context_bench.core.templates import load_toml

    try:
        read = load_toml(file_text(path))
    except OSError as error:
        raise BadInput(f"--config {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"--config {path} is not valid TOML: {error}") from None
    return {key.replace("-", "_"): value for key, value in read.items()}


def _fault(one: Misfit, kind: type[OptionSet], given: Mapping[str, Any], config: Path | None) -> str:
    where = ".".join(str(part) for part in one.place)
    if not one.expected:
        near = difflib.get_close_matches(where, kind.flags, n=1)
        return (
            f"{where}: no such option; {f'did you mean {near[0]}? ' if near else ''}Known: "
            f"{', '.join(sorted(kind.flags))}"
        )
    from context_bench.core.addresses import shown
    from context_bench.llm.redact import redact  # what stands where a URL was meant may be a URL with a login

    address = isinstance(one.value, str) and "://" in one.value  # whatever its query holds
    value = repr(shown(one.value) if address else one.value)[:400]
    if config is not None and isinstance(one.value, dict) and where in kind.flags and where not in given:
        inside = ", ".join(map(str, list(one.value)[:10]))
        return redact(
            f"[{where}] is a table, and {where} is not: options stand at the top of the file, without one ({inside})"
        )
    if config is not None and one.place[0] not in given:
        return redact(f"{where} = {value}: {one.expected}")
    if len(one.place) == 2 and isinstance(one.place[1], int):  # one of several, each with a flag of its own
        where = str(one.place[0])
    names = kind.flags[where].names.split() if where in kind.flags else []
    return redact(f"{names[0] if names else '--' + where.replace('_', '-')} {value}: {one.expected}")
