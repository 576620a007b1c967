"""Finds the heaviest object that a motion is certified for: ``sysid how-heavy --goal 0.8 0.4 0.4 1.2 0.3 1.5 0.4``."""

from __future__ import annotations

import argparse

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.options import read_posture
from sysid_ros.cli.terminal import show
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.planning.heaviest import find_heaviest


def run(options: argparse.Namespace) -> int:
    """Print the heaviest object; the exit status is a failure where there is none."""
    robot = load_robot(options.model)
    start, goal = read_posture(robot, "--start", options.start), read_posture(robot, "--goal", options.goal)
    mass, plan, reason = find_heaviest(robot, start, goal, Scene(ground_height=options.ground))
    if plan is None:
        show(f"No object, however light, has a certified motion: {reason}")
        return ExitStatus.FAILED
    duration = plan.trajectory.duration
    show(f"Certified with any object of up to {mass:.2f} kg: a straight motion of {duration:.2f} s, and a hold")
    show(f"What heavier ones break: {reason}")
    show(f"CoM and radius of gyration are anywhere in the payload prior {robot.payload_prior.name}.")
    return ExitStatus.OK
