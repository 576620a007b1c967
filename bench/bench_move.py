"""What bounds are good for: the same moves from rest to rest with the payload's prior, after weighing, and identified.

``python bench/bench_move.py [--moves N] [--payload NAME]``. A simulated arm holds a payload. Its identification runs in
lock-step (Algorithm 2 with certified plans), then random moves from the home posture are planned and certified with
three boxes of the payload: the prior, what weighing at rest has left of it, and what was identified. Every move is as
short as can be proven safe. The row "prior" is the baseline.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse

import numpy as np
from _closed_loop import Running, Trial, run_trial
from _table import describe_machine, print_table
from bench_certified_planner import weigh

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanRequest
from sysid_ros.core.tracking_bound.loop_response import BoundNotAvailable
from sysid_ros.drivers.mujoco.simulation import Noise, load_payload

SCENE = Scene((), ground_height=0.0)


def identify(robot, planner: CertifiedPlanner, payload: np.ndarray):  # noqa: ANN001, ANN201
    """Estimate of the payload after five certified plans."""
    trial = Trial(1, robot.theta_nominal, payload, Noise.UNIFORM, SCENE, robot.home, (0.3,), 1, {})
    seen: dict[str, Running] = {}
    outcome = run_trial(
        robot, planner, trial, plans=5, time_limit=10.0, event=lambda running: seen.update(trial=running)
    )
    estimate = seen["trial"].backend.latest()
    if outcome.violations or estimate is None or not estimate.is_consistent:
        raise SystemExit(f"the identification ended with: {outcome.ended}; {outcome.violations}")
    return estimate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=12, help="random moves")
    parser.add_argument("--size", type=float, default=0.3, help="size of the moves, of 1.2 rad at most [-]")
    parser.add_argument("--payload", default="dumbbell_4lb", help="what the arm holds")
    arguments = parser.parse_args()
    robot = load_robot()
    planner, payload = CertifiedPlanner(robot), load_payload(robot, arguments.payload)
    weighed, estimate = weigh(robot, robot.home, payload, 1), identify(robot, planner, payload)
    known = {
        "prior": Assumptions.of_payload(robot, scene=SCENE),
        "weighed at rest": Assumptions.of_payload(robot, weighed.boxes[1], scene=SCENE),
        "identified": Assumptions.of_payload(robot, estimate.box, estimate.values, scene=SCENE),
    }
    rng = np.random.default_rng(3)
    reach = arguments.size * np.array([1.2, 0.5, 1.0, 0.6, 1.0, 0.6, 1.2])
    steps = rng.uniform(-reach, reach, (arguments.moves, robot.n))
    print(describe_machine())
    found: dict[str, list] = {}
    for name, assumptions in known.items():
        found[name] = []
        for step in steps:
            try:
                found[name].append(planner.plan_to(PlanRequest(assumptions, robot.home, goal=robot.home + step)))
            except (PlanRejected, BoundNotAvailable):
                found[name].append(None)
    common = [i for i in range(len(steps)) if all(plans[i] is not None for plans in found.values())]
    limits = robot.limits.tau_max

    def median(name: str, value) -> float:  # noqa: ANN001
        return float(np.median([value(found[name][i]) for i in common])) if common else float("nan")

    rows = [
        [
            name,
            float(known[name].boxes[1].radius[0]),
            f"{sum(plan is not None for plan in plans)} of {len(plans)}",
            median(name, lambda plan: plan.trajectory.duration),
            median(name, lambda plan: float(np.degrees(plan.certificate.tracking_bound.max()))),
            median(name, lambda plan: float((plan.certificate.torque_bound / limits).max())),
            median(name, lambda plan: next(m.value for m in plan.certificate.margins if m.limit is LimitKind.TORQUE)),
        ]
        for name, plans in found.items()
    ]
    headings = ["payload", "mass +- [kg]", "moves certified", "duration [s]", "tracking bound [deg]",
                "feedback torque [-]", "torque margin [-]"]  # fmt: skip
    title = f"Medians over the {len(common)} moves that all can make; torques as shares of their limits"
    print_table(headings, rows, title)


if __name__ == "__main__":
    main()
