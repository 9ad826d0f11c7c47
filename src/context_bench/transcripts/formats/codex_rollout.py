"""Codex CLI's rollouts: `$CODEX_HOME/sessions/YYYY/MM/DD/rollout-<time>-<uuid>.jsonl`.

`response_item` lines are the conversation on the Responses wire as it was sent; `token_count` events say what an answer cost. Tools and, in
older files, the instructions are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import moment
from context_bench.core.usage import OPENAI, usage_of
from context_bench.transcripts.responses import Rollout
from context_bench.transcripts.session import Session
from context_bench.transcripts.source import Source
from context_bench.transcripts.values import text

NAME = "codex-rollout"
_MADE = ("reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_GIVEN = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_TOLD = ("cwd", "originator", "cli_version", "source", "forked_from_id")


def matches(sample: list[Any]) -> bool:
    """Whether a line is the head of a rollout."""
    return any(
        isinstance(value, dict) and "payload" in value and value.get("type") == "session_meta" and isinstance(value["payload"], dict)
        for value in sample
    )


def sessions(source: Source) -> Iterator[Session]:
    """The one session of the file."""
    rollout, meta = Rollout(), dict[str, Any]()
    for value in source.values():
        why = _take(value, rollout, meta)
        if why:
            source.skip(why)
    if rollout.answers:
        ident = meta.pop("id", None) or source.path.stem
        yield rollout.session(ident, str(source.path), {"format": NAME, **meta, "skipped": source.skipped_counts()})


def _take(value: Any, rollout: Rollout, meta: dict[str, Any]) -> str | None:
    """Read one line; returns why it is passed over."""
    payload = value.get("payload") if isinstance(value, Mapping) else None
    if not isinstance(payload, Mapping):
        return "no payload"
    kind = value.get("type")
    if kind == "response_item":
        return _item(dict(payload), rollout, moment(value.get("timestamp")))
    if kind == "session_meta":
        _opened(payload, rollout, meta)
    elif kind == "turn_context":
        if isinstance(payload.get("model"), str):
            rollout.head["model"] = payload["model"]
        if isinstance(payload.get("effort"), str):
            rollout.head["reasoning"] = {"effort": payload["effort"]}
    elif kind == "compacted":
        rollout.restarted(_history(payload))
    elif kind == "event_msg" and payload.get("type") == "token_count":
        _counted(payload.get("info"), rollout, meta)
    else:
        return f"type {str(kind)[:40]}" + (f"/{str(payload.get('type'))[:40]}" if kind == "event_msg" else "")
    return None


def _item(item: dict[str, Any], rollout: Rollout, at: float | None) -> str | None:
    kind = item.get("type")
    if kind in _MADE or (kind == "message" and item.get("role") == "assistant"):
        rollout.made(item, at)
    elif kind in _GIVEN or kind == "message":
        rollout.given(item)
    else:
        return f"item {str(kind)[:40]}"
    return None


def _opened(payload: Mapping[str, Any], rollout: Rollout, meta: dict[str, Any]) -> None:
    """The head of a rollout; a forked one repeats its parent's, which is not read again."""
    if "id" in meta:
        return
    if ident := text(payload.get("id")):
        meta["id"] = rollout.head["prompt_cache_key"] = ident
    meta.update({name: payload[name] for name in _TOLD if isinstance(payload.get(name), str)})
    told = payload.get("base_instructions") or payload.get("instructions")
    instructions = text(told.get("text")) if isinstance(told, Mapping) else text(told)
    if instructions:
        rollout.head["instructions"] = instructions


def _history(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    history = payload.get("replacement_history")
    if isinstance(history, list):
        return [dict(item) for item in history if isinstance(item, Mapping)]
    return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": str(payload.get("message") or "")}]}]


def _counted(info: Any, rollout: Rollout, meta: dict[str, Any]) -> None:
    if isinstance(info, Mapping):
        rollout.billed(usage_of(info.get("last_token_usage"), OPENAI))
        if (total := usage_of(info.get("total_token_usage"), OPENAI)) is not None:
            meta["usage"] = total
