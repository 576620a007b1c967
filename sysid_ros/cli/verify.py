"""Checks certified plans again: ``sysid_verify recording.mcap``.

Everything is done anew: hashes, start states, times, the controller's tracking bound from plan to plan, and the proof
over continuous time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.recheck import BoundRechecker, check_sequence, recheck
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.files import read_plans

_HEADINGS = ("plan", "issued [s]", "takes over from", "brake [s]", "tightest margin", "where, when", "result")


def verify_plans(
    plans: Sequence[CertifiedPlan], model: str | None = None, stop_spacing: float = 0.0
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Check plans again in full.

    Args:
        plans: The plans in the order they were issued.
        model: Name or settings file of the robot; None takes the name in each plan.
        stop_spacing: Distance of the times at which the bounds of stops along the path are proven [s]; 0 for none.

    Returns:
        Rows of the table, and all problems in sentences.

    Raises:
        ModelError: The robot is not known here.
    """
    tools: dict[str, tuple[RobotModel, BoundRechecker]] = {}
    rows: list[tuple[str, ...]] = []
    problems: list[str] = []
    for plan, in_sequence in zip(plans, check_sequence(plans), strict=True):
        name = model or plan.robot_name
        if name not in tools:
            robot = load_robot(name)
            tools[name] = robot, BoundRechecker(robot, stop_spacing=stop_spacing)
        robot, bounds = tools[name]
        found = recheck(robot, plan)
        certificate = plan.certificate
        wrong = [*found.problems, *in_sequence, *bounds.check(plan)]
        problems += [f"plan {plan.plan_id[:12]}: {sentence}" for sentence in wrong]
        tightest, where = "-", "-"
        if found.verification is not None:
            smallest = min(found.verification.margins.values(), key=lambda margin: margin.value)
            tightest = f"{smallest.limit.value} {smallest.value:.4f} [{smallest.limit.margin_unit}]"
            where = f"{smallest.place}, {smallest.time:.3f} s"
        rows.append(
            (
                plan.plan_id[:12],
                f"{certificate.issued_at:.3f}",
                "rest" if plan.predecessor is None else plan.predecessor[:12],
                f"{certificate.brake_time:g}",
                tightest,
                where,
                "HOLDS" if not wrong else "DOES NOT HOLD",
            )
        )
    return rows, problems


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the options of the command."""
    parser = argparse.ArgumentParser(prog="sysid_verify", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="recording (.mcap), or certified plans as YAML or JSON")
    parser.add_argument("--model", help="name or settings file of the robot; default: the name in each plan")
    parser.add_argument(
        "--stops",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="distance of the times at which the tracking bounds of stops along the path are proven, too; 0: none",
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Print a table; return 0 if every certificate holds, 1 if one does not, 2 if the input cannot be used."""
    options = build_parser().parse_args(argv)
    try:
        if not 0.0 <= options.stops < np.inf:
            raise ParameterOutOfRange("--stops [s]", options.stops, "0 or more")
        rows, problems = verify_plans(read_plans(options.file), options.model, options.stops)
    except SysidError as error:
        print(error, file=sys.stderr)
        return ExitStatus.BAD_INPUT
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    for row in (_HEADINGS, tuple("-" * width for width in widths), *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for sentence in problems:
        print(sentence)
    held = sum(row[-1] == "HOLDS" for row in rows)
    print(f"{held} of {len(rows)} certificates hold")
    return ExitStatus.OK if not problems else ExitStatus.FAILED


if __name__ == "__main__":
    sys.exit(main())
