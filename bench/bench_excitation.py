"""Exciting trajectories against random motion.

``python bench/bench_excitation.py [robot] [--starts N] [--iterations N] [--criteria bounds d_optimal ...]``. Every plan
has one start and no time limit, so its quality does not depend on how busy the machine is. The baseline, drawn in the
same run, is what one does without an optimiser: random Fourier coefficients, scaled joint by joint to the position,
velocity and acceleration limits, then together until the checks of the excitation planner pass; the best of 20 counts
as a stronger one.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time

import numpy as np
from _table import describe_machine, print_table

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.checks import AllowedErrors
from sysid_ros.core.certification.stop_model import PlanRejected, VerifierSettings
from sysid_ros.core.certification.verify import verify
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.excitation.model import ExcitationModel
from sysid_ros.core.excitation.planner import condition_number, expected_radii, payload_regressor, plan_excitation
from sysid_ros.core.excitation.problem import FourierSpace
from sysid_ros.core.excitation.settings import CRITERIA, ExcitationSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.trajectories.base import Trajectory

SCALES = np.linspace(1.0, 0.05, 20)
DRAWS = 20
TRACKING = AllowedErrors(np.full(7, 0.01), np.full(7, 0.02), np.zeros(7))
"""Errors of a controller that the plans leave room for."""


def is_certified(model: ExcitationModel, trajectory: Trajectory, fraction: float) -> bool:
    settings = VerifierSettings(torque_fraction=fraction)
    errors = AllowedErrors(model.tracking_position, model.tracking_velocity, model.feedback_torque)
    boxes, nominal = (model.arm_box, model.payload_box), model.robot.payload_prior.nominal
    try:
        verify(Assumptions(model.robot, boxes, nominal, Scene(ground_height=0.0)), trajectory, errors, settings)
    except PlanRejected:
        return False
    return True


def random_motion(model: ExcitationModel, settings: ExcitationSettings, rng: np.random.Generator) -> Trajectory:
    """Random coefficients, scaled to the limits."""
    space = FourierSpace(model.robot.home, settings.harmonics, settings.duration, settings.samples)
    x = rng.normal(size=(space.n, space.per_joint))
    motion, limits = space.trajectory(x), model.robot.limits
    lower, upper = motion.position_extrema()
    reach = np.maximum(upper - motion.q_start, motion.q_start - lower) / settings.amplitude
    speed = np.maximum(*np.abs(motion.velocity_extrema())) / (settings.velocity_fraction * limits.v_max - 0.02)
    rate = np.maximum(*np.abs(motion.acceleration_extrema())) / (settings.acceleration_fraction * limits.a_max)
    x /= np.maximum.reduce([reach, speed, rate])[:, None]
    fits = (space.trajectory(scale * x) for scale in SCALES)
    return next((one for one in fits if is_certified(model, one, settings.torque_fraction)), space.trajectory(0.0 * x))


def describe(model: ExcitationModel, trajectory: Trajectory, window: float) -> tuple[float, float, float]:
    """Condition number of W_e, expected half width of the mass [kg], mean half width relative to the prior [-]."""
    regressor = payload_regressor(model.robot, trajectory)
    widths = expected_radii(model, [trajectory], window)
    relative = float(np.exp(np.log(widths / model.payload_box.radius).mean()))
    return condition_number(regressor.T @ regressor), float(widths[0]), relative


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robot", nargs="?", default="kinova_gen3_2f85")
    parser.add_argument("--starts", type=int, default=5, help="starts, each with its own seed")
    parser.add_argument("--iterations", type=int, default=40, help="solver iterations per start")
    parser.add_argument("--criteria", nargs="+", choices=CRITERIA, default=["bounds", "d_optimal", "condition_number"])
    arguments = parser.parse_args()
    robot = load_robot(arguments.robot)
    model = ExcitationModel.of(robot, tracking=TRACKING, ground_height=0.0)
    print(describe_machine())
    rows = []
    for criterion in arguments.criteria:
        plans, waits, certified = [], [], 0
        for seed in range(arguments.starts):
            settings = ExcitationSettings(
                criterion=criterion, starts=1, seed=seed, max_iterations=arguments.iterations, time_budget=3600.0
            )
            begin = time.perf_counter()
            plan = plan_excitation(model, robot.home, settings)
            waits.append(time.perf_counter() - begin)
            certified += is_certified(model, plan.trajectory, 1.0)
            plans.append(describe(model, plan.trajectory, settings.window))
        rows.append([criterion, *summary(waits, plans), f"{certified} of {arguments.starts}"])
    settings, rng = ExcitationSettings(), np.random.default_rng(0)
    draws, waits = [], []
    for _ in range(DRAWS):
        begin = time.perf_counter()
        motion = random_motion(model, settings, rng)
        waits.append(time.perf_counter() - begin)
        draws.append(describe(model, motion, settings.window))
    best = [min(draws, key=lambda values: values[2])]
    rows.append(["random", *summary(waits, draws), f"{DRAWS} of {DRAWS}"])
    rows.append([f"best of {DRAWS} random", *summary([sum(waits)], best), "1 of 1"])
    print_table(
        [
            "criterion",
            "time [s]",
            "cond W_e median",
            "best",
            "worst",
            "mass +- [kg]",
            "widths / prior [-]",
            "certified",
        ],
        rows,
        f"{arguments.robot}, {settings.duration:g} s, {settings.harmonics} harmonics; medians over the starts",
    )


def summary(waits: list[float], values: list[tuple[float, float, float]]) -> list[float]:
    condition, mass, widths = (np.array(column) for column in zip(*values, strict=True))
    time_taken, median = float(np.median(waits)), float(np.median(condition))
    return [time_taken, median, condition.min(), condition.max(), float(np.median(mass)), float(np.median(widths))]


if __name__ == "__main__":
    main()
