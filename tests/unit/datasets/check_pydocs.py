"""How many bundled questions survive on other interpreters: `python check_pydocs.py PYTHON [PYTHON …]`.

Each named interpreter is asked for its documentation; the questions are built here. Exit code 1 if any has fewer than
60 questions or 20 contexts. The suite checks the running interpreter only, since no other need be installed.
"""

from __future__ import annotations

import json
import subprocess
import sys

from context_bench.datasets import pydocs

ASK = "import json, sys; from pydoc_data.topics import topics; print(json.dumps([sys.version.split()[0], topics]))"


def main(interpreters: list[str]) -> int:
    worst = 0
    for interpreter in interpreters or [sys.executable]:
        asked = subprocess.run([interpreter, "-c", ASK], capture_output=True, text=True, check=True)
        version, topics = json.loads(asked.stdout)
        built = pydocs.build(0, topics)
        contexts = len({e["cluster"] for e in built.examples})
        print(
            f"{version}: {len(built.examples)} questions over {contexts} contexts, {len(built.dropped)} dropped "
            f"{built.dropped or ''}"
        )
        worst |= len(built.examples) < 60 or contexts < 20
    return int(worst)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
