"""Point estimates of the minimal parameters from the momentum equation.

``K(q, v) phi + h = P``: momentum of the robot with its minimal parameters phi, of the wheels, and of all together.
Noise of the velocities sits in the regressor K, which is linear in them: with the unit momenta ``H`` of each velocity,
``K(q, v + e) phi = K(q, v) phi + (H phi) e``. Least squares ignore that, and are biased.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.spatial import skew
from sysid_ros.space.core.measurements import FloatingData
from sysid_ros.space.core.method import Method
from sysid_ros.space.core.minimal_parameters import MinimalParameters
from sysid_ros.space.core.momentum import PARAMETERS, FloatingTree, link_kinematic_matrices
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

_REWEIGHTINGS = 3
"""Steps of weighted least squares; with strong noise in the regressor more of them only increase the bias."""
_STEPS = 30
_CONVERGED = 1e-6
"""Largest last step, in standard deviations of the estimate."""


@dataclass(frozen=True, eq=False)
class MinimalEstimate:
    """Estimate of the minimal parameters.

    Attributes:
        values: Minimal parameters, (M,).
        deviations: Their standard deviations by white noise for an unbiased method, (M,).
        momentum: Momentum of robot and wheels in inertial axes, (6,) [kg m/s, kg m^2/s]; zero where known.
        iterations: Steps taken.
    """

    values: Array
    deviations: Array
    momentum: Array
    iterations: int


def unit_momenta(tree: FloatingTree, q: ArrayLike) -> Array:
    """Compute the momentum matrices of unit velocities.

    Args:
        tree: The robot.
        q: Joint positions, (N, nq) [rad, m].

    Returns:
        Matrices H, (N, 6 + nv, 6, 10 B): momentum per parameter, for unit velocity of each direction of the base, then
        of each joint; the system kinematic matrix is their sum weighted by the velocities.
    """
    positions = np.asarray(q, dtype=float)
    samples = len(positions)
    still = np.zeros((samples, tree.nv))
    at_rest = tree.evaluate(positions, still)
    result = np.empty((samples, 6 + tree.nv, 6, PARAMETERS * tree.count))
    for k, unit in enumerate(np.eye(6 + tree.nv)):
        states = at_rest.with_base_twist(unit[:6]) if k < 6 else tree.evaluate(positions, still + unit[6:])
        result[:, k] = np.swapaxes(link_kinematic_matrices(states), 1, 2).reshape(samples, 6, -1)
    return result


def momentum_columns(rotations: Array, positions: Array) -> Array:
    """Return the map of a momentum in inertial axes about the inertial origin to those of the base, (N, 6, 6)."""
    back = np.swapaxes(rotations, 1, 2)
    result = np.zeros((len(rotations), 6, 6))
    result[:, :3, :3], result[:, 3:, 3:] = back, back
    result[:, 3:, :3] = -back @ skew(positions)
    return result


def estimate_minimal(
    robot: FreeFlyer,
    minimal: MinimalParameters,
    data: FloatingData,
    method: Method = Method.TOTAL,
    is_momentum_zero: bool = True,
) -> MinimalEstimate:
    """Estimate the minimal parameters.

    Args:
        robot: The robot, with the standard deviations of its sensors.
        minimal: Its minimal parameters.
        data: Samples.
        method: The method.
        is_momentum_zero: Whether robot and wheels together have no momentum; if not it is estimated too.

    Raises:
        ParameterOutOfRange: The data do not determine all of them, a wheel is faster than it can be, or total least
            squares do not converge.

    Source: SPACE (26), (27); total least squares as in W. E. Deming, Statistical adjustment of data (1943).
    """
    return MomentumRegression(robot, minimal, data, is_momentum_zero).estimate(method)


class MomentumRegression:
    """Rows of the momentum equation of a recording, for estimates by several methods.

    Attributes:
        regressor: Columns of the minimal parameters, and of the momentum where it is unknown, (N, 6, P).
        right: Right-hand side, (N, 6).
    """

    def __init__(self, robot: FreeFlyer, minimal: MinimalParameters, data: FloatingData, is_momentum_zero: bool = True):
        linear, angular, joint = robot.noise
        self._count = minimal.count
        self._variances = np.concatenate([np.full(3, linear), np.full(3, angular), np.full(robot.n, joint)]) ** 2
        self._units = unit_momenta(robot.tree, data.q)[..., minimal.kept]
        self._velocities = data.velocities
        unknown = None if is_momentum_zero else -momentum_columns(data.rotations, data.positions)
        self._unknown = np.zeros((len(data), 6, 0)) if unknown is None else unknown
        self.regressor = self._regressor_of(self._velocities)
        self.right = -robot.wheels.momentum(data.wheel_rates)

    def estimate(self, method: Method) -> MinimalEstimate:
        """Estimate the minimal parameters, see :func:`estimate_minimal`."""
        values, _ = self._solve(self.regressor, self.right, None)
        if method is Method.LEAST_SQUARES:
            _, inverse = self._solve(self.regressor, self.right, self._covariance(values))
            return self._result(values, inverse, 1)
        for step in range(1, _STEPS + 1):
            covariance = self._covariance(values)
            regressor, right = self.regressor, self.right
            if method is Method.TOTAL:
                errors, gains = self._errors(values, covariance)
                regressor = self._regressor_of(self._velocities - errors)
                right = self.right - np.einsum("nki,nk->ni", gains, errors)
            last = values
            values, inverse = self._solve(regressor, right, covariance)
            is_settled = bool(np.all(np.abs(values - last) <= _CONVERGED * np.sqrt(np.diag(inverse))))
            if is_settled or (method is Method.WEIGHTED and step == _REWEIGHTINGS):
                return self._result(values, inverse, step)
        raise ParameterOutOfRange(
            f"iterations of {method.value} [-]",
            _STEPS,
            "convergence before; more excitation, or a method that is linear",
        )

    def _regressor_of(self, velocities: Array) -> Array:
        """Return the regressor with columns of the momentum, (N, 6, P)."""
        matrix = np.einsum("nk,nkic->nic", velocities, self._units, optimize=True)
        return np.concatenate([matrix, self._unknown], axis=2)

    def _covariance(self, values: Array) -> Array:
        """Return the covariance of the six rows of each sample, (N, 6, 6)."""
        gains = self._units @ values[: self._count]
        covariance: Array = np.einsum("nki,k,nkj->nij", gains, self._variances, gains, optimize=True)
        return covariance

    def _errors(self, values: Array, covariance: Array) -> tuple[Array, Array]:
        """Return the most likely errors of the velocities with given parameters (N, 6 + n), and gains (N, 6 + n, 6)."""
        residual = self.regressor @ values - self.right
        multipliers = np.linalg.solve(covariance, residual[..., None])[..., 0]
        gains = self._units @ values[: self._count]
        return self._variances * np.einsum("nki,ni->nk", gains, multipliers), gains

    def _solve(self, regressor: Array, right: Array, covariance: Array | None) -> tuple[Array, Array]:
        """Solve weighted least squares; return the solution (P,) and its covariance (P, P)."""
        if covariance is not None:
            factors = np.linalg.cholesky(covariance)
            both = np.linalg.solve(factors, np.concatenate([regressor, right[..., None]], axis=2))
            regressor, right = both[..., :-1], both[..., -1]
        flat = regressor.reshape(-1, regressor.shape[2])
        scale = np.maximum(np.linalg.norm(flat, axis=0), 1e-300)
        q, r = np.linalg.qr(flat / scale)  # far fewer operations than singular values of all rows
        u, s, vt = np.linalg.svd(r)
        rank = int(np.count_nonzero(s > 1e-11 * s[0]))
        if rank < flat.shape[1]:
            raise ParameterOutOfRange(
                "rank of the data", rank, f"{flat.shape[1]}; move more joints, in more directions, with wheels"
            )
        solution = vt.T @ ((u.T @ (q.T @ right.reshape(-1))) / s) / scale
        half = (vt.T / s) / scale[:, None]
        return solution, half @ half.T

    def _result(self, values: Array, inverse: Array, iterations: int) -> MinimalEstimate:
        deviations, momentum = np.sqrt(np.diag(inverse)), np.zeros(6)
        if values.size > self._count:
            momentum = values[self._count :]
        return MinimalEstimate(values[: self._count], deviations[: self._count], momentum, iterations)
