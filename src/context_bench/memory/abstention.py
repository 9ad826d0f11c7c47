"""Whether an answer says that it cannot be known."""

from __future__ import annotations

import re

from context_bench.core.text import normalise

_OPENING = re.compile(
    r"(?:(?:im |i am )?sorry(?: but)? |unfortunately |answer (?:is )?|based on [\w ]{0,60}? )?"
    r"(?:not (?:mentioned|specified|stated|provided|known|available|answerable|enough information|in memories|sure)|unknown|unanswerable|"
    r"no (?:information|answer|mention|memory|memories|record)|insufficient information|there (?:is|was) (?:no|not enough) "
    r"(?:information|mention|record|memory)|i (?:do not|dont|did not|didnt) (?:know|have|see|find|recall|remember)|i ?a?m not sure|"
    r"(?:it )?(?:cannot|can not|cant|could not|couldnt) (?:be )?(?:determined?|answer(?:ed)?|known|found?|say|tell))\b"
)
_ANYWHERE = re.compile(
    r"\b(?:no information available|not mentioned in|cannot be (?:determined|answered|known)|not enough information|"
    r"(?:memories|conversations?|context|information|user|history|provided text) (?:do|does|did)(?: not|nt) "
    r"(?:mention|say|contain|hold|specify|state|provide|include|indicate|tell|have))\b"
)


def declines(answer: str) -> bool:
    """True if the answer opens by saying that it is not known, or says in its first sentence that what was given does not tell.

    English phrases; an empty answer is no refusal but a failure. A refusal after which an answer is given all the same counts as one.
    """
    if _OPENING.match(normalise(answer)):
        return True
    return bool(_ANYWHERE.search(normalise(re.split(r"(?<=[.!?])\s", answer.strip(), maxsplit=1)[0])))
