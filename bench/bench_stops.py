"""Tracking errors in stops against those of their paths.

``python bench/bench_stops.py [--robot NAME ...] [--paths N] [--seed K]``. A path is a random one of a chain, slow or
fast, with the box of the payload's prior, one of an identified payload, or none. Ratios are to the bound of the path,
as the largest over joints and time. Single stops begin at seven times, at nodes of their samples, and have a bound of
their own; ``single of all`` is the largest share of the bound of all stops and of the path that one of them takes. The
time is that of the bound of all stops, over the time of the bound of the path. Exit status 1 if a single stop takes
more than is proven of all.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np
from _table import describe_machine, print_table

from sysid_ros.core.common.box import Box
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound import BoundNotAvailable, TrackingBound, choose_payload, tracking_bound
from sysid_ros.core.tracking_bound.stops import StopBound
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory

BRAKE_TIMES = 0.5, 0.8, 1.2, 2.0
DURATION = 3.0
BEGINS = 0.02 * np.round(np.linspace(0.1, 0.9, 7) * DURATION / 0.02)
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


def shares(bound: TrackingBound, stops: StopBound, one: TrackingBound) -> list[float]:
    """Return the shares of what is proven of path and stops that the bound of one stop takes."""
    largest = (stops.position, stops.velocity.max(axis=0), stops.torque.max(axis=0))
    pairs = zip(("position", "velocity", "torque"), largest, strict=True)
    return [float(np.max(getattr(one, name) / np.maximum(getattr(bound, name), allowed))) for name, allowed in pairs]


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
                paths = [random_path(robot, rng, share) for _ in range(arguments.paths)]
                found = np.array(list(all_of(robot, model, paths)))
                if found.size:
                    largest = found.max(axis=0)
                    worst = max(worst, float(largest[6:9].max()))
                    shown = [*largest[:6], largest[6:9].max(), np.median(found[:, 9])]
                    rows.append([name, payload, share, len(found) * BEGINS.size, *map(float, shown)])
    columns = ["arm", "payload", "share of speed", "single stops", "position", "velocity", "torque"]
    columns += ["single: position", "velocity", "torque", "single of all", "time"]
    print_table(columns, rows, "Proven bounds of all stops, and of single ones, over those of their paths")
    print(f"largest share of what is proven of all stops in a single one: {worst:.3f}")
    return int(worst > 1.0)


def all_of(robot: RobotModel, model: ControlModel, paths: list[BezierTrajectory]) -> Iterator[list[float]]:
    """Yield ratios of all stops and of single ones, shares of these and the time, for each path and brake time."""
    for path in paths:
        try:
            before = tracking_bound(robot, model, path)  # kernels are computed once
            begin = time.process_time()
            own = tracking_bound(robot, model, path)
            seconds = time.process_time() - begin
        except BoundNotAvailable:
            continue
        for brake_time in BRAKE_TIMES:
            try:
                before.in_stops(brake_time)  # a bound keeps those of its stops, so another one is timed
            except BoundNotAvailable:
                print(f"a path of {robot.name} has no bound of its stops within {brake_time} s")
                continue
            begin = time.process_time()
            stops = own.in_stops(brake_time)
            relative = (time.process_time() - begin) / seconds
            singles = [tracking_bound(robot, model, BrakedTrajectory(path, x, brake_time)) for x in BEGINS]
            largest = (stops.position, stops.velocity.max(axis=0), stops.torque.max(axis=0))
            known = own.position, own.velocity, own.torque
            ratios = [float(np.max(x / y)) for x, y in zip(largest, known, strict=True)]
            single = [
                max(float(np.max(getattr(one, name) / getattr(own, name))) for one in singles)
                for name in ("position", "velocity", "torque")
            ]
            taken = np.max([shares(own, stops, one) for one in singles], axis=0)
            yield [*ratios, *single, *map(float, taken), relative]


if __name__ == "__main__":
    sys.exit(main())
