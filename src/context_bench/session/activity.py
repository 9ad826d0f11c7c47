"""What may be said of a proxy that forwarded what it was sent: "does nothing" only after it was seen to do something."""

from __future__ import annotations

from typing import Any

from context_bench.llm.redact import key_in
from context_bench.session.defaults import DEFAULT_MODEL
from context_bench.session.options import RunOptions

#: Compression below this share counts as none, above the second as some.
NOTHING, SOMETHING = 0.01, 0.05


async def activity_notes(options: RunOptions, tap: Any, cells: list[Any], result: Any) -> list[str]:
    """One sentence per proxy and shape that left the requests as long as they were. Sends a positive control where the run holds none."""
    may_send = tap is not None and options.max_cost is None
    urls = {arm.system.name: arm.system.base_url for cell in cells for arm in cell.arms if _is_proxy(arm, cell)}
    ratios = {name: result.summary.get(name, {}).get("compression_ratio") for name in urls}
    notes = []
    for cell in cells:
        for name in (name for name in cell.names if name in urls):
            ratio = ratios[name]
            if ratio is None or abs(ratio) >= NOTHING:
                continue
            control = _in_the_run(urls, ratios, name) or (await _sent_now(options, tap, urls[name]) if may_send else None)
            notes.append(_sentence(name, cell.labels.get("shape", ""), control, sent=may_send))
    return notes


def _is_proxy(arm: Any, cell: Any) -> bool:
    return getattr(arm.system, "base_url", None) is not None and arm.system.name not in cell.controls


def _in_the_run(urls: dict[str, str], ratios: dict[str, Any], name: str) -> str | None:
    """The same proxy in another cell, where it did shorten."""
    for other, ratio in ratios.items():
        if other != name and urls[other] == urls[name] and ratio is not None and ratio >= SOMETHING:
            return f"{other} in this run: {ratio:.0%} less"
    return None


async def _sent_now(options: RunOptions, tap: Any, url: str) -> str | None:
    from context_bench.traffic.doctor import positive_control

    return await positive_control(url, tap, model=(options.model or [DEFAULT_MODEL])[0], api_key=key_in(options.api_key_env))


def _sentence(name: str, shape: str, control: str | None, *, sent: bool) -> str:
    if control is not None:
        return f"{name} does nothing with {shape} requests of this data (it does work: {control})."
    why = (
        "nor did it shorten a text that compressors usually do"
        if sent
        else "and no positive control was sent (that needs --tap, and is left out under --max-cost)"
    )
    return f"{name} is inactive or degraded here: with {shape} requests as many tokens went on as were sent, {why}."
