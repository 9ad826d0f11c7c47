"""Runs named on the command line: an exported JSON file, or a run in a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput

if TYPE_CHECKING:
    from context_bench.results import EvalResult


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; `BadInput` for anything else."""
    from context_bench.core.jsontext import load_json

    try:
        document = load_json(path.read_bytes())
    except ValueError as error:
        raise BadInput(f"{path} is not JSON: {error}") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    if not isinstance(document, dict):
        raise BadInput(f"{path}: expected an object, as --output json writes it, found a {type(document).__name__}")
    return document


@contextmanager
def found_run(run: str, store: str) -> Iterator[EvalResult]:
    """The result of an exported run (a file) or of a stored one (its name, the beginning of its id, `last`)."""
    from context_bench.results import EvalResult

    path = Path(run)
    if path.is_file():
        try:
            yield EvalResult.from_json(read_json(path))
        except BadInput as error:
            raise BadInput(f"{run}: {error}") from None
        return
    from context_bench.session.runs import opened_result

    with opened_result(store, run) as result:
        yield result
