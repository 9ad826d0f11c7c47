"""The exit code of a command line of each kind, as `exit-codes.txt` has them."""

import json
import re
import sys
from pathlib import Path

from context_bench.__main__ import main

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from recordings import houses  # noqa: E402

RUN = "run --dataset houses.jsonl --upstream scripted:script.json --controls full,none --quiet --max-failures 1"
LINES = (
    f"{RUN} --run one",
    f"{RUN} --run one",
    f"{RUN} --run two --seed 1",
    f"{RUN} --run one --seed 2",
    f"{RUN.replace('--max-failures 1', '--max-failures 0.01')} --run three",
    f"{RUN} --run four --model gpt-4o-mini --price gpt-4o-mini=1000,1000 --max-cost 0.0001",
    f"{RUN} --dry-run",
    "run --dataset houses.jsonl --proxy http://127.0.0.1:1 --quiet",
    "run --dataset houses.jsonl --controls full",
    "run --dataset nowhere.jsonl --upstream echo --controls full",
    "run --dataset houses.jsonl",
    "run --no-such-option",
    "no-such-command",
    "--help",
    "version",
    "runs",
    "show one",
    "show no-such-run",
    "show one --output no-such-format",
    "show one --store no-such-store.db",
    "show one --store houses.jsonl",
    "compare one two",
    "compare one two --force",
    "compare one other-data",
    "gate one --min full/f1=0.1",
    "gate one --min none/f1=0.9",
    "gate one --min none/no_such_score=0.9",
    "gate one --against two",
    "export one --format jsonl --out rows.jsonl",
    "export one --format memory",
    "diff one house-1",
    "diff one no-such-example",
    "plot one --kind no-such-kind",
    "rescore one",
    "import rows.jsonl",
    "import script.json",
    "copy one --to other.db",
    "purge --older-than 1000d",
    "purge --older-than soon",
    "power --from one",
    "power --sd 0.3",
    "datasets",
    "datasets no-such-set",
    "watch",
    "watch --show last",
    "replay houses.jsonl --upstream echo",
    "agent bundled:repo-tasks --arm base=",
    "memory run --system no-such-memory --dataset bundled:recall-lab:turns=40",
    "compress run bundled:sessions/no-such-session --system anchored",
    "compress probe bundled:sessions/order-sync-zh",
    "trace score --gold nowhere.jsonl --trace nowhere",
    "judge audit",
    "doctor http://127.0.0.1:1",
    "grade",
    "grade --system full --check error,",
    "serve",
)


def code_of(line):
    try:
        return main(line.split())
    except SystemExit as ended:  # nothing to run: a scripted caller may tell it from a run that failed
        return f"{ended.code} (SystemExit)"


def other_data():
    """A run on other examples, with which no run can be compared."""
    rows = [{"id": f"n{n}", "context": f"It is {n}.", "question": "Which is it?", "answer": str(n)} for n in range(4)]
    Path("other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(f"{RUN.replace('houses.jsonl', 'other.jsonl')} --run other-data".split()) == 0


def test_each_kind_of_end_has_its_exit_code(tmp_path, monkeypatch, golden):
    monkeypatch.chdir(tmp_path)
    houses()
    other_data()
    golden("exit-codes.txt", "".join(f"{code_of(line)}\t{line}\n" for line in LINES))


def test_an_interrupted_command_ends_with_130(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    houses()
    Path("interrupting.py").write_text(
        "import os, signal\n\nclass System:\n    name = 'interrupting'\n\n    def process(self, example):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        return {**example, 'response': 'x'}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["run", "--dataset", "houses.jsonl", "--system", "py:interrupting:System", "--quiet"]) == 130


def test_the_codes_are_those_that_the_documentation_promises():
    promised = re.search(r"Exit codes: (.*?)\.\n", (HERE.parents[1] / "docs/commands.md").read_text("utf-8"), re.S)[1]
    found = {line.split()[0] for line in (HERE / "exit-codes.txt").read_text("utf-8").splitlines()}
    assert found | {"6", "130"} == set(re.findall(r"(?:^|· )(\d+) ", promised.replace("\n", " ")))
