"""Identifies a free-flying robot: ``sysid_space`` with simulation and nodes, ``sysid_space --recording`` offline.

The first starts the processes of :data:`sysid_ros.processes.SPACE`, as ``space_robot.launch.py`` does, on a private ROS
domain that stays on this machine, sends one goal and ends everything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.suite import (
    Suite,
    add_launch_options,
    client_of,
    launch_values,
    say,
    say_where,
    suite_environment,
)
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.free_floating.procedure import (
    FreeFlyerIdentification,
    ProcedureSettings,
    estimate_free_flyer,
    select_motion,
)
from sysid_ros.core.free_floating.regression import Method
from sysid_ros.core.free_floating.robot import load_free_flyer
from sysid_ros.processes import SPACE_ARGUMENTS, resolve_space
from sysid_ros.reports.free_flyer import write_free_flyer
from sysid_ros.reports.recordings.free_flyer import read_free_flyer_recording
from sysid_ros.reports.writer import make_results_directory

CLIENT_MODULE = "sysid_ros.nodes.free_flyer_client"
"""Sends the goal and shows progress; its exit status is that of the runner."""


def build_parser() -> argparse.ArgumentParser:
    """Build the command line: the launch arguments as options, and what only the runner has."""
    parser = argparse.ArgumentParser(
        prog="sysid_space", description="Identifies the minimal parameters of a free-flying robot.", allow_abbrev=False
    )
    add_launch_options(parser, SPACE_ARGUMENTS)
    parser.add_argument("--recording", type=Path, help="estimate from this recording.mcap, without nodes")
    parser.add_argument(
        "--method", choices=[method.value for method in Method], default=Method.TOTAL.value, help="offline: the method"
    )
    parser.add_argument("--unknown-momentum", action="store_true", help="offline: estimate the momentum too")
    parser.add_argument("--max-motion-time", type=float, default=0.0, help="longest motion [s]; 0: default")
    parser.add_argument("--parts", type=int, default=0, help="parts of the motion; 0: default")
    parser.add_argument("--planning-time", type=float, default=30.0, help="time for planning [s] (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="seed of simulation and search")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command ``sysid_space``; returns its exit status."""
    options = build_parser().parse_args(argv)
    try:
        if options.recording is not None:
            return _offline(options)
        started = resolve_space(launch_values(options, SPACE_ARGUMENTS))
        load_free_flyer(options.model)
        results = make_results_directory(options.results)
        environment = suite_environment(results / "log", options.domain_id)
    except SysidError as error:
        say(str(error))
        return ExitStatus.BAD_INPUT
    client = None
    if not options.nodes_only:
        words = ["--results", str(results), "--seed", str(options.seed)]
        words += ["--max-motion-time", str(options.max_motion_time), "--parts", str(options.parts)]
        client = client_of(CLIENT_MODULE, words, options.robot_name)
    say_where(environment, results / "log")
    parameters = {
        "free_flyer_driver": {"seed": options.seed},
        "free_flyer_identification": {"excitation_time_limit": options.planning_time},
    }
    return Suite(started, client, results / "log", environment, parameters).run()


def summarize(identification: FreeFlyerIdentification) -> str:
    """Return what was found in a few lines."""
    estimate, before = identification.estimate, identification.believed
    scale = np.maximum(np.abs(estimate.values), 1e-12)
    change, deviation = np.abs(estimate.values - before) / scale, estimate.deviations / scale
    return "\n".join(
        (
            f"{identification.minimal.count} minimal parameters from {len(identification.data)} samples, "
            f"condition number {identification.condition_number:.0f}",
            f"median standard deviation {100 * np.median(deviation):.2g} %, largest {100 * deviation.max():.2g} %",
            f"median change from what was believed before {100 * np.median(change):.2g} %",
        )
    )


def _offline(options: argparse.Namespace) -> int:
    robot = load_free_flyer(options.model)
    settings = ProcedureSettings(method=Method(options.method), is_momentum_zero=not options.unknown_momentum)
    samples = read_free_flyer_recording(options.recording, robot)
    identification = estimate_free_flyer(robot, select_motion(robot, samples), settings)
    results = make_results_directory(options.results)
    write_free_flyer(identification, results)
    print(summarize(identification))
    print(f"Files: {results}")
    return ExitStatus.OK


if __name__ == "__main__":
    sys.exit(main())
