"""A dataset as a file of data: what its TOML may say, checked whole, all faults listed at once."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from context_bench.core.errors import BadInput, BadSpec
from context_bench.core.records import Example
from context_bench.core.templates import load_toml
from context_bench.datasets.fields import FieldFault, Form, compile_field
from context_bench.datasets.prepare import FUNCTIONS, Row, Source

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
    """The sample's files as the `Source` of a `prepare` function."""

    files: Mapping[str, str | list[dict[str, Any]]]
    config: str | None
    split: str
    seed: int = 0

    def paths(self, pattern: str) -> list[str]:
        found = sorted(path for path in self.files if fnmatch.fnmatchcase(path, pattern))
        if not found:
            raise ValueError(f"sample.files has no {pattern!r}")
        return found

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
    def _known_source(cls, value: str) -> str:
        if re.fullmatch(r"hf:[\w.-]+/[\w.-]+", value) or re.fullmatch(r"files:.+", value):
            return value
        raise ValueError(f"{value!r} is neither hf:owner/name nor files:PATTERN")

    @field_validator("revision")
    @classmethod
    def _is_commit(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[0-9a-f]{40}|refs/[\w/.-]+", value):
            raise ValueError(f"{value!r} is not a whole commit (40 hex digits) or a ref (refs/…)")
        return value

    @field_validator("prepare")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
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
            made = next(self.examples(self.sample.all_rows(), source), {})
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            return f"sample: {self.prepare or 'fields'} failed on it: {type(error).__name__}: {error}"
        wrong = sorted(k for k in {*made, *self.sample.example} if made.get(k) != self.sample.example.get(k))
        if not wrong:
            return None
        return "sample: " + "; ".join(
            f"{k} of the row is {made.get(k)!r}, the example says {self.sample.example.get(k)!r}" for k in wrong
        )

    def examples(self, rows: Iterable[Row], source: Source) -> Iterator[Example]:
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
        return parse(path.read_text("utf-8"), f"dataset file {path}")
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
