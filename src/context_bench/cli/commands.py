"""The commands: what each is called, what it is for in a line, where it stands. Loaded when it is asked for, so that help costs no more."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import click
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from context_bench.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Command:
    """`place`: module of this package and its function (or group of commands). `about`: the line of the list. `settings`: of its parser."""

    place: str
    about: str
    settings: dict[str, Any] = field(default_factory=dict)


COMMANDS = {
    "run": Command("run:command", "Measure proxies and other systems on datasets, with verdicts."),
    "demo": Command("demo:command", "What this shows, offline: a bundled model, real text, five proxies."),
    "watch": Command("watch:command", "Your own traffic before and behind a proxy, live.", {"allow_extra_args": True}),
    "replay": Command("replay:command", "Recorded sessions again, through each proxy."),
    "agent": Command("agent:command", "Agents on repository tasks, arm against arm.", {"allow_extra_args": True}),
    "memory": Command("memory:app", "Measure memories: run, doctor, ops, audit."),
    "compress": Command("compress:app", "What a compressor did to recorded texts and sessions."),
    "judge": Command("judge:app", "Is a judge to be trusted: audit, label, calibrate, pairs."),
    "trace": Command("trace:app", "Did an agent read the right code: score, compare."),
    "compare": Command("compare:command", "Two runs paired by example, with verdicts."),
    "gate": Command("gate:command", "Exit code 4 if a limit does not hold or a run got worse."),
    "power": Command("power:command", "How many examples it takes, what yours can show."),
    "datasets": Command("datasets:command", "What there is to measure on."),
    "runs": Command("runs:list_runs", "The runs in a store, newest first."),
    "show": Command("runs:show", "The report of a stored run, in any format."),
    "view": Command("view:command", "Stored and running runs in the browser, on this machine only."),
    "diff": Command("diff:command", "What was done to one example's messages, in words."),
    "plot": Command("plot:command", "A chart of a run as SVG or PNG."),
    "rescore": Command("runs:rescore", "Judge stored answers again; no system is called."),
    "export": Command("runs:export", "Everything a run found, for other programs."),
    "import": Command("importing:command", "Answers that were given elsewhere, as a stored run."),
    "copy": Command("copying:command", "Runs from one store to another, whole."),
    "purge": Command("runs:purge", "Remove runs older than an age."),
    "tap": Command("tap:command", "Record what really reaches a provider."),
    "serve": Command("serve:command", "Any system or control as a proxy.", {"allow_extra_args": True}),
    "doctor": Command("doctor:command", "What a proxy speaks, keeps and changes."),
    "model": Command("model:app", "The bundled small model: fetch it, serve it."),
    "version": Command("runs:version", "The version of this program."),
}


class Commands(TyperGroup):
    """The root: its commands are built when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, built now."""
        return built(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.about) for name, command in COMMANDS.items()])


def built(name: str) -> click.Command:
    """The parser of one command or group of commands."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(import_module(f"context_bench.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, context_settings=COMMANDS[name].settings)(found)
    return get_command(alone)


def names_in(name: str) -> set[str]:
    """The commands of a group of commands."""
    group = built(name) if COMMANDS[name].place.endswith(":app") else None
    return set(group.commands) if isinstance(group, TyperGroup) else set()


def no_command(args: Sequence[str]) -> BadInput | None:
    """The fault of a line whose first word, or second where the first is a group, is no command; `None` if there is none."""
    words = [*args[:2], "", ""]
    group = words[0] if words[0] in COMMANDS else None
    asked, known = (words[1], sorted(names_in(group)) if words[1] else []) if group else (words[0], list(COMMANDS))
    if not asked or asked.startswith("-") or not known or asked in known:
        return None
    near = difflib.get_close_matches(asked, known, n=2)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(known)}."
    return BadInput(f"No command {f'{group} {asked}' if group else asked!r}. {hint}")


def unhide(command: click.Command) -> None:
    """Show all options of a command, and of those below it."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            parameter.hidden = False
    if not isinstance(command, TyperCommand):
        for child in getattr(command, "commands", {}).values():
            unhide(child)
