"""Memory, open files and threads of the processes of a soak run, and whether they grow."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

#: Seconds in which a process still fills its caches after the moment from which it counts as busy with the same: a run
#: that has seen so many requests that what it remembers of texts and bodies has filled its room, a tap whose room for
#: conversations is full, a viewer whose store is at rest.
WARM = {"run": 120.0, "tap": 60.0, "viewer": 480.0}
BLOCK = 60.0  # seconds of samples of which the least counts: what is kept, without what is under way for the moment
LEAST = 8.0  # minutes without which nothing is said
MOST = 1.0  # MB/h that the upper end of a slope's interval may be
_T = {
    1: 12.71,
    2: 4.30,
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
    10: 2.23,
    12: 2.18,
    15: 2.13,
    20: 2.09,
    30: 2.04,
}


@dataclass(frozen=True)
class Sample:
    """One look at a process."""

    at: float
    memory: float  # MB of its own, without mapped files, which the system takes away and brings back as it likes
    files: int
    threads: int


@dataclass
class Watched:
    """One process from its start to its end. `busy`: until when it is looked at; a run that reads all its rows for the
    report is not.
    """

    name: str
    pid: int
    busy: float = math.inf  # seconds on the monotonic clock
    warm_from: float | None = None  # the same clock; `None`: not warm yet
    samples: list[Sample] = field(default_factory=list)
    _born: str = ""

    def look(self) -> None:
        """Take a sample; nothing if the process is gone."""
        here = Path(f"/proc/{self.pid}")
        try:
            status = (here / "status").read_text()
            born = (here / "stat").read_text().rpartition(")")[2].split()[19]
            files = sum(1 for _ in (here / "fd").iterdir())
        except OSError:
            return
        self._born = self._born or born
        if born != self._born:  # another process has its number now
            return
        found = dict(re.findall(r"(RssAnon|VmSwap|Threads):\s+(\d+)", status))
        if "RssAnon" in found:
            memory = (int(found["RssAnon"]) + int(found.get("VmSwap", 0))) / 1024
            self.samples.append(Sample(time.monotonic(), memory, files, int(found["Threads"])))

    def warm(self) -> list[Sample]:
        """The samples after the process has filled its caches, while it was busy."""
        start = math.inf if self.warm_from is None else self.warm_from
        return [sample for sample in self.samples if start <= sample.at <= self.busy]


@dataclass(frozen=True)
class Slope:
    """MB an hour: the estimate, and the ends of its 95 % interval."""

    slope: float
    low: float
    high: float
    minutes: float  # that were looked at
    blocks: int
    lives: int  # processes that were looked at

    @property
    def verdict(self) -> str:
        """By the rule that `RULE` says."""
        if self.minutes < LEAST:
            return "looked at too shortly to say"
        if self.high <= MOST:
            return "held"
        return "GROWS" if self.low > MOST else "not shown: the interval is too wide"


RULE = (
    f"Memory holds if the upper end of the slope's 95 % interval is at most {MOST:g} MB/h, and grows if the lower end "
    "is above it; nothing "
    f"is said of less than {LEAST:g} minutes. Least squares over the least of each {BLOCK:g} s, a level for each "
    "life, the interval "
    "widened by how alike neighbours are. Left out: all before a run's memories of texts and bodies or a tap's room "
    "for conversations are full, and until a viewer of a store at rest has shown all of it; then "
    + ", ".join(f"{seconds:g} s of a {name}" for name, seconds in WARM.items())
    + "; a run's last look at its rows."
)


def slope(processes: list[Watched]) -> Slope | None:
    """The common slope of the memory of processes of one kind, each with a level of its own."""
    lives = [points for process in processes if len(points := list(_blocks(process.warm()))) >= 3]
    centred = [_centred(points) for points in lives]
    spread = sum(at * at for life in centred for at, _ in life)
    if not spread:
        return None
    found = sum(at * memory for life in centred for at, memory in life) / spread
    left = [[memory - found * at for at, memory in life] for life in centred]
    count = sum(map(len, left))
    alike = _alike(left)
    free = int(count * (1 - alike) / (1 + alike)) - len(lives) - 1  # neighbours that are alike say less than so many
    if free < 1:
        return None
    variance = sum(each * each for life in left for each in life) / (count - len(lives) - 1)
    margin = _t(free) * math.sqrt(variance / spread * (1 + alike) / (1 - alike))
    minutes = sum(60 * (points[-1][0] - points[0][0]) for points in lives)
    return Slope(found, found - margin, found + margin, minutes, count, len(lives))


def _centred(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    mean_x, mean_y = (statistics.fmean(values) for values in zip(*points, strict=True))
    return [(at - mean_x, memory - mean_y) for at, memory in points]


def _alike(left: list[list[float]]) -> float:
    """Correlation of neighbouring residuals, 0 to 0.8."""
    both = sum(a * b for life in left for a, b in pairwise(life))
    own = sum(each * each for life in left for each in life)
    return min(0.8, max(0.0, both / own)) if own else 0.0


def _blocks(samples: list[Sample]) -> Iterator[tuple[float, float]]:
    """(hours, MB): the least of each block of samples."""
    block: list[Sample] = []
    for sample in samples:
        if block and sample.at - block[0].at >= BLOCK:
            yield statistics.fmean(each.at for each in block) / 3600, min(each.memory for each in block)
            block = []
        block.append(sample)


def _t(free: int) -> float:
    """The 97.5 % point of Student's distribution, to the next smaller number of degrees of freedom in the table."""
    return _T[max(known for known in _T if known <= free)]


@dataclass(frozen=True)
class Kind:
    """All processes of one program: of the longest life, what it took when it was warm and at its end (of files the
    least of a block of samples: connections come and go); of all, the most.
    """

    name: str
    lives: int
    memory: tuple[float, float, float]  # MB: warm, last, most
    files: tuple[int, int, int]
    threads: tuple[int, int, int]
    slope: Slope | None

    @property
    def broken(self) -> str | None:
        """What is wrong, if anything is."""
        if self.slope is None or self.slope.verdict != "held":
            return f"the memory of the {self.name} is not shown to hold: {self.trend}"
        if self.slope is not None and self.files[1] > self.files[0] + FILES:
            return f"the {self.name} had {self.files[0]} files open and has {self.files[1]}"
        return None

    @property
    def trend(self) -> str:
        """The slope in words."""
        if self.slope is None:
            return "too short for a slope"
        one = self.slope
        where = f"{one.minutes:.0f} min in {one.lives} {'life' if one.lives == 1 else 'lives'}, {one.blocks} blocks"
        return f"{one.slope:+.1f} MB/h [{one.low:+.1f}, {one.high:+.1f}] over {where}: {one.verdict}"


FILES = 32  # connections that may be open at one look more than at another


def kind(processes: list[Watched], name: str) -> Kind | None:
    """The processes of this name; `None` if there were none."""
    mine = [each for each in processes if each.name == name and each.samples]
    if not mine:
        return None
    longest = max(mine, key=lambda each: len(each.samples))
    looked = longest.warm() or [each for each in longest.samples if each.at <= longest.busy] or longest.samples
    first, last = looked[0], looked[-1]

    def three(what: str) -> tuple[Any, Any, Any]:
        return (
            getattr(first, what),
            getattr(last, what),
            max(getattr(sample, what) for each in mine for sample in each.samples),
        )

    def least(samples: Iterable[Sample]) -> int:
        return min(sample.files for sample in samples)

    begun = least(sample for sample in looked if sample.at - first.at < BLOCK)
    left = least(sample for sample in looked if last.at - sample.at < BLOCK)
    return Kind(name, len(mine), three("memory"), (begun, left, three("files")[2]), three("threads"), slope(mine))


def write(processes: list[Watched], out: Path, since: float) -> None:
    """Every sample as a line: name, process, seconds, MB, files, threads."""
    with out.open("w", encoding="utf-8") as file:
        for each in processes:
            for s in each.samples:
                file.write(f"{each.name}\t{each.pid}\t{s.at - since:.1f}\t{s.memory:.1f}\t{s.files}\t{s.threads}\n")
