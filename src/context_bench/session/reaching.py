"""Checks of addresses and keys before the first request: what is missing there is named at once, and not by the failures of examples."""

from __future__ import annotations

from urllib.parse import urlsplit

from context_bench.core.errors import PreflightFailed
from context_bench.llm.redact import bare_url, key_in
from context_bench.llm.sessions import unreachable, who_answers
from context_bench.session.options import RunOptions

#: Providers that answer nobody without a key, and the variable in which their own clients look for it.
KEYED = {
    "api.openai.com": "OPENAI_API_KEY",
    "api.anthropic.com": "ANTHROPIC_API_KEY",
    "api.deepseek.com": "DEEPSEEK_API_KEY",
    "api.groq.com": "GROQ_API_KEY",
    "api.mistral.ai": "MISTRAL_API_KEY",
    "api.together.xyz": "TOGETHER_API_KEY",
    "api.x.ai": "XAI_API_KEY",
    "generativelanguage.googleapis.com": "GEMINI_API_KEY",
    "openrouter.ai": "OPENROUTER_API_KEY",
}
#: What can stand in the place of a model elsewhere.
_LOCAL = {flag: f" Or here: {flag} embedded (a bundled model), echo (none) or scripted:FILE." for flag in ("--upstream", "--reader")}


def require_keys(options: RunOptions) -> None:
    """Raises `PreflightFailed` where requests of ours go to a provider that wants a key, and the variable that should hold it is not set.

    A proxy may bring a key of its own: if only proxies are asked, the one request that each gets beforehand tells.
    """
    ours = options.controls or options.system or options.reader or not options.all_proxies
    for url, flag in _asked(options).items():
        if ours or url != options.upstream:
            _require_key(flag, url, "--api-key-env", options.api_key_env, falls_back=options.tap is None)
    for proxy in options.all_proxies:
        if not key_in(proxy.key_env):
            _require_key("--proxy", proxy.url, "--api-key-env", options.api_key_env, falls_back=True)
    judged = ("--judge-key-env", options.judge_key_env) if options.judge_key_env else ("--api-key-env", options.api_key_env)
    _require_key("--judge-url", options.judge_url, *judged)


def _require_key(flag: str, url: str | None, option: str, variable: str, *, falls_back: bool = False) -> None:
    """`falls_back`: our clients look into the provider's own variable as well."""
    usual = KEYED.get(urlsplit(url or "").hostname or "")
    if usual is None or key_in(variable) or (falls_back and usual == "ANTHROPIC_API_KEY" and key_in(usual)):
        return
    other = f" (such as {usual})" if usual != variable else ""
    raise PreflightFailed(
        f"{flag} {bare_url(url or '')} wants a key, and the variable {variable} is not set: export it, or name the one that holds yours "
        f"with {option}{other}.{_LOCAL.get(flag, '')}"
    )


async def require_endpoints(options: RunOptions) -> None:
    """Raises `PreflightFailed` where nobody listens at the provider's, the reader's or the judge's address."""
    for url, flag in {**({options.judge_url: "--judge-url"} if options.judge_url else {}), **_asked(options)}.items():
        if (reason := await unreachable(url)) is not None:
            said = f"{flag} {bare_url(url)} cannot be reached ({reason}): check host and port, and the way to it from here."
            raise PreflightFailed(said + _LOCAL.get(flag, ""))


def _asked(options: RunOptions) -> dict[str, str]:
    """Each address of a model → the option that names it; some options fill others."""
    named = {name: getattr(options, name, None) for name in ("relay", "upstream", "responder", "reader")}
    urls = {name: url for name, url in named.items() if isinstance(url, str) and url.startswith(("http://", "https://"))}
    return {url: f"--{name}" for name, url in reversed(urls.items())}


async def require_proxy(name: str, url: str, tap: str | None) -> None:
    """Raises `PreflightFailed` where no proxy listens. `tap`: where its own upstream should be."""
    if (reason := await unreachable(url)) is not None:
        upstream = f", with {tap} as its upstream," if tap else ""
        raise PreflightFailed(f"{name}: nothing answers at {bare_url(url)} ({reason}). Start it first{upstream} or check host and port")


async def identified(url: str) -> str:
    """Who answers at `url`, as the end of a sentence; empty if it does not say."""
    who = await who_answers(url)
    return f" (what answers there says: {who})" if who else ""
