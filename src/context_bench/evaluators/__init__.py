"""Scores of one answer: named numbers for one example and what a system made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.families import built_in_names
from context_bench.core.lazy import lazy

_OWN = {
    "answer": "context_bench.evaluators.answer_quality:AnswerQuality",
    "code_execution": "context_bench.evaluators.code_execution:CodeExecution",
    "ifeval": "context_bench.evaluators.ifeval_checker:IFEvalChecker",
    "llm_judge": "context_bench.judge.llm_judge:LLMJudge",
    "math": "context_bench.evaluators.math_equivalence:MathEquivalence",
    "multiple_choice": "context_bench.evaluators.multiple_choice:MultipleChoiceAccuracy",
    "nli": "context_bench.evaluators.nli_label_match:NLILabelMatch",
    "summarization": "context_bench.evaluators.rouge:SummarizationQuality",
    "tool_call": "context_bench.evaluators.tool_call_match:ToolCallMatch",
}
#: Name → place: of the platform, and of the families of this package.
BUILTINS = dict(sorted({**_OWN, **built_in_names("evaluator")}.items()))

__all__ = [
    "BUILTINS",
    "Abstention",
    "AnswerQuality",
    "AnswerVariants",
    "CodeExecution",
    "FalseMemoryRate",
    "IFEvalChecker",
    "LLMJudge",
    "LocomoOfficial",
    "MathEquivalence",
    "MemoryJudge",
    "MemoryUse",
    "MultipleChoiceAccuracy",
    "NLILabelMatch",
    "NextAction",
    "Retrieval",
    "RubricJudge",
    "SummarizationQuality",
    "ToolCallMatch",
    "Updates",
]

if TYPE_CHECKING:
    from context_bench.evaluators.answer_quality import AnswerQuality
    from context_bench.evaluators.code_execution import CodeExecution
    from context_bench.evaluators.ifeval_checker import IFEvalChecker
    from context_bench.evaluators.math_equivalence import MathEquivalence
    from context_bench.evaluators.multiple_choice import MultipleChoiceAccuracy
    from context_bench.evaluators.nli_label_match import NLILabelMatch
    from context_bench.evaluators.rouge import SummarizationQuality
    from context_bench.evaluators.tool_call_match import ToolCallMatch

__getattr__, __dir__ = lazy(__name__, BUILTINS.values())
