"""Flags, TOML and defaults become one validated record; every fault is named at once."""

import json
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.cli.app import _prepare
from context_bench.cli.stored import seconds_of
from context_bench.core.errors import BadInput, BadSpec
from context_bench.session.arms import host_and_port
from context_bench.session.flags import read_options
from context_bench.session.options import MemoryOptions, RunOptions


def test_documented_defaults():
    options = read_options({}, None, RunOptions)
    assert options.model == ["claude-haiku-4-5-20251001"]
    assert (options.output, options.score_field, options.threshold, options.max_workers) == ("table", "f1", 0.7, 1)
    assert options.shape == ["plain-user"]
    assert (options.max_failures, options.marker, options.record) == (0.02, "key", "full")


def test_flags_win_over_the_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        'model = ["a", "b"]\nmax-examples = 7\nshape = ["codex"]\n[[proxies]]\nurl = "http://localhost:1"\nname = '
        '"one"\n'
    )
    options = read_options(
        {"max_examples": 3, "proxy": ["http://localhost:2"], "name": ["two", "surplus"]}, file, RunOptions
    )
    assert (options.max_examples, options.model, options.shape) == (3, ["a", "b"], ["codex"])
    assert [(proxy.url, proxy.name) for proxy in options.all_proxies] == [
        ("http://localhost:2", "two"),
        ("http://localhost:1", "one"),
    ]


def test_every_fault_is_named_at_once(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('trials = 0\ncolour = "red"\nmarker = "smoke"\n')
    with pytest.raises(BadSpec) as caught:
        read_options({}, file, RunOptions)
    text = str(caught.value)
    assert "trials" in text
    assert "colour: no such option" in text
    assert "marker" in text


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        (
            "--margin",
            "5",
            "--margin 5.0: expected a number above 0 and below 1, a share of 1: 5 points of 100 are 0.05",
        ),
        ("--margin", "-2", "--margin -2.0: expected a number above 0 and below 1"),
        ("-n", "-3", "-n -3: expected a whole number at least 1"),
        ("--marker", "smoke", "--marker 'smoke': expected key, header or serial"),
        ("--retries", "-1", "--retries -1: expected a whole number at least 0"),
        ("--max-failures", "2", "--max-failures 2.0: expected a number at least 0 and at most 1"),
        ("--timeout", "0", "--timeout 0.0: expected a number above 0"),
    ],
)
def test_a_flag_out_of_bounds_is_named_with_its_value_and_what_fits(flag, value, said, capsys):
    assert main(["--dataset", "bundled:pydocs-qa", flag, value]) == 2
    assert capsys.readouterr().err == f"context-bench: the command line is not usable:\n  - {said}\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('max_examples = "many"', "max_examples = 'many': expected a whole number at least 1"),
        ("trials = true", "trials = True: expected a whole number at least 1"),
        ("timeout = nan", "timeout = nan: expected a number above 0"),
        ("temperature = nan", "temperature = nan: expected a number"),
        ('out = ["a", "b"]', "out = ['a', 'b']: expected a path"),
        ("max-examples = 2.5", "max_examples = 2.5: expected a whole number at least 1"),
        ('margin = "wide"', "margin = 'wide': expected a number above 0 and below 1"),
        ('stream = "perhaps"', "stream = 'perhaps': expected true or false"),
        ("model = [1]", "model.0 = 1: expected text"),
        ("extra_body = 3", "extra_body = 3: expected a table"),
        ("shap = 'codex'", "shap: no such option; did you mean shape? Known: "),
        ("[[proxies]]\nname = 'x'", "proxies.0.url = {'name': 'x'}: this has to be given"),
    ],
)
def test_a_fault_in_a_file_is_named_by_its_key(tmp_path, line, said, capsys):
    (tmp_path / "run.toml").write_text(line)
    assert main(["--dataset", "bundled:pydocs-qa", "--config", str(tmp_path / "run.toml")]) == 2
    assert capsys.readouterr().err.startswith(f"context-bench: {tmp_path}/run.toml is not usable:\n  - {said}")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("trials = 2.0", 2),
        ('trials = "2"', 2),
        ("timeout = 2", 2.0),
        ('stream = "yes"', True),
        ("stream = 0", False),
        ('out = "x.json"', Path("x.json")),
        ('proxy = "http://localhost:1"', ["http://localhost:1"]),
        ('shape = "codex, plain-user,"', ["codex", "plain-user"]),
    ],
)
def test_a_value_in_a_file_becomes_one_of_its_type(tmp_path, line, value):
    (tmp_path / "run.toml").write_text(line)
    read = getattr(read_options({}, tmp_path / "run.toml", RunOptions), line.partition(" ")[0])
    assert (read, type(read)) == (value, type(value))


def test_options_for_the_manifest_are_json_and_name_no_secret(tmp_path):
    (tmp_path / "run.toml").write_text(
        'out = "x.json"\nextra_body = { day = 2026-01-02, list = [1.5] }\nproxies = [{ url = "http://localhost:1" }]'
    )
    options = read_options({"api_key": "sk-1"}, tmp_path / "run.toml", MemoryOptions)
    plain = options.as_json({"model"})
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["out"], plain["extra_body"]) == ("x.json", {"day": "2026-01-02", "list": [1.5]})
    assert plain["proxies"] == [{"url": "http://localhost:1", "name": None, "key_env": None, "version": None}]
    assert not {"api_key", "model"} & set(plain)
    assert "sk-1" not in repr(options)


def test_options_are_replaced_in_a_copy_and_what_is_set_counts_as_given():
    options = read_options({"trials": 2}, None, RunOptions)
    other = options.replaced(max_examples=3)
    other.seed = 5
    assert (options.max_examples, options.seed, options.given) == (None, 0, {"trials"})
    assert (other.max_examples, other.seed, other.given) == (3, 5, {"trials", "max_examples", "seed"})
    other.model.append("another")
    assert RunOptions().model == ["claude-haiku-4-5-20251001"]


@pytest.mark.parametrize("content", ["a = ", "[x"])
def test_a_broken_file_is_named(tmp_path, content):
    file = tmp_path / "run.toml"
    file.write_text(content)
    with pytest.raises(BadInput, match=r"run\.toml is not valid TOML"):
        read_options({}, file, RunOptions)


def test_a_value_may_be_left_out_where_it_has_a_default():
    assert _prepare(["--controls", "--tap", "1"]) == ["run", "--controls=default", "--tap", "1"]
    assert _prepare(["--resume"]) == ["run", "--resume=last"]
    assert _prepare(["--controls", "full,none"]) == ["run", "--controls", "full,none"]
    assert _prepare(["show", "x"]) == ["show", "x"]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://localhost:7878", "localhost:7878"),
        ("http://my.example/v1", "my.example"),
        ("http://u:secret@host:9/v1", "host:9"),
        ("10.0.0.1:80", "10.0.0.1:80"),
    ],
)
def test_names_of_unnamed_proxies(url, name):
    assert host_and_port(url) == name


def test_ages():
    assert [seconds_of(age) for age in ("30d", "1.5h", "90m", "45s")] == [2_592_000, 5400, 5400, 45]
    with pytest.raises(BadInput, match="30d"):
        seconds_of("soon")


def code_of(arguments):
    """What the shell sees."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "x.jsonl"], "nothing to measure"),
        (["--proxy", "http://127.0.0.1:9"], "--dataset is missing"),
        (["--proxy", "http://127.0.0.1:9", "--dataset", "nosuch"], "nosuch"),
        (["--proxy", "http://127.0.0.1:9", "--dataset", "gsm8q"], "gsm8k"),
        (["--proxy", "http://127.0.0.1:9", "--dataset", "gsm8k:main"], "does not accept a :config suffix"),
        (["--controls", "--dataset", "x.jsonl"], "--upstream"),
        (
            ["--proxy", "http://127.0.0.1:9", "--dataset", "x.jsonl", "--score-field", "f1_typo"],
            "contains, exact_match, f1, recall",
        ),
        (["--tap", "9090", "--proxy", "http://127.0.0.1:9", "--dataset", "x.jsonl"], "--upstream"),
        (
            [
                "--tap",
                "http://127.0.0.1:1",
                "--upstream",
                "echo",
                "--proxy",
                "http://127.0.0.1:9",
                "--dataset",
                "x.jsonl",
            ],
            "running tap",
        ),
        (["--proxy", "http://127.0.0.1:9", "--dataset", "x.jsonl", "--no-such-flag"], "no-such-flag"),
    ],
)
def test_usage_faults_end_with_2_and_say_what_to_do(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.jsonl").write_text('{"id": 1, "context": "c", "question": "q", "answer": "a"}\n')
    assert code_of(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_two_systems_with_one_name_stop_the_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.jsonl").write_text('{"id": 1, "context": "c", "question": "q", "answer": "a"}\n')
    twice = [
        "--proxy",
        "http://127.0.0.1:9",
        "--name",
        "p",
        "--proxy",
        "http://127.0.0.1:10",
        "--name",
        "p",
        "--dataset",
        "x.jsonl",
    ]
    assert main(twice) == 2
    assert "'p'" in capsys.readouterr().err


def test_a_dead_proxy_is_found_before_anything_is_spent(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.jsonl").write_text('{"id": 1, "context": "c", "question": "q", "answer": "a"}\n')
    assert main(["--proxy", "http://127.0.0.1:9", "--name", "dead", "--dataset", "x.jsonl", "--retries", "0"]) == 2
    said = capsys.readouterr().err
    assert "dead" in said
    assert "nothing answers at http://127.0.0.1:9 (Connection refused)" in said
