"""Results of other harnesses: answers with their scores, and verdicts on patches. Nothing is run here.

`read_answers` gives questions, answers and scores of a file, one `RecordedAnswer` each; a format of answers is an
`ANSWERS` in a file of `formats/`. `load_solved` gives the solved tasks of a run, from a report or a folder of them,
recognised by their content (§11 of the specification of traces), and `SolvedTasks.find` joins by id, in any spelling of
the id; a kind of report is a `REPORT` there, which says how its objects are recognised and which outcomes they hold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import MOST, count
from context_bench.core.records import Example, Usage
from context_bench.transcripts.format import Format, LogSource, formats_in, mapping, peek_at, recognised

if TYPE_CHECKING:
    from context_bench.stats.solving import Status

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(slots=True)
class RecordedAnswer:
    """One system's recorded result on one example, in one trial (from 0).

    `example` has `id`, `dataset`, `context` and what else evaluators may want (`question`, `answer`, `choices` …);
    nothing in it comes from the answer. `output`: `response` and whatever else came back. `error`: why there is no
    answer. `scores`: numbers of the source, by its own names. `latency` in seconds, `started` in seconds since the
    epoch, `cost` in US dollars, `sent_tokens`: the source's own count of the request, `shape` that of the request in
    our own words; `None` = not told.
    """

    system: str
    example: Example
    trial: int = 0
    output: Example = field(default_factory=dict)
    error: str | None = None
    scores: dict[str, float] = field(default_factory=dict)
    usage: Usage | None = None
    model: str = ""
    cost: float | None = None
    sent_tokens: int | None = None
    latency: float | None = None
    started: float | None = None
    finish_reason: str | None = None
    shape: str | None = None


@dataclass(slots=True)
class AnswerLog:
    """One file of answers. `source` names who scored them (`inspect`, `lm_eval`, `jsonl`); `facts` is what the file
    says about itself; `skipped` counts what was passed over, by reason, once `answers` was read.
    """

    source: str
    answers: Iterator[RecordedAnswer]
    facts: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)


def texts(value: Any) -> list[str]:
    """A text, a number, or a list of them, as texts."""
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    if isinstance(value, str):
        return [value]
    return [str(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def golds(example: Example, targets: list[str]) -> None:
    """Put the right answers into `example`: the first as `answer`, several also as `answers`."""
    if targets:
        example["answer"] = targets[0]
    if len(targets) > 1:
        example["answers"] = targets


NO_TRIAL = "a trial that no run has"


def trial_of(value: Any, first: int = 0) -> int | None:
    """A trial counted from 0, of a number counted from `first`; 0 where none is told, `None` for one beyond all that
    can be stored.
    """
    found = count(value)
    return None if found is None and type(value) is int and value > MOST else max(0, (found or 0) - first)


def id_of(value: Any, position: int) -> str | int:
    """An example's id, or its position where it has none."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return value
    return position if value is None else str(value)


def answer_formats() -> dict[str, Format[AnswerLog]]:
    """Every format of answers by its name, in the order in which they are tried."""
    return {one.name: one for one in formats_in("ANSWERS").values()}


def read_answers(path: str | Path, format: str | None = None) -> AnswerLog:  # noqa: A002
    """The answers in a file: an Inspect log (.eval or .json), lm-eval samples (.jsonl), or JSON lines such as our own
    export.

    `format` skips the guess. Raises `BadInput` for a file that is none of these, with what was seen in it.
    """
    by_name = answer_formats()
    if format is not None and format not in by_name:
        raise BadInput(f"{format!r} is not a format of recorded answers; expected one of: {', '.join(by_name)}")
    peek = peek_at(LogSource(Path(path)))
    if format is None:
        return recognised(peek, by_name, "no recorded answers")[1].read(peek.source)
    if peek.is_archive and format != "inspect":
        raise BadInput(f"{path} is a ZIP archive, which only Inspect's .eval logs are, not {format}")
    return by_name[format].read(peek.source)


_PULL = re.compile(r"^([^/]+)/([^/:]+):pr-(\d+)$")


def id_forms(name: str) -> tuple[str, ...]:
    """The spellings of an instance's id.

    `owner__repo-123` is `owner/repo:pr-123`; SWE-bench Pro puts `instance_` before it and `-v<sha>` behind.
    """
    forms = [name]
    if match := _PULL.match(name):
        forms.append(f"{match[1]}__{match[2]}-{match[3]}")
    plain = re.sub(r"-v(?:[0-9a-f]{7,40}|nan)?$", "", name.removeprefix("instance_"))
    if name.startswith("instance_") or plain != name:
        forms += [plain, f"instance_{plain}"]
    return tuple(dict.fromkeys(forms))


@dataclass(frozen=True, slots=True)
class PatchOutcome:
    """Verdict of a harness on one patch.

    `status`: `resolved` (every test that had to be fixed passes, and every test that passed still does), `unresolved`,
    `error` (there was no verdict: it broke) or `unknown`. `infra`: the machinery failed, not the patch; its status
    stays what the harness counts it as. `reason`: why it is not resolved, where that is told (`empty_patch`, `missing`
    …). `aliases`: other ids, such as the name of a trial. `patch`: of predictions.
    """

    instance_id: str
    status: Status
    infra: bool = False
    reason: str | None = None
    aliases: tuple[str, ...] = ()
    patch: str | None = None

    @property
    def resolved(self) -> bool:
        """True if the patch solves the task."""
        return self.status == "resolved"


@dataclass(slots=True)
class SolvedTasks:
    """The outcomes of a run. `sources`: how many came from which kind of report; `skipped`: what could not be used, by
    reason.

    An id may come several times (trials of one task): `find` by the task's id gives what all of them agree on.
    """

    outcomes: list[PatchOutcome] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    _by_id: dict[str, list[PatchOutcome]] = field(default_factory=dict, repr=False)

    def add(self, outcome: PatchOutcome, source: str = "") -> None:
        """One more outcome."""
        self.outcomes.append(outcome)
        if source:
            self.sources[source] += 1
        forms = {form: None for name in (outcome.instance_id, *outcome.aliases) for form in id_forms(name)}
        for form in forms:
            self._by_id.setdefault(form, []).append(outcome)

    def find(self, *ids: str | None) -> PatchOutcome | None:
        """The outcome of the first of these ids that has one, in any spelling; trials that differ are `unknown`
        together.
        """
        for name in ids:
            for form in id_forms(name) if name else ():
                if found := self._by_id.get(form):
                    return found[0] if len(found) == 1 else _together(found)
        return None

    def status(self, *ids: str | None) -> Status:
        """The status by id; `unknown` for an id that no report names."""
        found = self.find(*ids)
        return found.status if found is not None else "unknown"

    def counts(self) -> dict[str, int]:
        """Number of outcomes of each status, and of failures of the machinery."""
        by_status = Counter(outcome.status for outcome in self.outcomes)
        return {
            **{name: by_status[name] for name in ("resolved", "unresolved", "error", "unknown")},
            "infra": self.infra_count,
        }

    @property
    def infra_count(self) -> int:
        """Failures of the machinery."""
        return sum(one.infra for one in self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[PatchOutcome]:
        return iter(self.outcomes)


def _together(trials: list[PatchOutcome]) -> PatchOutcome:
    """Verdict on which several trials of one task agree. A failure of the machinery says nothing against the others."""
    judged = [trial for trial in trials if not trial.infra] or trials
    if len({trial.status for trial in judged}) == 1:
        return judged[0] if len({trial.patch for trial in judged}) == 1 else replace(judged[0], patch=None)
    resolved = sum(trial.resolved for trial in judged)
    return PatchOutcome(trials[0].instance_id, "unknown", reason=f"{resolved} of {len(judged)} trials resolved")


Row = Mapping[str, Any]


def report(
    name: str,
    rank: int,
    is_report: Callable[[Row], bool],
    outcomes: Callable[[Row], Iterable[PatchOutcome | str]],
    about: str,
) -> Format[Iterator[PatchOutcome]]:
    """The format of a report: `is_report` recognises its first object, and `outcomes` reads each of its objects. A text
    among the outcomes is the reason for which a part of the object is passed over.
    """

    def read(source: LogSource) -> Iterator[PatchOutcome]:
        for row in map(mapping, source.values()):
            for outcome in outcomes(row):
                if isinstance(outcome, PatchOutcome):
                    yield outcome
                else:
                    source.skip(outcome)

    return Format(name, rank, lambda peek: is_report(peek.first), read, about=about)


def names(value: Any) -> list[str]:
    """The ids in a list; what is no text is left out."""
    return [name for name in value if isinstance(name, str) and name] if isinstance(value, list) else []


#: Verdict of each list, the one that decides first. Ids that are only in a later list of the report (`submitted_ids` …)
#: have no verdict.
_VERDICTS: tuple[tuple[str, Status, str | None], ...] = (
    ("resolved_ids", "resolved", None),
    ("error_ids", "error", None),
    ("empty_patch_ids", "unresolved", "empty_patch"),
    ("unresolved_ids", "unresolved", None),
    ("infra_failure_ids", "error", "infra"),
    ("ambiguous_failure_ids", "unresolved", "ambiguous"),
    ("incomplete_ids", "unresolved", "missing"),
    ("submitted_ids", "error", "no verdict"),
    ("completed_ids", "error", "no verdict"),
)


def is_listing(row: Mapping[str, Any]) -> bool:
    """True if a report lists ids by verdict."""
    return isinstance(row.get("resolved_ids"), list) and any(
        isinstance(row.get(key), list) for key, _, _ in _VERDICTS[1:]
    )


def listed(row: Mapping[str, Any]) -> Iterator[PatchOutcome]:
    """Every id of a report, once.

    Failures of the machinery are marked and keep the verdict that the harness counts them as.
    """
    infra = set(names(row.get("infra_failure_ids")))
    reasons = mapping(row.get("failure_reasons"))
    done: set[str] = set()
    for key, status, why in _VERDICTS:
        for name in names(row.get(key)):
            if name not in done:
                done.add(name)
                reason = reasons.get(name)
                yield PatchOutcome(name, status, name in infra, str(reason)[:200] if reason else why)


_ENDINGS = (".json", ".jsonl", ".ndjson", ".eval")
#: Files above this size in a folder are trajectories, not reports.
_FOLDER_LIMIT = 256 * 1024 * 1024


def report_formats() -> dict[str, Format[Iterator[PatchOutcome]]]:
    """Every kind of report by name, in the order in which they are tried.

    In the same order they count where several name one id: the closest to the verdict first; predictions, which have
    none, last.
    """
    return formats_in("REPORT")


def load_solved(path: str | Path, *, scorer: str | None = None) -> SolvedTasks:
    """Load the verdicts on the patches of a run, from a report or a folder of reports. Nothing is run.

    In a folder every file that is a report counts. An id that reports of several kinds name is taken from the kind
    closest to the verdict on the run; several reports of one kind on one id are its trials. `scorer`: the score of an
    Inspect log that is the verdict. Raises `BadInput` where there is no report, with what was seen.
    """
    place = Path(path)
    if not place.is_dir():
        name, found, source = _file(place, scorer)
        out = SolvedTasks(skipped=source.skipped)
        for one in found:
            out.add(one, name)
        if not out.outcomes:
            raise BadInput(
                f"{place}: a file of {report_formats()[name].name}, but no task in it; skipped: "
                f"{dict(source.skipped) or 'nothing'}"
            )
        return out
    return _folder(place, scorer)


def _folder(folder: Path, scorer: str | None) -> SolvedTasks:
    out, faults = SolvedTasks(), list[str]()
    found: dict[str, list[PatchOutcome]] = {}
    for file in sorted(file for file in folder.rglob("*") if file.suffix.lower() in _ENDINGS and file.is_file()):
        if file.name == "infra_errors.json" or file.stat().st_size > _FOLDER_LIMIT:
            continue  # read with what it stands beside
        try:
            name, outcomes, source = _file(file, scorer)
        except BadInput as error:
            faults.append(str(error))
            out.skipped["not a report"] += 1
            continue
        found.setdefault(name, []).extend(outcomes)
        out.skipped.update(source.skipped)
    for name in sorted(found, key=lambda name: (name == "predictions", report_formats()[name].rank)):
        for one in [one for one in found[name] if out.find(one.instance_id) is None]:
            out.add(one, name)
    if not out.outcomes:
        why = "\n".join(f"  - {fault}" for fault in faults[:5]) or f"  - no files that end in {', '.join(_ENDINGS)}"
        raise BadInput(f"no reports on patches in the folder {folder}:\n{why}")
    return out


def _file(path: Path, scorer: str | None) -> tuple[str, list[PatchOutcome], LogSource]:
    peek = peek_at(LogSource(path))
    name, kind = recognised(peek, report_formats(), "no report on patches")
    if kind.by_score is None or scorer is None:
        return name, list(kind.read(peek.source)), peek.source
    return name, list(kind.by_score(peek.source, scorer)), peek.source
