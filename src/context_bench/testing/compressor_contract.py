"""Contract of every compressor, however well it compresses: run it against your own before you believe its numbers.

```python
def test_my_compressor():
    assert_compressor(lambda: MyCompressor(...))
```

It says nothing about quality: a compressor that throws everything away passes. A failure may be raised (it is counted
in a run); it may not be hidden in what is returned.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any

from context_bench.compression.probes import rendered, tokens_of
from context_bench.core.errors import describe
from context_bench.core.protocols import Compressed, Compressor, call
from context_bench.core.tokens import counter_for
from context_bench.llm.background import run_sync
from context_bench.testing import Finding as Finding, findings, insist
from context_bench.wire.conversation import call_of
from context_bench.wire.violations import wire_violations

Messages = list[dict[str, Any]]
_BROKEN = {"orphan_tool_result", "unanswered_tool_call", "tool_arguments_changed"}
_BUDGETS = (0, 1, 40, 400)
_ODD_TEXTS = (
    "",
    " \n\t ",
    "zero \x00 inside",
    "half a pair \ud83d",
    "café niño Ελλάδα 日本語 हिन्दी العربية 👩‍👩‍👧‍👦 🇩🇪",
    '{"json": [1, 2]} <b>&amp;</b> ## Heading\n- item\n~ L1',
    "no spaces " + "x" * 5000,
)


def check_compressor(make: Callable[[], Any], *, seconds: float = 60.0, huge: int = 200_000) -> list[Finding]:
    """Faults of the compressor that `make()` gives; empty = nothing found. `make` is called for every check.

    `seconds` is for each check; `huge`: characters of the largest message that it gets.
    """
    return run_sync(acheck_compressor(make, seconds=seconds, huge=huge))


async def acheck_compressor(make: Callable[[], Any], *, seconds: float = 60.0, huge: int = 200_000) -> list[Finding]:
    """The same, async."""
    return await findings(make, CHECKS, huge, seconds=seconds)


def assert_compressor(make: Callable[[], Any], *, seconds: float = 60.0, huge: int = 200_000) -> None:
    """`AssertionError` with everything that `check_compressor` finds."""
    insist(check_compressor(make, seconds=seconds, huge=huge), "compressor")


def a_session(turns: int = 6) -> Messages:
    """A small conversation with tools: a request, files read and changed, a decision, a failing test, and what is
    left.
    """
    messages: Messages = [
        {
            "role": "user",
            "content": "The gauge in src/gauge.py shows 4.2 m and should show 4.7 m. Please do not touch tests/.",
        }
    ]
    for number in range(turns):
        call_id = f"call_{number}"
        arguments = (
            {"path": f"src/part_{number}.py"} if number % 2 else {"path": f"src/part_{number}.py", "content": "x = 1\n"}
        )
        name = "read_file" if number % 2 else "write_file"
        messages += [
            {
                "role": "assistant",
                "content": f"I look at part {number}.",
                "tool_calls": [call_of(call_id, name, arguments)],
            },
            {"role": "tool", "tool_call_id": call_id, "content": f"line {number}: value = {number}00\n" * 12},
            {"role": "assistant", "content": f"I use table {number} instead of list {number} because it is sorted."},
            {"role": "user", "content": f"Good. Now part {number + 1}."},
        ]
    return [*messages, {"role": "assistant", "content": "Remaining: fix part 9, then run the tests."}]


async def _made(
    compressor: Compressor, prefix: Messages, tail: Messages, budget: int | None = None, state: Any = None
) -> tuple[Compressed, Any]:
    given = (
        [{"role": "user", "content": rendered(prefix)}] if getattr(compressor, "of_text", False) and prefix else prefix
    )
    query = "What does the gauge show?" if getattr(compressor, "needs_query", False) else None
    found = await call(compressor.compress, given, tail, state=state, budget=budget, query=query)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], Compressed):
        raise TypeError(f"compress() gave {type(found).__name__}, expected (Compressed, state)")
    return found


# --- the checks: each gets a compressor of its own and yields what is wrong ---


async def _has_a_name(compressor: Compressor, huge: int) -> list[str]:
    return (
        []
        if isinstance(compressor.name, str) and compressor.name
        else [f"name is {compressor.name!r}, expected a text"]
    )


async def _gives_messages(compressor: Compressor, huge: int) -> list[str]:
    prefix, tail = a_session(), [{"role": "user", "content": "Go on."}]
    made, _ = await _made(compressor, prefix, tail)
    return _faults(compressor, made, prefix, tail)


def _faults(compressor: Compressor, made: Compressed, prefix: Messages, tail: Messages) -> list[str]:
    if made.opaque is not None:
        return [] if not made.messages else ["an opaque result has messages beside it that would be sent twice"]
    if wrong := [
        message
        for message in made.messages
        if not isinstance(message, dict) or not isinstance(message.get("role"), str)
    ]:
        return [f"a message is {str(wrong[0])[:80]}, expected an object with a role"]
    problems = []
    try:
        json.dumps(made.messages)
    except (TypeError, ValueError) as error:
        problems.append(f"the messages are no JSON: {error}")
    if not getattr(compressor, "of_text", False):
        broken = {str(one.kind) for one in wire_violations([*prefix, *tail], [*made.messages, *tail])}
        problems += [f"a provider would refuse the result: {kind}" for kind in sorted(broken & _BROKEN)]
    left = tokens_of(made.messages, counter_for(getattr(compressor, "model", None)))
    if made.tokens_after is not None and made.tokens_after > 2 * left + 64:
        problems.append(f"tokens_after is {made.tokens_after}, and {left} are there")
    return problems


async def _keeps_budgets_or_says_so(compressor: Compressor, huge: int) -> list[str]:
    if getattr(compressor, "ignores_budget", False) or compressor.name in ("full", "none"):
        return []
    prefix, problems = a_session(), []
    for budget in _BUDGETS:
        made, _ = await _made(compressor, prefix, [], budget)
        problems += [f"budget {budget}: {problem}" for problem in _faults(compressor, made, prefix, [])]
        left = tokens_of(made.messages, counter_for(getattr(compressor, "model", None)))
        if made.opaque is None and left > budget and not made.warnings:
            problems.append(f"{left} tokens are left for a budget of {budget}, and no warning says so")
    return problems


async def _changes_nothing_it_was_given(compressor: Compressor, huge: int) -> list[str]:
    prefix, tail = a_session(), [{"role": "user", "content": "Go on."}]
    before = copy.deepcopy((prefix, tail))
    await _made(compressor, prefix, tail, 100)
    return [] if before == (prefix, tail) else ["the messages that it was given were changed in place"]


async def _nothing_comes_of_nothing(compressor: Compressor, huge: int) -> list[str]:
    made, _ = await _made(compressor, [], [{"role": "user", "content": "Go on."}])
    left = tokens_of(made.messages, counter_for())
    return [f"{left} tokens were made of an empty prefix"] if left > 64 else []


async def _odd_texts(compressor: Compressor, huge: int) -> list[str]:
    problems = []
    for text in _ODD_TEXTS:
        prefix: Messages = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": [{"type": "text", "text": text}]},
        ]
        for budget in (None, 30):
            try:
                made, _ = await _made(compressor, prefix, [], budget)
            except Exception as error:
                problems.append(f"text {text[:20]!r}, budget {budget}: {describe(error)}")
                continue
            problems += [
                f"text {text[:20]!r}, budget {budget}: {problem}" for problem in _faults(compressor, made, prefix, [])
            ]
    return problems


async def _odd_messages(compressor: Compressor, huge: int) -> list[str]:
    prefix: Messages = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call_of("a", "run", "not json {"), call_of("b", "run", {})],
        },
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        {"role": "assistant", "content": ""},
    ]
    made, _ = await _made(compressor, prefix, [], 50)
    return _faults(compressor, made, prefix, [])


async def _a_huge_message(compressor: Compressor, huge: int) -> list[str]:
    lines = [
        f"line {number}: reading {number * 37 % 1009} of sensor {number % 7}\n" for number in range(huge // 36 + 1)
    ]
    prefix: Messages = [
        {"role": "assistant", "content": None, "tool_calls": [call_of("big", "read_file", {"path": "data/all.log"})]},
        {"role": "tool", "tool_call_id": "big", "content": "".join(lines)[:huge]},
    ]
    made, _ = await _made(compressor, prefix, [], 500)
    return _faults(compressor, made, prefix, [])


async def _goes_on_from_its_state(compressor: Compressor, huge: int) -> list[str]:
    whole = a_session(8)
    cut = next(at for at in range(len(whole) // 2, len(whole)) if whole[at]["role"] == "user")
    made, state = await _made(compressor, whole[:cut], whole[cut:])
    if made.opaque is not None:
        return []
    kept = copy.deepcopy(state)
    again, _ = await _made(compressor, [*made.messages, *whole[cut:]], [], None, state)
    problems = _faults(compressor, again, [*made.messages, *whole[cut:]], [])
    if getattr(compressor, "deterministic", False) and kept != state:
        problems.append(
            "the state that it was given was changed in place: what is compressed from it again would differ"
        )
    return problems


async def _is_as_deterministic_as_it_says(compressor: Compressor, huge: int) -> list[str]:
    if not getattr(compressor, "deterministic", False):
        return []
    prefix = a_session()
    first, again = [
        json.dumps((await _made(compressor, prefix, [], 200))[0].messages, sort_keys=True) for _ in range(2)
    ]
    return (
        [] if first == again else ["says that it is deterministic, and made two different things of the same messages"]
    )


CHECKS: tuple[Callable[[Compressor, int], Awaitable[list[str]]], ...] = (
    _has_a_name,
    _gives_messages,
    _keeps_budgets_or_says_so,
    _changes_nothing_it_was_given,
    _nothing_comes_of_nothing,
    _odd_texts,
    _odd_messages,
    _a_huge_message,
    _goes_on_from_its_state,
    _is_as_deterministic_as_it_says,
)
