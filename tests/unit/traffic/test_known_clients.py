"""What `watch -- CMD` adds for clients that would go past the tap: a flag or a variable, unless the user gave one."""

import json
import sys

import pytest

from context_bench.traffic.client import dummy_environment, prepare, run_client

TAP = "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("command", "started"),
    [
        (["codex", "exec", "hello"], ["codex", "-c", f'openai_base_url="{TAP}/v1"', "exec", "hello"]),
        (["/opt/bin/codex"], ["/opt/bin/codex", "-c", f'openai_base_url="{TAP}/v1"']),
        (["codex", "-c", 'model_providers.mine.base_url="x"'], ["codex", "-c", 'model_providers.mine.base_url="x"']),
        (
            ["aider", "a.py"],
            ["aider", "--set-env", f"OPENAI_BASE_URL={TAP}/v1", "--set-env", f"ANTHROPIC_BASE_URL={TAP}", "a.py"],
        ),
        (["aider", "--set-env", "OPENAI_BASE_URL=x"], ["aider", "--set-env", "OPENAI_BASE_URL=x"]),
        (["claude", "-p", "hello"], ["claude", "-p", "hello"]),
        (["python", "codex"], ["python", "codex"]),
    ],
)
def test_flags_of_known_clients_are_set_unless_given(command, started):
    prepared = prepare(command, TAP, {})
    assert prepared.command == started
    assert (prepared.note is None) == (command == started)
    assert all(part in (prepared.note or "") for part in started if part not in command)


def test_opencode_gets_its_address_beside_what_its_variable_already_holds():
    base = {name: {"options": {"baseURL": f"{TAP}/v1"}} for name in ("anthropic", "openai")}
    made = prepare(["opencode", "run", "hello"], TAP, {})
    assert json.loads(made.env["OPENCODE_CONFIG_CONTENT"]) == {"provider": base}
    theirs = {
        "model": "a/b",
        "provider": {"anthropic": {"options": {"baseURL": "http://theirs", "timeout": 5}}, "mine": {"npm": "x"}},
    }
    merged = json.loads(
        prepare(["opencode"], TAP, {"OPENCODE_CONFIG_CONTENT": json.dumps(theirs)}).env["OPENCODE_CONFIG_CONTENT"]
    )
    anthropic = {"options": {"baseURL": f"{TAP}/v1", "timeout": 5}}
    assert merged == {
        "model": "a/b",
        "provider": {"mine": {"npm": "x"}, "openai": base["openai"], "anthropic": anthropic},
    }


@pytest.mark.parametrize("odd", ["{ // a comment\n}", "[]"])
def test_a_variable_that_is_no_json_object_stays_and_the_user_is_told_what_to_set(odd):
    kept = prepare(["opencode"], TAP, {"OPENCODE_CONFIG_CONTENT": odd})
    assert kept.env["OPENCODE_CONFIG_CONTENT"] == odd
    assert f'"baseURL": "{TAP}/v1"' in (kept.note or "")


def test_the_address_of_gemini_is_set_and_it_is_said_that_its_api_is_not_read():
    made = prepare(["gemini"], TAP, {"GOOGLE_GEMINI_BASE_URL": "https://elsewhere.example"})
    assert made.env["GOOGLE_GEMINI_BASE_URL"] == TAP
    assert "not read" in (made.note or "")


@pytest.mark.parametrize("quiet", [False, True])
async def test_what_was_set_is_said_on_stderr_before_the_client_starts(tmp_path, capfd, quiet):
    program = tmp_path / "codex"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:], file=sys.stderr)\nsys.exit(7)\n")
    program.chmod(0o755)
    assert await run_client("watch", [str(program), "exec"], TAP, quiet=quiet) == 7
    said = capfd.readouterr().err.splitlines()
    assert said[-1] == str(["-c", f'openai_base_url="{TAP}/v1"', "exec"])
    assert [line.startswith("codex: started with -c openai_base_url=") for line in said[:-1]] == [True] * (not quiet)


def test_a_program_that_is_examined_gets_no_secret_of_ours(monkeypatch):
    secrets = ("OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "GITHUB_TOKEN")
    for name in secrets:
        monkeypatch.setenv(name, f"geheim-{name}")
    monkeypatch.setenv("LANGUAGE_OF_TESTS", "de")
    made = dummy_environment("sk-nobodys", EXTRA="1")
    assert "geheim" not in "".join(made.values())
    assert (made["OPENAI_API_KEY"], made["ANTHROPIC_API_KEY"], made["EXTRA"]) == ("sk-nobodys", "sk-nobodys", "1")
    assert made["LANGUAGE_OF_TESTS"] == "de"
