"""Model contexts of autogen-core as memories, over lines of JSON: one context for each that is begun from a list."""

import asyncio
import json
import os
import sys

from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage

replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what packages print is not a reply
lists, contexts = [], []


def native(texts):
    """The place of a caller's list of messages."""
    lists.append([UserMessage(content=text, source="user") for text in texts])
    return len(lists) - 1


def begin(start):
    """The place of a context that begins with a list."""
    contexts.append(UnboundedChatCompletionContext(initial_messages=lists[start]))
    return len(contexts) - 1


def add(context, texts):
    for text in texts:
        asyncio.run(contexts[context].add_message(UserMessage(content=text, source="user")))


def texts(context):
    return [message.content for message in asyncio.run(contexts[context].get_messages())]


for line in sys.stdin:
    asked = json.loads(line)
    try:
        told = {"result": globals()[asked["call"]](**asked["args"])}
    except Exception as error:
        told = {"error": {"kind": type(error).__name__, "message": str(error)}}
    replies.write(json.dumps(told) + "\n")
    replies.flush()
