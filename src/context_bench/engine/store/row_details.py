"""Details of a stored row: requests sent and forwarded turn by turn, every call, replies of judges, and the set-ups of
its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from context_bench.core.numbers import forwarded_of, usage_of
from context_bench.core.records import Call, Forwarded, SetupRecord, plain
from context_bench.engine import observe
from context_bench.engine.encoding import Damaged, unpacked
from context_bench.engine.store import Store, schema
from context_bench.engine.store.reading import StoredOutput, add_damage, bodies_of, rows, stored

_WITHOUT_TEXT = ("meta", "hashes")


def behind(store: Store, run: int, found: Sequence[StoredOutput], *, kept: str = "auto") -> list[dict[str, Any]]:
    """For each stored output of a run (number): `exchanges`, `calls` and `judges`, see `runner.details`. `kept`: the
    run's `bodies` setting, for saying why there is nothing to show.
    """
    ids = [item.id for item in found]
    with store.reading() as connection:
        calls, records = _calls(connection, ids), _forwarded(connection, ids)
        scores = _scores(connection, ids)
        details = [
            _of_row(item, calls.get(item.id, []), records.get(item.id, []), scores.get(item.id, {}), kept)
            for item in found
        ]
        _quote_remembered(connection, run, found, details, scores)
    return details


def _of_row(
    item: StoredOutput,
    calls: Sequence[_Called],
    records: Sequence[Forwarded],
    scores: Mapping[str, dict[str, float]],
    kept: str,
) -> dict[str, Any]:
    own = [call for call, _ in calls]
    details: dict[str, Any] = {"calls": [_call_facts(call, judge) for call, judge in calls]}
    details["exchanges"] = _exchanges([call for call in own if call.account == "system"], records, item.row.wire, kept)
    details["judges"] = _judges(calls, scores)
    return details


def _judges(calls: Sequence[_Called], scores: Mapping[str, dict[str, float]]) -> list[dict[str, Any]]:
    return [
        {
            "evaluator": judge or call.account,
            **_score_of(scores.get(judge or "", {})),
            "reason": _reply_text(call.reply),
        }
        for call, judge in calls
        if call.account == "judge" and call.error is None and call.reply is not None
    ]


_Called = tuple[Call, str | None]  # with the evaluator that made it
_c, _f = schema.calls.c, schema.forwarded.c
_CALLS = (
    select(schema.calls, schema.endpoints.c.model, schema.endpoints.c.url, schema.evaluators.c.name.label("judge"))
    .select_from(
        schema.calls.join(schema.endpoints, schema.endpoints.c.id == _c.endpoint).outerjoin(
            schema.evaluators, schema.evaluators.c.id == _c.evaluator
        )
    )
    .order_by(_c.id)
)


def _with_bodies_of(connection: Connection, query: Select[Any]) -> tuple[list[dict[str, Any]], dict[bytes, Any]]:
    """The rows of calls or forwarded requests, and their bodies by key."""
    rows = [dict(row) for row in connection.execute(query).mappings()]
    keys = {row[name] for row in rows for name in ("request", "reply")} - {None}
    return rows, bodies_of(connection, keys)


def _calls(connection: Connection, outputs: Sequence[int], account: str | None = None) -> dict[int, list[_Called]]:
    query = _CALLS.where(_c.output.in_(outputs))
    rows, bodies = _with_bodies_of(connection, query if account is None else query.where(_c.account == account))
    names = Call.__dataclass_fields__
    found: dict[int, list[_Called]] = {}
    for row in rows:
        values = {name: row[name] for name in names if name in row} | {"usage": usage_of(unpacked(row["usage"]))}
        values |= {name: bodies.get(row[name]) for name in ("request", "reply")}
        found.setdefault(row["output"], []).append((Call(**values), row["judge"]))
    return found


def _forwarded(connection: Connection, outputs: Sequence[int]) -> dict[int, list[Forwarded]]:
    rows, bodies = _with_bodies_of(connection, select(schema.forwarded).where(_f.output.in_(outputs)).order_by(_f.id))
    found: dict[int, list[Forwarded]] = {}
    for row in rows:
        values = unpacked(row["record"]) | {"mark": None}
        values |= {name: bodies.get(row[name]) for name in ("request", "reply")}
        found.setdefault(row["output"], []).append(forwarded_of(values))
    return found


def _scores(connection: Connection, outputs: Sequence[int]) -> dict[int, dict[str, dict[str, float]]]:
    s, names = schema.scores, schema.evaluators
    query = select(s.c.output, s.c["values"].label("found"), names.c.name).select_from(
        s.join(names, names.c.id == s.c.evaluator)
    )
    found: dict[int, dict[str, dict[str, float]]] = {}
    for row in connection.execute(query.where(s.c.output.in_(outputs))):
        found.setdefault(row.output, {})[row.name] = unpacked(row.found, {})
    return found


def _quote_remembered(
    connection: Connection,
    run: int,
    found: Sequence[StoredOutput],
    details: Sequence[dict[str, Any]],
    scores: Mapping[int, Mapping[str, Any]],
) -> None:
    """A judge that knew its reply to the same answer was not asked again: it is quoted from the row that it was asked
    for.
    """
    quoted = [{judge["evaluator"] for judge in each["judges"]} for each in details]
    open_rows = [
        at
        for at, item in enumerate(found)
        if scores.get(item.id, {}).keys() - quoted[at] and item.output.get("response")
    ]
    if not open_rows:
        return
    p, a, o = schema.plan.c, schema.arms.c, schema.outputs.c
    arms = connection.scalars(select(a.arm).where(a.run == run)).all()
    places = {found[at].position for at in open_rows}
    query = select(p.output, p.position).where(
        p.run == run, p.arm.in_(arms), p.position.in_(places), p.output.is_not(None)
    )
    place_of = {row.output: row.position for row in connection.execute(query)}
    said = {number: calls for number, calls in _calls(connection, list(place_of), "judge").items() if calls}
    answers = {
        row.id: unpacked(row.output, {}).get("response")
        for row in connection.execute(select(o.id, o.output).where(o.id.in_(said)))
    }
    for at in open_rows:
        item = found[at]
        for number, calls in said.items():
            if place_of[number] == item.position and answers.get(number) == item.output.get("response"):
                fresh = [call for call in calls if call[1] in scores[item.id] and call[1] not in quoted[at]]
                details[at]["judges"] += _judges(fresh, scores[item.id])
                quoted[at].update(str(judge) for _, judge in fresh)


def _score_of(values: Mapping[str, float]) -> dict[str, float]:
    return {"score": next(iter(values.values()))} if values else {}


def _reply_text(reply: Any) -> str:
    content = reply.get("content") if isinstance(reply, Mapping) else reply
    return content if isinstance(content, str) else "" if content is None else str(content)


_TOLD = (
    "account", "model", "attempt", "status", "seconds", "waited", "in_flight", "ttft", "sent_tokens", "cost", "finish_reason", "error",  # noqa: E501
)  # fmt: skip


def _call_facts(call: Call, judge: str | None) -> dict[str, Any]:
    details = {name: getattr(call, name) for name in _TOLD} | {
        "usage": plain(call.usage) if call.usage else None,
        "evaluator": judge,
    }
    return {name: value for name, value in details.items() if value is not None}


# Sent and forwarded
# ------------------------------------------------------------------------
def _exchanges(
    calls: Sequence[Call], records: Sequence[Forwarded], wire: Mapping[str, Any], kept: str
) -> list[dict[str, Any]]:
    """One per request of ours with the forwarded one that is most like it; then what else reached the provider."""
    asked = observe.answered(calls)
    pairs, rest = observe.paired(asked, observe.landed(records, calls))
    met = {id(call): record for call, record in pairs}
    for call in asked:  # without bodies there is nothing to tell them by but their order
        if id(call) not in met and rest and not isinstance(call.request, dict):
            met[id(call)] = rest.pop(0)
    explain = _explainer(bool(records), wire, kept)
    details = [_exchange(turn, call, met.get(id(call)), explain) for turn, call in enumerate(asked, start=1)]
    return details + [_exchange(None, None, record, explain) for record in rest]


_Explain = Callable[[Call | None, Forwarded | None], str | None]


def _exchange(turn: int | None, call: Call | None, record: Forwarded | None, explain: _Explain) -> dict[str, Any]:
    sent = call.request if call is not None else None
    forwarded = record.request if record is not None and record.facts.get("policy") not in _WITHOUT_TEXT else None
    details: dict[str, Any] = {
        "turn": turn,
        "sent": sent,
        "forwarded": forwarded,
        "matched_by": record.matched_by if record else None,
    }
    seen = observe.sent_facts(call) if call is not None else None
    tokens = {
        "sent": call.sent_tokens if call else None,
        "forwarded": record.tokens if record else None,
        "billed": record.usage.input_tokens if record and record.usage else None,
    }
    details["tokens"] = {name: value for name, value in tokens.items() if value is not None}
    details["wires"] = [seen[0] if seen else None, record.wire if record else None]
    if why := explain(call, record):
        details["why"] = why
    if record is not None and record.reply is not None and record.facts.get("policy") not in _WITHOUT_TEXT:
        details["reply"] = record.reply
    return details


def _explainer(tapped: bool, wire: Mapping[str, Any], kept: str) -> _Explain:
    """Says why one side of an exchange cannot be shown, `None` where both are there."""

    def explain(call: Call | None, record: Forwarded | None) -> str | None:
        if call is None:
            return "asked by what stands between, on its own account: nothing of ours was sent for it"
        if record is None:
            seen = (
                "the tap saw no request of this turn"
                if tapped or wire.get("source") == "tap"
                else "no tap stood before it"
            )
            return f"the text that reached the provider is not known: {seen}"
        if (policy := record.facts.get("policy")) in _WITHOUT_TEXT:
            return f"the tap recorded no texts (policy {policy}), so there is nothing to compare"
        if call.request is None and record.request is not None:  # a program of its own asked, see `calls_seen`
            return "only the tap's side was recorded"
        if call.request is None or record.request is None:
            return _not_kept(wire, kept)
        return None

    return explain


def _not_kept(wire: Mapping[str, Any], kept: str) -> str:
    if kept == "none":
        return "bodies were not kept in this run (bodies none)"
    if wire.get("text_changed") is False:
        rule = "of changed requests only" if kept == "changed" else "of changed requests only, since the run is large"
        return f"bodies were kept {rule}: this one was forwarded as sent"
    return "the bodies of this request were not kept"


def setups(store: Store, run_id: str, system: str | None = None) -> list[SetupRecord]:
    """Every attempt to set up a group of a run (id or name), or of one of its systems: by system, number of the group,
    trial, attempt.

    With answers that were taken over from another run come the set-ups they rest on. Raises `UnknownName`.
    """
    chosen = rows(store, run_id, system)
    found: list[SetupRecord] = []
    with store.reading() as connection:
        for arm, name in chosen._arms:
            mine = [*_own(connection, chosen._run, arm), *_taken_over(connection, chosen._run, arm)]
            found += sorted(
                (_record(name, row) for row in mine), key=lambda each: (each.number, each.trial, each.attempt)
            )
    return found


def _own(connection: Connection, run: int, arm: int) -> list[Row[Any]]:
    """Those of what the arm is now, for examples that the run still has."""
    s, a, p = schema.setups, schema.arms.c, schema.plan.c
    query = select(s).where(
        s.c.run == run, s.c.arm == arm, s.c.key == select(a.key).where(a.run == run, a.arm == arm).scalar_subquery()
    )
    planned = select(p.run).where(p.run == run, p.arm == arm, p.position == s.c.position, p.trial == s.c.trial).exists()
    return list(connection.execute(query.where(planned)))


def _taken_over(connection: Connection, run: int, arm: int) -> list[Row[Any]]:
    s, a, p, o = schema.setups, schema.arms.c, schema.plan.c, schema.outputs.c
    key = select(a.key).where(a.run == run, a.arm == arm).scalar_subquery()
    if connection.scalar(select(s.c.id).where(s.c.key == key, s.c.run != run).limit(1)) is None:
        return []  # the usual case: no need to look through the plan
    ids = select(o.setup).where(o.run != run, o.id.in_(select(p.output).where(p.run == run, p.arm == arm)))
    return list(connection.execute(select(s).where(s.c.id.in_(ids))))


def _record(system: str, row: Row[Any]) -> SetupRecord:
    usage = unpacked(row.usage, {})
    cost, calls = usage.pop("cost", None), usage.pop("calls", 0)
    return SetupRecord(
        system=system,
        group=row.group,
        trial=row.trial,
        number=row.number,
        attempt=row.attempt,
        seconds=row.seconds,
        output=unpacked(row.output, {}),
        usage=usage,
        cost=cost,
        calls=calls,
        error=row.error,
    )


def export(store: Store, run: str, system: str | None = None) -> Iterator[dict[str, Any]]:
    """Everything of a run (id or name) or of one of its systems, one JSON-ready dict per row: `row`, `example`,
    `output`, `calls`, `forwarded`.
    """
    waiting = stored(store, rows(store, run, system)._run, system)
    while some := list(islice(waiting, _AT_ONCE)):
        with store.reading() as connection:
            calls = _whole_records(connection, some, "calls", _call_records)
            forwarded = _whole_records(connection, some, "forwarded", _forwarded_records)
        for item in some:
            yield {
                "row": plain(item.row),
                "example": item.example,
                "output": item.output,
                "calls": calls.get(item.id, []),
                "forwarded": forwarded.get(item.id, []),
            }


_AT_ONCE = 16  # rows with all their bodies, of which the turns of a session share most
_Records = dict[int, list[dict[str, Any]]]


def _whole_records(
    connection: Connection,
    some: Sequence[StoredOutput],
    table: str,
    read: Callable[[Connection, Sequence[int]], _Records],
) -> _Records:
    """Records by output; a row whose are damaged says so, and has none."""
    try:
        return read(connection, [item.id for item in some])
    except Damaged:
        found: _Records = {}
    for item in some:
        try:
            found |= read(connection, [item.id])
        except Damaged:
            add_damage(item.row.errors, f"{table} output={item.id}")
    return found


def requests_of(store: Store, outputs: Sequence[int]) -> dict[int, Any]:
    """The body of the first request that a system sent for each of these outputs (store ids), where it was kept."""
    c = schema.calls.c
    query = (
        select(c.output, c.request)
        .where(c.output.in_(outputs), c.account == "system", c.request.is_not(None))
        .order_by(c.id.desc())
    )
    with store.reading() as connection:
        keys = {row.output: row.request for row in connection.execute(query)}
        bodies = bodies_of(connection, keys.values())
    return {output: bodies[key] for output, key in keys.items() if key in bodies}


def _call_records(connection: Connection, outputs: Sequence[int]) -> _Records:
    rows, bodies = _with_bodies_of(connection, _CALLS.where(_c.output.in_(outputs)))
    found: _Records = {}
    for row in rows:
        output = row["output"]
        for name in ("id", "run", "output", "endpoint", "evaluator"):
            del row[name]
        row["usage"] = unpacked(row["usage"])
        found.setdefault(output, []).append(_with_bodies(row, bodies))
    return found


def _forwarded_records(connection: Connection, outputs: Sequence[int]) -> _Records:
    query = select(schema.forwarded).where(_f.output.in_(outputs)).order_by(_f.id)
    rows, bodies = _with_bodies_of(connection, query)
    found: _Records = {}
    for row in rows:
        record = {**unpacked(row["record"]), "request": row["request"], "reply": row["reply"]}
        found.setdefault(row["output"], []).append(_with_bodies(record, bodies))
    return found


def _with_bodies(record: dict[str, Any], bodies: dict[bytes, Any]) -> dict[str, Any]:
    """A call or forwarded request as JSON; its bodies as they were, with every `null` that was in them."""
    kept = {name: bodies[record[name]] for name in ("request", "reply") if record[name] in bodies}
    return {**plain({name: value for name, value in record.items() if name not in ("request", "reply")}), **kept}
