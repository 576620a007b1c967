"""Repeats the experiments of SAFE-ID in simulation: ``sysid papers safe-id --experiment table-3 --seeds 10``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.many_runs import carry_out_runs, show
from sysid_ros.cli.parse_others import TABLES
from sysid_ros.core.common.optional import require_module
from sysid_ros.executor import Completion, ResultsFile
from sysid_ros.papers import safe_id_runs


def collect_runs(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Completion]]:
    """Make the runs that are missing: tuning, identifications, then the tasks with what was identified.

    Returns:
        Entries of all runs that were asked for, and the failures.
    """
    path, where = Path(options.results) / "runs.jsonl", (options.workers, options.scheduler)
    if options.done:
        return ResultsFile(path).entries, []
    for name in ("mujoco", "casadi"):
        require_module(name)
    wanted = TABLES if options.experiment == "all" else (options.experiment,)
    found: list[dict[str, Any]] = []
    failures: list[Completion] = []

    def carry_out(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        entries, failed = carry_out_runs(safe_id_runs.run, jobs, path, where)
        found.extend(entries)
        failures.extend(failed)
        return entries

    if "table-4" in wanted:
        periods = (10.0, 2.0)
        carry_out([{"kind": "conditions", "motions": options.motions, "seed": 0, "period": one} for one in periods])
    needs_tasks = bool({"table-2", "table-3"} & set(wanted))
    if not needs_tasks and "table-5" not in wanted:
        return found, failures
    chosen = [safe_id_runs.METHODS[name] for name in options.methods]
    ways = {one.way for one in chosen if one.way and needs_tasks}
    if "table-5" in wanted:
        ways |= {safe_id_runs.OURS, safe_id_runs.CERTIFIED, safe_id_runs.RANDOM}
    gains: dict[str, dict[str, float]] = {}
    if needs_tasks:
        kinds = {one.controller for one in chosen}
        tuning = safe_id_runs.tuning_jobs(options.profile)
        tuning = [job for job in tuning if safe_id_runs.METHODS[job["method"]].controller in kinds]
        gains = safe_id_runs.choose_gains(carry_out(tuning))
    # An arm that moves before the task needs certified plans; without any, one way stands for dumbbells and arms.
    identified = carry_out(
        safe_id_runs.identification_jobs(
            options.profile, options.seeds, options.dumbbells, sorted(ways) or [safe_id_runs.OURS]
        )
    )
    if needs_tasks:
        carry_out(safe_id_runs.task_jobs(options.profile, gains, identified, options.tasks, options.methods))
    return found, failures


def run(options: argparse.Namespace) -> int:
    """Make the runs that are missing, print the tables and draw the figures; return the exit status."""
    from sysid_ros.papers import safe_id_report

    entries, failures = collect_runs(options)
    show(safe_id_report, entries, Path(options.results))
    return ExitStatus.FAILED if failures else ExitStatus.OK
