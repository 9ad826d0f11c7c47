"""`context-bench compress …`: what a compressor did to recorded texts and sessions, and what an agent can still do
after one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.compression.command import prompt_cache as compress_cache, run as compress_run
from context_bench.core.errors import BadInput
from context_bench.core.machine import file_bytes
from context_bench.core.numbers import real
from context_bench.session.flags import own, takes
from context_bench.session.gate import hold, limits
from context_bench.session.options import Common
from context_bench.session.reporting import publish

if TYPE_CHECKING:
    from context_bench.reports.table import Grid
    from context_bench.wire.fidelity import Fidelity, Summary


app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Measure what a compressor did to recorded texts and sessions."
)

_FIDELITY = (
    *(
        "retained",
        "recoverable",
        "lost",
        "macro",
        "fabricated",
        "near_misses",
        "word_damage",
        "coverage",
        "density",
        "verbatim_lines",
    ),
    *(
        "order",
        "utf8_ok",
        "replacement_chars",
        "json_ok",
        "keep",
        "removal",
        "fold",
        "mean_keep",
        "keep_error",
        "expansion_share",
    ),
    *("unchanged_share", "answer_in_context", "answer_introduced", "evidence_recall"),
)
_LESS = (
    "lost",
    "fabricated",
    "near_misses",
    "word_damage",
    "replacement_chars",
    "keep",
    "mean_keep",
    "keep_error",
    "expansion_share",
)


@takes(
    Common,
    output=own("table, json, markdown."),
    out=own("Write to this file instead of stdout."),
    examples=own("How many lost atoms to show.", default=20),
    model=own("Count tokens as this model does.", note=""),
)
def fidelity(
    original: Annotated[
        Path, typer.Argument(help="JSON lines of pairs; or the original text, if a second file is given.")
    ],
    compressed: Annotated[Path | None, typer.Argument(help="What was made of it.")] = None,
    *,
    output: str,
    out: Path | None,
    minimum: list[str] | None,
    maximum: list[str] | None,
    examples: int,
    model: str | None,
) -> int:
    """What was kept, lost and made up: atoms by kind, role, position and script; fragments; lines; words; size.

    A line of the JSONL has `original` and `compressed` (texts or message lists), and may have `id`, `requested_keep`,
    `answers`, `evidence`, and `retrievable` (marker in the compressed text → the text that asking for it brings back).
    """
    from context_bench.wire.fidelity import summarise

    summary = summarise(_measured(original, compressed, model), examples=examples)
    document = {
        "schema": "context-bench/compress-fidelity/1",
        "pairs": summary.pairs,
        "metrics": summary.metrics,
        "known": list(_FIDELITY),
        "less_is_better": list(_LESS),
        **{name: _counts(getattr(summary, name)) for name in ("kinds", "roles", "deciles", "scripts")},
        "lost": [asdict(one) for one in summary.lost],
        "near_misses": [asdict(one) for one in summary.near_misses],
        "invented": [{"kind": kind, "atom": atom} for kind, atom in summary.invented],
    }
    publish(document, lambda: fidelity_grids(summary), output, out, minimum, maximum)
    return 0


def _measured(original: Path, compressed: Path | None, model: str | None) -> Iterable[Fidelity]:
    from context_bench.core.tokens import counter_for
    from context_bench.wire.fidelity import fidelity as measure

    counter = counter_for(model)
    if compressed is not None:
        yield measure(_text(original), _text(compressed), counter=counter)
        return
    for pair in read(original):
        where = f"{original}, pair {pair.id}"
        answers = pair.more.get("answers", pair.more.get("answer", []))
        found = measure(
            text_or_messages(pair.before, where),
            text_or_messages(pair.after, where),
            retrievable=texts_by_name(pair.more.get("retrievable")),
            answers=[answers] if isinstance(answers, str) else [str(answer) for answer in answers],
            evidence=[str(sentence) for sentence in pair.more.get("evidence") or []],
            requested_keep=real(pair.more.get("requested_keep")),
            counter=counter,
        )
        found.id = pair.id
        yield found


def _text(path: Path) -> str:
    if not path.is_file():
        raise BadInput(f"no file {path}")
    return file_bytes(path).decode("utf-8", "replace")


def _counts(tallies: Mapping[Any, Any]) -> dict[str, dict[str, int]]:
    return {
        str(key): {
            "total": tally.total,
            "retained": tally.retained,
            "recoverable": tally.recoverable,
            "lost": tally.lost,
        }
        for key, tally in sorted(tallies.items())
    }


_HEADERS = ("original_headers", "compressed_headers")
_BODIES = ("original_raw", "compressed_raw")


@takes(
    Common,
    proxy=own("Send sessions through this proxy, whose own upstream is the tap, and look at what arrives."),
    tap=own("With --proxy: port to start the tap on, or the URL of a running one.", unit=None, default="9090"),
    wire=own("With --proxy: render sessions for openai, anthropic or responses.", rare=False, note=""),
    max_examples=own("With --proxy: most sessions to send.", names="-n --max-examples --max-sessions", note=""),
    store=own("With --proxy: where results are kept.", note=""),
    output=own("table, json, markdown."),
    out=own("Write to this file instead of stdout."),
)
def wire(
    given: Annotated[
        list[str],
        typer.Argument(
            help="JSON lines with `original` and `compressed`: message lists or whole request bodies. With --proxy: "
            "recorded sessions.",
            metavar="PAIRS|SESSIONS...",
        ),
    ],
    proxy: list[str] | None,
    name: list[str] | None,
    tap: str,
    wire: str | None,
    max_examples: int | None,
    store: str | None,
    quiet: bool,
    output: str,
    out: Path | None,
    minimum: list[str] | None,
    maximum: list[str] | None,
) -> int:
    """What was done to requests that is no compression: roles, tool calls, parameters, marks, signed blocks, bytes.

    Also read of pairs: `original_headers` and `compressed_headers`, `original_raw` and `compressed_raw` (bodies as
    text). Every kind of violation is a metric (how often it occurred), `violations` their sum but for words in tools:
    `--max violations=0` is a gate. With --proxy nothing is asked of a model (`replay --upstream echo`): also tokens,
    prefix stability, cache, money, and what was lost; these are metrics as well.
    """
    if proxy:
        options: dict[str, Any] = {
            "proxy": proxy,
            "name": name,
            "tap": tap,
            "wire": wire,
            "max_examples": max_examples,
            "store": store,
        }
        options |= {"sessions": given, "quiet": quiet, "output": output, "out": out}
        return _wire_of_proxies({key: value for key, value in options.items() if value}, minimum or [], maximum or [])
    if len(given) != 1:
        raise BadInput(
            f"{len(given)} files of pairs; give one, or --proxy URL to send recorded sessions through a proxy"
        )
    pairs = Path(given[0])
    from context_bench.wire.violations import KINDS, by_kind, count_tools, phrase, tools_of, total

    kinds: Counter[str] = Counter()
    affected: Counter[str] = Counter()
    tools: dict[str, dict[str, int]] = {}
    listed: list[dict[str, Any]] = []
    count = 0
    for ident, found in _violations(pairs):
        count += 1
        kinds.update(violation.kind for violation in found)
        affected.update({violation.kind for violation in found})
        count_tools(tools, tools_of(found))
        listed += [{"id": ident, **asdict(violation)} for violation in found]
    document = {
        "schema": "context-bench/compress-wire/1",
        "pairs": count,
        "metrics": {"violations": total(kinds), **by_kind(kinds)},
        "less_is_better": ["violations", *by_kind(kinds)],
        "violations": listed,
    }

    def grids() -> list[Grid]:
        from context_bench.reports.table import Grid

        rows = [
            (phrase(kind, tools.get(kind, ())), f"{kinds[kind]:,}", f"{affected[kind]:,}")
            for kind in KINDS
            if kinds[kind]
        ]
        shown = [(one["kind"], one["id"], one["detail"]) for one in listed[:20]]
        summary = Grid(
            f"Violations (requests: {count:,})", ("kind", "times", "requests"), list(rows), "" if rows else "none"
        )
        return (
            [summary, Grid("The first of them", ("kind", "request", "what"), list(shown), words=True)]
            if shown
            else [summary]
        )

    publish(document, grids, output, out, minimum, maximum)
    return 0


def _wire_of_proxies(told: dict[str, Any], minimum: list[str], maximum: list[str]) -> int:
    """A replay at level 0; its figures are held against the limits, proxy by proxy."""
    from context_bench.core.families import offered

    def held(result: Any) -> None:
        documents = [_replayed(system, facts) for system, facts in result.replay["systems"].items()]
        hold([check for document in documents for check in limits(document, minimum, maximum)])

    tap = told["tap"]
    upstream = {"upstream": "echo"} if tap.isdigit() else {}
    code: int = offered("replay")({**told, **upstream, "level": 0}, held)
    return code


def _replayed(system: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one proxy as a document for gates: violations by kind, cache, saving, loss."""
    from context_bench.wire.violations import REPLAYED_KINDS, by_kind, total

    times = {kind: told["times"] for kind, told in facts["violations"].items()}
    shares = {**facts["cache"], **facts["cost"], **facts["fidelity"], "forwarded": facts["tokens"]["forwarded"]}
    figures = {name: value for name, value in shares.items() if isinstance(value, int | float)}
    replies = {kind: times.get(kind, 0) for kind in REPLAYED_KINDS}
    metrics = {**figures, "violations": total(times), **by_kind(times), **replies}
    return {"system": system, "metrics": metrics}


def _violations(path: Path) -> Iterable[tuple[str, list[Any]]]:
    from context_bench.compression.evaluate import read_request
    from context_bench.wire.violations import compare_requests, lint_changes

    for pair in read(path):
        if isinstance(pair.before, str) or isinstance(pair.after, str):
            raise BadInput(
                f"{path}, pair {pair.id}: a text has no roles; expected message lists or whole request bodies"
            )
        headers = [texts_by_name(pair.more[name]) if name in pair.more else None for name in _HEADERS]
        raw = [str(pair.more[name]).encode() if name in pair.more else None for name in _BODIES]
        sent, received = read_request(pair.before), read_request(pair.after)
        found = compare_requests(
            sent,
            received,
            sent_headers=headers[0],
            received_headers=headers[1],
            sent_raw=raw[0],
            received_raw=raw[1],
        )
        if isinstance(pair.before, Mapping) and isinstance(pair.after, Mapping):
            found += lint_changes(pair.before, pair.after, sent_wire=sent.wire, wire=received.wire, known=found)
        yield pair.id, found


_BEFORE = ("original", "original_messages", "sent")
_AFTER = ("compressed", "compressed_messages", "received")


@dataclass(frozen=True, slots=True)
class RawPair:
    """One pair as it was recorded: texts, lists of messages, or whole bodies. `more`: the line's other fields."""

    id: str
    before: Any
    after: Any
    more: Mapping[str, Any] = field(default_factory=dict)


def read(path: Path) -> Iterator[RawPair]:
    """The pairs of a file with one object per line (or one list of them); `BadInput` names the first line that is
    none.
    """
    from context_bench.transcripts.format import LogSource

    if not path.is_file():
        raise BadInput(f"no file {path}; expected JSON lines with 'original' and 'compressed'")
    source = LogSource(path)
    number = 0
    for number, value in enumerate(source.values(), 1):
        yield _pair(value, number, path)
    if source.skipped:
        raise BadInput(f"{path}: {source.skipped.total()} lines could not be read: {', '.join(source.skipped)}")
    if not number:
        raise BadInput(f"{path}: there is no pair in it")


def _pair(value: Any, number: int, path: Path) -> RawPair:
    if not isinstance(value, Mapping):
        raise BadInput(
            f"{path}, value {number}: a JSON {type(value).__name__}; expected an object with 'original' and "
            "'compressed'"
        )
    before = next((value[name] for name in _BEFORE if name in value), None)
    after = next((value[name] for name in _AFTER if name in value), None)
    if before is None or after is None:
        keys = ", ".join(repr(str(key))[:40] for key in list(value)[:8]) or "none"
        raise BadInput(f"{path}, value {number}: no 'original' and 'compressed' among its keys {keys}")
    return RawPair(
        str(value.get("id", number)), before, after, {k: v for k, v in value.items() if k not in (*_BEFORE, *_AFTER)}
    )


def text_or_messages(side: Any, where: str) -> str | list[dict[str, Any]]:
    """One side as a text or as chat messages, whatever wire it was written for."""
    from context_bench.wire.conversation import to_chat

    if isinstance(side, str):
        return side
    body = side if isinstance(side, Mapping) else {"messages": side}
    if not isinstance(body.get("messages", body.get("input")), list):
        raise BadInput(
            f"{where}: expected a text, a list of messages or a body with 'messages', got a JSON {type(side).__name__}"
        )
    from context_bench.compression.evaluate import read_request

    return to_chat(read_request(body).wire, body).messages


def texts_by_name(value: Any) -> dict[str, str]:
    """An object of texts, such as headers; empty for anything else."""
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, Mapping) else {}


app.command("run")(compress_run.run)
app.command("probe")(compress_run.probe)
app.command("fidelity")(fidelity)
app.command("wire")(wire)
app.command("cache")(compress_cache.cache)


#: Figures that are shares, of something in [0, 1].
_SHARES = frozenset(
    {
        *(
            "retained",
            "recoverable",
            "lost",
            "macro",
            "fabricated",
            "word_damage",
            "coverage",
            "verbatim_lines",
            "keep",
            "removal",
        ),
        *(
            "mean_keep",
            "expansion_share",
            "unchanged_share",
            "answer_in_context",
            "answer_introduced",
            "evidence_recall",
        ),
        *("utf8_ok", "json_ok"),
    }
)


def fidelity_grids(summary: Summary) -> list[Grid]:
    """Atoms by kind, role, position and script; the figures of all pairs; what was lost or has another value, the first
    of it.
    """
    from context_bench.reports.table import Grid, number, share

    grids = []
    deciles = {f"{decile * 10}-{decile * 10 + 10} %": tally for decile, tally in sorted(summary.deciles.items())}
    for name, tallies in (
        ("kind", summary.kinds),
        ("role", summary.roles),
        ("position", deciles),
        ("script", summary.scripts),
    ):
        rows: list[Sequence[str]] = []
        for label, tally in tallies.items() if tallies is deciles else sorted(tallies.items()):
            counts = [f"{count:,}" for count in (tally.total, tally.retained, tally.recoverable, tally.lost)]
            rows.append((label, *counts, share(tally.share)))
        grids.append(Grid(f"Atoms by {name}", (name, "all", "retained", "recoverable", "lost", "share"), rows))
    told = [
        (name, value) for name, value in summary.metrics.items() if not name.startswith(("retained.", "fabricated."))
    ]
    measures = [(name, share(value) if name.partition(".")[0] in _SHARES else number(value)) for name, value in told]
    grids.append(Grid(f"{summary.pairs:,} pairs", ("measure", "value"), list(measures)))
    if summary.lost:
        lost = [(one.kind, one.role, f"{one.decile * 10} %", one.atom) for one in summary.lost]
        grids.append(Grid("Lost, the first of them", ("kind", "role", "at", "atom"), list(lost), words=True))
    if summary.near_misses:
        changed = [(miss.key, miss.before, miss.after) for miss in summary.near_misses]
        grids.append(Grid("The same key with another value", ("key", "before", "after"), list(changed), words=True))
    return grids
