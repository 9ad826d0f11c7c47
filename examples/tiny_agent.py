"""A coding agent in sixty lines: asks a model, runs the bash blocks of its replies, stops when it says SUBMIT.

    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 python examples/tiny_agent.py "Mend the off-by-one in pages.py"

Without an argument the task is read from stdin. It works in the current folder, with no walls of its own: run it
through `context-bench agent`, which puts it into a sandbox. Also read: OPENAI_API_KEY, MODEL, STEP_LIMIT. Standard
library only.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request

RULES = """You work in a git repository, through a shell. Reply with exactly one block of commands:

```bash
commands
```

You get their output (the first and last 5,000 characters) and go on. When the task is done, reply with the word SUBMIT alone on a
line and no block."""  # noqa: E501
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)


def ask(messages: list[dict[str, str]]) -> str:
    """The model's next reply."""
    base = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1").rstrip("/")
    body = json.dumps({"model": os.environ.get("MODEL", "scripted"), "messages": messages, "temperature": 0}).encode()
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}",
    }
    request = urllib.request.Request(f"{base}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)["choices"][0]["message"]["content"] or ""


def run(commands: str) -> str:
    """What the commands print, and how they ended."""
    try:
        done = subprocess.run(
            ["bash", "-c", commands], capture_output=True, timeout=120, stdin=subprocess.DEVNULL, check=False
        )
        output, end = (done.stdout + done.stderr).decode("utf-8", "replace"), f"exit status {done.returncode}"
    except subprocess.TimeoutExpired:
        output, end = "", "stopped after 120 seconds"
    if len(output) > 10_000:
        output = f"{output[:5000]}\n[{len(output) - 10_000} characters left out]\n{output[-5000:]}"
    return f"{output}\n[{end}]"


def main() -> int:
    """Exit status: 0 when the model submitted, 1 when it ran out of steps."""
    task = " ".join(sys.argv[1:]) or sys.stdin.read()
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": task}]
    for step in range(1, int(os.environ.get("STEP_LIMIT", "30")) + 1):
        reply = ask(messages)
        print(f"--- step {step}\n{reply}", flush=True)
        found = BLOCK.search(reply)
        if not found and re.search(r"^SUBMIT\s*$", reply, re.MULTILINE):
            return 0
        output = (
            run(found[1])
            if found
            else "[no block of commands was found; reply with one, or with SUBMIT alone on a line]"
        )
        print(output, flush=True)
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": output}]
    return 1


if __name__ == "__main__":
    sys.exit(main())
