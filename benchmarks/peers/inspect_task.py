"""The benchmark's questions as a task of Inspect: one request each, token F1. Run by `throughput.py` in Inspect's own
environment.
"""

from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import f1
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver


@solver
def with_context() -> Solver:
    """Put the context before the question."""

    async def solve(state: TaskState, _: Generate) -> TaskState:
        state.user_prompt.text = f"{state.metadata['context']}\n\nQuestion: {state.user_prompt.text}"
        return state

    return solve


@task
def bench(data: str) -> Task:
    """Questions of the JSON lines in `data`."""
    fields = FieldSpec(input="question", target="answer", id="id", metadata=["context"])
    return Task(dataset=json_dataset(str(Path(data)), fields), solver=[with_context(), generate()], scorer=f1())
