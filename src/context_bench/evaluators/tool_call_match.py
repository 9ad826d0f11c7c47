"""The tool calls of a reply against those that were expected, by name, arguments and types.

The tool calls of a reply: those its API gave, or those written in its text. Nothing is ever executed.

Texts are read in this order, the first that holds calls wins: `<tool_call>` and its kin, fenced code, the whole text,
lines and inline code that are nothing but calls. A call is Python (`f(a=1, b="x")`, lists of them) or JSON
(`{"name": …, "arguments": {…}}` under the usual names). Prose that merely mentions a call makes none.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from context_bench.core.keys import load_json
from context_bench.core.records import Example

EVALUATORS = {"tool_call": "ToolCallMatch"}
MEASURES = {"tool_call tool_name tool_arguments": {"unit": "score", "better": "higher", "place": "quality"}}

LONGEST = 100_000  # characters of a reply that are searched
_THOUGHT = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_TAGGED = re.compile(
    r"<(tool_call|tool_calls|function_call|functioncall|tool_use|action)>(.*?)(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_FUNCTION_TAG = re.compile(r"<function=([\w.-]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER_TAG = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_FENCED = re.compile(r"```[\w+-]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_BULLET = re.compile(r"\A\s*(?:[-*•]|\d+[.)])\s+")
_PREFIX = re.compile(
    r"\A\s*(?:\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_calls?_begin\|>|functools|(?:tool|function)[ "
    r"_]?calls?\s*:|Action\s*:)\s*",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[\s;,]*")
_DECODER = json.JSONDecoder()
#: Keys under which calls in JSON have the name of the tool and its arguments.
_NAMES = ("name", "tool_name", "function", "tool", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "kwargs")
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}

warnings.filterwarnings("ignore", module="<reply>")  # a reply's odd escapes are not our user's business


@dataclass(frozen=True, slots=True)
class SpelledCall:
    """A call of a tool. `positional`: values given without a name."""

    name: str
    arguments: Mapping[str, Any]
    positional: Sequence[Any] = field(default_factory=tuple)


def calls_of(output: Mapping[str, Any]) -> list[SpelledCall]:
    """The calls a system's output makes: its `tool_calls` if there are any, else what its `response` spells out.

    A call that its API gave but that cannot be read (arguments that are no JSON object) is one without a name, which
    fits nothing.
    """
    given = output.get("tool_calls")
    if isinstance(given, list | tuple) and given:
        return [call_of_json(item) or SpelledCall("", {}) for item in given]
    response = output.get("response")
    return calls_in(response) if isinstance(response, str) else []


def calls_in(text: str) -> list[SpelledCall]:
    """The calls that a text spells out, in order."""
    text = text[:LONGEST]
    if "</think" in text.lower():
        text = _THOUGHT.sub("", text, count=1)
    text = text.strip()
    lines = (_BULLET.sub("", line) for line in text.splitlines() if line.strip())
    for pieces in (
        _tagged(text),
        map(_parse, _FENCED.findall(text)),
        _whole(text),
        map(_parse, lines),
        map(_parse, _INLINE.findall(text)),
    ):
        found = [call for calls in pieces for call in calls]
        if found:
            return found
    return []


def _tagged(text: str) -> Iterator[list[SpelledCall]]:
    if "<" not in text:
        return
    for tag in _FUNCTION_TAG.finditer(text):
        parameters = {name: _literal(value) for name, value in _PARAMETER_TAG.findall(tag[2])}
        yield [SpelledCall(tag[1], parameters or _arguments(tag[2].strip() or "{}") or {})]
    for tag in _TAGGED.finditer(text):
        if not _FUNCTION_TAG.search(tag[2]):
            yield _parse(tag[2])


def _whole(text: str) -> Iterator[list[SpelledCall]]:
    """The text, or else one list or object with words around it."""
    found = _parse(text)
    for opening, closing in ("[]", "{}"):
        start, end = text.find(opening), text.rfind(closing)
        if not found and 0 <= start < end:
            found = _parse(text[start : end + 1])
    yield found


def _parse(text: str) -> list[SpelledCall]:
    """The calls of a piece that is nothing else; none if it is anything else."""
    text = _PREFIX.sub("", text, count=1).strip().strip("`").strip().rstrip(";").strip()
    if not text or not re.search(r"[({]", text):
        return []
    if text[0] in "[{" and (read := _json(text)) is not None:
        return read
    found = _python(text)
    if not found and "\n" in text:  # a call a line
        lines = [_python(line.strip()) for line in text.splitlines() if line.strip()]
        return [call for calls in lines for call in calls] if all(lines) else []
    return found


def _json(text: str) -> list[SpelledCall] | None:
    """The calls of one JSON value, or of several with blanks, commas or semicolons between; `None` if it is not
    JSON.
    """
    try:
        return _of_value(load_json(text))
    except ValueError:
        pass
    values, at = [], 0
    try:
        while at < len(text):
            value, at = _DECODER.raw_decode(text, at)
            values.append(value)
            at = _SEPARATOR.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing as well
    except (ValueError, RecursionError):
        return None
    return [call for value in values for call in _of_value(value)]


def _of_value(value: Any) -> list[SpelledCall]:
    if isinstance(value, Mapping):
        for name in ("tool_calls", "function_calls", "calls"):
            if isinstance(value.get(name), list):
                return _of_value(value[name])
        call = call_of_json(value)
        return [call] if call else []
    if isinstance(value, list):
        calls = [call_of_json(item) for item in value]
        return [call for call in calls if call] if all(calls) else []
    return []


def call_of_json(item: Any) -> SpelledCall | None:
    """A call in any usual shape: OpenAI's (nested or flat), Anthropic's, Gemini's, `{"name", "parameters"}`,
    `{NAME: {arguments}}`.
    """
    if not isinstance(item, Mapping):
        return None
    for wrapper in ("function", "functionCall", "function_call", "tool_call"):
        if isinstance(item.get(wrapper), Mapping):
            return call_of_json(item[wrapper])
    name = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), None)
    if name is not None:
        arguments = _arguments(next((item[key] for key in _ARGUMENTS if key in item), None))
        return None if arguments is None else SpelledCall(name, arguments)
    if len(item) == 1:
        (only, held), *_ = item.items()
        if isinstance(held, Mapping) and re.fullmatch(r"[A-Za-z_][\w.-]*", str(only)):
            return SpelledCall(str(only), held)
    return None


def _arguments(given: Any) -> Mapping[str, Any] | None:
    """Arguments as a mapping, also from JSON text; `None` if they are none."""
    if given is None or given == "":
        return {}
    value = _literal(given) if isinstance(given, str) else given
    return value if isinstance(value, Mapping) else None


def _literal(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:
        return text


def _python(text: str) -> list[SpelledCall]:
    """`f(…)`, `[f(…), g(…)]`, `f(…), g(…)` or one a line; nothing if there is anything but calls."""
    try:
        tree = ast.parse(text, filename="<reply>")
        return [_call(node) for statement in tree.body for node in _calls_of(statement)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _calls_of(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign | ast.Expr):  # `result = f(…)` is a call as well
        value = statement.value
        while isinstance(value, ast.Await):
            value = value.value
        if _is_call_of(value, "print") and len(value.args) == 1:
            value = value.args[0]
        return list(value.elts) if isinstance(value, ast.List | ast.Tuple) else [value]
    raise ValueError("not a call")


def _call(node: ast.expr) -> SpelledCall:
    """A call from its syntax tree (a dict that spells one out as well); `ValueError` if it is none."""
    if isinstance(node, ast.Dict) and (spelt := call_of_json(_value(node))):
        return spelt
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("not a call")
    named = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
    return SpelledCall(_dotted(node.func), named, tuple(_value(value) for value in node.args))


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueError("not the name of a tool")
    return ".".join([node.id, *reversed(parts)])


def _value(node: ast.expr) -> Any:
    """The value of a literal; what is none (a variable, a nested call, a sum) is the text it was written as."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(item) for item in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {
            _key(_value(key)): _value(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    if isinstance(node, ast.Name):
        return _CONSTANTS.get(node.id, node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _value(node.operand)
        if isinstance(inner, int | float) and not isinstance(inner, bool):
            return -inner if isinstance(node.op, ast.USub) else inner
    if _is_call_of(node, "dict") and not node.args:
        return {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
    if isinstance(node, ast.BinOp):
        return _folded(node)
    return ast.unparse(node)


def _is_call_of(node: ast.expr, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _key(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | type(None)) else repr(value)


def _folded(node: ast.BinOp) -> Any:
    """A sum, product or quotient of two plain numbers, as its value ("1/2", "60*60")."""
    left, right = _value(node.left), _value(node.right)
    if all(isinstance(side, int | float) and not isinstance(side, bool) and abs(side) < 1e15 for side in (left, right)):
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div) and right:
            return left / right
    return ast.unparse(node)


class ToolCallMatch:
    """`tool_call`: 1 if exactly the expected calls are made, in any order; `tool_name`: F1 of the tools chosen;
    `tool_arguments`: share of the expected arguments that are right (only where calls are expected).

    Expected are `expected_calls`: `{"name", "arguments": {parameter: [accepted value, …]}}`, where "" among the
    accepted values means that the parameter may be left out; an empty list means that no tool fits and none must be
    called. `tools` (JSON schemas, or Python's type names as BFCL has them) give the types. The calls made are
    `tool_calls` of the output, else what the response spells out (`_calls`).

    The rules are those of the Berkeley Function-Calling Leaderboard's syntax-tree check: no argument too many or too
    few; texts equal but for case, blanks and `, . / - _ * ^`; an integer passes for a float and a tuple for a list
    where the type says so; booleans are no numbers; a dict has accepted values for each key. Beyond it: `null` is the
    same as leaving out; calls are paired in the best way, not the first; whole numbers in lists of floats pass; `a.b`
    and `a_b` are one name, since some APIs allow no dots.
    """

    name = "tool_call_match"
    version = "1"
    needs = ("expected_calls",)
    fields = ("tool_call", "tool_name", "tool_arguments")

    def applies(self, example: Example, output: Example) -> bool:
        """It is known which calls were expected, and a reply was given."""
        return _expected(example) is not None and ("response" in output or "tool_calls" in output)

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        wanted = _expected(original)
        if wanted is None:
            return {}
        made = calls_of(processed)
        schemas = _schemas(original.get("tools"))
        shares = [[_share(call, expected, schemas) for call in made] for expected in wanted]
        scores = {
            "tool_call": float(len(made) == len(wanted) and _all_paired(shares)),
            "tool_name": _names(made, wanted),
        }
        if wanted:
            scores["tool_arguments"] = _best_total(shares) / max(len(wanted), len(made))
        return scores


Expected = tuple[str, Mapping[str, Sequence[Any]]]


def _expected(example: Example) -> list[Expected] | None:
    """The expected calls; `None` if the example has none in the known form."""
    given = example.get("expected_calls")
    if not isinstance(given, list | tuple):
        return None
    calls: list[Expected] = []
    for item in given:
        if (
            not isinstance(item, Mapping)
            or not isinstance(item.get("name"), str)
            or not isinstance(item.get("arguments"), Mapping)
        ):
            return None
        calls.append((item["name"], {str(name): _accepted(values) for name, values in item["arguments"].items()}))
    return calls


def _accepted(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list | tuple) else [values]


def _schemas(tools: Any) -> dict[str, Mapping[str, Any]]:
    """Tool name → its parameters as a JSON schema; from bare functions, OpenAI's and Anthropic's wrapping."""
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools if isinstance(tools, list | tuple) else ():
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            parameters = function.get("parameters") or function.get("input_schema")
            found[_plain_name(function["name"])] = parameters if isinstance(parameters, Mapping) else {}
    return found


def _plain_name(name: str) -> str:
    return name.strip().replace(".", "_")


def _names(made: Sequence[SpelledCall], wanted: Sequence[Expected]) -> float:
    one, other = Counter(_plain_name(call.name) for call in made), Counter(_plain_name(name) for name, _ in wanted)
    if not one and not other:
        return 1.0
    return 2 * sum((one & other).values()) / (len(made) + len(wanted))


def _share(call: SpelledCall, expected: Expected, schemas: Mapping[str, Mapping[str, Any]]) -> float:
    """Share of the arguments that are right; 1.0 only if the whole call is. -1.0 if another tool is called."""
    name, accepted = expected
    if _plain_name(call.name) != _plain_name(name):
        return -1.0
    properties = schemas.get(_plain_name(name), {}).get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    given = _named(call, list(properties) or list(accepted))
    if given is None:
        return 0.0
    names = accepted.keys() | given.keys()
    right = sum(
        parameter in accepted
        and _right(given.get(parameter), parameter in given, accepted[parameter], properties.get(parameter))
        for parameter in names
    )
    return right / len(names) if names else 1.0


def _named(call: SpelledCall, order: Sequence[str]) -> dict[str, Any] | None:
    """Arguments by name, the positional ones by the order of the parameters; `None` if there are more than
    parameters.
    """
    if len(call.positional) > len(order):
        return None
    given = dict(zip(order, call.positional, strict=False))
    named = {str(name): value for name, value in call.arguments.items()}
    return None if given.keys() & call.arguments.keys() else {**given, **named}


def _right(value: Any, given: bool, accepted: Sequence[Any], schema: Any) -> bool:
    optional = "" in accepted
    if not given or (value is None and None not in accepted):
        return optional
    if not any(_same(value, one) for one in accepted):
        return False
    return _typed(value, schema) or any(type(value) is type(one) for one in accepted)


#: Names of types, as schemas and BFCL write them → the classes that pass.
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("string", "str"), (str,)),
    **dict.fromkeys(("integer", "int"), (int,)),
    **dict.fromkeys(("float", "double", "number"), (float, int)),
    **dict.fromkeys(("boolean", "bool"), (bool,)),
    **dict.fromkeys(("array", "list"), (list,)),
    **dict.fromkeys(("dict", "object"), (dict,)),
    "tuple": (list, tuple),
    "null": (type(None),),
}


def _typed(value: Any, schema: Any) -> bool:
    """Check a value against the type that a schema asks for; any value meets an unknown type."""
    names = schema.get("type") if isinstance(schema, Mapping) else None
    wanted = [_TYPES.get(str(name).lower()) for name in (names if isinstance(names, list | tuple) else [names])]
    return any(
        kinds is None or (isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds))
        for kinds in wanted
    )


_LOOKS = re.compile(r"[ ,./\-_*^]")


def _same(value: Any, wanted: Any) -> bool:
    """Equal as values; inside dicts the wanted side may list the accepted values of each key."""
    if isinstance(value, str) and isinstance(wanted, str):
        return _spelt(value) == _spelt(wanted)
    if isinstance(value, Mapping) and isinstance(wanted, Mapping):
        return _same_mapping(value, wanted)
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        return len(value) == len(wanted) and all(_same(one, other) for one, other in zip(value, wanted, strict=True))
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    numeric = isinstance(value, int | float) and isinstance(wanted, int | float)
    return bool(value == wanted) and (numeric or type(value) is type(wanted))


def _same_mapping(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for key in value.keys() | wanted.keys():
        if key not in wanted:
            return False
        accepted = _accepted(wanted[key])
        if key not in value:
            if accepted is not wanted[key] or "" not in accepted:
                return False
        elif not (_same(value[key], wanted[key]) or any(_same(value[key], one) for one in accepted)):
            return False
    return True


def _spelt(text: str) -> str:
    return _LOOKS.sub("", text).lower().replace("'", '"')


def _all_paired(shares: Sequence[Sequence[float]]) -> bool:
    """Match every expectation with a call of its own that meets it whole, by augmenting paths."""
    taken: dict[int, int] = {}

    def place(expected: int, seen: set[int]) -> bool:
        for call, share in enumerate(shares[expected]):
            if share == 1.0 and call not in seen:
                seen.add(call)
                if call not in taken or place(taken[call], seen):
                    taken[call] = expected
                    return True
        return False

    return all(place(expected, set()) for expected in range(len(shares)))


def _best_total(shares: Sequence[Sequence[float]]) -> float:
    """Sum of the shares, the most alike paired first, each call used once."""
    ranked = sorted(
        ((share, expected, call) for expected, row in enumerate(shares) for call, share in enumerate(row) if share > 0),
        key=lambda item: (-item[0], item[1], item[2]),
    )
    done: set[int] = set()
    used: set[int] = set()
    total = 0.0
    for share, expected, call in ranked:
        if expected not in done and call not in used:
            done.add(expected)
            used.add(call)
            total += share
    return total
