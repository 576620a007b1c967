"""How large the tracking bound is, and how long it takes.

Run: ``python bench/bench_tracking_bound.py [--robot kinova_gen3_2f85]``. Targets: at most 1 deg, and 0.25 s of one core
for a plan of 3 s. What the rows are compared with is in docs/theory/tracking_bound.md.
"""

from __future__ import annotations

import argparse
import os
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from _table import describe_machine, print_table  # noqa: E402

from sysid_ros.core.common.box import Box  # noqa: E402
from sysid_ros.core.control import RobustSettings  # noqa: E402
from sysid_ros.core.control.model import ControlModel  # noqa: E402
from sysid_ros.core.model.loader import load_robot  # noqa: E402
from sysid_ros.core.model.robot import RobotModel  # noqa: E402
from sysid_ros.core.tracking_bound import BoundNotAvailable, choose_payload, tracking_bound  # noqa: E402
from sysid_ros.core.trajectories.families import BezierTrajectory  # noqa: E402

T_P, DURATION, RANGE = 1.5, 3.0, 0.26


def cases(robot: RobotModel) -> dict[str, tuple[tuple[Box, Box], np.ndarray]]:
    """Boxes and nominal payloads by name."""
    prior = robot.payload_prior
    known = Box.around(prior.nominal, 0.075 * prior.box.width).intersect(prior.box)
    found = {
        f"prior, {prior.box.lower[0]:g} to {prior.box.upper[0]:g} kg": (prior.box, prior.nominal),
        "+- 7.5 % of the prior's box": (known, prior.nominal),
    }
    if "safe_id_table_1" in robot.payload_priors:
        table, body = robot.prior("safe_id_table_1"), robot.theta_nominal[robot.inertial_slice(robot.n)]
        box = Box(table.box.lower - body, table.box.upper - body)
        own = Box(np.r_[0.0, box.lower[1:]], box.upper)
        found["Table I, payload a body"] = (own, np.clip(table.nominal - body, own.lower, own.upper))
        found["Table I"] = (box, table.nominal - body)
    return {
        name: ((robot.theta_box, box), choose_payload(robot, (robot.theta_box, box), payload))
        for name, (box, payload) in found.items()
    }


def motions(robot: RobotModel, boxes: tuple[Box, Box], payload: np.ndarray, settings: RobustSettings):
    """Names, motions and histories; where the first plan has no bound there is no chain."""
    zero, signs = np.zeros(robot.n), np.resize([1.0, 1.0, -1.0], robot.n)
    first = BezierTrajectory(robot.home, zero, zero, robot.home + RANGE, DURATION)
    yield "hold", robot.home, None
    yield "0.1 rad in 3 s", BezierTrajectory(robot.home, zero, zero, robot.home + 0.1, DURATION), None
    yield "0.26 rad in 3 s", first, None
    try:
        history = tracking_bound(robot, ControlModel.of_boxes(robot, boxes, payload), first, settings).until(T_P)
    except BoundNotAvailable:
        pass
    else:
        state = first.evaluate(T_P)
        yield "0.26 rad, next plan", BezierTrajectory(*state, state[0] - RANGE * signs, DURATION), history
    yield "1 rad/s", BezierTrajectory(robot.home, zero, zero, robot.home + signs, 1.9), None


def words(values: np.ndarray, digits: int) -> str:
    return " ".join(f"{x:.{digits}f}" for x in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--delay", type=float, default=1e-3, help="longest delay [s]")
    arguments = parser.parse_args()
    robot, settings = load_robot(arguments.robot), RobustSettings(delay=arguments.delay)
    rows = []
    for name, (boxes, payload) in cases(robot).items():
        for motion_name, motion, history in motions(robot, boxes, payload, settings):
            begin = time.process_time()
            try:
                bound = tracking_bound(robot, ControlModel.of_boxes(robot, boxes, payload), motion, settings, history)
            except BoundNotAvailable:
                rows.append([name, motion_name, "", "none", "", "", time.process_time() - begin])
                continue
            took = time.process_time() - begin
            ratios = "{:.2f} {:.2f}".format(*bound.inertia_ratios)
            shown = words(np.degrees(bound.position), 2), words(bound.velocity, 2), words(bound.torque, 1)
            rows.append([name, motion_name, ratios, *shown, took])
    columns = ["payload", "motion", "inertia ratios", "position [deg]", "velocity [rad/s]", "torque [Nm]", "CPU [s]"]
    print_table(
        columns, rows, f"{describe_machine()}, load {os.getloadavg()[0]:.1f}; delay {1e3 * settings.delay:g} ms"
    )


if __name__ == "__main__":
    main()
