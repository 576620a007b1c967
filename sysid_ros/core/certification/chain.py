"""Enclosures over pieces of time: of a trajectory, and of the bodies of an arm as they move along it.

The bodies are seen from the base. A *series*, the quadratic Taylor model of a function of time over P pieces at once,
is an array (4, ..., P). Over a piece, with ``u`` in [-1, 1] the time since its middle divided by its half length, the
function lies within ``x[0] + x[1] u + x[2] u^2 +- x[3]``. Every operation keeps this true in exact arithmetic; rounding
is accounted for once, at the end (see :data:`sysid_ros.core.certification.checks.ROUNDING`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, singledispatch
from math import comb, factorial

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from sysid_ros.core.common.spatial import axis_frame
from sysid_ros.core.model.mechanics import joint_axis
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import InvalidTrajectory, Trajectory
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory

Array = NDArray[np.float64]

DEGREE = 5
"""Degree of the polynomials."""
_NEXT, _AFTER = np.array([1, 2, 0]), np.array([2, 0, 1])


def _bernstein_matrix() -> Array:
    """From the coefficients of u^k, u in [-1, 1], to those of the Bernstein polynomials of the same degree."""
    # With u = 2 s - 1 the power u^k is sum_j C(k, j) 2^j (-1)^(k - j) s^j, and s^j has Bernstein coefficients
    # C(i, j) / C(DEGREE, j).
    powers = np.zeros((DEGREE + 1, DEGREE + 1))
    for k in range(DEGREE + 1):
        for j in range(k + 1):
            powers[j, k] = comb(k, j) * 2.0**j * (-1.0) ** (k - j)
    controls = np.array([[comb(i, j) / comb(DEGREE, j) for j in range(DEGREE + 1)] for i in range(DEGREE + 1)])
    return controls @ powers


_TO_BERNSTEIN = _bernstein_matrix()


@dataclass(frozen=True)
class PathPieces:
    """Position, velocity and acceleration over P pieces of time, as polynomials in ``u`` in [-1, 1].

    Attributes:
        middle: Middles of the pieces, (P,) [s].
        half: Half lengths, (P,) [s].
        position: Coefficients of u^0 to u^5 and last the largest deviation from them, (7, n, P) [rad].
        velocity: The same of the velocity, (7, n, P) [rad/s].
        acceleration: The same of the acceleration, (7, n, P) [rad/s^2].
    """

    middle: Array
    half: Array
    position: Array
    velocity: Array
    acceleration: Array


def enclose_path(trajectory: Trajectory, middle: Array, half: Array) -> PathPieces:
    """Encloses a trajectory over pieces of its time.

    Args:
        trajectory: A Bezier or Fourier trajectory.
        middle: Middles of the pieces, (P,) [s].
        half: Half lengths, (P,) [s]; the pieces lie within the duration.

    Raises:
        InvalidTrajectory: There is no enclosure for this kind of trajectory.
    """
    derivatives, sixth = _derivatives(trajectory, middle)  # (6, n, P), (n,)
    order = np.arange(DEGREE + 1)
    factorials = np.array([factorial(k) for k in order], dtype=float)
    coefficients = []
    for taken in range(3):
        # Taylor's theorem: the k-th derivative of the derivative that is taken, and sixth for what follows.
        count = DEGREE + 1 - taken
        scaled = np.zeros((DEGREE + 2, trajectory.n, middle.size))
        powers = half ** order[:count, None] / factorials[:count, None]
        scaled[:count] = derivatives[taken:] * powers[:, None]
        scaled[-1] = sixth[:, None] * half**count / factorial(count)
        coefficients.append(scaled)
    return PathPieces(middle, half, *coefficients)


def bounds(coefficients: Array) -> tuple[Array, Array]:
    """Lower and upper bounds of polynomials (7, n, P), each (n, P): the extremes of their Bernstein coefficients."""
    controls = np.einsum("ik,knp->inp", _TO_BERNSTEIN, coefficients[:-1])
    return controls.min(axis=0) - coefficients[-1], controls.max(axis=0) + coefficients[-1]


def quadratic(coefficients: Array) -> Array:
    """Return the series (4, n, P) of polynomials (7, n, P)."""
    return np.concatenate([coefficients[:3], np.abs(coefficients[3:]).sum(axis=0, keepdims=True)])


@singledispatch
def _derivatives(trajectory: Trajectory, times: Array) -> tuple[Array, Array]:
    """Compute derivatives 0 to 5 at times inside, (6, n, P), and bound the size of the sixth at all times, (n,)."""
    raise InvalidTrajectory("kind", repr(trajectory.kind), "bezier or fourier; others cannot be verified")


@_derivatives.register
def _(trajectory: BezierTrajectory, times: Array) -> tuple[Array, Array]:
    # From the control points, by repeated differences and de Casteljau's algorithm: only convex combinations.
    s = times / trajectory.duration
    origin = trajectory.control_points[0]
    controls = trajectory.control_points - origin  # (6, n)
    result = np.empty((DEGREE + 1, trajectory.n, times.size))
    for order in range(DEGREE + 1):
        points = np.repeat(controls[:, :, None], times.size, axis=2)
        while len(points) > 1:
            points = (1.0 - s) * points[:-1] + s * points[1:]
        result[order] = points[0]
        controls = (DEGREE - order) / trajectory.duration * np.diff(controls, axis=0)
    result[0] += origin[:, None]
    return result, np.zeros(trajectory.n)


@_derivatives.register
def _(trajectory: FourierTrajectory, times: Array) -> tuple[Array, Array]:
    sine, cosine = trajectory.sine, trajectory.cosine  # (n, L)
    omega = 2.0 * np.pi * trajectory.base_frequency * np.arange(1, sine.shape[1] + 1)
    phase = np.multiply.outer(omega, times)  # (L, P)
    sines, cosines = np.sin(phase), np.cos(phase)
    result = np.empty((DEGREE + 1, trajectory.n, times.size))
    result[0] = trajectory.q_start[:, None] + (sine / omega) @ sines + (cosine / omega) @ (1.0 - cosines)
    rising, falling = sine, cosine  # v = rising cos + falling sin
    for order in range(1, DEGREE + 1):
        result[order] = rising @ cosines + falling @ sines
        rising, falling = falling * omega, -rising * omega
    return result, (np.hypot(sine, cosine) * omega**DEGREE).sum(axis=1)


_DEGREE = 6
_PARTS = 4
_PROGRESS = Polynomial([0.0, 1.0])
_RATE = 1.0 - 3.0 * _PROGRESS**2 + 2.0 * _PROGRESS**3
_SLOWDOWN = -6.0 * _PROGRESS * (1.0 - _PROGRESS)  # times the brake time


@lru_cache(maxsize=1)
def stop_corners() -> Array:
    """Corners of a polytope that contains all stops of brake time 1 s.

    With x from 0 to 1 the share of the brake time that has passed, a stop runs through ``r = 1 - 3 x^2 + 2 x^3``, its
    square and ``d = dr/dt``. The curve is cut into four parts; each lies in the hull of its Bernstein coefficients.

    Returns:
        Rows (r, r^2, d times the brake time), (k, 3).
    """
    points = []
    for part in range(_PARTS):
        here = (_PROGRESS + part) / _PARTS
        columns = [_bernstein(curve(here)) for curve in (_RATE, _RATE**2, _SLOWDOWN)]
        points.append(np.stack(columns, axis=1))
    controls = np.concatenate(points)
    corners: Array = controls[ConvexHull(controls).vertices]
    corners.setflags(write=False)
    return corners


def _bernstein(polynomial: Polynomial) -> Array:
    """Bernstein coefficients of degree 6 on [0, 1]."""
    powers = np.zeros(_DEGREE + 1)
    powers[: polynomial.coef.size] = polynomial.coef
    return np.array([sum(comb(i, j) / comb(_DEGREE, j) * powers[j] for j in range(i + 1)) for i in range(_DEGREE + 1)])


def constant(value: Array, pieces: int) -> Array:
    """Return the series of a value (...) that does not change, (4, ..., P)."""
    series = np.zeros((4, *np.shape(value), pieces))
    series[0] = np.asarray(value)[..., None]
    return series


def multiply(x: Array, y: Array, axis: int | None = None) -> Array:
    """Multiply two series, and sum over an axis of theirs.

    Args:
        x: Series (4, ..., P).
        y: Series of a shape that broadcasts with x.
        axis: Axis of the product to sum over, counted with the leading 4; None sums over none.

    Returns:
        The series of the product.
    """
    where = None if axis is None else axis - 1

    def total(values: Array) -> Array:
        return values if where is None else np.add.reduce(values, axis=where)

    (x0, x1, x2, rx), (y0, y1, y2, ry) = x, y
    constant_term = total(x0 * y0)
    result = np.empty((4, *constant_term.shape))
    result[0] = constant_term
    result[1] = total(x0 * y1 + x1 * y0)
    result[2] = total(x0 * y2 + x1 * y1 + x2 * y0)
    largest_x, largest_y = np.abs(x[:3]).sum(axis=0), np.abs(y[:3]).sum(axis=0)
    rest = total(largest_x * ry + rx * (largest_y + ry))
    # |u^3|, u^4 <= 1.
    result[3] = np.abs(total(x1 * y2 + x2 * y1)) + np.abs(total(x2 * y2)) + rest
    return result


def cross(x: Array, y: Array) -> Array:
    """Return the cross product of two series of vectors (4, ..., 3, P)."""
    left = np.stack([x[..., _NEXT, :], x[..., _AFTER, :]], axis=1)
    right = np.stack([y[..., _AFTER, :], negate(y[..., _NEXT, :])], axis=1)
    return multiply(left, right, axis=1)


def negate(x: Array) -> Array:
    """Return the series of the opposite."""
    result = -x
    result[3] = x[3]
    return result


def subtract(x: Array, y: Array) -> Array:
    """Return the series of a difference."""
    result = x - y
    result[3] = x[3] + y[3]
    return result


def apply(matrix: Array, x: Array) -> Array:
    """Multiply a constant matrix (..., k, m) with the vectors (4, ..., m, P) of a series, (4, ..., k, P)."""
    result = np.empty((4, *np.broadcast_shapes(matrix.shape[:-2], x.shape[1:-2]), matrix.shape[-2], x.shape[-1]))
    np.matmul(matrix, x[:3], out=result[:3])
    np.matmul(np.abs(matrix), x[3], out=result[3])
    return result


def circle(angle: Array) -> tuple[Array, Array]:
    """Cosine and sine of polynomials in u.

    With f the cosine or sine and q the angle, ``|d^3 f(q)/du^3| <= |q'|^3 + 3 |q'| |q''| + |q'''|``.

    Args:
        angle: Coefficients of u^0, u^1, ... and last what the angle may differ by, (K + 1, ..., P) [rad].

    Returns:
        Their series, each (4, ..., P).
    """
    coefficients, rest = angle[:-1], angle[-1]
    order = np.arange(len(coefficients), dtype=float).reshape(-1, *[1] * rest.ndim)
    size = np.abs(coefficients)
    first = (order * size).sum(axis=0)
    second = (order * (order - 1.0) * size).sum(axis=0)
    third = (order * (order - 1.0) * (order - 2.0) * size).sum(axis=0)
    remainder = (first**3 + 3.0 * first * second + third) / 6.0 + rest
    cosine, sine = np.cos(coefficients[0]), np.sin(coefficients[0])
    slope, curve = coefficients[1], coefficients[2]
    square = 0.5 * slope * slope
    return (
        np.stack([cosine, -sine * slope, -cosine * square - sine * curve, remainder]),
        np.stack([sine, cosine * slope, -sine * square + cosine * curve, remainder]),
    )


@dataclass(frozen=True)
class Chain:
    """The constants of the kinematics of an arm. Index i of n is joint i + 1 and the body it moves.

    Attributes:
        turns: From each body's axis frame to the frame the next joint turns in, (n, 3, 3): the axis frame of a body has
            its joint's axis as z.
        offsets: Origin of each joint in the axis frame of the body before, (n, 3) [m]; of the first in the base frame.
        body_turns: Axes of the axis frame of each body in its own joint frame, as columns, (n, 3, 3).
        gravity: In the base frame, (3,) [m/s^2].
    """

    turns: Array
    offsets: Array
    body_turns: Array
    gravity: Array


def build_chain(robot: RobotModel) -> Chain:
    """Return the constants of the kinematics of an arm."""
    model, n = robot.pin_model, robot.n
    base = model.frames[model.getFrameId(robot.base_frame)].placement
    turns, offsets, body_turns = np.empty((n, 3, 3)), np.empty((n, 3)), np.empty((n, 3, 3))
    before = np.array(base.rotation)  # the base frame plays the part of the axis frame of body 0
    for index in range(n):
        placement = model.jointPlacements[index + 1]
        shift = placement.translation - (base.translation if index == 0 else 0.0)
        body_turns[index] = axis_frame(joint_axis(model, index + 1))
        turns[index] = before.T @ placement.rotation @ body_turns[index]
        offsets[index] = before.T @ shift
        before = body_turns[index]
    return Chain(turns, offsets, body_turns, np.array(robot.gravity))


class Motion:
    """Series of the chain over pieces of a path.

    Args:
        chain: The arm.
        path: The pieces.
    """

    def __init__(self, chain: Chain, path: PathPieces):
        self.chain = chain
        self.path = path
        self.velocity = quadratic(path.velocity)
        """Joint velocities, (4, n, P) [rad/s]."""
        self.acceleration = quadratic(path.acceleration)
        """Joint accelerations, (4, n, P) [rad/s^2]."""
        self._place()

    def _place(self) -> None:
        """Rotations of the axis frames, (4, n, 3, 3, P), offsets (4, n, 3, P) and origins (4, n, 3, P) [m]."""
        n, pieces = self.chain.turns.shape[0], self.path.middle.size
        cosine, sine = circle(self.path.position)
        # Row k: how the old x and y axes make the new axis k.
        trigonometry = np.stack([np.stack([cosine, sine], 1), np.stack([negate(sine), cosine], 1)], 1)  # (4,2,2,n,P)
        # Axes as rows of the array: frames[:, i, k] is axis k of body i + 1.
        frames = np.empty((4, n, 3, 3, pieces))
        offsets = np.empty((4, n, 3, pieces))
        before = np.zeros((4, 3, 3, pieces))
        before[0] = np.eye(3)[..., None]
        for index in range(n):
            flat = before.reshape(4, 3, -1)
            offsets[:, index] = apply(self.chain.offsets[index][None], flat).reshape(4, 3, pieces)
            turned = apply(self.chain.turns[index].T, flat).reshape(4, 3, 3, pieces)
            frames[:, index, :2] = multiply(trigonometry[:, :, :, index, None], turned[:, None, :2], axis=2)
            frames[:, index, 2] = turned[:, 2]
            before = frames[:, index]
        self.frames = frames
        self.offsets = offsets
        self.origins = np.cumsum(offsets, axis=1)

    @property
    def axes(self) -> Array:
        """Axes of the joints, (4, n, 3, P)."""
        return self.frames[:, :, 2]

    @cached_property
    def body_axes(self) -> Array:
        """Axes of the joint frames of the bodies, (4, n, 3, 3, P): ``[:, i, k]`` is axis k of body i + 1."""
        shape = self.frames.shape
        return apply(self.chain.body_turns, self.frames.reshape(*shape[:3], -1)).reshape(shape)

    @cached_property
    def rates(self) -> tuple[Array, Array, Array, Array]:
        """Angular velocity and acceleration, velocity and acceleration of the origins, each (4, n, 3, P), in SI.

        In the base frame, gravity not included.
        """
        turning = multiply(self.axes, self.velocity[:, :, None])
        angular = np.cumsum(turning, axis=1)
        before = np.zeros_like(angular)
        before[:, 1:] = angular[:, :-1]
        changes = multiply(self.axes, self.acceleration[:, :, None])
        twisting = cross(before, turning)
        angular_rate = np.cumsum(changes + twisting, axis=1)
        rate_before = np.zeros_like(angular)
        rate_before[:, 1:] = angular_rate[:, :-1]
        steps = cross(before, self.offsets)
        velocity = np.cumsum(steps, axis=1)
        acceleration = np.cumsum(cross(rate_before, self.offsets) + cross(before, steps), axis=1)
        return angular, angular_rate, velocity, acceleration
