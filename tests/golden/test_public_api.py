"""Every documented place to import from: the names are there, with the signatures that are kept in `public-api.txt`."""

import inspect
import re
import sys
from collections.abc import Mapping, Set
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import context_bench

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import blocks  # noqa: E402
import reference  # noqa: E402

SURFACE = {
    "": "evaluate evaluate_memory EvalResult EvalRow ClaudeCLI OpenAIProxy MemorySystem count_tokens",
    "types": "System Evaluator Metric MemorySystem",
    "results": "EvalRow EvalResult",
    "runner": "evaluate",
    "registry": "Registry registry register_dataset load_dataset register_metric get_metric",
    "systems": "OpenAIProxy ClaudeCLI",
    "systems.openai_proxy": "OpenAIProxy",
    "systems.claude_cli": "ClaudeCLI",
    "datasets": "load_jsonl hotpotqa mmlu_pro swebench_lite",
    "evaluators": (
        "AnswerQuality CodeExecution IFEvalChecker LLMJudge MathEquivalence MultipleChoiceAccuracy NLILabelMatch "
        "SummarizationQuality "
        "MemoryJudge FalseMemoryRate ToolCallMatch"
    ),
    "evaluators.answer_quality": "AnswerQuality",
    "evaluators.code_execution": "CodeExecution",
    "evaluators.ifeval_checker": "IFEvalChecker",
    "evaluators.llm_judge": "LLMJudge",
    "evaluators.math_equivalence": "MathEquivalence",
    "evaluators.multiple_choice": "MultipleChoiceAccuracy",
    "evaluators.nli_label_match": "NLILabelMatch",
    "evaluators.rouge": "SummarizationQuality rouge_l",
    "evaluators.memory_judge": "MemoryJudge",
    "evaluators.false_memory_rate": "FalseMemoryRate",
    "metrics": (
        "CompressionRatio CostOfPass Latency MeanScore ParetoRank PassRate PerDatasetBreakdown PerQATypeMetric "
        "TokenEfficiencyMetric"
    ),
    "metrics.quality": "MeanScore PassRate normalize_answer f1_score exact_match recall_score",
    "metrics.token_stats": "CompressionRatio ParetoRank",
    "metrics.cost_of_pass": "CostOfPass",
    "metrics.latency": "Latency",
    "metrics.per_dataset": "PerDatasetBreakdown",
    "metrics.per_qa_type": "PerQATypeMetric",
    "metrics.token_efficiency": "TokenEfficiencyMetric",
    "reporters": "to_markdown to_json",
    "reporters.html": "to_html",
    "reporters.json_out": "to_json",
    "reporters.markdown": "to_markdown",
    "utils.tokens": "count_tokens count_tokens_dict",
    "core.probing": "example_of packed messages_of session_tools rendered unrendered tokens_of",
    "core.verdict": "compare judge weigh Evidence",
    "core.violations": "compare_requests repeated_requests silent_truncation wire_violations Violation",
    "datasets.recall_lab": "lab open_lab",
    "datasets.tasks": "load_tasks",
    "replay": "add_replay",
    "systems.memories": "make_memory as_memory Bridge",
    "systems.memories.doctor": "examine Finding",
    "memory": "Client MemorySystem BenchmarkResult BenchmarkSummary CommandClient tokenize token_f1 exact_match "
    "recall_at_k best_candidate "
    "score_question summarize format_markdown_table run_harness evaluate_memory Bridge make_memory as_memory",
    "__main__": "main",
}


IMPORTED = re.compile(
    r"from (context_bench[\w.]*) import (?:\(([^)]*)\)|([^\n#;\"]+))"
    r"|\bpy:(context_bench[\w.]*):(\w+)"
)


@cache
def imported_on_pages():
    """Module → names that README, documentation and examples import from it, or name as `py:module:name`."""
    found = {}
    for file in [*blocks.pages(), *sorted((ROOT / "examples").rglob("*.py"))]:
        for module, lines, line, plugged, thing in IMPORTED.findall(file.read_text("utf-8")):
            names = re.findall(r"\w+", re.sub(r" as \w+", "", lines or line or thing))
            found.setdefault(module or plugged, set()).update(names)
    return found


def documented():
    """(module, names): modules of the reference whole; of others, names that pages import or that are promised."""
    names = {module: set(getattr(import_module(module), "__all__", ())) for module in reference.FACADES}
    for place, promised in SURFACE.items():
        names.setdefault(f"context_bench.{place}".rstrip("."), set()).update(promised.split())
    for module, imported in imported_on_pages().items():
        names.setdefault(module, set()).update(imported)
    return sorted((module, sorted(each)) for module, each in names.items())


def annotation(value):
    return value if isinstance(value, str) else inspect.formatannotation(value)


def plain(text):
    """Without what depends on where the code lies, or on the process."""
    return re.sub(r"\bcontext_bench\.(?:\w+\.)+(?=\w)| at 0x[0-9a-f]+", "", text)


def signature(thing):
    """The parameters with their types and defaults, and the type that comes back."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parts, star, positional = [], False, False
    for each in found.parameters.values():
        if positional and each.kind is not each.POSITIONAL_ONLY:
            parts.append("/")
        positional = each.kind is each.POSITIONAL_ONLY
        if each.kind is each.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or each.kind in (each.VAR_POSITIONAL, each.KEYWORD_ONLY)
        shown = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "") + each.name
        shown += "" if each.annotation is each.empty else f": {annotation(each.annotation)}"
        parts.append(shown + ("" if each.default is each.empty else f" = {each.default!r}"))
    back = "" if found.return_annotation is found.empty else f" -> {annotation(found.return_annotation)}"
    return plain(f"({', '.join([*parts, *(['/'] if positional else [])])}){back}")


def members(kind):
    """The public methods, properties and fields of a class, but for those of other people's base classes."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("context_bench")]
    names = {name for base in own for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    for name in sorted(name for name in names if not name.startswith("_")):
        found = inspect.getattr_static(kind, name, None)
        if inspect.isfunction(found) or isinstance(found, (classmethod, staticmethod)):
            yield f"    .{name}{signature(getattr(kind, name))}"
        else:
            yield f"    .{name}"


def described(name, thing):
    """The lines of one public name."""
    if inspect.isclass(thing):
        return [f"  class {name}{signature(thing)}", *members(thing)]
    if inspect.ismodule(thing):
        return [f"  module {name}"]
    if callable(thing):
        return [f"  {name}{signature(thing)}"]
    if isinstance(thing, (Mapping, Set)):
        return [f"  {name}: {', '.join(sorted(map(str, thing)))}"]
    return [f"  {name}: {type(thing).__name__}" if type(thing).__module__ != "builtins" else f"  {name} = {thing!r}"]


def test_public_names_and_signatures_are_as_kept(golden):
    lines = ["# Documented modules: public names with parameters, types and defaults; members of their classes."]
    for module, names in documented():
        lines += ["", module]
        for name in names:
            thing = getattr(import_module(module), name, None)
            lines += described(name, import_module(f"{module}.{name}") if thing is None else thing)
    golden("public-api.txt", "\n".join([*lines, ""]))


@pytest.mark.parametrize("place", SURFACE, ids=lambda place: place or "context_bench")
def test_documented_names_are_where_they_are_documented(place):
    module = import_module(f"context_bench.{place}" if place else "context_bench")
    for name in SURFACE[place].split():
        assert getattr(module, name).__module__.startswith("context_bench.")


def test_there_is_one_of_each():
    quality, tokens = import_module("context_bench.metrics.quality"), import_module("context_bench.metrics.token_stats")
    assert quality.MeanScore is import_module("context_bench.metrics").MeanScore
    assert tokens.CompressionRatio is import_module("context_bench.metrics").CompressionRatio
    assert (
        import_module("context_bench.evaluators.answer_quality").AnswerQuality
        is import_module("context_bench.evaluators").AnswerQuality
    )
    assert import_module("context_bench.reporters.html").to_html is import_module("context_bench.reports").to_html
    assert import_module("context_bench.utils.tokens").count_tokens is context_bench.count_tokens
    assert context_bench.EvalRow is import_module("context_bench.results").EvalRow


def test_the_datasets_of_the_command_line_are_listed_where_they_are_documented():
    line = import_module("context_bench.__main__")
    assert len(line.DATASET_LOADERS) == 42
    assert {"hotpotqa", "mmlu-pro", "swebench-verified", "longbench-v2", "mt-bench"} <= set(line.DATASET_LOADERS)
    assert all(map(callable, line.DATASET_LOADERS.values()))
    assert {"bbh", "infinitebench", "longbench", "mgsm", "mmlu"} == line.CONFIGURABLE_DATASETS
    with pytest.raises(AttributeError, match="build_parser"):
        line.build_parser  # noqa: B018


def test_the_documented_helpers_compare_as_squad_does():
    quality = import_module("context_bench.metrics.quality")
    assert quality.normalize_answer("The  U.S.A.!") == "usa"
    assert quality.f1_score("The capital is Paris.", "Paris") == pytest.approx(0.5)
    assert quality.recall_score("The capital is Paris.", "Paris") == 1.0
    assert quality.exact_match("paris", "The Paris") == 1.0
