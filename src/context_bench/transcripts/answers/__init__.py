"""Readers of other harnesses' results: questions, answers and scores, one `RecordedAnswer` each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.transcripts.answers.answer_files import AnswerLog as AnswerLog
    from context_bench.transcripts.answers.answer_files import RecordedAnswer as RecordedAnswer
    from context_bench.transcripts.answers.answer_files import formats as formats
    from context_bench.transcripts.answers.answer_files import read_answers as read_answers

__all__ = ["AnswerLog", "RecordedAnswer", "formats", "read_answers"]

__getattr__, __dir__ = lazy(
    __name__,
    [".answer_files:AnswerLog", ".answer_files:RecordedAnswer", ".answer_files:formats", ".answer_files:read_answers"],
)
