"""The front of a shim: takes a client's request over HTTP, hands it to a function, answers with what that gives.

    serve(handle)    # the program's arguments: PORT BACK

`handle(path, body, back)` gives the JSON of a reply, or an iterable of bytes for a stream; what it raises becomes HTTP
502 with the words of the error. `back` is the address behind, without `/v1`. Standard library only: it runs under the
Python of the package that it drives.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def serve(handle):
    port, back = int(sys.argv[1]), sys.argv[2]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
            try:
                reply, status = handle(self.path, body, back), 200
                if not isinstance(reply, dict):
                    self._stream(iter(reply))
                    return
            except Exception as error:
                reply, status = {"error": {"type": type(error).__name__, "message": str(error)[:1000]}}, 502
            data = json.dumps(reply, default=str).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, pieces):
            first = next(pieces)  # a fault before the first byte is still an HTTP status
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self._chunk(first)
            for piece in pieces:
                self._chunk(piece)
            self.wfile.write(b"0\r\n\r\n")

        def _chunk(self, piece):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def event(value):
    """One server-sent event."""
    name = f"event: {value['type']}\n" if isinstance(value, dict) and "type" in value else ""
    return f"{name}data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def chat(text="", calls=(), finish=None, usage=None):
    """A chat completion of what a package told of its reply; `calls`: (id, name, arguments)."""
    message = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for i, name, arguments in calls
        ]
    finish = finish or ("tool_calls" if calls else "stop")
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    reply = {"id": "shim", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    return {**reply, "usage": usage} if usage else reply


def message(text="", usage=None):
    """A message of Anthropic's API of what a package told of its reply."""
    content = [{"type": "text", "text": text}]
    reply = {"id": "shim", "type": "message", "role": "assistant", "model": "m", "content": content}
    return {**reply, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage or {}}
