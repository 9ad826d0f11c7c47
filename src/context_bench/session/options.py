"""Everything a run can be told, in one validated record: flags fill it, a TOML file fills it, and the manifest keeps it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from context_bench.core.addresses import EXPECTED, fault_of
from context_bench.core.errors import BadInput, BadSpec
from context_bench.core.numbers import MOST_PORT, whole
from context_bench.core.templates import load_toml
from context_bench.session.defaults import DEFAULT_MODEL


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
        raise ValueError(f"no port: expected a number from 0 (any free one) to {MOST_PORT}, or the URL of a running tap")
    return _url_or_name(value)


#: A base URL, and what may be one or the name of something else.
Url = Annotated[str, AfterValidator(_url)]
UrlOrName = Annotated[str, AfterValidator(_url_or_name)]
PortOrUrl = Annotated[str, AfterValidator(_port_or_url)]
Urls = Annotated[list[Url], BeforeValidator(_listed)]
Many = Annotated[list[str], BeforeValidator(_listed)]
Comma = Annotated[list[str], BeforeValidator(_comma)]


class ProxyOptions(BaseModel):
    """One proxy under test. `key_env` names the variable that holds the key which the proxy itself checks."""

    model_config = ConfigDict(extra="forbid")
    url: Url
    name: str | None = None
    key_env: str | None = None
    version: str | None = None


class RunOptions(BaseModel):
    """The options of `context-bench run`. Names are the flags' with underscores; defaults are the documented ones."""

    model_config = ConfigDict(extra="forbid")

    proxy: Urls = []
    name: Many = []
    proxies: list[ProxyOptions] = []
    system: Many = []
    dataset: Many = []
    model: Many = [DEFAULT_MODEL]
    max_examples: int | None = Field(None, ge=1)
    output: str = "table"
    out: Path | None = None
    score_field: str = "f1"
    threshold: float = 0.7
    judge_url: Url | None = None
    judge_model: str = DEFAULT_MODEL
    max_workers: int | None = Field(1, ge=0)
    cache_dir: str | None = None

    tap: PortOrUrl | None = None
    upstream: UrlOrName | None = None
    controls: Comma | None = None
    baseline: str | None = None
    margin: float | None = Field(None, gt=0, lt=1)
    shape: Comma = ["plain-user"]
    stream: bool = False
    trials: int = Field(1, ge=1)
    seed: int = 0
    max_cost: float | None = Field(None, ge=0)
    store: str | None = None
    dry_run: bool = False

    api_key_env: str = "OPENAI_API_KEY"
    proxy_key_env: str | None = None
    judge_key_env: str | None = None
    temperature: float | None = None
    max_tokens: int | None = Field(None, ge=1)
    system_prompt: str | None = None
    prompt: str | None = None
    extra_body: dict[str, Any] = {}
    timeout: float = Field(300.0, gt=0)
    example_timeout: float | None = Field(None, gt=0)
    setup_timeout: float | None = Field(None, gt=0)
    run_timeout: float | None = Field(None, gt=0)
    rpm: float | None = Field(None, gt=0)
    tpm: float | None = Field(None, gt=0)
    judge_rpm: float | None = Field(None, gt=0)
    judge_tpm: float | None = Field(None, gt=0)
    fixed_concurrency: int | None = Field(None, ge=1)
    executor: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    retries: int = Field(3, ge=0)
    marker: Literal["key", "header", "serial"] = "key"
    record: Literal["meta", "hashes", "redacted", "full"] = "full"
    wire: Literal["openai", "anthropic", "responses"] | None = None
    tap_check: bool = True
    bodies: Literal["all", "changed", "none"] | None = None
    budget: int | None = Field(None, ge=1)
    keep: float | None = Field(None, gt=0, lt=1)
    reader: UrlOrName | None = None
    evaluator: Many = []
    metric: Many = []
    imports: Many = []
    run: str | None = None
    resume: str | None = None
    reuse: bool = False
    proxy_version: str | None = None
    cache_namespace: Literal["auto", "prompt", "none"] = "auto"
    price: Many = []
    price_model: str | None = None
    max_failures: float = Field(0.02, ge=0, le=1)
    force: bool = False
    quiet: bool = False

    @model_validator(mode="after")
    def _as_many_workers(self) -> Self:
        """A fixed load needs a worker for each of its requests, and no more."""
        if self.fixed_concurrency is not None:
            self.max_workers = self.fixed_concurrency
        return self

    @property
    def all_proxies(self) -> list[ProxyOptions]:
        """`--proxy` paired with `--name` by position (surplus names are ignored), then the proxies of the TOML file."""
        names: list[str | None] = [*self.name, *[None] * len(self.proxy)]
        listed = [
            ProxyOptions(url=url, name=name, key_env=self.proxy_key_env, version=self.proxy_version)
            for url, name in zip(self.proxy, names, strict=False)
        ]
        return [*listed, *self.proxies]

    @property
    def tap_port(self) -> int | None:
        """The port of a tap to start inside the run, if `--tap` names one."""
        return whole(self.tap) if self.tap is not None and self.tap.isdigit() else None


def read_options(flags: dict[str, Any], config: Path | None, kind: type[RunOptions] = RunOptions) -> Any:
    """Defaults, then the TOML file, then the flags really given. Every fault is reported at once, by the name it has there."""
    values = {**(_read_toml(config) if config else {}), **flags}
    try:
        return kind(**values)
    except ValidationError as error:
        found = error.errors()
        in_file = config is not None and not any(item["loc"][:1] and item["loc"][0] in flags for item in found)
        raise BadSpec(str(config) if in_file else "the command line", [_fault(item, kind, flags, config) for item in found]) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        read = load_toml(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"--config {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"--config {path} is not valid TOML: {error}") from None
    return {key.replace("-", "_"): value for key, value in read.items()}


def _fault(item: Any, kind: type[RunOptions], flags: dict[str, Any], config: Path | None) -> str:
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(where, kind.model_fields, n=1)
        return f"{where}: no such option; {f'did you mean {near[0]}? ' if near else ''}Known: {', '.join(sorted(kind.model_fields))}"
    from context_bench.llm.redact import redact  # what stands where a URL was meant may be a URL with a login

    value = repr(item["input"])[:400]
    if config is not None and isinstance(item["input"], dict) and where in kind.model_fields and where not in flags:
        inside = ", ".join(map(str, list(item["input"])[:10]))
        return redact(f"[{where}] is a table, and {where} is not: options stand at the top of the file, without one ({inside})")
    if config is not None and item["loc"] and item["loc"][0] not in flags:
        return redact(f"{where} = {value}: {_expected(item, kind)}")
    if len(item["loc"]) == 2 and isinstance(item["loc"][1], int):  # one of several, each with a flag of its own
        where = str(item["loc"][0])
    return redact(f"{_FLAGS.get(where) or '--' + where.replace('_', '-')} {value}: {_expected(item, kind)}")


_FLAGS = {"max_examples": "-n", "imports": "--import"}
_SORTS = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "text", "list": "a list", "dict": "a table"}
_BOUNDS = {"ge": "at least {:g}", "gt": "above {:g}", "le": "at most {:g}", "lt": "below {:g}"}


def _expected(item: Any, kind: type[RunOptions]) -> str:
    """The values that fit, in our words where it is about a sort of value or its bounds."""
    if item["type"] == "literal_error":
        return f"expected {item['ctx']['expected'].replace(chr(39), '')}"
    if item["type"] == "missing":
        return "this has to be given"
    field = kind.model_fields.get(str(item["loc"][0])) if len(item["loc"]) == 1 else None
    bounds = [words.format(bound) for name, words in _BOUNDS.items() for bound in _bounds(field, name)]
    sort = next((word for name, word in _SORTS.items() if item["type"].startswith(f"{name}_")), None)
    if sort is None and bounds:
        sort = _SORTS["int" if "int" in str(field and field.annotation) else "float"]
    if sort is None:
        return str(item["msg"].removeprefix("Value error, "))
    return f"expected {' '.join([sort, ' and '.join(bounds)]).strip()}"


def _bounds(field: Any, name: str) -> list[float]:
    found = [getattr(rule, name, None) for rule in (field.metadata if field is not None else ())]
    return [bound for bound in found if bound is not None]
