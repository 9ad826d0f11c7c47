"""Runs the commands of `test_planted_keys.py` in one process whose environment, arguments and peers are full of keys.

Arguments: folder for what the commands write, folder for what they are given, with the planted keys by name in
`keys.json`. What the other side received goes to `given/received.txt`, every command line of every child process to
`argv.txt`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from context_bench.__main__ import main
from context_bench.core.records import Usage
from context_bench.llm.background import run_sync
from context_bench.llm.responders import ResponderError
from context_bench.llm.servers import ModelServer
from context_bench.tap import Tap
from context_bench.tap.control_api import record_file
from context_bench.tap.forwarded import POLICIES
from context_bench.testing.hostile import MisbehavingProxy
from context_bench.testing.rule_judge import RuleJudge
from context_bench.wire.apis.shared import Reply

OUT, GIVEN = Path(sys.argv[1]), Path(sys.argv[2])
KEYS: dict[str, str] = json.loads((GIVEN / "keys.json").read_text())
RECEIVED = (GIVEN / "received.txt").open("a")
ODD: dict[str, str] = KEYS.pop("odd")  # type: ignore[assignment]
CODES: dict[str, int] = {}

# A program that gets a key, fails and says all that it was given.
TELLTALE = "import os, sys; sys.stderr.write(repr(dict(os.environ)) + repr(sys.argv)); sys.exit(3)"
# A client that shows keys in every place where clients put them.
CLIENT = """
import json, sys, urllib.request
base, keys = sys.argv[1], json.load(open(sys.argv[2]))
body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}).encode()
for path, headers in (
    ("?key=" + keys["query"], {}),
    ("", {"Authorization": "Bearer " + keys["bearer"], "Cookie": "session=" + keys["cookie"]}),
    ("?api-version=1&sig=" + keys["query"], {"x-api-key": keys["header"], "Proxy-Authorization": "Basic " + keys["basic"]}),
    ("", {"x-goog-api-key": keys["header"], "x-auth-token": keys["bearer"]}),
):
    sent = urllib.request.Request(base + "/v1/chat/completions" + path, body, {"Content-Type": "application/json", **headers})
    try:
        urllib.request.urlopen(sent).read()
    except OSError:
        pass
"""  # noqa: E501


# Systems of a user's own that hold a key and let it out in every way in which code fails.
OWN = """
import json, os, sys, traceback, urllib.parse

class Raising:
    name = "raising"

    def __init__(self):
        self.api_key = json.load(open({0!r}))["plugin"]

    def process(self, example):
        try:
            {{}}[f"Bearer {{self.api_key}}"]
        except KeyError as error:
            raise RuntimeError(f"401 for Authorization: Bearer {{self.api_key}}") from error

class Telling(Raising):
    name = "telling"

    def process(self, example):
        return {{**example, "response": f"my key is {{self.api_key}}", "headers": {{"x-api-key": self.api_key}}}}

class Failing(Raising):
    name = "failing"

    def process(self, example):
        raise type("Fault" + self.api_key, (Exception,), {{}})(self.__dict__)

def told():
    given = {{name: value for name, value in os.environ.items() if name in json.load(open({0!r}))["odd"]}}
    lines = "\\n".join(f"{{name}}={{value}}" for name, value in given.items())
    urls = "&".join(urllib.parse.quote(value, safe="") for value in given.values())
    return lines, json.dumps(given), json.dumps(json.dumps(given)), repr(given), urls, urllib.parse.quote_plus(lines)

class Environment(Raising):
    name = "environment"

    def process(self, example):
        said = told()
        if example["id"] == "q0":
            raise RuntimeError(" ".join(said))
        coded = {{name: os.environ.get(name) for name in json.load(open({0!r}))["odd"]}}
        return {{**example, "response": "\\n".join(said), "environ": coded, **{{str(value): 1 for value in coded.values()}}}}
"""  # noqa: E501


class Quoting(BaseHTTPRequestHandler):
    """A provider that says in its answer which line it was asked with, as it stands there and decoded."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        login = self.headers.get("Authorization", "")
        RECEIVED.write(self.requestline + login + "\n")
        RECEIVED.flush()
        said = f"{self.requestline} {urllib.parse.unquote(self.path)} {login} {ODD.get('DB_PASSWORD')}"
        refused = "refuse me" in json.dumps(sent)
        text = f"{said} {json.dumps(json.dumps(said))}"
        chosen = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        spoken = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        answer = {"status": "completed", "output": [spoken]} if "input" in sent else {"choices": [chosen]}
        body = json.dumps({"error": {"message": f"no: {said}"}} if refused else answer).encode()
        self.send_response(400 if refused else 200, "OK" if not refused else "Bad")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


class Leaky:
    """A provider that quotes whatever it was shown: in errors, in headers of errors, and in what it says."""

    name = "leaky"

    async def reply(self, request, headers):
        told = json.dumps(
            {name: value for name, value in headers.items() if "auth" in name or "key" in name or "cookie" in name}
        )
        RECEIVED.write(told + "\n")
        RECEIVED.flush()
        prompt = "\n".join(message.text for message in request.messages)
        if "refuse me" in prompt or "gpt-refused" in str(request.model):
            raise ResponderError(
                400, f"Incorrect API key provided: {told}", headers={"x-your-key": headers.get("authorization", "")}
            )
        if "[begin " in prompt:
            judged = await RuleJudge().reply(request, headers)
            quoted = " ".join(value for value in json.loads(told).values())
            return Reply(text=judged.text.replace('"reasoning": "', f'"reasoning": "{quoted} '), usage=judged.usage)
        return Reply(text=f"{verdict(prompt)} {told}", usage=Usage(input_tokens=9, output_tokens=9))


def verdict(prompt: str) -> str:
    """What a judge would begin with, right about what judges are tried with; anything else to anybody else."""
    if "Rate the response" in prompt:
        return "5" if prompt.count("Paris") > 1 else "2"
    return "NO" if "teaches at a school" in prompt else "YES: the east."


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(*words: object, name: str = "") -> None:
    """One command; its outputs are this process's."""
    line = [str(word) for word in words]
    print(f"\n=== {name or line[0]}", flush=True)
    try:
        code = main(line)
    except SystemExit as end:
        print(end, file=sys.stderr)
        code = -1
    sys.stdout.flush()
    CODES[name or line[0]] = code


def watched_children(event: str, arguments: tuple) -> None:
    if event == "subprocess.Popen":
        with (OUT / "argv.txt").open("a") as log:
            log.write(repr(arguments[:2]) + "\n")


def with_password(url: str, name: str) -> str:
    return url.replace("://", f"://someone:{KEYS[name]}@")


def data() -> Path:
    path = GIVEN / "data.jsonl"
    questions = ["Which door is red?", "Please refuse me.", "Which door is blue?"]
    rows = [
        {"id": f"q{i}", "context": "The red door is in the east. " * 20, "question": q, "answer": "east"}
        for i, q in enumerate(questions)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pipeline(model: ModelServer) -> None:
    """A run behind a tap with a judge, and everything that can be made of it."""
    port, examples = free_port(), data()
    keys = ["--api-key-env", "WORK", "--judge-key-env", "MARKS"]
    with MisbehavingProxy("halves", f"http://127.0.0.1:{port}") as proxy:
        judge = ["--judge-url", model.url, "--judge-model", "gpt-4o"]
        line = [
            "run",
            "--proxy",
            proxy.url,
            "--name",
            "theirs",
            "--dataset",
            examples,
            "--model",
            "gpt-4o",
            *keys,
            "--run",
            "one",
        ]
        run(*line, *judge, "--tap", port, "--upstream", model.url, "--controls", "full", "--retries", 0, name="run")
        guarded = ["--proxy", with_password(proxy.url, "proxy_url"), "--proxy-key-env", "DOOR", "--name", "guarded"]
        run(
            "run",
            *guarded,
            "--dataset",
            examples,
            "--tap",
            port,
            "--upstream",
            model.url,
            *keys,
            "--run",
            "guarded",
            name="guarded",
        )
        run(
            "doctor",
            "--proxy",
            proxy.url,
            "--tap",
            port,
            "--upstream",
            model.url,
            "--api-key-env",
            "WORK",
            "--json",
            name="doctor",
        )
        run("doctor", "--proxy", with_password(proxy.url, "proxy_url"), "--api-key-env", "WORK", name="doctor-guarded")
    for form in ("table", "markdown", "json", "html", "csv"):
        run("show", "one", "--output", form, "--out", OUT / f"one.{form}", name=f"show-{form}")
    for form in ("jsonl", "parquet", "inspect"):
        run("export", "one", "--format", form, "--out", OUT / f"rows.{form}", name=f"export-{form}")
    run("diff", "one", "q0", "--full", name="diff")
    run("diff", "one", "q1", "--json", name="diff-json")
    run("rescore", "one", *judge, "--judge-key-env", "MARKS", name="rescore")
    run("runs", name="runs")


def refusals(model: ModelServer) -> None:
    """What is not accepted, or does not work: the reason must not quote the key."""
    examples = data()
    dead = f"http://127.0.0.1:{free_port()}"
    line = [
        "run",
        "--dataset",
        examples,
        "--model",
        "gpt-4o",
        "--retries",
        0,
        "--api-key-env",
        "WORK",
        "--tap",
        free_port(),
    ]
    run(*line, "--controls", "full", "--upstream", with_password(model.url, "upstream"), name="upstream-password")
    run(*line, "--controls", "full", "--upstream", f"{model.url}/?api_key={KEYS['query']}", name="upstream-query")
    plain = ["run", "--dataset", examples, "--retries", 0, "--api-key-env", "WORK"]
    run(
        *plain,
        "--model",
        "gpt-4o",
        "--proxy",
        f"{model.url}/v1?api_key={KEYS['query']}",
        "--proxy-key-env",
        "DOOR",
        name="proxy-query",
    )
    run(*plain, "--model", "gpt-4o", "--proxy", with_password(dead, "proxy_url"), name="dead")
    run(*plain, "--model", "gpt-refused", "--proxy", model.url, "--run", "refused", name="refused")
    run(
        *plain,
        "--model",
        "gpt-refused",
        "--proxy",
        model.url,
        "--output",
        "json",
        "--force",
        "--run",
        "refused",
        name="refused-forced",
    )
    run(*plain, "--system", f"py:nowhere:Thing?key={KEYS['query']}", name="no-such-system")
    database = f"postgresql://someone:{KEYS['database']}@127.0.0.1:{free_port()}/none"
    run(*plain, "--model", "gpt-4o", "--proxy", model.url, "--store", database, name="database")
    run("runs", "--store", database, name="database-runs")


def sessions(model: ModelServer) -> None:
    """Recorded sessions sent again and compressed; traffic that is watched."""
    log = GIVEN / "log.jsonl"
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "refuse me"},
    ]
    headers = {"authorization": f"Bearer {KEYS['bearer']}", "x-api-key": KEYS["header"]}
    log.write_text(
        json.dumps({"model": "gpt-4o", "messages": messages, "headers": headers, "session_id": "one"}) + "\n"
    )
    port = free_port()
    with MisbehavingProxy("halves", f"http://127.0.0.1:{port}") as proxy:
        again = ["replay", log, "--proxy", proxy.url, "--upstream", model.url, "--tap", port]
        run(*again, "--api-key-env", "WORK", "--run", "again", "--retries", 0, name="replay")
    run("compress", "run", "bundled:sessions/order-sync-zh", "-n", 1, "--system", "head_tail:keep=0.3", "--judge-url", model.url,  # noqa: E501
        "--judge-model", "gpt-4o", "--judge-key-env", "MARKS", "--model", "gpt-4o", "--run", "shorter", "--eligibility", 0,  # noqa: E501
        "--system", f"cli:{shlex.quote(sys.executable)} {GIVEN / 'telltale.py'}", name="compress")  # fmt: skip
    run("explain", log, "--out", OUT / "explained.html", name="explain")
    run(
        "judge",
        "audit",
        "one",
        "--judge-url",
        model.url,
        "--judge-model",
        "gpt-4o",
        "--judge-key-env",
        "MARKS",
        name="judge-audit",
    )
    run("grade", "--proxy", f"{with_password(model.url, 'proxy_url')}?key={KEYS['query']}", "--header",
        f"x-api-key:{KEYS['header']}", "--seconds", 20, "--check", "privacy", "--check",
        "request, chat completions: settings", name="grade")  # fmt: skip
    client = GIVEN / "client.py"
    client.write_text(CLIENT)
    front = free_port()
    run("watch", "--front", front, "--back", free_port(), "--upstream", model.url, "--record", "full", "--records", OUT / "records.jsonl",  # noqa: E501
        "--", sys.executable, client, f"http://127.0.0.1:{front}", GIVEN / "keys.json", name="watch")  # fmt: skip


def settings(model: ModelServer) -> None:
    """Keys in a configuration with faults, in services' URLs, in the settings of a proxy, and in what a user's own
    system raises.
    """
    examples = data()
    for number, fault in enumerate(
        ('unknown = "{}"', 'max-examples = "{}"', "[[proxies]]\nurl = 5\nkey = '{}'", "proxy = '{}", "proxies = '{}'")
    ):
        path = GIVEN / f"faulty-{number}.toml"
        path.write_text(fault.format(f"https://someone:{KEYS['config']}@example.invalid/v1?api_key={KEYS['config']}"))
        run("run", "--config", path, "--dataset", examples, name=f"config-{number}")
    proxies = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY")
    os.environ.update(dict.fromkeys(proxies, with_password(model.url, "proxy_env")))
    dead = f"127.0.0.1:{free_port()}/compress?api_key={KEYS['service']}"
    run("compress", "run", "bundled:sessions/order-sync-zh", "-n", 1, "--eligibility", 0, "--judge-url", model.url,
        "--judge-model", "gpt-4o", "--judge-key-env", "MARKS", "--model", "gpt-4o", "--run", "services", "--system", f"http:http://someone:{KEYS['service']}@{dead}",
        "--system", "http:http://service.invalid/compress", name="services")  # fmt: skip
    for name in proxies:
        del os.environ[name]
    (GIVEN / "own.py").write_text(OWN.format(str(GIVEN / "keys.json")))
    sys.path.insert(0, str(GIVEN))
    own = [word for kind in ("Raising", "Telling", "Failing", "Environment") for word in ("--system", f"py:own:{kind}")]
    run("run", "--dataset", examples, *own, "--run", "own", name="own")
    run("show", "own", "--output", "html", "--out", OUT / "own.html", name="show-own")
    run("show", "own", "--output", "json", "--out", OUT / "own.json", name="show-own-json")
    for form in ("jsonl", "parquet", "inspect"):
        run("export", "own", "--format", form, "--out", OUT / f"own.{form}", name=f"export-own-{form}")


def quoted() -> None:
    """Keys in the query and login of a proxy's URL, whose answers quote them; on both wires, and in a tap's records of
    every level.
    """
    examples, server = data(), ThreadingHTTPServer(("127.0.0.1", 0), Quoting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = f"127.0.0.1:{server.server_address[1]}/quote/v1"
    query = "&".join(
        f"{name}={urllib.parse.quote(KEYS[key], safe='')}"
        for name, key in (("key", "url_key"), ("code", "url_code"), ("v", "url_any"))
    )
    for wire in ("openai", "responses"):
        line = [
            "run",
            "--proxy",
            f"http://{KEYS['url_login']}@{where}?{query}",
            "--name",
            "quoting",
            "--dataset",
            examples,
            "--wire",
            wire,
        ]
        run(*line, "--model", "gpt-4o", "--retries", 0, "--run", wire, "--output", "json", name=f"quoted-{wire}")
        for form in ("jsonl", "inspect"):
            run("export", wire, "--format", form, "--out", OUT / f"{wire}.{form}", name=f"export-{wire}-{form}")
        run("show", wire, "--output", "html", "--out", OUT / f"{wire}.html", name=f"show-{wire}")
    run("doctor", "--proxy", f"http://{KEYS['url_login']}@{where}?{query}", "--model", "gpt-4o", name="doctor-quoted")
    run_sync(recorded(f"http://{where.partition('/')[0]}/quote", query))
    server.shutdown()
    server.server_close()


async def recorded(upstream: str, query: str) -> None:
    """Requests with keys in their query and in what they say, recorded at every level."""
    content = " ".join([*ODD.values(), json.dumps(ODD), "refuse me"])
    for level in POLICIES:
        with record_file(OUT / f"tap-{level}.jsonl") as write:
            async with Tap(upstream, record=level, sink=write) as tap:
                for said in (content, "hello"):
                    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": said}]}).encode()
                    sent = urllib.request.Request(
                        f"{tap.url}/v1/chat/completions?{query}", body, {"Content-Type": "application/json"}
                    )
                    with contextlib.suppress(OSError):
                        await asyncio.to_thread(urllib.request.urlopen, sent)


def memories(model: ModelServer) -> None:
    """A memory that calls a model, and one behind a service that is shown a key."""
    head = (
        f'name = "notes"\nbase_url = "{model.url}"\n[auth]\nenv = "SHELF_TOKEN"\nheader = '
        f'"Authorization"\nvalue = "Bearer {{key}}"\n'
    )
    said = {"add": "{content}", "search": "{query} Please refuse me."}
    asked = 'path = "/v1/chat/completions"\nbody = {{model = "m", messages = [{{role = "user", content = "{}"}}]}}\n'
    parts = "".join(f"[{part}]\n{asked.format(text)}" for part, text in said.items())
    (GIVEN / "service.toml").write_text(f'{head}{parts}hits = "choices"\ntext = "message.content"\n')
    line = [
        "memory",
        "--dataset",
        "bundled:recall-lab",
        "-n",
        1,
        "--qa-types",
        "single",
        "--no-floors",
        "--model",
        "m",
        "--retries",
        0,
    ]
    line += ["--relay", model.url, "--api-key-env", "WORK"]
    judge = ["--judge-url", model.url, "--judge-model", "gpt-4o", "--judge-key-env", "MARKS"]
    run(*line, "--system", "summary_anchored", *judge, "--run", "remembered", "--output", "json", name="memory")
    run(*line, "--system", f"http:{GIVEN / 'service.toml'}", "--run", "service", name="memory-service")
    run("memory", "doctor", "--system", f"http:{GIVEN / 'service.toml'}", name="memory-doctor")


def agents() -> None:
    """An agent on a repository whose remote has a password in it."""
    task = GIVEN / "task"
    line = ["agent", task, "--upstream", "echo", "--tap", free_port(), "--run", "agents", "--no-nothing"]
    line += ["--arm", "base=", "--arm", f"keyed=SOME_API_KEY={KEYS['arm']}"]
    seen = 'cat .git/config; git remote -v; env; echo 2 > a.txt; echo "$SOME_API_KEY"; git config -l'
    run(*line, "--", "sh", "-c", seen, name="agent")
    run("export", "agents", "--format", "jsonl", "--out", OUT / "agents.jsonl", name="agent-export")


def repository() -> None:
    """A task whose repository has a remote with a password in it."""
    task = GIVEN / "task"
    (task / "repo").mkdir(parents=True)
    (task / "repo" / "a.txt").write_text("1\n")
    (task / "task.toml").write_text('instruction = "Make it 2."\n[verify]\ncommand = "grep -q 2 a.txt"\n')
    git = ["git", "-C", str(task / "repo"), "-c", "user.name=a", "-c", "user.email=a@b"]
    remote = f"https://someone:{KEYS['remote']}@example.invalid/a.git"
    for words in (["init", "-q"], ["remote", "add", "origin", remote], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, stdout=subprocess.DEVNULL)


async def viewed() -> None:
    """Every page of the viewer that leads to a row."""
    import aiohttp

    from context_bench.session.runs import result_of
    from context_bench.viewer import Viewer

    jar = aiohttp.CookieJar(unsafe=True)
    async with Viewer(Path(".context-bench/store.db"), result_of=result_of) as viewer:
        session = aiohttp.ClientSession(viewer.address, cookie_jar=jar)
        async with session:
            pages = [
                viewer.url,
                *(
                    f"/runs/{run}{part}"
                    for run in ("one", "guarded", "agents")
                    for part in ("", "/summary", "/verdicts")
                ),
            ]
            for number, page in enumerate(pages):
                async with session.get(page) as reply:
                    text = await reply.text()
                    (OUT / f"page-{number}.html").write_text(text)
                    pages += sorted(set(re.findall(r'"(/runs/[0-9a-f]+/rows/[^"]+)"', text)) - set(pages))
                    CODES[f"page {page if number else '/'}"] = reply.status


async def standing(model: ModelServer) -> None:
    """Commands that stand until they are ended: what they say of themselves, with a password in what they are told."""
    for name, words in {
        "serve": [
            "serve",
            "--system",
            "full",
            "--upstream",
            with_password(model.url, "upstream"),
            "--port",
            str(free_port()),
        ],
        "tap": ["tap", "--port", str(free_port()), "--upstream", model.url, "--upstream-key-env", "WORK"],
    }.items():
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "context_bench", *words, stderr=asyncio.subprocess.PIPE
        )
        line = await child.stderr.readline()
        address = next((word for word in line.decode().split() if word.startswith("http://127.0.0.1")), None)
        if address:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(ask, address.rstrip(";,"))
        child.terminate()
        rest = await child.stderr.read()
        await child.wait()
        (OUT / f"{name}.txt").write_bytes(line + rest)
        CODES[name] = 0 if address else 1


def ask(url: str) -> None:
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "refuse me"}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS['bearer']}"}
    urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", body, headers)).read()


def everything() -> None:
    os.chdir(OUT)
    (GIVEN / "telltale.py").write_text(TELLTALE)
    repository()
    asyncio.run(standing_with_model())
    sys.addaudithook(watched_children)
    model = ModelServer(Leaky())
    run_sync(model.start())
    for part in (pipeline, refusals, sessions, settings, memories):
        part(model)
    quoted()
    agents()
    run_sync(viewed())
    run_sync(model.stop())
    (GIVEN / "codes.json").write_text(json.dumps(CODES))


async def standing_with_model() -> None:
    async with ModelServer(Leaky()) as model:
        await standing(model)


if __name__ == "__main__":
    everything()
