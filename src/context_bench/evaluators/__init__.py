"""Scores of one answer: named numbers for one example and what a system made of it. One file each.

A new one is found by the constants that its file declares: `EVALUATORS` gives it a name on the command line, `MEASURES`
says how reports show its scores (`core.measures`). Names below `TYPE_CHECKING` are for type checkers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.families import built_in_names
from context_bench.core.lazy import lazy

#: Name → place: of the files here and in `judge`, and of the families of this package.
BUILTINS = dict(sorted(built_in_names("evaluator").items()))

__all__ = ["BUILTINS", *sorted(place.partition(":")[2] for place in BUILTINS.values())]

if TYPE_CHECKING:
    from context_bench.evaluators.answer_quality import (
        AnswerQuality as AnswerQuality,
        EvidenceArrived as EvidenceArrived,
    )
    from context_bench.evaluators.code_execution import CodeExecution as CodeExecution
    from context_bench.evaluators.ifeval_checker import IFEvalChecker as IFEvalChecker
    from context_bench.evaluators.math_equivalence import MathEquivalence as MathEquivalence
    from context_bench.evaluators.multiple_choice import MultipleChoiceAccuracy as MultipleChoiceAccuracy
    from context_bench.evaluators.nli_label_match import NLILabelMatch as NLILabelMatch
    from context_bench.evaluators.rouge import SummarizationQuality as SummarizationQuality
    from context_bench.evaluators.tool_call_match import ToolCallMatch as ToolCallMatch

__getattr__, __dir__ = lazy(__name__, BUILTINS.values())
