"""Worst-case torques and free distances of a trajectory at samples: what an excitation search keeps to; no proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.clearance import CollisionModel, displacements, pair_distances, sphere_centers
from sysid_ros.core.common.box import Box
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import slowdown_states

Array = NDArray[np.float64]

STOP_STEP = 0.01
"""Time between the positions on a path at which stops are checked [s]."""
_STOP_POINTS = 9


@dataclass(frozen=True)
class TorqueDemand:
    """Worst-case torques of an arm over boxes of its and its payload's parameters.

    Attributes:
        robot: The arm.
        arm_box: Box of the arm's parameters, (14 n,).
        payload_box: Box of the payload's parameters, (10,).
        feedback: Torque the controller may add to what the motion needs, (n,) [Nm].
    """

    robot: RobotModel
    arm_box: Box
    payload_box: Box
    feedback: Array

    def evaluate(self, q: Array, v: Array, a: Array) -> Array:
        """Largest torque of any parameters in the boxes at states (N, n), (N, n) [Nm].

        Linear in the parameters, so ``|W center| + |W| radius`` is exact. Coulomb friction counts in the worst
        direction.
        """
        n = self.robot.n
        regressor = TorqueRegressor(self.robot, EffortMeaning.MOTOR_SIDE).evaluate(q, v, a, direction=np.zeros_like(v))
        payload = regressor[:, :, INERTIAL * (n - 1) : INERTIAL * n]
        nominal = regressor @ self.arm_box.center + payload @ self.payload_box.center
        spread = np.abs(regressor) @ self.arm_box.radius + np.abs(payload) @ self.payload_box.radius
        coulomb = self.robot.friction(np.maximum(np.abs(self.arm_box.lower), np.abs(self.arm_box.upper)))[:, 0]
        return np.abs(nominal) + spread + coulomb + self.feedback

    def check(self, kind: LimitKind, times: Array, states: tuple[Array, Array, Array], fraction: float = 1.0) -> float:
        """Smallest distance to a torque limit at the samples, relative to the limit [-].

        Args:
            kind: Which limit it is.
            times: Sample times, (N,) [s].
            states: Positions, velocities and accelerations, each (N, n).
            fraction: Part of the limits that may be used [-].

        Raises:
            PlanRejected: A limit is broken.
        """
        limit = fraction * self.robot.limits.tau_max
        demand = self.evaluate(*states)
        index, joint = np.unravel_index(int(np.argmax(demand / limit)), demand.shape)
        if not demand[index, joint] <= limit[joint]:
            names = (self.robot.joint_names[int(joint)],)
            raise PlanRejected(kind, names, float(times[index]), float(demand[index, joint]), float(limit[joint]))
        return float(1.0 - demand[index, joint] / limit[joint])

    def check_stops(self, trajectory: Trajectory, brake_time: float, fraction: float = 1.0) -> float:
        """Smallest distance to a torque limit in stops that begin anywhere on a trajectory, relative to the limit [-].

        Args:
            trajectory: The motion; looked at every 10 ms, with nine points of every stop, rest among them.
            brake_time: Time to rest of the stops [s].
            fraction: Part of the limits that may be used [-].

        Raises:
            PlanRejected: A limit is broken.
        """
        times = np.linspace(0.0, trajectory.duration, int(np.ceil(trajectory.duration / STOP_STEP)) + 1)
        states = slowdown_states(trajectory.sample(times), brake_time, _STOP_POINTS)
        return self.check(LimitKind.BRAKING_TORQUE, np.tile(times, _STOP_POINTS), states, fraction)


def check_clearance(
    robot: RobotModel, collision: CollisionModel, error: Array, clearance: float, times: Array, q: Array
) -> dict[LimitKind, float]:
    """Compute the smallest free distances at the samples, tracking error taken off [m].

    Args:
        robot: The arm.
        collision: What must not touch what.
        error: Largest position error, (n,) [rad].
        clearance: Distance to keep [m].
        times: Sample times, (N,) [s].
        q: Positions there, (N, n) [rad].

    Raises:
        PlanRejected: Something comes too close.
    """
    if not collision.spheres:
        return {}
    centers = sphere_centers(robot, collision.spheres, q)
    pairs_moved, moved = displacements(robot, collision, error)
    radii = np.array([sphere.radius for sphere in collision.spheres])
    links = [sphere.link for sphere in collision.spheres]
    margins: dict[LimitKind, float] = {}

    def keep(kind: LimitKind, distances: Array, names: Sequence[tuple[str, ...]]) -> None:
        index, which = np.unravel_index(int(np.argmin(distances)), distances.shape)
        smallest = float(distances[index, which])
        if not smallest >= clearance:
            raise PlanRejected(kind, names[int(which)], float(times[index]), smallest, clearance)
        margins[kind] = min(smallest - clearance, margins.get(kind, np.inf))

    if len(collision.pairs):
        free = pair_distances(centers, collision.spheres, collision.pairs) - pairs_moved
        keep(LimitKind.SELF_COLLISION, free, [(links[i], links[j]) for i, j in collision.pairs])
    own = radii[collision.movable] + moved
    points, names = centers[:, collision.movable], [(links[k],) for k in collision.movable]
    if collision.ground_height is not None and names:
        keep(LimitKind.GROUND, points[..., 2] - collision.ground_height - own, names)
    for obstacle in collision.obstacles:
        if names:
            keep(LimitKind.OBSTACLE, obstacle.distance(points) - own, [(*name, obstacle.name) for name in names])
    return margins
