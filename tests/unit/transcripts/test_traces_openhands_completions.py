"""Layouts of one run beside its trajectory: OpenHands' requests one by one, and SWE-agent's lists of what was looked
at.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from context_bench.core.errors import BadInput
from context_bench.transcripts.traces import load_traces

TOOLS = [{"type": "function", "function": {"name": "execute_bash", "description": "A persistent shell."}}]
VIEW = {"command": "view", "path": "/workspace/demo/src/calc.py", "view_range": [8, 12]}
SHOWN = "Here's the result of running `cat -n` on /workspace/demo/src/calc.py:\n" + "".join(
    f"{n:6d}\tline {n}\n" for n in range(8, 13)
)
RUN = {"command": "sed -n 3,4p src/util.py"}


def said(ident: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": ident, "type": "function", "function": function}]}


def result(ident: str, name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "name": name, "content": [{"type": "text", "text": text}]}


def written(folder: Path, *, mocked: bool = False) -> Path:
    """Three requests of one run, and one of the condenser's."""
    talk = [
        {"role": "system", "content": [{"type": "text", "text": "You are an agent."}]},
        {"role": "user", "content": [{"type": "text", "text": "Repair it."}]},
    ]
    answers = [
        said("a", "str_replace_editor", VIEW),
        said("b", "execute_bash", RUN),
        {"role": "assistant", "content": "Done."},
    ]
    results = [
        result("a", "str_replace_editor", SHOWN),
        result(
            "b",
            "execute_bash",
            "x\ny\n[The command completed with exit code 0.]\n[Current working directory: /workspace/demo]",
        ),
    ]
    folder.mkdir(parents=True)
    for number, answer in enumerate(answers):
        usage = {
            "prompt_tokens": 100 * (number + 1),
            "completion_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 50 * number},
        }
        response = {"id": f"r{number}", "model": "m-1", "choices": [{"message": answer}], "usage": usage}
        row: dict[str, Any] = {"messages": talk, "response": response, "args": [], "kwargs": {"tools": TOOLS}}
        if mocked:
            plain = {"choices": [{"message": {"role": "assistant", "content": "<function=execute_bash>"}}]}
            row = {**row, "messages": [{"role": "user", "content": "as text"}], "response": plain}
            row |= {"fncall_messages": talk, "fncall_response": response}
        row |= {"timestamp": 1700000000.5 + number, "cost": 0.25}
        # names do not sort as numbers do
        (folder / f"openai__m-1-{1699999999.5 + number}.json").write_text(json.dumps(row))
        talk = [*talk, answer, *results[number : number + 1]]
    other = {
        "messages": [{"role": "user", "content": "Sum up."}],
        "response": {"choices": []},
        "kwargs": {},
        "cost": 9.0,
    }
    (folder / "openai__m-1-1700000009.25.json").write_text(json.dumps(other))
    (folder / "openai__m-1-1700000010.25.json").write_text("torn {")
    return folder


@pytest.mark.parametrize("mocked", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_of_requests_is_one_run(mocked: bool, inside: bool, tmp_path: Path) -> None:
    folder = written(tmp_path / "llm_completions" / "demo__demo-1", mocked=mocked)
    (trace,) = load_traces(folder if inside else tmp_path)
    assert (trace.instance_id, trace.agent, trace.model) == ("demo__demo-1", "openhands", "m-1")
    assert [(event.path, event.ranges) for event in trace.events if event.kind == "read"] == [
        ("src/calc.py", ((8, 12),)),
        ("src/util.py", ((3, 4),)),
    ]
    assert trace.cost == 0.75
    assert trace.usage is not None
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.usage.cache_read) == (600, 30, 150)
    assert trace.step_count == 2
    assert trace.skipped == {"requests of another conversation": 1, "not JSON": 1}


def test_the_sdk_names_its_files_otherwise_and_logs_failures(tmp_path: Path) -> None:
    folder = written(tmp_path / "demo__demo-1")
    for path in sorted(folder.iterdir()):
        if "1700000009" in path.name or "1700000010" in path.name:
            path.unlink()
            continue
        row = json.loads(path.read_text())
        row |= {
            "llm_path": "chat",
            "tools": row["kwargs"].pop("tools"),
            "latency_sec": 1.5,
            "context_window": 4096,
            "usage_summary": {},
        }
        del row["args"]
        path.unlink()
        (folder / f"{path.stem}-9d0a.json").write_text(json.dumps(row))
    failed = {
        "llm_path": "chat",
        "messages": [],
        "kwargs": {},
        "error": {"type": "ValueError"},
        "cost": 0.0,
        "timestamp": 1700000003.0,
    }
    (folder / "openai__m-1-1700000003.000-00ff-error.json").write_text(json.dumps(failed))
    (trace,) = load_traces(tmp_path)
    assert [event.path for event in trace.events if event.kind == "read"] == ["src/calc.py", "src/util.py"]
    assert (trace.instance_id, trace.cost, trace.step_count) == ("demo__demo-1", 0.75, 2)
    assert trace.skipped == {"a request that was not answered": 1}


def test_the_sdk_on_the_responses_wire(tmp_path: Path) -> None:
    folder = tmp_path / "demo__demo-1"
    folder.mkdir()
    call = {"type": "function_call", "call_id": "a", "name": "str_replace_editor", "arguments": json.dumps(VIEW)}
    asked: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Repair it."}]}
    ]
    done = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    for number, output in enumerate([[call], [done]]):
        usage = {"input_tokens": 100, "output_tokens": 10, "input_tokens_details": {"cached_tokens": 20}}
        row = {
            "llm_path": "responses",
            "instructions": "You are an agent.",
            "input": asked,
            "tools": TOOLS,
            "kwargs": {},
            "cost": 0.5,
        }
        row |= {
            "response": {"id": f"r{number}", "model": "m-2", "output": output, "usage": usage},
            "timestamp": 1700000000.0 + number,
        }
        (folder / f"m-2-{1700000000 + number}.000-00f{number}.json").write_text(json.dumps(row))
        asked = [*asked, call, {"type": "function_call_output", "call_id": "a", "output": SHOWN}]
    (trace,) = load_traces(tmp_path)
    assert [(event.path, event.ranges) for event in trace.events if event.kind == "read"] == [
        (VIEW["path"], ((8, 12),))
    ]
    assert (trace.instance_id, trace.model, trace.cost) == ("demo__demo-1", "m-2", 1.0)
    assert trace.usage is not None
    assert (trace.usage.input_tokens, trace.usage.cache_read) == (200, 40)


def test_the_last_request_alone_tells_the_run_too(tmp_path: Path) -> None:
    folder = written(tmp_path / "demo__demo-1")
    (trace,) = load_traces(folder / "openai__m-1-1700000001.5.json")
    assert [event.path for event in trace.events if event.kind == "read"] == ["src/calc.py", "src/util.py"]


LISTED = {
    "instance_id": "demo__demo-1",
    "viewed_files": ["/testbed/src/calc.py", "/testbed/README.md"],
    "edited_files": ["/testbed/src/calc.py"],
    "file_line_ranges": {
        "/testbed/src/calc.py": [{"start": 8, "end": 12, "type": "view"}, {"start": 15, "end": 16}, {"start": "x"}]
    },
}


def test_lists_of_what_was_looked_at(tmp_path: Path) -> None:
    (tmp_path / "demo__demo-1.context.json").write_text(json.dumps(LISTED, indent=1))
    (trace,) = load_traces(tmp_path)
    assert trace.instance_id == "demo__demo-1"
    assert trace.final is not None
    assert [(event.path, event.ranges, event.strength) for event in trace.final] == [
        ("src/calc.py", ((8, 12), (15, 16)), "claimed"),
        ("README.md", None, "claimed"),
    ]
    assert [(event.kind, event.path) for event in trace.events] == [("edit", "src/calc.py")]


def test_the_same_in_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "demo__demo-1.patch_context.txt"
    path.write_text("File: /testbed/src/calc.py\nLines: 8-12\nFile: /testbed/src/calc.py\nLines: 15-16\n")
    for place in (path, tmp_path):
        (trace,) = load_traces(place)
        assert trace.instance_id == "demo__demo-1"
        assert trace.final is not None
        assert [(event.path, event.ranges) for event in trace.final] == [("src/calc.py", ((8, 12), (15, 16)))]
    other = tmp_path / "patch_context.txt"
    other.write_text("nothing of the kind\n")
    with pytest.raises(BadInput, match="not a trace"):
        list(load_traces(other))
