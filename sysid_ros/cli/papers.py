"""Repeats experiments of the papers in simulation: ``sysid papers safe-id``, ``excite`` and ``sva``."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.many_runs import carry_out_runs
from sysid_ros.cli.parse_others import TABLES
from sysid_ros.core.common.optional import require_module
from sysid_ros.executor import Completion, ResultsFile
from sysid_ros.papers.names import EXCITE_EXPERIMENTS, GUIDING, SVA_EXPERIMENTS, SVA_ROBOTS

Runs = tuple[list[dict[str, Any]], list[Completion]]
"""Entries of all runs that were asked for, and the failures."""


def collect_safe_id(options: argparse.Namespace) -> Runs:
    """Make the runs that are missing: tuning, identifications, then the tasks with the identified models."""
    from sysid_ros.papers import safe_id_runs

    path, where = _place(options)
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


def collect_excite(options: argparse.Namespace) -> Runs:
    """Make the runs that are missing: motions and torques, then guiding with the errors that these have."""
    from sysid_ros.papers import excite

    path, where = _place(options)
    wanted = EXCITE_EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    seconds, seeds = (8.0, 1) if options.quick else (options.seconds, options.seeds)
    entries, failures = carry_out_runs(excite.run, excite.jobs(wanted, seconds, options.recording), path, where)
    if GUIDING in wanted:
        require_module("mujoco")
        more, failed = carry_out_runs(excite.run, excite.guiding_jobs(entries, seeds), path, where)
        return entries + more, failures + failed
    return entries, failures


def collect_sva(options: argparse.Namespace) -> Runs:
    """Make the runs that are missing."""
    from sysid_ros.papers import sva

    wanted = SVA_EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    if set(wanted) & set(SVA_ROBOTS):  # the cost of the regressor needs no simulated robot
        require_module("mujoco")
    return carry_out_runs(sva.run, sva.jobs(wanted, options.seeds, options.scale), *_place(options))


def _place(options: argparse.Namespace) -> tuple[Path, tuple[int, str]]:
    """Return the file of the runs, and who carries them out."""
    return Path(options.results) / "runs.jsonl", (options.workers, options.scheduler)


def run(options: argparse.Namespace) -> int:
    """Make the runs that are missing, print the tables and draw the figures; return the exit status."""
    collect = {"safe_id": collect_safe_id, "excite": collect_excite, "sva": collect_sva}[options.paper]
    entries, failures = collect(options)
    report = import_module(f"sysid_ros.papers.{options.paper}_report")
    for table in report.tables(entries):
        print(f"\n{table}")
    print(f"\n{report.verdict(entries)}")
    for path, caption in report.draw_figures(entries, Path(options.results)):
        print(f"{path}: {caption}")
    return ExitStatus.FAILED if failures else ExitStatus.OK
