"""Worst-case torques of many motions over the parameter boxes, and exact gradients of chosen ones.

The torque is linear in the parameters, so its largest value over a box is ``|W center| + |W| radius``, reached
at a corner of the box. Where no entry of ``W`` changes sign its derivative is that of the torque at this corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.spatial import force_cross, motion_cross, motion_transform
from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.planning.kinematics import ChainMotion, SerialArm
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import State

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TorqueSamples:
    """Largest torques at N samples.

    Attributes:
        demand: Largest ``|tau|`` of any parameters in the boxes, Coulomb friction in the worst direction, (N, n) [Nm].
        nominal: Torque at the centre of the boxes, (N, n) [Nm].
        regressor: The torque regressor, (N, n, 14 n), its Coulomb columns zero.
    """

    demand: Array
    nominal: Array
    regressor: Array


class WorstTorque:
    """Largest torques over boxes of the parameters of arm and payload.

    Args:
        robot: The arm.

    Raises:
        ModelError: The arm branches.
    """

    def __init__(self, robot: RobotModel):
        self.n = robot.n
        self._robot = robot
        self._arm = SerialArm(robot)
        self._regressor = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE)
        self._inertias = unit_inertias().reshape(INERTIAL, 36)
        self.set_boxes(robot.theta_box, robot.payload_prior.box)

    def set_boxes(self, arm: Box, payload: Box) -> None:
        """Uses other boxes: the arm's (14 n,) and the payload's (10,), which adds to the last body's."""
        last = self._robot.inertial_slice(self.n)
        self._center, self._radius = arm.center.copy(), arm.radius.copy()
        self._center[last] += payload.center
        self._radius[last] += payload.radius
        sliding = slice(INERTIAL * self.n, None, FRICTION)
        self._coulomb = np.abs(self._center[sliding]) + self._radius[sliding]
        self._center[sliding] = self._radius[sliding] = 0.0

    def evaluate(self, states: State) -> TorqueSamples:
        """Largest torques at states (N, n)."""
        regressor = self._regressor.evaluate(*states, direction=np.zeros_like(states[1]))
        nominal = regressor @ self._center
        return TorqueSamples(np.abs(nominal) + np.abs(regressor) @ self._radius + self._coulomb, nominal, regressor)

    def gradients(self, states: State, samples: TorqueSamples, chosen: Array, joints: Array) -> tuple[Array, ...]:
        """Derivatives of single entries of ``demand`` with respect to the state of their sample.

        Args:
            states: States (N, n).
            samples: The torques there.
            chosen: Samples of the P entries, (P,).
            joints: Their joints, (P,).

        Returns:
            With respect to q, v and a, each (P, n).
        """
        q, v, a = (part[chosen] for part in states)
        rows = samples.regressor[chosen, joints]
        side = np.sign(samples.nominal[chosen, joints])[:, None]
        return self.parameter_gradients((q, v, a), joints, side * self._center + np.sign(rows) * self._radius)

    def parameter_gradients(self, states: State, joints: Array, parameters: Array) -> tuple[Array, ...]:
        """Derivatives of the torque of one joint of P arms, each with parameters of its own, Coulomb friction left out.

        Args:
            states: States of the arms, each (P, n).
            joints: Which joint of each arm, (P,).
            parameters: Their parameters, (P, 14 n).

        Returns:
            With respect to q, v and a, each (P, n).
        """
        n = self.n
        bodies = parameters[:, : INERTIAL * n].reshape(-1, n, INERTIAL)
        dq, dv, da = self._inertial_gradients(*states, joints, bodies)
        friction = parameters[:, INERTIAL * n :].reshape(-1, n, FRICTION)
        index = np.arange(len(joints))
        dv[index, joints] += friction[index, joints, 1]
        da[index, joints] += friction[index, joints, 2]
        return dq, dv, da

    def _inertial_gradients(self, q: Array, v: Array, a: Array, joints: Array, bodies: Array) -> tuple[Array, ...]:
        """Derivatives of the torque of joint ``joints[p]`` of bodies with parameters (P, n, 10) without friction."""
        rotation, origin, axes = self._arm.frames(q)
        gravity = np.zeros((len(q), 6))
        gravity[:, :3] = -self._arm.tree.gravity
        motion = ChainMotion.of(axes, gravity, v, a)
        inertia = self._in_base(bodies, rotation, origin)
        behind = (np.arange(self.n) >= joints[:, None])[..., None]  # bodies the joint moves
        axis = np.broadcast_to(axes[np.arange(len(q)), joints][:, None], axes.shape)
        velocity = motion.velocity
        wrench = _apply(inertia, axis)
        momentum = _apply(inertia, velocity)
        turning = _apply(inertia, motion_cross(velocity, axis))
        by_twist = force_cross(velocity, wrench) - force_cross(axis, momentum) - turning
        force = _apply(inertia, motion.acceleration) + force_cross(velocity, momentum)
        # Sums over the bodies that both joints move: the row's own and the one that is varied.
        u, w, f = (_sum_beyond(part * behind) for part in (wrench, by_twist, force))
        is_later = np.arange(self.n) > joints[:, None]
        dq = (u * motion.position_bias + w * motion.rates).sum(axis=-1)
        dq += is_later * (motion_cross(axis, axes) * f).sum(axis=-1)
        dv = (2.0 * u * motion.rates + w * axes).sum(axis=-1)
        return dq, dv, (u * axes).sum(axis=-1)

    def _in_base(self, bodies: Array, rotation: Array, origin: Array) -> Array:
        """Spatial inertias about the base origin, (P, n, 6, 6), of parameters (P, n, 10) about the bodies' frames."""
        local = (bodies @ self._inertias).reshape(*bodies.shape[:2], 6, 6)
        transform = motion_transform(rotation, origin)
        return transform.swapaxes(-1, -2) @ local @ transform


def _apply(inertia: Array, motion: Array) -> Array:
    return (inertia @ motion[..., None])[..., 0]


def _sum_beyond(values: Array) -> Array:
    """Sums over each body and those beyond it, (P, n, 6)."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
