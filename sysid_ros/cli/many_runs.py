"""Options and progress of commands that make many independent runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from sysid_ros.cli.terminal import ProgressDisplay, duration_text
from sysid_ros.core.common.command_line import tell
from sysid_ros.executor import (
    Completion,
    Executor,
    Job,
    Progress,
    ResultsFile,
    Work,
    key_of,
    open_executor,
    run_all,
    throughput,
)
from sysid_ros.reports.folders import require_results_root


class RunDisplay:
    """Progress of many runs with the time that is left, on standard error; failures stay."""

    def __init__(self) -> None:
        self._display, self._last = ProgressDisplay(sys.stderr), ""

    def __call__(self, progress: Progress) -> None:
        """Show how far the runs have come."""
        completion = progress.completion
        if completion is not None and completion.failure is not None:
            self._display.message(f"failed: {name_of(completion)}: {completion.failure}")
        failed = f", {progress.failed} failed" if progress.failed else ""
        text = f"{progress.done} of {progress.total} runs, {duration_text(progress.elapsed)}{failed}"
        if completion is not None and completion.failure is None:
            self._last = name_of(completion)
        share = (progress.done + progress.under_way) / max(1, progress.total)
        self._display.update(text, share, self._last, progress.left)

    def finish(self) -> None:
        """Go to the next line."""
        self._display.finish()


def carry_out_runs(
    work: Work, jobs: Sequence[Job], path: Path, where: tuple[int, str]
) -> tuple[list[dict[str, Any]], list[Completion]]:
    """Carry out the runs that a file of results does not have yet, with progress.

    Args:
        work: The function of a run.
        jobs: All runs.
        path: The file.
        where: Workers of this machine, and address of a scheduler, as of :func:`add_run_options`.

    Returns:
        Entries of the runs that were asked for, in their order and with who made them, and the failures.

    Raises:
        KeyboardInterrupt: Ctrl-C; the file has all runs that had ended.
        SysidError: Nothing can be written into the folder of the file.
    """
    require_results_root(path.parent)
    with open_executor(*where) as executor:
        results, display = ResultsFile(path), RunDisplay()
        try:
            failures = run_all(work, jobs, results, executor, display)
        except KeyboardInterrupt:
            display.finish()
            done = sum(job in results for job in jobs)
            print(f"stopped: {done} of {len(jobs)} runs are in {path}; the same command goes on", file=sys.stderr)
            raise
        finally:
            display.finish()
        print_throughput(results, executor)
    report_failures(failures)
    by_key = {key_of(entry["job"]): entry for entry in results.entries}
    return [by_key[key_of(job)] for job in jobs if job in results], failures


class Report(Protocol):
    """What a module of :mod:`sysid_ros.papers` makes of entries."""

    def tables(self, entries: Sequence[Any], /) -> Sequence[Any]:
        """Return the tables."""

    def verdict(self, entries: Sequence[Any], /) -> str:
        """Return what they show, in sentences."""

    def draw_figures(self, entries: Sequence[Any], folder: Path, /) -> Sequence[tuple[Path, str]]:
        """Draw figures into a folder and return their files and captions."""


def show(report: Report, entries: Sequence[dict[str, Any]], folder: Path) -> None:
    """Print tables and verdict, and draw the figures."""
    for table in report.tables(entries):
        print(f"\n{table}")
    print(f"\n{report.verdict(entries)}")
    for path, caption in report.draw_figures(entries, folder):
        print(f"{path}: {caption}")


def name_of(completion: Completion) -> str:
    """Return the plain values of a job in a line."""
    return " ".join(str(value) for value in completion.job.values() if isinstance(value, str | int) and value != "")


def report_failures(failures: Sequence[Completion]) -> None:
    """Say which runs have failed each time they were tried."""
    for completion in failures:
        tell("error: ", f"no result of {name_of(completion)}: {completion.failure}")


def print_throughput(results: ResultsFile, executor: Executor) -> None:
    """Say what each worker has done, where there are several."""
    if executor.workers > 1:
        for worker, (count, rate) in throughput(results.entries).items():
            print(f"{worker}: {count} runs, {rate:.3g} per second", file=sys.stderr)
