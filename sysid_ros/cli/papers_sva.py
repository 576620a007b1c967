"""Repeats the experiments of SVA in simulation: ``sysid papers sva --seeds 3 --results DIR``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sysid_ros.cli.exit_status import ExitStatus, endings, run_command
from sysid_ros.cli.many_runs import add_run_options, carry_out_runs, show
from sysid_ros.core.common.command_line import CommandParser, require_numbers
from sysid_ros.core.common.optional import require_module
from sysid_ros.experiments import sva

LEAST_SCALE = 0.01
"""With shorter experiments there is nothing to see."""


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid papers sva",
        description="Repeats the experiments of SVA section VI in simulation: a double pendulum offline, a leg online, "
        "an arm whose wrong model is replaced, and the cost of the regressor. Tables are printed, figures written.",
        examples=("sysid papers sva --experiment regressor --seeds 2 --scale 0.2",),
        endings=endings(ExitStatus.FAILED),
    )
    parser.add_argument(
        "--experiment", default="all", choices=("all", *sva.EXPERIMENTS), help="which one (default: all)"
    )
    parser.add_argument("--seeds", type=int, default=10, help="runs with other parameters and noise (default: 10)")
    parser.add_argument("--scale", type=float, default=1.0, help="durations over those of the experiments (default: 1)")
    parser.add_argument("--results", default="results/sva", help="folder for runs.jsonl and figures")
    add_run_options(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run what is missing, print the tables and draw the figures; return the exit status."""
    from sysid_ros.experiments import sva_report

    require_numbers(options, "seeds", least=1)
    require_numbers(options, "scale", least=LEAST_SCALE)
    wanted = sva.EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    if set(wanted) & set(sva.ROBOTS):  # the cost of the regressor needs no simulated robot
        require_module("mujoco")
    jobs = sva.jobs(wanted, options.seeds, options.scale)
    folder = Path(options.results)
    entries, failures = carry_out_runs(sva.run, jobs, folder / "runs.jsonl", (options.workers, options.scheduler))
    show(sva_report, entries, folder)
    return ExitStatus.FAILED if failures else ExitStatus.OK


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its :class:`~sysid_ros.cli.exit_status.ExitStatus`."""
    return run_command(lambda: run(build_parser().parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
