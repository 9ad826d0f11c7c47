"""Commands that are printed give every name back when they are pasted into a shell, whatever the name holds."""

from __future__ import annotations

import html
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import context_bench
from context_bench.__main__ import main
from context_bench.core.errors import BadInput
from context_bench.core.families import GradeTarget
from context_bench.core.lazy import registry
from context_bench.core.machine import quoted, shell_words
from context_bench.core.records import Comparison, Estimate, EvalRow, Result
from context_bench.core.tokens import utf8_safe
from context_bench.engine import Arm, RunSettings, execute, open_store, open_watch
from context_bench.engine.store.run_records import refuse_deleted
from context_bench.reports import build_page, render
from context_bench.reports.cards import store_option
from context_bench.reports.detail import command_for
from context_bench.reports.renderers import page_from, page_text
from context_bench.reports.rowdata import command
from context_bench.reports.visible_text import command_on, option, visible
from context_bench.session import interrupts
from context_bench.session.grade import command_line
from context_bench.traffic.sections import bill_pointer
from context_bench.viewer.pages import render as viewer_page

NAMES = [
    "plain",
    "it's",
    'a run\'s "name"',
    "$(touch owned) `touch owned` ${HOME}",
    "back\\slash \\n \\x41 \\",
    "'\\''",
    "$'in bash'",
    "-rf",
    "--",
    "--store=elsewhere",
    "-",
    "tab\tand\nlines\r\n",
    "\n",
    "two  spaces   three",
    "  ahead",
    "behind ",
    "\x1b[31mred\x1b]0;title\x07",
    "\x1b[2J'; rm -rf /; echo '",
    "\x9b2J\x85",
    "\x01\x7f\x1f",
    "\u202egnp.exe\u2066\u200f",
    "\u200b\ufeff\u2060 zero width",
    "no\u00a0break\u3000space",
    "line\u2028para\u2029graph",
    "z\u0300\u0301\u0302\u0303\u0304\u0305\u0306",
    "\u0301mark first",
    "\u0e19\u0e49\u0e33 \u0928\u093f",
    "имя прогона",
    "имя\nпрогона",
    "\u3164\u115f\ufe0f",
    "😀 \U000e0041",
    "not UTF-8: \udcff\udc80",
    "\udce2\udc82",
    "hi!story !! !x 'it!'",
    "hex \x1bABC \x02\x33",
    "*?[a]{b,c} ~ ~root # | & ; < > ( )",
    "=cmd",
    "</code><script>alert(1)</script>",
    "&lt;b&gt;&#x3c;",
    "{{ 7*7 }}{% raw %}",
    "../../etc/passwd",
    "a`b*c_d[e](f)|g",
    "n" * 12_000,
    "\x1b\u202e'\\" * 3_000,
]
_PRINTED = re.compile(r"context-bench (?:\\\n|[^\n])*")


def pasted(*commands: str, locale: str = "C.UTF-8") -> list[list[bytes]]:
    """The arguments that `context-bench` gets from each of the commands in bash."""
    script = "\n".join(['context-bench() { printf "%s\\0" "$#" "$@"; }', *commands, ""])
    done = subprocess.run(
        ["bash", "--norc"], input=os.fsencode(script), capture_output=True, env={"LC_ALL": locale}, check=True
    )
    assert done.stderr == b""
    words = done.stdout.split(b"\0")[:-1]
    found = []
    while words:
        many = int(words[0])
        found.append(words[1 : 1 + many])
        words = words[1 + many :]
    assert len(found) == len(commands)
    return found


def as_bytes(*words: str) -> list[bytes]:
    return [os.fsencode(word) for word in words]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_quoted_name_is_the_name_again(locale: str) -> None:
    given = pasted(*(f"context-bench {quoted(name)}" for name in NAMES), locale=locale)
    assert given == [as_bytes(name) for name in NAMES]


def as_copied(page: str) -> str:
    """A page without the elements that keep a word in one line: what is copied is the text."""
    return re.sub(r'<span class="whole">(.*?)</span>', r"\1", page)


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_a_quoted_name_is_shown_as_it_is(at: int) -> None:
    """No function that makes text harmless changes it, and it can be told from the words beside it."""
    word = quoted(NAMES[at])
    assert visible(word, len(word)) == word
    assert html.unescape(" ".join(html.escape(word).split())) == word  # as a browser folds spaces
    assert shell_words(f"a {word} b {word}") == ["a", word, "b", word]


def test_no_name_gives_another_ones() -> None:
    """NUL can stand in no argument, half a surrogate pair in no store: neither is cut out of a name."""
    assert pasted(f"context-bench {quoted('kept' + chr(0) + 'more')}") == [["kept\ufffdmore".encode()]]
    assert pasted(f"context-bench {quoted('half ' + chr(0xD800))}") == [[b"half ?"]]


def test_characters_of_every_kind_are_given_back() -> None:
    codes = [*range(1, 0x3000), *range(0x3000, 0xD800, 61), *range(0xE000, 0x110000, 331)]
    names = ["".join(map(chr, codes[at : at + 500])) for at in range(0, len(codes), 500)]
    given = pasted(*(f"context-bench {quoted(name)} {quoted('x' + name)}" for name in names))
    assert given == [as_bytes(name, "x" + name) for name in names]


#: What is no command for a reader: scripts that this program runs in `sh`, lines of logs for its own parser, commands
#: that it splits again itself.
_NOT_PRINTED = {
    "agents/systems/agent.py",
    "agents/datasets/published_tasks.py",
    "transcripts/traces/events.py",
    "traffic/doctor/mcp_checks.py",
}


def test_there_is_one_way_to_quote() -> None:
    package = Path(context_bench.__file__).parent
    quoting = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"shlex\.(quote|join)|from shlex import .*\b(quote|join)\b", path.read_text(encoding="utf-8"))
    }
    assert quoting == _NOT_PRINTED | {"core/machine.py"}


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_commands_on_a_name(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    name, other = NAMES[at], NAMES[at - 1]
    monkeypatch.setattr(interrupts, "_typed", ["trace", "show", name, f"--out={other}"])
    monkeypatch.setattr(interrupts, "_program", lambda: ["context-bench"])
    target = GradeTarget(subject="proxy", value="", start=name, headers={"X-Name": other})
    where = {"run": name, "example_id": other, "system": name, "trial": 2, "store": other}
    commands = {
        command_on("context-bench diff", [name, other], option("--system", name)): ("diff", name, other),
        f"context-bench view{store_option(name)}": ("view", name),
        command_for(where): ("diff", name, other, "2", "--full"),
        command_line(target): ("grade", "--proxy-command", name, "--header", f"X-Name: {other}"),
        interrupts.again(): ("trace", "show", name, f"--out={other}"),
    }
    for (line, wanted), given in zip(commands.items(), pasted(*commands), strict=True):
        words = [word.partition(b"=")[2] if re.match(b"--(system|store)=-", word) else word for word in given]
        assert set(as_bytes(*wanted)) <= set(words), line


def few(name: str, store: str) -> Result:
    """A result with one verdict on a system of this name, in a run of this name."""
    rows = [
        EvalRow(system=system, example_id=name, scores={"f1": score}, input_tokens=100, output_tokens=10)
        for system, score in (("full", 1.0), (name, 0.0))
    ]
    estimate = Estimate(0.4, 0.1, 0.7, 3, 1, 0.3, 0.6, 7, "full")
    return Result(
        rows,
        {system: {"f1": 0.5} for system in ("full", name)},
        config={"score_field": "f1"},
        manifest={"run": {"name": name, "store": store}, "model": "m"},
        estimates={system: {"f1": estimate} for system in ("full", name)},
        comparisons=[
            Comparison(
                name, "full", "f1", None, None, -0.5, -0.6, -0.4, 0.01, "inferior", 0.02, 38, 20, sentence="worse"
            )
        ],
    )


def shown_commands(page: Any) -> dict[str, list[str]]:
    """The commands on a page, as a reader sees them in each form of it."""
    terminal = render(page, "table", full=False)
    markdown = html.unescape(re.sub(r"\\([\\`*_\[\]<>&|~])", r"\1", render(page, "markdown")))
    page_html = re.sub(
        r'<span class="whole">(.*?)</span>', r"\1", render(page, "html")
    )  # keeps words whole, is no part
    return {
        "terminal": [line.strip() for line in _PRINTED.findall(terminal)],
        "markdown": _PRINTED.findall(markdown),
        "html": [html.unescape(each) for each in re.findall("<code>(context-bench [^<]*)</code>", page_html)],
    }


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_commands_in_every_form_of_a_report(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_objects", {})  # what other tests registered would be users' own: no page is kept
    name, store = utf8_safe(NAMES[at]), NAMES[at - 1]  # a name is stored like that
    page = build_page(few(name, "before.db"), store="before.db")
    moved = page_from(page_text(page, store="before.db") or "", page.rows, store=store)
    assert moved is not None
    for form, commands in shown_commands(moved).items():
        assert commands, form
        for line, words in zip(commands, pasted(*commands), strict=True):
            assert os.fsencode(name) in words, (form, line)
            assert os.fsencode(store) in {word.removeprefix(b"--store=") for word in words}, (form, line)
            assert b"before.db" not in words
    for line in (command(moved), *bill_pointer(few(name, store)).split("\n")[1::2]):
        (words,) = pasted(line.strip())
        assert os.fsencode(name) in words
    assert all(line.isprintable() for line in render(moved, "table", full=False).split("\n"))


@dataclass
class Listed:
    """A run as lists have it."""

    name: str
    deleted: float = 1.0
    id: str = "abc"
    title: str | None = None
    rows: int = 1
    created: float = 1.0


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_commands_in_sentences_and_in_the_viewer(at: int) -> None:
    name = NAMES[at]

    with pytest.raises(BadInput) as told:
        refuse_deleted(Listed(name), name)  # type: ignore[arg-type]
    commands = re.findall(r"`(context-bench .*?)`(?:,|$)", visible(str(told.value), 200_000))
    assert [words[-1] for words in pasted(*commands)] == [os.fsencode(name)] * 2
    page = as_copied(
        viewer_page("delete.html.j2", run=Listed(name), store=name, store_option=store_option(name), key=None)
    )
    (line,) = re.findall("<code>(context-bench purge[^<]*)</code>", page)
    assert pasted(html.unescape(line))[0][-1].removeprefix(b"--store=") == os.fsencode(name)


class Shorter:
    """A system that loses every answer."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def aprocess(self, example: dict[str, Any]) -> dict[str, Any]:
        return {**example, "response": "gold" if self.name == "full" else "x"}


class Equal:
    name, version = "equal", "1"

    def score(self, original: dict[str, Any], processed: dict[str, Any]) -> dict[str, float]:
        return {"f1": float(processed["response"] == "gold")}


@pytest.mark.parametrize(
    "name", ["\x1b[31mred\u202e\n'it's'", "-rf  \\", "имя\u200b $(id)", "\x1b\u202e'\\" * 1_000], ids=range(4)
)
async def test_what_a_report_prints_can_be_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place = f"of {name[:20]}.db"
    with open_store(place) as store:
        await execute(
            store,
            name=name,
            arms=[Arm(Shorter("full")), Arm(Shorter(name))],
            examples=[{"id": f"{name} {number}", "question": "?", "answer": "gold"} for number in range(8)],
            evaluators=[Equal()],
            settings=RunSettings(late_grace=0.0),
            manifest={
                "cells": [{"labels": {}, "systems": ["full", name], "baseline": "full", "controls": ["full"]}],
                "margin": {"value": 0.02, "rule": "given", "score_field": "f1"},
                "options": {"seed": 0, "score_field": "f1", "model": "m"},
            },
        )
        open_watch(store, {}, name=name).end()
    assert main(["show", f"--store={place}", "--", name]) == 0
    commands = [line.strip() for line in _PRINTED.findall(capsys.readouterr().out)]
    assert commands
    commands.append(command_for({"run": name, "example_id": f"{name} 0", "system": name, "store": place}))
    commands.append(f"context-bench watch{option('--show', name)}{store_option(place)}")
    for words in pasted(*commands):
        assert main([os.fsdecode(word) for word in words]) == 0, words
    assert capsys.readouterr().err == ""
