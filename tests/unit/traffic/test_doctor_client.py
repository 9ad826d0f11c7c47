"""`doctor --command`: a client that reads what it is sent is found to, and each careless one by its case."""

import json
import shlex
import sys

import pytest

from context_bench.__main__ import main
from context_bench.core.errors import BadInput
from context_bench.traffic.doctor.client_checks import CASES, examine_client

#: A small client of chat completions. Its faults are those of shipped ones.
CLIENT = """
import json, os, sys, urllib.request
fault = sys.argv[1]
assert "SECRET_TOKEN" not in os.environ and os.environ["OPENAI_API_KEY"] == "context-bench-dummy-key"
schema = {"type": "object", "properties": {"place": {"type": "string"}, "code": {"type": "integer"}}}
tool = {"type": "function", "function": {"name": "open_gate", "parameters": {**schema, "required": ["place", "code"]}}}
turns = [{"role": "user", "content": "What is the gate code?"}]

def asked(stream):
    body = {"model": "m", "messages": turns, "stream": stream}
    if fault != "no tools":
        body["tools"] = [tool]
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=10)

def streamed():
    text, calls, finish = "", {}, None
    with asked(True) as reply:
        for line in reply:
            line = line.decode("utf-8").strip()
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[6:])
            if "error" in event:
                if fault == "ignores errors":
                    return text or "…", calls
                raise SystemExit("the provider sent an error")
            choice = event["choices"][0]
            text += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
            for call in choice["delta"].get("tool_calls") or ():
                key = call["index"] if fault == "by index" else call.get("id") or list(calls)[-1]
                made = calls.setdefault(key, {"id": call.get("id"), "name": "", "arguments": ""})
                made["name"] = call["function"].get("name") or made["name"]
                if fault == "drops packed" and call.get("id") and call["function"].get("arguments"):
                    continue
                made["arguments"] += call["function"].get("arguments") or ""
    if finish is None and fault != "believes any end":
        raise SystemExit("the stream broke off")
    return text, calls

if fault == "notes of its own":
    turns[0]["timestamp"] = 1.5
if fault == "asks nobody":
    raise SystemExit
if fault == "silent":
    asked(False).read()
    raise SystemExit
if fault == "plain":
    message = json.load(asked(False))["choices"][0]["message"]
    made = message.get("tool_calls") or ()
    text, calls = message["content"], {each["id"]: {"id": each["id"], **each["function"]} for each in made}
else:
    text, calls = streamed()
if calls and fault != "shows calls":
    made = [{"id": each["id"], "type": "function", "function": {"name": each["name"], "arguments": each["arguments"]}}
            for each in calls.values()]
    turns += [{"role": "assistant", "content": None, "tool_calls": made}]
    turns += [{"role": "tool", "tool_call_id": each["id"], "content": "open"} for each in made]
    text, _ = streamed() if fault != "plain" else (json.load(asked(False))["choices"][0]["message"]["content"], 0)
print(json.dumps([text, [json.loads(each["arguments"] or "{}") for each in calls.values()]]))
"""


@pytest.fixture
def examined(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "not for clients")
    program = tmp_path / "client.py"
    program.write_text(CLIENT)

    async def found(fault, **more):
        findings = await examine_client(shlex.join([sys.executable, str(program), fault]), **more)
        return {finding.name: finding for finding in findings}

    return found


def statuses(found, *wanted):
    return {name for name, finding in found.items() if finding.status in wanted}


@pytest.mark.parametrize("manner", ["executes calls", "shows calls"])
async def test_a_client_that_reads_all_of_it_is_found_to(examined, manner):
    found = await examined(manner)
    assert list(found) == [*(case.name for case in CASES), "requests"]
    assert statuses(found, "ok") == set(found), found


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        ("believes any end", {"stream that breaks off", "calls: stream that breaks off"}),
        ("by index", {"calls: one index twice", "requests"}),  # which then hold what was made of it
        ("drops packed", {"calls: packed arguments", "requests"}),
        ("ignores errors", {"error in the stream"}),
        ("notes of its own", {"requests"}),
    ],
)
async def test_a_careless_client_is_found_by_its_case(examined, fault, failed):
    found = await examined(fault)
    assert statuses(found, "fail", "warn") == failed, found
    assert any(found[name].status == "fail" for name in failed)


async def test_what_a_client_does_not_do_cannot_be_asked(examined):
    found = await examined("plain")
    assert statuses(found, "ok") == {"whole reply", "error status", "calls", "requests"}
    assert statuses(found, "unknown") == set(found) - {"whole reply", "error status", "calls", "requests"}
    found = await examined("no tools")
    assert statuses(found, "unknown") == {case.name for case in CASES if case.tools}


async def test_a_client_that_does_not_ask_or_answer_is_told_what_to_do(examined):
    found = await examined("asks nobody")
    assert list(found) == ["whole reply"]
    assert "asked nothing of the address" in found["whole reply"].detail
    found = await examined("silent")
    assert "not on standard output" in found["whole reply"].detail
    assert "exit code 0" in found["whole reply"].advice
    with pytest.raises(BadInput, match="cannot be started"):
        await examine_client("/nowhere/client")


def test_the_command_ends_with_1_where_a_broken_reply_counts_as_finished(tmp_path, capsys):
    program = tmp_path / "client.py"
    program.write_text(CLIENT)
    command = shlex.join([sys.executable, str(program), "believes any end"])
    assert main(["doctor", "--command", command, "--json"]) == 1
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert "a broken reply counts as a finished one; exit code 0" in found["stream that breaks off"]["detail"]
