"""A real small model in this process: the bundled SmolLM2-135M, or a GGUF file of your own, through llama.cpp
(`xllamacpp`).

It shows that the whole chain works and how large effects look, without key or network. It is too small to rank systems
that are close, and no judge: verdicts about a proxy need the model that will really be used.

It answers best when it completes a pattern, so any request, whatever wire or shape, becomes a prompt of worked
examples:

* **question** = the last paragraph that begins with `Question:` in any user message; else the last paragraph of the
  last user message (if that is longer than 120 words: its last sentence or line). Paragraphs are separated by blank
  lines.
* **context** = all other text of all messages, in order: system, user, assistant, tool results. Nothing is left out.
* Tool definitions, tool calls and parts that are not text are not put to the model.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from context_bench.core.errors import BadInput, PreflightFailed
from context_bench.core.records import Usage
from context_bench.llm.embedder import Embedder
from context_bench.llm.responders import ResponderError
from context_bench.llm.weights import (
    BUNDLED_MODEL,
    FETCH,
    cache_folder,
    fast_copy,
    fetch_weights,
    find_weights,
    is_bundled,
    load_engine,
)
from context_bench.wire.apis import Reply
from context_bench.wire.request import SYSTEM_ROLES, WireRequest

xllamacpp = load_engine()

__all__ = [
    "Embedded",
    "Timings",
    "fetch_weights",
    "find_weights",
]

Style = Literal["qa-few-shot", "chat"]
ANSWER_TOKENS = 32
#: Characters that the longest token of a vocabulary holds; those in use have at most 128 (a run of blanks or of signs).
_LONGEST_TOKEN = 128
_GREEDY = {"temperature": 0, "seed": 0}
#: An answer is one line and not blank.
_ONE_LINE = r"""root ::= " "? [^ \n] [^\n]* "\n"*"""
_CHAT_ROLES = {"system": "system", "developer": "system", "assistant": "assistant"}
#: Two worked examples of our own, invented, one in prose and one in the style of release notes.
HEAD = (
    "Text: The museum opened in 1936 in a former mill. Its first director, Anna Berg, collected clocks; the house has "
    "412 of them today. "
    "Entry is free on Mondays.\n\nQuestion: Who was the first director?\nAnswer: Anna Berg\n\n"
    "Text: Changed in version 2.4: The timeout argument was added to the open() method. The default port is 8021. "
    "Requests longer than 64 "
    'bytes are refused with the error "TooLong".\n\nQuestion: In which version was the timeout argument '
    "added?\nAnswer: 2.4\n\n"
)
_LABEL = re.compile(r"question\s*:\s*", re.IGNORECASE)
_BLANK = re.compile(r"\n[ \t\r]*\n\s*")
_LONG = 120  # words; a paragraph beyond this is not a question alone
_LAST_SENTENCE = re.compile(r"(?:(?<=[.!?])\s+|\n\s*)(?=\S[^\n]*\Z)")


class ContextAndQuestion(NamedTuple):
    """Question of a request, and its text."""

    context: str
    question: str


def question_of(request: WireRequest) -> ContextAndQuestion:
    """Context and question of a request, by the rule above; both may be empty."""
    texts = [(message.role, message.text.strip()) for message in request.messages]
    users = [i for i, (role, text) in enumerate(texts) if role == "user" and text]
    for i in reversed(users):
        paragraphs = _BLANK.split(texts[i][1])
        labelled = [j for j, paragraph in enumerate(paragraphs) if _LABEL.match(paragraph)]
        if labelled:
            return _taken(texts, i, paragraphs, labelled[-1])
    if users:
        paragraphs = _BLANK.split(texts[users[-1]][1])
        return _taken(texts, users[-1], paragraphs, len(paragraphs) - 1)
    return ContextAndQuestion("\n\n".join(text for _, text in texts if text), "")


def _taken(texts: list[tuple[str, str]], message: int, paragraphs: list[str], at: int) -> ContextAndQuestion:
    """The question out of its paragraph, and what is left."""
    question, rest = paragraphs[at].strip(), ""
    if len(question.split()) > _LONG:
        rest, question = _last_sentence(question)
    others = [*paragraphs[:at], rest, *paragraphs[at + 1 :]]
    left = "\n\n".join(paragraph for paragraph in others if paragraph.strip())
    context = [left if i == message else text for i, (_, text) in enumerate(texts)]
    return ContextAndQuestion(
        "\n\n".join(text for text in context if text),
        _LABEL.sub("", question, count=1) if _LABEL.match(question) else question,
    )


def _last_sentence(paragraph: str) -> tuple[str, str]:
    cuts = list(_LAST_SENTENCE.finditer(paragraph))
    if not cuts or len(paragraph) - cuts[-1].end() < 3:
        return paragraph, ""
    return paragraph[: cuts[-1].start()].rstrip(), paragraph[cuts[-1].end() :]


def prompt_tail(asked: ContextAndQuestion) -> str:
    """The prompt after the worked examples: the text (if there is any), the question, and the place for the answer."""
    text = f"Text: {asked.context}\n\n" if asked.context else ""
    return f"{text}Question: {' '.join(asked.question.split())}\nAnswer:"


def prompt_parts(request: WireRequest, asked: ContextAndQuestion) -> list[str]:
    """Beginning of `prompt_tail(asked)`, cut where requests part: after the system prompt, and after the text."""
    if not asked.context:
        return []
    first = request.messages[0]
    begun = "Text: " + (first.text.strip() if first.role in SYSTEM_ROLES else "")
    text = f"Text: {asked.context}\n\n"
    return [begun, text[len(begun) :]] if len(begun) > len("Text: ") and text.startswith(begun) else [text]


def first_line(completion: str) -> str:
    """The first line that says something."""
    return completion.strip().partition("\n")[0].strip()


@dataclass(slots=True)
class Timings:
    """Work of the model so far, by its own clock. `head_tokens`: taken from the cache (the worked examples)."""

    requests: int = 0
    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    head_tokens: int = 0
    output_tokens: int = 0
    output_seconds: float = 0.0

    def add(self, told: Mapping[str, Any]) -> None:
        """Take llama.cpp's `timings` of one request."""
        self.requests += 1
        self.prompt_tokens += int(told.get("prompt_n", 0))
        self.prompt_seconds += float(told.get("prompt_ms", 0)) / 1000
        self.head_tokens += int(told.get("cache_n", 0))
        self.output_tokens += int(told.get("predicted_n", 0))
        self.output_seconds += float(told.get("predicted_ms", 0)) / 1000


class Embedded:
    """A responder around llama.cpp: greedy, one thread and one slot per instance, a window of `n_ctx` tokens.

    `gguf`: model file (default: $CONTEXT_BENCH_GGUF, else the bundled one, which must have been fetched). `style`:
    `qa-few-shot` puts two worked examples, the text and the question to the model and takes the first line of what
    follows (the head of this module says what is text and what question); `chat` uses the model's own chat template.
    `instances`: copies of the model, each on a thread of its own, so that so many requests are answered at once (about
    0.35 GB each); answers do not depend on which one gives them.

    Caching: the slot is taken back to the worked examples, which are the same for every request, before each one. So
    nothing that a client sent is ever answered from the cache, not even the same context twice in a row, and latencies
    of systems can be compared. `keep` is for many questions about few texts: a text (and the system prompt before it)
    that an instance was given last is not read again when it comes again. Answers stay the same whatever was asked
    before: each part is read from the same state in the same way. Usage is counted by the model's own tokenizer and
    leaves the worked examples out, as they are no text of the client's. A request that does not fit gets 400 with the
    type `exceed_context_size_error`. `timings` sums up what was computed.
    """

    def __init__(
        self,
        gguf: str | Path | None = None,
        *,
        n_ctx: int = 8192,
        style: Style = "qa-few-shot",
        instances: int = 1,
        threads: int = 1,
        keep: bool = False,
        name: str | None = None,
    ) -> None:
        found = find_weights(gguf)
        if found is None:
            raise PreflightFailed(
                f"the bundled model is not in {cache_folder()} yet: run '{FETCH}' (93 MB), or name a GGUF file with "
                "--gguf PATH"
            )
        if style not in ("qa-few-shot", "chat"):
            raise BadInput(f"style {style!r} is unknown; known: qa-few-shot, chat")
        self.path, self.style, self.n_ctx = found, style, n_ctx
        self._bundled = is_bundled(found)
        self.model = BUNDLED_MODEL if self._bundled else found.stem
        self.name = name or "embedded"
        self.timings = Timings()
        self._instances, self._threads, self._keep = max(1, instances), max(1, threads), keep
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pinned: list[_Instance] = []
        self._of_thread = threading.local()
        self._embedder: Embedder | None = None

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        """Answer with the model. `ResponderError` 400 if there is nothing to answer or it does not fit the window."""
        loop = asyncio.get_running_loop()
        if not self._keep or self.style != "qa-few-shot":
            return await loop.run_in_executor(self._started(), self._answer, request)
        instance = self._instance_for(question_of(request).context)
        try:
            return await loop.run_in_executor(instance.pool, self._answer, request)
        finally:
            instance.waiting -= 1

    async def models(self) -> list[str]:
        """The one model."""
        return [self.model]

    async def embed(self, texts: list[str]) -> list[list[float]]:
        """Vectors of MiniLM (`llm.embedder`)."""
        with self._lock:
            embedder = self._embedder = self._embedder or Embedder()
        return await asyncio.to_thread(embedder.embed, texts)

    async def load(self) -> None:
        """Load every instance now instead of when it is first needed."""
        all_there = threading.Barrier(self._instances)

        def wait() -> None:
            self._engine()
            all_there.wait()

        loop, pool = asyncio.get_running_loop(), self._started()
        await asyncio.gather(*(loop.run_in_executor(pool, wait) for _ in range(self._instances)))

    async def aclose(self) -> None:
        """Let the model go; a later request loads it again."""
        with self._lock:
            pools = [*([self._pool] if self._pool is not None else []), *(instance.pool for instance in self._pinned)]
            self._pool, self._pinned = None, []
        for pool in pools:
            await asyncio.to_thread(pool.shutdown)

    def fingerprint(self) -> dict[str, Any]:
        """Identity of its answers."""
        return {
            "responder": "embedded",
            "version": 1,
            "model": self.model,
            "style": self.style,
            "n_ctx": self.n_ctx,
            "threads": self._threads,
            **({"cache": "the text asked about last"} if self._keep else {}),
            "encoding": "Q8_0 from Q4_1" if self._bundled else "as in the file",
            "size": self.path.stat().st_size,
            "engine": f"xllamacpp {xllamacpp.__version__}" if hasattr(xllamacpp, "__version__") else "xllamacpp",
        }

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._instances, thread_name_prefix="embedded")
            return self._pool

    def _instance_for(self, text: str) -> _Instance:
        """The instance that has the text, else an idle one, of these the one that loses least; one more waits there
        (event loop only).
        """
        if not self._pinned:
            self._pinned = [
                _Instance(ThreadPoolExecutor(1, thread_name_prefix="embedded")) for _ in range(self._instances)
            ]
        chosen = min(self._pinned, key=lambda instance: (instance.text != text, instance.waiting, len(instance.text)))
        chosen.text = text
        chosen.waiting += 1
        return chosen

    def _engine(self) -> _Engine:
        """The instance of this thread; it goes when the thread does."""
        engine: _Engine | None = getattr(self._of_thread, "engine", None)
        if engine is None:
            with self._lock:  # one at a time: the first may have to rewrite the file
                path = fast_copy(self.path) if self._bundled else self.path
                engine = _Engine(path, self.n_ctx, self._threads, HEAD if self.style == "qa-few-shot" else "")
            self._of_thread.engine = engine
        return engine

    def _answer(self, request: WireRequest) -> Reply:
        size = sum(len(message.text) for message in request.messages)
        if size > self.n_ctx * _LONGEST_TOKEN:  # llama.cpp would take a hundred bytes for each, only to refuse it
            raise ResponderError(
                400,
                f"the request exceeds the available context size ({self.n_ctx} tokens): no {self.n_ctx} tokens hold "
                f"{size:,} characters",
                kind="exceed_context_size_error",
                extra={"n_ctx": self.n_ctx},
            )
        return self._complete(request) if self.style == "qa-few-shot" else self._chat(request)

    def _complete(self, request: WireRequest) -> Reply:
        asked = question_of(request)
        if not asked.context and not asked.question:
            raise ResponderError(400, "the request holds no text to answer")
        engine = self._engine()
        parts = prompt_parts(request, asked) if self._keep else []
        told = engine.complete(prompt_tail(asked), _limit(request) or ANSWER_TOKENS, parts)
        choice = told["choices"][0]
        return self._reply(request, told, first_line(choice["text"]), choice["finish_reason"], engine.head_tokens)

    def _chat(self, request: WireRequest) -> Reply:
        messages = [{"role": _CHAT_ROLES.get(m.role, "user"), "content": m.text} for m in request.messages if m.text]
        if not messages:
            raise ResponderError(400, "the request holds no text to answer")
        told = self._engine().chat(messages, _limit(request))
        choice = told["choices"][0]
        return self._reply(
            request, told, str(choice["message"].get("content") or "").strip(), choice["finish_reason"], 0
        )

    def _reply(self, request: WireRequest, told: dict[str, Any], text: str, finish: str, head_tokens: int) -> Reply:
        with self._lock:
            self.timings.add(told.get("timings", {}))
        used = told["usage"]
        usage = Usage(input_tokens=max(0, used["prompt_tokens"] - head_tokens), output_tokens=used["completion_tokens"])
        return Reply(text=text, finish_reason=finish, usage=usage, model=request.model or self.model)


@dataclass(slots=True)
class _Instance:
    """A thread with an instance of its own, and the text that the last request which went there was about."""

    pool: ThreadPoolExecutor
    text: str = ""
    waiting: int = 0


class _Engine:
    """One llama.cpp server object: one slot. Its own HTTP listener (loopback) is locked with a key that nobody is
    told.
    """

    def __init__(self, path: Path, n_ctx: int, threads: int, head: str) -> None:
        self._server = _server(path, n_ctx, threads)
        self._head = head
        self._held: list[str] = []  # what the slot holds, part after part
        self.head_tokens = self._read(head) if head else 0

    def complete(self, prompt: str, limit: int, parts: Sequence[str] = ()) -> dict[str, Any]:
        """Complete the worked examples and `prompt`, greedily, to the end of a line that says something.

        `parts`: how `prompt` begins, cut where a later request may go on otherwise; what the slot holds of it is not
        read again.
        """
        self._back_to(parts)
        wanted = {
            "prompt": self._head + prompt,
            "max_tokens": limit,
            "stop": ["\n"],
            "grammar": _ONE_LINE,
            "cache_prompt": bool(self._head),
        }
        return _checked(self._server.handle_completions({**wanted, **_GREEDY}))

    def chat(self, messages: list[dict[str, Any]], limit: int | None) -> dict[str, Any]:
        """Answer with the model's own chat template."""
        wanted = {"messages": messages, "cache_prompt": False, **({"max_tokens": limit} if limit else {})}
        return _checked(self._server.handle_chat_completions({**wanted, **_GREEDY}))

    def _back_to(self, parts: Sequence[str]) -> None:
        """Forget everything but the worked examples and `parts`; read those that are not held.

        A part is always read behind the parts before it, these standing in the slot as `_read` leaves them. So what the
        slot holds depends on `parts` alone, to the last bit, whether it was read now or long ago.
        """
        same = 1
        while same < len(self._held) and same <= len(parts) and self._held[same] == parts[same - 1]:
            same += 1
        del self._held[same:]
        self._slot("".join(self._held))
        for part in parts[same - 1 :]:
            self._read(part)

    def _read(self, part: str) -> int:
        """Hold one more part; the number of tokens now held. Twice: from then on the slot is always taken back in the
        very same way.
        """
        text = "".join(self._held) + part
        self._slot(text)
        tokens = self._slot(text)
        self._held.append(part)
        return tokens

    def _slot(self, text: str) -> int:
        told = _checked(
            self._server.handle_completions({"prompt": text, "max_tokens": 0, "cache_prompt": True, **_GREEDY})
        )
        return int(told["usage"]["prompt_tokens"])


def _server(path: Path, n_ctx: int, threads: int) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = n_ctx, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 0  # its prompt cache would take gigabytes and answer from what others sent
    params.api_keys = [secrets.token_hex(32)]
    params.n_threads_http, params.port = 1, 0
    params.warmup = params.ui = params.endpoint_slots = False
    params.verbosity = -1
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise PreflightFailed(f"llama.cpp cannot load {path}: {error}") from None


def _checked(told: Any) -> dict[str, Any]:
    """llama.cpp's answer, or its error as an HTTP error of the same kind."""
    if not isinstance(told, dict):
        raise ResponderError(500, f"llama.cpp answered {type(told).__name__}")
    error = told.get("error")
    if error:
        extra = {name: value for name, value in error.items() if name not in ("code", "message", "type")}
        raise ResponderError(
            int(error.get("code", 500)), str(error.get("message")), kind=error.get("type"), extra=extra
        )
    return told


def _limit(request: WireRequest) -> int | None:
    """The output tokens that the client allows at most."""
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        value = request.params.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
