"""Tools, settings and cache marks of a request: what changed on its way, on one wire or across two; faults of schemas.

Across wires everything is compared that both can say. What one of them cannot say (marks on OpenAI's wires, `seed` on
Anthropic's, a parallel flag without tools) is no loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_bench.core.keys import NAMED, canonical_json, without_nulls
from context_bench.wire.apis.shared import as_dict, as_list, as_str
from context_bench.wire.conversation import chat_tool
from context_bench.wire.request import Pairs, WireRequest, stated
from context_bench.wire.violations.parts import Violation


def definition_changes(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Changes of tools and settings, on one wire field by field, across two by what both say."""
    if sent.wire == received.wire:
        yield from schema_changes(sent.tools, received.tools)
        yield from parameter_changes(sent, received)
    elif {sent.wire, received.wire} <= _SAYS.keys():
        yield from _across(sent, received)


def schema_changes(sent: Sequence[Any], received: Sequence[Any]) -> Iterator[Violation]:
    """Tools added, gone, with another meaning, with other words for whoever reads them, or in another order."""
    if len(sent) == len(received) and all(a is b for a, b in zip(sent, received, strict=True)):
        return  # the items of one session, held once: nothing can be another
    before, after = _by_name(sent), _by_name(received)
    for key, (name, _) in before.items():
        if key not in after:
            yield Violation("tool_removed", f"tool {name} is gone", name=name)
    for key, (name, _) in after.items():
        if key not in before:
            yield Violation("tool_added", f"tool {name} was added", name=name)
    for key in (key for key in before if key in after):
        name, a, b = *before[key], after[key][1]
        if canonical_json(_bare(a)) != canonical_json(_bare(b)):
            yield Violation("tool_meaning_changed", f"tool {name} has another definition", name=name)
        elif others := set(_annotations(a)) ^ set(_annotations(b)):
            words = ", ".join(sorted({path[-1] for path, _ in others}))
            yield Violation("tool_annotation_changed", f"tool {name} is described in another way: {words}", name=name)
    if before.keys() == after.keys() and list(before) != list(after):
        yield Violation("order_changed", "the tools arrived in another order")


def names_of(tools: Sequence[Any]) -> list[str]:
    """Names of tools, of whatever wire."""
    return [name for name, _ in _by_name(tools).values()]


_NAME_LENGTH = 128  # the most that an API takes


def _by_name(tools: Sequence[Any]) -> dict[str, tuple[str, Any]]:
    """Each tool with its name, without its null fields, under a key of its own (two may have one name)."""
    found: dict[str, tuple[str, Any]] = {}
    for tool in tools:
        held = tool if isinstance(tool, Mapping) else {}
        inner = held.get("function") if isinstance(held.get("function"), Mapping) else held
        name = str((inner or {}).get("name") or held.get("type") or len(found))
        key = name if name not in found else f"{name} #{len(found)}"
        found[key] = name[:_NAME_LENGTH], without_nulls(tool)
    return found


#: What a tool or a schema tells its reader and what checks nothing: by JSON Schema's own list, and the examples that a
#: tool may have.
_ANNOTATIONS = frozenset(
    [
        "$comment",
        "$schema",
        "default",
        "deprecated",
        "description",
        "example",
        "examples",
        "input_examples",
        "readOnly",
        "title",
        "writeOnly",
    ]
)
_LITERAL = frozenset({"const", "enum"})
#: What a schema without them says too.
_UNLIMITED: dict[str, tuple[Any, ...]] = {"required": ([],), "properties": ({},), "$defs": ({},), "definitions": ({},)}


def _bare(schema: Any, names: bool = False) -> Any:
    """A tool without words for its reader. `names`: the keys are names of properties, so that one called `description`
    stays.
    """
    if not isinstance(schema, Mapping):
        return [_bare(item) for item in schema] if isinstance(schema, list) else schema
    if names:
        return {key: _bare(value) for key, value in schema.items()}
    return {
        key: value if key in _LITERAL else _bare(value, names=key in NAMED)
        for key, value in schema.items()
        if key not in _ANNOTATIONS and key != "cache_control" and value not in _UNLIMITED.get(key, ())
    }


def _annotations(schema: Any, names: bool = False, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The words for a tool's reader: where each stands, its own name last, and what it says."""
    if isinstance(schema, list):
        for place, item in enumerate(schema):
            yield from _annotations(item, path=(*path, str(place)))
    elif isinstance(schema, Mapping):
        for key, value in schema.items():
            if not names and key in _ANNOTATIONS:
                yield (*path, str(key)), canonical_json(value)
            elif names or key not in _LITERAL:
                yield from _annotations(value, not names and key in NAMED, (*path, str(key)))


# Settings
# ------------------------------------------------------------------------


#: Parameters that have a kind of their own.
_TOLD_APART = frozenset(
    {
        "tool_choice",
        "response_format",
        "text",
        "output_format",
        "output_config",
        "thinking",
        "previous_response_id",
        "cache_control",
    }
)


def parameter_changes(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Settings that are added, gone or mean something else."""
    a, b = stated(sent.params), stated(received.params)
    if _choice(a, sent) != _choice(b, received):
        yield Violation("tool_choice_changed", _change("tool_choice", a, b))
    for name in ("response_format", "output_format", "output_config", "text"):
        ours, theirs = (_without_effort(params.get(name)) for params in (a, b))
        if canonical_json(ours) != canonical_json(theirs):
            yield Violation("response_format_changed", _change(name, a, b))
    ours, theirs = (as_dict(params.get("output_config")).get("effort") for params in (a, b))
    if ours != theirs:
        yield Violation("thinking_changed", f"the effort {'is gone' if theirs is None else 'is another'}")
    if canonical_json(a.get("thinking")) != canonical_json(b.get("thinking")):
        yield Violation("thinking_changed", _change("thinking", a, b))
    if a.get("previous_response_id") != b.get("previous_response_id"):
        yield Violation("previous_response_id_changed", _change("previous_response_id", a, b))
    if sent.model != received.model:
        yield Violation("params_changed", "another model")
    if sent.stream != received.stream:
        yield Violation("params_changed", f"stream {sent.stream} → {received.stream}")
    for name in sorted((a.keys() | b.keys()) - _TOLD_APART):
        if name not in a or name not in b or canonical_json(a[name]) != canonical_json(b[name]):
            yield Violation("params_changed", _change(name, a, b))


def _without_effort(form: Any) -> Any:
    """The form that is asked of an answer, without the effort that stands in the same place; nothing if that is all."""
    return {key: value for key, value in form.items() if key != "effort"} if isinstance(form, Mapping) else form or {}


def _change(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    return f"{name} {'was added' if name not in a else 'is gone' if name not in b else 'has another value'}"


def _choice(params: Mapping[str, Any], request: WireRequest) -> str:
    """Effective `tool_choice`: left out, it is `auto` where there are tools and `none` where there are none."""
    given = params.get("tool_choice")
    if given is None:
        given = "auto" if request.tools else "none"
    if isinstance(given, Mapping) and given.keys() == {"type"}:
        given = given["type"]
    return canonical_json(given)


# Across wires
# ------------------------------------------------------------------------


def _across(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    before, after = _functions(sent.tools), _functions(received.tools)
    wanted = _answer_form(sent)
    stand_in = [tool["name"] for tool in after if wanted and canonical_json(tool["parameters"]) == wanted]
    if stand_in and stand_in[0] not in [tool["name"] for tool in before]:  # a form that is asked for by a forced tool
        after = [tool for tool in after if tool["name"] != stand_in[0]]
    else:
        stand_in = []
    yield from schema_changes(before, after)
    a, b = _meaning_of(sent), _meaning_of(received)
    told = [name for name in _ORDER if not (stand_in and name in ("tool_choice", "parallel", "form"))]
    for name in (name for name in told if name in a and name in _SAYS[received.wire]):
        if name == "effort" and a[name] is True and not _REASONS.search(received.model or ""):
            continue  # a model that does not think has no effort to be asked for
        if name not in b or not _alike(name, a[name], b[name]):
            gone = "is gone" if name not in b else "has another value"
            yield Violation(_KIND_OF.get(name, "params_changed"), f"{_TITLES.get(name, name)} {gone}")
    for name in (name for name in told if name in b and name not in a and name in _SAYS[sent.wire] - _OWN_DEFAULTS):
        yield Violation(_KIND_OF.get(name, "params_changed"), f"{_TITLES.get(name, name)} was added")
    if received.stream and received.wire == "openai-chat" and not _asks_for_usage(received):
        yield Violation("usage_not_asked", "the client's API tells the usage of every stream, this one where asked")
    if "anthropic" not in (sent.wire, received.wire):
        yield from _among_openai(sent, received)


def _asks_for_usage(request: WireRequest) -> bool:
    return bool(as_dict(request.params.get("stream_options")).get("include_usage"))


#: What chat completions and Responses call by one name.
_SHARED = (
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "top_logprobs",
    "user",
)


def _among_openai(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Settings that only the two APIs of OpenAI have; those that are on or off by default count where they are said."""
    a, b = stated(sent.params), stated(received.params)
    for name in (name for name in _SHARED if name in a):
        if canonical_json(a[name]) != canonical_json(b.get(name)):
            yield Violation("params_changed", _change(name, a, b))
    if _verbosity(a) is not None and _verbosity(a) != _verbosity(b):
        yield Violation("params_changed", f"verbosity {'is gone' if _verbosity(b) is None else 'has another value'}")
    if (strict := _strict_form(a)) != _strict_form(b) and strict:
        yield Violation("response_format_changed", "the form of answer is no longer strict")
    before, after = ({name: _strict(tool) for name, tool in _by_name(one.tools).values()} for one in (sent, received))
    for name in (name for name, told in before.items() if told is not None and name in after and told != after[name]):
        yield Violation("tool_meaning_changed", f"tool {name}: strict is another", name=name)


def _verbosity(params: Mapping[str, Any]) -> Any:
    return params.get("verbosity") or as_dict(params.get("text")).get("verbosity")


def _strict_form(params: Mapping[str, Any]) -> bool:
    chat = as_dict(as_dict(params.get("response_format")).get("json_schema"))
    return bool((chat or as_dict(as_dict(params.get("text")).get("format"))).get("strict"))


def _strict(tool: Any) -> Any:
    held = as_dict(tool)
    return as_dict(held.get("function")).get("strict", held.get("strict"))


_ORDER = ("tool_choice", "parallel", "form", "effort", "temperature", "top_p", "stop", "limit", "stream")
_COMMON = frozenset({"tool_choice", "parallel", "form", "effort", "temperature", "top_p", "limit", "stream"})
#: What each wire has a word for, of what is compared.
_SAYS: dict[str, frozenset[str]] = {
    "openai-chat": _COMMON | {"stop"},
    "openai-responses": _COMMON,
    "anthropic": _COMMON | {"stop"},
}
#: What a translator must make up where the other wire does not go without.
_OWN_DEFAULTS = frozenset({"limit", "effort"})
_KIND_OF = {"tool_choice": "tool_choice_changed", "form": "response_format_changed", "effort": "thinking_changed"}
_TITLES = {
    "parallel": "the flag for parallel tool calls",
    "form": "the form of answer asked for",
    "effort": "the reasoning effort",
    "stop": "a stop sequence",
    "limit": "the limit of the answer",
}


_REASONS = re.compile(r"claude|gemini|deepseek|qwen|(?:^|/)(?:o[1-9]|gpt-(?:[5-9]|oss))")


def _alike(name: str, a: Any, b: Any) -> bool:
    if name == "effort":  # a word on one wire, a budget on the other: that it is asked for counts
        return bool(a) == bool(b) if isinstance(a, bool) or isinstance(b, bool) else a == b
    return canonical_json(a) == canonical_json(b)


def _functions(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Tools that are functions, by name and parameters; a provider's own have no form on another wire."""
    found: list[dict[str, Any]] = []
    for tool in tools:
        made = chat_tool(tool)
        held = made.get("function") if isinstance(made, Mapping) else None
        if isinstance(held, Mapping) and isinstance(held.get("name"), str):
            described = {"description": held["description"]} if held.get("description") else {}
            found.append({"name": held["name"], **described, "parameters": as_dict(held.get("parameters"))})
    return found


def _meaning_of(request: WireRequest) -> dict[str, Any]:
    """Meaning of a request's settings, in words that are no wire's own; what it does not say is left out."""
    params = stated(request.params)
    found: dict[str, Any] = {name: params[name] for name in ("temperature", "top_p") if name in params}
    found |= {"stream": True} if request.stream else {}
    if request.tools:
        found |= {"tool_choice": _chosen(params.get("tool_choice")), "parallel": _parallel(params)}
    elif _chosen(params.get("tool_choice")) not in ("auto", "none"):
        found["tool_choice"] = _chosen(params["tool_choice"])
    stop = params.get("stop", params.get("stop_sequences"))
    if stop:
        found["stop"] = [stop] if isinstance(stop, str) else stop
    limit = next((params[name] for name in _LIMITS if name in params), None)
    found |= {"limit": limit} if limit is not None else {}
    found |= {"form": form} if (form := _answer_form(request)) else {}
    effort = _effort(params)
    return found | ({"effort": effort} if effort else {})


_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


def _chosen(choice: Any) -> Any:
    """`auto`, `none`, `required`, or the names of tools."""
    if choice is None:
        return "auto"
    if not isinstance(choice, Mapping):
        return choice
    kind = as_str(choice.get("type")) or ""
    name = as_dict(choice.get("function")).get("name") or choice.get("name")
    return {"tool": name} if name else {"any": "required"}.get(kind, kind)


def _parallel(params: Mapping[str, Any]) -> bool:
    choice = params.get("tool_choice")
    if isinstance(choice, Mapping) and "disable_parallel_tool_use" in choice:
        return not choice["disable_parallel_tool_use"]
    return params.get("parallel_tool_calls") is not False


def _answer_form(request: WireRequest) -> str | None:
    """The schema that answers must have, as canonical JSON. JSON without a schema is not asked for on every wire."""
    params = request.params
    asked = as_dict(params.get("response_format")) or as_dict(as_dict(params.get("text")).get("format"))
    asked = asked or as_dict(params.get("output_format")) or as_dict(as_dict(params.get("output_config")).get("format"))
    if asked.get("type") != "json_schema":
        return None
    return canonical_json(as_dict(asked.get("json_schema")).get("schema", asked.get("schema")) or {})


def _effort(params: Mapping[str, Any]) -> str | bool | None:
    """The effort asked for, or `True` where a budget stands for it; `None`: nothing is said, or none is asked for."""
    words = (params.get("reasoning_effort"), as_dict(params.get("reasoning")).get("effort"))
    word = next((one for one in (*words, as_dict(params.get("output_config")).get("effort")) if one), None)
    if word is not None:
        return None if word in ("none", "minimal") else str(word)
    if as_dict(params.get("thinking")).get("type") in ("enabled", "adaptive"):
        return True
    return True if as_dict(params.get("reasoning")).get("max_tokens") else None


# Cache marks
# ------------------------------------------------------------------------


def mark_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Changes of cache marks: the places where the prefix may be cached, and the times. A mark stands on a message's
    last part or on one counted from its start. Where the other wire has none, none are lost.
    """
    if sent.wire != received.wire and received.wire != "anthropic":
        return
    back = {j: i for i, j in pairs.items()}
    before = dict(_marks_of(sent, {i: i for i in range(len(sent.messages))}))
    after = dict(_marks_of(received, back))
    for place in before.keys() & after.keys():
        if before[place] != after[place]:
            yield Violation(
                "cache_control_ttl_changed", f"{_where(place)}: {before[place]} → {after[place]}", _index(place)
            )
    lost, added = sorted(before.keys() - after.keys(), key=str), sorted(after.keys() - before.keys(), key=str)
    for place, other in zip(lost, added, strict=False):
        yield Violation("cache_control_moved", f"from {_where(place)} to {_where(other)}", _index(place))
    for place in lost[len(added) :]:
        yield Violation("cache_control_lost", _where(place), _index(place))
    for place in added[len(lost) :]:
        yield Violation("cache_control_added", _where(place), _index(place))


_Place = tuple[str, Any, Any]


def _marks_of(request: WireRequest, back: Pairs) -> Iterator[tuple[_Place, str]]:
    if request.params.get("cache_control"):
        yield ("request", 0, 0), _lifetime(request.params["cache_control"])
    for tool in request.tools:
        if isinstance(tool, Mapping) and tool.get("cache_control"):
            yield ("tool", str(tool.get("name") or tool.get("type")), 0), _lifetime(tool["cache_control"])
    for j, message in enumerate(request.messages):
        for place, part in enumerate(message.parts):
            if part.cache_control:
                step = "last" if place == len(message.parts) - 1 else place
                yield (
                    ("message", back[j], step) if j in back else ("new message", j, step),
                    _lifetime(part.cache_control),
                )


def _lifetime(mark: Any) -> str:
    ttl = mark.get("ttl") if isinstance(mark, Mapping) else None
    return str(ttl or "5m")  # what a mark without one means


def _where(place: _Place) -> str:
    what, which, step = place
    if what == "tool":
        return f"tool {which}"
    if what == "request":
        return "the whole request"
    return f"{what} {which + 1}, {'its last part' if step == 'last' else f'part {step + 1}'}"


def _index(place: _Place) -> int | None:
    return place[1] if place[0] == "message" else None


# Faults of one schema
# ------------------------------------------------------------------------


def schema_faults(wire: str, tools: Sequence[Any], names: str) -> Iterator[tuple[str, str, str]]:
    """Faults of tool definitions that need no other to be seen: (kind, detail, name of the tool). `names`: the pattern
    of names that the wire takes.
    """
    seen: set[str] = set()
    for tool in map(as_dict, tools):
        held = as_dict(tool.get("function")) or tool
        name = as_str(held.get("name"))
        if name is None:
            continue
        told = name[:_NAME_LENGTH]
        if name in seen:
            yield "duplicate_tool_name", f"two tools are called {told}", told
        seen.add(name)
        own = tool.get("type") not in (None, "function", "custom") and "input_schema" not in tool
        if not own and re.search(names, name) is None:
            yield "tool_name_refused", f"tool {told}: the name does not match {names}", told
        schema = held.get("input_schema", held.get("parameters"))
        if isinstance(schema, Mapping):
            yield from ((kind, f"tool {told}: {what}", told) for kind, what in _faults(wire, schema))


def _faults(wire: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if wire == "anthropic" and schema.get("type") != "object":
        yield "schema_not_object", "the top level of its schema is not an object"
    missing, bare = 0, 0
    stack: list[tuple[Any, bool]] = [(schema, False)]
    while stack:
        node, names = stack.pop()
        if isinstance(node, list):
            stack += [(item, False) for item in node]
        elif isinstance(node, Mapping) and names:
            stack += [(value, False) for value in node.values()]
        elif isinstance(node, Mapping):
            missing += _undefined(node)
            bare += node.get("type") == "array" and not (node.keys() & {"items", "prefixItems", "$ref"})
            stack += [(value, key in NAMED) for key, value in node.items() if key not in _LITERAL]
    if missing:
        yield "schema_property_missing", f"{missing} required properties are not defined"
    if bare:
        yield "schema_array_without_items", f"{bare} lists without items"


def _undefined(node: Mapping[str, Any]) -> int:
    """Number of required properties without a definition, where nothing else could define them."""
    properties = node.get("properties")
    if not isinstance(properties, Mapping) or node.keys() & {"allOf", "anyOf", "oneOf", "$ref", "patternProperties"}:
        return 0
    if isinstance(node.get("additionalProperties"), Mapping):
        return 0
    return sum(isinstance(name, str) and name not in properties for name in as_list(node.get("required")))
