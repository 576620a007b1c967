"""Options and progress of commands that make many independent runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sysid_ros.cli.terminal import ProgressDisplay, duration_text
from sysid_ros.core.common.command_line import tell
from sysid_ros.executor import Completion, Job, Progress, ResultsFile, Work, key_of, open_executor, run_all, throughput
from sysid_ros.reports.folders import require_results_root


def _show_progress(display: ProgressDisplay) -> Callable[[Progress], None]:
    last = ""

    def show(progress: Progress) -> None:
        nonlocal last
        completion = progress.completion
        if completion is not None and completion.failure is not None:
            display.message(f"failed: {_name_of(completion)}: {completion.failure}")
        elif completion is not None:
            last = _name_of(completion)
        failed = f", {progress.failed} failed" if progress.failed else ""
        text = f"{progress.done} of {progress.total} runs, {duration_text(progress.elapsed)}{failed}"
        display.update(text, (progress.done + progress.under_way) / max(1, progress.total), last, progress.left)

    return show


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
        results = ResultsFile(path)
        try:
            with ProgressDisplay(sys.stderr) as display:
                failures = run_all(work, jobs, results, executor, _show_progress(display))
        except KeyboardInterrupt:
            done = sum(job in results for job in jobs)
            print(f"stopped: {done} of {len(jobs)} runs are in {path}; the same command goes on", file=sys.stderr)
            raise
        if executor.workers > 1:
            for worker, (count, rate) in throughput(results.entries).items():
                print(f"{worker}: {count} runs, {rate:.3g} per second", file=sys.stderr)
    for failed in failures:
        tell("error: ", f"no result of {_name_of(failed)}: {failed.failure}")
    by_key = {key_of(entry["job"]): entry for entry in results.entries}
    return [by_key[key_of(job)] for job in jobs if job in results], failures


def _name_of(completion: Completion) -> str:
    return " ".join(str(value) for value in completion.job.values() if isinstance(value, str | int) and value != "")
