"""Excitation of whole arms: condition numbers of proven motions.

``python bench/bench_whole_arm.py [robot ...] [--duration S] [--time S] [--best] [--bare]``. Arms
carry nothing, or a tool of 0.8 kg known within a tenth, in a scene with the ground and the tool's spheres. Arms of
which no motion can be certified as they are shipped are taken as known within a fifth, and controlled with larger
gains. Each motion keeps a clearance of 2 cm in the search and is certified with its own tracking bound; a search makes
one start after the other until a proven motion has the condition number that is wanted, or its time is over
(``--best``: it takes all its time). Time is processor time of one core, as other processes only ever add time. Where
the number is not reached the motion is planned once more, without a proof, with one limit taken away, and another one
is searched for from random motions, at all speeds, with half of the tracking errors and with none: what the arm's own
limits and its rigid torque allow. The paper's
motion for a Med7 with a tool has the condition number 51 and took 10 minutes for three starts, unproven (EXCITE
section V-B).
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from dataclasses import replace

import numpy as np
from _table import describe_machine, print_lead, print_table

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.possible import require_certifiable
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.collision.clearance import CollisionModel
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.excitation.criteria import BaseParameters
from sysid_ros.core.excitation.model import ExcitationModel, NoExcitationFound
from sysid_ros.core.excitation.planner import base_regressor, condition_number, plan_excitation
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.excitation.whole_arm import (
    ArmExcitation,
    PlannedErrors,
    excitation_model,
    plan_arm_excitation,
)
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.robot_files import available_robots
from sysid_ros.core.trajectories.families import FourierTrajectory
from sysid_ros.papers.excite import assumptions_of

ARM_KNOWN = 0.2
"""Share within which arms are known of which nothing can be certified as they are shipped."""
STIFF = RobustSettings(position_gain=14.0, integral_gain=14.0)
"""Gains for these: twice the default ones, whose errors their large friction makes too large."""
WANTED, WITHIN = 20.0, 60.0
"""Condition number that is wanted, and the processor time to find it [s]."""
PAPER = ["EXCITE, LBR Med7", "-", "tool", 600.0, 3, 51.0, "-", "-", "-", "-", "not proven"]
WITHOUT = FEEDBACK, COLLISIONS, SPEEDS = "without feedback torque", "without collisions", "without lower speeds"
"""What is taken away, one at a time, to see what limits a motion."""
ANEW = {"with half the errors": 0.5, "with no errors": 0.0}
"""Shares of its tracking errors with which another motion is searched for at all speeds."""
NO_COLLISIONS = CollisionModel((), np.zeros((0, 2), dtype=int), np.zeros(0, dtype=int), (), None)
_WITHOUT_TIME = 8.0
"""Processor time of each of these searches [s]."""
_ANEW_STARTS = 3
"""Most starts of those that begin anew."""


def load_provable(name: str) -> tuple[RobotModel, RobustSettings, str, str]:
    """Load an arm as it is shipped if motions of it can be certified, otherwise as one that is known.

    Returns:
        The arm, its control law, how well it is known, and why not as it is shipped; empty if it is.
    """
    robot = load_robot(name)
    try:
        require_certifiable(robot)
    except SysidError as error:
        return load_robot(name, known_within=ARM_KNOWN), STIFF, f"{100 * ARM_KNOWN:g} %", str(error)
    return robot, RobustSettings(), "as shipped", ""


def describe_reached(rows: list[list]) -> str:
    """Say for which arms and hands what is wanted is reached, and what is missing of it for the others."""
    proven = [row for row in rows if row[-1] != "none"]
    missed = [
        f"{row[0]} ({row[2]}): {row[5]:.3g} in {row[3]:.0f} s" for row in proven if row[5] > WANTED or row[3] > WITHIN
    ]
    text = f"A condition number of at most {WANTED:g} in at most {WITHIN:g} s of processor time, proven: "
    text += f"{len(proven) - len(missed)} of {len(rows)} arms and hands"
    text += f"; not reached by {', '.join(missed)}" if missed else ""
    without = sorted({row[0] for row in rows if row[-1] == "none"})
    return text + (f"; no motion can be proven for {', '.join(without)}." if without else ".")


def describe_limits(found: ArmExcitation, assumptions: Assumptions, settings: ExcitationSettings) -> list[object]:
    """Tell what limits a motion: the joint whose feedback takes most, the smallest margin, and what would move it.

    Returns:
        Two words, and the condition numbers of motions that are planned without one limit each, and anew with smaller
        errors; a dash for none.
    """
    plan, robot = found.plans[0], assumptions.robot
    bound = plan.bound
    shares = bound.torque / robot.limits.tau_max
    joint = int(np.argmax(shares))
    relative = [margin for margin in plan.certificate.margins if not margin.limit.is_of_the_path]
    least = min(relative, key=lambda margin: margin.value)
    words = [
        f"{100 * shares[joint]:.0f} % ({robot.joint_names[joint]})",
        f"{least.limit.value}, {least.place}: {100 * least.value:.0f} %",
    ]
    errors = PlannedErrors(np.array(bound.position), np.array(bound.velocity), np.array(bound.torque))
    model = excitation_model(assumptions, errors)
    full = replace(settings, duration=plan.duration, starts=1, time_budget=_WITHOUT_TIME)
    slow, numbers = full.with_speed_share(found.speed_share), list[object]()
    slow = replace(slow, harmonics=max(slow.harmonics, plan.trajectory.coefficients["sine"].shape[1]))

    def plan_with(model: ExcitationModel, settings: ExcitationSettings, begin_with: FourierTrajectory | None) -> str:
        try:
            one = plan_excitation(model, robot.home, settings, begin_with=begin_with, clock=time.process_time)
            return f"{one.condition_number:.3g}"
        except NoExcitationFound:
            return "-"

    for what in WITHOUT:
        other = {
            FEEDBACK: replace(model, feedback_torque=np.zeros(robot.n)),
            COLLISIONS: replace(model, collision=NO_COLLISIONS),
        }.get(what, model)
        faster = replace(slow, velocity_fraction=full.velocity_fraction) if what == SPEEDS else slow
        numbers.append(plan_with(other, faster, plan.trajectory))
    anew = replace(full, starts=_ANEW_STARTS, wanted_condition_number=0.0)
    for share in ANEW.values():
        smaller = replace(
            errors, position=share * errors.position, velocity=share * errors.velocity, torque=share * errors.torque
        )
        numbers.append(plan_with(excitation_model(assumptions, smaller), anew, None))
    return words + numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robots", nargs="*", default=available_robots())
    parser.add_argument("--duration", type=float, default=24.0, help="of a motion [s]")
    parser.add_argument("--time", type=float, default=WITHIN, help="processor time of a search [s]")
    parser.add_argument("--bare", action="store_true", help="without the tool only")
    parser.add_argument("--best", action="store_true", help="take all starts, even if one is good enough")
    arguments = parser.parse_args()
    print(describe_machine())
    rows, unproven, limits = [], [], []
    for name in arguments.robots:
        robot, law, known, why = load_provable(name)
        if why:
            unproven.append(f"as shipped: {why}")
        for has_tool in (False,) if arguments.bare else (False, True):
            settings = ExcitationSettings.for_arm(arguments.duration, parameters="inertial", time_budget=arguments.time)
            if arguments.best:
                settings = replace(settings, wanted_condition_number=0.0)
            assumptions = assumptions_of(robot, has_tool, law)
            begin = time.process_time()
            hand = "tool" if has_tool else "empty"
            try:
                found = plan_arm_excitation(assumptions, robot.home, settings, clock=time.process_time)
            except NoExcitationFound as error:
                rows.append([name, known, hand, time.process_time() - begin, *"------", "none"])
                unproven.append(f"{name}, {hand}: {error}")
                continue
            seconds = time.process_time() - begin
            paths = [plan.trajectory for plan in found.plans]
            seen = base_regressor(robot, BaseParameters.of(robot), paths)
            distance = min(
                margin.value
                for margin in found.plans[0].certificate.margins
                if margin.limit in (LimitKind.SELF_COLLISION, LimitKind.GROUND)
            )
            rows.append(
                [
                    name,
                    known,
                    hand,
                    seconds,
                    found.starts[0],
                    found.condition_number,
                    condition_number(seen.T @ seen),
                    1e3 * distance,
                    f"{100 * found.speed_share:.0f} %",
                    f"{100 * np.max(found.plans[0].bound.torque / robot.limits.tau_max):.0f} %",
                    f"{found.duration:.1f} s",
                ]
            )
            if found.condition_number > WANTED:
                limits.append([name, hand, found.condition_number, *describe_limits(found, assumptions, settings)])
    print_lead(describe_reached(rows))
    header = [
        "arm",
        "known to",
        "hand",
        "CPU time [s]",
        "starts",
        "cond Y_b",
        "with friction",
        "distance left [mm]",
        "speed",
        "feedback",
        "proven motion",
    ]
    print_table(
        header,
        [PAPER, *rows],
        f"Motions planned for {arguments.duration:g} s, searches of at most {arguments.time:g} s of one core; speed: "
        "share of the speed limits that was planned with; feedback: largest share of a torque limit",
    )
    if limits:
        columns = ["arm", "hand", "cond Y_b", "largest feedback", "smallest margin"]
        columns += [*WITHOUT, *ANEW]
        print_table(columns, limits, "What limits those that do not reach it, and what they would have, unproven")
    for line in unproven:
        print(line)


if __name__ == "__main__":
    main()
