"""Readers of what other harnesses wrote down: questions, answers and scores, one `RecordedAnswer` each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.transcripts.answers.read import formats as formats
    from context_bench.transcripts.answers.read import read_answers as read_answers
    from context_bench.transcripts.answers.record import AnswerLog as AnswerLog
    from context_bench.transcripts.answers.record import RecordedAnswer as RecordedAnswer

__all__ = ["AnswerLog", "RecordedAnswer", "formats", "read_answers"]

__getattr__, __dir__ = lazy(__name__, [".record:AnswerLog", ".record:RecordedAnswer", ".read:formats", ".read:read_answers"])
