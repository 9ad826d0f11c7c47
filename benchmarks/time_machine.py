"""Publicly reported bugs, in the version that has each and in the version that mended it: does context-bench tell them
apart?

    python benchmarks/time_machine.py [ID …] [--install] [--jobs 2] [--json FILE] [--day 2026-11-24]

Each version of `time_machine/pairs.toml` is installed into an environment of its own (in the user's cache, or in the
folder that `CONTEXT_BENCH_PAIRS` names), driven by a shim of ours through our taps, suites or linter, offline, and the
table says by which kind the affected version is flagged, and that the fixed one is not flagged by that kind.
`--install` only installs. `--day`: instead, what the newest versions of that day are flagged for. The status is 1 if a
pair is not told apart that has no reason in the file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent / "time_machine"
sys.path.insert(0, str(_HERE))

from installing import environment  # noqa: E402

_VERSIONS = ("affected", "fixed")
_LONGEST = 600.0  # seconds for both versions of a pair
_DETAIL = 110  # characters of a finding that the table shows


def read_pairs(named: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The pairs of the file, or those named; an unknown name ends the program."""
    told = tomllib.loads((_HERE / "pairs.toml").read_text("utf-8"))
    pairs: list[dict[str, Any]] = [{"before": told["before"], **pair} for pair in told["pair"]]
    unknown = sorted(set(named) - {pair["id"] for pair in pairs})
    if unknown:
        sys.exit(f"no pair is called {', '.join(unknown)}; there are {', '.join(pair['id'] for pair in pairs)}")
    return [pair for pair in pairs if not named or pair["id"] in named]


def install_all(pairs: Sequence[dict[str, Any]], versions: Sequence[str], jobs: int) -> dict[str, str]:
    """Install what is not there; faults by pair."""
    faults: dict[str, str] = {}
    wanted = {environment(pair, which).folder: (pair, which) for pair in pairs for which in versions}

    def make(pair: dict[str, Any], which: str) -> None:
        try:
            environment(pair, which).install()
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            faults[pair["id"]] = f"{pair.get(which, which)} cannot be installed: {error}"

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda each: make(*each), wanted.values()))
    return faults


def examine(pair: dict[str, Any], versions: Sequence[str]) -> dict[str, Any]:
    """What our instruments say of versions of a pair's package; in this process."""
    from driving import flags_of

    found: dict[str, Any] = {}
    for which in versions:
        begun = time.monotonic()
        flags = asyncio.run(flags_of(pair, environment(pair, which)))
        seconds = round(time.monotonic() - begun, 1)
        found[which] = {"kinds": dict(flags.kinds), "details": flags.details, "seconds": seconds}
    return found


def examine_apart(pair: dict[str, Any], day: str | None) -> dict[str, Any]:
    """The same in a process of its own, so that nothing of one pair reaches another."""
    words = [sys.executable, str(Path(__file__)), pair["id"], "--here", *(["--day", day] if day else [])]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LONGEST, check=False)
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return {"fault": f"took more than {_LONGEST:g} s"}
    except (ValueError, IndexError):
        return {"fault": done.stderr.strip()[-600:]}


def verdict(pair: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """`told`: flagged at the affected version by an expected kind that the fixed one does not have."""
    if "fault" in found:
        return {"told": False, "by": [], "still": [], "words": found["fault"]}
    before, after = (found[which]["kinds"] for which in _VERSIONS)
    by = [kind for kind in pair["expect"] if kind in before]
    still = [kind for kind in pair["expect"] if kind in after]
    words = next((one for kind in by for one in found["affected"]["details"] if one.startswith(kind)), "")
    return {"told": bool(by) and not still, "by": by, "still": still, "words": words}


def table(pairs: Sequence[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    """The pairs as Markdown."""
    lines = [
        "| pair | what happened | affected → fixed | flagged at the affected as | at the fixed |",
        "|---|---|---|---|---|",
    ]
    for pair in pairs:
        one = results[pair["id"]]["verdict"]
        words = one["words"].replace("|", "\\|").replace("\n", " ")
        shown = words if len(words) <= _DETAIL else words[: _DETAIL - 1] + "…"
        flagged = f"`{'`, `'.join(one['by'])}`: {shown.partition(': ')[2]}" if one["by"] else f"**not flagged** {shown}"
        silent = f"**still `{'`, `'.join(one['still'])}`**" if one["still"] else "silent" if one["by"] else ""
        reason = f" ({pair['unseen']})" if "unseen" in pair else ""
        versions = f"{pair['affected']} → {pair['fixed']}"
        lines.append(
            f"| [{pair['id']}]({pair['source']}) | {pair['what']} | {versions} | {flagged}{reason} | {silent} |"
        )
    told = sum(results[pair["id"]]["verdict"]["told"] for pair in pairs)
    flagged_at = sum(bool(results[pair["id"]]["verdict"]["by"]) for pair in pairs)
    false = sum(bool(results[pair["id"]]["verdict"]["still"]) for pair in pairs)
    total = len(pairs)
    return "\n".join(
        [
            *lines,
            "",
            f"{flagged_at} of {total} affected versions flagged, {false} of {total} fixed ones; {told} told apart.",
        ]
    )


def newest(pair: dict[str, Any], found: dict[str, Any], day: str) -> str:
    """Everything that the newest version of a package is flagged for, as one item of a list."""
    if "fault" in found:
        return f"* {pair['id']}: {found['fault']}"
    kinds = found[day]["kinds"]
    lines = [f"* {pair['id']}: {', '.join(f'{kind} × {times}' for kind, times in kinds.items()) or 'nothing'}"]
    return "\n".join([*lines, *(f"  * {words}" for words in found[day]["details"])])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", metavar="ID")
    parser.add_argument("--install", action="store_true", help="only install")
    parser.add_argument("--jobs", type=int, default=2, help="how many pairs at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found to this file")
    parser.add_argument("--day", help="examine the newest versions of this day (ISO 8601) instead of the pairs")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    pairs, versions = read_pairs(given.pairs), [given.day] if given.day else _VERSIONS
    if given.here:
        print(json.dumps(examine(pairs[0], versions)))
        return 0
    begun = time.monotonic()
    faults = install_all(pairs, versions, given.jobs)
    for name, fault in faults.items():
        print(f"{name}: {fault}", file=sys.stderr)
    if given.install:
        return 1 if faults else 0

    def one(pair: dict[str, Any]) -> dict[str, Any]:
        found = {"fault": faults[pair["id"]]} if pair["id"] in faults else examine_apart(pair, given.day)
        print(f"{pair['id']}: {found.get('fault', 'driven')}", file=sys.stderr)
        return found if given.day else {**found, "verdict": verdict(pair, found)}

    with ThreadPoolExecutor(given.jobs) as pool:
        results = dict(zip((pair["id"] for pair in pairs), pool.map(one, pairs), strict=True))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    if given.day:
        print("\n".join(newest(pair, results[pair["id"]], given.day) for pair in pairs))
        return 0
    print(table(pairs, results))
    return 0 if all(results[pair["id"]]["verdict"]["told"] or "unseen" in pair for pair in pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
