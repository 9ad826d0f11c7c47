"""Upstreams that speak TLS badly, behind `run`, `tap`, `serve` and `watch`. No answer is taken from a server that
proved nothing.

    python benchmarks/trials/tls_upstreams.py [--only NAME ...]

One server on loopback that is wrong in one way after another: certificates, handshakes that break, replies that are
cut, messages in the middle of a connection. Before and after each fault it behaves. Certificates are made here; the
programs trust the authority by `SSL_CERT_FILE`. Renegotiation and key updates come from `openssl s_server`. Exit code 1
if a promise did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import common
from certificates import Authority
from cryptography import x509
from soak_programs import free_port, listening

ANSWER = "It is word1."
#: fault → what a command must say of it. The server of each proved nothing, so it must not even be sent a request.
UNPROVEN = {
    "expired": "expired",
    "not yet valid": "not yet valid",
    "wrong name": "another name",
    "self-signed": "SSL_CERT_FILE",
    "unknown authority": "SSL_CERT_FILE",
    "for clients only": "not made for a server|unsuitable",
    "TLS 1.0 only": "older|version",
    "no common cipher": "",
    "plain HTTP": "does not speak TLS",
    "garbage for a hello": "",
    "closed before hello": "",
    "reset before hello": "",
    "reset in handshake": "",
    "alert": "",
}
#: Replies that are not whole.
CUT = ("closed in body", "reset in body", "no length, cut", "stream, cut", "record spoiled", "closed before reply")
#: Odd, but nothing is wrong with the answer.
FINE = ("good", "no close_notify after length", "no length, ended well", "one byte a record", "many tickets", "TLS 1.2")


def reply(*, length: bool = True) -> bytes:
    """An answer to a chat request as HTTP, with or without its length."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}
    usage = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
    body = json.dumps(
        {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    ).encode()
    told = b"Content-Length: %d\r\n" % len(body) if length else b""
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n" + told + b"\r\n" + body


def events() -> bytes:
    """The beginning of a streamed answer, without a length."""
    piece = json.dumps({"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "It is "}}]})
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: "
        + piece.encode()
        + b"\n\n"
    )


@dataclass
class TlsServer:
    """One port, one fault at a time. `requests`: whole requests read while the fault was on; `good_for`: replies before
    it begins.
    """

    authority: Authority
    stranger: Authority
    fault: str = "good"
    good_for: int = 0
    requests: int = 0
    contexts: dict[str, ssl.SSLContext] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own, client = self.authority, x509.ExtendedKeyUsageOID.CLIENT_AUTH
        made: dict[str, Path] = {
            "good": own.leaf("good"),
            "expired": own.leaf("expired", begins=-9, ends=-1),
            "not yet valid": own.leaf("early", begins=2),
            "wrong name": own.leaf("wrong", names=("elsewhere.example",)),
            "unknown authority": self.stranger.leaf("unknown"),
            "for clients only": own.leaf("client", use=client),
            "self-signed": _self_signed(own.folder),
        }
        for name, file in made.items():
            self.contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.contexts[name].load_cert_chain(file)
        for name, lowest, highest in (("TLS 1.0 only", "TLSv1", "TLSv1"), ("TLS 1.2", "TLSv1_2", "TLSv1_2")):
            old = self.contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            old.load_cert_chain(made["good"])
            old.set_ciphers("ALL:@SECLEVEL=0")
            with _quiet():
                old.minimum_version, old.maximum_version = ssl.TLSVersion[lowest], ssl.TLSVersion[highest]
        weak = self.contexts["no common cipher"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        weak.load_cert_chain(made["good"])
        weak.maximum_version = ssl.TLSVersion.TLSv1_2
        weak.set_ciphers("ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0")
        self.contexts["many tickets"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.contexts["many tickets"].load_cert_chain(made["good"])
        self.contexts["many tickets"].num_tickets = 100
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def become(self, fault: str, good_for: int = 0) -> None:
        """Have this fault from here on, after so many good replies."""
        self.fault, self.good_for, self.requests = fault, good_for, 0

    def close(self) -> None:
        """Take no more connections."""
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._listening.accept()
            except OSError:
                return
            taken.settimeout(20)
            threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        good = self.good_for > 0
        fault = "good" if good else self.fault
        with contextlib.suppress(OSError, ValueError), taken:
            if not self._secured(taken, fault):
                return
            context = self.contexts.get(fault, self.contexts["good"])
            with context.wrap_socket(taken, server_side=True, suppress_ragged_eofs=False) as secure:
                if not _whole_request(secure):
                    return
                if good:
                    self.good_for -= 1
                else:
                    self.requests += 1
                self._answer(secure, fault)

    def _secured(self, taken: socket.socket, fault: str) -> bool:
        """Do what comes before TLS; whether TLS comes at all."""
        if fault == "closed before hello":
            return False
        if fault == "reset before hello":
            _reset(taken)
            return False
        if fault in ("reset in handshake", "garbage for a hello", "alert"):
            taken.recv(4096)
            if fault == "reset in handshake":
                taken.sendall(b"\x16\x03\x03\x00\x7a\x02")  # the beginning of a hello
                time.sleep(0.05)
                _reset(taken)
            else:
                taken.sendall(b"\x15\x03\x03\x00\x02\x02\x50" if fault == "alert" else bytes(range(100, 200)) * 3)
            return False
        if fault == "plain HTTP":
            taken.recv(4096)
            taken.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return False
        return True

    def _answer(self, secure: ssl.SSLSocket, fault: str) -> None:
        whole, open_ended = reply(), reply(length=False)
        if fault == "closed before reply":
            _cut_off(secure)
        elif fault in ("closed in body", "reset in body"):
            secure.sendall(whole[:-40])
            if fault == "reset in body":
                time.sleep(0.05)
                _reset(secure)
            _cut_off(secure)
        elif fault == "no close_notify after length":
            secure.sendall(whole)
            _cut_off(secure)
        elif fault == "no length, cut":
            secure.sendall(open_ended[:-40])
            _cut_off(secure)
        elif fault == "stream, cut":
            secure.sendall(events())
            _cut_off(secure)
        elif fault == "record spoiled":
            secure.sendall(whole[:-40])
            os.write(secure.fileno(), b"\x17\x03\x03\x00\x30" + bytes(range(48)))
        elif fault == "one byte a record":
            for at in range(len(whole)):
                secure.send(whole[at : at + 1])
        else:
            secure.sendall(open_ended if fault == "no length, ended well" else whole)
        with contextlib.suppress(OSError):
            secure.unwrap()


def _self_signed(folder: Path) -> Path:
    alone = Authority(folder, "localhost")
    from cryptography.hazmat.primitives import serialization

    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file = folder / "self-signed.pem"
    file.write_bytes(alone.file.read_bytes() + alone._key.private_bytes(*form))
    return file


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _reset(taken: socket.socket) -> None:
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(taken.detach())


def _cut_off(secure: ssl.SSLSocket) -> None:
    """End the connection under TLS, which is not told."""
    secure.settimeout(0.2)
    with contextlib.suppress(OSError, ValueError):
        os.close(secure.detach())


def _whole_request(secure: ssl.SSLSocket) -> bool:
    held = b""
    while b"\r\n\r\n" not in held:
        more = secure.recv(65536)
        if not more:
            return False
        held += more
    head, _, body = held.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    if b"chunked" in head.lower():
        while not body.endswith(b"0\r\n\r\n"):
            body += secure.recv(65536)
        return True
    left = int(found[1]) - len(body) if found else 0
    while left > 0:
        left -= len(secure.recv(65536))
    return True


# --- drivers ------------------------------------------------------------------


@dataclass
class Seen:
    """What a client of a relay got: the status, the body, and whether HTTP said that it was whole."""

    status: int | None
    body: str
    whole: bool


def asked(port: int) -> Seen:
    """One chat request to a relay on loopback."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Box 1?"}]})
    try:
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        found = connection.getresponse()
        try:
            return Seen(found.status, found.read().decode("utf-8", "replace"), True)
        except http.client.IncompleteRead as error:
            return Seen(found.status, error.partial.decode("utf-8", "replace"), False)
    except (OSError, http.client.HTTPException):
        return Seen(None, "", False)
    finally:
        connection.close()


@dataclass
class Trial:
    """Server, folder and environment; the table of what held."""

    folder: Path
    server: TlsServer
    table: common.Table
    trusts: dict[str, str]
    noise: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server.port}"

    async def run(self, fault: str, good_for: int, name: str) -> tuple[common.Ended, list[str]]:
        """Three questions, and the errors of their rows."""
        self.server.become(fault, good_for)
        given = [
            "run",
            "--proxy",
            self.url,
            "--name",
            "p",
            "--model",
            "m",
            "--dataset",
            "boxes.jsonl",
            "--run",
            name,
            "--retries",
            "1",
        ]
        given += [
            "--timeout",
            "4",
            "--example-timeout",
            "12",
            "--store",
            "s.db",
            "--output",
            "json",
            "--out",
            "out.json",
        ]
        ended = await common.done(self.folder, *given, seconds=90, **self.trusts)
        self.noise += ended.noise
        told = await common.done(self.folder, "export", name, "--store", "s.db", "--format", "jsonl")
        rows = [json.loads(line) for line in told.out.splitlines() if line.startswith("{")] if told.code == 0 else []
        return ended, [
            json.dumps(row.get("errors") or row.get("error") or "")
            for row in rows
            if row.get("errors") or row.get("error")
        ]


def _sentence(text: str, wanted: str) -> bool:
    return re.search(wanted, text) is not None if wanted else bool(text.strip())


async def through_run(trial: Trial, faults: list[str]) -> None:
    """Each fault from the start, and from the second request on."""
    for number, fault in enumerate(faults):
        if fault in UNPROVEN:
            ended, _ = await trial.run(fault, 0, f"start{number}")
            told = " ".join(ended.err.split())
            found = f"exit code {ended.code}, {trial.server.requests} requests: {told[-230:]}"
            held = (
                ended.code == 2 and not trial.server.requests and _sentence(told, UNPROVEN[fault]) and not ended.noise
            )
            trial.table.add("run: named, nothing sent", fault, found, held)
        ended, errors = await trial.run(fault, 2, f"later{number}")
        got = trial.server.requests
        first = errors[0][:200] if errors else "no error"
        if fault in FINE:
            trial.table.add(
                "run: answered", fault, f"exit code {ended.code}, {len(errors)} errors", ended.code == 0 and not errors
            )
        elif fault in CUT:
            good = ended.code == 1 and bool(errors) and got == 2 * len(errors) and "Unreachable" in str(errors)
            trial.table.add(
                "run: a cut reply fails its row after another try",
                fault,
                f"{len(errors)} rows, {got} requests: {first}",
                good,
            )
        else:
            good = ended.code == 1 and bool(errors) and not got and _sentence(str(errors), UNPROVEN[fault])
            trial.table.add("run: the row says why, nothing sent", fault, f"{len(errors)} rows: {first}", good)


async def through_relay(trial: Trial, name: str, port: int, faults: list[str], command: common.Command) -> None:
    """Each fault through a relay that stays, and a good request after each."""
    for fault in faults:
        trial.server.become(fault)
        seen = await asyncio.to_thread(asked, port)
        got = trial.server.requests
        shown = (
            f"{seen.status}, {'whole' if seen.whole else 'broken off'}, {got} requests: "
            f"{' '.join(seen.body.split())[:200]}"
        )
        if fault in FINE:
            held = seen.status == 200 and seen.whole and ANSWER in seen.body
        elif fault in CUT:
            held = seen.status == 502 or not seen.whole
        elif fault in UNPROVEN:
            held = not got and ANSWER not in seen.body and seen.status == 502 and _sentence(seen.body, UNPROVEN[fault])
        trial.server.become("good")
        after = await asyncio.to_thread(asked, port)
        alive = command.process is not None and command.process.returncode is None
        held = held and after.status == 200 and ANSWER in after.body and alive
        trial.table.add(
            f"{name}: {'answered' if fault in FINE else 'not taken for an answer'}, then on", fault, shown, held
        )


async def relayed(trial: Trial, faults: list[str]) -> None:
    """`tap`, `serve` and `watch`, each started once."""
    ports = [free_port() for _ in range(5)]
    told = {
        "tap": (
            ports[0],
            ["tap", "--port", str(ports[0]), "--upstream", trial.url, "--record", "full", "--out", "tap.jsonl"],
        ),
        "serve": (ports[1], ["serve", "--system", "full", "--port", str(ports[1]), "--upstream", trial.url]),
        "watch": (
            ports[2],
            [
                "watch",
                "--front",
                str(ports[2]),
                "--upstream",
                trial.url,
                "--store",
                "w.db",
                "--record",
                "full",
                "--quiet",
            ],
        ),
    }
    for name, (port, arguments) in told.items():
        command = await common.Command(trial.folder, arguments, trial.trusts).start()
        try:
            await listening(port)
            await through_relay(trial, name, port, faults, command)
        finally:
            command.signal(2)
            ended = await command.ended(30)
            trial.noise += ended.noise
            trial.table.add(
                f"{name}: ends well", "Ctrl-C after all of it", f"exit code {ended.code}", ended.code in (0, 130)
            )
    records = [json.loads(line) for line in (trial.folder / "tap.jsonl").read_text().splitlines()]
    laundered = [
        record
        for record in records
        if record.get("status") == 200 and not record.get("error") and ANSWER not in json.dumps(record)
    ]
    trial.table.add(
        "tap: a record of a cut reply says so", f"{len(records)} records", f"{len(laundered)} do not", not laundered
    )


def _spoken(
    folder: Path, certificate: Path, version: str, keys: list[str], run: Callable[[int], Seen]
) -> tuple[Seen, str]:
    """What `run` gets from `openssl s_server`, to which `keys` are typed between request and answer (`r`: renegotiate,
    `k`: new keys).
    """
    port = free_port()
    line = [
        "openssl",
        "s_server",
        "-accept",
        f"127.0.0.1:{port}",
        "-cert",
        str(certificate),
        "-key",
        str(certificate),
        "-crlf",
        version,
    ]
    server = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, bufsize=0
    )
    assert server.stdin is not None
    assert server.stdout is not None
    said: list[bytes] = []
    found: list[Seen] = []
    try:
        while b"ACCEPT" not in (line_ := server.stdout.readline()):
            said.append(line_)
        asking = threading.Thread(target=lambda: found.append(run(port)))
        asking.start()
        reading = threading.Thread(target=lambda: said.extend(iter(server.stdout.readline, b"")), daemon=True)  # type: ignore[union-attr]
        reading.start()
        deadline = time.monotonic() + 15
        while b"Box 1?" not in b"".join(said) and time.monotonic() < deadline and asking.is_alive():
            time.sleep(0.05)
            if b"user-agent" in b"".join(said).lower():
                time.sleep(0.3)
                break
        for key in keys:
            server.stdin.write(f"{key}\n".encode())
            time.sleep(0.4)
        for piece in reply().decode().replace("\r\n", "\n").split("\n"):
            server.stdin.write(f"{piece}\n".encode())
        time.sleep(0.2)
        server.stdin.write(b"Q\n")
        asking.join(30)
    finally:
        server.kill()
        server.wait()
    return (found[0] if found else Seen(None, "", False)), b"".join(said).decode("utf-8", "replace")


async def in_the_middle(trial: Trial) -> None:
    """What OpenSSL's own server sends between a request and its answer, straight to the client's connection and through
    a tap.
    """
    certificate = trial.server.authority.folder / "good.pem"
    code = (
        "import asyncio,sys\nfrom context_bench.systems import OpenAIProxy\n"
        "async def main():\n"
        " found=await OpenAIProxy(sys.argv[1],model='m',max_retries=0,timeout=10).aprocess({'id':1,'context':'','question':'Box 1?'})\n"  # noqa: E501
        " print(found['response'])\n"
        "asyncio.run(main())"
    )

    def direct(port: int) -> Seen:
        done = subprocess.run(
            [sys.executable, "-c", code, f"https://localhost:{port}"],
            env={**os.environ, **trial.trusts},
            capture_output=True,
            text=True,
        )
        lines = done.stderr.strip().splitlines()
        return Seen(
            200 if done.returncode == 0 else None, done.stdout + (lines[-1] if lines else ""), done.returncode == 0
        )

    for what, version, keys in (
        ("renegotiation asked for (TLS 1.2)", "-tls1_2", ["r"]),
        ("renegotiation with a client's certificate (TLS 1.2)", "-tls1_2", ["R"]),
        ("new keys, four times (TLS 1.3)", "-tls1_3", ["k", "K", "k", "K"]),
        ("a client's certificate asked for late (TLS 1.3)", "-tls1_3", ["c"]),
    ):
        seen, _ = await asyncio.to_thread(_spoken, trial.folder, certificate, version, keys, direct)
        good = ANSWER in seen.body or "SystemFailed" in seen.body or "Unreachable" in seen.body
        trial.table.add("client: answered, or one clear error", what, " ".join(seen.body.split())[-200:], good)


async def main(chosen: list[str]) -> int:
    table = common.Table("Upstreams that speak TLS badly")
    with tempfile.TemporaryDirectory(prefix="context-bench-trial-") as name:
        folder = Path(name)
        authority = Authority(folder)
        server = TlsServer(authority, Authority(folder, "a stranger"))
        common.questions(folder / "boxes.jsonl", 3)
        trial = Trial(folder, server, table, {"SSL_CERT_FILE": str(authority.file)})
        faults = [fault for fault in (*FINE, *CUT, *UNPROVEN) if not chosen or fault in chosen]
        try:
            if not chosen:
                await in_the_middle(trial)
            await relayed(trial, faults)
            await through_run(trial, faults)
        finally:
            server.close()
    table.add("no traceback, nothing unclosed", "all of them", f"{len(trial.noise)} lines", not trial.noise)
    for line in trial.noise[:10]:
        print(line, file=sys.stderr)
    return table.ended()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=[])
    sys.exit(asyncio.run(main(parser.parse_args().only)))
