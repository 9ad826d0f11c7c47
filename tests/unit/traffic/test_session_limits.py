"""Limits on sessions: what may be declared, what a session counts as, when there is an alarm, and what outlives a
process.
"""

import json

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadInput, LimitCrossed, StoreUnusable, UnknownName
from context_bench.core.machine import ManualClock
from context_bench.engine import open_store, open_watch
from context_bench.engine.store.watches import CertificateLog
from context_bench.traffic.command import limit_guard
from context_bench.traffic.command.limit_guard import LimitedWatch, LimitGuard, checked_limits
from context_bench.traffic.session_limits import (
    IDLE_SECONDS,
    REFERENCE,
    SHOWN_FROM,
    Certificate,
    OpenSessions,
    SessionCounts,
    declared_limits,
)
from context_bench.wire.turns import Turn

ABOUT = {"of": "watch", "via": "http://localhost:1"}


def session(name, ratio=1.0, alone=1.0, **more):
    through = None if ratio is None else ratio * alone
    return SessionCounts(name, requests=more.pop("requests", 4), alone=alone, through=through, **more)


def turn(number, name, at=0.0, **more):
    bills = {"bill_alone": more.pop("alone", 1.0), "bill_through": more.pop("through", 1.0)}
    return Turn(number, more.pop("kind", "turn"), at, name, status=200, **bills, **more)


def guard(store, limits, **options):
    return LimitGuard(store, limits, ABOUT, LimitedWatch(**options), options.pop("clock", ManualClock()))


def plain(certificate):
    """Its state as a store gives it back."""
    return json.loads(json.dumps(certificate.state()))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["bill"], "names no number; expected CHANNEL=NUMBER, such as bill=0.9. Channels: bill "),
        (["bill=cheap"], "'cheap' is no limit of bill"),
        (["bill=0"], "expected more than 0, below 100"),
        (["typical=nan"], "expected more than 0"),
        (["typical=inf"], "below 100"),
        (["needles=0"], "expected more than 0, below 1"),
        (["needles=1"], "below 1"),
        (["violations=-0.1"], "expected 0 (none at all) or more, below 1"),
        (["stream_broken=2"], "expected 0 (none at all) or more, below 1 (share of a session's requests with this"),
        (["bill=0.9", "bill=0.8"], "--limit bill is given twice"),
    ],
)
def test_a_limit_that_means_nothing_is_refused(texts, said):
    with pytest.raises(BadInput) as refused:
        declared_limits(texts)
    assert said in str(refused.value)


def test_an_unknown_channel_is_named_with_the_known_ones():
    with pytest.raises(UnknownName) as refused:
        declared_limits(["bil=0.9"])
    assert "Unknown channel of --limit 'bil'. Did you mean bill?" in str(refused.value)
    with pytest.raises(UnknownName, match="Did you mean stream_broken"):
        declared_limits(["stream_brokn=0"])
    assert "Known: bill, needles, typical, violations, and each kind of violation, such as" in str(refused.value)


def test_limits_are_read_by_channel():
    assert declared_limits(["bill=0.9", "violations=0", "needles = 0.01".replace(" ", "")]) == {
        "bill": 0.9,
        "violations": 0.0,
        "needles": 0.01,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fail_fast": True}, "--fail-fast is about alarms"),
        ({"notify": "true"}, "--notify is about alarms"),
        ({"anew": True}, "--anew is about alarms"),
        ({"limit": ["bill=1"], "notify": "no-such-program-anywhere"}, "names no program that can be run"),
        ({"limit": ["bill=1"], "notify": "'"}, "cannot be read as a command line"),
        ({"limit": ["bill=1"], "notify": ""}, "names no program"),
    ],
)
def test_options_about_alarms_are_checked_before_anything_starts(options, said):
    with pytest.raises(BadInput) as refused:
        checked_limits("watch", LimitedWatch(**options))
    assert said in str(refused.value)


def test_alpha_is_split_over_the_limits_that_take_a_statistic():
    made = Certificate.new({"bill": 0.9, "typical": 0.9, "violations": 0.0})
    assert [channel.detector and channel.detector.alpha for channel in made.channels.values()] == [0.025, 0.025, None]


def test_sessions_that_become_dearer_raise_an_alarm_that_names_them():
    made, alarms = Certificate.new({"typical": 0.9}), []
    for number in range(40):
        alarms += made.add(session(f"good-{number}", 0.7), 1.0)
    for number in range(40):
        alarms += made.add(session(f"bad-{number}", 2.0 + number % 3), 2.0)
    [alarm] = alarms
    assert alarm["channel"] == "typical"
    assert alarm["evidence"] >= alarm["threshold"] == pytest.approx(20)
    assert alarm["weighed_most"]
    assert all(each["session"].startswith("bad-") for each in alarm["weighed_most"])
    steps = [each["step"] for each in alarm["weighed_most"]]
    assert steps == sorted(steps, reverse=True)
    assert made.alarms == [alarm]
    assert "ALARM typical > 0.9" in next(iter(made.sentences()))


def test_each_limit_has_a_line_that_stands_alone(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        lines = guard(store, {"bill": 0.9, "violations": 0.0}).sentences()
    assert [line.partition(" ≤")[0] for line in lines] == ["Limits: bill", "Limits: violations"]


def test_good_sessions_raise_none():
    made = Certificate.new({"bill": 0.9, "typical": 0.9, "violations": 0.1, "needles": 0.05})
    for number in range(3_000):
        counts = session(f"s{number}", 0.8 + 0.1 * (number % 3 - 1), alone=1 + number % 7, planted=10)
        assert not made.add(counts, 0.0)
    shown = made.as_dict()["channels"]
    assert shown["bill"]["sessions"] == shown["needles"]["sessions"] == 3_000
    assert shown["bill"]["low"] < shown["bill"]["value"] < shown["bill"]["high"]
    assert shown["needles"]["value"] == 0 < shown["needles"]["high"] < 0.05


def test_a_session_whose_price_is_not_known_is_counted_apart_and_is_no_step():
    made = Certificate.new({"bill": 0.9, "typical": 0.9})
    for number in range(300):
        assert not made.add(session(f"s{number}", None), 0.0)
    for shown in made.as_dict()["channels"].values():
        assert (shown["unknown"], shown["sessions"], shown["evidence"]) == (300, 0, 0)
    assert "300 more are not counted: what they cost is not known" in next(iter(made.sentences()))


def test_sessions_without_needles_say_nothing_of_them():
    made = Certificate.new({"needles": 0.01})
    assert not made.add(session("off"), 0.0)
    assert made.as_dict()["channels"]["needles"]["sessions"] == 0
    for number in range(20):
        made.add(session(f"s{number}", planted=3, lost=3), 0.0)
    assert made.alarms


def test_the_first_sessions_only_set_what_one_may_weigh_in_the_bill():
    made = Certificate.new({"bill": 0.9})
    channel = made.channels["bill"]
    for number in range(REFERENCE):
        made.add(session(f"s{number}", 3.0, alone=float(number + 1)), 0.0)
    assert channel.detector.sessions == 0
    assert channel.cap == pytest.approx(40.2)  # the 80th percentile of 1 … 50
    assert not channel.reference
    made.add(session("next", 3.0, alone=1000.0), 0.0)
    assert channel.detector.sessions == 1


def test_the_interval_of_a_ratio_is_shown_from_enough_sessions_on():
    made = Certificate.new({"typical": 2.0})
    for number in range(SHOWN_FROM):
        assert "low" not in made.as_dict()["channels"]["typical"]
        made.add(session(f"s{number}", 0.9 + 0.1 * (number % 2)), 0.0)
    shown = made.as_dict()["channels"]["typical"]
    assert shown["low"] < 0.95 < shown["high"]


COUNTS = st.builds(
    lambda ratio, alone, violated, lost: session("s", ratio, alone, violated=violated, planted=4, lost=lost),
    st.none() | st.floats(0, 5),
    st.floats(0.01, 10),
    st.integers(0, 4),
    st.integers(0, 4),
)


@settings(max_examples=50)
@given(st.lists(COUNTS, max_size=80), st.data())
def test_a_certificate_taken_up_anywhere_equals_one_pass(sessions, data):
    limits = {"bill": 0.9, "typical": 1.5, "needles": 0.2, "violations": 0.3}
    cut = data.draw(st.integers(0, len(sessions)))
    through, parted = Certificate.new(limits), Certificate.new(limits)
    for counts in sessions:
        through.add(counts, 1.0)
    for counts in sessions[:cut]:
        parted.add(counts, 1.0)
    parted = Certificate.of(json.loads(json.dumps(parted.state())))
    for counts in sessions[cut:]:
        parted.add(counts, 1.0)
    assert plain(through) == plain(parted)
    assert through.as_dict() == parted.as_dict()


def test_turns_make_sessions_which_are_finished_when_nothing_comes_of_them():
    opened = OpenSessions()
    turns = [
        turn(1, "a", 0.0, alone=1.0, through=0.5, violations={"tool_added": 1}, needles_planted=3, needles_lost=1),
        turn(2, "b", 10.0),
        turn(3, "a", 20.0, kind="late", alone=0.0, through=0.25),
        turn(4, "a", 30.0, violations={"tool_annotation_changed": 2, "not_measured": 1}),
        turn(5, "c", 40.0, arm="shadow"),
        turn(6, "", 50.0),
    ]
    assert [counts for each in turns for counts in opened.add(each)] == []
    [first] = opened.add(turn(7, "d", IDLE_SECONDS + 11))
    assert first.session == "b"
    [second] = opened.finished(IDLE_SECONDS + 31)
    assert (second.session, second.requests, second.violated, second.alone, second.through) == ("a", 2, 1, 2.0, 1.75)
    assert (second.planted, second.lost) == (3, 1)
    assert [counts.session for counts in opened.close()] == ["d"]


def test_a_turn_whose_bill_is_not_known_leaves_its_sessions_bill_unknown():
    opened = OpenSessions()
    for number, through in enumerate((1.0, None, 1.0), 1):
        assert not list(opened.add(turn(number, "a", through=through)))
    [counts] = opened.close()
    assert (counts.through, counts.requests) == (None, 3)


def test_a_killed_watch_goes_on_where_it_was(tmp_path):
    limits = {"typical": 1.5, "violations": 0.5}
    turns = [turn(number, f"s{number // 2}", number * 1500.0, through=1 + number % 3) for number in range(1, 40)]
    with open_store(tmp_path / "whole.db") as store:
        whole = guard(store, limits)
        whole.begin("w")
        for each in turns:
            whole.see(each)
        whole.close()
    for kept_at in (0, 7, 20, 39):
        with open_store(tmp_path / f"{kept_at}.db") as store:
            log, killed = open_watch(store, {}, name="w"), guard(store, limits)
            killed.begin("w")
            killed.log.write(killed.state())
            log.write(turns)
            for number, each in enumerate(turns, 1):
                killed.see(each)
                if number == kept_at:
                    killed.log.write(killed.state())
            again = guard(store, limits)
        assert plain(again.certificate) == plain(whole.certificate)


def test_an_alarm_stands_over_restarts_until_it_is_begun_anew(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        first = guard(store, {"violations": 0.0})
        first.begin("w")
        first.see(turn(1, "a", violations={"tool_removed": 1}))
        [alarm] = first.fresh
        assert [each["session"] for each in alarm["weighed_most"]] == ["a"]
        first.log.write(first.state(), release=True)
        second = guard(store, {"violations": 0.0}, fail_fast=True)
        assert second.fresh == []
        with pytest.raises(LimitCrossed, match=r"ALARM violations > 0: the first one, in a\. .*--anew begins anew"):
            second.refuse_alarms()
        other = guard(store, {"violations": 0.1})
        assert not other.certificate.alarms
        anew = guard(store, {"violations": 0.0}, anew=True)
        assert (anew.certificate.begun, anew.certificate.alarms) == (2, [])
        assert anew.sentences()[0].startswith("Limits, begun anew 1 times: violations ≤ 0: no alarm")


def test_two_processes_do_not_count_on_the_same_state(tmp_path, monkeypatch):
    from context_bench.engine.store import watches as certificates

    key = b"0123456789abcdef"
    with open_store(tmp_path / "store.db") as store:
        mine = CertificateLog(store, key)
        mine.write({"a": 1})
        monkeypatch.setattr(certificates, "process_mark", lambda: "another")
        with pytest.raises(StoreUnusable, match="kept by another process"):
            CertificateLog(store, key)
        mine.write({"a": 2}, release=True)
        assert CertificateLog(store, key).state == {"a": 2}


def test_sessions_of_a_folder_are_counted_once(tmp_path):
    limits = {"typical": 5.0}
    with open_store(tmp_path / "store.db") as store:
        assert guard(store, limits).count_new([session("a"), session("b"), session("a")]) == (2, 0)
        second = guard(store, limits)
        assert second.count_new([session("a", requests=9), session("b"), session("c")]) == (1, 1)
        assert second.certificate.as_dict()["channels"]["typical"]["sessions"] == 3


async def alarmed(tmp_path, command):
    with open_store(tmp_path / "store.db") as store:
        made = guard(store, {"violations": 0.0}, notify=command)
        made.see(turn(1, "a; rm -rf $HOME", violations={"role_changed": 1}))
        return await made.tell()


async def test_a_command_gets_the_alarm_on_its_stdin_and_no_shell_reads_it(tmp_path):
    program = tmp_path / "note"
    program.write_text('#!/bin/sh\ncat > "$1"\necho "$2" >> "$1"\n')
    program.chmod(0o700)
    sentences, warnings = await alarmed(tmp_path, f"{program} '{tmp_path}/told.json' '$HOME;|'")
    assert warnings == []
    assert sentences[0].startswith("ALARM violations")
    document, argument = (tmp_path / "told.json").read_text().splitlines()
    assert argument == "$HOME;|"
    told = json.loads(document)
    assert told["alarm"]["weighed_most"] == [{"session": "a; rm -rf $HOME"}]
    assert told["limits"]["channels"]["violations"]["alarm"] == told["alarm"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "ended with code 1"),
        ("sleep 60", "took more than 0.3 s and was ended"),
        ("no-such-program-anywhere", "could not be started"),
    ],
)
async def test_a_command_that_fails_is_a_warning(tmp_path, monkeypatch, command, said):
    monkeypatch.setattr(limit_guard, "NOTIFY_SECONDS", 0.3 if "sleep" in command else 20)
    sentences, [warning] = await alarmed(tmp_path, command)
    assert sentences
    assert said in warning


def test_a_kind_of_violation_is_a_channel_at_once_and_by_its_share():
    limits = declared_limits(["stream_broken=0", "answered_without_provider=0.2", "violations=0.5"])
    certificate = Certificate.of(plain(Certificate.new(limits)))
    assert certificate.violated("a", 1.0, {"finish_reason_changed": 1}) == []
    [alarm] = certificate.violated("b", 2.0, {"stream_broken": 2})
    assert (alarm["channel"], alarm["weighed_most"]) == ("stream_broken", [{"session": "b"}])
    counts = SessionCounts("c")
    for number, kinds in enumerate([{"answered_without_provider": 1}, {}, {"answered_without_provider": 1}, {}]):
        counts.add(turn(number, "c", violations=kinds))
    assert (counts.kinds, counts.violated) == ({"answered_without_provider": 2}, 0)  # a note is not in the sum
    certificate.add(counts, 3.0)
    told = certificate.as_dict()["channels"]
    assert (told["answered_without_provider"]["value"], told["violations"]["value"]) == (0.5, 0.0)
