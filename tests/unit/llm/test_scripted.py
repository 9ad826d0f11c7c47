"""The scripted model: rules, answer key, format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from context_bench.core.errors import BadSpec
from context_bench.core.machine import ManualClock
from context_bench.core.records import Usage
from context_bench.core.tokens import count_tokens
from context_bench.llm import scripted
from context_bench.llm.responders import Staged
from context_bench.llm.scripted import Scripted
from context_bench.llm.shapes import SHAPES, build, without_context
from context_bench.wire.apis import Reply, parse_request


async def answer(
    script: Scripted, text: str = "hello", headers: Mapping[str, str] | None = None, **body: Any
) -> Reply | Staged:
    asked = {"model": "m", "messages": [{"role": "user", "content": text}], **body}
    return await script.reply(parse_request("openai-chat", asked), headers or {})


async def said(
    script: Scripted, text: str = "hello", headers: Mapping[str, str] | None = None, **body: Any
) -> str | None:
    reply = await answer(script, text, headers, **body)
    return reply.reply.text if isinstance(reply, Staged) else reply.text


KEY = {"answer_key": {"How wide is the gauge?": {"answer": "4.2 m", "evidence": "gauge is 4.2 m", "wrong": "no idea"}}}


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_key_answers_right_only_with_the_evidence(shape: str) -> None:
    example = {"id": 1, "context": "Long ago.\nThe gauge is\n4.2 m wide.", "question": "How wide is the gauge?"}
    for given, expected in (
        (example, "4.2 m"),
        (without_context(example), "no idea"),
        ({**example, "context": "The gauge is wide."}, "no idea"),
    ):
        reply = await Scripted(KEY).reply(build(shape, given, "m").parsed(), {})
        assert isinstance(reply, Reply)
        assert reply.text == expected


async def test_the_key_in_all_its_forms() -> None:
    several = {"question": "Who?", "answer": "Ann", "evidence": ["Ann left", "on Monday"]}
    model = Scripted(
        {"answer_key": [several, {"question": "Who came?", "answer": "Bob"}], "wrong": "wrong!", "default": "dunno"}
    )
    assert await said(model, "Ann left on Monday. Who?") == "Ann"
    assert await said(model, "Ann left. Who?") == "wrong!"
    assert await said(model, "on Monday. Who?") == "wrong!"
    assert await said(model, "Who came?") == "Bob"
    assert await said(model, "Who? Ann left on Monday. Who came?") == "Bob", "the question asked last is answered"
    assert await said(model, "What?") == "dunno"
    assert await said(Scripted({"answer_key": {"Q": "A"}}), "Q") == "A"
    assert await said(Scripted({"answer_key": {"Q": {"answer": "A", "evidence": "E"}}}), "Q") == "I do not know."
    assert await said(Scripted([]), "anything") == "I do not know."


@pytest.mark.parametrize(
    ("when", "matching", "other"),
    [
        ({"text": "(?i)WEATHER"}, {"text": "the weather"}, {"text": "the news"}),
        (
            {"last": "^b$"},
            {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
            {"text": "ab"},
        ),
        ({"system": "brief"}, {"messages": [{"role": "system", "content": "be brief"}]}, {"text": "brief"}),
        ({"model": "^gpt"}, {"model": "gpt-4o"}, {"model": "x-gpt"}),
        ({"stream": True}, {"stream": True}, {}),
        ({"wire": "openai-chat"}, {}, None),
        ({"turn": 1}, {}, {"messages": [{"role": "user", "content": "a"}] * 2}),
        ({"turn": [2, 3]}, {"messages": [{"role": "user", "content": "a"}] * 3}, {}),
        ({"step": 1}, {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "r"}]}, {}),
        ({"header": {"X-Team": "a"}}, {"headers": {"x-team": "team-a"}}, {"headers": {}}),
    ],
)
async def test_conditions(when: dict[str, Any], matching: dict[str, Any], other: dict[str, Any] | None) -> None:
    model = Scripted([{"when": when, "text": "yes"}])
    assert await said(model, **matching) == "yes"
    if other is not None:
        assert await said(model, **other) == "I do not know."


async def test_the_first_rule_that_holds_answers() -> None:
    model = Scripted([{"when": {"text": "x"}, "text": "one"}, {"text": "two"}])
    assert [await said(model, "x"), await said(model, "y")] == ["one", "two"]


async def test_limits() -> None:
    first = Scripted([{"first": 2, "text": "again"}, {"text": "ok"}])
    assert [
        await said(first, "a"),
        await said(first, "b"),
        await said(first, "a"),
        await said(first, "a"),
        await said(first, "b"),
    ] == [*("again", "again", "again", "ok", "again")]
    times = Scripted([{"times": 2, "text": "again"}, {"text": "ok"}])
    assert [await said(times, str(i)) for i in range(3)] == ["again", "again", "ok"]
    calls = Scripted([{"calls": [1, 3], "text": "hit"}, {"text": "ok"}])
    assert [await said(calls) for _ in range(4)] == ["hit", "ok", "hit", "ok"]
    share = Scripted([{"share": 0.25, "text": "hit"}, {"text": "ok"}])
    found = [await said(share, f"prompt {i}") for i in range(400)]
    assert 70 <= found.count("hit") <= 130
    assert found == [await said(share, f"prompt {i}") for i in range(400)], "chosen by the prompt, not by chance"
    reseeded = Scripted([{"share": 0.25, "seed": 9, "text": "hit"}, {"text": "ok"}])
    assert found != [await said(reseeded, f"prompt {i}") for i in range(400)]


async def test_what_a_rule_can_say() -> None:
    call = {"name": "read", "arguments": {"b": 1, "a": "ä"}}
    staged = await answer(Scripted([{"tool_calls": [call, {**call, "id": "mine"}], "reasoning": "hm"}]))
    assert isinstance(staged, Staged)
    reply = staged.reply
    assert (reply.text, reply.finish_reason, reply.reasoning, reply.model) == (None, "tool_calls", "hm", "m")
    assert [c["arguments"] for c in reply.tool_calls] == ['{"a":"ä","b":1}'] * 2
    assert reply.tool_calls[1]["id"] == "mine"
    assert reply.tool_calls[0]["id"].startswith("call_")
    assert await said(Scripted([{"text": None}])) is None
    refused = await answer(Scripted([{"refusal": "no", "finish_reason": "content_filter"}]))
    assert isinstance(refused, Staged)
    assert (refused.reply.text, refused.reply.refusal, refused.reply.finish_reason) == (None, "no", "content_filter")
    assert (
        await said(Scripted({**KEY, "rules": [{"delay": 0}]}), "gauge is 4.2 m. How wide is the gauge?") == "4.2 m"
    ), "a fault leaves the answer"


async def test_usage_is_counted_given_or_kept_back() -> None:
    counted = await answer(Scripted([{"text": "It is 4.2 m."}]), "How wide is the gauge?")
    assert isinstance(counted, Staged)
    assert counted.reply.usage == Usage(count_tokens("How wide is the gauge?"), count_tokens("It is 4.2 m."))
    given = await answer(Scripted([{"text": "x", "usage": {"input_tokens": 10, "output_tokens": 2, "cache_read": 4}}]))
    assert isinstance(given, Staged)
    assert given.reply.usage == Usage(10, 2, 4)
    silent = await answer(Scripted([{"text": "x", "usage": False}]))
    assert isinstance(silent, Staged)
    assert silent.reply.usage is None


@pytest.mark.parametrize(
    ("wait", "header"),
    [
        (2, ("Retry-After", "2")),
        (0.5, ("Retry-After", "0.5")),
        ("-5", ("Retry-After", "-5")),
        ("soon", ("Retry-After", "soon")),
        ({"ms": 50}, ("retry-after-ms", "50")),
        ({"date_in": 5}, ("Retry-After", "Tue, 14 Nov 2023 22:13:25 GMT")),
        ({"date_in": -60}, ("Retry-After", "Tue, 14 Nov 2023 22:12:20 GMT")),
    ],
)
async def test_retry_after_in_all_its_forms(wait: Any, header: tuple[str, str]) -> None:
    staged = await answer(Scripted([{"status": 429, "error": "slow", "retry_after": wait}], clock=ManualClock()))
    assert isinstance(staged, Staged)
    assert staged.delivery.headers == dict([header])
    assert staged.delivery.status == 429


def test_every_format_is_read(tmp_path: Path) -> None:
    rules = [{"when": {"text": "a"}, "text": "x"}, {"text": "y"}]
    files = {
        "a.json": json.dumps({"rules": rules}),
        "b.json": json.dumps(rules),
        "c.jsonl": "\n".join(json.dumps(rule) for rule in rules) + "\n\n",
        "d.toml": '[[rules]]\nwhen.text = "a"\ntext = "x"\n[[rules]]\ntext = "y"\n',
    }
    found = set()
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
        found.add(Scripted(tmp_path / name).fingerprint()["script"])
    found.add(Scripted(rules).fingerprint()["script"])
    assert len(found) == 1


def test_the_documented_example_is_a_valid_script() -> None:
    import tomllib

    text = (scripted.__doc__ or "").split("```toml\n")[1].split("```")[0]
    spec = tomllib.loads(text)
    assert set(spec["rules"][0]) == set(scripted._RULE), "the module's text names every key of a rule"
    assert set(spec["rules"][0]["when"]) == set(scripted._WHEN)
    assert set(spec) == set(scripted._TOP)
    Scripted(spec)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ({"rule": []}, "unknown key 'rule'"),
        ({"rules": {}}, "'rules' must be a list, not {}"),
        ([{"txt": "x"}], "rule 1: unknown key 'txt'"),
        ([{}, {"when": {"test": "x"}}], "rule 2: when: unknown key 'test'"),
        ([{"when": {"text": "("}}], "a regular expression"),
        ([{"when": {"text": 5}}], "a regular expression"),
        ([{"when": {"header": "x"}}], "a table of regular expressions"),
        ([{"when": "x"}], "'when' must be a table"),
        (["x"], "must be a table"),
        ([{"disconnect": "sometimes"}], "before-headers, mid-body or mid-stream"),
        ([{"delay": -1}], "'delay' must be"),
        ([{"status": "429"}], "'status' must be an HTTP status"),
        ([{"chunk_bytes": True}], "'chunk_bytes' must be a whole number"),
        ([{"text": 5}], "'text' must be text or null"),
        ([{"tool_calls": [{"arguments": {}}]}], "with a 'name'"),
        ([{"usage": {"tokens": 5}}], "'usage' must be false or a table"),
        ([{"usage": True}], "'usage' must be false or a table"),
        ([{"line_end": "x"}], "'line_end' must be"),
        ({"answer_key": "x"}, "'answer_key' must be a table or a list"),
        ({"answer_key": {"q": {"evidence": "e"}}}, "needs 'answer'"),
        ({"answer_key": [{"answer": "a"}]}, "needs 'question'"),
    ],
)
def test_faults_of_a_script_are_listed(script: Any, says: str) -> None:
    with pytest.raises(BadSpec) as caught:
        Scripted(script)
    assert says in str(caught.value)


def test_all_faults_come_at_once() -> None:
    with pytest.raises(BadSpec) as caught:
        Scripted([{"txt": 1}, {"delay": "long"}])
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "{"), ("a.toml", "= 5"), ("a.json", "5"), ("a.jsonl", "{}\nx"), ("a.json", None)]
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(BadSpec, match=name):
        Scripted(tmp_path / name)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in inner for place in _places(child, (*path, key)))]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = list(value) if isinstance(value, list) else dict(value)
    changed[path[0]] = _replaced(value[path[0]], path[1:], new)
    return changed


ODD = [None, True, False, -1, 1.5, float("nan"), "", "x", [], ["x"], {}, {"x": None}, [{}]]
BARE: list[dict[str, Any]] = [
    {"calls": [1]},
    {"times": 1, "text": "x"},
    {"when": {"turn": 1, "step": [0]}, "tool_calls": [{"name": "f"}], "html": True},
]


async def test_a_script_with_one_thing_wrong_in_it_is_refused_or_works() -> None:
    import tomllib

    documented = tomllib.loads((scripted.__doc__ or "").split("```toml\n")[1].split("```")[0])
    every = documented["rules"][0]
    singles = [{name: value} for name, value in every.items()]
    refused = 0
    for spec in ({**documented, "rules": singles}, {"rules": BARE}):
        for place in _places(spec)[1:]:
            for odd in ODD:
                try:
                    model = Scripted(_replaced(spec, place, odd))
                except BadSpec:
                    refused += 1
                    continue
                for rule in model._rules:
                    await answer(Scripted({**model._spec, "rules": [rule.raw]}))
    assert refused > 100
