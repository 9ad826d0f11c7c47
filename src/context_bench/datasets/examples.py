"""Validation of examples: one rule for local files, catalogue datasets and registered loaders.

Local files are known again by a hash of their content.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import stable_hash
from context_bench.core.records import Example


def tidy(raw: Mapping[str, Any], index: int, dataset: str, where: str) -> Example:
    """`raw` as a complete example, in the key order id, context, question, answer, then the rest.

    `id`: text or whole number, `index` if missing. `context`: text; without one, the `question` is the text to read
    (empty with `turns` alone). `answer`: text; a list of accepted answers goes to `answers`, its first to `answer`.
    `dataset` is set unless the row has one. `cluster`: what is resampled as one unit: the row's own `cluster`, else its
    `group`, else the context (examples that share a text are not independent), else the id. Numbers become text, nulls
    are left out. Raises `BadInput`, naming `where`.
    """
    rest = {key: value for key, value in raw.items() if value is not None}
    example: Example = {"id": id_of(rest.pop("id", index), where)}
    question = _text(rest, "question", where)
    context = _text(rest, "context", where)
    turns = _turns(rest, where)
    if not context and not question and not turns:
        raise BadInput(
            f'{where}: nothing to send: needs a "context", a "question" or "turns"; its keys are {sorted(raw)}'
        )
    example["context"] = context if context is not None else (question or "")
    if question is not None:
        example["question"] = question
    example.update(_answers(rest, where))
    example.update(rest)
    example["dataset"] = rest.get("dataset") or dataset
    example["cluster"] = _cluster(example, shared=context is not None and context != "")
    return example


def id_of(value: Any, where: str) -> str | int:
    """An id as an example carries it. Raises `BadInput` for what is neither text nor a whole number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"{where}: id {value!r} is neither text nor a whole number")
    return str(value) if isinstance(value, float) else value


def _text(rest: dict[str, Any], key: str, where: str) -> str | None:
    value = rest.pop(key, None)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise BadInput(f'{where}: "{key}" is {_kind(value)}; expected text')


def _turns(rest: Mapping[str, Any], where: str) -> list[Any] | None:
    turns = rest.get("turns")
    if turns is None:
        return None
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) and "content" in turn for turn in turns):
        raise BadInput(f'{where}: "turns" is {_kind(turns)}; expected a list of {{"role": …, "content": …}}')
    return turns


def _answers(rest: dict[str, Any], where: str) -> Example:
    answer, answers = rest.pop("answer", None), rest.pop("answers", None)
    if isinstance(answer, list):
        answer, answers = None, answer if answers is None else answers
    if answers is not None and not isinstance(answers, list):
        answers = [answers]
    accepted = [_answer(a, where) for a in answers or [] if a is not None]
    if answer is not None:
        first = _answer(answer, where)
        return {"answer": first, "answers": accepted} if accepted else {"answer": first}
    return {"answer": accepted[0], "answers": accepted} if accepted else {}


def _answer(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise BadInput(
        f'{where}: an answer is {_kind(value)}; expected text, or a list of texts under "answer" or "answers"'
    )


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", bool: "true or false"}.get(type(value), f"{value!r:.60}")


def _cluster(example: Example, shared: bool) -> str:
    for key in ("cluster", "group"):
        if example.get(key) is not None:
            return str(example[key])
    return f"context-{stable_hash(example['context'], 16)}" if shared else str(example["id"])


def examples_from(source: Iterable[Any], n: int | None = None) -> Iterator[Example]:
    """At most `n` examples of any iterable of dicts, taken one at a time, so that an endless one is no trouble.

    Nothing is changed but a missing `id`, which becomes the running number. Raises `BadInput` for what is not a dict.
    """
    for index, raw in enumerate(islice(source, n)):
        if not isinstance(raw, Mapping):
            raise BadInput(
                f"example {index} of the dataset is {type(raw).__name__}; expected a dict with an id and a context"
            )
        yield {"id": index, **raw} if raw.get("id") is None else dict(raw)


class Content:
    """A file as it was when its hash was first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: tuple[int, ...] | None = None

    @cached_property
    def sha256(self) -> str:
        """In hex digits. The file is read once. Raises `OSError`."""
        with self.path.open("rb") as file:
            self._state = _state(os.fstat(file.fileno()))
            return hashlib.file_digest(file, "sha256").hexdigest()

    def unchanged(self) -> bool:
        """Is it still the file that `sha256` is about? Any writing shows, also what leaves it as it was."""
        try:
            return self._state is not None and _state(self.path.stat()) == self._state
        except OSError:
            return False

    @property
    def size(self) -> int:
        """Bytes."""
        return self.path.stat().st_size


class Contents:
    """Several files in order, each read once for its hash."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.files = [Content(path) for path in paths]

    def unchanged(self) -> bool:
        """Are all of them still what their hashes are about?"""
        return all(each.unchanged() for each in self.files)


def _state(known: os.stat_result) -> tuple[int, ...]:
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns
