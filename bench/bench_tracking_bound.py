"""How large the tracking bound is, how long it takes, and what its measured factor has to cover.

Run: ``python bench/bench_tracking_bound.py [--robot kinova_gen3_2f85]``. Targets: at most 1 deg, and 0.25 s of one core
for a plan of 3 s. What the rows are compared with is in docs/theory/tracking_bound.md. The second table has by how much
slowly varying terms exceed what is estimated from the nodes about them: along the motion, and in corners of the tube
about it, where the differences along all joints add up. ``SAMPLING`` allows for that.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import fields

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from _table import describe_machine, print_table  # noqa: E402

from sysid_ros.core.common.box import Box  # noqa: E402
from sysid_ros.core.control import RobustSettings  # noqa: E402
from sysid_ros.core.control.model import ControlModel  # noqa: E402
from sysid_ros.core.model.loader import load_robot  # noqa: E402
from sysid_ros.core.model.robot import RobotModel  # noqa: E402
from sysid_ros.core.tracking_bound import (  # noqa: E402
    BoundNotAvailable,
    TrackingBound,
    choose_payload,
    tracking_bound,
)
from sysid_ros.core.tracking_bound.model_terms import ModelTerms, TermStates, compute_model_terms  # noqa: E402
from sysid_ros.core.tracking_bound.tube import SAMPLING  # noqa: E402
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory  # noqa: E402

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
    size = 0.002 * np.outer(signs, [2.0, -1.0])
    yield "5 and 10 Hz", FourierTrajectory(robot.home, np.zeros_like(size), size, 5.0, 0.4), None


def excesses(bound: TrackingBound) -> tuple[float, float, str]:
    """Largest relative excess of any term over its estimate, along the motion and in the tube, and its name there."""
    assert bound.proof is not None
    tube_map, position = bound.proof.tube_map, bound.proof.tube.position
    samples, used = tube_map.samples, tube_map.terms.largest
    names = [one.name for one in fields(ModelTerms) if one.name not in ("inertia", "torque_gradient")]

    def shares(nodes: np.ndarray, away: np.ndarray | float) -> np.ndarray:  # (terms, nodes)
        states = TermStates(samples.q[nodes] + away, samples.v[nodes], samples.a[nodes])
        terms = compute_model_terms(tube_map.robot, tube_map.regressor, tube_map.uncertainty, states)
        at_nodes = np.stack([getattr(used, name)[tube_map.spread[nodes]] for name in names])
        return np.stack([getattr(terms, name) for name in names]) / np.maximum(at_nodes, 1e-9)

    along = shares(np.arange(0, tube_map.intervals, 5), 0.0).max()
    nodes = np.unique(np.linspace(0, tube_map.intervals - 1, 15).astype(int))
    size, joints = position[nodes], np.eye(position.shape[1])
    rises = np.stack([shares(nodes, size * one) > shares(nodes, -size * one) for one in joints], axis=-1)
    corners = np.stack([shares(nodes, np.where(one, size, -size)).max(axis=1) for one in rises]).max(axis=0)
    most = max(float(along), float(corners.max()))  # corners are looked at in fewer places
    return max(float(along) - 1.0, 0.0), most - 1.0, names[int(corners.argmax())]


def words(values: np.ndarray, digits: int) -> str:
    return " ".join(f"{x:.{digits}f}" for x in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--delay", type=float, default=1e-3, help="longest delay [s]")
    arguments = parser.parse_args()
    robot, settings = load_robot(arguments.robot), RobustSettings(delay=arguments.delay)
    rows, beyond = [], []
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
            along, corner, term = excesses(bound)
            beyond.append([name, motion_name, f"{100.0 * along:.2f}", f"{100.0 * corner:.2f}", term.replace("_", " ")])
    columns = ["payload", "motion", "inertia ratios", "position [deg]", "velocity [rad/s]", "torque [Nm]", "CPU [s]"]
    print_table(
        columns, rows, f"{describe_machine()}, load {os.getloadavg()[0]:.1f}; delay {1e3 * settings.delay:g} ms"
    )
    columns = ["payload", "motion", "along the motion [%]", "in the tube [%]", "most there"]
    allowed = f"allowed are {100.0 * (SAMPLING - 1.0):.1f} %"
    print_table(columns, beyond, f"Slowly varying terms over what is estimated from their nodes; {allowed}")


if __name__ == "__main__":
    main()
