"""Under what load times were measured: how many requests were under way, how often, and what changed about it on the
way.

A manifest's `load`: `{"mode": "fixed" | "adaptive" | "single", "at_once": N, "rpm": …, "tpm": …, "stream": …}`; its
`loads`: those that rows were made under, more than one if the run went on with other settings; its `limits`: one entry
per execution of the run, endpoint → list of `[at, limit, reason]` (seconds since the epoch, requests at once, why).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def load_of(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The load a run was made under; for runs that do not say so, from their number of workers. `None`: nothing is
    known.
    """
    if isinstance(known := manifest.get("load"), Mapping):
        return dict(known)
    options = manifest.get("options") or {}
    if "max_workers" not in options:
        return None
    workers = int(options["max_workers"] or 1)
    return {"mode": "adaptive" if workers > 1 else "single", "at_once": workers, "stream": bool(options.get("stream"))}


def loads_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every load that rows of a run were made under; empty if nothing is known."""
    if known := [dict(load) for load in manifest.get("loads") or [] if isinstance(load, Mapping)]:
        return known
    return [] if (found := load_of(manifest)) is None else [found]


def in_words(load: Mapping[str, Any]) -> str:
    """The load in a few words."""
    at_once = load.get("at_once")
    told = {"fixed": f"{at_once} at once", "adaptive": f"up to {at_once} at once, adapting"}.get(
        str(load.get("mode")), "one at a time"
    )
    limits = [
        f"at most {load[key]:g} {what} a minute"
        for key, what in (("rpm", "requests"), ("tpm", "tokens"))
        if load.get(key)
    ]
    return ", ".join([told, *limits, *(["streamed"] if load.get("stream") else [])])


def different_load(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """The reason why the times of two runs (by their manifests) cannot be compared; `None` if they can, or if nothing
    is known.
    """
    ours, theirs = loads_of(before), loads_of(after)
    if not ours or not theirs or (ours == theirs and len(ours) == 1):
        return None
    return (
        f"the runs were made under different load: {_then(ours)} before, {_then(theirs)} now; latency and time to "
        "first token belong to "
        "their load."
    )


def _then(loads: Sequence[Mapping[str, Any]]) -> str:
    return ", then ".join(map(in_words, loads))


def limit_notes(manifest: Mapping[str, Any]) -> list[str]:
    """Changes of the number of requests sent to an endpoint at once: new settings, and where it was cut or slowed
    down.
    """
    loads = loads_of(manifest)
    mixed = (
        [f"Times mix different load, for the run went on with other settings: {_then(loads)}."]
        if len(loads) > 1
        else []
    )
    return mixed + [
        note
        for execution in manifest.get("limits") or []
        for endpoint, changes in execution.items()
        if (note := _note(str(endpoint), changes)) is not None
    ]


def _note(endpoint: str, changes: Sequence[Sequence[Any]]) -> str | None:
    reasons = Counter(_kind(str(reason)) for _, _, reason in changes)
    held = [f"{reasons[kind]} × {kind}" for kind in ("refused for quota", "little left of a quota") if reasons[kind]]
    if not held:
        return None
    limits = [int(limit) for _, limit, _ in changes]
    return (
        f"{endpoint}: asked less on the way ({', '.join(held)}); requests at once {limits[0]} at the start, "
        f"{min(limits)} to "
        f"{max(limits)}, {limits[-1]} at the end."
    )


def _kind(reason: str) -> str:
    if reason.startswith("refused for quota"):
        return "refused for quota"
    return "little left of a quota" if " left, spread over " in reason else reason
