"""What compactions lost, told from logs: recall and false claims on compactions that real clients made.

Claude Code and Codex run offline against a scripted provider (`make vendors` installs them). The scenes of
`compactions.toml` say what they do, what their summary says, and which facts that loses. The logs they leave are read
and audited; a claim is a loss that the audit says was needed.

    python benchmarks/compactions.py [SCENE …] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.clients import playing  # noqa: E402

from context_bench.compression.recorded import audit  # noqa: E402
from context_bench.compression.session_rules.losses import Loss  # noqa: E402
from context_bench.core.tokens import counter_for  # noqa: E402
from context_bench.llm.servers import ModelServer  # noqa: E402
from context_bench.transcripts import read_sessions  # noqa: E402

SCENES = Path(__file__).with_suffix(".toml")
_CLAUDE_SUMMARY = "(?i)create a detailed summary|summary of the conversation"
_CODEX_SUMMARY = "(?i)context checkpoint compaction|handoff summary"
_SESSION = "11111111-2222-4333-8444-555555555555"
_LIMIT = 12_000


def calls(client: playing.Client, step: Sequence[str], number: int) -> list[dict[str, Any]]:
    """The calls of one reply, by the client's own tools."""
    made = []
    for place, word in enumerate(step):
        kind, _, rest = word.partition(" ")
        if kind == "edit":
            path, old, new = rest.split("|")
            given = {"file_path": path, "old_string": old, "new_string": new}
            made.append({"name": "Edit", "id": f"call_{number}_{place}", "arguments": given})
        else:
            made += [{**call, "id": f"call_{number}_{place}"} for call in client.calls(word, step=number)]
    return made


def rules(scene: Mapping[str, Any], client: playing.Client) -> list[dict[str, Any]]:
    """The scripted model's replies, each given once, in order; the summary when it is asked for."""
    asked = _CODEX_SUMMARY if scene["client"] == "codex" else _CLAUDE_SUMMARY
    said = scene["summary"] if scene["client"] == "codex" else f"<summary>{scene['summary']}</summary>"
    found: list[dict[str, Any]] = [{"when": {"last": asked}, "text": said}]
    number = 0
    for turn in [*scene["before"], *scene["after"]]:
        for step in turn["steps"]:
            found.append({"times": 1, "text": "I look.", "tool_calls": calls(client, step, number)})
            number += 1
        found.append({"times": 1, "text": turn["end"]})
    return found


async def record(scene: Mapping[str, Any], files: Mapping[str, str], folder: Path) -> Path:
    """Play a scene with its client; returns the folder of the log it left."""
    client = playing.CLIENTS[scene["client"]]
    work = playing.repository(folder / "work")
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    async with ModelServer(playing.Provider(rules(scene, client))) as server:
        env = playing.Room(folder, server, playing.Provider([])).env(client)
        for line in (claude if scene["client"] == "claude" else codex)(scene, server.url):
            started = await asyncio.create_subprocess_exec(
                str(client.program),
                *line,
                cwd=work,
                env={**env, "ANTHROPIC_BASE_URL": server.url},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                said, _ = await asyncio.wait_for(started.communicate(), 90)
            finally:
                playing.end_group(started.pid)
            if started.returncode:
                raise SystemExit(f"{scene['name']}: {client.program.name} ended with {said.decode()[-800:]}")
    return folder / "home" / client.log


def claude(scene: Mapping[str, Any], url: str) -> list[list[str]]:
    """The command lines of a scene with Claude Code: one a prompt, and its own command between."""
    more = ["--model", "claude-sonnet-4-5", "--dangerously-skip-permissions"]
    first, *rest = [turn["say"] for turn in scene["before"]]
    lines = [["-p", first, "--session-id", _SESSION, *more]]
    prompts = [*rest, "/compact", *(turn["say"] for turn in scene["after"])]
    return lines + [["-p", said, "--resume", _SESSION, *more] for said in prompts]


def codex(scene: Mapping[str, Any], url: str) -> list[list[str]]:
    """The same with Codex, which compacts by itself at the limit that the turn after it sets."""
    provider = {"name": "x", "base_url": f"{url}/v1", "env_key": "OPENAI_API_KEY"}
    over = [f'-cmodel_providers.x.{name}="{value}"' for name, value in provider.items()]
    head = ['-cmodel_provider="x"', *over]
    flags = ["-m", "gpt-4.1", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"]
    first, *rest = [turn["say"] for turn in scene["before"]]
    lines = [[*head, "exec", *flags, first]]
    lines += [[*head, "exec", *flags, "resume", "--last", said] for said in rest]
    limit = f"-cmodel_auto_compact_token_limit={_LIMIT}"
    for place, turn in enumerate(scene["after"]):
        own = [limit] if place == 0 else []
        lines.append([*head, *own, "exec", *flags, "resume", "--last", turn["say"]])
    return lines


def judged(scene: Mapping[str, Any], claims: Sequence[Loss]) -> dict[str, Any]:
    """Claims against the facts known beforehand: found, missed, false."""

    def fits(loss: Loss, fact: str) -> bool:
        kind, _, words = fact.partition(": ")
        return loss.kind == kind and words.casefold() in loss.text.casefold()

    found = [fact for fact in scene["needed"] if any(fits(loss, fact) for loss in claims)]
    false = [loss for loss in claims if not any(fits(loss, fact) for fact in scene["needed"])]
    return {
        "scene": scene["name"],
        "needed": len(scene["needed"]),
        "found": len(found),
        "missed": [fact for fact in scene["needed"] if fact not in found],
        "claims": len(claims),
        "false": [f"{loss.kind}: {loss.text} ({loss.need}: {loss.evidence})" for loss in false],
    }


async def main(names: Sequence[str], keep: Path | None) -> int:
    """Play, audit, print; 1 if recall is below 0.9 or false claims above 0.05."""
    told = tomllib.loads(SCENES.read_text("utf-8"))
    scenes = [scene for scene in told["scenes"] if not names or scene["name"] in names]
    rows, lost, held = [], 0, 0
    for scene in scenes:
        folder = Path(tempfile.mkdtemp(prefix="compaction-"))
        try:
            log = await record(scene, told["files"], folder)
            if keep is not None:
                shutil.copytree(log, keep / scene["name"], dirs_exist_ok=True)
            sessions = [one for one in read_sessions(log) if one.compactions]
            if len(sessions) != 1 or len(sessions[0].compactions) != 1:
                raise SystemExit(f"{scene['name']}: {len(sessions)} sessions with a compaction, expected one with one")
            [session] = sessions
            [found] = audit(session, counter=counter_for())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        row = judged(scene, found.needed)
        rows.append({**row, "before": found.before, "after": found.after, "lost": len(found.losses)})
        texts = [f"{loss.kind}: {loss.text}".casefold() for loss in found.needed]
        held += len(scene["held"])
        lost += sum(any(_is(fact, text) for text in texts) for fact in scene["held"])
        print(json.dumps(rows[-1]), flush=True)
    needed, claims = sum(row["needed"] for row in rows), sum(row["claims"] for row in rows)
    recall = sum(row["found"] for row in rows) / needed if needed else 1.0
    false = sum(len(row["false"]) for row in rows) / claims if claims else 0.0
    print(
        f"{len(rows)} compactions, {needed} facts needed: recall {recall:.3f}; {claims} claims: false {false:.3f}; "
        f"{held} facts that were held or not needed, {lost} of them claimed"
    )
    return int(recall < 0.9 or false > 0.05)


def _is(fact: str, text: str) -> bool:
    kind, _, words = fact.casefold().partition(": ")
    return text.startswith(f"{kind}: ") and words in text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    raise SystemExit(asyncio.run(main(given.names, given.keep)))
