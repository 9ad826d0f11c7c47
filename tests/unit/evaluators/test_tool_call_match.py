"""ToolCallMatch: calls in every shape that APIs and texts have, and which of them are the expected ones."""

import json

import pytest
from hypothesis import given, strategies as st

from context_bench.evaluators import ToolCallMatch
from context_bench.evaluators.tool_call_match import SpelledCall, calls_in, calls_of

JUDGE = ToolCallMatch()
WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "dict",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "scale": {"type": "float"},
            "hourly": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "point": {"type": "tuple", "items": {"type": "float"}},
            "filter": {"type": "dict"},
            "stops": {"type": "array", "items": {"type": "dict"}},
            "extra": {"type": "any"},
        },
        "required": ["city"],
    },
}
PARIS = [SpelledCall("get_weather", {"city": "Paris", "days": 2})]


def scores(expected, *, text=None, calls=None, tools=(WEATHER,)):
    output = {"response": text or ""} | ({"tool_calls": calls} if calls is not None else {})
    return JUDGE.score({"expected_calls": expected, "tools": list(tools)}, output)


def expect(**accepted):
    return [{"name": "get_weather", "arguments": accepted}]


@pytest.mark.parametrize(
    "text",
    [
        'get_weather(city="Paris", days=2)',
        "get_weather(city='Paris', days=2);",
        '[get_weather(city="Paris", days=2)]',
        'result = get_weather(city="Paris", days=2)',
        'print(get_weather(city="Paris", days=2))',
        'await get_weather(city="Paris", days=2)',
        "```python\nget_weather(city='Paris', days=2)\n```",
        "I will look it up.\n\n```tool_code\nprint(get_weather(city='Paris', days=2))\n```",
        '```json\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n```',
        'Sure:\n[get_weather(city="Paris", days=2)]\nThat should do.',
        'I call `get_weather(city="Paris", days=2)` for that.',
        '1. get_weather(city="Paris", days=2)',
        '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}',
        '{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}',
        '[{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\", \\"days\\": 2}"}]',
        '{"tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris", '
        '"days": 2}}}]}',
        '{"tool": "get_weather", "tool_input": {"city": "Paris", "days": 2}}',
        '{"get_weather": {"city": "Paris", "days": 2}}',
        "{'name': 'get_weather', 'arguments': {'city': 'Paris', 'days': 2}}",
        'Here it is: {"name": "get_weather", "arguments": {"city": "Paris", "days": 2}} and no more.',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}',
        "<tool_call>get_weather(city='Paris', days=2)</tool_call>",
        '<function=get_weather>{"city": "Paris", "days": 2}</function>',
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]',
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}',
        "<think>Maybe get_weather(city='Rome')?</think>get_weather(city='Paris', days=2)",
    ],
)
def test_a_call_spelt_out_in_text(text):
    assert calls_in(text) == PARIS
    assert scores(expect(city=["Paris"], days=[2]), text=text) == {
        "tool_call": 1.0,
        "tool_name": 1.0,
        "tool_arguments": 1.0,
    }


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "name": "get_weather", "arguments": '{"city": "Paris", "days": 2}'},
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Paris", "days": 2}'},
        },
        {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Paris", "days": 2}},
        {"functionCall": {"name": "get_weather", "args": {"city": "Paris", "days": 2}}},
    ],
)
def test_a_call_that_the_api_gave(call):
    assert calls_of({"response": "get_weather(city='Rome')", "tool_calls": [call]}) == PARIS
    assert scores(expect(city=["Paris"], days=[2]), calls=[call])["tool_call"] == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It will rain.",
        "You could use get_weather(city='Paris') or ask me.",
        "get_weather(",
        "get_weather(**{'city': 'Paris'})",
        "{'city': 3",
        '{"answer": 42}',
        "[1, 2, 3]",
        "x = 3",
        "def f(): pass",
        "(lambda: 0)()",
        "[get_weather(city='Paris'), 3]",
    ],
)
def test_what_is_no_call(text):
    assert calls_in(text) == []


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("f(a=-1, b=+2.5, c=1e3)", {"a": -1, "b": 2.5, "c": 1000.0}),
        ("f(a=True, b=None, c=true, d=null)", {"a": True, "b": None, "c": True, "d": None}),
        ("f(a=[1, 'x'], b=(1, 2), c={'k': [1]})", {"a": [1, "x"], "b": (1, 2), "c": {"k": [1]}}),
        ("f(a=x, b=g(1), c=x.y)", {"a": "x", "b": "g(1)", "c": "x.y"}),
        ("f(a=60*60, b=1/4, c=2**9)", {"a": 3600, "b": 0.25, "c": "2 ** 9"}),
        ("f(a=dict(k=1))", {"a": {"k": 1}}),
        ('f(a="it\'s")', {"a": "it's"}),
    ],
)
def test_values_are_literals_and_nothing_is_computed(text, arguments):
    assert calls_in(text) == [SpelledCall("f", arguments)]


def test_nothing_in_a_reply_is_executed(tmp_path):
    mark = tmp_path / "mark"
    calls_in(f"f(a=open({str(mark)!r}, 'w'))")
    calls_in(f"__import__('pathlib').Path({str(mark)!r}).touch()")
    assert not mark.exists()


@pytest.mark.parametrize(
    "text", ["f(1)\ng(2)", "f(1), g(2)", "[f(1), g(2)]", "f(1);g(2)", "- f(1)\n- g(2)", "Calls:\n`f(1)` and `g(2)`"]
)
def test_several_calls(text):
    assert [(call.name, call.positional) for call in calls_in(text)] == [("f", (1,)), ("g", (2,))]


@pytest.mark.parametrize("between", ["\n", "; ", ", ", " "])
def test_several_json_calls(between):
    text = between.join(json.dumps({"name": name, "arguments": {"x": 1}}) for name in "fg")
    assert calls_in(text) == [SpelledCall("f", {"x": 1}), SpelledCall("g", {"x": 1})]


# --- what counts as the same
# ------------------------------------------------------------------------

SAME = [
    ("city='Paris'", {"city": ["Paris"]}),
    ("city='paris '", {"city": ["Paris"]}),
    ("city='San-Francisco, CA'", {"city": ["San Francisco CA"]}),
    ("city='April 1,2024'", {"city": ["April 1, 2024"]}),
    ("city='NYC'", {"city": ["New York", "NYC"]}),
    ("city='Paris'", {"city": ["Paris"], "days": ["", 2]}),
    ("city='Paris', days=2", {"city": ["Paris"], "days": [2, ""]}),
    ("city='Paris', days=None", {"city": ["Paris"], "days": [2, ""]}),
    ("scale=3", {"scale": [3.0]}),
    ("scale=3.0", {"scale": [3]}),
    ("hourly=True", {"hourly": [True]}),
    ("tags=['a', 'B']", {"tags": [["A", "b"]]}),
    ("tags=['a', 'b']", {"tags": [["x"], ["a", "b"]]}),
    ("point=(1.5, 2)", {"point": [[1.5, 2.0]]}),
    ("point=[1.5, 2]", {"point": [[1.5, 2.0]]}),
    ("filter={'min': 3, 'unit': 'C'}", {"filter": [{"min": [3], "unit": ["c", "F"]}]}),
    ("filter={'min': 3}", {"filter": [{"min": [3], "unit": ["C", ""]}]}),
    ("filter={'min': 3, 'in': {'a': 1}}", {"filter": [{"min": 3, "in": {"a": 1}}]}),
    ("filter={'list': [1, 2]}", {"filter": [{"list": [1, 2]}]}),
    ("stops=[{'at': 'A'}, {'at': 'B'}]", {"stops": [[{"at": ["A"]}, {"at": ["b"]}]]}),
    ("extra=3", {"extra": [3]}),
    ("extra='x'", {"extra": ["x"]}),
    ("city=home_city", {"city": ["home_city"]}),
    ("days='n'", {"days": ["n"]}),  # a variable stands for the value
    ("'Paris', 2", {"city": ["Paris"], "days": [2]}),
    ("'Paris', days=2", {"city": ["Paris"], "days": [2]}),
    ("", {}),
    ("", {"city": ["", "Paris"]}),
]

OTHER = [
    ("city='Rome'", {"city": ["Paris"]}),
    ("", {"city": ["Paris"]}),
    ("city='Paris', days=2", {"city": ["Paris"]}),
    ("city='Paris'", {"city": ["Paris"], "days": [2]}),
    ("city=None", {"city": ["Paris"]}),
    ("days='2'", {"days": [2]}),
    ("days=2.0", {"days": [2]}),
    ("days=True", {"days": [1]}),
    ("hourly=1", {"hourly": [True]}),
    ("hourly='True'", {"hourly": [True]}),
    ("scale=3.1", {"scale": [3]}),
    ("city=5", {"city": ["5"]}),
    ("tags=['b', 'a']", {"tags": [["a", "b"]]}),
    ("tags='a'", {"tags": [["a"]]}),
    ("tags=('a', 'b')", {"tags": [["a", "b"]], "days": [1]}),
    ("filter={'min': 4}", {"filter": [{"min": [3]}]}),
    ("filter={'min': 3, 'max': 4}", {"filter": [{"min": [3]}]}),
    ("filter={}", {"filter": [{"min": [3]}]}),
    ("stops=[{'at': 'A'}]", {"stops": [[{"at": ["A"]}, {"at": ["B"]}]]}),
    ("stops=[{'at': 'B'}, {'at': 'A'}]", {"stops": [[{"at": ["A"]}, {"at": ["B"]}]]}),
    ("'Paris', city='Paris'", {"city": ["Paris"]}),
    (", ".join("1" * 12), {"city": ["Paris"]}),
]


@pytest.mark.parametrize(("arguments", "accepted"), SAME)
def test_the_same_arguments(arguments, accepted):
    assert scores(expect(**accepted), text=f"get_weather({arguments})") == {
        "tool_call": 1.0,
        "tool_name": 1.0,
        "tool_arguments": 1.0,
    }


@pytest.mark.parametrize(("arguments", "accepted"), OTHER)
def test_other_arguments(arguments, accepted):
    found = scores(expect(**accepted), text=f"get_weather({arguments})")
    assert found["tool_call"] == 0.0
    assert found["tool_name"] == 1.0
    assert found["tool_arguments"] < 1.0


def test_the_share_of_right_arguments():
    found = scores(expect(city=["Paris"], days=[2], scale=[1.0]), text="get_weather(city='Paris', days=3, tags=['x'])")
    assert found == {"tool_call": 0.0, "tool_name": 1.0, "tool_arguments": 0.25}


def test_another_tool():
    assert scores(expect(city=["Paris"]), text="get_time(city='Paris')") == {
        "tool_call": 0.0,
        "tool_name": 0.0,
        "tool_arguments": 0.0,
    }


def test_dots_in_names_may_be_underscores():
    expected = [{"name": "math.factorial", "arguments": {"n": [5]}}]
    tools = [
        {
            "type": "function",
            "function": {"name": "math.factorial", "parameters": {"properties": {"n": {"type": "integer"}}}},
        }
    ]
    assert scores(expected, text="math.factorial(n=5)", tools=tools)["tool_call"] == 1.0
    assert (
        scores(expected, calls=[{"name": "math_factorial", "arguments": '{"n": 5}'}], tools=tools)["tool_call"] == 1.0
    )
    assert scores(expected, text="math.factorial(n='5')", tools=tools)["tool_call"] == 0.0
    assert scores(expected, text="factorial(n=5)", tools=tools)["tool_call"] == 0.0


def test_calls_in_any_order_but_not_more_nor_fewer():
    expected = [*expect(city=["Paris"]), *expect(city=["Rome"])]
    both = "[get_weather(city='Rome'), get_weather(city='Paris')]"
    assert scores(expected, text=both)["tool_call"] == 1.0
    assert scores(expected, text="get_weather(city='Rome')") == {
        "tool_call": 0.0,
        "tool_name": pytest.approx(2 / 3),
        "tool_arguments": 0.5,
    }
    assert scores(expected[:1], text=both) == {
        "tool_call": 0.0,
        "tool_name": pytest.approx(2 / 3),
        "tool_arguments": 0.5,
    }
    assert scores(expected, text="[get_weather(city='Rome'), get_weather(city='Rome')]")["tool_call"] == 0.0


def test_calls_are_paired_in_the_best_way():
    expected = [*expect(city=["Paris", "Rome"]), *expect(city=["Paris"])]
    for order in (("Paris", "Rome"), ("Rome", "Paris")):
        text = ", ".join(f"get_weather(city={city!r})" for city in order)
        assert scores(expected, text=text)["tool_call"] == 1.0


def test_where_no_tool_fits_none_must_be_called():
    assert scores([], text="I have no tool for that.") == {"tool_call": 1.0, "tool_name": 1.0}
    assert scores([], text="get_weather(city='Paris')") == {"tool_call": 0.0, "tool_name": 0.0}


@pytest.mark.parametrize("calls", [[{"name": "get_weather", "arguments": "{broken"}], ["x"], [{}], [{"name": 3}]])
def test_a_call_that_cannot_be_read_is_wrong_but_is_a_call(calls):
    assert scores(expect(city=["Paris"]), calls=calls)["tool_call"] == 0.0
    assert scores([], calls=calls)["tool_call"] == 0.0


def test_types_are_not_asked_for_where_no_tool_is_described():
    assert scores(expect(days=[2]), text="get_weather(days=2.0)", tools=())["tool_call"] == 1.0
    assert scores(expect(days=[2]), text="get_weather(days=True)", tools=())["tool_call"] == 0.0


@pytest.mark.parametrize(
    "parameters",
    [
        {"input_schema": {"properties": {"n": {"type": ["integer", "null"]}}}},
        {"parameters": {"properties": {"n": {"type": "int"}}}},
        {"parameters": {"properties": {"n": {"type": "number"}}}},
    ],
)
def test_types_of_other_schemas(parameters):
    expected = [{"name": "f", "arguments": {"n": [3]}}]
    assert scores(expected, text="f(n=3)", tools=[{"name": "f", **parameters}])["tool_call"] == 1.0
    assert scores(expected, text="f(n='3')", tools=[{"name": "f", **parameters}])["tool_call"] == 0.0


def test_odd_tools_are_no_reason_to_fail():
    for tools in (
        None,
        "x",
        [3],
        [{"name": 3}],
        [{"name": "get_weather", "parameters": 3}],
        [{"name": "get_weather", "parameters": {"properties": 3}}],
    ):
        assert (
            JUDGE.score(
                {"expected_calls": expect(city=["Paris"]), "tools": tools}, {"response": "get_weather(city='Paris')"}
            )["tool_call"]
            == 1.0
        )


def test_where_it_applies():
    expected = expect(city=["Paris"])
    assert JUDGE.applies({"expected_calls": expected}, {"response": ""})
    assert JUDGE.applies({"expected_calls": []}, {"tool_calls": []})
    assert not JUDGE.applies({"expected_calls": expected}, {"context": "shorter"})
    for other in (None, "f()", [3], [{"name": "f"}], [{"f": {"x": [1]}}]):
        assert not JUDGE.applies({"expected_calls": other}, {"response": ""})
        assert JUDGE.score({"expected_calls": other}, {"response": ""}) == {}


def test_accepted_values_that_are_not_in_a_list_are_the_only_one():
    assert (
        scores([{"name": "get_weather", "arguments": {"city": "Paris"}}], text="get_weather(city='Paris')")["tool_call"]
        == 1.0
    )


# --- properties
# ------------------------------------------------------------------------

NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = {
    "and",
    "as",
    "if",
    "in",
    "is",
    "or",
    "not",
    "for",
    "def",
    "del",
    "try",
    "with",
    "from",
    "else",
    "elif",
    "pass",
    "class",
    "while",
    "raise",
}
KEYWORDS |= {
    "break",
    "yield",
    "async",
    "await",
    "assert",
    "except",
    "import",
    "global",
    "lambda",
    "return",
    "finally",
    "continue",
    "nonlocal",
    "print",
    "dict",
}
CALLS = st.tuples(
    NAMES.filter(lambda name: name not in KEYWORDS),
    st.dictionaries(NAMES.filter(lambda name: name not in KEYWORDS), VALUES, max_size=4),
)


@given(st.lists(CALLS, min_size=1, max_size=4), st.randoms())
def test_what_is_written_down_is_read_back(calls, draw):
    made = [SpelledCall(name, arguments) for name, arguments in calls]
    python = (
        "["
        + ", ".join(
            f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})" for name, arguments in calls
        )
        + "]"
    )
    assert calls_in(python) == made
    written = [{"name": name, "arguments": arguments} for name, arguments in calls]
    assert calls_in(json.dumps(written)) == made
    expected = [
        {"name": name, "arguments": {key: [value] for key, value in arguments.items()}} for name, arguments in calls
    ]
    draw.shuffle(written)
    assert JUDGE.score({"expected_calls": expected}, {"response": json.dumps(written)})["tool_call"] == 1.0
    assert (
        JUDGE.score({"expected_calls": expected}, {"response": json.dumps([*written, written[0]])})["tool_call"] == 0.0
    )


@given(st.text(max_size=200))
def test_any_text_is_read(text):
    assert all(isinstance(call, SpelledCall) for call in calls_in(text))


@pytest.mark.parametrize(
    "piece",
    [
        "f(",
        "[",
        "{",
        "-",
        "(",
        "<tool_call>",
        "`f()`",
        "```\n",
        "f()\n",
        '{"a":',
        "a.",
        "not ",
        "f(a=1),",
        "{}",
        "<function=f>",
    ],
)
def test_long_hostile_replies_are_read(piece):
    assert isinstance(calls_in(piece * (50_000 // len(piece)) + "1"), list)
