"""The table of options: each is declared here once. Flags or a TOML file fill a class of it; the manifest keeps it."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from context_bench.core.numbers import whole
from context_bench.session import offers
from context_bench.session.flags import OptionSet, flag, own
from context_bench.session.offers import (
    DEFAULT_MODEL,
    DEFAULT_STORE,
    Comma,
    Many,
    Numbers,
    PortOrUrl,
    Url,
    UrlOrName,
    Urls,
)


class Common(OptionSet):
    """Options of many commands, as most of them have them."""

    store: str = flag("Where results are kept.", DEFAULT_STORE, unit="URL")
    config: Path | None = flag("Options from a TOML file; flags win.", unit="FILE.toml", rare=True)
    imports: list[str] | None = flag("Module to import first.", names="--import", unit="MODULE")
    judge_key_env: str = flag("Variable with the judge's key.", "OPENAI_API_KEY")
    force: bool = flag("Compare runs that measured different things.", False)
    quiet: bool = flag("No progress.", False)
    full: bool = flag("Nothing cut, nothing folded.", False)
    title: str | None = flag("What lists show beside the name, which stays.")
    tag: Many = flag("A tag in lists; repeatable, or with commas between.", [])
    json: bool = flag("As JSON on stdout.", False)
    port: int = flag("Port to listen on (loopback).", 8080)
    junit: Path | None = flag("Write the checks as JUnit XML to this file.", unit="FILE")
    command: list[str] = flag("The agent's command line, after `--`.", [])
    minimum: list[str] | None = flag("A metric must be at least this; repeatable.", names="--min", unit="METRIC=X")
    maximum: list[str] | None = flag("A metric must be at most this; repeatable.", names="--max", unit="METRIC=X")


class ProxyOptions(OptionSet):
    """One proxy under test, in a file. `key_env`: the variable with the key that the proxy itself is asked with."""

    url: Url
    name: str | None = None
    key_env: str | None = None
    version: str | None = None


class RunOptions(OptionSet):
    """The options of `context-bench run`. Names are the flags' with underscores; defaults are the documented ones."""

    in_file: ClassVar[bool] = True
    proxy: Urls = flag(
        "Base URL of an OpenAI-compatible proxy (with or without /v1); repeat for several.", [], unit="URL"
    )
    name: Many = flag("Name of the proxy at the same position; default host:port.", [])
    proxies: list[ProxyOptions] = flag("Proxies with keys of their own; in a file alone.", [])
    system: Many = flag(
        "Another system: py:pkg.mod:Class, a registered name, or a control such as bm25:keep=0.5.",
        [],
        unit="SPEC",
        complete=offers.systems,
    )
    dataset: Many = flag(
        "Built-in name, name:config, bundled:…, hf:OWNER/NAME, or a file (.jsonl .csv .parquet .toml …); repeatable.",
        [],
        unit="NAME_OR_PATH",
        complete=offers.datasets,
    )
    model: Many = flag("The model to ask for: name one that your provider has.", [DEFAULT_MODEL])
    max_examples: int | None = flag("Limit per dataset.", names="-n --max-examples", note="all", ge=1)
    output: str = flag("table, markdown, json, html, csv, or a registered reporter.", "table", complete=offers.formats)
    out: Path | None = flag("Write the report to this file instead of stdout.")
    full: bool = own("The whole report as a table, not the short one.")
    score_field: str = flag("Score that verdicts and pass marks are about.", "f1")
    threshold: float = flag("Pass mark (score ≥ threshold).", 0.7)
    judge_url: Url | None = flag("Adds LLMJudge at this endpoint.", unit="URL")
    judge_model: str = flag("The judge's model.", DEFAULT_MODEL, note="")
    max_workers: int | None = flag("Examples in flight.", 1, ge=0)
    cache_dir: str | None = flag("Keep results here and use again what is there.", unit="DIR")

    tap: PortOrUrl | None = flag("Port to start the tap on, or the URL of a running one.", unit="PORT|URL", note="9090")
    upstream: UrlOrName | None = flag(
        "The provider behind: a URL, embedded, echo, or scripted:FILE.", unit="URL", complete=offers.upstreams
    )
    controls: Comma | None = flag(
        "Control arms; alone: full,full#2,none,head_tail,random_drop; also head_tail@NAME, minify, csv, toon. "
        "Needs --upstream.",
        unit="[LIST]",
        complete=offers.controls,
    )
    baseline: str | None = flag("System that the others are compared with.")
    margin: float | None = flag("Loss of score that would still be acceptable.", gt=0, lt=1)
    shape: Comma = flag(
        "Request shapes: plain-user, plain-system, tool-result, claude-code, codex, openai-agent.",
        ["plain-user"],
        unit="LIST",
        complete=offers.shapes,
    )
    stream: bool = flag("Ask for streamed replies (gives time to first token).", False, pair=True)
    trials: int = flag("Times each example is asked.", 1, ge=1)
    seed: int = flag("Seed of everything random.", 0)
    max_cost: float | None = flag("Stop before spending more than this many US dollars (exit 5).", unit="USD", ge=0)
    store: str | None = own(default=None, note=DEFAULT_STORE)
    dry_run: bool = flag("Only say what it would take.", False)

    api_key_env: str = flag("Variable with the upstream's key.", "OPENAI_API_KEY", rare=True)
    proxy_key_env: str | None = flag("Variable with the key that the proxy itself checks.", rare=True)
    judge_key_env: str | None = own(default=None, rare=True)
    temperature: float | None = flag("Sampling temperature.", note="not sent", rare=True)
    max_tokens: int | None = flag("Most tokens of an answer.", rare=True, ge=1)
    system_prompt: str | None = flag("Put before every request as a system message.", rare=True)
    prompt: str | None = flag("Template with {context} and {question} for plain shapes.", rare=True)
    extra_body: dict[str, Any] = flag("Further fields of every request; in a file alone.", {})
    timeout: float = flag("Seconds for one attempt.", 300.0, rare=True, gt=0)
    example_timeout: float | None = flag("Seconds for one example, all attempts.", rare=True, gt=0)
    setup_timeout: float | None = flag(
        "Seconds to get one group ready: a conversation stored, a session compressed.", rare=True, gt=0
    )
    run_timeout: float | None = flag("Seconds for the whole run.", rare=True, gt=0)
    rpm: float | None = flag("Requests a minute to the account by all systems.", note="no limit", rare=True, gt=0)
    tpm: float | None = flag("Tokens a minute, with replies, by all systems.", note="no limit", rare=True, gt=0)
    judge_rpm: float | None = flag(
        "Requests a minute to the judge, where its account is another.",
        note="--rpm, with --judge-key-env none",
        rare=True,
        gt=0,
    )
    judge_tpm: float | None = flag("Tokens a minute to the judge, where its account is another.", rare=True, gt=0)
    fixed_concurrency: int | None = flag(
        "For measuring times: so many requests at once, never more; sets --max-workers.",
        names="--fixed-concurrency --latency-mode",
        unit="N",
        rare=True,
        ge=1,
    )
    executor: Literal["local", "ray"] = flag(
        "Where the work is done: local, or ray (the nodes of a cluster).", "local", rare=True
    )
    ray_address: str | None = flag(
        "The Ray cluster, as HOST:PORT or auto.",
        unit="ADDRESS",
        note="RAY_ADDRESS, else one on this machine",
        rare=True,
    )
    retries: int = flag("Further attempts after a passing failure.", 3, rare=True, ge=0)
    marker: Literal["key", "header", "serial"] = flag(
        "How calls are recognised behind the proxy: key, header, serial.", "key", rare=True, complete=offers.markers
    )
    record: Literal["meta", "hashes", "redacted", "full"] = flag(
        "What is kept: meta, hashes, redacted, full.", "full", complete=offers.records
    )
    wire: Literal["openai", "anthropic", "responses"] | None = flag(
        "API for plain shapes: openai, anthropic, responses.", note="openai", rare=True, complete=offers.wires
    )
    tap_check: bool = flag("Insist that each proxy's traffic reaches the tap.", True, rare=True, pair=True)
    copy_replies: bool = flag(
        "Answer what arrives as the baseline's request did with its reply.", True, names="--copy", rare=True, pair=True
    )
    only_lost: bool = flag("Ask only where evidence was lost; take the rest for unchanged.", False, rare=True)
    until_decided: bool = flag("Stop at a look (40, 60, 80, 100 % of the examples) at which all is decided.", False)
    pilot: bool = flag("First ask 40 examples; then say which plan decides at least money, and what it costs.", False)
    go_on: bool = flag("Go on with that plan without asking.", False, rare=True)
    evidence_only: bool = flag("Only ask what arrives of the evidence: quick, no model.", False)
    bodies: Literal["all", "changed", "none"] | None = flag(
        "Keep request and reply bodies: all, changed, none.",
        note="all up to 10,000 rows",
        rare=True,
        complete=offers.bodies,
    )
    budget: int | None = flag(
        "Fixed token budget of truncating controls, instead of the size of each system.", rare=True, ge=1
    )
    keep: float | None = flag("Fixed share of the context that truncating controls keep.", rare=True, gt=0, lt=1)
    reader: UrlOrName | None = flag(
        "Who answers for systems that only return a context: URL or embedded.", unit="SPEC", rare=True
    )
    evaluator: Many = flag("Further evaluator; repeatable.", [], unit="SPEC", rare=True, complete=offers.evaluators)
    metric: Many = flag("Further metric; repeatable.", [], unit="SPEC", rare=True, complete=offers.metrics)
    imports: Many = own(default=[], rare=True)
    run: str | None = flag("Name of the run; the same name again resumes it.", complete=offers.runs)
    resume: str | None = flag(
        "Go on with this run; alone: the last unfinished one.", unit="[RUN]", rare=True, complete=offers.runs
    )
    title: str | None = own(rare=True, secret=True)  # people may change both: no manifest has them
    tag: Many = own(rare=True, secret=True)
    reuse: bool = flag("Also use rows of other runs with the same content.", False, rare=True)
    proxy_version: str | None = flag("Enters the proxies' identity.", rare=True)
    cache_namespace: Literal["auto", "prompt", "none"] = flag(
        "Keep the arms' provider caches apart: auto, prompt, none.", "auto", rare=True
    )
    price: Many = flag("MODEL=INPUT,OUTPUT[,READ[,WRITE]] in USD per million tokens; repeatable.", [], rare=True)
    price_model: str | None = flag("Show money as if this model had answered.", rare=True)
    max_failures: float = flag(
        "Share of failures per system above which the exit code is 1.", 0.02, rare=True, ge=0, le=1
    )
    force: bool = own("Go on where a check would refuse.", rare=True)
    quiet: bool = own(rare=True)

    def settled(self) -> None:
        """A fixed load needs a worker for each of its requests, and no more; a copied reply tells no times."""
        if self.fixed_concurrency is not None:
            self.max_workers, self.copy_replies = self.fixed_concurrency, False

    @property
    def all_proxies(self) -> list[ProxyOptions]:
        """`--proxy` paired with `--name` by position (surplus names are ignored), then the proxies of the TOML file."""
        names: list[str | None] = [*self.name, *[None] * len(self.proxy)]
        listed = [
            ProxyOptions(url=url, name=name, key_env=self.proxy_key_env, version=self.proxy_version)
            for url, name in zip(self.proxy, names, strict=False)
        ]
        return [*listed, *self.proxies]

    @property
    def tap_port(self) -> int | None:
        """The port of a tap to start inside the run, if `--tap` names one."""
        return whole(self.tap) if self.tap is not None and self.tap.isdigit() else None


class MemoryOptions(RunOptions):
    """Options of `context-bench memory run`; `max_examples` counts conversations. `relay` empty: the bundled model."""

    changes: ClassVar = {
        "system": own(
            "bm25, embedding, hybrid, recency, mem0, …; py:pkg.mod:Class; cli:, http:, mcp: and a file; repeatable."
        ),
        "dataset": own(
            "locomo, longmemeval, dmr, beam, convomem, membench, memoryagentbench, bundled:recall-lab, or a file; "
            "repeatable.",
            default=["locomo"],
        ),
        "model": own("Answering model, and the judge's.", parse=str),
        "max_examples": own("Conversations per dataset.", names="-n --max-examples --max-conversations", note=""),
        "score_field": own("Score that verdicts and the table by type are about."),
        "judge_url": own("Adds MemoryJudge at this endpoint."),
        "judge_model": own("The judge's model; alone: at the relay."),
        "max_workers": own("Conversations in flight.", note="1; with the bundled model as many as cores"),
        "tap": own("See what memories send to the relay: a port.", unit="PORT", note="", rare=True),
        "upstream": own("What stands behind the tap.", note="the relay", rare=True),
        "baseline": own("Memory that the others are compared with.", note="full_context", rare=True),
        "margin": own(rare=True),
        "trials": own("Times everything is repeated, ingest included.", rare=True),
        "seed": own("Seed of everything random: 42, not 0 as elsewhere, so that earlier runs can go on.", default=42),
        "api_key_env": own("Variable with the relay's key."),
        "temperature": own("Sampling temperature of the reader.", note="0"),
        "reader": own(
            "Who answers: URL, embedded, py:pkg.mod:Class, none (retrieval only).",
            unit=None,
            note="the relay",
            rare=False,
        ),
        "max_failures": own("Share of failures per memory above which the exit code is 1."),
    }

    bodies: Any = own(default="changed", note="changed")
    relay: UrlOrName | None = flag(
        "OpenAI-compatible endpoint used by every memory and the reader.", unit="URL", note="the bundled model"
    )
    api_key: str | None = flag(
        "The relay's key; better in the variable of --api-key-env.", note="OPENAI_API_KEY", rare=True, secret=True
    )
    qa_types: Comma = flag("Only these types of questions, comma-separated.", [], unit="A,B")
    k: Numbers = flag(
        "Numbers of hits to measure at; the reader gets the largest.",
        [1, 5, 10],
        note="1,5,10; for the bundled model 1,3",
    )
    questions: Annotated[int | Literal["all"] | None, offers.ValueCheck(before=offers.number_or_all)] = flag(
        "At most so many of each conversation, or all.", unit="N", note="all; for the bundled model 5"
    )
    budget_tokens: Numbers = flag("Also measure at these token budgets.", [], unit="N,N")
    floors: bool = flag("Also run none, random, full_context, oracle.", True, pair=True)
    mode: Literal["shared", "isolated", "growing"] = flag(
        "shared: each conversation once for all its questions; isolated: anew for every question; growing: each "
        "beside all before it.",
        "shared",
    )
    overlay: str | None = flag("Corrections and exclusions of questions, as a file.", unit="FILE", rare=True)
    probes: int = flag("Items looked for by their own words after storing (write loss).", 20, rare=True, ge=0)


class CompressOptions(RunOptions):
    """The options of `context-bench compress run`; `max_examples` counts sessions. `responder`: who answers (`sentence`
    asks no model).
    """

    changes: ClassVar = {
        "proxy": own("Base URL of a compressing proxy, whose own upstream is the tap; repeatable."),
        "system": own(
            "Compressor: anchored, mask_observations, head_tail:keep=0.3, py:pkg.mod:Class, cli:COMMAND; repeatable."
        ),
        "model": own("The responder's model.", note=""),
        "max_examples": own("Limit of sessions.", note=""),
        "score_field": own(
            "Score that verdicts are about.", default="probe_score", note="probe_score; with a judge rubric_overall"
        ),
        "judge_url": own("Adds the rubric judge at this endpoint."),
        "max_workers": own("Groups in flight."),
        "upstream": own("Who answers behind the tap: a URL, embedded, scripted:FILE, sentence.", note="the responder"),
        "controls": own("What is run beside.", unit="A,B", default=offers.DEFAULT_CONTROLS),
        "baseline": own(note="full", rare=True),
        "trials": own("Answers to each probe."),
        "api_key_env": own("Variable with the responder's key."),
        "temperature": own("Sampling temperature of the responder.", note="0"),
        "max_tokens": own(note="400"),
        "wire": own("API that all arms speak through the tap: openai, anthropic, responses."),
    }

    bodies: Any = own(default="changed", note="changed")
    sessions: Many = flag("Recorded sessions; arguments of the command.", ["bundled:sessions"])
    points: str = flag(
        "Where sessions are compressed: fraction:0.75[,…], tokens:N[,…], every:N, at:I[,…], task-boundary, recorded.",
        "fraction:0.75",
        unit="WHERE",
    )
    window: int | None = flag("Tokens that fractions are of.", unit="TOKENS", note="those of the session", ge=1)
    responder: str = own(
        "Who answers: sentence (no model), embedded, scripted:FILE, a URL.",
        of="reader",
        default="sentence",
        names="--reader --responder",
        rare=False,
    )
    probes: Comma = own(
        "Who makes the probes: structured (rules), model (the responder, checked word for word).",
        default=["structured"],
        unit="A,B",
        rare=False,
        bounds={},
    )
    types: Comma = flag("Only these: recall, artifact, continuation, decision.", [], unit="A,B")
    per_type: int | None = flag("At most so many probes of each type at a point.", unit="N", ge=1)
    drift: bool = flag("Compress at one point after the other, and ask about the first after each.", False)
    replicates: int = flag("Compressions of each point.", 1, ge=1)
    eligibility: int | None = flag(
        "Answers of their own by which probes are chosen; 0: by their facts.", unit="N", note="5; for sentence 0", ge=0
    )
    criteria: Literal["by_probe", "all"] = flag("by_probe (those that fit the type) or all 14.", "by_probe")
    visibility: Literal["context", "normalised", "response_only"] = flag(
        "What the judge sees: context, normalised, response_only.", "context"
    )
    rubric: str | None = flag("A rubric of your own.", unit="FILE")


class ReplayOptions(RunOptions):
    """The options of `context-bench replay`; `max_examples` counts sessions. `model` empty: as recorded."""

    changes: ClassVar = {
        "proxy": own("Base URL of a proxy, whose own upstream is the tap; repeat for several."),
        "model": own("Sent instead of the recorded model.", default=[], parse=str),
        "max_examples": own("Most sessions to replay.", names="-n --max-examples --max-sessions"),
        "score_field": own(default="action_match"),
        "max_workers": own("Sessions in flight.", note="one per system", rare=True),
        "upstream": own("The provider behind the tap: echo (no model, free), a URL, embedded, or scripted:FILE."),
        "controls": own("Rewriting without loss, beside the proxies: minify,csv,toon.", unit="A,B"),
        "margin": own("Loss of agreement that would still be acceptable.", rare=True),
        "trials": own("Times each session is sent; from 2, what arrives is compared.", names="--trials --repeat"),
        "seed": own(rare=True),
        "wire": own("Render sessions for this API: openai, anthropic, responses.", note="as recorded"),
        "max_failures": own("Share of failures above which the exit code is 1."),
    }

    bodies: Any = own(default="all")  # the figures are read from what was forwarded
    sessions: Many = own(default=[])
    level: int | None = flag(
        "0: tokens, cache, money, wire, loss. 1: also the next action.", note="0 with echo, else 1", least=0, most=1
    )
    profile: str | None = flag(
        "Cache rules and prices: a model's, or a family's rules (openai, openai-5.6, anthropic, vllm, deepseek) "
        "at the recorded model's prices.",
        unit="MODEL",
        note="the recorded model's",
    )


class WatchOptions(OptionSet):
    """The options of `context-bench watch`."""

    front: int = flag("Port to point your client at (loopback).", 8080)
    via: str | None = own(
        "The proxy; its upstream: the back port. Without: a baseline.", of="proxy", default=None, names="--proxy --via"
    )
    back: int = flag("Port to point the proxy's own upstream at.", 9090)
    upstream: str = own(default="")
    store: str = own("Where records are kept.")
    record: str = own("What is kept: meta (no text at all), hashes, redacted, full.", default="meta")
    records: Path | None = flag("Also append what clients sent to this file, a JSON line each (mode 0600).")
    name: str | None = own("Name of this watch. [default: the time]", default=None)
    show: str | None = flag("Only print the report of a stored watch: its name, or last.", unit="NAME")
    output: str = own("The report at the end: table or json.")
    out: Path | None = own()
    model: str | None = own("Count tokens as this model does, whatever the requests name.", default=None)
    price: list[str] | None = own(default=None, rare=False)
    price_model: str | None = own("All money as if this model had answered.", unit="NAME", rare=False)
    spend: str | None = flag("The proxy's own spend log, beside the bill: a file, a database or a URL.", unit="SOURCE")
    shadow: str | None = flag("Mirror sampled requests to this proxy; replies are thrown away.", unit="URL")
    shadow_back: int | None = flag("Port for the shadow proxy's own upstream.")
    sample: float = flag("Share of turns to mirror, 0 to 1.", 0.02, ge=0, le=1)
    max_cost: float | None = own("Most that mirrored requests may cost, in USD.", bounds={})
    seed: int = own("Which turns are mirrored follows from this.")
    holdout: float | None = flag("Share of conversations sent around the proxy, at random, as 0.1.", gt=0, lt=1)
    count_tokens: bool = flag("Ask the provider's own count of each changed request: what was not sent.", False)
    needles: bool = flag("Plant facts in tool results before the proxy, taken out again behind it.", False)
    quiet: bool = own("Nothing on stderr while it runs.")


class MemoryChecks(OptionSet):
    """Options of `context-bench memory doctor|ops|audit|cortex-eval|cortex-compare`."""

    seconds: float = flag("How long what was added may take until it can be found.", 60.0)
    suite: str = flag(
        "Suites: isolation, delete, update, concurrency, crash, growth, owners, residue, relations, poison, robust.",
        "isolation,delete,update,concurrency,crash,growth,owners,residue,relations",
        unit="LIST",
    )
    scale: float = flag("How much is stored and asked; 1 takes some seconds on a local store.", 1.0)
    deadline: float = flag("Seconds after which a call has failed.", 60.0)
    many: int = flag("Things that residue stores before all is deleted; fewer where the deadline is over.", 1001)
    examples: int = flag("Masked beginnings shown of each kind.", 3)
    benchmark: str = flag("locomo, longmemeval, dmr, or all.", "all")
    binary: str | None = flag("The program; by default openclaw-cortex on the PATH.")
    accumulate: bool = flag("One reset, store everything, then ask everything.", False)
    dataset_path: Path | None = flag("Questions from this file instead of the small set; needs one --benchmark.")
    k2: int = flag("Also measure recall at this depth (not less than --k).", 0)
    compat: str | None = flag("v0.10: the program's arguments as they were in that version.")
    current: Path | None = flag("What cortex-eval wrote.")


class TraceOptions(OptionSet):
    """Options of `context-bench trace …`."""

    gold: Path | None = flag("Gold: parquet, JSONL, JSON, or a folder of annot.json.", unit="PATH")
    trace: list[str] | None = flag(
        "Log or folder of logs, of any known agent; NAME=PATH puts it in a set; repeatable.", unit="[NAME=]PATH"
    )
    repo: list[str] | None = flag(
        "Checkout, git clone (PATH@COMMIT), archive, JSON snapshot, or a folder of them; repeatable.", unit="PATH"
    )
    policy: str = flag(
        "strict, strict-full (more kinds of definitions), or contextbench-v1: the original's figures, faults included.",
        "strict",
    )
    count: str | None = flag("Also count as read: listed, claimed, edits, comma-separated.", unit="A,B")
    results: list[str] | None = flag(
        "A harness's report on the patches, or the patches (predictions); [NAME=]PATH; repeatable.", unit="[NAME=]PATH"
    )
    join: Path | None = flag("CSV of the wanted instances.", unit="FILE")
    instance: str | None = flag("The task that all traces are about, where logs do not say.", unit="ID")
    report: list[Path] | None = own(
        "Also write a report, by its ending; repeatable.", of="out", default=None, names="--report --out", unit="FILE"
    )
    out_dir: Path | None = flag("Keep rows and reports here; what is scored already is not scored again.", unit="DIR")
    min_coverage: list[str] | None = flag("Exit 4 if a set's mean coverage is below this; repeatable.", unit="LEVEL=X")
    by: str = flag("A step of the curve: call, or turn (all calls of one reply).", "call")
    longest: int | None = flag("A read of more lines at once counts as the file alone.", unit="LINES")
    dilate: int = flag("Lines around a deletion that are the same place.", 0, unit="LINES")
    exclude_infra: bool = flag("Failures of the machinery are no failures of the agent.", False)
    scorer: str | None = flag("The score of an Inspect log that is the verdict.")
    tools: Path | None = flag("Further tools of agents, as TOML.", unit="FILE")
    workers: int | None = flag("Processes.", note="as many as pay")
    fresh: bool = flag("Score again what --out-dir has.", False)
    to: str = flag("events (this program's JSONL) or contextbench (its unified predictions).", "events")
    width: int | None = flag("Columns.", note="the terminal's, at most 120; else 80", least=40)


class StoredOptions(OptionSet):
    """Options of the commands on stored runs."""

    any_load: bool = flag(
        "Show latency and time to first token also where the runs were made under different load.", False
    )
    against: str | None = flag("The same of an earlier state, to compare with.", unit="RUN|FILE", complete=offers.runs)
    markdown: Path | None = flag(
        "Append the checks as Markdown to this file, such as $GITHUB_STEP_SUMMARY.", unit="FILE"
    )
    trial: int = flag("Which trial.", 0, least=0)
    kind: str | None = flag(
        "Which chart: pareto, forest, latency, coverage …; a wrong name lists those of the run.", complete=offers.kinds
    )
    theme: str = flag("light or dark.", "light")
    format: str = flag(
        "json, csv, html, markdown; whole rows with their answers: jsonl, parquet, inspect, memory, results.",
        "json",
        complete=offers.exports,
    )
    canonical: bool = flag("JSON without times, dates and run id: equal runs give equal bytes.", False)
    watches: list[str] | None = flag("A watch, by name, or `last`; repeatable.", names="--watch", unit="NAME")
    replies: bool = flag("With RUN or --watch: also all that judges are remembered to have said.", False)
    older_than: str | None = flag("Age, such as 30d, 12h, 90m.")
    deleted: bool = flag("Those that were marked as deleted in `view --edit`.", False)
    edit: bool = flag("Also write: titles, tags, notes, and which runs are deleted (they can be restored).", False)
    context: bool = flag("Only those that have a context which can be compressed.", False)
    no_open: bool = flag("Do not open a browser.", False)
    simulate: bool = flag("The made-up session: 40 turns, 2,000 tokens of head, 1,000 per turn.", False)
    upstream_key_env: str | None = flag("Variable with the provider's key, swapped in for one-time keys.")
    gguf: Path | None = flag("Serve this GGUF file instead of the bundled model.", unit="PATH")
    style: str = flag("qa-few-shot (plain few-shot template) or chat (the model's own).", "qa-few-shot")
