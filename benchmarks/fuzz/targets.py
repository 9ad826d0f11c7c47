"""Every parser of text from outside as a function of bytes: what `fuzz.py` drives for hours and `tests/security` for a
moment.

A target may refuse what it gets with one of our own errors or a `ValueError`; whatever else it raises is a finding.
What is read can be stored, and what comes in pieces is the same wherever it is cut: where that is not so, the target
raises `AssertionError`.
"""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import io
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from context_bench import shell
from context_bench.agents.datasets import load_tasks
from context_bench.cli import judge as judge_label
from context_bench.compression.compressors import texts as _results
from context_bench.core import addresses, numbers as usage, plugins, rubric, templates, text
from context_bench.core.errors import ContextBenchError
from context_bench.core.keys import load_json
from context_bench.core.machine import SystemClock
from context_bench.datasets import load, readers, spec
from context_bench.engine import encoding
from context_bench.evaluators import (
    _mathtext,
    code_program,
    ifeval_checker as instructions,
    multiple_choice as _letters,
    nli_label_match as _labels,
    tool_call_match as _calls,
)
from context_bench.judge import (
    judge_replies as _ratings,
    judge_replies as _rubric_reply,
    judge_replies as _yes_no,
    pairwise_judge,
    rubric_judge,
)
from context_bench.llm import (
    coding,
    failures,
    failures as retry,
    prices,
    redact,
    relay,
    scripted,
    transport as pool,
    weights as gguf,
)
from context_bench.llm.chat import endpoint
from context_bench.llm.transport import response as errors
from context_bench.memory import audit_rules as _exports
from context_bench.memory.datasets import FILES, load_memory, memory_records as records, overlays
from context_bench.memory.systems import descriptions as _description, http_memory as http, mcp
from context_bench.reports import visible_text as shown
from context_bench.results import EvalResult
from context_bench.sandbox import verification as results, workspace_files as placing
from context_bench.session import flags, options
from context_bench.shell import repo
from context_bench.systems import context as splice
from context_bench.tap import exchange, masking
from context_bench.tap.exchange import SOCKET, Exchange
from context_bench.tap.prefix import Joining
from context_bench.tap.tap_relay import Talk
from context_bench.traces import edits as editloc, gold, symbols
from context_bench.traffic.evaluators import next_action as actions
from context_bench.transcripts import (
    harness_results as answers,
    harness_results as patch_verdicts,
    session_files as read,
    trace,
    traces,
)
from context_bench.transcripts.traces import vocabulary
from context_bench.viewer import pages as asking
from context_bench.wire import apis as wire, atoms, conversation, words as wordiff
from context_bench.wire.apis import shared

Target = Callable[[bytes], object]
WIRES = ("openai-chat", "openai-responses", "anthropic")
CODINGS = ("gzip", "deflate", "zstd", "br", "gzip, br", "x-gzip", "identity")
#: Where a memory's entry has its parts, as the described memories are told.
_PATHS = _description.Paths(text="text", score="score", id="id", source="source.0", time="time")
_FOLDER = Path(tempfile.mkdtemp(prefix="context-bench-fuzz-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def tried(target: Target, data: bytes) -> object:
    """What the target makes of `data`; `None` if it refuses it as it should."""
    try:
        return target(data)
    except (ContextBenchError, ValueError, code_program.NoProgram):
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _each(*uses: Callable[[Any], object]) -> Callable[[Any], object]:
    """Each use gets the value, whether the one before refused it or not."""
    return lambda value: [tried(lambda _, use=use: use(value), b"") for use in uses]


def _of_text(*uses: Callable[[Any], object]) -> Target:
    return lambda data: _each(*uses)(_text(data))


def _of_json(*uses: Callable[[Any], object]) -> Target:
    return lambda data: _each(*uses)(load_json(data))


def _of_object(*uses: Callable[[Any], object]) -> Target:
    return lambda data: _each(*uses)(found) if isinstance(found := load_json(data), dict) else None


def _in_file(name: str, *uses: Callable[[Path], object]) -> Target:
    """Files are refused by our own errors only: they name the file, and no command shows a traceback for them."""

    def target(data: bytes) -> object:
        path = _FOLDER / name
        path.write_bytes(data)
        return [_file_tried(use, path) for use in uses]

    return target


def _file_tried(use: Callable[[Path], object], path: Path) -> object:
    try:
        return use(path)
    except ContextBenchError:
        return None
    except ValueError as error:
        raise AssertionError(f"{type(error).__name__} without the file's name: {error}") from error


def _rows(name: str) -> Target:
    return _in_file(name, lambda path: sum(1 for _ in readers.rows_of(path)))


def _examples(path: Path) -> object:
    return [sum(1 for _ in load(str(path)).examples()), load(str(path)).manifest()]


def _pieces(data: bytes) -> list[bytes]:
    """The same bytes cut at some places, which the bytes themselves decide."""
    rng = random.Random(zlib.crc32(data))
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 7)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _storable(read: Any) -> Any:
    """What was read, which a store can hold: numbers of 64 bits, and texts and bodies that it writes down and reads
    back.
    """
    for number in _numbers(read):
        assert abs(number) < 2**63, f"a number that no store holds: {number}"
    encoding.loads(encoding.dumps(dataclasses.asdict(read)))
    return read


def _numbers(record: Any) -> Iterator[int]:
    """The whole numbers of a record and of the records in it; bodies are kept as the JSON they are, whatever is in
    them.
    """
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        for one in value if isinstance(value, list | tuple) else (value,):
            if dataclasses.is_dataclass(one):
                yield from _numbers(one)
            elif isinstance(one, int) and "int" in str(field.type):
                yield one


def _streams(data: bytes) -> object:
    """One reply on each wire, whole and in pieces."""
    replies = []
    for kind in WIRES:
        told = []
        for pieces in ([data], _pieces(data)):
            reader = wire.stream_reader(kind)
            for piece in pieces:
                reader.feed(piece)
            reader.close()
            told.append((_storable(reader.reply), reader.error, reader.complete, reader.started))
        assert repr(told[0]) == repr(told[1])
        replies.append(told[0])
    return replies


def _request(kind: str) -> Callable[[Any], object]:
    def use(body: Any) -> object:
        chat = conversation.to_chat(kind, body)
        return (
            _storable(wire.parse_request(kind, body)),
            conversation.to_body(kind, chat),
            conversation.tools_used(chat.messages),
        )

    return use


def _reply(kind: str) -> Callable[[Any], object]:
    return lambda body: (_storable(wire.parse_reply(kind, body)), conversation.reply_message(kind, body))


def _events(data: bytes) -> object:
    told = []
    for pieces in ([data], _pieces(data)):
        reader = shared.EventReader()
        told.append([event for piece in pieces for event in reader.feed(piece)])
    assert told[0] == told[1]
    return told[0]


def _decoded(pieces: list[bytes], name: str) -> bytes | None:
    """What a body in pieces is without its coding; `None` if it is none. What was read before it broke is not
    compared.
    """
    try:
        decoder = coding.Decoder(name)
        return b"".join([decoder.feed(piece) for piece in pieces])
    except ValueError:
        return None


def _codings(data: bytes) -> object:
    if not data:
        return None
    name, body = CODINGS[data[0] % 7], data[1:]
    assert _decoded([body], name) == _decoded([piece for piece in _pieces(body) if piece], name)
    return coding.decode(body, CODINGS[data[0] % 4])


class _Wire(asyncio.Transport):
    """The other side of a connection, that says what it is told to."""

    closed = False

    def write(self, data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


class _Pool:
    def kept(self, *_: object) -> None:
        pass

    lost = kept


def _answered(pieces: list[bytes]) -> tuple[Any, ...]:
    """What comes of a reply: status, headers and body, or the trouble."""
    buffer, wire = bytearray(2**16), _Wire()
    made = pool.Connection(_Pool(), ("h", 1, False), buffer)  # type: ignore[arg-type]
    made.connection_made(wire)
    response = made.ask(b"")
    for piece in pieces:
        for start in range(0, len(piece), len(buffer)):
            part = piece[start : start + len(buffer)]
            if not wire.closed:
                buffer[: len(part)] = part
                made.buffer_updated(len(part))
    made.connection_lost(None)
    try:
        return response.status, dict(response.headers), _run(response.read(2**24))
    except errors.TransportError as error:
        return (type(error).__name__,)


def _run(waiting: Any) -> Any:
    """The result of what never has to wait."""
    try:
        waiting.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the reply is over, and somebody waits for more")


def _transported(data: bytes) -> object:
    whole, cut = _answered([data]), _answered([piece for piece in _pieces(data) if piece])
    # what follows a reply at once makes it none; what comes later ends the connection alone
    assert whole == cut or ("NotHttp",) in (whole, cut), (whole, cut)
    return whole


def _talked(data: bytes) -> object:
    """One WebSocket: lines of the client begin with ">"; each request is recorded once, whatever is said."""
    begun: list[Exchange] = []
    left: list[Exchange] = []

    def begin(body: bytes) -> Exchange:
        begun.append(Exchange(len(begun), "x", SOCKET, "/v1/responses", [], exchange.MarkMatch(None, "mark"), 0.0, 0.0))
        begun[-1].body.add(0.0, body)
        return begun[-1]

    talk = Talk(begin, left.append, SystemClock())
    for line in _text(data).split("\n"):
        (talk.asked if line.startswith(">") else talk.answered)(line.removeprefix(">"))
    talk.over("ended")
    assert sorted(one.number for one in left) == list(range(len(begun)))
    joined = Joining()
    return [tried(lambda _, one=one: joined.join("a", load_json(one.body.data)), b"") for one in begun]


def _addressed(told: str) -> object:
    try:
        place = pool.address_of(told)
    except errors.Unusable as refused:
        raise ValueError from refused
    head = pool.head_of(place, {"x-told": told.strip()})
    assert head.count(b"\n") == 1 + len({"host", "accept", "accept-encoding", "user-agent", "x-told"})
    assert 0 < place.port < 2**16
    return endpoint(told, "/v1/chat/completions"), relay.join(told, "/v1/models"), redact.bare_url(told)


def _waits(told: str) -> object:
    names = (
        "retry-after",
        "retry-after-ms",
        "x-ratelimit-reset-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-limit-requests",
    )
    headers = dict.fromkeys(names, told)
    return retry.asked_wait(headers, 0.0), list(retry.quotas_of(headers, 0.0))


def _failure(data: bytes) -> object:
    told = failures.of_status(
        400 + data[0] % 200 if data else 500, {"retry-after": _text(data[:40])}, data, where="", now=0.0, secrets=[]
    )
    return told, failures.not_json(data, "text/html", where="", secrets=[])


def _repository(path: Path) -> object:
    with repo.open_repo(path) as opened:
        return [opened.blob(name) for name in opened.paths()]


def _weights(path: Path) -> object:
    return gguf.as_q8_0(path, path.with_suffix(".out"))


def _spliced(data: bytes) -> object:
    """Every text of a document in the place of itself: what comes of it is the same document."""
    document = _text(data).encode()
    value = load_json(document)
    places = {
        path: f"{document[start:end][1:40].decode('utf-8', 'replace')} new"
        for path, (start, end) in splice._strings(document)
    }
    made = load_json(splice.replace_strings(document, places))
    assert type(made) is type(value)
    return made


def _shown(told: str) -> object:
    for made in (shown.visible(told), shown.visible(told, lines=True), shown.markdown(told)):
        made.encode("utf-8")
        assert "\x1b" not in made
        assert "\u202e" not in made
    return shown.csv_cell(told), shown.script_json(told)


def _difference(told: str) -> object:
    sent, _, forwarded = told.partition("|")
    spans = wordiff.diff_texts(sent, forwarded)
    assert "".join(part for kind, part in spans if kind != "added") == sent
    assert "".join(part for kind, part in spans if kind != "dropped") == forwarded
    return spans


def _checked(told: dict[str, Any]) -> object:
    """Each rule of IFEval, with the parameters and the reply that the document gives."""
    reply = str(told.pop("reply", "a reply"))
    return _each(*(lambda wanted, rule=rule: instructions.checker(rule, wanted)(reply) for rule in instructions.RULES))(
        told
    )


def _formula(told: str) -> object:
    wanted, _, given = told.partition("|")
    return (
        _mathtext.equal(wanted, given, lambda *_: False),
        _mathtext.final_answer(told, "2"),
        _mathtext.gold_answer(told),
    )


def _files(told: str) -> object:
    """A hidden file by its name, which may not leave its folder."""
    (_FOLDER / "copy").mkdir(exist_ok=True)
    placing.put(_FOLDER / "copy", told, b"x")
    placing.remove_tree(_FOLDER / "copy")
    return placing.decoded("name", told)


def _searched(found: Any) -> object:
    entries = found if isinstance(found, list) else [found]
    return (
        [_description.hit_of(entry, _PATHS) for entry in entries],
        templates.at(found, "results.0.text"),
        templates.fill(found, {"a": 1}),
    )


def _headers(told: str) -> object:
    headers = [tuple(line.split(":", 1)) for line in told.split("\n") if ":" in line]
    found = exchange.find_marks(headers, told)
    return (
        found,
        exchange.without_marks(headers, "k"),
        exchange.unmarked_target(told, "k"),
        addresses.refusal({"Host": told, "Origin": told}),
    )


TARGETS: dict[str, Target] = {
    # replies and requests
    "sse": _events,
    "streams": _streams,
    "requests": _of_object(*map(_request, WIRES)),
    "replies": _of_json(*map(_reply, WIRES)),
    "failures": _failure,
    "retry-after": _of_text(_waits),
    "codings": _codings,
    "transport": _transported,
    "websocket": _talked,
    "urls": _of_text(_addressed),
    "headers": _of_text(_headers),
    "splices": _spliced,
    "tap-records": _of_object(lambda given: _storable(usage.forwarded_of(given))),
    # data sets
    "jsonl": _rows("rows.jsonl"),
    "json": _rows("rows.json"),
    "csv": _rows("rows.csv"),
    "tsv": _rows("rows.tsv"),
    "parquet": _rows("rows.parquet"),
    "gzip": _rows("rows.jsonl.gz"),
    "zstd": _rows("rows.jsonl.zst"),
    "zip": lambda data: sum(1 for _ in readers.rows_from(io.BytesIO(data), "rows.zip!*", "rows.zip")),
    "undescribed": _in_file("data.jsonl", _examples),
    "dataset-toml": _of_text(lambda told: spec.parse(told, "a dataset").examples([{"a": "b"}], None)),
    "memory-data": _in_file("memory.json", lambda path: list(load_memory(FILES + str(path)).examples())),
    "memory-lines": _in_file("memory.jsonl", lambda path: list(load_memory(FILES + str(path)).examples())),
    "overlays": _in_file("overlay.json", lambda path: overlays.read_overlay(str(path), "locomo")),
    "dates": _of_text(records.iso, lambda told: records.when(told, records.Dirt()), _exports.moment),
    "tasks-toml": _in_file("one.toml", load_tasks),
    "tasks": _in_file("rows.jsonl", lambda path: load_tasks(path, repos=_FOLDER)),
    # logs
    "sessions": _in_file(
        "log.jsonl", lambda path: sum(1 for _ in read.read_sessions(path, agents=True)), read.read_pairs
    ),
    "traces": _in_file("log.jsonl", lambda path: list(traces.load_traces(path))),
    "trace-lines": lambda data: list(trace.parse_traces(data.split(b"\n"))),
    "text-traces": _in_file("patch_context.txt", lambda path: list(traces.load_traces(path))),
    "answers": _in_file("log.eval", lambda path: sum(1 for _ in answers.read_answers(path).answers)),
    "answer-lines": _in_file("log.jsonl", lambda path: sum(1 for _ in answers.read_answers(path).answers)),
    "reports": _in_file("report.json", patch_verdicts.load_solved),
    "gold": _in_file("gold.jsonl", gold.load_gold),
    "repository": _in_file("repo.zip", _repository),
    "symbols": lambda data: [symbols.definitions(data, f"a.{ending}") for ending in ("py", "go", "ts", "java")],
    "shell": lambda data: shell.read_shell(_text(data), "", None, _text(data[::-1])),
    "patches": _of_text(editloc.parse_patch, editloc.upstream_deleted),
    "tool-tables": _in_file("tools.toml", vocabulary.Vocabulary.load),
    # what models, judges, memories and filters answer
    "formulas": _of_text(_formula),
    "letters": _of_text(_letters.chosen_letter),
    "labels": _of_text(_labels.read_label),
    "yes-no": _of_text(_yes_no.verdict),
    "ratings": _of_text(_ratings.first_rating, _ratings.strict_rating),
    "logprobs": _of_json(_ratings.weighted, lambda given: _rubric_reply.weighted_scores('{"a": 3}', given)),
    "rubric-replies": _of_text(lambda told: rubric.parse_rubric_reply(told, ["a", "b"]), rubric.verdicts_in),
    "pairs": _of_text(lambda told: pairwise_judge.last_object(told, "winner")),
    "tool-calls": _of_text(_calls.calls_in),
    "tool-arguments": _of_json(
        lambda given: actions.Action.of("", given),
        actions.arguments,
        lambda given: _calls.calls_of({"tool_calls": given}),
    ),
    "programs": _of_text(code_program.fenced, lambda told: code_program.program(told, "def f(x):\n    ''' '''\n", "f")),
    "instructions": _of_object(_checked),
    "filters": _of_json(lambda given: _results.result_of(given, "a filter")),
    "memories": _of_json(_searched),
    "memory-exports": _in_file("export.json", _exports.read_export),
    "test-output": _of_text(results.results),
    "file-names": _of_text(_files),
    "scores": _of_text(
        lambda told: text.f1_score(told, told[::-1]), lambda told: text.contains(told, told[1:]), atoms.atoms
    ),
    "differences": _of_text(_difference),
    # configurations
    "specs": _of_text(plugins.parse_spec),
    "configs": _in_file("run.toml", lambda path: flags.read_options({}, path, options.RunOptions)),
    "rubric-toml": _in_file("rubric.toml", rubric_judge.rubric_of),
    "rubric-json": _in_file("rubric.json", rubric_judge.rubric_of),
    "rubric-yaml": _in_file("rubric.yaml", rubric_judge.rubric_of),
    "memory-toml": _in_file(
        "memory.toml", lambda path: http.from_spec(str(path)), lambda path: mcp.from_spec(str(path))
    ),
    "memory-yaml": _in_file(
        "memory.yaml", lambda path: http.from_spec(str(path)), lambda path: mcp.from_spec(str(path))
    ),
    "script-json": _in_file("script.json", scripted.Scripted),
    "script-toml": _in_file("script.toml", scripted.Scripted),
    "script-lines": _in_file("script.jsonl", scripted.Scripted),
    "prices": _of_object(prices.GenaiPrices),
    "labels-by-hand": _in_file("labels.jsonl", lambda path: judge_label.read_labels([path])),
    "results": lambda data: EvalResult.from_json(data),
    "weights": _in_file("model.gguf", _weights),
    # keys, viewer, terminal
    "viewer": _of_text(asking.read_pair),
    "redact": _of_text(lambda told: redact.redact(told, ["0123456789abcdef"]), redact.bare_url),
    "masking": _of_text(lambda told: masking.mask_private(masking.mask_text(told))),
    "shown": _of_text(_shown),
}

#: The targets nearest to the network, which `make fuzz` drives and the suite drives for a moment.
NEAR = (
    *(
        "sse",
        "streams",
        "requests",
        "replies",
        "failures",
        "retry-after",
        "codings",
        "headers",
        "tap-records",
        "transport",
        "websocket",
    ),
    *("urls", "json", "gzip", "zstd", "answers", "answer-lines", "sessions", "traces", "shell"),
)
