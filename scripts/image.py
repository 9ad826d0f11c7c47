"""Build the container image where docker or podman answers, and try it; check the Dockerfile in any case.

    python scripts/image.py [--tag context-bench]

Exit code 1 if the file breaks a rule (each FROM at an exact version, no root, nothing that looks like a key, an entry
point that is this program, no copy of what .dockerignore leaves out) or the built image does not answer. Where no
builder answers it says so: the image was then checked and not built.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SECRET = re.compile(r"(?i)(key|token|secret|passw|credential)\w*\s*=")


def main() -> int:
    """Check, and build where that is possible."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", default="context-bench", help="name of the image")
    tag = parser.parse_args().tag
    faults = list(faults_of((ROOT / "Dockerfile").read_text(encoding="utf-8"), kept(ROOT)))
    print("\n".join(faults) or "Dockerfile: no fault")
    builder = next((name for name in ("docker", "podman") if answers(name)), None)
    if faults or builder is None:
        print("" if faults else "No builder answers (docker, podman): checked, not built.")
        return int(bool(faults))
    for words in (["build", "--tag", tag, "."], ["run", "--rm", tag, "version"]):
        if subprocess.run([builder, *words], cwd=ROOT, check=False).returncode:
            return 1
    return 0


def answers(builder: str) -> bool:
    """Tell whether the program is there and its service answers."""
    if shutil.which(builder) is None:
        return False
    return subprocess.run([builder, "info"], capture_output=True, check=False, timeout=60).returncode == 0


def kept(root: Path) -> set[str]:
    """What .dockerignore lets into the build: the paths after its `!`, for it begins by leaving out everything."""
    lines = (root / ".dockerignore").read_text(encoding="utf-8").split("\n")
    rules = [line for line in lines if line and not line.startswith("#")]
    if rules[:1] != ["*"]:
        raise SystemExit(".dockerignore: expected `*` as the first rule, so that nothing goes in by accident")
    return {rule[1:] for rule in rules if rule.startswith("!")}


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile: word in capitals, and the rest with continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", " ", lines).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word:
            yield word.upper(), rest.strip()


def faults_of(text: str, kept_in_build: set[str]) -> Iterator[str]:
    """What of a Dockerfile breaks a rule, a line each."""
    given = list(instructions(text))
    stages = {found[1] for word, rest in given if word == "FROM" and (found := re.search(r"(?i) as (\S+)", rest))}
    for word, rest in given:
        if word == "FROM" and not re.match(r"\S+:\d+\.\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?( |$)", rest):
            yield f"FROM {rest}: expected an exact version, such as python:3.12.11-slim-bookworm"
        if word in ("ENV", "ARG") and _SECRET.search(rest):
            yield f"{word} {rest}: a key in a layer can be read by whoever has the image; give it at run time"
        if word == "ADD":
            yield f"ADD {rest}: COPY what is here; what is fetched comes by the hashes or versions of a lock"
        if word == "RUN" and re.search(r"curl|wget", rest):
            yield f"RUN {rest}: fetches something that no lock names"
        if word == "RUN" and "pip install" in rest and "--constraint" not in rest:
            yield f"RUN {rest}: expected --constraint, so that versions are those of lock.txt"
        if word == "COPY" and not rest.startswith("--from="):
            sources = [each for each in rest.split()[:-1] if not each.startswith("--")]
            yield from (
                f"COPY {source}: .dockerignore leaves it out"
                for source in sources
                if not any(source == name or source.startswith(f"{name}/") for name in kept_in_build)
            )
        if word == "COPY" and (found := re.match(r"--from=(\S+)", rest)) and found[1] not in stages:
            yield f"COPY {rest}: no stage {found[1]}"
    last = [word for word, _ in given]
    end = given[len(last) - 1 - last[::-1].index("FROM") :] if "FROM" in last else given
    user = [rest for word, rest in end if word == "USER"]
    if not user or user[-1] in ("root", "0"):
        yield f"USER {user[-1] if user else 'missing'}: expected one that is not root"
    if [rest for word, rest in end if word == "ENTRYPOINT"] != ['["context-bench"]']:
        yield 'ENTRYPOINT: expected ["context-bench"], as a list, so that signals reach the program'


if __name__ == "__main__":
    sys.exit(main())
