"""Point estimate: weighted least squares over all physically consistent bodies.

The problem is convex in the parameters, but its infimum lies on the edge of the cone whenever the plain least-squares
solution is not physically consistent, where log-Cholesky coordinates run off to minus infinity. A barrier
``-mu log det`` (linear in those coordinates) keeps the minimiser finite; the objective at the minimiser of the barrier
problem is at most ``4 mu`` above the infimum, since the barrier of the cone of 4x4 matrices has parameter four. mu falls
until that gap is negligible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.errors import SysidError
from sysid_ros.core.estimation.log_cholesky import (
    LOG_DETERMINANT_GRADIENT,
    PSEUDO_INERTIA_MAP,
    derivatives,
    from_parameters,
)
from sysid_ros.core.model.box import Box

Array = NDArray[np.float64]

_MU_FACTOR = 0.05
_MAX_ITERATIONS = 400
_CENTERED = 1e-3
"""Newton decrement below which the barrier problem counts as solved; its objective is then exact to 1e-6 mu."""


class FitNotConverged(SysidError):
    """The solver ended without a solution it can vouch for.

    Args:
        iterations: Newton steps taken.
        decrement: Newton decrement reached (0 at a solution).
        mu: Weight of the barrier it got to.
    """

    def __init__(self, iterations: int, decrement: float, mu: float):
        self.iterations = iterations
        self.decrement = decrement
        self.mu = mu
        super().__init__(
            f"the physically consistent fit did not converge in {iterations} steps (Newton decrement {decrement:.2g}, "
            f"barrier weight {mu:.2g}); check the weights of the data and the nominal payload it starts from"
        )


@dataclass(frozen=True)
class FitObjective:
    """``(theta - center)^T gram (theta - center) / 2 - linear^T (theta - center)``, in units of standard deviations.

    Attributes:
        gram: Gram matrix, (10, 10), positive semidefinite.
        linear: (10,).
        center: (10,).
        box: Where the solution should lie, or None; points outside are punished, not excluded.
        box_weight: Weight of the squared distance from the box in half widths of it.
    """

    gram: Array
    linear: Array
    center: Array
    box: Box | None = None
    box_weight: float = 1e8

    def value(self, theta: Array) -> float:
        """Value at theta (10,)."""
        offset = theta - self.center
        value = float(0.5 * offset @ self.gram @ offset - self.linear @ offset)
        if self.box is not None:
            outside, scale = self._outside(theta)
            value += 0.5 * self.box_weight * float(np.sum((outside * scale) ** 2))
        return value

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        """Gradient (10,) and Hessian (10, 10) at theta."""
        gradient, hessian = self.gram @ (theta - self.center) - self.linear, self.gram
        if self.box is not None:
            outside, scale = self._outside(theta)
            gradient = gradient + self.box_weight * outside * scale**2
            hessian = hessian + np.diag(self.box_weight * scale**2 * (outside != 0.0))
        return gradient, hessian

    def _outside(self, theta: Array) -> tuple[Array, Array]:
        """Signed distance from the box and what it is measured in (its inverse), each (10,)."""
        outside = np.maximum(theta - self.box.upper, 0.0) - np.maximum(self.box.lower - theta, 0.0)
        return outside, 1.0 / np.maximum(self.box.radius, 1e-9)


@dataclass(frozen=True)
class Fit:
    """A physically consistent minimiser.

    Attributes:
        theta: Parameters, (10,).
        eta: Their log-Cholesky coordinates, (10,); a warm start for the next fit.
        objective: Value of the objective.
        gap: The objective is at most this much above its infimum.
        iterations: Newton steps taken.
    """

    theta: Array
    eta: Array
    objective: float
    gap: float
    iterations: int


def fit(objective: FitObjective, start: ArrayLike, gap: float = 1e-6) -> Fit:
    """Minimises the objective over all physically consistent bodies.

    Args:
        objective: What to minimise.
        start: Log-Cholesky coordinates to start from, (10,).
        gap: Largest distance of the objective from its infimum.

    Raises:
        FitNotConverged: No solution of that quality was found.

    Source: SAFE-ID (25) and (16), with weights and a barrier.
    """
    eta = np.array(start, dtype=float)
    mu, last = max(1.0, 0.25 * gap), 0.25 * gap / 1.01
    iterations = 0
    while True:
        eta, used, decrement = _solve_barrier(objective, eta, mu, _MAX_ITERATIONS - iterations)
        iterations += used
        if decrement > _CENTERED:
            raise FitNotConverged(iterations, decrement, mu)
        if mu <= last:
            theta, _, _ = derivatives(eta)
            return Fit(theta, eta, objective.value(theta), 4.0 * mu * 1.01, iterations)
        mu = max(mu * _MU_FACTOR, last)


def start_from(theta: ArrayLike) -> Array:
    """Log-Cholesky coordinates to start from, for physically consistent parameters (10,).

    Raises:
        NotPhysicallyConsistent: No body has these parameters.
    """
    return from_parameters(theta)


def _solve_barrier(objective: FitObjective, eta: Array, mu: float, budget: int) -> tuple[Array, int, float]:
    """Newton steps in a trust region until the barrier problem is solved; returns eta, steps and decrement."""
    reach = 1.0
    theta, jacobian, curvature = derivatives(eta)
    value = objective.value(theta) - mu * float(LOG_DETERMINANT_GRADIENT @ eta)
    decrement = np.inf
    for step in range(max(budget, 0) + 1):
        slope, hessian = objective.derivatives(theta)
        decrement = _decrement(theta, slope, hessian, mu)
        if decrement <= _CENTERED or step >= budget:
            return eta, step, decrement
        gradient = jacobian.T @ slope - mu * LOG_DETERMINANT_GRADIENT
        full = jacobian.T @ hessian @ jacobian + (slope @ curvature.reshape(10, 100)).reshape(10, 10)
        move, predicted = _trust_region_step(gradient, full, reach)
        candidate = eta + move
        new = derivatives(candidate)
        new_value = objective.value(new[0]) - mu * float(LOG_DETERMINANT_GRADIENT @ candidate)
        ratio = (value - new_value) / predicted if predicted > 0.0 else -1.0
        # Near the solution the decrease drowns in rounding: a full Newton step is taken all the same.
        is_tiny = predicted <= 1e-13 * (1.0 + abs(value))
        if ratio > 0.05 or is_tiny:
            eta, value, (theta, jacobian, curvature) = candidate, new_value, new
        reach = _next_reach(reach, ratio, float(np.linalg.norm(move)))
    return eta, budget, decrement


def _next_reach(reach: float, ratio: float, length: float) -> float:
    if ratio > 0.75 and length > 0.8 * reach:
        return min(2.0 * reach, 20.0)
    return reach if ratio > 0.25 else 0.25 * min(reach, length)


def _trust_region_step(gradient: Array, hessian: Array, reach: float) -> tuple[Array, float]:
    """Minimiser of the quadratic model within ``reach`` and the decrease it promises."""
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    projected = vectors.T @ gradient
    floor = 1e-14 * max(float(np.abs(values).max()), 1e-300)

    def coordinates(shift: float) -> Array:
        return -projected / np.maximum(values + shift, floor)

    low = max(0.0, -float(values[0]) + floor)
    step = coordinates(low)
    if values[0] <= floor or np.linalg.norm(step) > reach:
        high = low + float(np.linalg.norm(projected)) / reach + floor
        while high - low > 0.05 * high:  # anything near the edge of the region will do
            middle = 0.5 * (low + high)
            low, high = (middle, high) if np.linalg.norm(coordinates(middle)) > reach else (low, middle)
        step = coordinates(high)
    return vectors @ step, -float(projected @ step + 0.5 * values @ step**2)


def _decrement(theta: Array, slope: Array, hessian: Array, mu: float) -> float:
    """Newton decrement of the barrier problem over mu, in the parameters, where it is convex and self-concordant."""
    inverse = np.linalg.inv(np.tensordot(theta, PSEUDO_INERTIA_MAP, axes=1))
    turned = inverse @ PSEUDO_INERTIA_MAP
    gradient = slope - mu * np.trace(turned, axis1=1, axis2=2)
    curvature = hessian + mu * turned.reshape(10, 16) @ turned.transpose(0, 2, 1).reshape(10, 16).T
    scale = 1.0 / np.sqrt(np.maximum(np.diag(curvature), 1e-300))
    scaled = curvature * np.outer(scale, scale)
    return float(np.sqrt(max(gradient * scale @ np.linalg.solve(scaled, gradient * scale), 0.0) / mu))
