"""The commands: what each is called, what it is for in a line, where it stands. Loaded when it is asked for, so that
help costs no more.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from importlib import import_module

import click
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.families import Command, Family, built_in, families

_OWN = {
    "run": Command("context_bench.cli.run:command", "Measure proxies and other systems on datasets, with verdicts."),
    "demo": Command(
        "context_bench.cli.demo:command", "What this shows, offline: a bundled model, real text, five proxies."
    ),
    "judge": Command("context_bench.cli.judge:app", "Is a judge to be trusted: audit, label, calibrate, pairs."),
    "compare": Command("context_bench.session.compare_runs:command", "Two runs paired by example, with verdicts."),
    "gate": Command("context_bench.session.gate:command", "Exit code 4 if a limit does not hold or a run got worse."),
    "power": Command("context_bench.cli.power:command", "How many examples it takes, what yours can show."),
    "datasets": Command("context_bench.cli.datasets:command", "What there is to measure on."),
    "runs": Command("context_bench.session.runs:list_runs", "The runs in a store, newest first."),
    "show": Command("context_bench.session.runs:show", "The report of a stored run, in any format."),
    "view": Command(
        "context_bench.cli.stored:view_store", "Stored and running runs in the browser, on this machine only."
    ),
    "diff": Command("context_bench.cli.stored:diff_example", "What was done to one example's messages, in words."),
    "plot": Command("context_bench.cli.plot:command", "A chart of a run as SVG or PNG."),
    "rescore": Command("context_bench.session.runs:rescore", "Judge stored answers again; no system is called."),
    "export": Command("context_bench.session.runs:export", "Everything a run found, for other programs."),
    "import": Command(
        "context_bench.cli.import_answers:command", "Answers that were given elsewhere, as a stored run."
    ),
    "copy": Command("context_bench.cli.stored:copy_runs", "Runs from one store to another, whole."),
    "purge": Command("context_bench.session.runs:purge", "Remove runs older than an age."),
    "tap": Command("context_bench.cli.endpoints:record_at_tap", "Record what really reaches a provider."),
    "serve": Command(
        "context_bench.cli.endpoints:serve_system", "Any system or control as a proxy.", {"allow_extra_args": True}
    ),
    "model": Command("context_bench.cli.endpoints:app", "The bundled small model: fetch it, serve it."),
    "version": Command("context_bench.session.runs:version", "The version of this program."),
}


def _listed(families: Iterable[Family]) -> dict[str, Command]:
    """The platform's commands with those of families, each after the one that it names; a name that is taken stays what
    it is.
    """
    names, commands = list(_OWN), dict(_OWN)
    for family in families:
        for name, command in family.commands.items():
            if name not in commands:
                names.insert(names.index(command.after) + 1 if command.after in names else len(names), name)
                commands[name] = command
    return {name: commands[name] for name in names}


#: The commands of this package.
COMMANDS = _listed(built_in())


def commands() -> dict[str, Command]:
    """Those, and the commands of families that installed packages bring."""
    known = families()
    return COMMANDS if known == built_in() else _listed(known)


def find(name: str) -> Command | None:
    """The command of that name. Packages are asked only about a name that is none here and no option."""
    return COMMANDS.get(name) or (None if name.startswith("-") else commands().get(name))


class Commands(TyperGroup):
    """The root: its commands are built when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, built now."""
        return built(cmd_name) if find(cmd_name) is not None else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.about) for name, command in commands().items()])


def built(name: str) -> click.Command:
    """The parser of one command or group of commands."""
    command = find(name)
    if command is None:
        raise UnknownName("command", name, commands())
    module, _, attribute = command.place.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, context_settings=dict(command.settings))(found)
    return get_command(alone)


def names_in(name: str) -> set[str]:
    """The commands of a group of commands."""
    command = find(name)
    group = built(name) if command is not None and command.place.endswith(":app") else None
    return set(group.commands) if isinstance(group, TyperGroup) else set()


def in_full(args: Sequence[str]) -> list[str]:
    """A line with the command that it leaves out: `run`, or the one that its group means without a word."""
    command = find(args[0])
    if command is None:
        return ["run", *args]
    if command.default and args[1:] and args[1] not in {*names_in(args[0]), "-h", "--help"}:
        return [args[0], command.default, *args[1:]]
    return list(args)


def no_command(args: Sequence[str]) -> BadInput | None:
    """The fault of a line whose first word, or second where the first is a group, is no command; `None` if there is
    none.
    """
    words = [*args[:2], "", ""]
    group = words[0] if find(words[0]) is not None else None
    asked, known = (words[1], sorted(names_in(group)) if words[1] else []) if group else (words[0], list(commands()))
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
