"""Repeats the experiments of SVA in simulation: ``sysid papers sva --seeds 3 --results DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.many_runs import carry_out_runs, show
from sysid_ros.core.common.optional import require_module
from sysid_ros.papers import sva
from sysid_ros.papers.names import SVA_EXPERIMENTS, SVA_ROBOTS


def run(options: argparse.Namespace) -> int:
    """Make the missing runs, print the tables and draw the figures; return the exit status."""
    from sysid_ros.papers import sva_report

    wanted = SVA_EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    if set(wanted) & set(SVA_ROBOTS):  # the cost of the regressor needs no simulated robot
        require_module("mujoco")
    jobs = sva.jobs(wanted, options.seeds, options.scale)
    folder = Path(options.results)
    entries, failures = carry_out_runs(sva.run, jobs, folder / "runs.jsonl", (options.workers, options.scheduler))
    show(sva_report, entries, folder)
    return ExitStatus.FAILED if failures else ExitStatus.OK
