"""From `argv` to a subcommand, and from an outcome to an exit code.

Exit codes: 0 done · 1 done, but more failures than `--max-failures`, or ended by a fault of this program · 2 usage or
preflight · 3 not comparable · 4 gate failed · 5 cost cap reached · 130 interrupted.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command, get_group
from typer.models import ArgumentInfo

from context_bench.cli import faults
from context_bench.core import machine
from context_bench.core.errors import BadInput, ContextBenchError, Failed, NothingToRun, Stop, UnknownName
from context_bench.core.families import Command, Family, built_in, families
from context_bench.session import interrupts, output_files

_OWN = {
    "run": Command("context_bench.cli.planning:run", "Measure proxies and other systems on datasets, with verdicts."),
    "demo": Command(
        "context_bench.cli.demo:command", "Try it offline in three minutes: a bundled model, real text, five proxies."
    ),
    "judge": Command("context_bench.cli.judge:app", "Is a judge to be trusted: audit, label, calibrate, pairs."),
    "compare": Command("context_bench.session.runs:compare_runs", "Two runs paired by example, with verdicts."),
    "grade": Command("context_bench.cli.grade:command", "A letter for each heading, by published rules, offline."),
    "gate": Command("context_bench.session.gate:command", "Exit code 4 if a limit does not hold or a run got worse."),
    "power": Command(
        "context_bench.cli.planning:count_examples", "How many examples you need, and what yours can show."
    ),
    "datasets": Command("context_bench.cli.planning:list_datasets", "What there is to measure on."),
    "runs": Command("context_bench.session.runs:list_runs", "The runs and watches in a store, newest first."),
    "show": Command("context_bench.session.runs:show", "The report of a stored run, in any format."),
    "view": Command(
        "context_bench.cli.stored:view_store", "Stored and running runs in the browser, on this machine only."
    ),
    "diff": Command("context_bench.cli.stored:diff_example", "What was done to one example's messages, in words."),
    "plot": Command("context_bench.cli.stored:plot_chart", "A chart of a run as SVG or PNG."),
    "card": Command("context_bench.cli.stored:make_card", "The answers of a run as one picture, to show to others."),
    "rescore": Command("context_bench.session.runs:rescore", "Judge stored answers again; no system is called."),
    "export": Command("context_bench.cli.stored:export", "Everything a run found, for other programs."),
    "import": Command(
        "context_bench.cli.endpoints:import_answers", "Answers that were given elsewhere, as a stored run."
    ),
    "copy": Command("context_bench.cli.stored:copy_runs", "Runs from one store to another, whole."),
    "purge": Command("context_bench.cli.stored:purge", "Remove runs older than an age, or marked as deleted."),
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


class CommandGroup(TyperGroup):
    """A group whose list gives the first sentence of each command whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list; the command line parser's own cuts what is longer than a line."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=1_000)) for name, command in commands])


class DescribedCommand(TyperCommand):
    """A command whose help describes each argument as its function declares it.

    typer hands the descriptions to click's `Argument`, which from 8.5 on sets its own, empty one over them; given again
    they would be listed a second time by click itself.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        declared = inspect.signature(self.callback).parameters if self.callback is not None else {}
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.name in declared:
                marks = getattr(declared[parameter.name].annotation, "__metadata__", ())
                said = [each.help for each in marks if isinstance(each, ArgumentInfo)]
                parameter.help = said[0] if said else parameter.help

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: `format_options` lists them."""


def built(name: str) -> click.Command:
    """The parser of one command or group of commands."""
    command = find(name)
    if command is None:
        raise UnknownName("command", name, commands())
    module, _, attribute = command.place.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        found.info.cls = CommandGroup
        for each in found.registered_commands:
            each.cls = DescribedCommand
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=DescribedCommand, context_settings=dict(command.settings))(found)
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


_COMPLETION_VARIABLE = "_CONTEXT_BENCH_COMPLETE"
#: Names that a shell takes as they are: others are not offered, since some shells evaluate what they are given.
_HARMLESS = re.compile(r"[\w@.+#:/,=%-]+")


def completion_wanted() -> bool:
    """Return true if a shell asks for the next words (Tab)."""
    return _COMPLETION_VARIABLE in os.environ


def answer_completion(root: Any, complete_line: Callable[[list[str]], list[str]]) -> int:
    """Print the possible next words in the shell's own format. `complete_line` adds a command that was left out.

    Errors are silent. Nothing opens the store as a run does, so a key press is answered at once.
    """
    with suppress(Exception):
        print(_completion_answer(root, complete_line))
    return 0


def completion_script(args: list[str]) -> int | None:
    """Carry out `--show-completion SHELL` or `--install-completion SHELL`; return `None` for anything else.

    Without a shell's name it is `None`, too: typer then detects the shell.
    """
    if len(args) != 2 or args[0] not in ("--show-completion", "--install-completion"):
        return None
    from typer._completion_shared import install

    from context_bench.core.errors import UnknownName

    shells = ("bash", "zsh", "fish", "powershell", "pwsh")
    if args[1] not in shells:
        raise UnknownName("shell", args[1], shells)
    if args[0] == "--show-completion":
        print(_script(args[1]))
        return 0
    _, path = install(shell=args[1], prog_name="context-bench", complete_var=_COMPLETION_VARIABLE)
    if args[1] == "zsh":
        path.write_text(_script("zsh") + "\n", encoding="utf-8")
    print(f"context-bench: completion for {args[1]} is in {path}; it works in terminals opened from now on")
    return 0


def _script(shell: str) -> str:
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="context-bench", complete_var=_COMPLETION_VARIABLE, shell=shell)
    if shell == "zsh":  # zsh loads the file as a function of its name at the first Tab, which must be answered, too
        script += "\nif [[ ${funcstack[1]} == _context-bench ]]; then _context_bench_completion; fi"
    return script


def _completion_answer(root: Any, complete_line: Callable[[list[str]], list[str]]) -> str:
    from click.shell_completion import get_completion_class
    from typer._completion_classes import completion_init

    completion_init()
    shell = os.environ[_COMPLETION_VARIABLE].partition("_")[2]
    kind = get_completion_class(shell)
    if kind is None:
        return ""
    asked = kind(root, {}, "context-bench", _COMPLETION_VARIABLE)
    args, incomplete = asked.get_completion_args()
    head = before = ""
    if shell == "bash":
        args, incomplete, head = _joined(args, incomplete)
    elif incomplete.startswith("-") and "=" in incomplete:  # the parser gives the value alone, these shells want all
        option, _, incomplete = incomplete.partition("=")
        args, before = [*args, option], f"{option}="
    if len(args) > 1 or "-" in (incomplete[:1], *(each[:1] for each in args)):
        args = complete_line([*args, incomplete])[:-1]
    found = [item for item in asked.get_completions(args, incomplete) if _HARMLESS.fullmatch(item.value)]
    for item in found:
        item.value = before + item.value.removeprefix(head)
    setattr(asked, "get_completion_args", lambda: (args, incomplete))  # noqa: B010
    setattr(asked, "get_completions", lambda *_: found)  # noqa: B010
    return str(asked.complete())


def _joined(args: list[str], incomplete: str) -> tuple[list[str], str, str]:
    """Join words that bash has split at `:` and `=`; also return the part of the last one that bash will not
    replace.
    """
    words: list[str] = []
    glue = False
    for word in [*args, incomplete]:
        mark = word in (":", "=")
        if words and (glue or mark):
            words[-1] += word
        else:
            words.append(word)
        glue = mark
    last = words.pop() if words else ""
    if last.startswith("-") and "=" in last:  # --option=value: the parser wants them apart
        option, _, last = last.partition("=")
        words.append(option)
        return words, last, last[: last.rfind(":") + 1]
    return words, last, last[: max(last.rfind(":"), last.rfind("=")) + 1]


#: Options whose value may be left out, and the value that is meant then.
_OPTIONAL_VALUE = {"--controls": "default", "--resume": "last"}
app = typer.Typer(
    cls=Commands,
    name="context-bench",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,  # plain help: rendering it with rich takes longer than all the rest of --help
    epilog="Without a subcommand, `run` is meant: context-bench --proxy URL --dataset NAME. All options: "
    "context-bench --help-all",
)


@app.callback()
def root() -> None:
    """Measure what stands in front of your LLM, such as a proxy, a compressor or a memory: what quality is lost, what
    tokens, money and time are saved, and is the difference real?
    """


class UsageExit(SystemExit):
    """A command that names nothing to run, told apart from one that ran and failed: its text is the reason, its code
    2.
    """

    def __init__(self, reason: NothingToRun) -> None:
        super().__init__(str(reason))
        self.code = reason.exit_code


def run_line(argv: Sequence[str], *, for_good: bool = False) -> int:
    """Run one command; returns its exit code and lets no error out as a traceback, foreseen or not.

    `for_good`: the process ends after it, so that what goes wrong at its end is reported too.

    Raises `SystemExit` with the reason as its text where there is nothing to run (no system, no such dataset, no
    example).
    """
    with output_files.standard_streams(), faults.noticed(for_good=for_good):
        try:
            if completion_wanted():
                return answer_completion(typer.main.get_command(app), _prepare)
            with interrupts.noticed(argv), interrupts.without_leftovers():
                code = _run_line(list(argv))
            output_files.flush()
            return code
        except SystemExit as asked:
            if isinstance(
                asked.__context__, BrokenPipeError
            ):  # the option parser makes this of a pipe that nobody reads
                return _unforeseen(asked.__context__)
            raise
        except KeyboardInterrupt:  # the second, while the first was being answered
            return interrupts.CODE
        except BaseException as error:
            return _unforeseen(error)


def _unforeseen(error: BaseException) -> int:
    """End the command on an error that nobody caught: a closed pipe, a full disk, or a fault of ours."""
    if isinstance(error, OSError):
        stream = output_files.unwritable()
        if stream is not None:
            if not isinstance(error, BrokenPipeError):
                _say(BadInput(f"standard {stream} cannot be written: {error.strerror or error}"))
                return BadInput.exit_code
            return 0
        if error.errno in output_files.NO_ROOM:
            _say(BadInput(f"a file cannot be written: {error.strerror}; free some space. What is stored is kept"))
            return BadInput.exit_code
    return faults.exit_code_of(error)


def _run_line(args: list[str]) -> int:
    if (unknown := no_command(args)) is not None:
        _say(unknown)
        return unknown.exit_code
    args = _prepare(args)
    machine.bound_arenas()
    machine.return_large_blocks()
    machine.sleep_when_idle()
    show_all = "--help-all" in (args[: args.index("--")] if "--" in args else args)
    if show_all:
        args = ["--help" if arg == "--help-all" else arg for arg in args]
    command = typer.main.get_command(app)
    try:
        if (done := completion_script(args)) is not None:
            return done
        if args in (["--help"], ["-h"]):
            command.main(["--help"], prog_name="context-bench", standalone_mode=False)
            args = ["run", "--help"]
        if show_all:
            return _all_options(args)
        code = command.main(args, prog_name="context-bench", standalone_mode=False)
        if (
            code == interrupts.CODE and not interrupts.was_explained()
        ):  # the option parser makes a code of a Ctrl-C and says nothing
            print(interrupts.outcome(), file=sys.stderr)
        return code if isinstance(code, int) else 0
    except NothingToRun as nothing:
        _say(nothing)
        raise UsageExit(nothing) from nothing
    except Stop as stop:
        _say(stop)
        return stop.exit_code
    except Failed as failed:  # outside a run there is no row that it could become an error of
        _say(failed)
        return Stop.exit_code
    except (KeyboardInterrupt, typer.Abort) as end:
        if isinstance(end.__cause__, EOFError):  # which the option parser takes for Ctrl-D; nothing here reads on
            raise end.__cause__ from None
        print(interrupts.outcome(), file=sys.stderr)
        return interrupts.CODE
    except typer.Exit as done:
        return done.exit_code
    except OSError as error:
        if error.filename is None:
            raise
        _say(
            BadInput(
                f"{error.filename}: {error.strerror or error} (a file or folder that this command reads or writes)"
            )
        )
        return BadInput.exit_code
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # a usage error of the option parser
            error.show()
            return 2
        raise


def _prepare(args: list[str]) -> list[str]:
    general = {"-h", "--help", "--version", "--install-completion", "--show-completion"}
    if args and args[0] == "--version":
        return ["version"]
    if args and args[0] not in general:
        args = in_full(args)
    prepared: list[str] = []
    end = args.index("--") if "--" in args else len(args)  # what follows is another program's
    args, foreign = args[:end], args[end:]
    for i, arg in enumerate(args):
        value_follows = i + 1 < len(args) and not args[i + 1].startswith("-")
        prepared.append(f"{arg}={_OPTIONAL_VALUE[arg]}" if arg in _OPTIONAL_VALUE and not value_follows else arg)
    return prepared + foreign


def _all_options(args: list[str]) -> int:
    """The help of one command with every option in it."""
    command = built(args[0])
    unhide(command)
    command.main(args[1:], prog_name=f"context-bench {args[0]}", standalone_mode=False)
    return 0


def _say(stop: ContextBenchError) -> None:
    """The sentence that ends the command. It may quote what a model, a memory or a service said: without keys."""
    from context_bench.engine.encoding import secrets_of

    output_files.say(secrets_of(()).text(str(stop)))
