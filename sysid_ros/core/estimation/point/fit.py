"""Point estimate: weighted least squares over all physically consistent bodies, inside a box if one is given.

The problem is convex in the parameters, but its infimum lies on the edge of the cone whenever the plain least-squares
solution is not physically consistent, where log-Cholesky coordinates run off to minus infinity. A barrier
``-mu log det`` keeps the minimiser finite; the objective there is at most ``4 mu`` above the infimum (``24 mu``
with the 20 sides of a box, ``33 mu`` with a shape too), since that is the parameter of the barrier. mu falls until that
gap is negligible. Each step is a Newton step in the coordinates of :class:`ConePoint`, in which convergence is
guaranteed and can be measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.lp.problem import Covariance, Problem
from sysid_ros.core.estimation.point.coordinates import BARRIER_GRADIENT, ConePoint, factor, from_parameters
from sysid_ros.core.model.robot import PayloadShape

Array = NDArray[np.float64]

_MU_FACTOR = 0.05
_WEAK = 1e-2
"""Weight of the first barrier relative to the one as strong as the objective: a stronger one than needed leads away
from a start near the solution."""
_INSIDE = 0.02
"""Share of the nominal body in what the next fit starts from: on the edge of the cone, where solutions often lie, the
first steps are short."""
_MAX_STEPS = 500
_PATIENCE = 50
"""Newton steps of one barrier problem before a stronger barrier is tried."""
_CENTERED = 1e-3
"""Newton decrement below which the last barrier problem counts as solved; its objective is then exact to 1e-6 mu."""
_NEAR = 0.25
"""The same for earlier barriers, which only lead there; Newton's method converges quadratically from here."""
_EXACT, _ROUGH = 1e-6, 1e-2
"""Gaps of a fit: of the result, and of what only shows which constraints are active, and from where to go on."""


_UNIT, _AXES, _NOTHING = np.eye(10), np.eye(3), np.zeros((0, 0))


class FitNotConverged(SysidError):
    """The solver ended without a solution of the required accuracy.

    Args:
        steps: Newton steps taken.
        decrement: Newton decrement reached (0 at a solution).
        mu: Weight of the barrier that was reached.
    """

    def __init__(self, steps: int, decrement: float, mu: float):
        super().__init__(
            f"the physically consistent fit did not converge in {steps} steps (Newton decrement {decrement:.2g}, "
            f"barrier weight {mu:.2g}); check the weights of the data and the nominal payload it starts from"
        )


class NoBodyInBox(SysidError):
    """No physically consistent body has its parameters inside a box.

    Args:
        widening: How far all sides of the box would have to move out for one, in radii of the box.
    """

    def __init__(self, widening: float):
        super().__init__(
            f"no physically consistent body has parameters within these bounds; they would have to be wider by "
            f"{100.0 * widening:.2g} %"
        )


@dataclass(frozen=True)
class FitObjective:
    """``(theta - center)^T gram (theta - center) / 2 - linear^T (theta - center)``, in squared standard deviations.

    Attributes:
        gram: Gram matrix, (10, 10), positive semidefinite.
        linear: (10,).
        center: (10,).
    """

    gram: Array
    linear: Array
    center: Array

    def value(self, theta: Array) -> float:
        """Return the value at theta (10,)."""
        offset = theta - self.center
        return float(0.5 * offset @ self.gram @ offset - self.linear @ offset)

    def gradient(self, theta: Array) -> Array:
        """Return the gradient (10,) at theta; the Hessian is ``gram``."""
        return self.gram @ (theta - self.center) - self.linear


@dataclass(frozen=True)
class Fit:
    """A physically consistent minimiser.

    Attributes:
        theta: Parameters, (10,).
        eta: Their log-Cholesky coordinates, (10,): a warm start for the next fit.
        objective: Value of the objective.
        gap: The objective is at most this much above its infimum.
        steps: Newton steps taken.
        mu: Weight of the last barrier.
    """

    theta: Array
    eta: Array
    objective: float
    gap: float
    steps: int
    mu: float


def fit(
    objective: FitObjective,
    start: ArrayLike | Fit,
    box: Box | None = None,
    gap: float = _EXACT,
    shape: PayloadShape | None = None,
) -> Fit:
    """Minimise the objective over all physically consistent bodies, inside a box and of a shape if they are given.

    Args:
        objective: The least-squares objective.
        start: Log-Cholesky coordinates of the body to start from, (10,); or a solution with a larger gap, inside the
            same box and shape, to go on from with its barrier.
        box: Where the solution must lie, or None.
        gap: Largest distance of the objective from its infimum.
        shape: Shape that the body must have, with a box only. The radius of gyration is limited about the CoM of the
            start, or the point of the shape nearest to it, in place of the body's own, so that the infimum is that of a
            convex part of all bodies of the shape: fit again from the solution to come closer.

    Raises:
        NoBodyInBox: No body lies in the box.
        FitNotConverged: No solution of that quality was found.

    Source: SAFE-ID (25) and (16), with weights and a barrier.
    """
    begun: Fit | None = None
    if isinstance(start, Fit):
        begun, start = start, start.eta
    point, steps = ConePoint(factor(start)), 0
    sides = None
    if box is not None:
        com = None if shape is None else np.clip(point.theta[1:4] / point.theta[0], shape.com.lower, shape.com.upper)
        sides = _Sides(box, shape, com)
        point, steps = _enter(sides, point)
    parameter = 4.0 if sides is None else 4.0 + sides.parameter
    last = gap / (1.01 * parameter)
    pull = float(np.linalg.norm(point.tangent.T @ objective.gradient(point.theta)))  # the barrier's is 2
    mu = max(_WEAK * pull if begun is None else begun.mu, last)
    while True:
        wanted = _CENTERED if mu <= last else _NEAR
        point, used, decrement = _center(objective, sides, point, mu, wanted)
        steps += used
        if decrement > wanted:
            if steps >= _MAX_STEPS:
                raise FitNotConverged(steps, decrement, mu)
            # From a start close to the edge of the cone and far from the solution a weak barrier goes slowly.
            mu /= _MU_FACTOR**3
            continue
        if mu <= last:
            return Fit(point.theta, point.eta, objective.value(point.theta), 1.01 * parameter * mu, steps, mu)
        mu = max(mu * _MU_FACTOR, last)


class _Sides:
    """Barrier of the sides of a box and of a known shape, all widened by a size; 1 is as they are.

    A shape limits the CoM, ``l m <= m c <= u m``, and the radius of gyration: the inertia about the CoM is at most the
    inertia about any other point, so it is enough if the inertia about a given point stays below ``m r^2``, which is
    linear.

    Args:
        box: Box of the parameters, (10,).
        shape: Shape of the body; None if unknown.
        com: The point, (3,) [m].
    """

    def __init__(self, box: Box, shape: PayloadShape | None = None, com: Array | None = None):
        middle, scale = box.center, np.maximum(0.5 * box.width, 1e-12) * (1.0 - 1e-9)
        unit = np.eye(10)
        self._rows, self._offsets = np.concatenate([-unit, unit]), np.concatenate([middle + scale, scale - middle])
        self._widths, self._matrices, self._spin = np.tile(scale, 2), np.zeros((0, 3, 3)), 1.0
        self.parameter = 20.0
        if shape is not None and com is not None:
            self._add_shape(shape, com, max(float(box.upper[0]), 1e-9))
        self._with_size = np.concatenate([self._rows, self._widths[:, None]], axis=1)
        self._matrices_with_size = np.concatenate([self._matrices, self._spin * _AXES[None]])

    def _add_shape(self, shape: PayloadShape, com: Array, mass: float) -> None:
        unit = np.eye(10)
        inner = 1.0 - 1e-9
        center, radius = shape.com.center, np.maximum(shape.com.radius, 1e-9) * inner
        rows = np.concatenate(
            [np.outer(center + radius, unit[0]) - unit[1:4], unit[1:4] - np.outer(center - radius, unit[0])]
        )
        widths = mass * np.tile(radius, 2)
        if shape.turned is not None:
            middle, half = shape.turned.box.center, np.maximum(shape.turned.box.radius, 1e-9) * inner
            first = shape.turned.axes.T @ unit[1:4]
            rows = np.concatenate(
                [rows, np.outer(middle + half, unit[0]) - first, first - np.outer(middle - half, unit[0])]
            )
            widths = np.append(widths, mass * np.tile(half, 2))
        self._rows = np.concatenate([self._rows, rows])
        self._offsets, self._widths = np.append(self._offsets, np.zeros(len(rows))), np.append(self._widths, widths)
        gyration = inner * shape.gyration**2
        self._matrices = np.stack([one[0] * gyration * np.eye(3) - _inertia_about(one, com) for one in unit])
        self._spin = mass * gyration
        self.parameter += 3.0 + len(rows)

    def _room(self, theta: Array, size: float) -> tuple[Array, Array]:
        """Return the slack of each side, (L,), and of the radius of gyration, (3, 3) or nothing."""
        room = self._rows @ theta + self._offsets + (size - 1.0) * self._widths
        if not len(self._matrices):
            return room, _NOTHING
        spin = (theta @ self._matrices.reshape(10, 9)).reshape(3, 3)
        return room, spin + (size - 1.0) * self._spin * _AXES

    def distance(self, theta: Array) -> float:
        """Return the smallest size that holds theta; below 1 inside."""
        room, spin = self._room(theta, 1.0)
        largest = 1.0 - float(np.min(room / self._widths))
        return max(largest, 1.0 - float(np.linalg.eigvalsh(spin)[0]) / self._spin) if spin.size else largest

    def barrier(self, theta: Array, size: float = 1.0) -> tuple[Array, Array]:
        """Return gradient (11,) and Hessian (11, 11) of ``-log`` of all slacks, in theta and the size."""
        room, spin = self._room(theta, size)
        rows = self._with_size / room[:, None]
        gradient, hessian = -rows.sum(axis=0), rows.T @ rows
        if spin.size:
            inverse = _invert(spin)
            scaled = inverse @ self._matrices_with_size
            gradient = gradient - self._matrices_with_size.reshape(11, 9) @ inverse.ravel()  # both are symmetric
            hessian = hessian + scaled.reshape(11, 9) @ scaled.transpose(0, 2, 1).reshape(11, 9).T
        return gradient, hessian

    def slope(self, theta: Array) -> Array:
        """Return the gradient (10,) of :meth:`barrier` in theta at size 1, without the Hessian."""
        room, spin = self._room(theta, 1.0)
        gradient = -(1.0 / room) @ self._rows
        if spin.size:
            gradient = gradient - self._matrices.reshape(10, 9) @ _invert(spin).ravel()
        return np.asarray(gradient)

    def longest_step(self, theta: Array, move: Array) -> float:
        """Return the largest s for which ``theta + s move`` is inside."""
        room, spin = self._room(theta, 1.0)
        slope = self._rows @ move
        longest = float(np.min(np.where(slope < 0.0, room / np.maximum(-slope, 1e-300), np.inf)))
        if spin.size:
            moved = (move @ self._matrices.reshape(10, 9)).reshape(3, 3)
            values, _, status = lapack.dsygv(moved, spin, jobz="N")
            if status:
                raise np.linalg.LinAlgError("not inside the shape")
            lowest = float(values[0])
            longest = min(longest, -1.0 / lowest) if lowest < 0.0 else longest
        return longest


def _invert(spin: Array) -> Array:
    *_, inverse, status = lapack.dgesv(spin, _AXES)  # numpy's checks take longer than this
    if status:
        raise np.linalg.LinAlgError("on the edge of the shape")
    return np.asarray(inverse)


def _inertia_about(theta: Array, point: Array) -> Array:
    """Return the inertia (3, 3) about a point, (3,): linear in the parameters, (10,)."""
    ixx, ixy, iyy, ixz, iyz, izz = theta[4:]
    inertia = np.array([[ixx, ixy, ixz], [ixy, iyy, iyz], [ixz, iyz, izz]])
    shift = np.outer(theta[1:4], point) + np.outer(point, theta[1:4]) - theta[0] * np.outer(point, point)
    return np.asarray(inertia - np.trace(shift) * np.eye(3) + shift)


def has_shape(theta: Array, shape: PayloadShape) -> bool:
    """Return whether a body (10,) has its CoM in the box of a shape and is not wider than its radius of gyration."""
    mass = float(theta[0])
    if mass <= 0.0:
        return False
    com = theta[1:4] / mass
    largest = float(np.linalg.eigvalsh(_inertia_about(theta, com))[-1])
    is_turned = shape.turned is None or shape.turned.box.contains(shape.turned.axes.T @ com)
    return bool(shape.com.contains(com) and is_turned and largest <= mass * shape.gyration**2)


def _center(
    objective: FitObjective, sides: _Sides | None, point: ConePoint, mu: float, wanted: float
) -> tuple[ConePoint, int, float]:
    """Minimise ``objective / mu + barrier`` to a Newton decrement; return the point, the steps and the decrement."""
    decrement = np.inf
    for step in range(_PATIENCE):
        gradient, hessian = _barrier_model(objective, sides, point, mu)
        move = _newton_step(hessian, gradient, step, mu)
        decrement = float(np.sqrt(max(float(-gradient @ move), 0.0)))
        if decrement <= wanted:
            return point, step, decrement
        longest = point.longest_step(move)
        if sides is not None:
            longest = min(longest, sides.longest_step(point.theta, point.tangent @ move))
        length = min(1.0, 0.9 * longest)
        candidate = point.moved(length * move)
        # Halve a long step until the objective still falls at its end; the damped step always makes progress.
        while length * (1.0 + decrement) > 1.0 and decrement > 0.25:
            if _slope_along(objective, sides, candidate, mu, point.tangent @ move) <= 0.0:
                break
            length = max(0.5 * length, 1.0 / (1.0 + decrement))
            candidate = point.moved(length * move)
        point = candidate
    return point, _PATIENCE, decrement


def _newton_step(hessian: Array, gradient: Array, step: int, mu: float) -> Array:
    """Return the Newton step, (k,); a Hessian that is singular by rounding ends the fit as not converged."""
    *_, move, status = lapack.dgesv(hessian, -gradient)  # for few unknowns numpy's checks take longer than this
    if status:
        raise FitNotConverged(step, np.inf, mu)
    return np.asarray(move)


def _barrier_model(objective: FitObjective, sides: _Sides | None, point: ConePoint, mu: float) -> tuple[Array, Array]:
    """Return gradient and Hessian of ``objective / mu + barrier`` in the coordinates of the point."""
    gradient, hessian = objective.gradient(point.theta) / mu, objective.gram / mu
    if sides is not None:
        slope, curvature = sides.barrier(point.theta)
        gradient, hessian = gradient + slope[:10], hessian + curvature[:10, :10]
    turned = point.tangent.T @ hessian @ point.tangent
    return point.tangent.T @ gradient + BARRIER_GRADIENT, 0.5 * (turned + turned.T) + _UNIT


def _slope_along(objective: FitObjective, sides: _Sides | None, point: ConePoint, mu: float, direction: Array) -> float:
    """Return the derivative of ``objective / mu + barrier`` at a point along a direction of theta, (10,)."""
    gradient = objective.gradient(point.theta) / mu
    if sides is not None:
        gradient = gradient + sides.slope(point.theta)
    # The direction in the coordinates of this point: the barrier's gradient there is -trace.
    local = lapack.dgesv(point.tangent, direction)[2]
    return float(gradient @ direction + BARRIER_GRADIENT @ local)


def _enter(sides: _Sides, point: ConePoint) -> tuple[ConePoint, int]:
    """Find a body inside the box: widen the box until it holds the point, then shrink it ahead of a barrier."""
    # With a smaller weight the centre of the barrier problem lies outside of the box anyway.
    size, weight = 1.1 * sides.distance(point.theta) + 0.1, sides.parameter + 10.0
    for step in range(_MAX_STEPS):
        if sides.distance(point.theta) < 0.99:
            return point, step
        slope, curvature = sides.barrier(point.theta, size)
        tangent = scipy.linalg.block_diag(point.tangent, 1.0)
        gradient = tangent.T @ slope + np.append(BARRIER_GRADIENT, weight)
        hessian = tangent.T @ curvature @ tangent
        hessian[:10, :10] += np.eye(10)
        move = _newton_step(hessian, gradient, step, 1.0 / weight)
        decrement = float(np.sqrt(max(float(-gradient @ move), 0.0)))
        point, size = point.moved(move[:10] / (1.0 + decrement)), size + float(move[10]) / (1.0 + decrement)
        if decrement < 0.5:
            # Near the centre of the barrier problem the size is within the parameter of the barrier, that of the cone
            # included, over the weight of the smallest one there is.
            if size - (sides.parameter + 10.0) / weight > 1.0 or weight > 1e9:
                raise NoBodyInBox(size - 1.0)
            weight *= 5.0
    raise FitNotConverged(_MAX_STEPS, decrement, 1.0 / weight)


class PointEstimator:
    """Fits one body, starting from the previous fit.

    Args:
        nominal: Physically consistent target, (10,): start of the first fit, and the estimate where data say nothing.
        prior: Box of the target before any data.
        prior_weight: Weight of the nominal target, relative to one prior radius as standard deviation.
        shape: Shape of the target as an object; None if unknown.
    """

    def __init__(self, nominal: Array, prior: Box, prior_weight: float, shape: PayloadShape | None = None):
        self._nominal, self._shape = nominal, shape
        self._information = prior_weight**2 / np.maximum(prior.radius, 1e-9) ** 2
        self._start = from_parameters(nominal)

    def estimate(self, problem: Problem, box: Box | None) -> Array:
        """Fit a physically consistent target (10,) to the rows, inside a box and of the known shape if one is given.

        Where no fit of the known shape is found inside the box, the shape is ignored.

        Raises:
            FitNotConverged: The solver found no solution of the required accuracy.
            NoBodyInBox: No physically consistent target lies in the box.
        """
        objective = self.build(problem)
        solution = self._fit(objective, box)
        self._start = from_parameters((1.0 - _INSIDE) * solution.theta + _INSIDE * self._nominal)
        return solution.theta

    def _fit(self, objective: FitObjective, box: Box | None) -> Fit:
        """Fit with the box and the shape only where the solution without them leaves them."""
        start: Array | Fit = self._start
        limits = None
        for gap in (_ROUGH, _EXACT):
            solution = fit(objective, start, limits, gap)
            if limits is None and box is not None and not box.contains(solution.theta):
                limits = box
                solution = fit(objective, solution.eta, limits, gap)
            if box is not None and self._shape is not None and not has_shape(solution.theta, self._shape):
                return self._fit_shape(objective, solution, box, self._shape)
            start = solution
        return solution

    def _fit_shape(self, objective: FitObjective, solution: Fit, box: Box, shape: PayloadShape) -> Fit:
        """Fit again with the shape, the second time about the CoM found the first time."""
        shaped = solution
        try:
            for gap in (_ROUGH, _EXACT):
                shaped = fit(objective, solution.eta if shaped is solution else shaped, box, gap, shape)
        except (NoBodyInBox, FitNotConverged):
            return fit(objective, solution.eta, box) if shaped is solution else shaped
        return shaped

    def build(self, problem: Problem) -> FitObjective:
        """Build the least-squares problem with every radius as a standard deviation."""
        covariance = Covariance.of(problem, problem.y)
        return FitObjective(
            gram=covariance.gram + np.diag(self._information),
            linear=covariance.solve(np.eye(10)).T @ problem.r + self._information * (self._nominal - problem.center),
            center=problem.center,
        )


def nearest_body(values: ArrayLike, box: Box, start: ArrayLike) -> Array:
    """Return the physically consistent body of a box that is nearest to ten parameters, in units of its radii, (10,).

    ``start`` is a body to start from, (10,).

    Raises:
        NoBodyInBox: No body lies in the box.
        FitNotConverged: None was found.
    """
    weights = np.diag(np.maximum(box.radius, 1e-9) ** -2)
    objective = FitObjective(weights, weights @ (np.asarray(values) - box.center), box.center)
    return fit(objective, from_parameters(start), box, 1e-4).theta


class LinearEstimator:
    """Estimates all bodies at once; the interface of :class:`PointEstimator`.

    Parameters that the rows do not determine stay in the middle of their box. The result need not be physically
    consistent.
    """

    def estimate(self, problem: Problem, box: Box) -> Array:
        """Fit the target (P,) to the rows with every radius as a standard deviation, clipped to a box."""
        count = problem.radius.size
        covariance = Covariance.of(problem, problem.y * problem.radius)
        x = np.linalg.solve(np.eye(count) + covariance.gram, covariance.solve(np.eye(count)).T @ problem.r)
        return np.clip(problem.center + problem.radius * x, box.lower, box.upper)
