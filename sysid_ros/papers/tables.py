"""Tables of experiments, and the statistics in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.stats import beta, binom

from sysid_ros.executor import throughput

Entry = Mapping[str, Any]
"""A line of a file of results: the job of a run, and its result."""
CONFIDENCE = 0.95
"""Of the intervals."""


@dataclass(frozen=True)
class Table:
    """A table of results.

    Attributes:
        title: Its title.
        columns: Headings, with units.
        rows: Cells: numbers or texts.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def __str__(self) -> str:
        cells = [list(self.columns), *([_cell(value) for value in row] for row in self.rows)]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([self.title, "", lines[0], "-" * len(lines[0]), *(line.rstrip() for line in lines[1:])])


def select(entries: Sequence[Entry], **wanted: object) -> list[Entry]:
    """Return the entries with these values in their jobs, by seed."""
    found = [one for one in entries if all(one["job"].get(name) == value for name, value in wanted.items())]
    return sorted(found, key=lambda entry: (entry["job"].get("seed", 0), str(entry["job"])))


def save_figures(drawn: Iterable[tuple[str, Figure, str]], folder: Path) -> list[tuple[Path, str]]:
    """Write figures with a name and a caption each as PNG files; return the files and captions."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, figure, caption in drawn:
        figure.savefig(path := folder / f"{name}.png", dpi=80)
        found.append((path, caption))
    return found


def median_and_worst(values: ArrayLike) -> tuple[float, float]:
    """Return the median and the largest of some values; NaN of none."""
    finite = np.asarray(values, dtype=float)
    return (float(np.median(finite)), float(np.max(finite))) if finite.size else (float("nan"), float("nan"))


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return the exact confidence interval of a share, ``count`` of ``total`` independent runs.

    Source: Clopper and Pearson, 1934.
    """
    rest = 0.5 * (1.0 - CONFIDENCE)
    lower = 0.0 if count == 0 else float(beta.ppf(rest, count, total - count + 1))
    upper = 1.0 if count == total else float(beta.ppf(1.0 - rest, count + 1, total - count))
    return lower, upper


def median_interval(values: ArrayLike) -> tuple[float, float]:
    """Return a confidence interval of the median by order statistics; the whole range where runs are few."""
    ordered = np.sort(np.asarray(values, dtype=float))
    count = ordered.size
    if not count:
        return float("nan"), float("nan")
    # The k-th smallest and largest value enclose the median unless fewer than k lie on one side of it.
    k = 1
    while 2 * (k + 1) <= count and _tail(count, k) <= 0.5 * (1.0 - CONFIDENCE):
        k += 1
    return float(ordered[k - 1]), float(ordered[count - k])


def describe_share(count: int, total: int) -> str:
    """Return ``count of total`` with its confidence interval."""
    if not total:
        return "-"
    lower, upper = share_interval(count, total)
    return f"{count} of {total} [{100 * lower:.0f}, {100 * upper:.0f}] %"


def describe_median(values: Sequence[float], scale: float = 1.0) -> str:
    """Return the median with its confidence interval, and the largest value."""
    scaled = scale * np.asarray(values, dtype=float)
    if not scaled.size:
        return "-"
    (median, worst), (lower, upper) = median_and_worst(scaled), median_interval(scaled)
    return f"{median:.3g} [{lower:.3g}, {upper:.3g}], {worst:.3g}"


def cost_tables(entries: Sequence[Mapping[str, Any]], name_of: Callable[[Mapping[str, Any]], str]) -> list[Table]:
    """Return the costs of the runs: by kind of run, and by worker; none of entries without costs.

    ``name_of`` returns the kind of run of a job.
    """
    entries = [entry for entry in entries if "worker" in entry]
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        kinds.setdefault(name_of(entry["job"]), []).append(entry)
    rows: list[tuple[object, ...]] = []
    for kind, runs in kinds.items():
        spent = [one["processor_seconds"] for one in runs if "processor_seconds" in one]
        wall = [one["seconds"] for one in runs]
        rows.append((kind, len(runs), describe_median(wall), describe_median(spent), sum(wall) / 60.0))
    columns = ("run", "runs", "wall time [s]", "processor time [s]", "all of them [min]")
    found = [Table("What a run costs: median [95 %], largest", columns, tuple(rows))]
    workers = throughput(entries)
    rows = [(number, count, 60.0 * rate) for number, (count, rate) in enumerate(workers.values(), start=1)]
    found.append(Table("Throughput of each worker", ("worker", "runs", "runs per minute of its own"), tuple(rows)))
    return [table for table in found if table.rows]


def _tail(count: int, k: int) -> float:
    """Probability that at most k of so many fair coins show heads."""
    return float(binom.cdf(k, count, 0.5))


def _cell(value: object) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return str(value)
