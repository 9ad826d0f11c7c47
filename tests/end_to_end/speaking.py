"""A provider that speaks the Responses API over a WebSocket, and a client that sends it increments, as Codex does."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any, Self

import aiohttp
from aiohttp import web

KEY = "Bearer sk-the-clients-own-key-0123456789"
#: What no provider should send.
ODD_EVENTS = (
    "{",
    "[]",
    "7",
    '{"type": []}',
    '{"type": {"a": 1}, "stream_id": [2]}',
    '{"type": "response.output_item.done"}',
    "[" * 9000,
)
TOOLS = [{"type": "function", "name": "shell", "parameters": {"type": "object"}}]


class Speaking:
    """Answers each `response.create` with a tool call and remembers what was said before, as the provider does.

    `refuse`: the status of every upgrade that is refused instead. `odd`: what to do with the request of this number
    (from 1): `error` is an error event with status 429, `failed` fails it at its end; in the middle of the answer
    `within` sends an error event, `cut` closes the socket, `hang` falls silent, `events` sends odd ones first.
    Plain requests are answered too. `asked`: the messages as they came, `full`: what each stood for, `told`: the usage
    that each was told.
    """

    def __init__(self, *, refuse: int | None = None, odd: dict[int, str] | None = None, outputs: bool = True) -> None:
        self.refuse, self._odd, self._outputs = refuse, odd or {}, outputs
        self.asked: list[dict] = []
        self.full: list[list] = []
        self.told: list[dict] = []
        self.posted: list[dict] = []
        self.heads: list[dict[str, str]] = []
        self.codes: list[int | None] = []
        self._history: dict[str, list] = {}

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            body = await request.json()
            self.posted.append(body)
            return web.json_response(self._response(len(self.posted), body["input"], body["model"]))
        self.heads.append({name.lower(): value for name, value in request.headers.items()})
        if self.refuse is not None:
            return web.json_response({"error": {"message": "no"}}, status=self.refuse, headers={"Retry-After": "7"})
        socket = web.WebSocketResponse(max_msg_size=2**24, protocols=("realtime",))
        socket.headers["x-codex-turn-state"] = "sticky"
        await socket.prepare(request)
        async for message in socket:
            if message.type != aiohttp.WSMsgType.TEXT:
                await socket.send_bytes(message.data[::-1])
                continue
            said = json.loads(message.data)
            if said["type"] != "response.create":
                await socket.send_str(message.data)
            elif not await self._answer(socket, said):
                await socket.close(code=1011, message=b"overloaded")
        self.codes.append(socket.close_code)
        return socket

    async def _answer(self, socket: web.WebSocketResponse, said: dict) -> bool:
        self.asked.append(said)
        number, odd = len(self.asked), self._odd.get(len(self.asked))
        lane = {"stream_id": said["stream_id"]} if "stream_id" in said else {}
        if odd == "error":
            error = {"type": "usage_limit_reached", "message": "slow down"}
            await socket.send_json(
                {"type": "error", "status": 429, "error": error, "headers": {"retry-after": "1"}, **lane}
            )
            return True
        before = self._history.get(said.get("previous_response_id") or "", [])
        self.full.append([*before, *said["input"]])
        response = self._response(number, self.full[-1], said["model"])
        if said.get("generate") is False:
            response["output"] = []
        self.told.append(response["usage"])
        self._history[response["id"]] = [*self.full[-1], *response["output"]]
        await socket.send_json(
            {"type": "response.created", "response": {**response, "output": [], "status": "in_progress"}, **lane}
        )
        for event in ODD_EVENTS if odd == "events" else ():
            await socket.send_str(event)
        if odd == "within":
            await socket.send_json({"type": "error", "error": {"type": "server_error", "message": "broken"}, **lane})
            return True
        for index, item in enumerate(response["output"]):
            await socket.send_json({"type": "response.output_item.added", "output_index": index, "item": item, **lane})
            if odd in ("cut", "hang"):
                return odd == "hang"
            await socket.send_json({"type": "response.output_item.done", "output_index": index, "item": item, **lane})
        last = response if self._outputs else {**response, "output": []}
        kind = "response.failed" if odd == "failed" else "response.completed"
        await socket.send_json(
            {"type": kind, "response": last, **lane}, dumps=lambda value: json.dumps(value, indent=1)
        )
        return True

    def _response(self, number: int, items: list, model: str) -> dict[str, Any]:
        call = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": "shell",
            "arguments": "{}",
        }
        tokens = len(json.dumps(items)) // 2
        usage = {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": tokens // 2},
            "output_tokens": 9,
            "total_tokens": tokens + 9,
        }
        return {
            "id": f"resp_{number}",
            "object": "response",
            "status": "completed",
            "model": model,
            "output": [call],
            "usage": usage,
        }


class Caller:
    """An agent on one socket: `turn` sends what is new and waits for the answer's end."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, model: str = "gpt-4.1") -> None:
        self.socket, self._model, self._last = socket, model, None
        self._number = 0

    async def turn(self, text: str = "look around", **more: Any) -> dict:
        """One request; its last event."""
        self._number += 1
        items: list[dict] = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]
        if self._last is not None:
            items = [{"type": "function_call_output", "call_id": f"call_{self._number - 1}", "output": text}]
        body = {
            "type": "response.create",
            "model": self._model,
            "instructions": "You work.",
            "tools": TOOLS,
            "input": items,
            "store": False,
        }
        await self.socket.send_json({**body, "previous_response_id": self._last, **more})
        while True:
            event = await self.event()
            if event["type"] in ("response.completed", "response.failed", "error"):
                self._last = event.get("response", {}).get("id", self._last)
                return event

    async def event(self) -> dict:
        message = await self.socket.receive(timeout=5)
        return (
            json.loads(message.data)
            if message.type == aiohttp.WSMsgType.TEXT
            else {"type": "error", "closed": self.socket.close_code}
        )


@contextlib.asynccontextmanager
async def calling(
    url: str, *, path: str = "/v1/responses", headers: dict | None = None, **more: Any
) -> AsyncIterator[Caller]:
    told = {"Authorization": KEY, "session-id": "thread-1", **(headers or {})}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url + path, headers=told, max_msg_size=2**24, **more) as socket,
    ):
        yield Caller(socket)


async def refused(url: str, *, headers: dict | None = None) -> tuple[int, dict[str, str], float]:
    """The status and headers with which an upgrade is refused, and after how many seconds."""
    began = time.monotonic()
    try:
        async with calling(url, headers=headers):
            raise AssertionError("the upgrade was not refused")
    except aiohttp.WSServerHandshakeError as error:
        return error.status, dict(error.headers or {}), time.monotonic() - began
