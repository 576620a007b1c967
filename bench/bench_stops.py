"""Tracking errors in stops: proven bounds of stops of random paths beside what certificates leave for them.

``python bench/bench_stops.py [--robot NAME ...] [--paths N] [--seed K]``. A path is a random one of a chain, slow or
fast, with the box of the payload's prior, one of an identified payload, or none. Its stops begin at seven times and
take 0.4 to 1.2 s; each has a proven tracking bound of its own. Ratios are to the bound of the path, as the largest over
joints and time; ``left`` is what a certificate allows (docs/theory/certificates.md, Stops), ``used`` the largest share
of it in any stop. Exit status 1 if a stop needs more than is left.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys

import numpy as np
from _table import describe_machine, print_table

from sysid_ros.core.certification.stop_model import STOP_ERRORS, stop_torque_growths
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound import BoundNotAvailable, choose_payload, tracking_bound
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory

BRAKE_TIMES = 0.4, 0.8, 1.2
DURATION = 3.0
BEGINS = np.linspace(0.1, 0.9, 7) * DURATION
SPEEDS = 0.05, 0.3, 1.0
"""Range of a path, in terms of the largest that keeps the limits of speeds [-]."""


def boxes_of(robot: RobotModel) -> dict[str, tuple[Box, np.ndarray]]:
    """Return boxes and nominal payloads by name."""
    prior = robot.payload_prior
    known = Box.around(prior.nominal, 0.1 * prior.box.width).intersect(prior.box)
    nothing = np.zeros(prior.nominal.size)
    return {
        "prior": (prior.box, prior.nominal),
        "identified": (known, prior.nominal),
        "empty hand": (Box(nothing, nothing), nothing),
    }


def random_path(robot: RobotModel, rng: np.random.Generator, share: float) -> BezierTrajectory:
    """Return a path from rest to rest that uses a share of the limits of speeds."""
    rest, direction = np.zeros(robot.n), rng.uniform(-1.0, 1.0, robot.n)
    path = BezierTrajectory(robot.home, rest, rest, robot.home + direction, DURATION)
    scale = share * np.min(robot.limits.v_max / np.abs(path.velocity_extrema()).max(axis=0))
    return BezierTrajectory(robot.home, rest, rest, robot.home + min(scale, 1.0) * direction, DURATION)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", nargs="*", default=["kinova_gen3_2f85", "kuka_lbr_iiwa14"], help="names of robots")
    parser.add_argument("--paths", type=int, default=4, help="paths of each payload and range")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(describe_machine())
    rng, rows, worst = np.random.default_rng(arguments.seed), [], 0.0
    for name in arguments.robot:
        robot = load_robot(name)
        for payload, (box, guess) in boxes_of(robot).items():
            boxes = robot.theta_box, box
            model = ControlModel.of_boxes(robot, boxes, choose_payload(robot, boxes, guess))
            for share in SPEEDS:
                ratios, used, refused = [], [], 0
                for _ in range(arguments.paths):
                    path = random_path(robot, rng, share)
                    try:
                        own = tracking_bound(robot, model, path)
                    except BoundNotAvailable:
                        refused += 1
                        continue
                    for brake_time in BRAKE_TIMES:
                        growths = stop_torque_growths(path, brake_time, BEGINS)
                        for begin, growth in zip(BEGINS, growths, strict=True):
                            stop = tracking_bound(robot, model, BrakedTrajectory(path, begin, brake_time))
                            found = [
                                float(np.max(stop.position / own.position)),
                                float(np.max(stop.velocity / own.velocity)),
                                float(np.max(stop.torque / own.torque)),
                            ]
                            ratios.append(found)
                            left = [STOP_ERRORS, STOP_ERRORS, 1.0 + float(np.max(growth))]
                            used.append([one / allowed for one, allowed in zip(found, left, strict=True)])
                if ratios:
                    largest, most = np.max(ratios, axis=0), np.max(used, axis=0)
                    worst = max(worst, float(most.max()))
                    rows.append([name, payload, share, len(ratios), refused, *map(float, largest), *map(float, most)])
    columns = ["arm", "payload", "share of speed", "stops", "paths without a bound", "position", "velocity", "torque"]
    columns += ["position used", "velocity used", "torque used"]
    print_table(columns, rows, "Proven bounds of stops over those of their paths, and the share of what is left")
    print(f"largest share of what certificates leave for stops: {worst:.2f}")
    return int(worst > 1.0)


if __name__ == "__main__":
    sys.exit(main())
