"""Worst-case torques and payload regressor of a serial arm at many samples, with exact derivatives.

With the motion vectors ``S_j`` of the joints, velocities ``V_j = sum S_i v_i`` and accelerations
``A_j = sum S_i a_i + (V_i x S_i) v_i - gravity`` of the bodies, what a body beyond joint j sees changes as follows
(``r_j = V_j x S_j``, index p: the body before j):

* with ``q_j``: velocity by ``r_j``, acceleration by ``A_p x S_j - r_j x V_p + r_j x V``;
* with ``v_j``: velocity by ``S_j``, acceleration by ``2 r_j + S_j x V``;
* with ``a_j``: acceleration by ``S_j``.

Seen from there the axes of the joints before j turn by ``S_i x S_j`` per unit of ``q_j``.

The torque is linear in the parameters, so its largest value over a box is ``|W center| + |W| radius``, reached
at a corner of the box. Where no entry of ``W`` changes sign its derivative is that of the torque at this corner. The
columns of the payload are computed in the frame of the last body, where the inertias of unit parameters ``K_p`` are
constant: ``F_p = K_p A + V x* K_p V`` and ``W_ip = S_i . F_p``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.common.spatial import cross, force_cross, motion_cross, motion_transform
from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.joint_tree import JointTree, Sweep, Workspace
from sysid_ros.core.regressors.rest_torque import RestSavings, rest_of
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import State

Array = NDArray[np.float64]
Index = NDArray[np.intp]

PAYLOAD = 10
"""Inertial parameters of a payload."""


@dataclass(frozen=True)
class ChainMotion:
    """Motions of the joints and bodies of N samples, (N, n, 6) each, in one common frame.

    Attributes:
        axes: Motion vectors ``S_j`` of the joints per unit of velocity.
        rates: ``r_j = V_j x S_j``.
        velocity: Velocities ``V_j`` of the bodies.
        acceleration: Accelerations ``A_j`` of the bodies, gravity taken off.
        gravity: Acceleration of the base, ``-gravity``, (N, 6).
    """

    axes: Array
    rates: Array
    velocity: Array
    acceleration: Array
    gravity: Array

    @classmethod
    def of(cls, axes: Array, gravity: Array, v: Array, a: Array) -> ChainMotion:
        """Accumulate the motions of joint axes (N, n, 6) with velocities and accelerations (N, n)."""
        velocity = np.cumsum(axes * v[..., None], axis=1)
        rates = motion_cross(velocity, axes)
        acceleration = np.cumsum(axes * a[..., None] + rates * v[..., None], axis=1) + gravity[:, None]
        return cls(axes, rates, velocity, acceleration, gravity)

    @property
    def position_bias(self) -> Array:
        """``A_p x S_j - r_j x V_p``, (N, n, 6): the change of acceleration with ``q_j`` without its ``r_j x V``."""
        before_v = np.concatenate([np.zeros_like(self.velocity[:, :1]), self.velocity[:, :-1]], axis=1)
        before_a = np.concatenate([self.gravity[:, None], self.acceleration[:, :-1]], axis=1)
        return motion_cross(before_a, self.axes) - motion_cross(self.rates, before_v)


class SerialArm:
    """Forward kinematics of a serial arm for many postures at once.

    Args:
        robot: The arm.

    Raises:
        ModelError: The arm branches.
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
    """

    def __init__(self, robot: RobotModel):
        self.tree = JointTree.of(robot)
        if self.tree.parents != tuple(range(-1, self.tree.n - 1)):
            raise ModelError("the receding-horizon planner needs an arm without branches")
        self._sweep = Sweep(self.tree, Workspace())

    def frames(self, q: Array) -> tuple[Array, Array, Array]:
        """Compute the forward kinematics at postures (N, n) [rad].

        Returns:
            Orientations (N, n, 3, 3) and origins (N, n, 3) [m] of the bodies, and joint axes (N, n, 6), motions about
            the origin; all in the world frame of the Pinocchio model.
        """
        frames = self._sweep.frames(q)
        rotation, axes = frames.rotation.transpose(3, 0, 2, 1), frames.axes.transpose(2, 0, 1)
        return np.ascontiguousarray(rotation), frames.origin.transpose(2, 0, 1).copy(), axes.copy()


@dataclass(frozen=True)
class TorqueSamples:
    """Largest torques at N samples.

    Attributes:
        demand: Largest ``|tau|`` of any parameters in the boxes, with the share of Coulomb friction that counts in the
            worst direction, (N, n) [Nm].
        side: Sign of the torque that is that large, (N, n).
        regressor: The torque regressor, (N, n, 14 n), its Coulomb columns zero.
    """

    demand: Array
    side: Array
    regressor: Array


class WorstTorque:
    """Largest torques over boxes of the parameters of arm and payload.

    Args:
        robot: The arm.

    Attributes:
        coulomb: Largest Coulomb friction, (n,) [Nm].

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
        """Use other boxes: the arm's (14 n,) and the payload's (10,), which adds to the last body's."""
        rest = rest_of(payload)
        self._savings = None if rest is None else RestSavings(self._robot, arm, payload, rest)
        last = self._robot.inertial_slice(self.n)
        self._center, self._radius = arm.center.copy(), arm.radius.copy()
        self._center[last] += payload.center
        self._radius[last] += payload.radius
        sliding = slice(INERTIAL * self.n, None, FRICTION)
        self.coulomb: Array = np.abs(self._center[sliding]) + self._radius[sliding]
        self._center[sliding] = self._radius[sliding] = 0.0

    def evaluate(self, states: State, friction: Array | float = 1.0, little: Array | float = -np.inf) -> TorqueSamples:
        """Compute the largest torques at states.

        Args:
            states: The states, each (N, n).
            friction: Shares of Coulomb friction that count, (N, n) or one for all [-].
            little: Torques that do not matter, (N, n) or one for all [Nm]. What is known of the torque at rest, which
                takes time, is not taken off where the torque is no larger than this without it.
        """
        regressor = self._regressor.evaluate(*states, direction=np.zeros_like(states[1]))
        nominal = regressor @ self._center
        spread = np.abs(regressor) @ self._radius + friction * self.coulomb
        if self._savings is None:
            return TorqueSamples(np.abs(nominal) + spread, np.sign(nominal), regressor)
        above, below = nominal, -nominal
        matters = np.abs(nominal) + spread > little
        for joint in range(self.n):
            here = np.flatnonzero(matters[:, joint])
            own, negative = self._savings.evaluate_both(joint, regressor[here, joint, self._moved(joint)])
            above[here, joint] -= own
            below[here, joint] -= negative
        return TorqueSamples(np.maximum(above, below) + spread, np.where(above >= below, 1.0, -1.0), regressor)

    def _moved(self, joint: int) -> slice:
        """Return the columns of the bodies that a joint moves."""
        return slice(INERTIAL * joint, INERTIAL * self.n)

    def demand_at_rest(self, q: Array) -> Array:
        """Return the demand of :meth:`evaluate` where the arm rests in postures (N, n) [rad], (N, n) [Nm]."""
        rest = np.zeros_like(q)
        return self.evaluate((q, rest, rest)).demand

    def gradients(self, states: State, samples: TorqueSamples, chosen: Index, joints: Index) -> State:
        """Differentiate single entries of ``demand`` with respect to the state of their sample.

        Args:
            states: States (N, n).
            samples: The torques there.
            chosen: Samples of the P entries, (P,).
            joints: Their joints, (P,).

        Returns:
            With respect to q, v and a, each (P, n); Coulomb friction counts as if its share stayed as it is.
        """
        q, v, a = (part[chosen] for part in states)
        rows, side = samples.regressor[chosen, joints], samples.side[chosen, joints][:, None]
        parameters = side * self._center + np.sign(rows) * self._radius
        if self._savings is not None:
            for joint in np.unique(joints):
                here, moved = joints == joint, self._moved(joint)
                places = self._savings.locate(joint, side[here] * rows[here, moved])
                parameters[here, moved] = side[here] * (self._center[moved] + places)
        return self.parameter_gradients((q, v, a), joints, parameters)

    def parameter_gradients(self, states: State, joints: Index, parameters: Array) -> State:
        """Differentiate the torque of one joint of P arms, each with parameters of its own, without Coulomb friction.

        Args:
            states: States of the arms, each (P, n).
            joints: Which joint of each arm, (P,).
            parameters: Their parameters, (P, 14 n).

        Returns:
            With respect to q, v and a, each (P, n).
        """
        n = self.n
        bodies = parameters[:, : INERTIAL * n].reshape(-1, n, INERTIAL)
        dq, dv, da = self._inertial_gradients(states, joints, bodies)
        friction = parameters[:, INERTIAL * n :].reshape(-1, n, FRICTION)
        index = np.arange(len(joints))
        dv[index, joints] += friction[index, joints, 1]
        da[index, joints] += friction[index, joints, 2]
        return dq, dv, da

    def _inertial_gradients(self, states: State, joints: Index, bodies: Array) -> State:
        """Differentiate the torque of joint ``joints[p]`` of bodies with parameters (P, n, 10) without friction."""
        q, v, a = states
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
        """Compute spatial inertias about the base origin, (P, n, 6, 6), of parameters (P, n, 10)."""
        local = (bodies @ self._inertias).reshape(*bodies.shape[:2], 6, 6)
        transform = motion_transform(rotation, origin)
        inertias: Array = transform.swapaxes(-1, -2) @ local @ transform
        return inertias


def _apply(inertia: Array, motion: Array) -> Array:
    forces: Array = (inertia @ motion[..., None])[..., 0]
    return forces


def _sum_beyond(values: Array) -> Array:
    """Sum over each body and those beyond it, (P, n, 6)."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]


@dataclass(frozen=True)
class PayloadSamples:
    """What the derivative of the regressor at N samples needs.

    Attributes:
        motion: Motions of joints and bodies in the frame of the last body.
        force: Wrenches of unit parameters, (N, 6, 10).
    """

    motion: ChainMotion
    force: Array


class PayloadRegressor:
    """The ten columns of the last body in the torque regressor, and their reverse derivative.

    Args:
        robot: The arm.

    Raises:
        ModelError: The arm branches.
    """

    def __init__(self, robot: RobotModel):
        self._arm = SerialArm(robot)
        inertias = unit_inertias()
        self._linear = inertias.transpose(2, 1, 0).reshape(6, 60)  # A -> F, (6, 10) flattened
        self._adjoint = inertias.transpose(2, 0, 1).reshape(60, 6)  # M (6, 10) -> sum_p K_p M_p
        quadratic = np.zeros((6, 6, 6, PAYLOAD))  # [V, V, F, p]
        for first in range(6):
            spin = np.broadcast_to(np.eye(6)[first], (6, PAYLOAD, 6))
            momenta = inertias.transpose(2, 0, 1)  # [V, p, component]
            quadratic[first] = force_cross(spin, momenta).transpose(0, 2, 1)
        self._quadratic = quadratic.reshape(36, 60)

    def evaluate(self, q: Array, v: Array, a: Array) -> tuple[Array, PayloadSamples]:
        """Compute the columns (N, n, 10) at states (N, n), and what their derivative needs."""
        rotation, origin, axes = self._arm.frames(q)
        last, point = rotation[:, -1], origin[:, -1, None]
        angular = axes[..., 3:]
        linear = axes[..., :3] + cross(angular, point)
        local = np.concatenate([linear @ last, angular @ last], axis=-1)
        gravity = np.zeros((len(q), 6))
        gravity[:, :3] = -self._arm.tree.gravity @ last
        motion = ChainMotion.of(local, gravity, v, a)
        twist = motion.velocity[:, -1]
        products = (twist[:, :, None] * twist[:, None, :]).reshape(-1, 36)
        force = (motion.acceleration[:, -1] @ self._linear + products @ self._quadratic).reshape(-1, 6, PAYLOAD)
        return local @ force, PayloadSamples(motion, force)

    def pull_back(self, samples: PayloadSamples, weight: Array) -> State:
        """Differentiate ``sum(weight * regressor)`` with respect to q, v and a, each (N, n); weight is (N, n, 10)."""
        motion, axes = samples.motion, samples.motion.axes
        twist = motion.velocity[:, -1]
        pulled = (axes.transpose(0, 2, 1) @ weight).reshape(-1, 60)  # sum_i S_i weight_ip
        wrench = pulled @ self._adjoint
        bilinear = (pulled @ self._quadratic.T).reshape(-1, 6, 6)
        by_twist = ((bilinear + bilinear.transpose(0, 2, 1)) @ twist[..., None])[..., 0] + force_cross(twist, wrench)
        # Row i loses S_i x S_j . (F weight_i) for all joints j behind it.
        turned = force_cross(axes, weight @ samples.force.transpose(0, 2, 1))
        behind = np.cumsum(turned, axis=1) - turned
        u, w = wrench[:, None], by_twist[:, None]
        rates = motion.rates
        dq = (u * motion.position_bias + w * rates - axes * behind).sum(axis=-1)
        dv = (2.0 * u * rates + w * axes).sum(axis=-1)
        return dq, dv, (u * axes).sum(axis=-1)
