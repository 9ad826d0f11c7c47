"""What an arm says, and what is refused; who lines up."""

import hashlib
import sys
from pathlib import Path

import pytest

from context_bench.agents import line_up
from context_bench.agents.systems import parse_arm
from context_bench.agents.systems.agent import Agent, _filled, _quoted, found_here
from context_bench.agents.systems.arm_specs import twice
from context_bench.core.errors import BadInput


def test_words_are_split_as_a_shell_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("set up.sh").write_text("true\n")
    arm = parse_arm("hr=A=1 B='two words' 'C=x=y' 'set up.sh' D=")
    assert arm.name == "hr"
    assert arm.variables == {"A": "1", "B": "two words", "C": "x=y", "D": ""}
    assert arm.scripts == (tmp_path / "set up.sh",)
    assert parse_arm("base=").variables == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base", "the = is missing"),
        ("=A=1", "with a name of letters"),
        ("a b=", "with a name of letters"),
        ("x='A=1", "no closing quotation"),
        ("x=nowhere.sh", "'nowhere.sh' is neither KEY=VALUE nor a script"),
        ("x=1A=2", "'1A=2' is neither"),
    ],
)
def test_what_is_no_arm_is_refused_in_words(text, said):
    with pytest.raises(BadInput, match=said.replace("(", r"\(")):
        parse_arm(text)


def test_places_are_filled_in_and_unknown_braces_stay():
    arm = parse_arm("hr='URL={tap}/v1' 'J={\"a\": {b}}' P={path}:/x")
    assert arm.values({"tap": "http://127.0.0.1:1", "path": "/bin"}) == {
        "URL": "http://127.0.0.1:1/v1",
        "J": '{"a": {b}}',
        "P": "/bin:/x",
    }
    with pytest.raises(BadInput, match="needs --upstream"):
        arm.values({"tap": None, "path": "/bin"})


def test_keys_are_in_no_identity_and_scripts_by_their_content(tmp_path):
    script = tmp_path / "hook.sh"
    script.write_text("echo one\n")
    arm = parse_arm(f"a=MY_API_KEY=sk-very-secret MODE=fast {script}")
    agent = Agent("a", ["sh"], arm)
    told = agent.fingerprint()
    assert "sk-very-secret" not in str(told)
    assert told["variables"] == {"MY_API_KEY": "(not shown)", "MODE": "fast"}
    assert told["scripts"] == [{"name": "hook.sh", "sha256": hashlib.sha256(b"echo one\n").hexdigest()}]
    script.write_text("echo two\n")
    assert agent.fingerprint() != told
    assert "sk-very-secret" in vars(agent).values()  # where the store looks for what it must not keep


def test_an_arm_given_twice_is_its_own_noise_floor():
    base, other = parse_arm("base="), parse_arm("base=A=1")
    assert [arm.name for arm in twice([base, base, base])] == ["base", "base#2", "base#3"]
    with pytest.raises(BadInput, match="are not the same"):
        twice([base, other])


def test_who_lines_up():
    base, hr = parse_arm("base="), parse_arm("hr=A=1")
    assert line_up([hr, base]).names == ["hr", "base", "none"]
    assert line_up([hr, base]).baseline == "base"
    assert line_up([hr, base], trials=2).names == ["hr", "base", "base#2", "none"]
    assert line_up([hr, base], trials=2, noise_floor=False, nothing=False).names == ["hr", "base"]
    assert line_up([base, base, hr], trials=2).names == ["base", "base#2", "hr", "none"]
    assert line_up([base, base, hr], trials=2).controls == ["base#2", "none"]
    assert line_up([hr, base], baseline="hr", trials=2).names == ["hr", "base", "hr#2", "none"]
    with pytest.raises(BadInput, match="baseline 'x' is no arm"):
        line_up([hr], baseline="x")
    with pytest.raises(BadInput, match="no arm"):
        line_up([])


def test_what_an_instruction_says_is_no_place():
    places = {"{instruction}": "use {workspace}", "{workspace}": "/w"}
    assert _filled("--t={instruction};{workspace}{x}", places) == "--t=use {workspace};/w{x}"


@pytest.mark.parametrize("value", ["", "a b", "$HOME '\"`x`", "\0HOME/.hook", "\0PWD:\0HOME"])
def test_values_reach_a_script_as_they_are(value, tmp_path):
    import subprocess

    text = f'X={_quoted(value)}\nprintf %s "$X"'
    done = subprocess.run(["sh", "-c", text], capture_output=True, cwd=tmp_path, env={"HOME": "/h"}, check=True)
    expected = value.replace("\0PWD", str(tmp_path)).replace("\0HOME", "/h")
    assert done.stdout.decode() == expected


def test_programs_are_found_and_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_text("")
    Path("README").write_text("")
    assert found_here(["sh", "agent.py", "-x", "README"]) == (
        ["sh", str(tmp_path / "agent.py"), "-x", "README"],
        [tmp_path / "agent.py"],
    )
    home = tmp_path / "tool"
    (home / "bin").mkdir(parents=True)
    tool = home / "bin" / "my-agent"
    tool.write_text(f"#!{sys.executable}\n")
    tool.chmod(0o755)
    words, readable = found_here([str(tool), "{instruction}"])
    assert words == [str(tool), "{instruction}"]
    assert home in readable
    assert any(
        Path(sys.executable).is_relative_to(place)
        for place in [*readable, Path("/usr"), Path("/bin"), Path(sys.base_prefix)]
    )
    with pytest.raises(BadInput, match="'no-such-agent' is no program"):
        found_here(["no-such-agent"])
