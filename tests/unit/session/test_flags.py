"""Options are declared once: the parser, the help, completion and the record follow from the declaration."""

from pathlib import Path
from typing import Any

import click
import pytest
import typer
from typer.main import get_command

from context_bench.core.errors import BadSpec
from context_bench.session import options
from context_bench.session.flags import DECLARED, OptionSet, flag, options_of, own, read_options, takes
from context_bench.session.options import Common, MemoryOptions, RunOptions


@pytest.fixture
def own_declarations(monkeypatch):
    """Declarations of a test do not stay for others."""
    for name in ("altitude", "harbour", "legs"):
        monkeypatch.setitem(DECLARED, name, None)
        monkeypatch.delitem(DECLARED, name)


def parser_of(function: Any) -> click.Command:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command("made")(function)
    return get_command(app)


def options_by_name(function: Any) -> dict[str, click.Option]:
    return {str(each.name): each for each in parser_of(function).params if isinstance(each, click.Option)}


def test_an_option_cannot_be_declared_twice():
    with pytest.raises(TypeError, match="the option store is declared twice"):

        class Second(OptionSet):
            store: str = flag("Another place.", "x")


def test_a_package_declares_options_of_its_own(own_declarations, capsys):
    class TripOptions(OptionSet):
        altitude: int = flag("Metres above the sea.", 100, unit="M", ge=0)
        harbour: str | None = flag("Where it ends.", note="the nearest")

    @takes(TripOptions, "altitude", harbour=own(rare=True))
    def trip(context: typer.Context, *, harbour: str | None, **given: Any) -> int:
        read = TripOptions(**given, harbour=harbour)
        print(read.altitude, read.harbour)
        return 0

    parser_of(trip).main(["--altitude", "7"], standalone_mode=False)
    assert capsys.readouterr().out == "7 None\n"
    found = options_by_name(trip)
    assert (found["altitude"].metavar, found["altitude"].default, found["harbour"].hidden) == ("M", 100, True)
    assert found["harbour"].help == "Where it ends. [default: the nearest]"
    with pytest.raises(BadSpec, match="--altitude -1: expected a whole number at least 0"):
        read_options({"altitude": -1}, None, TripOptions)


def test_a_command_states_in_what_it_differs(own_declarations):
    class WalkOptions(OptionSet):
        legs: list[str] = flag("Parts of the way.", ["one", "two"], names="-l --legs", rare=True)

    @takes(WalkOptions, legs=own("Parts.", default=["all"], rare=False))
    def walk(legs: list[str]) -> int:
        return len(legs)

    assert (options_by_name(walk)["legs"].help, options_by_name(walk)["legs"].default) == ("Parts.", ["all"])
    assert options_by_name(walk)["legs"].opts == ["-l", "--legs"]
    assert (DECLARED["legs"].help, DECLARED["legs"].rare) == ("Parts of the way.", True)


def test_an_option_without_a_default_has_to_be_given():
    @takes(Common)
    def needs(older_than: str, against: str | None) -> int:
        return 0

    found = options_by_name(needs)
    assert (found["older_than"].required, found["against"].required) == (True, False)


def test_what_a_family_changes_leaves_the_declaration_alone():
    assert (MemoryOptions.flags["seed"].default, RunOptions.flags["seed"].default, DECLARED["seed"].default) == (
        42,
        0,
        0,
    )
    assert list(MemoryOptions.flags)[: len(RunOptions.flags)] == list(RunOptions.flags)
    assert MemoryOptions().seed == 42


def test_a_file_stands_below_the_flags(tmp_path):
    file = tmp_path / "options.toml"
    file.write_text("seed = 3\ntrials = 2\n")
    seen = []

    @takes(RunOptions, "seed trials config")
    def command(context: typer.Context, **_given: Any) -> int:
        seen.append(options_of(context, RunOptions))
        return 0

    parser_of(command).main(["--seed", "4", "--config", str(file)], standalone_mode=False)
    assert (seen[0].seed, seen[0].trials, seen[0].given) == (4, 2, {"seed", "trials"})


def test_defaults_stand_in_the_help_once():
    for kind in vars(options).values():
        for name, each in getattr(kind, "flags", {}).items():
            assert "[default:" not in each.help or kind is options.WatchOptions, name


def test_every_declared_option_is_typed():
    assert all(each.type is not None for each in DECLARED.values())
    assert DECLARED["out"].type == Path | None
