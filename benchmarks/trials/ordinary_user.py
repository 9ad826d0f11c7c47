"""The main flows as an ordinary user: with a home of their own, with one that cannot be written, with none.

    python benchmarks/trials/ordinary_user.py

Needs root, to become somebody else (`setpriv`, user 1500), and bubblewrap. Everything is on loopback. What is promised:
each command does what it does for root, or says in a sentence why not; nothing is written outside the user's folders;
stores and records are its owner's only. Exit code 1 if a promise did not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import common
from soak_programs import Broken, free_port, listening

from context_bench.agents.datasets import SCRIPT
from context_bench.core.machine import cache_folder

USER = 1500
ROOT = Path(__file__).parents[2]
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
AGENT = ["--", "python3", str(ROOT / "examples" / "tiny_agent.py"), "{instruction}"]


def interpreter() -> tuple[str, dict[str, str]]:
    """A Python that the user may run, and the variables it needs to find what is installed here.

    That of this environment, unless it lies in a home that is closed; then the system's of the same version.
    """
    own = sys.executable
    for python in (own, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        if subprocess.run([*AS_USER, "env", "-i", python, "-c", "import json"], capture_output=True).returncode == 0:
            packages = sysconfig.get_paths()["purelib"]
            return python, {} if python == own else {"PYTHONPATH": f"{ROOT / 'src'}:{packages}"}
    sys.exit(
        f"ordinary_user.py needs a Python that user {USER} may run: {own} is not, and there is none of its version in "
        "/usr/bin"
    )


class Trial:
    """One kind of home, and what was found with it."""

    def __init__(self, kind: str, folder: Path, home: str, table: common.Table) -> None:
        self.kind, self.folder, self.table = kind, folder, table
        self.python, paths = interpreter()
        place = Path(self.python).parent
        self.known = paths | {
            "HOME": home,
            "PATH": f"{place}:/usr/local/bin:/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "USER": "trial",
            "LOGNAME": "trial",
        }
        if not home:
            del self.known["HOME"]
        self.noise: list[str] = []

    async def start(self, *arguments: str) -> common.Command:
        """A command of the user's, with no variables but those a log-in gives."""
        clean = ["env", "-i", *(f"{name}={value}" for name, value in self.known.items())]
        return await common.Command(self.folder, list(arguments), before=[*AS_USER, *clean], python=self.python).start()

    async def done(self, *arguments: str, seconds: float = 240) -> common.Ended:
        """Run a command to its end."""
        ended = await (await self.start(*arguments)).ended(seconds)
        self.noise += ended.noise
        return ended

    def add(self, promise: str, tried: str, ended: common.Ended, held: bool) -> None:
        """A line of the table; what was printed last where it did not hold."""
        said = " ".join((ended.err + ended.out).split())[-300:]
        self.table.add(
            promise, f"{self.kind}: {tried}", f"exit code {ended.code}" + ("" if held else f": {said}"), held
        )


def modes(folder: Path) -> list[str]:
    """Stores and records in a folder that others may read or write."""
    kept = [
        path for path in folder.rglob("*") if path.suffix in (".db", ".jsonl") or path.name.endswith(("-wal", "-shm"))
    ]
    own = [path for path in kept if path.name not in ("boxes.jsonl", "code.jsonl")]
    return [
        f"{path.name} {stat.filemode(path.stat().st_mode)}" for path in own if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


async def flows(trial: Trial) -> None:
    """The flows that need no model of their own."""
    quick = ["--store", "s.db", "--output", "json", "--out", "out.json"]
    ended = await trial.done(
        "run", "--dataset", "bundled:pydocs-qa", "-n", "3", "--upstream", "echo", "--controls", *quick, "--run", "a"
    )
    trial.add("a run with controls", "run", ended, ended.code == 0)
    ended = await trial.done("show", "a", "--store", "s.db")
    trial.add("its report", "show", ended, ended.code == 0)
    await code(trial, quick)
    ended = await trial.done(
        *("agent", "bundled:repo-tasks:split-parsing", "--arm", "base=", "--trials", "1", "--run", "agent", *quick),
        *("--upstream", f"scripted:{SCRIPT}", "--tap", str(free_port()), "--price", "scripted=1,2", *AGENT),
    )
    rows = json.loads((trial.folder / "out.json").read_text())["rows"] if ended.code == 0 else []
    solved = [row["scores"].get("solved") for row in rows if row["system"] == "base"]
    trial.add("an agent behind walls, its work tested", "agent", ended, ended.code == 0 and solved == [1])
    ended = await trial.done(
        "memory", "run", "--dataset", "bundled:recall-lab", "--system", "bm25", "-n", "1", "--relay", "echo", *quick
    )
    if ended.code:  # the relay is a URL; a model by rules is served for it
        ended = await memory(trial, quick)
    trial.add("a memory", "memory run", ended, ended.code == 0)
    await relays(trial)
    await viewed(trial)
    open_ = modes(trial.folder)
    trial.table.add("stores and records are the owner's only", trial.kind, ", ".join(open_) or "all 0600", not open_)


async def memory(trial: Trial, quick: list[str]) -> common.Ended:
    """A memory whose reader is an echo served as the user."""
    port = free_port()
    echo = await trial.start("serve", "--system", "full", "--upstream", "echo", "--port", str(port))
    with contextlib.suppress(Broken):
        await listening(port)
    try:
        given = [
            "memory",
            "run",
            "--dataset",
            "bundled:recall-lab",
            "--system",
            "bm25",
            "-n",
            "1",
            "--relay",
            f"http://127.0.0.1:{port}",
        ]
        return await trial.done(*given, *quick, "--run", "m")
    finally:
        echo.signal(signal.SIGINT)
        await echo.ended(30)


async def code(trial: Trial, quick: list[str]) -> None:
    """Code that a model wrote, in the sandbox: one right, one wrong, one that looks around."""
    tests = "def check(f):\n    assert f(2) == 4\n"
    programs = {
        "right": "def f(x):\n    return 2 * x\n",
        "wrong": "def f(x):\n    return 5\n",
        "spy": f"import os\ndef f(x):\n    return 4 if os.path.exists({str(trial.folder)!r}) or os.getuid() == 0 else "
        "0\n",
    }
    rows = [
        {"id": name, "context": "def f(x):\n", "question": name, "test": tests, "entry_point": "f"} for name in programs
    ]
    (trial.folder / "code.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    rules = [
        {"when": {"text": f"\\b{name}\\b"}, "text": f"```python\n{program}```"} for name, program in programs.items()
    ]
    (trial.folder / "code.json").write_text(json.dumps({"rules": rules, "default": "ok"}))
    given = [
        "run",
        "--dataset",
        "code.jsonl",
        "--evaluator",
        "code_execution",
        "--system",
        "full",
        "--upstream",
        "scripted:code.json",
        "--score-field",
        "pass_at_1",
    ]
    ended = await trial.done(*given, *quick, "--run", "code")
    told = json.loads((trial.folder / "out.json").read_text()).get("rows", []) if ended.code == 0 else []
    found = {row["example_id"]: row["scores"].get("pass_at_1") for row in told if row["system"] == "full"}
    held = ended.code == 0 and found == {"right": 1, "wrong": 0, "spy": 0}
    trial.add(f"code_execution in the sandbox {found or ''}".strip(), "run", ended, held)


async def relays(trial: Trial) -> None:
    """A tap with an echo behind it."""
    port = free_port()
    tap = await trial.start(
        "tap", "--port", str(port), "--upstream", "echo", "--record", "full", "--out", "records.jsonl"
    )
    status = None
    with contextlib.suppress(Exception):
        await listening(port)
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        status = (await asyncio.to_thread(urllib.request.urlopen, request, None, 20)).status
    tap.signal(signal.SIGINT)
    ended = await tap.ended(30)
    trial.noise += ended.noise
    records = trial.folder / "records.jsonl"
    trial.add("a tap that records", "tap", ended, status == 200 and records.exists() and records.stat().st_uid == USER)


async def viewed(trial: Trial) -> None:
    """The store in the browser; without its token nobody is let in."""
    port = free_port()
    view = await trial.start("view", "s.db", "--port", str(port), "--no-open")
    status = 0
    with contextlib.suppress(Exception):
        await listening(port)
        try:
            status = (await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/", None, 20)).status
        except urllib.error.HTTPError as error:
            status = error.code
    view.signal(signal.SIGINT)
    ended = await view.ended(30)
    trial.noise += ended.noise
    trial.add("the viewer, which asks for its token", "view", ended, status == 403)


async def model(trial: Trial, weights: Path | None, table: common.Table) -> None:
    """The bundled model out of the user's cache."""
    if weights is None:
        table.add("the bundled model", trial.kind, "not tried: its weights are not on this machine (make model)", True)
        return
    into = Path(trial.known["HOME"]) / ".cache" / "context-bench"
    into.mkdir(parents=True)
    for file in weights.parent.glob("SmolLM2*Q4_1.gguf"):
        shutil.copy(file, into)
    for path in (into.parent, into, *into.iterdir()):
        os.chown(path, USER, USER)
    given = [
        "run",
        "--dataset",
        "bundled:pydocs-qa",
        "-n",
        "2",
        "--upstream",
        "embedded",
        "--system",
        "full",
        "--store",
        "s.db",
    ]
    ended = await trial.done(*given, "--run", "e", "--output", "json", "--out", "out.json")
    owners = {path.stat().st_uid for path in into.iterdir()}
    trial.add(
        "the bundled model, its quick copy in the user's cache",
        "run --upstream embedded",
        ended,
        ended.code == 0 and owners == {USER},
    )


def foreign(before: set[str]) -> list[str]:
    """What the user left in places that all may write to."""
    found = {
        str(path)
        for place in ("/tmp", "/var/tmp", "/dev/shm")
        for path in Path(place).iterdir()
        if path.lstat().st_uid == USER
    }
    return sorted(found - before)


async def main() -> int:
    table = common.Table("An ordinary user")
    weights = next(cache_folder().glob("SmolLM2*Q4_1.gguf"), None)
    with tempfile.TemporaryDirectory(prefix="context-bench-trial-") as name:
        top = common.opened(name)
        before, noise = set(foreign(set())), list[str]()
        for kind in ("a home", "a home that cannot be written", "no home", "no HOME, unknown user"):
            folder, home = top / kind.replace(" ", "-") / "work", top / kind.replace(" ", "-") / "home"
            folder.mkdir(parents=True)
            home.mkdir()
            os.chown(folder, USER, USER)
            if kind == "a home":
                os.chown(home, USER, USER)
            given = {"no home": str(top / "nowhere"), "no HOME, unknown user": ""}.get(kind, str(home))
            trial = Trial(kind, folder, given, table)
            await flows(trial)
            if kind == "a home":
                await model(trial, weights, table)
            noise += trial.noise
        left = foreign(before)
        table.add(
            "nothing is left outside the user's folders",
            "/tmp, /var/tmp, /dev/shm",
            ", ".join(left) or "nothing",
            not left,
        )
        table.add("no traceback, nothing unclosed", "all of them", f"{len(noise)} lines", not noise)
        for line in noise[:10]:
            print(line, file=sys.stderr)
    return table.ended()


if __name__ == "__main__":
    if os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("bwrap"):
        sys.exit(
            "ordinary_user.py needs root, setpriv (apt-get install util-linux) and bwrap (apt-get install bubblewrap)"
        )
    sys.exit(asyncio.run(main()))
