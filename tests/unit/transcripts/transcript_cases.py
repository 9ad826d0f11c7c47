"""Logs of the formats that are read as transcripts, in the structure in which the programs write them, with texts of
our own.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

CALC = (
    "import os\n\n\ndef subtotal(items):\n    total = 0.0\n    for item in items:\n        total += item\n    "
    "return total\n"
)
REPO = {"src/calc.py": {"text": CALC}, "src/util.py": {"text": "def helper(value):\n    return value\n"}}
BEGAN = 1767323040000


def step(number: int, *parts: dict[str, Any], parent: str = "msg_01", **more: Any) -> dict[str, Any]:
    """A reply of opencode's model, 1 second after the one before it: 600 new tokens, 400 from the cache."""
    tokens = {"total": 1075, "input": 500, "output": 50, "reasoning": 25, "cache": {"read": 400, "write": 100}}
    finish = {"type": "step-finish", "reason": "tool-calls", "tokens": tokens, "cost": 0.01, "snapshot": "s"}
    info = {
        "id": f"msg_{number:02}",
        "role": "assistant",
        "parentID": parent,
        "agent": "build",
        "path": {"cwd": "/ws/demo", "root": "/ws/demo"},
        "cost": 0.01,
        "tokens": tokens,
        "modelID": "claude-sonnet-4-5",
        "providerID": "anthropic",
        "time": {"created": BEGAN + number * 1000, "completed": BEGAN + number * 1000 + 500},
        "finish": "tool-calls",
        **more,
    }
    return {"info": info, "parts": [{"type": "step-start", "snapshot": "s"}, *parts, finish]}


def tool(ident: str, name: str, given: dict[str, Any], at: int, output: str = "", **state: Any) -> dict[str, Any]:
    """A call of a tool with its result, as a part."""
    time = {"start": BEGAN + at * 1000 + 100, "end": BEGAN + at * 1000 + 200, **state.pop("time", {})}
    body = {
        "status": "completed",
        "input": given,
        "output": output,
        "title": name,
        "metadata": {"truncated": False},
        "time": time,
        **state,
    }
    return {"type": "tool", "tool": name, "callID": ident, "state": body}


def said(number: int, *parts: dict[str, Any]) -> dict[str, Any]:
    """A message of the user's."""
    model = {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}
    info = {
        "id": f"msg_{number:02}",
        "role": "user",
        "time": {"created": BEGAN + number * 1000},
        "agent": "build",
        "model": model,
    }
    return {"info": info, "parts": list(parts)}


NUMBERED = (
    "<path>/ws/demo/src/calc.py</path>\n<type>file</type>\n<content>\n4: def subtotal(items):\n5:     "
    "total = 0.0\n</content>"
)
THOUGHT = {
    "type": "reasoning",
    "text": "First look.",
    "metadata": {"anthropic": {"signature": "c2lnbmVk"}},
    "time": {"start": 1, "end": 2},
}
MAIN = {
    "id": "ses_main",
    "slug": "a-b",
    "projectID": "p",
    "directory": "/ws/demo",
    "title": "Fix it",
    "version": "1.18.33",
}
MAIN_MESSAGES = [
    said(
        1,
        {"type": "text", "text": "Fix subtotal."},
        {"type": "file", "mime": "text/plain", "url": "file:///ws/demo/notes.txt"},
    ),
    step(
        2,
        THOUGHT,
        {"type": "text", "text": "I look."},
        tool("t1", "read", {"filePath": "/ws/demo/src/calc.py", "offset": 3}, 2, NUMBERED),
    ),
    step(
        3,
        tool(
            "t2",
            "bash",
            {"command": "cat nowhere.py"},
            3,
            "cat: nowhere.py: No such file or directory\n",
            metadata={"exit": 1},
        ),
        tool("t3", "task", {"prompt": "Look at util.", "subagent_type": "general"}, 3, "Seen."),
    ),
    step(
        4,
        tool(
            "t4",
            "edit",
            {"filePath": "/ws/demo/src/calc.py", "oldString": "    total = 0.0", "newString": "    total = 0"},
            7,
            "Edit applied successfully.",
            metadata={"diff": "--- a\n+++ b\n@@ -5,1 +5,1 @@\n-    total = 0.0\n+    total = 0\n"},
        ),
        tool(
            "t5", "read", {"filePath": "/ws/demo/gone.py"}, 7, status="error", error="File not found: /ws/demo/gone.py"
        ),
        time={"created": BEGAN + 7000},
    ),
    step(5, {"type": "text", "text": "Done."}, finish="stop", time={"created": BEGAN + 9000}),
]
HELPER = {**MAIN, "id": "ses_helper", "parentID": "ses_main", "title": "look (@general subagent)"}
HELPER_MESSAGES = [
    said(4, {"type": "text", "text": "Look at util."}),
    step(
        5,
        tool("h1", "read", {"filePath": "/ws/demo/src/util.py"}, 5, "1: def helper(value):\n2:     return value"),
        parent="msg_04",
    ),
    step(6, {"type": "text", "text": "Seen."}, parent="msg_04", finish="stop"),
]
OPENCODE_SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL, directory text NOT NULL,
  title text NOT NULL, version text NOT NULL, cost real DEFAULT 0 NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL,
  data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
"""  # noqa: E501


def export(info: dict[str, Any], messages: list[dict[str, Any]]) -> str:
    """What `opencode export` prints."""
    return json.dumps({"info": {**info, "time": {"created": BEGAN, "updated": BEGAN}}, "messages": messages}, indent=2)


def database(path: Path, *sessions: tuple[dict[str, Any], list[dict[str, Any]]]) -> sqlite3.Connection:
    """opencode's database with these sessions, open and in the mode in which the program keeps it."""
    base = sqlite3.connect(path)
    base.execute("PRAGMA journal_mode = WAL")
    base.executescript(OPENCODE_SCHEMA)
    for order, (info, messages) in enumerate(sessions):
        row = (
            info["id"],
            "p",
            info.get("parentID"),
            info["slug"],
            info["directory"],
            info["title"],
            info["version"],
            0.0,
            BEGAN + order,
            0,
        )
        base.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        for message in messages:
            data = {name: value for name, value in message["info"].items() if name != "id"}
            ident = f"{info['id']}-{message['info']['id']}"
            when = message["info"]["time"]["created"]
            base.execute("INSERT INTO message VALUES (?, ?, ?, 0, ?)", (ident, info["id"], when, json.dumps(data)))
            for number, part in enumerate(message["parts"]):
                key = f"prt_{ident}_{number:03}"
                base.execute("INSERT INTO part VALUES (?, ?, ?, 0, 0, ?)", (key, ident, info["id"], json.dumps(part)))
    base.commit()
    return base


SHOWN = json.dumps(
    {"output": "def subtotal(items):\n    total = 0.0\n", "metadata": {"exit_code": 0, "duration_seconds": 0.1}}
)
CODEX_HEAD = {
    "id": "5973b6c0-0000-4000-8000-000000000001",
    "timestamp": "2025-08-20T08:00:00.000Z",
    "instructions": "Be brief.",
    "git": {
        "commit_hash": "0123456789abcdef0123456789abcdef01234567",
        "branch": "main",
        "repository_url": "https://example.org/demo.git",
    },
}


def codex_said(role: str, words: str) -> dict[str, Any]:
    """A message of a bare rollout."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "id": None, "role": role, "content": [{"type": kind, "text": words}]}


CODEX_ITEMS: list[dict[str, Any]] = [
    codex_said(
        "user",
        "<environment_context>\n  <cwd>/ws/demo</cwd>\n  "
        "<sandbox_mode>read-only</sandbox_mode>\n</environment_context>",
    ),
    codex_said("user", "Fix subtotal."),
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Look first."}],
        "encrypted_content": "abc",
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "name": "shell",
        "arguments": json.dumps({"command": ["bash", "-lc", "sed -n '4,5p' src/calc.py"]}),
        "call_id": "call_1",
    },
    {"type": "function_call_output", "call_id": "call_1", "output": SHOWN},
    codex_said("assistant", "Done."),
]
CODEX_BARE = [CODEX_HEAD, {"record_type": "state"}, *CODEX_ITEMS[:2], {"record_type": "state"}, *CODEX_ITEMS[2:]]

AIDER = """
# aider chat started at 2026-01-02 03:04:05

> /usr/bin/aider --model openai/gpt-4.1 --edit-format diff src/calc.py\x20\x20
> Aider v0.86.2\x20\x20
> Main model: openai/gpt-4.1 with diff edit format\x20\x20
> Git repo: .git with 3 files\x20\x20
> Added src/calc.py to the chat.\x20\x20

#### /read-only src/util.py\x20\x20
> Added /ws/demo/src/util.py to read-only files.\x20\x20

#### /run ls src\x20\x20
> Add 0.0k tokens of command output to the chat? (Y)es/(N)o [Yes]: y\x20\x20
> Added 3 lines of output to the chat.\x20\x20

#### Make the total whole.\x20\x20
#### And say why.\x20\x20

It starts as a float.

> a quotation, which is no word of the program

src/calc.py
```python
<<<<<<< SEARCH
    total = 0.0
=======
    total = 0
>>>>>>> REPLACE
```

src/calc.py
```python
<<<<<<< SEARCH
    nothing = 1
=======
    nothing = 2
>>>>>>> REPLACE
```

> Tokens: 2.5k sent, 1.2k cache write, 300 cache hit, 62 received. Cost: $0.0055 message, $0.0055 session.\x20\x20
> The LLM did not conform to the edit format.\x20\x20
> # 1 SEARCH/REPLACE block failed to match!

## SearchReplaceNoExactMatch: This SEARCH block failed to exactly match lines in src/calc.py
<<<<<<< SEARCH
    nothing = 1
=======
    nothing = 2
>>>>>>> REPLACE

# The other 1 SEARCH/REPLACE block were applied successfully.
Just reply with fixed versions of the block above that failed to match.\x20\x20
> Commit 7fe06b8 fix: total

in two lines\x20\x20

src/new.py
```python
X = 1
```

> Tokens: 3.1k sent, 20 received. Cost: $0.0061 message, $0.01 session.\x20\x20
> src/new.py\x20\x20
> Create new file? (Y)es/(N)o [Yes]: y\x20\x20
> Applied edit to src/new.py\x20\x20

# aider chat started at 2026-01-02 04:00:00

> Aider v0.86.2\x20\x20

#### /exit\x20\x20

# aider chat started at 2026-01-02 05:00:00

> Aider v0.86.2\x20\x20
> Model: claude-sonnet-4-5 with ask edit format\x20\x20

#### Look at util.\x20\x20

I need to see src/util.py.

> Tokens: 900 sent, 10 received.\x20\x20
> src/util.py\x20\x20
> Add file to the chat? (Y)es/(N)o/(D)on't ask again [Yes]: y\x20\x20

It gives its value back.

> Tokens: 950 sent, 12 received.\x20\x20
"""


def window(first: int, *lines: str, path: str = "/testbed/src/calc.py", total: int = 8) -> str:
    """What SWE-agent's editor shows."""
    above = [f"({first - 1} more lines above)"] if first > 1 else []
    below = [f"({total - first - len(lines) + 1} more lines below)"] if first + len(lines) - 1 < total else []
    numbered = [f"{number}:{line}" for number, line in enumerate(lines, first)]
    return "\n".join([f"[File: {path} ({total} lines total)]", *above, *numbered, *below])


def swe_step(action: str, observation: str, thought: str = "", **more: Any) -> dict[str, Any]:
    """A step of SWE-agent's trajectory."""
    state = {"open_file": "n/a", "working_dir": "/testbed"}
    return {
        "action": action,
        "observation": observation,
        "thought": thought,
        "response": thought,
        "state": state,
        "execution_time": 0,
        **more,
    }


HISTORY = [
    {"role": "system", "content": "You work in a shell.", "agent": "main", "message_type": "system_prompt"},
    {
        "role": "user",
        "content": "An example: open a file.",
        "agent": "main",
        "is_demo": True,
        "message_type": "demonstration",
    },
    {
        "role": "user",
        "content": [{"type": "text", "text": "Fix subtotal."}],
        "agent": "main",
        "message_type": "observation",
    },
]
LINES = CALC.split("\n")
TRAJECTORY = [
    swe_step("open src/calc.py 4", window(4, *LINES[3:8]), "I open it."),
    swe_step(
        "edit 5:5\n    total = 0\nend_of_edit",
        "File updated. Please review the changes and make sure they are correct.\n"
        + window(4, LINES[3], "    total = 0", *LINES[5:8]),
        "I mend it.",
    ),
]
SWE_AGENT = {
    "environment": "swe_main",
    "trajectory": TRAJECTORY,
    "history": HISTORY,
    "info": {"submission": "diff --git a/x b/x\n"},
}
