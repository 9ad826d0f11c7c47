"""Lines of one conversation in another's request: what is a leak and what is not."""

import pytest

from context_bench.wire.needles import LineOwners
from context_bench.wire.request import Part, WireMessage, WireRequest

SECRET = "The vault of the harbour office opens with 4711."
SHARED = "Please answer in one short and friendly sentence."
OTHER = "When does the ferry to the island leave tomorrow?"
ADDED = "Remember: the proxy keeps your context window small."


def request(*lines, role="user"):
    return WireRequest("openai-chat", "m", [WireMessage(role, [Part("text", line)]) for line in lines])


@pytest.mark.parametrize(
    ("sent", "arrived", "leaked"),
    [
        (request(OTHER), request(SECRET, OTHER), 1),
        (request(OTHER), request(f"Earlier you said:\n{SECRET}\n\n{OTHER}"), 1),
        (request(OTHER), request(OTHER), 0),
        (request(OTHER), request(ADDED, OTHER), 0),
        (request(SHARED, OTHER), request(SHARED, OTHER), 0),
        (request(SECRET, OTHER), request(SECRET, OTHER), 0),
        (request(OTHER), request(SECRET[:20], OTHER), 0),
        (request(OTHER), None, 0),
    ],
)
def test_what_is_a_leak(sent, arrived, leaked):
    conversations = LineOwners()
    assert conversations.leaks("one", request(SECRET, SHARED), request(SECRET, SHARED)) == []
    found = conversations.leaks("two", sent, arrived)
    assert [one.kind for one in found] == ["conversation_leaked"] * leaked
    assert "4711" not in repr(found)


def test_a_conversation_may_be_reminded_of_what_it_said_itself():
    conversations = LineOwners()
    conversations.leaks("one", request(SECRET), None)
    assert conversations.leaks("one", request(OTHER), request(SECRET, OTHER)) == []


def test_the_oldest_lines_are_forgotten_first():
    conversations = LineOwners(most=2)
    conversations.leaks("one", request(SECRET), None)
    conversations.leaks("one", request(SHARED, ADDED), None)
    assert conversations.leaks("two", request(OTHER), request(SECRET, OTHER)) == []
    assert conversations.leaks("two", request(OTHER), request(ADDED, OTHER)) != []


@pytest.mark.parametrize(("arrived", "leaked"), [("key-1", True), ("key-2", False), ("upstream", False), (None, False)])
def test_keys(arrived, leaked):
    conversations = LineOwners()
    conversations.leaks("one", request(SECRET), None, keys=("key-1", "upstream-key"))
    found = conversations.leaks("two", request(OTHER), None, keys=("key-2", arrived))
    assert [one.kind for one in found] == (["key_leaked"] if leaked else [])
