"""Prints the tables of the benchmarks: aligned plain text, readable in a terminal and in Markdown.

Loads no numpy: a benchmark says how many threads it may use before numpy is loaded, and bench/record.py has loaded this
by then.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from numbers import Integral, Real
from pathlib import Path

# The benchmarks measure the checkout they lie in, installed or not.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


listeners: list[Callable[[dict], None]] = []
"""Called with every table that is printed; bench/record.py keeps them."""


def format_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> str:
    """Formats a Markdown table.

    Args:
        columns: Headings, with units.
        rows: One sequence per row; numbers are shown with four significant digits and right-aligned.
        title: Line above the table, if any.

    Returns:
        The table as text, without a final newline.

    Raises:
        ValueError: A row has another length than ``columns``.
    """
    cells = [[_format_cell(value) for value in row] for row in rows]
    for row in cells:
        if len(row) != len(columns):
            raise ValueError(f"a row has {len(row)} cells, the table has {len(columns)} columns: {row}")
    widths = [max(len(line[k]) for line in [list(columns), *cells]) for k in range(len(columns))]
    is_number = [bool(rows) and all(_is_number(row[k]) for row in rows) for k in range(len(columns))]

    def line(values: Sequence[str]) -> str:
        aligned = (v.rjust(w) if right else v.ljust(w) for v, w, right in zip(values, widths, is_number, strict=True))
        return "| " + " | ".join(aligned) + " |"

    rule = line(["-" * (w - right) + ":" * right for w, right in zip(widths, is_number, strict=True)])
    return "\n".join([*([title, ""] if title else []), line(columns), rule, *(line(row) for row in cells)])


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Prints what :func:`format_table` returns, with an empty line after it."""
    rows = [list(row) for row in rows]
    print(format_table(columns, rows, title) + "\n", flush=True)
    for listener in listeners:
        listener({"columns": list(columns), "rows": rows, "title": title})


lead_listeners: list[Callable[[str], None]] = []
figure_listeners: list[Callable[[str, str], None]] = []
"""Called with what comes first on a page, and with the path and caption of a figure; bench/record.py keeps them."""


def print_lead(text: str) -> None:
    """Prints what the first paragraph of a page says of its results."""
    print(text + "\n", flush=True)
    for listener in lead_listeners:
        listener(text)


def print_figure(path: str, caption: str) -> None:
    """Prints where a figure is."""
    print(f"{path}: {caption}", flush=True)
    for listener in figure_listeners:
        listener(path, caption)


def print_report(report, entries: list[dict], failures: Sequence, folder: str) -> int:
    """Print lead, tables and figures of a module of the papers' reports; return the exit status."""
    print(describe_machine(), flush=True)
    print_lead(report.verdict(entries))
    for table in report.tables(entries):
        print_table(table.columns, table.rows, table.title)
    for path, caption in report.draw_figures(entries, Path(folder)):
        print_figure(str(path), caption)
    return int(bool(failures))


def describe_commit() -> str:
    """Return the commit of this checkout, and whether what is measured has changed since."""

    def git(*words: str) -> str:
        folder = os.path.dirname(os.path.abspath(__file__))
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    measured = ("../sysid_ros", "../bench", "../config", "../urdf")
    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *measured)
        return git("rev-parse", "--short", "HEAD") + (" with local changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def describe_machine() -> str:
    """One line that says what the numbers were measured on."""
    threads = os.environ.get("OMP_NUM_THREADS", "unset")
    return (
        f"{_processor_name()}, {os.cpu_count()} cores, OMP_NUM_THREADS={threads}, "
        f"Python {platform.python_version()}, numpy {version('numpy')}"
    )


class StolenTime:
    """What a hypervisor keeps of the processor time this machine asks for, from the construction on.

    A loop that is not run in time because of it has not been slow itself.
    """

    def __init__(self) -> None:
        self._begin = self._ticks()

    def describe(self) -> str:
        """One sentence; empty where the system does not tell."""
        used, stolen = (now - before for now, before in zip(self._ticks(), self._begin, strict=True))
        if not used + stolen:
            return ""
        return f"Of the processor time asked for meanwhile a hypervisor kept {100.0 * stolen / (used + stolen):.1f} %."

    @staticmethod
    def _ticks() -> tuple[int, int]:
        """Used and stolen [clock ticks]."""
        try:
            with open("/proc/stat") as file:
                user, nice, system, _, _, irq, soft, stolen = (int(x) for x in file.readline().split()[1:9])
        except (OSError, ValueError):
            return 0, 0
        return user + nice + system + irq + soft, stolen


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _format_cell(value: object) -> str:
    if not _is_number(value):
        return str(value)
    if isinstance(value, Integral) or abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
