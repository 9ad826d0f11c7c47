"""Progress is for the person at the terminal: on stderr, and harmless whatever names say."""

import io

import pytest
from hypothesis import example, given, strategies as st
from rich.cells import cell_len

from context_bench.engine.progress import (
    Median,
    ProgressRow,
    Step,
    TerminalProgress,
    block,
    brief,
    clean,
    duration,
    short,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_without_a_terminal_plain_lines_come_now_and_then():
    now = [0.0]
    out = io.StringIO()
    progress = TerminalProgress(out, every=10, monotonic=lambda: now[0])
    progress.start(["a", "b"], 4)
    progress.advance(Step("a", tokens=(1_000, 400), cost=0.01))
    assert out.getvalue() == ""
    now[0] = 10.0
    progress.advance(Step("a", failed=True))
    assert out.getvalue() == "  2 systems: 2/8 (0.2/s, 30 s left, 1 failed, 1.0k → 400 tokens, $0.0100)\n"
    progress.note("five workers\x1b[31m fit")
    progress.advance(Step("b"))
    progress.close()
    assert out.getvalue().splitlines()[1:] == [
        "context-bench: five workers[31m fit",
        "  a: 2/4 (0.2/s, 10 s left, 1 failed, 1.0k → 400 tokens, $0.0100)",
        "  b: 1/4 (0.1/s, 30 s left)",
    ]


def test_on_a_terminal_lines_are_redrawn_on_that_stream_only(capsys, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    progress = TerminalProgress(out)
    progress.start(["kompact\x1b]0;title\x07\u202e"], None)
    progress.advance(Step("kompact\x1b]0;title\x07\u202e"))
    progress.note("hello [bold]x[/bold]")
    progress.close()
    assert "kompact]0;title" in out.getvalue()
    assert "\x1b]0" not in out.getvalue()
    assert "\u202e" not in out.getvalue()
    assert "[bold]x[/bold]" in out.getvalue()
    assert capsys.readouterr() == ("", "")


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    progress = TerminalProgress(out)
    progress.start(["a"], 3)
    progress.advance(Step("a"))
    progress.close()
    assert "\x1b[3" not in out.getvalue()


def test_a_reader_who_left_does_not_end_the_run():
    progress = TerminalProgress(Gone(), every=0)
    progress.start(["a"], None)
    progress.advance(Step("a"))
    progress.advance(Step("unheard of"))
    progress.note("x")
    progress.close()


def test_a_run_of_nothing_says_nothing():
    out = io.StringIO()
    progress = TerminalProgress(out)
    progress.start(["a"], 0)
    progress.close()
    assert out.getvalue() == ""


def test_small_texts():
    assert clean("a\tb\nc\x00\u200b\ud800d") == "a b cd"
    assert clean("x" * 50, 10) == "xxxxxxxxx…"
    assert [duration(s) for s in (5, 89, 100, 7_500)] == ["5 s", "89 s", "2 min", "2 h 05 min"]
    assert [short(n) for n in (999, 1_000, 2_500_000)] == ["999", "1.0k", "2.5M"]
    assert [brief(s) for s in (0.0012, 0.035, 1.24, 99.96)] == ["1.2 ms", "35 ms", "1.2 s", "2 min"]
    assert ProgressRow("a", None, done=3).counted() == "3"


def told(lines, width, height, seconds=10.0):
    return ["".join(text for text, _ in row) for row in block(lines, seconds, width, height)]


def worked(name, total=300, rows=184, failed=3, kept=0):
    line = ProgressRow(name, total, kept=kept)
    for number in range(rows):
        line.add(number < failed, (1_200, 500), 0.001, 1.2)
    return line


def test_a_line_tells_all_of_a_system_and_less_as_the_terminal_narrows():
    heading, line = told([worked("kompact")], 79, 24)
    assert heading.split() == ["done", "failed", "rate", "p50", "sent", "→", "on", "money", "left"]
    assert line.split() == [
        "kompact", *["█" * 7 + "░" * 5] * ("█" in line), "184/300", "3", "18.4/s", "1.2", "s", "220.8k", "→", "92.0k", "$0.1840", "6", "s",  # noqa: E501
    ]  # fmt: skip
    assert told([worked("kompact")], 39, 24)[1].split() == ["kompact", "184/300", "3", "18.4/s", "6", "s"]
    assert told([worked("kompact")], 17, 24)[1].split() == ["kompact", "184/300"]


def test_of_too_many_systems_the_unfinished_are_shown_and_the_others_counted_together():
    lines = [worked(f"system-{number}", rows=300 if number < 5 else 10) for number in range(20)]
    shown = told(lines, 79, 10)
    assert len(shown) == 9
    assert [line.split()[0] for line in shown[1:8]] == [f"system-{number}" for number in range(5, 12)]
    assert shown[8].startswith("and 13 more")
    assert "1580/3900" in shown[8]
    assert told(lines, 79, 3)[1].startswith("20 systems")


@given(
    names=st.lists(st.text(max_size=40), min_size=0, max_size=25),
    width=st.integers(1, 220),
    height=st.integers(2, 60),
    total=st.none() | st.integers(0, 10**7),
    rows=st.integers(0, 5),
)
@example(names=["界" * 30], width=11, height=4, total=7, rows=3)
def test_no_line_is_wider_than_the_terminal_and_none_falls_off_it(names, width, height, total, rows):
    lines = [worked(clean(name), total, rows, failed=1, kept=2) for name in names]
    shown = told(lines, width, height)
    assert all(cell_len(line) <= width for line in shown)
    assert len(shown) <= max(1, height - 1)


@given(st.lists(st.floats(1e-5, 1e6), min_size=1, max_size=200))
def test_the_median_is_near_the_true_one_in_bounded_memory(values):
    median = Median()
    for value in values:
        median.add(value)
    true = sorted(values)[(len(values) - 1) // 2]
    assert median.value() == pytest.approx(true, rel=0.02)
    assert len(median._bins) < 2_000


def test_odd_latencies_are_counted_somewhere():
    median = Median()
    for value in (0.0, -1.0, 1e-9, 1e30):
        median.add(value)
    assert median.count == 4
    assert median.value() == pytest.approx(1e-6, rel=0.05)
    assert Median().value() is None


def test_rows_that_the_store_had_already_are_done_and_do_not_flatter_the_rate():
    now = [0.0]
    out = io.StringIO()
    progress = TerminalProgress(out, monotonic=lambda: now[0])
    progress.start(["a"], None)
    progress.planned("a", 100, 80)
    now[0] = 10.0
    progress.advance(Step("a", latency=0.5))
    assert out.getvalue().startswith("  a: 81/100 (0.1/s, 3 min left, p50 ")


def test_many_systems_without_a_terminal_are_one_line_until_the_end():
    now = [0.0]
    out = io.StringIO()
    progress = TerminalProgress(out, monotonic=lambda: now[0])
    progress.start([f"s{number}" for number in range(20)], 3)
    for number in range(20):
        now[0] = 0.6 * number
        progress.advance(Step(f"s{number}"))
    assert out.getvalue().splitlines() == ["  20 systems: 18/60 (1.8/s, 24 s left)"]
    progress.close()
    assert len(out.getvalue().splitlines()) == 21


async def test_a_run_tells_it_what_became_durable(run, capsys):
    class Watches:
        said = []

        def start(self, systems, total):
            self.said.append((list(systems), total))

        def advance(self, step):
            self.said.append((step.system, step.failed))

        def note(self, text):
            self.said.append(text)

        def close(self):
            self.said.append("closed")

    class Fails:
        name = "f"

        def process(self, example):
            raise ValueError

    watches = Watches()
    await run([Fails()], [{"id": 0, "context": "c"}], progress=watches, trials=2)
    assert watches.said == [(["f"], 2), ("f", True), ("f", True), "closed"]
    assert capsys.readouterr().out == ""
