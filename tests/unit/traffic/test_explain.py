"""`context-bench explain`: sums, bounds, the index, pages that hold none of a session's texts, the loopback page."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from context_bench.__main__ import main
from context_bench.core.errors import BadInput
from context_bench.reports.table import as_table
from context_bench.traffic.explain import Explained, public_name, reach_of, shareable
from context_bench.traffic.explain.bill_page import grids, html
from context_bench.traffic.explain.logs import LogScan, summarised
from context_bench.transcripts import read_sessions
from context_bench.transcripts.account import STAND_IN, STAND_IN_TEXT, completed, fit
from context_bench.transcripts.sources import SourceReader

PROMPT = "Grandmother's recipe for quince jelly wants nine silver spoons and a wooden ladle."
RESULT = json.dumps([{"id": n, "name": f"row {n}", "price": n / 4} for n in range(60)], indent=2)
SECRET_TOOL = "mcp__orchard-ledger__fetch_apricot_prices"


def write_log(path: Path, name: str, turns: int = 6) -> list[dict[str, int]]:
    """A session as Claude Code logs it; returns the usage of each answer."""
    lines: list[dict[str, Any]] = []
    usages: list[dict[str, int]] = []
    held, context = 0, 15_000

    def line(kind: str, content: Any, **more: Any) -> None:
        lines.append(
            {
                **{"type": kind, "uuid": f"{name}-{len(lines)}", "sessionId": name, "version": "2.1.197"},
                **{"parentUuid": lines[-1]["uuid"] if lines else None, "isSidechain": False, "cwd": "/work"},
                **{"timestamp": f"2026-01-05T10:{len(lines) // 60:02}:{len(lines) % 60:02}.000Z"},
                "message": {"role": kind, "content": content, **more},
            }
        )

    line("user", PROMPT)
    for turn in range(turns):
        usage = {"input_tokens": 3, "cache_read_input_tokens": held, "output_tokens": 90}
        usage["cache_creation_input_tokens"] = context - held
        usages.append(usage)
        tool, given = [
            ("Read", {"file_path": "/work/a.py"}),
            (SECRET_TOOL, {"q": 1}),
            ("Bash", {"command": "git log --stat"}),
        ][turn % 3]
        call = {"type": "tool_use", "id": f"t{turn}", "name": tool, "input": given}
        about = {"id": f"m{turn}", "model": "claude-sonnet-4-5", "usage": usage, "stop_reason": "tool_use"}
        line("assistant", [{"type": "text", "text": f"Looking, step {turn}."}, call], **about)
        line("user", [{"type": "tool_result", "tool_use_id": f"t{turn}", "content": RESULT}])
        held, context = context, context + 1_900
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return usages


def explained(path: Path, reaches: list[str] | None = None, *, texts: bool = False) -> Explained:
    told = Explained()
    for session in read_sessions(path):
        told.add(summarised(session, reaches or [], turns=True, texts=texts))
    return told


def test_the_sums_are_the_providers_usage(tmp_path: Path) -> None:
    usages = write_log(tmp_path / "a.jsonl", "s1")
    total = explained(tmp_path / "a.jsonl").total
    assert total["read"] == pytest.approx(sum(usage["cache_read_input_tokens"] for usage in usages))
    assert total["written"] == pytest.approx(sum(usage["cache_creation_input_tokens"] for usage in usages))
    assert total["input"] == pytest.approx(
        total["read"] + total["written"] + sum(usage["input_tokens"] for usage in usages)
    )
    assert total["new"] + total["carried"] == pytest.approx(total["input"])
    assert total["output"] == pytest.approx(sum(usage["output_tokens"] for usage in usages))


def test_results_are_told_apart_by_tool_and_command_and_made_up_tools_are_not_shown(tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "s1")
    told = explained(tmp_path / "a.jsonl")
    assert {("results", "Read"), ("results", "Bash: git log"), ("results", SECRET_TOOL)} <= told.sources.keys()
    assert not [key for key in told.sources if key[0] == "tools"]
    assert told.by_kind()["missing"]["read"] > 0


def test_the_terminal_has_at_most_40_lines_of_80_columns(tmp_path: Path) -> None:
    for number in range(3):
        write_log(tmp_path / f"{number}.jsonl", f"s{number}", turns=9)
    told = Explained()
    for one in LogScan(["bash", "history"]).summaries([tmp_path]):
        told.add(one)
    lines = as_table(grids(told), width=80).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_what_stands_in_for_the_parts_that_a_log_lacks_is_told_as_not_in_the_log(tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "s1")
    [session] = read_sessions(tmp_path / "a.jsonl")
    account = fit(session, [4_000 + 1_900 * turn for turn in range(6)], lambda text: len(text) // 4)
    rebuilt = completed(session, account)
    assert STAND_IN in json.dumps(rebuilt.requests[0].body)
    assert STAND_IN_TEXT in json.dumps(rebuilt.requests[0].body)
    told = Explained()
    told.add(summarised(rebuilt, ["tools-unused"], turns=True))
    assert STAND_IN not in json.dumps(told.document())
    assert told.by_kind().keys().isdisjoint({"tools", "system"})
    assert told.reach["tools-unused"]["tokens"] == 0, "what a tool stands in for may have been used"
    assert told.total["input"] == pytest.approx(explained(tmp_path / "a.jsonl").total["input"])
    assert told.by_kind()["missing"]["read"] > 0
    instructions = SourceReader("openai-responses").system(f"{STAND_IN_TEXT} Aa bb.\n\nBe brief.")
    assert [(part.source.kind, part.text) for part in instructions][1:] == [("system", "Be brief.")]


def test_a_reach_that_takes_in_nothing_says_so_with_the_servers_there_are(tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "s1")
    told = explained(tmp_path / "a.jsonl", ["mcp:orchard", "mcp:orchard-ledger", "mcp", "tool-results>900k"])
    missed, large = told.reached_nothing
    assert missed == (
        "mcp:orchard reaches nothing: no MCP server of that name stands in these sessions; there are: orchard-ledger."
    )
    assert large == "tool-results>900k reaches nothing: nothing of that kind stands in these sessions."
    assert missed in " ".join(grid.about for grid in grids(told))
    assert told.document()["reach_notes"] == [missed, large]
    assert "orchard" not in " ".join(shareable(told).reached_nothing)


def test_bounds_of_reaches_are_what_the_items_were_billed(tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "s1")
    names = ["bash", "mcp", "mcp:orchard-ledger", "mcp:other", "tool-results>500", "tool-results>900k", "reread", "csv"]
    told = explained(tmp_path / "a.jsonl", [*names, "toon", "minify", "history", "thinking"])
    reach, sources = told.reach, told.sources
    bash = sources["results", "Bash: git log"]
    assert reach["bash"]["usd"] == pytest.approx(bash["usd"])
    assert reach["bash"]["tokens"] == pytest.approx(bash["new"] + bash["carried"])
    server = [row for (_, name), row in sources.items() if name == SECRET_TOOL]
    inputs = sum(row["read"] + row["written"] + row["plain"] for row in server)
    assert reach["mcp"]["tokens"] == reach["mcp:orchard-ledger"]["tokens"] == pytest.approx(inputs)
    assert reach["mcp:other"]["tokens"] == reach["tool-results>900k"]["tokens"] == reach["thinking"]["tokens"] == 0
    results = sum(row["new"] + row["carried"] for (kind, _), row in sources.items() if kind == "results")
    assert reach["tool-results>500"]["tokens"] == pytest.approx(results)
    assert 0 < reach["reread"]["tokens"] < reach["tool-results>500"]["tokens"]
    assert 0.3 * results < reach["minify"]["tokens"] < reach["toon"]["tokens"] < reach["csv"]["tokens"] < results
    assert reach["history"]["turns_weighed"] >= 0


def keeps_long_ones(item: Any) -> bool:
    """A predicate of one's own."""
    return bool(item.tokens > 500)


def test_a_predicate_of_ones_own_bounds_like_the_built_in_one(tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "s1")
    reach = explained(tmp_path / "a.jsonl", [f"py:{__file__}:keeps_long_ones", "tool-results>500"]).reach
    own, built_in = reach.values()
    assert own["tokens"] == pytest.approx(built_in["tokens"])


@pytest.mark.parametrize("spec", ["", "bush", "tool-results>", "mcp:", "py:no_such_module_at_all:f", "tool-results>2q"])
def test_a_reach_that_cannot_be_meant_is_refused(spec: str) -> None:
    with pytest.raises(BadInput):
        reach_of(spec)


def test_the_index_reads_only_what_has_changed_and_holds_no_text(tmp_path: Path) -> None:
    logs, index = tmp_path / "logs", tmp_path / "index.jsonl"
    for number in range(4):
        write_log(logs / f"{number}.jsonl", f"s{number}")
    (logs / "other.jsonl").write_text('{"no": "log"}\n')

    def read() -> tuple[dict[str, float], int, int]:
        told, reading = Explained(), LogScan(["bash"], index)
        for one in reading.summaries([logs]):
            told.add(one)
        return told.total, reading.reread, reading.skipped

    total, reread, skipped = read()
    assert (reread, skipped) == (5, 1)
    assert read() == (pytest.approx(total), 0, 1)
    with index.open("ab") as file:
        file.write(b'{"key": "torn')
    write_log(logs / "2.jsonl", "s2", turns=9)
    again, reread, _ = read()
    assert reread == 1
    assert again["input"] > total["input"]
    assert not any(text in index.read_text() for text in _pieces(PROMPT, RESULT))


def test_a_reading_that_was_broken_off_goes_on_where_it_ended(tmp_path: Path) -> None:
    logs, index = tmp_path / "logs", tmp_path / "index.jsonl"
    for number in range(4):
        write_log(logs / f"{number}.jsonl", f"s{number}")
    begun = LogScan(index=index).summaries([logs])
    next(begun)
    next(begun)
    begun.close()
    reading = LogScan(index=index)
    assert len(list(reading.summaries([logs]))) == 4
    assert reading.reread == 2


def test_two_processes_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write_log(tmp_path / f"{number}.jsonl", f"s{number}")
    monkeypatch.setattr("context_bench.traffic.explain.logs._FEW", 0)
    alone, apart = (
        sorted(LogScan(processes=count).summaries([tmp_path]), key=lambda one: str(one["id"])) for count in (1, 2)
    )
    assert alone == apart


def test_a_folder_without_a_log_is_refused_with_the_reasons(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"no": "log"}\n')
    with pytest.raises(BadInput, match=r"no recorded sessions in .*\n.*x\.jsonl"):
        list(LogScan().summaries([tmp_path]))


def test_lines_that_were_passed_over_are_told_by_reason_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    logs = tmp_path / "logs"
    for number in range(2):
        write_log(logs / f"{number}.jsonl", f"s{number}")
        whole = (logs / f"{number}.jsonl").read_text()
        (logs / f"{number}.jsonl").write_text(whole[:200].replace("\n", " ") + "\n" + whole + '{"type": "torn', "utf-8")
    for paths in (logs, logs, logs / "1.jsonl"):  # read, of the index, alone
        assert main(["explain", str(paths), "--output", "json"]) == 0
        times = 4 if paths is logs else 2
        assert json.loads(capsys.readouterr().out)["skipped"] == {"not JSON": times}
        assert main(["explain", str(paths), "--html", str(tmp_path / "page.html")]) == 0
        said = f"{times} lines of the logs were passed over (not JSON {times})."
        assert said in " ".join(capsys.readouterr().out.split())
        assert said in (tmp_path / "page.html").read_text()


def test_a_page_to_share_counts_what_was_passed_over_and_names_only_damage(tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "s")
    told = explained(tmp_path / "a.jsonl")
    told.skipped.update({"route /of/my/own": 3, "not JSON": 2, "a": 1, "b": 1, "c": 1})
    assert "(not JSON 2, route /of/my/own 3, a 1, other reasons 2)" in " ".join(grid.about for grid in grids(told))
    page = html(shareable(told))
    assert "8 lines of the logs were passed over (not JSON 2, of other kinds 6)." in page
    assert "of/my/own" not in page


def write_records(path: Path, *said: str) -> None:
    """Records of a tap, of conversations of one request without a name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    usage = {"input_tokens": 900, "output_tokens": 5}
    lines = []
    for number, words in enumerate(said):
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": words}]}
        head = {"id": f"r{number}", "mark": None, "matched_by": "none", "wire": "openai-chat", "method": "POST"}
        told = {"started": 1e9 + number, "status": 200, "bytes_in": 9, "facts": {"policy": "full"}}
        told |= {"request": body, "usage": usage, "reply": {}, "model": "gpt-4o", "path": "/v1/chat/completions"}
        lines.append(json.dumps(head | told))
    path.write_text("\n".join(lines) + "\n")


def counted(folder: Path, index: Path | None = None) -> tuple[int, int]:
    """Sessions that count, and those that stand twice."""
    reading = LogScan(index=index)
    return len(list(reading.summaries([folder]))), reading.twice


def test_copies_of_sessions_without_a_name_count_once_whatever_their_files_are_called(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "more/a.jsonl"):
        write_records(tmp_path / "logs" / name, "one", "two")
    for _ in range(2):
        assert counted(tmp_path / "logs", tmp_path / "index.jsonl") == (2, 4)


def test_different_sessions_without_a_name_are_no_copies_of_one_another(tmp_path: Path) -> None:
    for folder, words in (("mine", "a plum"), ("yours", "a pear")):
        write_records(tmp_path / "logs" / folder / "records.jsonl", words)
    assert counted(tmp_path / "logs") == (2, 0)
    for folder, words in (("mine", "a plum"), ("yours", "a pear")):
        talk = [{"role": "user", "content": words}, {"role": "assistant", "content": "Yes."}, {"role": "user"}]
        talk[2]["content"] = "And then?"
        turns = [json.dumps({"model": "gpt-4o", "messages": talk[:count]}) for count in (1, 3)]
        (tmp_path / "bodies" / folder).mkdir(parents=True)
        (tmp_path / "bodies" / folder / "log.jsonl").write_text("\n".join([*turns, *turns]))  # a session, and again
    assert counted(tmp_path / "bodies") == (4, 0)


def _pieces(*texts: str) -> list[str]:
    """Every run of 12 characters, but those of white space and digits alone."""
    return [
        text[n : n + 12] for text in texts for n in range(len(text) - 11) if re.search("[a-z]{3}", text[n : n + 12])
    ]


def test_a_shared_page_has_no_12_characters_of_a_prompt_and_no_name_of_ones_own(tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "private-session-name")
    told = explained(tmp_path / "a.jsonl", ["mcp:orchard-ledger"], texts=True)
    page = html(shareable(told))
    assert not [text for text in _pieces(PROMPT, RESULT) if text in page]
    for name in ("orchard", "apricot", "private-session", str(tmp_path)):
        assert name not in page
    assert "Bash: git log" in page
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    with_texts = html(told, texts=True)
    assert SECRET_TOOL in with_texts
    assert "row 1" in with_texts


def test_a_page_has_drawings_that_a_telephone_shows_whole(tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", "one")
    page = html(explained(tmp_path / "a.jsonl", []))
    wide, narrow = (
        [int(found) for found in re.findall(rf'<div class="{kind}"><svg[^>]*? width="(\d+)', page)]
        for kind in ("wide", "narrow")
    )
    assert len(wide) == len(narrow) >= 1
    assert max(narrow) <= 390 < min(wide)
    kinds = page.partition("Where the tokens went: ")[2].partition("</table>")[0]
    assert re.findall(r' data-of="([^"]*)"', kinds)[:7] == ["new", "again", "billed", "cached", "reply", "$", "of $"]


def test_names_of_ones_own_are_numbered_alike() -> None:
    assert public_name("Bash: git log") == "Bash: git log"
    assert public_name("Bash: ./deploy-orchard") == public_name("Bash: ./deploy-orchard") != "Bash: ./deploy-orchard"
    assert "orchard" not in public_name(SECRET_TOOL)
    assert public_name(SECRET_TOOL).startswith("mcp__#")


def test_the_loopback_page_takes_a_log_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import aiohttp

    from context_bench.traffic.explain.web import DropPage

    write_log(tmp_path / "a.jsonl", "s1")
    data = (tmp_path / "a.jsonl").read_bytes()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(work))
    monkeypatch.setenv("XDG_CACHE_HOME", str(work / "cache"))

    async def ask() -> None:
        async with DropPage() as page, aiohttp.ClientSession() as client:
            own = {"Origin": page.url}

            async def post(headers: dict[str, str], body: bytes = data) -> tuple[int, str]:
                async with client.post(f"{page.url}/explain", data=body, headers=headers) as answer:
                    return answer.status, await answer.text()

            async with client.get(page.url) as front:
                assert front.status == 200
                assert "Drop a log here" in await front.text()
                assert "connect-src 'self'" in front.headers["Content-Security-Policy"]
            status, text = await post(own)
            assert status == 200
            assert "Bash: git log" in text
            assert PROMPT[:12] not in text
            assert (await post({}))[0] == 403
            assert (await post({"Origin": "http://example.org"}))[0] == 403
            assert (await post({**own, "Host": "example.org"}))[0] == 403
            assert (await post({**own, "Sec-Fetch-Site": "cross-site"}))[0] == 403
            assert (await post(own, b'{"no": "log"}\n'))[0] == 400

    asyncio.run(ask())
    assert [path for path in work.rglob("*") if path.is_file() and "prices-" not in path.name] == []
