"""What a request is for within its session, by what its client says and by its shape."""

import pytest

from context_bench.core.records import Forwarded
from context_bench.tap.exchange import UNMATCHED, Exchange
from context_bench.traffic.watch.session_context import Contexts
from context_bench.wire.apis import parse_request, wire_of

TOOLS = [{"type": "function", "name": "shell"}]


def context(contexts, body, headers=(), path="/v1/responses", **facts):
    exchange = Exchange(1, "1", "POST", path, list(headers), UNMATCHED, 0.0, 0.0)
    exchange.record = Forwarded("1", None, "none", wire_of("POST", path), "POST", path, 0.0, status=200, facts=facts)
    return contexts.of(exchange, parse_request(wire_of("POST", path), body))


def test_agents_are_numbered_as_they_appear():
    contexts = Contexts()
    main = {"input": "a", "tools": TOOLS}
    codex = [("X-OpenAI-Subagent", "collab_spawn")]
    assert context(contexts, main) == "main"
    assert context(contexts, main, [("X-Claude-Code-Agent-Id", "a1")]) == "sub-agent 1"
    assert context(contexts, main, [*codex, ("thread-id", "t1")]) == "sub-agent 2"
    assert context(contexts, main, [*codex, ("thread-id", "t2")]) == "sub-agent 3"
    assert (
        context(contexts, {**main, "client_metadata": {"x-openai-subagent": "collab_spawn", "thread_id": "t1"}})
        == "sub-agent 2"
    )
    assert context(contexts, {"input": "a"}, [("x-claude-code-agent-id", "a1")]) == "sub-agent 1"
    opencode = [("x-parent-session-id", "ses_1"), ("x-session-id", "ses_2")]
    assert context(contexts, main, opencode) == "sub-agent 4"
    assert (
        context(contexts, {**main, "client_metadata": {"x-openai-subagent": 7}}, [("x-claude-code-agent-id", "")])
        == "main"
    )


@pytest.mark.parametrize(
    ("body", "path", "expected"),
    [
        ({"max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}, "/v1/messages", "quota probe"),
        ({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}] * 2}, "/v1/messages", "main"),
        ({"system": "Write a Title for it", "messages": [{"role": "user", "content": "x"}]}, "/v1/messages", "title"),
        ({"messages": [{"role": "user", "content": "a title, please"}]}, "/v1/messages", "main"),
        ({"instructions": "entitled", "input": "x"}, "/v1/responses", "main"),
        ({"instructions": "A title.", "input": "x", "tools": TOOLS}, "/v1/responses", "main"),
    ],
)
def test_by_the_shape_of_the_first_request(body, path, expected):
    assert context(Contexts(), body, path=path) == expected


def test_requests_without_tools_beside_an_agent_that_has_them():
    contexts = Contexts()
    assert context(contexts, {"input": "a"}) == "main"
    assert context(contexts, {"input": "a", "tools": TOOLS}) == "main"
    assert context(contexts, {"input": "a"}) == "without tools"
    assert context(contexts, {"input": "a"}, warm_up=True) == "warm-up"


def test_names_are_bounded():
    contexts = Contexts()
    names = {context(contexts, {"input": "a"}, [("x-claude-code-agent-id", str(i))]) for i in range(1_100)}
    assert len(names) == 1_001
    assert "sub-agent" in names
