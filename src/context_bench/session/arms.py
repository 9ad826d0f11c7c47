"""The arms of a run: proxies, other systems and controls, once per combination of factors.

A factor (model, shape) with several values makes one *cell* per combination. Arms are compared within their cell only,
so shapes and models are never averaged together.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from context_bench.core.errors import BadInput, SameName
from context_bench.core.keys import seed_of
from context_bench.core.roles import CANDIDATE, WHOLE, ArmRole, control_role, described_cell, of_kind
from context_bench.llm.redact import key_in
from context_bench.session.offers import DEFAULT_CONTROLS
from context_bench.session.options import ProxyOptions, RunOptions
from context_bench.session.run_parts import Accounts, is_local
from context_bench.session.run_session import RunEnvironment
from context_bench.wire.lossless import REWRITINGS

PLAIN_CONTROLS = ("full", "full#2", "none", *REWRITINGS)
BUDGETED_CONTROLS = ("head_tail", "random_drop", "bm25")
ALIASES = {"passthrough": "full"}
DEFAULT = ["default"]  # what `--controls` alone means


@dataclass(slots=True)
class Cell:
    """The arms that share model and shape, and what they are compared with."""

    labels: dict[str, str]
    arms: list[Any] = field(default_factory=list)
    baseline: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The arms' names, in the order given."""
        return [arm.system.name for arm in self.arms]

    @property
    def controls(self) -> list[str]:
        """The names of the arms that are there for comparison."""
        return list(self.manifest()["controls"])

    @property
    def paired(self) -> list[str]:
        """The names of the arms that are compared with the baseline by what arrives."""
        return [arm.system.name for arm in self.arms if arm.paired_with is not None]

    def manifest(self) -> dict[str, Any]:
        """The cell as JSON."""
        return described_cell(self.labels, {arm.system.name: arm.role for arm in self.arms}, self.baseline)

    def usual_baseline(self, kind: str = "full") -> str | None:
        """The first arm of a kind, else the first arm; `None` for one arm alone."""
        if len(self.arms) < 2:
            return None
        return of_kind({arm.system.name: arm.role for arm in self.arms}, kind) or self.names[0]


def cells(options: RunOptions, environment: RunEnvironment, prices: Any) -> list[Cell]:
    """All cells of the run; two arms with one name stop it."""
    factors = list(itertools.product(options.model, options.shape))
    accounts = environment.accounts or Accounts(options)
    made = [
        _cell(ArmMaker(options, environment, prices, model, shape, _suffix(options, model, shape), accounts))
        for model, shape in factors
    ]
    refuse_equal_names([name for cell in made for name in cell.names])
    return made


def _suffix(options: RunOptions, model: str, shape: str) -> str:
    """The suffix of this cell's systems: the values of the factors that vary between cells."""
    parts = [value for value, values in ((model, options.model), (shape, options.shape)) if len(values) > 1]
    return f"[{','.join(parts)}]" if parts else ""


def _cell(maker: ArmMaker) -> Cell:
    options = maker.options
    cell = Cell({"model": maker.model, "shape": maker.shape})
    names = controls_of(options)
    measured = [*map(maker.proxy, options.all_proxies), *map(maker.system, options.system)]
    sized, cell.notes = sized_controls(maker, names, measured)
    controls = [*(maker.plain_control(name) for name in names if name in PLAIN_CONTROLS), *sized]
    cell.arms = [*measured, *controls]
    cell.baseline = _baseline(options, cell, maker.suffix)
    maker.keep_caches_apart(cell.arms)
    if maker.environment.tap is not None and not options.evidence_only:
        pair_with_baseline(cell, copies=options.copy_replies, only_lost=options.only_lost)
    return cell


def pair_with_baseline(cell: Cell, *, copies: bool, only_lost: bool = False) -> None:
    """Have the other arms compared with the baseline by what arrives at the tap, if that asks the provider directly.

    Not the noise floor, which is there to be asked anew, nor an arm that keeps state between examples.
    """
    base = next((arm for arm in cell.arms if arm.system.name == cell.baseline), None)
    if base is None or base.role.kind not in WHOLE or base.role.role == "noise_floor":
        return
    alone = [arm for arm in cell.arms if arm.role.role == "noise_floor" or getattr(arm.system, "stateful", False)]
    cell.arms = [
        arm
        if arm is base or arm in alone
        else replace(arm, paired_with=base.system.name, copies=copies, only_lost=only_lost)
        for arm in cell.arms
    ]


def controls_of(options: RunOptions) -> list[str]:
    """The control names asked for, aliases resolved; unknown ones are refused."""
    asked = options.controls or []
    names = DEFAULT_CONTROLS if asked == DEFAULT else [ALIASES.get(name, name) for name in asked]
    for name in names:
        kind, _, partner = name.partition("@")
        if name not in (*PLAIN_CONTROLS, *BUDGETED_CONTROLS) and not (partner and kind in BUDGETED_CONTROLS):
            known = ", ".join((*PLAIN_CONTROLS, *BUDGETED_CONTROLS, "head_tail@SYSTEM"))
            raise BadInput(f"--controls: no control {name!r}; known: {known}")
    return list(dict.fromkeys(names))


def sized_controls(maker: ArmMaker, names: list[str], measured: list[Any]) -> tuple[list[Any], list[str]]:
    """Truncating controls: of a fixed size, or each in the size of a system that is measured; and what is to be said of
    those left out.

    One that was asked for by name and cannot be made is refused.
    """
    options, notes = maker.options, []
    if not any(name.partition("@")[0] in BUDGETED_CONTROLS for name in names):
        return [], []
    fixed = options.budget is not None or options.keep is not None
    partners = {arm.system.name: arm.system for arm in measured if has_size(arm.system)}
    made: dict[str, Any] = {}
    for name in names:
        kind, _, partner = name.partition("@")
        if kind not in BUDGETED_CONTROLS:
            continue
        if partner and fixed:
            raise BadInput(
                f"--controls {name}: --keep and --budget fix the size of every control; ask for {kind}, or leave them "
                "out"
            )
        matched = (
            [partner + maker.suffix if partner + maker.suffix in partners else partner]
            if partner
            else _of_other_kind(kind, partners)
        )
        if not fixed and (not matched or (partner and matched[0] not in partners)):
            if options.controls != DEFAULT:
                raise BadInput(_no_size(name, partner, list(partners)))
            notes.append(_no_size(name, partner, list(partners)))
        new = [maker.fixed_control(kind)] if fixed else [maker.budgeted_control(kind, one) for one in matched]
        made |= {arm.system.name: arm for arm in new}
    return list(made.values()), notes


def _of_other_kind(kind: str, partners: Mapping[str, Any]) -> list[str]:
    """The systems that a control of this kind tells something of: truncation beside truncation of the same size is
    twice the same.
    """
    return [
        name for name, system in partners.items() if getattr(getattr(system, "compressor", None), "name", None) != kind
    ]


def _no_size(control: str, partner: str, known: list[str]) -> str:
    there = f"; systems with a size: {', '.join(known)}" if known else ""
    why = (
        f"{partner!r} is no system of this run whose size could be matched"
        if partner
        else "this run has no system whose size it could take"
    )
    return f"--controls {control} cannot be made: {why}{there}. Fix the size with --keep 0.5 or --budget N"


def has_size(system: Any) -> bool:
    """True if the run can see what this system leaves of a context.

    False for controls that leave everything or nothing, and for programs and readers that only answer.
    """
    from context_bench.core.families import offered
    from context_bench.systems.claude_cli import ClaudeCLI
    from context_bench.systems.context import leaves
    from context_bench.systems.control import Control

    if isinstance(system, Control):
        return leaves(system.compressor) is None
    inner = getattr(system, "system", system)
    return not isinstance(inner, (ClaudeCLI, offered("sentence_reader")))


@dataclass(slots=True)
class ArmMaker:
    """Makes the arms of one cell, all with the same model, shape and sampling parameters.

    `accounts`: the limiters, shared by all cells: with several workers, how many requests are under way adapts to what
    an endpoint takes.
    """

    options: RunOptions
    environment: RunEnvironment
    prices: Any
    model: str
    shape: str
    suffix: str
    accounts: Accounts

    def proxy(self, proxy: ProxyOptions) -> Any:
        """A proxy under test."""
        client = self._client(proxy.url, (proxy.name or host_and_port(proxy.url)) + self.suffix, version=proxy.version)
        client.proxy_key = key_in(proxy.key_env)
        return self._arm(client)

    def plain_control(self, name: str) -> Any:
        """Passthrough (twice, for the noise floor), no context at all, or one that is rewritten without loss."""
        client = self._client(
            self._hop(), name + self.suffix, identity=f"{self.options.upstream or self.options.tap} through full"
        )
        whole = name.partition("#")[0] in WHOLE
        system = client if whole else self._control(name, client, name + self.suffix)
        return self._arm(system, role=control_role(name, suffix=self.suffix))

    def fixed_control(self, name: str) -> Any:
        """A truncating control with the budget or share given on the command line."""
        options = {"budget": self.options.budget, "keep": self.options.keep}
        return self._arm(self._control(name, self._inner(name), name + self.suffix, **options), role=control_role(name))

    def budgeted_control(self, name: str, partner: str) -> Any:
        """A truncating control that gets, per example, exactly the tokens that `partner` forwarded, or left of the
        context.
        """
        full_name = f"{name}@{partner}"
        return self._arm(
            self._control(name, self._inner(name), full_name), budget_from=partner, role=control_role(name, of=partner)
        )

    def system(self, spec: str) -> Any:
        """A Python system, or a built-in control given with its own options."""
        from context_bench.systems.control import system_of, system_role

        return self._arm(system_of(spec, inner=self._reader(), suffix=self.suffix), role=system_role(spec))

    def _reader(self) -> Any:
        """The endpoint that reads for systems that only return a context: `--reader`, else the provider, else none."""
        if self.environment.reader is not None:
            return self._client(self.environment.reader, "reader", identity=f"reader {self.options.reader}")
        return (
            self._inner("reader")
            if (self.environment.hop or self.environment.tap or self.environment.upstream)
            else None
        )

    def keep_caches_apart(self, arms: list[Any]) -> None:
        """Give each arm its own first line, so that one arm's requests never profit from another's entries in a prompt
        cache.
        """
        local = self.options.upstream is not None and is_local(self.options.upstream)
        if self.options.cache_namespace == "none" or (
            self.options.cache_namespace == "auto" and (local or len(arms) < 2)
        ):
            return
        taken: set[int] = set()
        for arm in arms:
            number = seed_of(arm.system.name, self.options.seed) % 900
            while number in taken:
                number = (number + 1) % 900
            taken.add(number)
            client = getattr(arm.system, "inner", arm.system)
            if hasattr(client, "namespace"):
                client.namespace = f"arm {number + 100}"

    def _arm(self, system: Any, budget_from: str | None = None, role: ArmRole = CANDIDATE) -> Any:
        from context_bench.engine import Arm

        return Arm(system=system, budget_from=budget_from, role=role, labels={"model": self.model, "shape": self.shape})

    def _control(self, name: str, inner: Any, full_name: str, **options: Any) -> Any:
        from context_bench.systems.control import Control, compressor_of

        seed = {"seed": self.options.seed} if name == "random_drop" else {}
        return Control(
            compressor_of(name, **seed), inner, name=full_name, **{k: v for k, v in options.items() if v is not None}
        )

    def _inner(self, purpose: str) -> Any:
        return self._client(self._hop(), purpose, identity=f"{self.options.upstream or self.options.tap} through full")

    def _hop(self) -> str:
        found = (
            self.environment.hop
            or (self.environment.tap.url if self.environment.tap is not None else None)
            or self.environment.upstream
        )
        if found is None:
            raise BadInput(
                "this system only returns a context; give --upstream (or --reader) so that somebody can answer from it"
            )
        return str(found)

    def _client(self, url: str, name: str, *, version: str | None = None, identity: str | None = None) -> Any:
        from context_bench.systems import OpenAIProxy

        options = self.options
        sampling = {"temperature": options.temperature, "max_tokens": options.max_tokens}
        return OpenAIProxy(
            url,
            model=self.model,
            name=name,
            api_key=key_in(options.api_key_env),
            system_prompt=options.system_prompt,
            timeout=options.timeout,
            max_retries=options.retries,
            extra_body={**{k: v for k, v in sampling.items() if v is not None}, **options.extra_body} or None,
            shape=self.shape,
            wire=options.wire,
            prompt=options.prompt,
            stream=options.stream,
            prices=self.prices,
            limiter=self.accounts.of(url),
            version=version,
            identity=identity,
        )


def host_and_port(url: str) -> str:
    """`host:port` of a URL (the port only if it is given), the name of an unnamed proxy."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    host = parts.hostname or url
    return f"{host}:{parts.port}" if parts.port else host


def _baseline(options: RunOptions, cell: Cell, suffix: str) -> str | None:
    names = cell.names
    if options.baseline is not None:
        wanted = [name for name in (options.baseline, options.baseline + suffix) if name in names]
        if not wanted:
            raise BadInput(f"--baseline {options.baseline!r} is not a system of this run; it has: {', '.join(names)}")
        return wanted[0]
    return cell.usual_baseline()


def refuse_equal_names(names: list[str]) -> None:
    """Raise `SameName` where two systems of a run have one name."""
    double = [name for name, count in Counter(names).items() if count > 1]
    if double:
        raise SameName(
            f"two systems are called {double[0]!r}, so their rows could not be told apart; name each once, or give "
            "proxies their own --name"
        )
