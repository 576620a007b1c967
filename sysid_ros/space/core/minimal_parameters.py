"""Minimal parameters of a floating tree in closed form, from its geometry alone, and point estimates of them.

Parameters that a joint cannot separate are known beforehand. A distribution of mass on the axis of a revolute joint,
for instance, moves in the same way as a part of the child or of the parent: three parameters, its mass, its first
moment along the axis and its second moment. From the leaves to the base these are taken from each child and added to
its parent; the rest are the minimal parameters (SPACE section 4).

Estimates rest on the momentum equation ``K(q, v) phi + h = P``: momentum of the robot with its minimal parameters phi,
of the wheels, and of all together. Noise of the velocities sits in the regressor K, which is linear in them: with the
unit momenta ``H`` of each velocity, ``K(q, v + e) phi = K(q, v) phi + (H phi) e``. Least squares ignore that, and are
biased.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.common.spatial import skew
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS, pack, transform_matrix
from sysid_ros.space.core.measurements import FloatingData
from sysid_ros.space.core.method import Method
from sysid_ros.space.core.momentum import PARAMETERS, FloatingTree, joint_axis, link_kinematic_matrices
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

_MASS, _FIRST_MOMENT, _INERTIA = 0, slice(1, 4), slice(4, 10)
_DIAGONAL = (4, 6, 9)
_ZERO = 1e-12
_SPHERICAL = ("JointModelSpherical", "JointModelSphericalZYX", "JointModelUniversal")


@dataclass(frozen=True, eq=False)
class MinimalParameters:
    """The minimal parameters of a floating tree.

    Attributes:
        kept: Indices of the full parameters whose columns remain, (M,).
        matrix: Maps the full parameters to the minimal ones, (M, 10 B).
        body_names: Names of the bodies, (B,).
    """

    kept: NDArray[np.intp]
    matrix: Array
    body_names: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of minimal parameters [-]."""
        return len(self.kept)

    def values(self, parameters: ArrayLike) -> Array:
        """Return the minimal parameters (M,) of full parameters (10 B,)."""
        theta = np.asarray(parameters, dtype=float)
        if theta.shape != (self.matrix.shape[1],):
            raise ParameterOutOfRange("the shape of parameters", theta.shape, f"({self.matrix.shape[1]},)")
        values: Array = self.matrix @ theta
        return values

    def embed(self, values: ArrayLike) -> Array:
        """Return full parameters (10 B,) with the momentum of minimal ones (M,), with zeros for those not kept."""
        result = np.zeros(self.matrix.shape[1])
        result[self.kept] = values
        return result

    def box(self, parameters: Box) -> Box:
        """Return the box (M,) of the minimal parameters of all full parameters in a box (10 B,), rounded outwards."""
        center, radius = self.values(parameters.center), np.abs(self.matrix) @ parameters.radius
        return Box.around(center, radius + 1e-12 * (np.abs(self.matrix) @ np.abs(parameters.center) + radius))

    def columns(self, kinematic_matrix: Array) -> Array:
        """Return the columns (..., M) of a system kinematic matrix (..., 10 B) that the minimal parameters have.

        Source: SPACE (24).
        """
        columns: Array = kinematic_matrix[..., self.kept]
        return columns

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters they are called after, such as ``joint_1.Ixx``, (M,)."""
        return tuple(f"{self.body_names[k // PARAMETERS]}.{PARAMETER_NAMES[k % PARAMETERS]}" for k in self.kept)

    @property
    def units(self) -> tuple[str, ...]:
        """Their units, (M,)."""
        return tuple(PARAMETER_UNITS[k % PARAMETERS] for k in self.kept)

    def describe(self, index: int) -> str:
        """Return a minimal parameter written out, such as ``joint_2.Ixx - joint_2.Iyy + 0.25 joint_3.m``."""
        row, own = self.matrix[index], self.kept[index]
        text = self.names[index]
        for k in np.flatnonzero(np.abs(row) > _ZERO):
            if k != own:
                size = abs(row[k])
                factor = "" if abs(size - 1.0) < _ZERO else f"{size:.4g} "
                name = f"{self.body_names[k // PARAMETERS]}.{PARAMETER_NAMES[k % PARAMETERS]}"
                text += f" {'+' if row[k] > 0 else '-'} {factor}{name}"
        return text


def build_minimal_parameters(tree: FloatingTree) -> MinimalParameters:
    """Build the minimal parameters of a floating tree by recursion from the leaves to the base.

    Returns:
        The minimal parameters: of a tree of revolute joints ``10 + 7 n``.

    Raises:
        ModelError: A joint is of a kind without a closed form.

    Source: SPACE (21) to (25); for revolute joints with any axis and for other kinds of joints the same recursion with
    :func:`shared_parameters`.
    """
    size = PARAMETERS * tree.count
    grouped = np.eye(size).reshape(tree.count, PARAMETERS, size)
    kept: list[list[int]] = [list(range(PARAMETERS)) for _ in range(tree.count)]
    for body in range(tree.count - 1, 0, -1):
        joint, placement = tree.model.joints[body + 1], tree.model.jointPlacements[body + 1]
        shared = shared_parameters(joint)
        moved = _redundant(joint, shared)
        amounts = np.linalg.solve(shared[moved], grouped[body][moved])
        to_parent = transform_matrix(placement.rotation, placement.translation)
        grouped[tree.parents[body]] += to_parent @ shared @ amounts
        grouped[body] -= shared @ amounts
        kept[body] = [k for k in range(PARAMETERS) if k not in moved]
    indices = np.array([PARAMETERS * body + k for body, own in enumerate(kept) for k in own])
    matrix = grouped.reshape(size, size)[indices]
    matrix[np.abs(matrix) < _ZERO] = 0.0
    matrix.setflags(write=False)
    return MinimalParameters(indices, matrix, tree.body_names)


def shared_parameters(joint: pin.JointModel) -> Array:
    """Return the changes of a child's parameters that its parent could have instead, as columns (10, K).

    They change nothing where the joint moves: their momentum due to the joint is zero, and the parent sees them alike
    in every position of the joint.

    Raises:
        ModelError: There is no closed form for this kind of joint.

    Source: SPACE (18) to (20) for a revolute joint about z.
    """
    kind, axis = joint.shortname(), joint_axis(joint)
    zero, nothing = np.zeros(3), np.zeros((3, 3))
    point = pack(1.0, zero, nothing)
    if kind.startswith("JointModelP") and axis is not None or kind == "JointModelTranslation":
        return np.eye(PARAMETERS)[:, _INERTIA]
    if axis is not None:
        return np.stack([point, pack(0.0, axis, nothing), pack(0.0, zero, np.eye(3) - np.outer(axis, axis))], axis=1)
    if kind in _SPHERICAL:
        return point[:, None]
    turning = {"JointModelPlanar": "Z", "JointModelHX": "X", "JointModelHY": "Y", "JointModelHZ": "Z"}.get(kind)
    if turning is not None:
        along = np.eye(3)["XYZ".index(turning)]
        return pack(0.0, zero, np.eye(3) - np.outer(along, along))[:, None]
    if kind == "JointModelFreeFlyer":
        return np.zeros((PARAMETERS, 0))
    raise ModelError(f"there is no closed form of minimal parameters for a {kind}")


def _redundant(joint: pin.JointModel, shared: Array) -> list[int]:
    """Return the parameters of the child that are given up, one per shared change, the later ones of equals."""
    if shared.shape[1] == 6:
        return list(range(PARAMETERS))[_INERTIA]
    chosen = []
    for column in shared.T:
        entries = (_MASS,) if column[_MASS] else (1, 2, 3) if np.any(column[_FIRST_MOMENT]) else _DIAGONAL
        sizes = np.abs(column[list(entries)])
        # Of equal ones the later, as in the paper, but not the inertia about the axis itself, which stands alone.
        best = max(range(len(entries)), key=lambda k: (sizes[k] > sizes.max() - _ZERO, k))
        chosen.append(entries[best])
    return chosen


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
    """Return the map of a momentum in inertial axes about the inertial origin to the axes of the base, (N, 6, 6)."""
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
