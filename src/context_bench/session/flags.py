"""Options declared once: the parser's parameter, its help, its completion and a field of a validated record come from
one line.

A class of options names each with its type and `flag(...)`; `own(...)` states in what a command's option differs from
the declared one. pydantic is not loaded before values are read, so that help stays quick.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

import typer

from context_bench.core.addresses import EXPECTED, fault_of
from context_bench.core.errors import BadInput, BadSpec
from context_bench.core.numbers import MOST_PORT, number, whole


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


class ValueCheck(NamedTuple):
    """Changes to a value before or after its type is checked. `split`: one text that holds several values."""

    before: Callable[[Any], Any] | None = None
    after: Callable[[Any], Any] | None = None
    split: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        schema = handler(source)
        if self.before is not None:
            schema = core_schema.no_info_before_validator_function(self.before, schema)
        if self.after is not None:
            schema = core_schema.no_info_after_validator_function(self.after, schema)
        return schema


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) or value is None else [value]


def _comma(value: Any) -> Any:
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def _url(value: str) -> str:
    if (fault := fault_of(value.strip())) is not None:
        raise ValueError(f"{fault}; expected {EXPECTED}")
    return value.strip()


def _url_or_name(value: str) -> str:
    return _url(value) if value.startswith(("http:", "https:")) or "://" in value else value


def _port_or_url(value: str) -> str:
    if value.isdigit() and not 0 <= (-1 if (found := whole(value)) is None else found) <= MOST_PORT:
        raise ValueError(
            f"no port: expected a number from 0 (any free one) to {MOST_PORT}, or the URL of a running tap"
        )
    return _url_or_name(value)


def number_or_all(value: Any) -> Any:
    """A whole number above 0, or `all`; `ValueError` for anything else."""
    if value is None or value == "all":
        return value
    if not str(value).isdecimal() or int(value) < 1:
        raise ValueError("expected a whole number above 0, or all")
    return int(value)


def _numbers(value: Any) -> Any:
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    given = [str(item).strip() for item in items if str(item).strip()]
    if any(not item.isdecimal() or int(item) < 1 for item in given):
        raise ValueError("expected whole numbers above 0, such as 1,5,10")
    return sorted({int(item) for item in given})


#: A base URL, and what may be one or the name of something else.
Url = Annotated[str, ValueCheck(after=_url)]
UrlOrName = Annotated[str, ValueCheck(after=_url_or_name)]
PortOrUrl = Annotated[str, ValueCheck(after=_port_or_url)]
#: Values of a flag that can be repeated, and of one that separates them by commas.
Urls = Annotated[list[Url], ValueCheck(before=_listed)]
Many = Annotated[list[str], ValueCheck(before=_listed)]
Comma = Annotated[list[str], ValueCheck(before=_comma, split=True)]
Numbers = Annotated[list[int], ValueCheck(before=_numbers, split=True)]


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


#: Every option of the program, by the name of its field.
DECLARED: dict[str, Flag] = {}


@dataclass_transform(kw_only_default=True)
class OptionSet:
    """Base of the classes of options. An instance is a validated pydantic record; until one is made, no pydantic is
    loaded.
    """

    flags: ClassVar[dict[str, Flag]] = {}
    #: In what inherited options differ here.
    changes: ClassVar[Mapping[str, Any]] = {}
    #: A TOML file may hold the values, so that those of flags that are not given stay open.
    in_file: ClassVar[bool] = False

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        stated = {name: value for name, value in vars(cls).items() if isinstance(value, Flag | Own)}
        types = inspect.get_annotations(cls, eval_str=True) if stated else {}
        cls.flags = dict(cls.flags)
        for name, value in stated.items():
            delattr(cls, name)
            cls.flags[name] = _declared(name, value, cls.flags, types.get(name))
        for name, change in vars(cls).get("changes", {}).items():
            cls.flags[name] = _declared(name, change, cls.flags, None)

    def __new__(cls, **_values: Any) -> Self:
        made: Self = object.__new__(_record(cast("Any", cls)))
        return made

    def settled(self) -> None:
        """Set what follows from other options."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        record = _record(cast("Any", cls))
        return handler(source) if record is cls else handler.generate_schema(record)

    if TYPE_CHECKING:

        @property
        def model_fields_set(self) -> set[str]:
            """Names of the values that were given."""

        def model_dump(self, *, mode: str = "python", exclude: set[str] | None = None) -> dict[str, Any]:
            """The values as plain data."""

        def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
            """The same options with some values replaced."""


def _declared(name: str, value: Flag | Own, inherited: Mapping[str, Flag], type_: Any) -> Flag:
    if isinstance(value, Flag):
        if name in DECLARED:
            raise TypeError(f"the option {name} is declared twice")
        return DECLARED.setdefault(name, value._replace(type=type_))
    stated = dict(value)
    of = stated.pop("of", name)
    base = inherited.get(name) or DECLARED[of]
    return base._replace(**stated, **({} if type_ is None else {"type": type_}))


@cache
def _record(kind: Any) -> Any:
    """The pydantic model of a class of options."""
    from pydantic import BaseModel, ConfigDict, Field, create_model

    if issubclass(kind, BaseModel):
        return kind

    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")

        def model_post_init(self, _: Any, /) -> None:
            self.settled()  # type: ignore[attr-defined]

    fields: dict[str, Any] = {
        name: (one.type, Field(one.default, **(one.bounds or {}), exclude=one.secret or None, repr=not one.secret))
        for name, one in kind.flags.items()
    }
    return create_model(kind.__name__, __base__=(kind, Strict), __module__=kind.__module__, **fields)


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
        setattr(function, "__signature__", inspect.Signature(found, return_annotation=int))  # noqa: B010
        function.__annotations__ = {one.name: one.annotation for one in found} | {"return": int}
        return function

    return with_options


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
    from pydantic import ValidationError

    values = {**(_read_toml(config) if config else {}), **given}
    try:
        return kind(**values)
    except ValidationError as error:
        found = error.errors()
        in_file = config is not None and not any(item["loc"][:1] and item["loc"][0] in given for item in found)
        raise BadSpec(
            str(config) if in_file else "the command line", [_fault(item, kind, given, config) for item in found]
        ) from None


def _read_toml(path: Path) -> dict[str, Any]:
    from context_bench.core.templates import load_toml

    try:
        read = load_toml(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"--config {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"--config {path} is not valid TOML: {error}") from None
    return {key.replace("-", "_"): value for key, value in read.items()}


def _fault(item: Any, kind: type[OptionSet], given: Mapping[str, Any], config: Path | None) -> str:
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(where, kind.flags, n=1)
        return (
            f"{where}: no such option; {f'did you mean {near[0]}? ' if near else ''}Known: "
            f"{', '.join(sorted(kind.flags))}"
        )
    from context_bench.llm.redact import redact  # what stands where a URL was meant may be a URL with a login

    value = repr(item["input"])[:400]
    if config is not None and isinstance(item["input"], dict) and where in kind.flags and where not in given:
        inside = ", ".join(map(str, list(item["input"])[:10]))
        return redact(
            f"[{where}] is a table, and {where} is not: options stand at the top of the file, without one ({inside})"
        )
    if config is not None and item["loc"] and item["loc"][0] not in given:
        return redact(f"{where} = {value}: {_expected(item, kind)}")
    if len(item["loc"]) == 2 and isinstance(item["loc"][1], int):  # one of several, each with a flag of its own
        where = str(item["loc"][0])
    names = kind.flags[where].names.split() if where in kind.flags else []
    return redact(f"{names[0] if names else '--' + where.replace('_', '-')} {value}: {_expected(item, kind)}")


_SORTS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "dict": "a table",
}
_BOUNDS = {"ge": "at least {:g}", "gt": "above {:g}", "le": "at most {:g}", "lt": "below {:g}"}


def _expected(item: Any, kind: type[OptionSet]) -> str:
    """The values that fit, in our words where it is about a sort of value or its bounds."""
    if item["type"] == "literal_error":
        return f"expected {item['ctx']['expected'].replace(chr(39), '')}"
    if item["type"] == "missing":
        return "this has to be given"
    option = kind.flags.get(str(item["loc"][0])) if len(item["loc"]) == 1 else None
    limits = option.bounds or {} if option is not None else {}
    bounds = [words.format(limits[name]) for name, words in _BOUNDS.items() if name in limits]
    sort = next((word for name, word in _SORTS.items() if item["type"].startswith(f"{name}_")), None)
    if sort is None and bounds:
        sort = _SORTS["int" if "int" in str(option and option.type) else "float"]
    if sort is None:
        return str(item["msg"].removeprefix("Value error, "))
    expected = f"expected {' '.join([sort, ' and '.join(bounds)]).strip()}"
    given = number(item["input"])
    if limits.get("lt") == 1 and given is not None and 1 <= given <= 100:
        return f"{expected}, a share of 1: {given:g} points of 100 are {given / 100:g}"
    return expected
