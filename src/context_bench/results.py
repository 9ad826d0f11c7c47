"""The result of `evaluate`: rows, summary, and the interval of each number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from context_bench.core.errors import BadInput
from context_bench.core.families import families
from context_bench.core.records import Comparison, Estimate, EvalRow, Result, SetupRecord
from context_bench.stats.pareto import combined

if TYPE_CHECKING:
    import pandas
    import polars

    from context_bench.comparison import LostExample
    from context_bench.reports.charts import Picture

__all__ = ["Comparison", "Estimate", "EvalResult", "EvalRow"]


@dataclass
class EvalResult(Result):
    """The result of a run. `rows`, `summary`, `timing`, `config` as documented; the other fields are described in
    `core.records.Result`.
    """

    metrics: Sequence[Any] = field(default_factory=list, repr=False)

    def filter(self, **attributes: Any) -> EvalResult:
        """The rows whose attributes equal all the given values, with their summary computed anew by the run's own
        metrics.

        Where the metrics are not known (a result built by hand), the summary is cut down to the systems left.
        Intervals, comparisons and ranks belong to the whole run and are left out.
        """
        unknown = [name for name in attributes if name not in EvalRow.__dataclass_fields__]
        if unknown:
            raise AttributeError(f"EvalRow has no {unknown[0]!r}; it has: {', '.join(EvalRow.__dataclass_fields__)}")
        rows = [row for row in self.rows if all(getattr(row, name) == value for name, value in attributes.items())]
        names = list(dict.fromkeys(row.system for row in rows))
        summary = {name: self._summarise(name, rows) for name in names if name in self.summary or self.metrics}
        found = replace(
            self,
            rows=rows,
            summary=summary,
            estimates={},
            comparisons=[],
            by_type=[],
            lifts=[],
            failures={},
            wire={},
            setups=[],
        )
        found.families = {}
        return found

    def _summarise(self, system: str, rows: list[EvalRow]) -> dict[str, float]:
        if not self.metrics:
            return self.summary[system]
        own = [row for row in rows if row.system == system]
        score = self.manifest.get("score_field") or self.manifest.get("margin", {}).get("score_field")
        found = combined(self.metrics, [metric.compute(own) for metric in self.metrics], score)
        found.pop("pareto_rank", None)  # one system's rows cannot tell
        return found

    def compare(self, other: Result | None = None, **options: Any) -> EvalResult:
        """Hold this run against an earlier one of the same systems; without `other`, its systems against its baseline.

        `options` and errors are those of `comparison.compare` and `comparison.within` (`metric`, `margin`, …).
        """
        from context_bench.comparison import compare, within

        return within(self, **options) if other is None else compare(other, self, **options)

    def losses(
        self, system: str, *, baseline: str | None = None, metric: str | None = None, least: float = 0.0
    ) -> list[LostExample]:
        """The examples on which `system` scored less than its baseline, the greatest loss first; see
        `comparison.losses`.
        """
        from context_bench.comparison import losses

        return losses(self, system, baseline=baseline, metric=metric, least=least)

    def __str__(self) -> str:
        """The answers in at most ten lines; `context_bench.reports.to_table` has every figure."""
        from context_bench.reports import build_page
        from context_bench.reports.table import in_brief

        return in_brief(build_page(self))

    def to_json(self) -> str:
        """The whole result as JSON text (always valid; what was not measured is absent)."""
        from context_bench.reports import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, document: str | bytes | Mapping[str, Any]) -> EvalResult:
        """A result read back from what `to_json` or `--output json` wrote. Raises `BadInput` for anything else."""
        read = _document(document)
        rows = [_row(item, number) for number, item in enumerate(read["rows"])]
        estimates = {
            name: {key: _record(Estimate, one, f"estimate {key} of {name}") for key, one in found.items()}
            for name, found in read.get("estimates", {}).items()
        }
        plain = {name: read.get(name, {}) for name in ("timing", "config", "wire", "failures", "manifest")}
        keys = [family.manifest_key for family in families()]
        compared, by_type, lifts = (
            [_record(Comparison, one, f"an entry of {name}") for one in read.get(name, [])]
            for name in ("comparisons", "by_type", "lifts")
        )
        return cls(
            rows=rows,
            summary=read["summary"],
            estimates=estimates,
            comparisons=compared,
            by_type=by_type,
            lifts=lifts,
            notes=list(read.get("notes", [])),
            setups=[_setup(item) for item in read.get("setups", [])],
            families={key: read[key] for key in keys if read.get(key)},
            **plain,
        )

    def to_dataframe(self) -> pandas.DataFrame:
        """One line per row: identity, tokens, latency, scores, metadata, each in a column of its own. Needs pandas
        (`MissingExtra`).
        """
        from context_bench.reports.frames import to_dataframe

        return to_dataframe(self.rows)

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table` with the columns and types of `reports.frames`, whatever was measured."""
        from context_bench.reports.frames import to_arrow

        return to_arrow(self.rows)

    def to_polars(self) -> polars.DataFrame:
        """The rows as polars has them: the columns of `to_arrow`. Needs polars (`MissingExtra`)."""
        from context_bench.reports.frames import to_polars

        return to_polars(self.rows)

    def plot(self, kind: str = "card", *, width: int = 720, theme: Literal["light", "dark"] = "light") -> Picture:
        """A picture of this result as SVG: a notebook draws it, `plot().save("card.svg")` writes it.

        `kind`: `card`, the answers on all systems, or a chart as `context-bench plot` names it. `width` in pixels.
        Raises `BadInput` with the charts that there are, `MissingExtra` for one that needs the extra `plots`.
        """
        from context_bench.reports import build_page, charts

        chart = charts.chosen(charts.charts_of(build_page(self)), kind)[0]
        return charts.Picture(charts.standalone(chart, width=width, theme=theme))

    def _repr_html_(self) -> str:
        from context_bench.reports import build_page, repr_html

        page = build_page(self)
        return repr_html(page) + (_picture(page) if len(self.summary) > 1 else "")


def _picture(page: Any) -> str:
    """Quality against tokens or money as a picture that stands alone: a notebook has no style of ours, and may allow
    nothing but images.
    """
    from base64 import b64encode
    from html import escape

    from context_bench.reports.charts import standalone

    chart = next((chart for section in page.sections for chart in section.charts if chart.kind == "pareto"), None)
    if chart is None:
        return ""
    data = b64encode(standalone(chart).encode()).decode()
    return (
        f'<p><img alt="{escape(f"{chart.title}. {chart.about}", quote=True)}" '
        f'src="data:image/svg+xml;base64,{data}"></p>'
    )


def _document(document: str | bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    from context_bench.core.keys import load_json

    try:
        read = load_json(document) if isinstance(document, str | bytes) else document
    except ValueError as error:
        raise BadInput(f"not the JSON of a run: {error}") from None
    if (
        not isinstance(read, Mapping)
        or not isinstance(read.get("rows"), list)
        or not isinstance(read.get("summary"), Mapping)
    ):
        raise BadInput(
            "not the JSON of a run: it needs 'rows' (a list) and 'summary' (an object), as --output json writes them"
        )
    _check_parts("", read, _PARTS)
    manifest = read.get("manifest", {})
    _check_parts("manifest.", manifest, _MANIFEST)
    _check_parts("manifest.engine.", manifest.get("engine", {}), _ENGINE)
    for number, one in enumerate(manifest.get("datasets", [])):
        _check_parts(f"manifest.datasets[{number}].", one, {"name": str})
    return read


#: Parts of the JSON of a run, and of its manifest, that are looked into, by their kind.
_PARTS: Mapping[str, Any] = {
    "summary": dict[str, dict[str, float]],
    "estimates": dict[str, dict[str, dict[str, Any]]],
    **dict.fromkeys(("comparisons", "by_type", "lifts", "setups"), list[dict[str, Any]]),
    "notes": list[str],
    "timing": dict[str, float],
    "failures": dict[str, dict[str, dict[str, int]]],
    "wire": dict[str, dict[str, Any]],
    "config": dict[str, Any],
    "manifest": dict[str, Any],
}
_MANIFEST: Mapping[str, Any] = {
    **dict.fromkeys(("cells", "datasets", "loads"), list[dict[str, Any]]),
    **dict.fromkeys(("margin", "options", "engine", "run"), dict[str, Any]),
}
_ENGINE: Mapping[str, Any] = dict.fromkeys(("systems", "evaluators"), list[dict[str, Any]])
_WORDS = {dict: "an object", list: "a list", tuple: "a list", str: "text", int: "a number", float: "a number"}
_TYPES: Mapping[Any, Any] = {dict: Mapping, tuple: list, int: int | float, float: int | float}


def _check_parts(where: str, item: Any, kinds: Mapping[str, Any]) -> None:
    _check(where, item, dict[str, Any])
    for name in kinds.keys() & item.keys():
        _check(f"{where}{name}", item[name], kinds[name])


def _check(where: str, value: Any, kind: Any) -> None:
    """Raise `BadInput` for a value of another kind than a type says, or for one within it."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    bases = {each: get_origin(each) or each for each in options}
    fits = [
        each
        for each, base in bases.items()
        if base is Any or (value in get_args(each) if base is Literal else isinstance(value, _TYPES.get(base, base)))
    ]
    if not fits:
        words = (_WORDS.get(base) or ", ".join(map(str, get_args(each))) or "null" for each, base in bases.items())
        wanted = " or ".join(dict.fromkeys(words))
        raise BadInput(f"{where} is {json.dumps(value)[:80]}; expected {wanted}")
    within = get_args(fits[0])
    if bases[fits[0]] is dict and within and within[1] is not Any:
        for name, one in value.items():
            _check(f"{where}.{name}", one, within[1])
    elif within and isinstance(value, list):  # a list of one kind, or as many entries as there are kinds
        kinds = [within[0]] * len(value) if bases[fits[0]] is list or within[-1] is ... else list(within)
        if len(kinds) != len(value):
            raise BadInput(f"{where} has {len(value)} entries; expected {len(kinds)}")
        for number, (one, each) in enumerate(zip(value, kinds, strict=True)):
            _check(f"{where}[{number}]", one, each)


def _row(item: Any, number: int) -> EvalRow:
    if not isinstance(item, Mapping) or not {"system", "example_id", "scores"} <= set(item):
        raise BadInput(f"row {number} of the JSON is not a row: it needs system, example_id and scores")
    return EvalRow(**{"latency": None, **_fields_of(EvalRow, item, f"row {number}: ")})


def _setup(item: Mapping[str, Any]) -> SetupRecord:
    return SetupRecord(**_fields_of(SetupRecord, item, "an entry of setups: "))


def _record(kind: Any, item: Mapping[str, Any], where: str) -> Any:
    """A record of numbers; those that were not measured are absent in JSON and `None` here."""
    missing = {each.name: None for each in fields(kind) if each.default is MISSING}
    for name in (name for name in missing if _kinds_of(kind)[name] is str and name not in item):
        raise BadInput(f"{where}: {name} is missing; expected text")
    return kind(**{**missing, **_fields_of(kind, item, f"{where}: ")})


def _fields_of(kind: Any, item: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a dataclass that the JSON has."""
    kinds = _kinds_of(kind)
    _check_parts(where, item, kinds)
    return {key: value for key, value in item.items() if key in kinds}


@cache
def _kinds_of(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}
