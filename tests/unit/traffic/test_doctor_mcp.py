"""`doctor --mcp`: an MCP proxy against the server behind it. The proxy hands lines on, and breaks one thing."""

import json
import shlex
import sys

import pytest

from context_bench.__main__ import main
from context_bench.core.errors import BadInput, Unreachable
from context_bench.traffic.doctor.mcp_checks import examine_mcp, own_command

PROXY = """
import json, subprocess, sys
fault, *server = sys.argv[1:]
behind = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for line in sys.stdin.buffer:
    asked = json.loads(line)
    if fault == "prefix" and asked.get("method") == "tools/call":
        asked["params"]["name"] = asked["params"]["name"].removeprefix("up_")
    if fault == "arguments" and asked.get("method") == "tools/call":
        asked["params"]["arguments"] = json.loads(json.dumps(asked["params"].get("arguments")), parse_int=float)
    behind.stdin.write(json.dumps(asked).encode() + b"\\n")
    behind.stdin.flush()
    if "id" not in asked:
        continue
    reply = json.loads(behind.stdout.readline())
    result, method = reply.get("result", {}), asked["method"]
    if fault == "first content" and method == "resources/read":
        del result["contents"][1:]
    if fault == "one page" and method == "tools/list":
        result.pop("nextCursor", None)
    if fault == "no resources" and method.startswith("resources/"):
        reply = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no such thing"}}
    if fault == "schema" and method == "tools/list":
        for tool in result["tools"]:
            tool["inputSchema"]["properties"].pop("title", None)
    if fault == "resolves" and method == "tools/list":
        for tool in result["tools"]:
            part = tool["inputSchema"].pop("$defs", {}).get("part")
            if part:
                tool["inputSchema"]["properties"]["items"]["items"] = part
    if fault == "roles" and method == "prompts/get":
        for turn in result["messages"]:
            turn["role"] = "user"
    if fault == "hides errors" and method == "tools/call":
        result.pop("isError", None)
    if fault == "prefix" and method == "tools/list":
        for tool in result["tools"]:
            tool["name"] = "up_" + tool["name"]
    sys.stdout.write(json.dumps(reply) + "\\n")
    sys.stdout.flush()
"""


@pytest.fixture
def examined(tmp_path):
    program = tmp_path / "proxy.py"
    program.write_text(PROXY)

    async def found(fault, behind=None):
        front = shlex.join([sys.executable, str(program), fault])
        findings = await examine_mcp(f"{front} {behind or '{behind}'}", behind)
        return {finding.name: finding for finding in findings}

    return found


@pytest.mark.parametrize("fault", ["none", "prefix", "resolves"])
async def test_a_proxy_that_hands_all_of_it_on_is_found_to(examined, fault):
    found = await examined(fault)
    assert {name: finding.status for name, finding in found.items()} == dict.fromkeys(
        [
            *("tools", "tools: answers", "resources", "resources: answers"),
            *("resource templates", "prompts", "prompts: answers"),
        ],
        "ok",
    ), found
    assert found["tools"].detail.startswith("26 ")


@pytest.mark.parametrize(
    ("fault", "name", "detail"),
    [
        ("first content", "resources: answers", "memo://three: answer.contents has 1 of 3 entries"),
        ("one page", "tools", "16 of 26 differ"),
        ("no resources", "resources", "4 are behind the proxy, which does not list them"),
        ("schema", "tools", "echo: inputSchema.properties.title is absent"),
        ("arguments", "tools: answers", "echo: answer.content.0.text is "),
        ("roles", "prompts: answers", 'two_turns: answer.messages.1.role is "user", was "assistant"'),
        ("hides errors", "tools: answers", "an_error: answer.isError is "),
    ],
)
async def test_what_a_proxy_loses_is_shown_with_both_sides(examined, fault, name, detail):
    found = await examined(fault)
    assert found[name].status == "fail"
    assert detail in found[name].detail
    others = {other for other, finding in found.items() if finding.status == "fail"} - {name}
    assert others <= {"resource templates"}, found


async def test_tools_of_a_server_of_the_users_are_not_called_unless_they_only_read(examined):
    found = await examined("none", own_command())
    assert "tools: answers" not in found
    assert found["resources: answers"].status == "ok"


async def test_what_cannot_be_asked_is_said(tmp_path):
    with pytest.raises(BadInput, match=r"does not say \{behind\}"):
        await examine_mcp("some-proxy")
    with pytest.raises(Unreachable, match="--mcp: no session with"):
        await examine_mcp(f"{tmp_path}/no-such-program {{behind}}")


def test_one_thing_is_examined_at_a_time(capsys):
    for line, found in (([], "found none"), (["--mcp", "a", "--proxy", "b"], "found --proxy and --mcp")):
        assert main(["doctor", *line]) == 2
        assert found in capsys.readouterr().err


def test_the_command_tells_findings_as_json(capsys, tmp_path):
    program = tmp_path / "proxy.py"
    program.write_text(PROXY)
    front = shlex.join([sys.executable, str(program), "first content"])
    assert main(["doctor", "--mcp", front + " {behind}", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in findings if each["status"] == "fail"] == ["resources: answers"]
