"""A request that arrives behind a proxy as the baseline's did counts as difference 0, and gets the baseline's reply."""

import json
import random
from contextlib import ExitStack

import pytest

from context_bench.__main__ import main
from context_bench.engine import open_store, rows, run_of
from context_bench.llm.background import run_sync
from context_bench.llm.hop import HopAnswer
from context_bench.llm.responders import ResponderError, counted
from context_bench.llm.servers import ModelServer
from context_bench.systems.serve import Served
from context_bench.tap import Tap
from context_bench.testing.hostile import MisbehavingProxy, Rewriting, in_body
from context_bench.wire.apis.shared import Reply

EXAMPLES = 24


class Dice:
    """Answers right or wrong as dice fall, each time anew; fails where the prompt says so. Counts what it was asked."""

    name = "dice"

    def __init__(self):
        self.asked, self._random, self.fails = [], random.Random(7), None

    async def reply(self, request, headers):
        text = "\n".join(message.text for message in request.messages)
        self.asked.append(text)
        if self.fails is not None and self.fails(text):
            raise ResponderError(400, "no such luck")
        answer = Reply(text=self._random.choice(["Ada", "Bo"]), finish_reason="stop", model=request.model)
        answer.usage = counted(answer, request)
        return answer

    async def models(self):
        return ["dice"]

    def fingerprint(self):
        return {"dice": 7}


@pytest.fixture
def lab(tmp_path):
    """A model that never answers twice alike, a tap before it, and a runner of `context-bench run` over both."""
    with ExitStack() as stack:
        yield Lab(tmp_path, stack)


class Lab:
    def __init__(self, folder, stack):
        self.folder, self.stack, self.model = folder, stack, Dice()
        self.server = ModelServer(self.model)
        run_sync(self.server.start())
        stack.callback(lambda: run_sync(self.server.stop()))
        self.tap = Tap(self.server.url, upstream_key="none-needed")
        self.tap.__enter__()
        stack.callback(lambda: self.tap._loop and self.tap.__exit__(None, None, None))
        self.data = folder / "houses.jsonl"
        self.write(range(EXAMPLES))

    def write(self, numbers):
        """Every other context is long."""
        made = [
            {
                "id": f"house-{n}",
                "question": f"Who lives in house {n}?",
                "answer": "Ada",
                "context": f"Lane {n}. {'Trees stand here. ' * (100 * (n % 2))}\n\nAda lives in house {n}.",
            }
            for n in numbers
        ]
        self.data.write_text("\n".join(map(json.dumps, made)))

    @property
    def questions(self):
        """What the model was asked of the examples; short requests are made before and after a run, too."""
        return [text for text in self.model.asked if "Who lives" in text]

    def proxy(self, made):
        return self.stack.enter_context(made)

    def run(self, proxies, *more, controls="full,full#2", tap=None, name="r"):
        named = [word for label, proxy in proxies.items() for word in ("--proxy", proxy.url, "--name", label)]
        command = [*named, "--dataset", str(self.data), "--tap", tap or self.tap.url, "--controls", controls]
        command += ["--model", "gpt-4o-mini", "--store", str(self.folder / "s.db"), "--run", name, "--quiet"]
        command += ["--output", "json", "--out", str(self.folder / "out.json"), "--retries", "0", *more]
        assert main(command) in (0, 1)
        return json.loads((self.folder / "out.json").read_text())

    def rows(self, system, name="r"):
        store = open_store(str(self.folder / "s.db"))
        try:
            return {(row.example_id, row.trial): row for row in rows(store, name, system)}
        finally:
            store.close()

    def manifest(self, name="r"):
        store = open_store(str(self.folder / "s.db"))
        try:
            return run_of(store, name).manifest
        finally:
            store.close()


def cut(url):
    """Leaves short contexts as they are, byte for byte."""
    return Served("head_tail:budget=100", url)


def touched(example_id):
    return int(example_id.rpartition("-")[2]) % 2 == 1


def compared(report, system):
    return next(one for one in report["comparisons"] if one["system"] == system)


@pytest.mark.parametrize("stream", [False, True])
def test_what_arrives_as_the_baselines_did_gets_its_reply(lab, stream):
    report = lab.run({"cut": lab.proxy(cut(lab.tap.url))}, *(["--stream"] if stream else []))
    full, mine, again = (lab.rows(name) for name in ("full", "cut", "full#2"))
    for key, row in mine.items():
        if touched(key[0]):
            assert "copied" not in row.wire
            assert row.wire["arrived_as"] != full[key].wire["arrived_as"]
            assert row.latency > 0
        else:
            assert (row.wire["copied"], row.wire["arrived_as"]) == (1, full[key].wire["arrived_as"])
            assert row.scores == full[key].scores
            assert row.usage["cost"] == full[key].usage["cost"]  # ≈: what the same request cost the baseline
            assert row.latency is None
            assert "ttft" not in row.usage
    assert any(row.scores != full[key].scores for key, row in again.items())  # the noise floor is asked anew
    assert not any("copied" in row.wire for row in again.values())
    assert len(lab.questions) == 2 * EXAMPLES + EXAMPLES // 2
    assert "12 of 24 rows arrived as full's had" in (said := " ".join(report["notes"]))
    assert "12 requests were answered with full's replies: their bill is full's (≈" in said
    assert report["wire"]["cut"]["copied"] == 12


def test_the_manifest_says_so_before_anything_is_asked(lab):
    lab.run({"cut": lab.proxy(cut(lab.tap.url))}, controls="full,full#2,none,head_tail")
    assert lab.manifest()["design"]["untouched"] == {
        "counts_as": 0,
        "asked_first": ["full"],
        "systems": ["cut", "none", "head_tail@cut"],
        "replies": "copied",
    }
    assert len(lab.rows("head_tail@cut")) == EXAMPLES
    assert all(row.wire["copied"] == 1 for key, row in lab.rows("head_tail@cut").items() if not touched(key[0]))
    assert not any("copied" in row.wire for row in lab.rows("none").values())


def test_no_copy_asks_anyway_and_still_knows_the_difference(lab):
    report = lab.run({"same": lab.proxy(MisbehavingProxy("nothing", lab.tap.url))}, "--no-copy", controls="full")
    full, mine = lab.rows("full"), lab.rows("same")
    assert len(lab.questions) == 2 * EXAMPLES
    assert any(row.scores != full[key].scores for key, row in mine.items())
    assert all(row.latency > 0 and "copied" not in row.wire for row in mine.values())
    found = compared(report, "same")
    assert (found["difference"], found["n"]) == (0, EXAMPLES)
    assert lab.manifest()["design"]["untouched"]["replies"] == "asked anyway"
    assert "24 of 24 rows arrived as full's had" in " ".join(report["notes"])
    assert "copied" not in report["wire"]["same"]


def test_where_times_are_measured_nothing_is_copied(lab):
    lab.run({"same": lab.proxy(MisbehavingProxy("nothing", lab.tap.url))}, "--latency-mode", "2", controls="full")
    assert len(lab.questions) == 2 * EXAMPLES
    assert all(row.latency > 0 for row in lab.rows("same").values())


def respelled(request):
    """The same JSON with spaces and escapes, as many proxies write it that read it."""
    return request.with_raw(json.dumps(json.loads(request.raw), indent=1, ensure_ascii=True).encode())


@in_body
def warmer(body):
    body["temperature"] = 0.9


@in_body
def other_order(body):
    body["messages"][0] = dict(reversed(body["messages"][0].items()))


def test_the_tap_keeps_no_reply_once_all_have_asked_but_those_of_rows_that_failed(lab):
    """`full#2` asks for itself, and is waited for; `head_tail@cut` asks through the proxy."""
    proxies, controls = {"cut": lab.proxy(cut(lab.tap.url))}, "full,full#2,head_tail"
    lab.run(proxies, "--trials", "2", controls=controls)
    assert len(lab.rows("full")) == 2 * EXAMPLES
    assert lab.tap._replies.held == 0
    lab.model.fails = lambda text: "house 5?" in text and len(text) < 1_000  # what was cut of a long context
    lab.run(proxies, controls=controls, name="again")
    assert [example for (example, _), row in lab.rows("cut", "again").items() if row.errors] == ["house-5"]
    assert [example.partition("/")[2] for _, example in lab.tap._replies._examples] == ["full/0/#5"]
    assert lab.tap._replies.held > 0


@pytest.mark.parametrize(("change", "same"), [(respelled, True), (warmer, False), (other_order, False)])
def test_what_counts_as_the_same_request(lab, change, same):
    lab.run({"mine": lab.proxy(Rewriting(change, lab.tap.url))}, controls="full")
    assert all(("copied" in row.wire) == same for row in lab.rows("mine").values())
    assert len(lab.questions) == EXAMPLES * (1 if same else 2)


def test_a_reply_that_the_proxy_changed_counts_with_its_own_score(lab):
    async def change(request):
        status, data = await proxy.fetch(request)
        answer = json.loads(data)
        answer["choices"][0]["message"]["content"] = "Ada"
        return HopAnswer([json.dumps(answer).encode()], status)

    proxy = MisbehavingProxy("nothing", lab.tap.url)
    proxy._hop.change = change
    report = lab.run({"right": lab.proxy(proxy)}, controls="full")
    mine, full = lab.rows("right"), lab.rows("full")
    assert all(row.scores["f1"] == 1 and row.wire["copied"] == 1 for row in mine.values())
    wrong = [key for key, row in full.items() if row.scores["f1"] == 0]
    assert wrong
    assert not any("arrived_as" in mine[key].wire for key in wrong)
    assert compared(report, "right")["difference"] == pytest.approx(len(wrong) / EXAMPLES)


def test_a_failure_of_the_baseline_is_no_reply_to_copy(lab):
    lab.model.fails = lambda text: "house 3?" in text and sum("house 3?" in each for each in lab.model.asked) == 1
    report = lab.run({"same": lab.proxy(MisbehavingProxy("nothing", lab.tap.url))}, controls="full")
    assert lab.rows("full")["house-3", 0].failed
    row = lab.rows("same")["house-3", 0]
    assert not row.failed
    assert "copied" not in row.wire
    assert sum("copied" in row.wire for row in lab.rows("same").values()) == EXAMPLES - 1
    assert compared(report, "same")["excluded"] == 1


def test_each_trial_has_its_own_reply_and_shapes_stay_apart(lab):
    lab.write(range(8))
    lab.run(
        {"same": lab.proxy(MisbehavingProxy("nothing", lab.tap.url))},
        *("--trials", "3", "--shape", "plain-user,plain-system", "--max-workers", "6"),
        controls="full,full#2",
    )
    assert len(lab.questions) == 2 * 2 * 8 * 3
    for shape in ("plain-user", "plain-system"):
        full, mine = lab.rows(f"full[{shape}]"), lab.rows(f"same[{shape}]")
        assert len(mine) == 24
        assert all(row.wire["copied"] == 1 and row.scores == full[key].scores for key, row in mine.items())


def test_a_proxy_that_joins_later_is_asked_anew_and_counts_the_same(lab):
    lab.run({"first": lab.proxy(MisbehavingProxy("nothing", lab.tap.url))}, controls="full")
    port = int(lab.tap.url.rpartition(":")[2])
    lab.tap.__exit__(None, None, None)
    before = len(lab.questions)
    with Tap(lab.server.url, port=port, upstream_key="none-needed") as lab.tap:  # what was remembered is gone
        report = lab.run({"late": lab.proxy(cut(lab.tap.url))}, controls="full")
    assert len(lab.questions) == before + EXAMPLES
    full, mine = lab.rows("full"), lab.rows("late")
    assert not any("copied" in row.wire for row in mine.values())
    same = [key for key, row in mine.items() if row.wire["arrived_as"] == full[key].wire["arrived_as"]]
    assert len(same) == EXAMPLES // 2
    assert "late: 12 of 24 rows arrived as full's had" in " ".join(report["notes"])


def test_digests_of_a_tap_that_keeps_no_text_die_with_it(lab):
    """Under another recording policy a digest must not tell what a text was; within one tap it still compares."""
    tap = lab.proxy(Tap(lab.server.url, record="meta", upstream_key="none-needed"))
    lab.run({"same": lab.proxy(MisbehavingProxy("nothing", tap.url))}, controls="full", tap=tap.url, name="meta")
    lab.run({"same": lab.proxy(MisbehavingProxy("nothing", lab.tap.url))}, controls="full", name="whole")
    assert all("copied" in row.wire for row in lab.rows("same", "meta").values())
    kept, hidden = (lab.rows("full", name) for name in ("whole", "meta"))
    assert not any(row.wire["arrived_as"] == hidden[key].wire["arrived_as"] for key, row in kept.items())


def test_lines_of_our_own_are_no_difference(lab):
    """Arms keep apart prompt caches by a first line of their own, which is left out where requests are compared."""
    proxy = {"same": lab.proxy(MisbehavingProxy("nothing", lab.tap.url))}
    lab.run(proxy, "--cache-namespace", "prompt", controls="full")
    assert len({text.partition("\n")[0] for text in lab.questions}) == 1
    assert all(text.startswith("[arm ") for text in lab.questions)
    assert all("copied" in row.wire for row in lab.rows("same").values())
