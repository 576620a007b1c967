"""Checks the load entered in a controller, finds the heaviest certified one: ``sysid check-load``, ``how-heavy``."""

from __future__ import annotations

import argparse

import numpy as np

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.options import read_posture
from sysid_ros.cli.terminal import make_table, show
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.loader import load_robot
from sysid_ros.reports.estimate_yaml import read_exported
from sysid_ros.reports.payload import felt_torques


def check_load(options: argparse.Namespace) -> int:
    """Compare mass and CoM with their bounds, and show the external torques; the exit status says whether they fit."""
    found = read_exported(options.folder, accept_uncertain=True)
    robot = load_robot(options.model or found.robot)
    load = found.at_tool if options.at == "tool" else found.behind_flange
    q = read_posture(robot, "--posture", options.posture)
    mass, com = options.mass, np.array(options.com)
    rows, fits = [], load.mass.contains(mass) & np.all(load.com.contains(com))
    for value, (_, name, unit, known) in zip((mass, *com), load.rows, strict=False):  # without the moments
        unit, scale = ("mm", 1e3) if unit == "m" else (unit, 1.0)
        numbers = (f"{scale * one:.4g}" for one in (value, known.lower, known.upper))
        name = name.replace("centre of mass", "CoM")
        rows.append((name, unit, *numbers, "yes" if known.contains(value) else "NO"))
    what = "the payload alone" if options.at == "tool" else "payload and tool"
    show(f"Load of a controller of {found.robot}, in the frame {load.frame} ({what}), against {found.path}")
    show(make_table(("", "unit", "entered", "lower", "upper", "inside"), rows, left=2))
    torques = felt_torques(robot, load, from_com_form(mass, com, np.zeros((3, 3))), q)
    where = "home posture" if options.posture is None else "posture given"
    show(f"External torque that this controller sees at rest in the {where}, at most:")
    seen = [(name, f"{one:.2f}") for name, one in zip(robot.joint_names, torques, strict=True)]
    show(make_table(("joint", "Nm"), seen))
    show(
        "The load agrees with the bounds." if fits else "The load is wrong: what is marked NO lies outside the bounds."
    )
    return ExitStatus.OK if fits else ExitStatus.FAILED


def how_heavy(options: argparse.Namespace) -> int:
    """Print the heaviest object; the exit status is a failure where there is none."""
    from sysid_ros.core.planning.heaviest import find_heaviest  # takes a while to load

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
