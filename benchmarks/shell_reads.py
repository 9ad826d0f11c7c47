"""How long one shell command takes to interpret, in microseconds: alone and with its output, on the fixture repository
of the vectors.

python benchmarks/shell_reads.py [--rounds 50]
"""

from __future__ import annotations

import argparse
import base64
import json
import time
from pathlib import Path

from context_bench.shell import read_shell


class Snapshot:
    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def blob(self, path: str) -> bytes | None:
        return self.files.get(path)

    def paths(self) -> list[str]:
        return list(self.files)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    vectors = json.loads((Path(__file__).parents[1] / "tests/vectors/traces.json").read_text(encoding="utf-8"))
    repo = Snapshot(
        {
            path: one["text"].encode() if "text" in one else base64.b64decode(one["base64"])
            for path, one in vectors["fixture_repo"].items()
        }
    )
    cases = vectors["shell_commands"]
    for label, told in (("command alone", False), ("with output", True)):
        for case in cases:
            read_shell(case["command"], "", repo)
        began = time.perf_counter()
        for _ in range(rounds):
            for case in cases:
                read_shell(
                    case["command"], "", repo, case["output"] if told else None, case["exit_code"] if told else None
                )
        print(f"{label:14} {(time.perf_counter() - began) / rounds / len(cases) * 1e6:8.0f} us per command")


if __name__ == "__main__":
    main()
