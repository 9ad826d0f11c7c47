"""Memory, open files and threads of the processes of a soak run, and whether they grow."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

WARM = 90.0  # seconds in which a process still fills its caches
BLOCK = 30.0  # seconds of samples that are taken together: neighbours are not independent
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 12: 2.18, 15: 2.13, 20: 2.09, 30: 2.04}


@dataclass(frozen=True)
class Sample:
    """One look at a process."""

    at: float
    memory: float  # MB resident, of the process alone
    files: int
    threads: int


@dataclass
class Watched:
    """One process from its start to its end. `busy`: until when it is looked at; a run that reads all its rows for the report is not."""

    name: str
    pid: int
    busy: float = math.inf  # seconds on the monotonic clock
    samples: list[Sample] = field(default_factory=list)

    def look(self) -> None:
        """Take a sample; nothing if the process is gone."""
        here = Path(f"/proc/{self.pid}")
        try:
            status = (here / "status").read_text()
            files = sum(1 for _ in (here / "fd").iterdir())
        except OSError:
            return
        memory, threads = re.search(r"VmRSS:\s+(\d+)", status), re.search(r"Threads:\s+(\d+)", status)
        if memory and threads:
            self.samples.append(Sample(time.monotonic(), int(memory[1]) / 1024, files, int(threads[1])))

    def warm(self) -> list[Sample]:
        """The samples after the process has filled its caches, while it was busy."""
        return [sample for sample in self.samples if self.samples[0].at + WARM <= sample.at <= self.busy]


@dataclass(frozen=True)
class Slope:
    """MB an hour: the estimate, and the ends of its 95 % interval."""

    slope: float
    low: float
    high: float
    minutes: float  # that were looked at
    blocks: int


def slope(processes: list[Watched]) -> Slope | None:
    """The common slope of the memory of processes of one kind, each with a level of its own, by least squares over means of blocks."""
    x: list[float] = []
    y: list[float] = []
    minutes, levels = 0.0, 0
    for process in processes:
        points = list(_blocks(process.warm()))
        if len(points) < 3:
            continue
        mean_x, mean_y = (statistics.fmean(values) for values in zip(*points, strict=True))
        x += [at - mean_x for at, _ in points]
        y += [memory - mean_y for _, memory in points]
        minutes, levels = minutes + 60 * (points[-1][0] - points[0][0]), levels + 1
    spread, free = sum(at * at for at in x), len(x) - levels - 1
    if free < 1 or not spread:
        return None
    found = sum(at * memory for at, memory in zip(x, y, strict=True)) / spread
    left = sum((memory - found * at) ** 2 for at, memory in zip(x, y, strict=True)) / free
    margin = _t(free) * math.sqrt(left / spread)
    return Slope(found, found - margin, found + margin, minutes, len(x))


def _blocks(samples: list[Sample]) -> Iterator[tuple[float, float]]:
    """(hours, MB): the mean of each block of samples."""
    block: list[Sample] = []
    for sample in samples:
        if block and sample.at - block[0].at >= BLOCK:
            yield statistics.fmean(each.at for each in block) / 3600, statistics.fmean(each.memory for each in block)
            block = []
        block.append(sample)


def _t(free: int) -> float:
    """The 97.5 % point of Student's distribution, to the next smaller number of degrees of freedom in the table."""
    return _T[max(known for known in _T if known <= free)]


def told(processes: list[Watched], name: str) -> str:
    """One line about all processes of a kind."""
    if not processes:
        return f"{name}: none"
    longest = max(processes, key=lambda each: len(each.samples))
    looked = longest.warm() or longest.samples
    first, last = looked[0], looked[-1]
    peak, files = (max(getattr(sample, what) for each in processes for sample in each.samples) for what in ("memory", "files"))
    grown = slope(processes)
    trend = "too short for a slope"
    if grown is not None:
        trend = f"{grown.slope:+.1f} MB/hour [{grown.low:+.1f}, {grown.high:+.1f}] over {grown.minutes:.0f} min in {grown.blocks} blocks"
    return (
        f"{name}: {len(processes)} processes; longest: {first.memory:.0f} → {last.memory:.0f} MB, peak of all {peak:.0f}; {trend}; "
        f"files {first.files} → {last.files} (most {files}), threads {first.threads} → {last.threads}"
    )


def write(processes: list[Watched], out: Path, since: float) -> None:
    """Every sample as a line: name, process, seconds, MB, files, threads."""
    with out.open("w", encoding="utf-8") as file:
        for each in processes:
            for s in each.samples:
                file.write(f"{each.name}\t{each.pid}\t{s.at - since:.1f}\t{s.memory:.1f}\t{s.files}\t{s.threads}\n")
