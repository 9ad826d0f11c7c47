"""Controls and everything that `--system SPEC` can name, asked through real servers."""

import sys
import types

import pytest

from context_bench.core.errors import BadInput, NoBudget, UnknownName
from context_bench.core.tokens import counter_for
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.systems import Control, OpenAIProxy
from context_bench.systems.control import Read, compressor_of, system_of

CONTEXT = "\n\n".join(
    f"Section {i}. Pump {i} was built in {1900 + i}. It moves {i * 7} litres per minute." for i in range(80)
)
EXAMPLE = {"id": "e", "context": CONTEXT, "question": "When was pump 33 built?"}
COUNT = counter_for("gpt-3.5-turbo").count


def server():
    return ModelServer(
        Scripted(
            {
                "answer_key": [
                    {
                        "question": EXAMPLE["question"],
                        "answer": "1933",
                        "evidence": "Pump 33 was built in 1933",
                        "wrong": "unknown",
                    }
                ]
            }
        )
    )


def client(model, **options):
    return OpenAIProxy(model.url, **{"shape": "plain-user", "max_retries": 0, **options})


@pytest.mark.parametrize(
    ("name", "answer"), [("full", "1933"), ("none", "unknown"), ("bm25", "1933"), ("head_tail", "unknown")]
)
async def test_a_control_answers_from_what_it_keeps(name, answer):
    async with server() as model:
        output = await Control(name, client(model), partner=None if name in ("full", "none") else "kompact").aprocess(
            {**EXAMPLE, "budget": 120}
        )
        text = model.requests[-1].text
    assert output["response"] == answer
    assert text.endswith(f"Question: {EXAMPLE['question']}")
    kept = COUNT(output["context"])
    assert output["compressed"] == {"tokens_before": COUNT(CONTEXT), "tokens_after": kept}
    assert kept == {"full": COUNT(CONTEXT), "none": 0}.get(name, kept)
    if name in ("bm25", "head_tail"):
        assert 110 <= kept <= 120


async def test_fixed_budgets_and_shares():
    async with server() as model:
        by_budget = await Control("random_drop", client(model), budget=90).aprocess(EXAMPLE)
        by_share = await Control("random_drop", client(model), keep=0.1).aprocess(EXAMPLE)
        own = await Control("random_drop:budget=50", client(model)).aprocess(EXAMPLE)
    assert 80 <= by_budget["compressed"]["tokens_after"] <= 90
    assert COUNT(CONTEXT) * 0.1 - 10 <= by_share["compressed"]["tokens_after"] <= COUNT(CONTEXT) * 0.1
    assert own["compressed"]["tokens_after"] <= 50


async def test_a_budgeted_control_without_a_budget_fails_before_asking():
    async with server() as model:
        with pytest.raises(NoBudget, match="kompact"):
            await Control("head_tail", client(model), partner="kompact").aprocess(EXAMPLE)
        with pytest.raises(BadInput, match="budget"):
            await Control("head_tail", client(model)).aprocess({**EXAMPLE, "budget": -3})
        assert model.seen == 0


async def test_the_question_stays_where_it_is_part_of_the_context():
    async with server() as model:
        for example in (
            {"id": 1, "context": f"{CONTEXT}\n\nWho?"},
            {"id": 2, "context": f"{CONTEXT}\n\nWho?", "question": f"{CONTEXT}\n\nWho?"},
        ):
            await Control("none", client(model)).aprocess(example)
            assert model.requests[-1].text == "Who?"
            await Control("head_tail", client(model), budget=30).aprocess(example)
            assert model.requests[-1].text.endswith("\n\nWho?")
            assert COUNT(model.requests[-1].text) <= 35
        await Control("none", client(model)).aprocess(
            {"id": 3, "context": "Only a question?", "question": "Only a question?"}
        )
        assert model.requests[-1].text == "Only a question?"


async def test_random_drop_draws_by_example_and_repeats():
    async with server() as model:
        control = Control(compressor_of("random_drop", seed=5), client(model), budget=100)
        first, again, other = [(await control.aprocess({**EXAMPLE, "id": i}))["context"] for i in ("a", "a", "b")]
    assert first == again != other


def test_from_a_plain_script_and_its_names():
    inner = OpenAIProxy("http://127.0.0.1:1", shape="codex", model="m")
    assert Control("head_tail", inner, partner="kompact").name == "head_tail@kompact"
    assert Control("head_tail", inner, name="mine").name == "mine"
    assert Control("none", inner).name == "none"
    assert (Control("none", inner).shape, Control("none", inner).model) == ("codex", "m")
    with pytest.raises(NoBudget):
        Control("bm25", inner, partner="p").process(EXAMPLE)
    with pytest.raises(BadInput, match="keep"):
        Control("bm25", inner, keep=3)


def test_fingerprints_tell_settings_apart():
    inner, other = OpenAIProxy("http://127.0.0.1:1"), OpenAIProxy("http://127.0.0.1:2")
    variants = [
        Control("head_tail", inner),
        Control("bm25", inner),
        Control("head_tail", other),
        Control("head_tail:keep=0.2", inner),
        Control("head_tail", inner, budget=9),
        Control("head_tail", inner, keep=0.9),
        Control("head_tail", inner, partner="p"),
        Control("random_drop", inner),
        Control("random_drop:seed=3", inner),
    ]
    assert len({repr(variant.fingerprint()) for variant in variants}) == len(variants)


class Shortens:
    name = "shortens"
    stateful = True

    def process(self, example):
        return {**example, "context": example["context"][:3000]}


class Answers:
    name = "answers"

    async def aprocess(self, example):
        return {**example, "response": "by myself"}


class Odd:
    name = "odd"

    def process(self, example):
        return "text"


@pytest.fixture
def plugins(monkeypatch):
    module = types.ModuleType("plugins_of_this_test")
    module.Shortens, module.Answers, module.Odd = Shortens, Answers, Odd
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return f"py:{module.__name__}"


async def test_system_specs(plugins):
    async with server() as model:
        inner = client(model)
        read = system_of(f"{plugins}:Shortens", inner=inner)
        assert isinstance(read, Read)
        assert (read.name, read.stateful, read.inner) == ("shortens", True, inner)
        output = await read.aprocess(EXAMPLE)
        assert output["response"] == "1933"
        assert len(output["context"]) == 3000
        assert (await system_of(f"{plugins}:Answers", inner=inner).aprocess(EXAMPLE))["response"] == "by myself"
        assert model.seen == 1
        with pytest.raises(TypeError, match=r"odd.*returned a str"):
            await system_of(f"{plugins}:Odd", inner=inner).aprocess(EXAMPLE)
        control = system_of("head_tail:keep=0.3", inner=inner, suffix="[codex]")
        assert isinstance(control, Control)
        assert control.name == "head_tail:keep=0.3[codex]"
        assert system_of("passthrough", inner=inner).name == "full"


def test_system_specs_without_a_reader(plugins):
    alone = system_of(f"{plugins}:Shortens")
    assert isinstance(alone, Shortens)
    assert system_of(f"{plugins}:Shortens", suffix="[m]").name == "shortens[m]"
    assert "response" not in system_of(f"{plugins}:Shortens", suffix="[m]").process(EXAMPLE)
    assert system_of("openai_proxy:base_url=http://127.0.0.1:9").name == "openai_proxy_127.0.0.1:9"
    assert system_of("claude_cli:max_turns=2").max_turns == 2
    with pytest.raises(BadInput, match="--upstream"):
        system_of("bm25")
    with pytest.raises(UnknownName, match="head_tail"):
        system_of("headtail")
