"""Ctrl-C, once and twice, before any statement of a run: while it begins, works, commits and reports. The same command
then goes on.
"""

import signal

import pytest


@pytest.fixture(scope="module")
def statements(forge, endpoint, make_bench):
    """How many statements the whole command makes, from opening the store to its report."""
    status, said, out = forge.play("command", fault={"count": True}, argv=make_bench().argv())
    assert status == 0, out
    return said["statements"]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.98])
def test_an_interrupted_command_says_how_to_go_on_and_loses_nothing(bench, undisturbed, statements, share, times):
    first = int(share * statements)
    status, out = bench.run(fault={"interrupt_at": [first, first + 1][:times]})
    assert status == 130 or (share > 0.9 and times == 1 and status == 0), (
        out
    )  # too late to be noticed: then the report is there
    assert status == 0 or "Go on with" in out
    assert "Traceback" not in out
    status, out = bench.run()
    assert status == 0, out
    assert bench.report().replace(str(bench.folder), "FOLDER") == undisturbed


def test_a_report_for_which_there_is_no_room_leaves_the_one_before_whole(bench):
    status, out = bench.run()
    assert status == 0, out
    before = (bench.folder / "out.json").read_bytes()
    for form in ("html", "jsonl"):
        argv = ["export", "r", "--store", str(bench.store), "--format", form, "--out", str(bench.folder / "out.json")]
        status, _, out = bench.forge.play("command", fault={"file_size": 40_000}, argv=argv)
        assert status == 2, out
        assert "cannot write" in out
        assert "File too large" in out
    assert (bench.folder / "out.json").read_bytes() == before
    assert not list(bench.folder.glob(".*.part"))


@pytest.mark.parametrize("form", ["html", "jsonl"])
def test_who_is_killed_while_writing_a_report_leaves_the_old_one_or_the_new(finished, form):
    out = finished.folder / f"report.{form}"
    argv = ["export", "r", "--store", str(finished.store), "--format", form, "--out", str(out)]
    out.write_text("the old one")
    status, _, said = finished.forge.play(
        "command", fault={"die_at_size": 40_000}, argv=argv
    )  # more than reading a store takes
    assert status == -signal.SIGXFSZ, said
    assert out.read_text() == "the old one"
    (part,) = finished.folder.glob(f".report.{form}.*.part")
    assert part.stat().st_size == 40_000
    status, _, said = finished.forge.play("command", argv=argv)
    assert status == 0, said
    assert out.read_bytes().startswith(part.read_bytes()[:30_000])


def test_a_run_that_is_killed_while_it_writes_its_report_has_all_rows_and_the_old_report(finished):
    out = finished.folder / "out.html"
    out.write_text("the old one")
    before = finished.report()
    argv = finished.argv("--output", "html", "--out", str(out))
    status, _, said = finished.forge.play("command", fault={"die_at_size": 45_000}, argv=argv)
    assert status == -signal.SIGXFSZ, said
    assert out.read_text() == "the old one"
    status, _, said = finished.forge.play("command", argv=argv)
    assert status == 0, said
    assert out.read_text().rstrip().endswith("</html>")
    assert finished.report() == before


@pytest.fixture(scope="module")
def finished(make_bench):
    """A run that is over."""
    made = make_bench()
    status, out = made.run()
    assert status == 0, out
    return made
