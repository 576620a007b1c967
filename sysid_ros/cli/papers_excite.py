"""Repeats the experiments of EXCITE: ``sysid papers excite --quick --recording FILE --results DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.many_runs import carry_out_runs, show
from sysid_ros.core.common.optional import require_module
from sysid_ros.executor import Completion
from sysid_ros.papers import excite
from sysid_ros.papers.names import EXCITE_EXPERIMENTS, GUIDING


def collect_runs(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Completion]]:
    """Make the runs that are missing: motions and torques, then guiding with the errors that these have.

    Returns:
        Entries of all runs that were asked for, and the failures.
    """
    path, where = Path(options.results) / "runs.jsonl", (options.workers, options.scheduler)
    wanted = EXCITE_EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    seconds, seeds = (8.0, 1) if options.quick else (options.seconds, options.seeds)
    entries, failures = carry_out_runs(excite.run, excite.jobs(wanted, seconds, options.recording), path, where)
    if GUIDING in wanted:
        require_module("mujoco")
        more, failed = carry_out_runs(excite.run, excite.guiding_jobs(entries, seeds), path, where)
        return entries + more, failures + failed
    return entries, failures


def run(options: argparse.Namespace) -> int:
    """Make the missing runs, print the tables and draw the figures; return the exit status."""
    from sysid_ros.papers import excite_report

    entries, failures = collect_runs(options)
    show(excite_report, entries, Path(options.results))
    return ExitStatus.FAILED if failures else ExitStatus.OK
