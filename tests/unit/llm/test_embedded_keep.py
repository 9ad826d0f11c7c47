"""The bundled model that keeps what it was asked about last: less is read, and nothing is answered otherwise."""

from __future__ import annotations

from context_bench.llm.embedded import Embedded, fetch_weights, prompt_parts, prompt_tail, question_of
from context_bench.wire.request import Part, WireMessage, WireRequest

LORN = "The port of Lorn has 14 docks and two lighthouses. Its harbour master is Mira Holt, who came from Tamm in 1998."
TAMM = "Tamm has one mill. Its miller is Jon Fisk, and the mill was built in 1803."
WHO = "Question: Who is the harbour master or the miller?"
HOW = "Question: Which number is told?"


def request(text: str, question: str) -> WireRequest:
    system = WireMessage("system", [Part("text", "Answer from the text, briefly.")])
    return WireRequest(
        "openai-chat",
        "m",
        [system, WireMessage("user", [Part("text", f"{text}\n\n{question}")])],
        params={"max_tokens": 4},
    )


def test_a_prompt_is_cut_after_the_system_prompt_and_after_the_text() -> None:
    one = request(LORN, WHO)
    cut = prompt_parts(one, question_of(one))
    assert cut == ["Text: Answer from the text, briefly.", f"\n\n{LORN}\n\n"]
    assert prompt_tail(question_of(one)).startswith("".join(cut))
    alone = WireRequest("openai-chat", "m", [WireMessage("user", [Part("text", f"{LORN}\n\n{WHO}")])])
    assert prompt_parts(alone, question_of(alone)) == [f"Text: {LORN}\n\n"]
    nothing = WireRequest("openai-chat", "m", [WireMessage("user", [Part("text", WHO)])])
    assert prompt_parts(nothing, question_of(nothing)) == []


async def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    fetch_weights()
    orders = ([(LORN, WHO), (LORN, HOW), (TAMM, WHO)], [(TAMM, WHO), (LORN, HOW), (TAMM, WHO), (LORN, WHO)])
    told: dict[tuple[str, str], set[str]] = {}
    model = Embedded(keep=True)
    read = []
    for order in orders:
        for text, question in order:
            before = model.timings.prompt_tokens
            reply = await model.reply(request(text, question), {})
            read.append(model.timings.prompt_tokens - before)
            told.setdefault((text, question), set()).add(f"{reply.text} {reply.usage}")
    await model.aclose()
    assert [len(each) for each in told.values()] == [1, 1, 1]
    assert max(read) < 30  # the texts were read before the questions were put
    assert model.fingerprint() != Embedded().fingerprint()
