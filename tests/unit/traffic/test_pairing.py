"""Which call came of which request: by time, by content, late, stray."""

import json

from context_bench.core.machine import ManualClock
from context_bench.tap.exchange import UNMATCHED, Exchange
from context_bench.traffic.watch.paired_taps import Pairing, SeenExchange, alike, likeness
from context_bench.wire.apis import parse_request


class Told:
    def __init__(self):
        self.turns, self.lates, self.strays, self.pending = [], [], [], []

    def turn(self, front: SeenExchange, calls: list[SeenExchange], pending: int) -> None:
        self.pending.append(pending)
        self.turns.append((front.exchange.number, [call.exchange.number for call in calls]))

    def late(self, front: int, call: SeenExchange) -> None:
        self.lates.append((front, call.exchange.number))

    def stray(self, call: SeenExchange) -> None:
        self.strays.append(call.exchange.number)


class Scene:
    """Exchanges that arrive and end on a clock that only this test moves."""

    def __init__(self):
        self.clock, self.told = ManualClock(), Told()
        self.pairing = Pairing(self.told, clock=self.clock, patience=5.0)

    def exchange(self, number, *texts):
        body = {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}
        now = self.clock.monotonic()
        made = Exchange(number, str(number), "POST", "/v1/chat/completions", [], UNMATCHED, now, now)
        made.body.add(now, json.dumps(body).encode())
        made.request = parse_request("openai-chat", body)
        return made

    def front(self, number, *texts):
        made = self.exchange(number, *texts)
        self.pairing.front_arrived(made)
        return made

    def back(self, number, *texts):
        made = self.exchange(number, *texts)
        self.pairing.back_arrived(made)
        return made

    def after(self, seconds):
        self.clock.time += seconds

    def end_front(self, exchange):
        exchange.finished = self.clock.monotonic()
        self.pairing.front_finished(exchange)

    def end_back(self, exchange):
        exchange.finished = self.clock.monotonic()
        self.pairing.back_finished(exchange)


def test_calls_within_a_request_are_its_own_in_the_order_in_which_they_came():
    scene = Scene()
    front = scene.front(1, "hello")
    first, second = scene.back(1, "a summary"), scene.back(2, "hello")
    scene.end_back(second)
    scene.end_back(first)
    assert scene.told.turns == []
    scene.end_front(front)
    assert scene.told.turns == [(1, [1, 2])]


def test_a_turn_waits_for_a_call_that_outlives_its_client_but_not_for_ever():
    scene = Scene()
    front = scene.front(1, "hello")
    call = scene.back(1, "hello")
    scene.after(1)
    scene.end_front(front)
    scene.after(4)
    scene.pairing.settle()
    assert scene.told.turns == []
    scene.after(2)
    scene.pairing.settle()
    assert scene.told.turns == [(1, [])]
    scene.end_back(call)
    assert scene.told.lates == [(1, 1)]


def test_calls_after_the_end_are_late_and_long_after_it_strays():
    scene = Scene()
    front = scene.front(1, "hello")
    scene.end_front(front)
    scene.after(4)
    scene.end_back(scene.back(1, "hello"))
    scene.after(4)
    scene.end_back(scene.back(2, "hello"))
    assert scene.told.turns == [(1, [])]
    assert (scene.told.lates, scene.told.strays) == ([(1, 1)], [2])


def test_of_several_clients_that_wait_the_one_is_meant_whose_words_are_in_the_call():
    scene = Scene()
    shared = "You are a careful helper for the harbour office."
    weather, tides = (
        scene.front(1, shared, "Will it rain in Oporto tomorrow?"),
        scene.front(2, shared, "When is high water at the lock?"),
    )
    for_tides, for_weather = scene.back(1, shared, "high water lock"), scene.back(2, "careful helper", "rain Oporto")
    scene.end_back(for_tides)
    scene.end_back(for_weather)
    scene.end_front(weather)
    scene.end_front(tides)
    assert scene.told.turns == [(1, [2]), (2, [1])]


def test_a_request_that_is_the_beginning_of_another_gets_the_call_that_says_no_more():
    scene = Scene()
    short, longer = scene.front(1, "one two three"), scene.front(2, "one two three", "four five six")
    scene.end_back(scene.back(1, "one two three", "four five six"))
    scene.end_back(scene.back(2, "one two three"))
    scene.end_front(short)
    scene.end_front(longer)
    assert scene.told.turns == [(1, [2]), (2, [1])]


def test_of_equal_requests_each_gets_one_call():
    scene = Scene()
    fronts = [scene.front(number, "the same") for number in (1, 2, 3)]
    for number in (1, 2, 3):
        scene.end_back(scene.back(number, "the same"))
    for front in fronts:
        scene.end_front(front)
    assert sorted(calls for _, calls in scene.told.turns) == [[1], [2], [3]]


def test_a_call_that_nobody_can_read_goes_to_a_client_without_one():
    scene = Scene()
    one, other = scene.front(1, "alpha"), scene.front(2, "beta")
    scene.end_back(scene.back(1, "alpha"))
    odd = scene.back(2)
    odd.request = None
    scene.end_back(odd)
    scene.end_front(one)
    scene.end_front(other)
    assert scene.told.turns == [(1, [1]), (2, [2])]


def test_likeness_is_a_share():
    one, other = (
        parse_request("openai-chat", {"messages": [{"role": "user", "content": text}]}) for text in ("a b c d", "a b")
    )
    assert likeness(one, one) == 1.0
    assert likeness(one, other) == 0.5
    assert likeness(None, None) == 0.0
    assert alike(None, [one, other]) == [0.0, 0.0]


def test_an_unreadable_body_of_a_request_under_way_is_read_once_until_it_grows(monkeypatch):
    read = []
    monkeypatch.setattr("context_bench.traffic.watch.paired_taps.request_of", lambda front: read.append(front.number))
    scene = Scene()
    fronts = [scene.front(number, "hello") for number in (1, 2)]
    for number in range(1, 6):
        scene.end_back(scene.back(number, "hello"))
    assert read == [1, 2]
    fronts[1].body.add(0.0, b"more")
    scene.end_back(scene.back(6, "hello"))
    assert read == [1, 2, 2]


def test_a_turn_whose_call_is_still_being_answered_says_so():
    scene = Scene()
    front, alone = scene.front(1, "hello"), scene.front(2, "nobody behind")
    scene.end_front(alone)
    call = scene.back(3, "hello")
    scene.end_front(front)
    assert [exchange.number for exchange in scene.pairing.waited_for()] == [3]
    scene.after(6)
    scene.pairing.settle()
    assert scene.told.turns == [(2, []), (1, [])]
    assert scene.told.pending == [0, 1]
    scene.end_back(call)
    assert scene.told.lates == [(1, 3)]


def test_a_call_that_is_over_and_still_being_read_is_waited_for():
    scene = Scene()
    front, call, other = scene.front(1, "hello"), scene.back(1, "hello"), scene.back(2, "hello again")
    call.finished = scene.clock.monotonic()
    scene.end_front(front)
    scene.after(60)
    scene.pairing.settle()
    assert scene.told.turns == []
    scene.pairing.back_finished(call)
    scene.pairing.settle()
    assert (scene.told.turns, scene.told.pending) == ([(1, [1])], [1])
    scene.end_back(other)
    assert scene.told.lates == [(1, 2)]
