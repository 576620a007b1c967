"""Arms with random parameters, and plans in crowded scenes, for the tests of the verifier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from true_arm import true_model

from sysid_ros.core.collision.scene import Obstacle
from sysid_ros.core.common.box import Box
from sysid_ros.core.model.robot import PayloadPrior
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.trajectories.families import BezierTrajectory


@dataclass(frozen=True)
class Errors:
    """Errors of a controller."""

    position: np.ndarray
    velocity: np.ndarray
    torque: np.ndarray


class TrueArm:
    """Pinocchio's inverse dynamics of one arm with parameters drawn from the boxes."""

    def __init__(self, robot, payload_box, payload_nominal, rng, is_corner=False):
        theta = sample_parameters(robot, rng, corner=is_corner)
        payload = sample_payload(PayloadPrior(payload_box, payload_nominal), rng, corner=is_corner)
        self.model = true_model(robot, theta, payload)
        self.data = self.model.createData()
        self.friction = robot.friction(theta)
        self.sign = rng.choice([-1.0, 1.0], robot.n)

    def torque(self, q, v, a):
        """Torque with Coulomb friction in random directions, (n,)."""
        coulomb, viscous, armature, offset = self.friction.T
        rigid = pin.rnea(self.model, self.data, q, v, a)
        return rigid + coulomb * self.sign + viscous * v + armature * a + offset


def make_errors(position=0.01, velocity=0.03, torque=0.3, n=7):
    return Errors(np.full(n, position), np.full(n, velocity), np.full(n, torque))


def small_payload(robot):
    """Box and nominal parameters of a payload known to 20 %, light enough for fast motions."""
    nominal = 0.4 * robot.payload_prior.nominal
    return Box.around(nominal, 0.2 * np.abs(nominal) + np.array([0.05, *[0.005] * 3, *[0.002] * 6])), nominal


def make_plan(robot, rng, speed=1.0):
    """A random plan; ``speed`` scales its start velocity and its length."""
    lower, upper = np.maximum(robot.limits.q_lower, -2.5) + 0.1, np.minimum(robot.limits.q_upper, 2.5) - 0.1
    q0 = np.clip(robot.home + rng.uniform(-0.6, 0.6, robot.n), lower, upper)
    q1 = np.clip(q0 + speed * rng.uniform(-0.8, 0.8, robot.n), lower, upper)
    v0, a0 = speed * rng.uniform(-0.4, 0.4, robot.n), speed * rng.uniform(-1.0, 1.0, robot.n)
    return BezierTrajectory(q0, v0, a0, q1, rng.uniform(1.0, 3.0))


def make_boxes_around(rng, count):
    """Random turned boxes near the arm but not where its base stands."""
    found = []
    while len(found) < count:
        box = Obstacle(
            f"box {len(found)}",
            rng.uniform([-0.9, -0.9, 0.0], [0.9, 0.9, 1.2]),
            rng.uniform(0.03, 0.2, 3),
            pin.exp3(rng.normal(size=3)),
        )
        if box.distance(np.array([[0.0, 0.0, 0.05], [0.0, 0.0, 0.15], [0.0, 0.0, 0.3]])).min() > 0.15:
            found.append(box)
    return tuple(found)
