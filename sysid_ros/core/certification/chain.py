"""Enclosures over pieces of time: of a trajectory, and of the bodies of an arm as they move along it.

A *series*, the quadratic Taylor model of a function of time over P pieces at once, is an array (4, ..., P). Over a
piece, with ``u`` in [-1, 1] the time since its middle divided by its half length, the function lies within
``x[0] + x[1] u + x[2] u^2 +- x[3]``. The kernel makes them of cubic ones; every operation keeps this true in exact
arithmetic. Rounding is accounted for once, at the end (see :data:`sysid_ros.core.certification.checks.ROUNDING`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, singledispatch
from math import comb, factorial

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory

Array = NDArray[np.float64]

DEGREE = 5
"""Degree of the polynomials."""


def _bernstein_matrix() -> Array:
    """From the coefficients of u^k, u in [-1, 1], to Bernstein coefficients of the same degree."""
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
        ParameterOutOfRange: There is no enclosure for this kind of trajectory.
    """
    derivatives, sixth = _derivatives(trajectory, middle)  # (6, n, P), (n,)
    order = np.arange(DEGREE + 1)
    factorials = np.array([factorial(k) for k in order], dtype=float)
    coefficients = []
    for taken in range(3):
        # Taylor's theorem: the k-th derivative of the requested one, and the sixth for the remainder.
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
    raise ParameterOutOfRange("kind", trajectory.kind, "bezier or fourier; others cannot be verified")


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


class Motion:
    """An arm along pieces of a path, in its base frame."""

    def __init__(self, tree: JointTree, path: PathPieces):
        self.tree, self.path = tree, path
        self.velocity = quadratic(path.velocity)
        """Joint velocities, (4, n, P) [rad/s]."""
        self.acceleration = quadratic(path.acceleration)
        """Joint accelerations, (4, n, P) [rad/s^2]."""

    def regressors(self) -> Array:
        """Enclose the torque regressors of gravity, ``M a + c`` and ``M v``: series, (3, 4, pairs, 10, P).

        The pairs are those of a joint and a body that it moves, joint by joint.
        """
        pairs = int(self.tree.is_ancestor.sum())
        result = np.empty((3, 4, pairs, INERTIAL, self.path.middle.size))
        path = self.path
        self.tree.compiled.torque_along(path.position, path.velocity, path.acceleration, result)
        return result

    def points(self, bodies: NDArray[np.intp], local: Array) -> tuple[Array, Array, Array]:
        """Enclose points of bodies in the base frame.

        Args:
            bodies: The body of each of k points, 0 for the base, (k,).
            local: The points in the frames of their bodies, (k, 3) [m].

        Returns:
            Series of the points, (4, k, 3, P) [m], and in the middle of the pieces the axes of the joints and the
            origins of the bodies, (n, 3, P) each.
        """
        pieces, n = self.path.middle.size, self.tree.n
        points, axes, origins = (
            np.empty((4, len(bodies), 3, pieces)),
            np.empty((n, 3, pieces)),
            np.empty((n, 3, pieces)),
        )
        self.tree.compiled.points_along(self.path.position, bodies.tolist(), local, points, axes, origins)
        return points, axes, origins
