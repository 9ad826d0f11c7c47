"""Mask what must never be written down: keys in any record and, under the policy `redacted`, passwords, e-mail
addresses and the like.

Words of the providers (names of fields, kinds of parts) and of failures may be written down where no text may; all
others become `other`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

import orjson

from context_bench.core.records import Forwarded
from context_bench.core.secrets import Masker, secrets_in_url
from context_bench.llm.redact import lasting, secrets_in

MASK = "[masked]"

#: Shapes of keys as (a literal that must occur, the shape), by what they all hold: texts without keys cost a few
#: substring searches.
_KEYS: dict[str, list[tuple[str, re.Pattern[str]]]] = {
    sign: [(literal, re.compile(shape)) for literal, shape in shapes]
    for sign, shapes in {
        "-": [
            ("cb-", r"\bcb-[0-9a-f]{40}\b"),
            ("sk-", r"\bsk-[A-Za-z0-9_\-]{16,}"),
            ("glpat-", r"\bglpat-[A-Za-z0-9_\-]{16,}"),
            ("xai-", r"\bxai-[A-Za-z0-9]{20,}"),
            ("nvapi-", r"\bnvapi-[A-Za-z0-9_\-]{20,}"),
            ("pplx-", r"\bpplx-[A-Za-z0-9]{20,}"),
            ("pypi-", r"\bpypi-[A-Za-z0-9_\-]{40,}"),
            ("xox", r"\bxox[abeprs]-[A-Za-z0-9\-]{10,}"),
            (
                "PRIVATE KEY",
                r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[A-Za-z0-9+/=\s]*(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?",
            ),
        ],
        "_": [
            ("_live_", r"\b[sr]k_live_[A-Za-z0-9]{12,}"),
            *[(f"gh{kind}_", rf"\bgh{kind}_[A-Za-z0-9]{{20,}}") for kind in "pousr"],
            ("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
            ("hf_", r"\bhf_[A-Za-z0-9]{20,}"),
            ("gsk_", r"\bgsk_[A-Za-z0-9]{20,}"),
            ("npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
        ],
        "A": [
            ("AKIA", r"\bAKIA[0-9A-Z]{16}\b"),
            ("ASIA", r"\bASIA[0-9A-Z]{16}\b"),
            ("AIza", r"\bAIza[0-9A-Za-z_\-]{30,}"),
        ],
        "eyJ": [("eyJ", r"\beyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{5,}")],
        "earer ": [("earer ", r"(?i:(?<=\bbearer ))[A-Za-z0-9._~+/\-]{16,}=*")],
    }.items()
}
_SIGNS = [(sign.encode(), [literal.encode() for literal, _ in keys]) for sign, keys in _KEYS.items()]
#: Short keys too, where a field is meant for names of accounts and not for text.
_SHORT_KEY = re.compile(r"\b(?:sk|pk|rk|key|api|token|secret)[-_][A-Za-z0-9_\-]{4,}", re.IGNORECASE)
_PRIVATE = (
    re.compile(r"[A-Za-z0-9._%+\-]{1,64}@[A-Za-z0-9\-]{1,63}(?:\.[A-Za-z0-9\-]{1,63}){0,8}\.[A-Za-z]{2,24}\b"),
    re.compile(r"(?<=://)[^\s/@:]{0,100}:[^\s/@]{1,200}(?=@)"),
    re.compile(
        r"(?i)(?:password|passwd|pwd|secret|api[_\-]?key|access[_\-]?key|auth[_\-]?token|token)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
        r"(?!\[masked\])([^\s\"',;]{4,200})"
    ),
)
NAME_FIELDS = ("user", "metadata", "safety_identifier", "prompt_cache_key")


def credentials(headers: Iterable[tuple[str, str]], target: str) -> frozenset[str]:
    """The secret values that a request carries in its headers, whole and without their scheme word, and in its query:
    all of it.
    """
    found: set[str] = set(secrets_in_url(target))
    for name, value in headers:
        found.update(secrets_in({name: value}))
        if "cookie" in name.lower():
            found.update(item.partition("=")[2].strip() for item in value.split(";"))
    return frozenset(filter(None, lasting(found)))


@lru_cache(maxsize=64)
def masker(known: frozenset[str]) -> Masker:
    """Cuts `known` secrets out of texts."""
    return Masker(known, MASK)


def mask_text(text: str, known: Iterable[str] | Masker = ()) -> str:
    """`text` without the `known` secrets and without anything that has the shape of a key."""
    if known:
        text = (known if isinstance(known, Masker) else masker(frozenset(known))).text(text)
    if len(text) < 8:
        return text
    for sign, keys in _KEYS.items():
        if sign in text:
            for literal, shape in keys:
                if literal in text:
                    text = shape.sub(MASK, text)
    return text


#: Characters of what every body repeats, names of fields and kinds, and how many such texts are remembered.
_REPEATED, _REMEMBERED = 64, 1_024


@lru_cache(maxsize=8)
def text_masker(known: Masker) -> Callable[[str], str]:
    """`mask_text` with these secrets, which looks at a short text once."""
    once = lru_cache(_REMEMBERED)(lambda text: mask_text(text, known))
    return lambda text: once(text) if len(text) <= _REPEATED else mask_text(text, known)


def mask_private(text: str) -> str:
    """`text` without e-mail addresses, passwords in URLs, and values assigned to names such as `password` or
    `api_key`.
    """
    for shape in _PRIVATE:
        text = shape.sub(lambda m: m[0][: m.start(1) - m.start()] + MASK if m.re.groups else MASK, text)
    return text


def may_hold_a_key(value: Any, known: Masker) -> bool:
    """True if a text in a JSON value could be one that `mask_text` changes. One look at the whole, not one at each
    text; wrong on the safe side only.
    """
    try:
        data = orjson.dumps(value)
    except (TypeError, RecursionError):  # half a character, a number beyond 64 bits, too many levels
        return True
    return known.may_be_in(data) or any(
        sign in data and any(literal in data for literal in literals) for sign, literals in _SIGNS
    )


def map_text(value: Any, change: Callable[[str], str], depth: int = 200) -> Any:
    """A JSON value with `change` applied to every text in it, keys of objects included. `RecursionError` below `depth`
    levels.
    """
    if isinstance(value, str):
        return change(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth == 0:
        raise RecursionError("nested too deeply")
    if isinstance(value, Mapping):
        return {map_text(key, change): map_text(item, change, depth - 1) for key, item in value.items()}
    return [map_text(item, change, depth - 1) for item in value]


def mask_names(body: Any) -> Any:
    """A request body whose fields for account names (`user`, `metadata` …) hold no key, not even a short one."""
    if not isinstance(body, Mapping):
        return body
    return {
        name: map_text(value, lambda text: _SHORT_KEY.sub(MASK, text)) if name in NAME_FIELDS else value
        for name, value in body.items()
    }


_FIELDS = """
background cache_control container context_management conversation effort frequency_penalty function_call functions include
inference_geo instructions logit_bias logprobs max_completion_tokens max_output_tokens max_tokens max_tool_calls mcp_servers metadata
modalities n output_config output_format parallel_tool_calls prediction presence_penalty previous_response_id prompt prompt_cache_key
prompt_cache_retention reasoning reasoning_effort response_format safety_identifier seed service_tier speed stop stop_sequences store
stream_options temperature text thinking tool_choice top_k top_logprobs top_p truncation user verbosity web_search_options
encoding_format dimensions enable_thinking chat_template_kwargs min_p repetition_penalty extra_body
"""  # noqa: E501
_KINDS = """
text input_text output_text refusal reasoning reasoning_text summary_text image image_url input_image file input_file document audio
input_audio video input_video thinking redacted_thinking tool_use tool_result tool_call function_call function_call_output
custom_tool_call custom_tool_call_output server_tool_use web_search_tool_result web_fetch_tool_result code_execution_tool_result
bash_code_execution_tool_result text_editor_code_execution_tool_result mcp_tool_use mcp_tool_result container_upload search_result
web_search_call file_search_call computer_call computer_call_output code_interpreter_call image_generation_call local_shell_call
local_shell_call_output shell_call shell_call_output apply_patch_call apply_patch_call_output mcp_call mcp_list_tools
mcp_approval_request mcp_approval_response item_reference compaction unknown message tool_reference
"""  # noqa: E501
FIELDS = frozenset(_FIELDS.split())
KINDS = frozenset(_KINDS.split())


def listed(word: str, words: Collection[str]) -> str:
    """A word that may be written down, else `other`: of what is not the providers', nothing is kept."""
    return word if word in words else "other"


#: How the error of an exchange begins that nobody behind the tap ended.
_OUR_SIDE = ("the client ", "the tap was stopped")


def failure_of(record: Forwarded) -> str | None:
    """The failure of a request, by its status or by what was seen of its answer; `None` if it was answered whole."""
    if record.status is None:
        return "client left" if client_left(record.error) else "no answer"
    if record.status >= 400:
        return str(record.status)
    failure = record.facts.get("failure")
    return failure if isinstance(failure, str) else None


def mark_failed(record: Forwarded, how: str) -> None:
    """Write down that an answer was not whole though its status was good."""
    record.facts.setdefault("failure", how)


def cut_off(error: str | None) -> str:
    """The side that ended an answer before its end, by the error of its exchange."""
    return "client left" if client_left(error) else "broken off"


def client_left(error: str | None) -> bool:
    """The client or the tap ended the exchange, not the upstream."""
    return (error or "").startswith(_OUR_SIDE)
