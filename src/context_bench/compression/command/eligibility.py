"""The eligible probes of a compression run: the responder answers them with the full history and not with nothing."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from context_bench.compression.systems.compressing import Compressing
from context_bench.core.errors import BadInput
from context_bench.core.records import Example
from context_bench.core.roles import control_role, described_cell

if TYPE_CHECKING:
    from context_bench.session.options import CompressOptions
    from context_bench.session.run_session import RunEnvironment

#: How often full history and none answer a probe before it is used, where a model answers.
ELIGIBILITY = 5
_ANSWERED = 0.5  # a probe's score from which it counts as answered
_ARMS = ("full", "none")


class Choosing(Compressing):
    """The same, whose answers only choose probes: it is another system than the one of the same name that is scored, so
    that no answer can serve for both, not even with `--reuse`.
    """

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which answers depend, and the purpose of the answers."""
        return {**super().fingerprint(), "chooses": "probes"}


async def eligible_probes(
    options: CompressOptions, reader: Any, data: Any, environment: RunEnvironment
) -> frozenset[str]:
    """Probes that the full history answers and none does not, by answers of their own: what is scored later are other
    draws.

    Each probe is asked `options.eligibility` times of both. Kept: answered in at least 4 of 5 with everything, in at
    most 2 of 5 with nothing. Answers are kept in a run of their own; later runs over the same probes take them from
    there. Raises what stopped it.
    """
    from context_bench.compression.evaluators.probe_atoms import ProbeAtoms
    from context_bench.core.rows import score
    from context_bench.engine import Arm, RunSettings, execute, open_store, rows
    from context_bench.engine.progress import TerminalProgress
    from context_bench.session.run_session import run_name, store_of

    with closing(open_store(store_of(options))) as store:
        name = run_name(store, options)
        executed = await execute(
            store,
            name=eligibility_of(name) if name else None,
            arms=[Arm(system=Choosing(each, reader, name=each)) for each in _ARMS],
            examples=list(_once(data)),
            evaluators=[ProbeAtoms()],
            manifest=_manifest(options, data),
            settings=RunSettings(trials=options.eligibility or 1, seed=options.seed, max_workers=options.max_workers),
            spend=environment.spend,
            overhead=environment.overhead,
            progress=None if options.quiet else TerminalProgress(),
            reuse="all",
        )
        if executed.stopped is not None:
            raise executed.stopped
        if not executed.completed:
            raise KeyboardInterrupt
        answered: dict[tuple[str, str], list[bool]] = {}
        for row in rows(store, executed.run_id):
            value = score(row, "probe_score")
            if value is not None:
                answered.setdefault((row.system, str(row.example_id)), []).append(value >= _ANSWERED)
    return eligible(answered)


def eligibility_of(run: str) -> str:
    """The name of the run in which the probes of a run were chosen."""
    return f"{run}-eligibility"


def _once(data: Any) -> list[Example]:
    """Each probe once, where it is first asked: not again for every compression and cycle."""
    found: dict[str, Example] = {}
    for example in data.examples():
        probe = str(example["id"]).rpartition("#")
        found.setdefault(f"{probe[0]}#{probe[2].partition('/')[0].partition('~')[0]}", example)
    return list(found.values())


def _manifest(options: CompressOptions, data: Any) -> dict[str, Any]:
    return {
        "cells": [described_cell({}, {name: control_role(name) for name in _ARMS}, "full")],
        "margin": {"value": None, "rule": "min(0.02, 10 % of full − none)", "score_field": "probe_score"},
        "datasets": [data.manifest()],
        "options": options.model_dump(
            mode="json", exclude={"store", "out", "output", "quiet", "run", "resume", "dry_run"}
        ),
        "notes": ["Chooses probes: answers here are scored in no other run."],
    }


def eligible(answered: dict[tuple[str, str], list[bool]]) -> frozenset[str]:
    """(arm, probe) → whether each replicate answered it; the probes that may be used."""
    share = {key: sum(values) / len(values) for key, values in answered.items()}
    kept = {
        probe
        for (arm, probe), part in share.items()
        if arm == "full" and part >= 0.8 and share.get(("none", probe), 1.0) <= 0.4
    }
    if not kept:
        tried = len({probe for _, probe in share})
        raise BadInput(
            f"of {tried} probes none is answered with the full history and not without it: the responder is too weak "
            "for these sessions, "
            "or they say everything twice; try another --responder or other --points, or --eligibility 0 to keep all"
        )
    return frozenset(kept)
