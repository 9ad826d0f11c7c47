r"""A dataset as a file of data: what its TOML may say, checked whole, all faults listed at once.

`[fields]` has a language of its own, in which a raw row of a dataset becomes a value of an example:

| form | gives |
|---|---|
| `"a.b.0"` | the value at that path; `None` where there is none |
| `"{question}\n\n{choices:letters}"` | a template; `:letters` renders a list as `A) one  B) two` (at most ten) |
| `["a", "b"]` | a list of values |
| `{ const = 3 }` | 3 |
| `{ pick = "options", at = "label", base = 1 }` | that item of a list or text; counted from `base` (0); a letter is a position too |
| `{ column = "text", of = "paragraphs" }` | the `text` of each item of a list |
| `{ all = ["answer", "aliases"] }` | one list of all values, lists run together; nulls, empty texts and repeats left out |
| `{ before = "\nQuery:", of = "input" }` | trimmed text before the last such mark; all of it if there is none |
| `{ after = "####", of = "answer" }` | trimmed text after the last such mark; `None` if there is none |
| `{ before_first = …, of = … }`, `{ after_first = …, of = … }` | the same, cut at the first such mark |
| `{ join = "\n", each = ["titles", "texts"], sep = ": " }` | parallel lists, item beside item |

In a join, `sep` stands inside a pair and `join` between pairs; an inner list is run together first. Wherever a form
needs a value (`pick`, `at`, `of`, `each` …) any form may stand. There are no expressions and no conditions.
"""  # noqa: E501

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from context_bench.core.errors import BadInput, BadSpec
from context_bench.core.machine import file_text
from context_bench.core.records import Example
from context_bench.core.templates import load_toml
from context_bench.datasets.prepare import FUNCTIONS, LETTERS, Row, RowSource, is_list, lettered, text_of

Form = Callable[[Row], Any]
Text = Annotated[str, Field(min_length=1)]


class Sample(BaseModel):
    """Invented rows in the dataset's real shape, and the example that must come first of them: the file tests itself.

    `row` or `rows`; `files` stands for further files of the repository that `prepare` reads: a text, or a list of rows.
    """

    model_config = ConfigDict(extra="forbid")
    row: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    files: dict[str, str | list[dict[str, Any]]] = {}
    example: dict[str, Any]

    def all_rows(self) -> list[dict[str, Any]]:
        return self.rows or [self.row]


@dataclass(frozen=True, slots=True)
class _SampleSource:
    """The sample's files as the `RowSource` of a `prepare` function."""

    files: Mapping[str, str | list[dict[str, Any]]]
    config: str | None
    split: str
    seed: int = 0

    def paths(self, pattern: str) -> list[str]:
        paths = sorted(path for path in self.files if fnmatch.fnmatchcase(path, pattern))
        if not paths:
            raise ValueError(f"sample.files has no {pattern!r}")
        return paths

    def text(self, path: str) -> str:
        content = self.files[self.paths(path)[0]]
        if not isinstance(content, str):
            raise ValueError(f"sample.files: {path!r} is read as text")
        return content

    def rows(self, pattern: str) -> Iterator[Row]:
        for path in self.paths(pattern):
            content = self.files[path]
            if isinstance(content, str):
                raise ValueError(f"sample.files: {path!r} is read as rows")
            yield from content


class DatasetSpec(BaseModel):
    """One dataset.

    `source` is `hf:owner/name` or `files:PATTERN`. `files` is the pattern (or patterns, in order) of the split's data
    files in the repository, in which `{config}` and `{split}` stand for the values asked for; `FILE.zip!PATTERN` means
    files inside an archive. `configs` lists what may follow a colon in the dataset's name; as a table, with what then
    stands for `{config}`. `revision` is a commit, or a ref such as `refs/convert/parquet`; where it is missing the
    newest is taken and written into the manifest. `prepare` names the function of `datasets/prepare.py` that raw rows
    go through before `fields`. `has_context = false`: the text to read is the question itself, so there is nothing to
    compress.
    """

    model_config = ConfigDict(extra="forbid")
    about: Text
    source: Text
    files: Text | list[Text] = "{config}/{split}-*.parquet"
    config: str | None = None
    configs: list[str] | dict[str, str] = []
    split: Text = "test"
    revision: str | None = None
    licence: Text
    citation: str | None = None
    size: int | None = None
    has_context: bool = True
    evaluators: list[Text]
    prepare: str | None = None
    fields: dict[str, Any]
    sample: Sample

    _forms: dict[str, Form] = PrivateAttr(default_factory=dict)

    @field_validator("source")
    @classmethod
    def _check_source(cls, value: str) -> str:
        if re.fullmatch(r"hf:[\w.-]+/[\w.-]+", value) or re.fullmatch(r"files:.+", value):
            return value
        raise ValueError(f"{value!r} is neither hf:owner/name nor files:PATTERN")

    @field_validator("revision")
    @classmethod
    def _check_revision(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[0-9a-f]{40}|refs/[\w/.-]+", value):
            raise ValueError(f"{value!r} is not a whole commit (40 hex digits) or a ref (refs/…)")
        return value

    @field_validator("prepare")
    @classmethod
    def _check_prepare(cls, value: str | None) -> str | None:
        if value is not None and value not in FUNCTIONS:
            raise ValueError(
                f"{value!r} is no function of datasets/prepare.py; there are: {', '.join(sorted(FUNCTIONS)) or 'none'}"
            )
        return value

    @field_validator("fields")
    @classmethod
    def _fields_compile(cls, value: dict[str, Any]) -> dict[str, Any]:
        faults = [] if "context" in value else ["context is missing; every example needs a text"]
        for name, definition in value.items():
            try:
                compile_field(definition, f"fields.{name}")
            except FieldFault as fault:
                faults.append(str(fault))
        if faults:
            raise ValueError("\n".join(faults))
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> DatasetSpec:
        self._forms = {name: compile_field(definition, name) for name, definition in self.fields.items()}
        faults = []
        if self.configs and self.config not in self.configs:
            faults.append(f"config: the default {self.config!r} is not among configs")
        if fault := self._sample_fault():
            faults.append(fault)
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _sample_fault(self) -> str | None:
        source = _SampleSource(self.sample.files, self.config_value(self.config), self.split)
        try:
            example = next(self.examples(self.sample.all_rows(), source), {})
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            return f"sample: {self.prepare or 'fields'} failed on it: {type(error).__name__}: {error}"
        wrong = sorted(k for k in {*example, *self.sample.example} if example.get(k) != self.sample.example.get(k))
        if not wrong:
            return None
        return "sample: " + "; ".join(
            f"{k} of the row is {example.get(k)!r}, the example says {self.sample.example.get(k)!r}" for k in wrong
        )

    def examples(self, rows: Iterable[Row], source: RowSource) -> Iterator[Example]:
        """The examples made of raw rows, in order."""
        prepared = FUNCTIONS[self.prepare](iter(rows), source) if self.prepare else rows
        return map(self.example, prepared)

    def example(self, row: Row) -> Example:
        """The example made of one row that needs no (more) preparing; a field without a value is left out."""
        return {name: value for name, form in self._forms.items() if (value := form(row)) is not None}

    def config_value(self, config: str | None) -> str | None:
        """Value of `{config}` for one of `configs`."""
        return self.configs.get(config or "", config) if isinstance(self.configs, dict) else config

    def patterns(self, config: str | None) -> list[str]:
        """The patterns of data files for one of `configs`."""
        value = self.config_value(config)
        files = self.files if isinstance(self.files, list) else [self.files]
        return [f.replace("{config}", value or "").replace("{split}", self.split).lstrip("/") for f in files]


def parse(text: str, thing: str) -> DatasetSpec:
    """Read a dataset file. Raises `BadSpec` with every fault in it; `thing` names the file in the message."""
    try:
        data = load_toml(text)
    except ValueError as error:
        raise BadSpec(thing, [f"not TOML: {error}"]) from error
    try:
        return DatasetSpec.model_validate(data)
    except ValidationError as error:
        raise BadSpec(thing, [line for fault in error.errors() for line in _lines(fault)]) from error


def _lines(fault: Any) -> list[str]:
    place = ".".join(str(part) for part in fault["loc"])
    lines = str(fault["msg"]).removeprefix("Value error, ").splitlines()
    return [f"{place}: {line}" if place else line for line in lines]


def read(path: Path) -> DatasetSpec:
    """The dataset described by the TOML file at `path`."""
    try:
        return parse(file_text(path), f"dataset file {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read dataset file {path}: {error}") from error


def names() -> list[str]:
    """Names of the catalogue's datasets, sorted: the names of its files."""
    entries = [entry.name for entry in (files("context_bench.datasets") / "catalogue").iterdir()]
    return sorted(name.removesuffix(".toml") for name in entries if name.endswith(".toml"))


@lru_cache(maxsize=64)
def named(name: str) -> DatasetSpec:
    """The catalogue's dataset called `name` (one of `names()`)."""
    return parse(
        (files("context_bench.datasets") / "catalogue" / f"{name}.toml").read_text("utf-8"),
        f"catalogue dataset {name!r}",
    )


_SLOT = re.compile(r"\{([^{}:]+)(?::(\w+))?\}")
_PATH = re.compile(r"[^.{}]+(?:\.[^.{}]+)*")


class FieldFault(ValueError):
    """A field's definition that cannot be understood; the message says where and why."""


def compile_field(definition: Any, where: str) -> Form:
    """A function row → value for one definition. Raises `FieldFault`, naming `where` it stands."""
    if isinstance(definition, str):
        return _template(definition, where) if "{" in definition else _path(definition, where)
    if isinstance(definition, list):
        forms = [compile_field(item, f"{where}[{i}]") for i, item in enumerate(definition)]
        return lambda row: [form(row) for form in forms]
    if isinstance(definition, Mapping):
        return _table(definition, where)
    raise FieldFault(
        f"{where}: {definition!r} is neither a path, a template, a list nor a table; a fixed value is {{ const = … }}"
    )


def _table(definition: Mapping[str, Any], where: str) -> Form:
    for keys, make in _FORMS:
        required = {k for k in keys if not k.endswith("?")}
        if required <= set(definition) <= {k.rstrip("?") for k in keys}:
            return make(definition, where)
    forms = " | ".join(" ".join(keys) for keys, _ in _FORMS)
    raise FieldFault(f"{where}: keys {sorted(definition)} make no form; expected one of: {forms}")


def _path(text: str, where: str) -> Form:
    if not _PATH.fullmatch(text):
        raise FieldFault(f"{where}: {text!r} is not a path such as a.b.0")
    steps = text.split(".")
    return lambda row: _walk(row, steps)


def _walk(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif is_list(value) and re.fullmatch(r"-?\d+", step):
            value = value[int(step)] if -len(value) <= int(step) < len(value) else None
        else:
            return None
    return value


def _template(text: str, where: str) -> Form:
    slots = [(path, spec, _path(path, where)) for path, spec in _SLOT.findall(text)]
    if not slots or "{" in _SLOT.sub("", text):
        raise FieldFault(f"{where}: {text!r} has a brace that is not part of a {{path}}")
    if wrong := [spec for _, spec, _ in slots if spec not in ("", "letters")]:
        raise FieldFault(f"{where}: {wrong[0]!r} is not a way to render a value; the only one is :letters")
    pieces = _SLOT.split(text)

    def render(row: Row) -> str:
        parts = [pieces[0]]
        for i, (_, spec, get) in enumerate(slots):
            parts += [lettered(get(row)) if spec else text_of(get(row)), pieces[3 * i + 3]]
        return "".join(parts)

    return render


def _pick(definition: Mapping[str, Any], where: str) -> Form:
    options, at = compile_field(definition["pick"], f"{where}.pick"), compile_field(definition["at"], f"{where}.at")
    base = definition.get("base", 0)
    if not isinstance(base, int):
        raise FieldFault(f"{where}.base: {base!r} is not a whole number")

    def pick(row: Row) -> Any:
        items, position = options(row), _position(at(row), base)
        if position is None or not isinstance(items, Sequence) or not 0 <= position < len(items):
            return None
        return items[position]

    return pick


def _position(value: Any, base: int) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        if text.upper() in set(LETTERS):
            return LETTERS.index(text.upper())
        return int(text) - base if re.fullmatch(r"-?\d{1,9}", text) else None
    return int(value) - base if isinstance(value, int) else None


def _column(definition: Mapping[str, Any], where: str) -> Form:
    rows, step = compile_field(definition["of"], f"{where}.of"), _path(definition["column"], f"{where}.column")
    return lambda row: [step(item) for item in _items(rows(row))]


def _all(definition: Mapping[str, Any], where: str) -> Form:
    items = definition["all"]
    forms = [compile_field(d, f"{where}.all[{i}]") for i, d in enumerate(items if isinstance(items, list) else [items])]

    def gathered(row: Row) -> list[Any]:
        values: list[Any] = []
        for value in (form(row) for form in forms):
            for item in value if is_list(value) else [value]:
                if item not in (None, "", *values):
                    values.append(item)
        return values

    return gathered


#: How `before`, `after` and their like cut a text at a mark that is in it.
_CUTS: dict[str, Callable[[str, str], str]] = {
    "before": lambda text, mark: text.rpartition(mark)[0],
    "after": lambda text, mark: text.rpartition(mark)[2],
    "before_first": lambda text, mark: text.partition(mark)[0],
    "after_first": lambda text, mark: text.partition(mark)[2],
}


def _cut(definition: Mapping[str, Any], where: str) -> Form:
    key = next(key for key in definition if key in _CUTS)
    mark, source = definition[key], compile_field(definition["of"], f"{where}.of")
    if not isinstance(mark, str) or not mark:
        raise FieldFault(f"{where}.{key}: {mark!r} is not a piece of text")

    def cut(row: Row) -> str | None:
        text = source(row)
        if not isinstance(text, str):
            return None
        if mark in text:
            return _CUTS[key](text, mark).strip()
        return text.strip() if key.startswith("before") else None

    return cut


def _join(definition: Mapping[str, Any], where: str) -> Form:
    items = definition["each"]
    columns = [
        compile_field(d, f"{where}.each[{i}]") for i, d in enumerate(items if isinstance(items, list) else [items])
    ]
    join, sep = definition["join"], definition.get("sep", "")
    if not isinstance(join, str) or not isinstance(sep, str):
        raise FieldFault(f"{where}: join and sep are texts")

    def joined(row: Row) -> str:
        return join.join(
            sep.join(_run(cell) for cell in cells) for cells in zip(*(_items(c(row)) for c in columns), strict=False)
        )

    return joined


def _run(value: Any) -> str:
    return "".join(text_of(item) for item in value) if is_list(value) else text_of(value)


def _items(value: Any) -> Sequence[Any]:
    return value if is_list(value) else []


_FORMS: tuple[tuple[tuple[str, ...], Callable[[Mapping[str, Any], str], Form]], ...] = (
    (("const",), lambda definition, _: lambda row: definition["const"]),
    (("pick", "at", "base?"), _pick),
    (("column", "of"), _column),
    (("all",), _all),
    *(((key, "of"), _cut) for key in _CUTS),
    (("join", "each", "sep?"), _join),
)
