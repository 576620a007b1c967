"""Torque regressor, torque usage and clearances of a serial arm as CasADi functions, with derivatives at samples.

The wheels of Pinocchio come without ``pinocchio.casadi``; the recursion here uses the placements and axes of the
Pinocchio model and is checked against its numbers. Motions are linear before angular, seen from the frame of their
body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.collision.clearance import CollisionModel, Obstacle, displacements
from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.common.spatial import skew
from sysid_ros.core.excitation.sampled_checks import TorqueDemand
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel, Sphere
from sysid_ros.core.trajectories.braking import clock_rates

Array = NDArray[np.float64]

_DISTANCE_SMOOTHING = 0.004
"""Length s over which the minimum of distances is smoothed [m]."""
_USAGE_SMOOTHING = 0.02
"""Share of the limits over which the maximum of torques is smoothed [-]."""
_STOP_PROGRESS = (0.5, 0.7, 1.0)
"""Fractions of the progress of a stop at which its torque is evaluated; the last is rest."""
_SMOOTHING = 1e-3
"""``|x|`` is replaced by ``sqrt(x^2 + s^2) >= |x|``: s in Nm for torques, in units of the regressor for its entries."""
_NEGLIGIBLE = 1e-13
"""Entries of placements below this are rounding errors of the URDF's angles; as zeros they keep expressions short."""


def build_torque_regressor(robot: RobotModel, sign_width: float = 0.02) -> ca.Function:
    """Build the regressor ``W`` with ``tau = W [theta | payload]`` as a CasADi function.

    Args:
        robot: Arm with n revolute joints in series.
        sign_width: Speed within which ``sign(v)`` is replaced by ``tanh(v / sign_width)`` to have a derivative [rad/s];
            0 keeps ``sign``.

    Returns:
        Function ``(q (n,), v (n,), a (n,)) -> W (n, 14 n + 10)``, columns as ``theta`` of the robot, then the payload.

    Raises:
        ModelError: The arm is not a series of revolute joints.

    Source: SAFE-ID (10).
    """
    n = robot.n
    q, v, a = (ca.SX.sym(name, n) for name in ("q", "v", "a"))
    columns: list[list[ca.SX]] = [[ca.SX(1, INERTIAL) for _ in range(n)] for _ in range(n)]  # [joint][body]
    for body, (axes, velocity, acceleration) in enumerate(_motions(robot, q, v, a)):
        regressor = _body_regressor(velocity, acceleration)
        for joint, axis in enumerate(axes):
            columns[joint][body] = axis.T @ regressor
    inertial = ca.vertcat(*(ca.horzcat(*row) for row in columns))
    sign = ca.tanh(v / sign_width) if sign_width > 0.0 else ca.sign(v)
    friction = ca.SX(n, FRICTION * n)
    for joint in range(n):
        entries = ca.horzcat(sign[joint], v[joint], a[joint], 1.0)
        friction[joint, FRICTION * joint : FRICTION * (joint + 1)] = entries
    payload = inertial[:, INERTIAL * (n - 1) :]
    return ca.Function("torque_regressor", [q, v, a], [ca.horzcat(inertial, friction, payload)], ["q", "v", "a"], ["W"])


def build_clearance(robot: RobotModel, collision: CollisionModel, error: Array | None = None) -> ca.Function:
    """Build the distances that must stay positive as a CasADi function.

    Args:
        robot: Arm with n revolute joints in series.
        collision: Spheres, pairs and obstacles.
        error: Largest position errors, (n,) [rad], that are taken off the distances; none without it.

    Returns:
        Function ``q (n,) -> distances (m,)`` [m]: first the pairs of spheres, then each movable sphere to the ground,
        then to each obstacle.

    Raises:
        ModelError: The arm is not a series of revolute joints.
    """
    q = ca.SX.sym("q", robot.n)
    centers = _sphere_centers(robot, collision.spheres, q)
    radii = [sphere.radius for sphere in collision.spheres]
    pairs_moved, moved = displacements(robot, collision, np.zeros(robot.n) if error is None else error)
    distances = [
        ca.norm_2(centers[i] - centers[j]) - (radii[i] + radii[j] + lost)
        for (i, j), lost in zip(collision.pairs, pairs_moved, strict=True)
    ]
    movable = [(centers[k], radii[k] + lost) for k, lost in zip(collision.movable, moved, strict=True)]
    if collision.ground_height is not None:
        distances += [center[2] - radius - collision.ground_height for center, radius in movable]
    for obstacle in collision.obstacles:
        distances += [_box_distance(obstacle, center) - radius for center, radius in movable]
    return ca.Function("clearance", [q], [ca.vertcat(*distances) if distances else ca.SX(0, 1)], ["q"], ["distances"])


def _sphere_centers(robot: RobotModel, spheres: Sequence[Sphere], q: ca.SX) -> list[ca.SX]:
    """Compute the centres (3,) of spheres in the base frame."""
    base = robot.pin_model.frames[robot.pin_model.getFrameId(robot.base_frame)].placement.inverse()
    rotation, origin = _sparse(base.rotation), _sparse(base.translation)
    poses = [(rotation, origin)]
    for joint in range(robot.n):
        relative, translation = _joint_transform(robot, joint, q[joint])
        origin = origin + rotation @ translation
        rotation = rotation @ relative
        poses.append((rotation, origin))
    return [poses[s.body][1] + poses[s.body][0] @ ca.DM(np.asarray(s.center, dtype=float)) for s in spheres]


def _box_distance(obstacle: Obstacle, point: ca.SX) -> ca.SX:
    """Compute the distance of a point to the surface of a box, negative inside."""
    beyond = ca.fabs(ca.DM(obstacle.rotation.T) @ (point - ca.DM(obstacle.center))) - ca.DM(obstacle.half_extents)
    # The tiny offset keeps the norm differentiable on and inside the box; it only ever shortens the distance.
    outside = ca.sqrt(ca.sumsqr(ca.fmax(beyond, 0.0)) + 1e-12) - 1e-6
    return outside + ca.fmin(ca.mmax(beyond), 0.0)


def _motions(robot: RobotModel, q: ca.SX, v: ca.SX, a: ca.SX) -> list[tuple[list[ca.SX], ca.SX, ca.SX]]:
    """Compute, per body and seen from it, axes of its joints, velocity and acceleration minus gravity, (6,) each."""
    axes: list[ca.SX] = []
    velocity = ca.SX(6, 1)
    acceleration = ca.SX(np.concatenate([-robot.pin_model.gravity.linear, np.zeros(3)]))
    result = []
    for joint in range(robot.n):
        rotation, translation = _joint_transform(robot, joint, q[joint])
        axis = ca.vertcat(ca.SX(3, 1), ca.sparsify(ca.SX(_axis(robot, joint))))
        axes = [_to_child(rotation, translation, motion) for motion in axes] + [axis]
        velocity = _to_child(rotation, translation, velocity) + axis * v[joint]
        acceleration = (
            _to_child(rotation, translation, acceleration) + axis * a[joint] + _cross_motion(velocity, axis) * v[joint]
        )
        result.append((axes, velocity, acceleration))
    return result


def _joint_transform(robot: RobotModel, joint: int, angle: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Compute rotation (3, 3) and origin (3,) of a joint's frame, seen from the frame before it."""
    placement = robot.pin_model.jointPlacements[joint + 1]
    axis = _axis(robot, joint)
    cross = skew(axis)
    turn = ca.SX.eye(3) + _sparse(cross) * ca.sin(angle) + _sparse(cross @ cross) * (1.0 - ca.cos(angle))
    return _sparse(placement.rotation) @ turn, _sparse(placement.translation)


def _axis(robot: RobotModel, joint: int) -> Array:
    """Return the axis (3,) of a revolute joint; raises ModelError for anything else."""
    model = robot.pin_model
    joint_model = model.joints[joint + 1]
    data = joint_model.createData()
    joint_model.calc(data, np.zeros(model.nq), np.zeros(model.nv))
    subspace = np.array(data.S).reshape(6, -1)
    if model.parents[joint + 1] != joint or subspace.shape[1] != 1 or np.any(subspace[:3]):
        raise ModelError(f"joint '{robot.joint_names[joint]}': only revolute joints in series are supported here")
    return subspace[3:, 0]


def _sparse(matrix: Array) -> ca.SX:
    return ca.SX(ca.sparsify(ca.DM(np.where(np.abs(matrix) < _NEGLIGIBLE, 0.0, matrix))))


def _to_child(rotation: ca.SX, translation: ca.SX, motion: ca.SX) -> ca.SX:
    """Express a motion of the parent frame in the child frame."""
    linear, angular = motion[:3], motion[3:]
    return ca.vertcat(rotation.T @ (linear - ca.cross(translation, angular)), rotation.T @ angular)


def _cross_motion(velocity: ca.SX, motion: ca.SX) -> ca.SX:
    linear, angular = velocity[:3], velocity[3:]
    return ca.vertcat(
        ca.cross(angular, motion[:3]) + ca.cross(linear, motion[3:]),
        ca.cross(angular, motion[3:]),
    )


def _body_regressor(velocity: ca.SX, acceleration: ca.SX) -> ca.SX:
    """Build the (6, 10) matrix with ``force = I a + v x* I v = regressor @ parameters``."""
    omega, linear = velocity[3:], acceleration[:3] + ca.cross(velocity[3:], velocity[:3])
    alpha = acceleration[3:]
    spin = ca.skew(omega)
    first_moment = ca.skew(alpha) + spin @ spin
    inertia = _inertia_action(alpha) + spin @ _inertia_action(omega)
    top = ca.horzcat(linear, first_moment, ca.SX(3, 6))
    bottom = ca.horzcat(ca.SX(3, 1), -ca.skew(linear), inertia)
    return ca.vertcat(top, bottom)


def _inertia_action(w: ca.SX) -> ca.SX:
    """Build the (3, 6) matrix L with ``I w = L [Ixx, Ixy, Iyy, Ixz, Iyz, Izz]``."""
    x, y, z = w[0], w[1], w[2]
    zero = ca.SX(1, 1)
    return ca.vertcat(
        ca.horzcat(x, y, zero, z, zero, zero),
        ca.horzcat(zero, x, y, zero, z, zero),
        ca.horzcat(zero, zero, zero, x, y, z),
    )


class SampledDynamics:
    """The torque regressor at N samples and its reverse derivative.

    Args:
        robot: The arm.
        samples: Number of samples N.
    """

    def __init__(self, robot: RobotModel, samples: int):
        self.n = robot.n
        self.samples = samples
        single = build_torque_regressor(robot)
        pattern = single.sparsity_out(0)
        self.columns = pattern.size2()
        self._rows = np.array(pattern.row())
        self._cols = np.repeat(np.arange(self.columns), np.diff(pattern.colind()))
        state = [ca.SX.sym(name, self.n) for name in ("q", "v", "a")]
        regressor = single(*state)
        weight = ca.SX.sym("weight", pattern)
        gradient = [ca.gradient(ca.dot(regressor, weight), x) for x in state]
        self._regressor = single.map(samples)
        self._pull_back = ca.Function("pull_back", [*state, weight], gradient).map(samples)
        self._weight_pattern = self._pull_back.sparsity_in(3)
        self._state, self._single = state, single

    def regressor(self, q: Array, v: Array, a: Array) -> Array:
        """Evaluate the regressor at the samples, (N, n, 14 n + 10); q, v, a are (N, n)."""
        result = np.zeros((self.samples, self.n, self.columns))
        values = np.array(self._regressor(q.T, v.T, a.T).nonzeros())
        result[:, self._rows, self._cols] = values.reshape(self.samples, -1)
        return result

    def pull_back(self, q: Array, v: Array, a: Array, weight: Array) -> tuple[Array, Array, Array]:
        """Differentiate ``sum(weight * regressor)`` by q, v and a, each (N, n); weight is of the regressor's shape."""
        values = ca.DM(self._weight_pattern, weight[:, self._rows, self._cols].ravel())
        dq, dv, da = self._pull_back(q.T, v.T, a.T, values)
        return dq.full().T, dv.full().T, da.full().T

    def build_torque_usage(self, demand: TorqueDemand, brake_time: float) -> TorqueUsage:
        """Build the largest share of a torque limit over all parameters in the boxes.

        It covers the motion itself and stops along its path, at the fractions of their progress where they are hardest
        and at rest after them. Coulomb friction counts in the worst direction.

        Args:
            demand: Boxes of the parameters, and the torque of the controller.
            brake_time: Time to rest of the stops [s].
        """
        center = np.concatenate([demand.arm_box.center, demand.payload_box.center])
        radius = np.concatenate([demand.arm_box.radius, demand.payload_box.radius])
        q, v, a = self._state
        states: list[tuple[ca.SX, ca.SX, ca.SX]] = [(q, v, a)]
        for progress in _STOP_PROGRESS:
            rate, slowdown = clock_rates(progress, brake_time)
            states.append((q, ca.SX(rate) * v, ca.SX(rate**2) * a + ca.SX(slowdown) * v))
        feedback, limits = ca.DM(demand.feedback), ca.DM(demand.robot.limits.tau_max)
        shares = [(self._worst_torque(state, center, radius) + feedback) / limits for state in states]
        return TorqueUsage(ca.vertcat(*shares), self._state, self.samples)

    def _worst_torque(self, state: tuple[ca.SX, ca.SX, ca.SX], center: Array, radius: Array) -> ca.SX:
        """Bound ``|W center| + |W| radius`` from above with smooth absolute values."""
        sliding = np.zeros(self.columns, dtype=bool)
        sliding[INERTIAL * self.n : (INERTIAL + FRICTION) * self.n : FRICTION] = True
        coulomb = np.abs(center[sliding]) + radius[sliding]
        regressor = self._single(*state)
        torque = regressor @ ca.DM(np.where(sliding, 0.0, center))
        entries: Any = regressor.nonzeros()
        size = ca.sqrt(ca.vertcat(*entries) ** 2 + _SMOOTHING**2)
        spread = ca.SX(regressor.sparsity(), size) @ ca.DM(np.where(sliding, 0.0, radius))
        return ca.sqrt(torque**2 + _SMOOTHING**2) + spread + ca.DM(coulomb)


class TorqueUsage:
    """The largest of several shares of torque limits at N samples, slightly rounded up to be smooth, with its Jacobian.

    Args:
        shares: The shares, (m,) [-].
        state: Symbols of q, v and a, each (n,).
        samples: Number of samples N.
    """

    def __init__(self, shares: ca.SX, state: list[ca.SX], samples: int):
        # The log of a sum of exponentials is never below the maximum, and above it by at most s log(m).
        largest = _USAGE_SMOOTHING * ca.log(ca.sum1(ca.exp(shares / _USAGE_SMOOTHING)))
        jacobian = ca.densify(ca.jacobian(largest, ca.vertcat(*state)))
        self._value = ca.Function("torque_usage", state, [largest]).map(samples)
        self._jacobian = ca.Function("torque_usage_jacobian", state, [jacobian]).map(samples)
        self._shape = (samples, 1, jacobian.numel())

    def value(self, q: Array, v: Array, a: Array) -> Array:
        """Evaluate the largest shares, (N, 1) [-]; q, v, a are (N, n)."""
        return np.asarray(self._value(q.T, v.T, a.T).full().T, dtype=np.float64)

    def jacobian(self, q: Array, v: Array, a: Array) -> Array:
        """Differentiate by q, v and a, (N, 1, 3 n)."""
        return np.asarray(self._jacobian(q.T, v.T, a.T).full().reshape(self._shape), dtype=np.float64)


class SampledClearance:
    """The smallest of several distances at N samples, slightly rounded down to be smooth, with its Jacobian.

    Args:
        clearance: Function ``q (n,) -> distances (m,)`` [m], at least one.
        samples: Number of samples N.
    """

    def __init__(self, clearance: ca.Function, samples: int):
        q = ca.SX.sym("q", clearance.size1_in(0))
        # Minus the log of a sum of exponentials is never above the minimum, and below it by at most s log(m).
        smallest = -_DISTANCE_SMOOTHING * ca.log(ca.sum1(ca.exp(-clearance(q) / _DISTANCE_SMOOTHING)))
        self._value = ca.Function("clearance", [q], [smallest]).map(samples)
        jacobian = ca.densify(ca.jacobian(smallest, q))
        self._jacobian = ca.Function("clearance_jacobian", [q], [jacobian]).map(samples)
        self._shape = (samples, 1, q.numel())

    def value(self, q: Array) -> Array:
        """Evaluate the smallest distances, (N, 1) [m]; q is (N, n)."""
        return np.asarray(self._value(q.T).full().T, dtype=np.float64)

    def jacobian(self, q: Array) -> Array:
        """Differentiate by q, (N, 1, n)."""
        return np.asarray(self._jacobian(q.T).full().reshape(self._shape), dtype=np.float64)
