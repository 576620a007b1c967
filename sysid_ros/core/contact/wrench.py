"""The wrench at the tool from external joint torques, with guaranteed bounds, and the smallest force that is detected.

A wrench F at the tool causes the mean joint torques ``mean(J^T F)``. A linear program bounds F,
``lower <= A F <= upper`` with the mean ``A`` of ``J^T``, widened by the change of F within the window and by the
uncertainty of J. For every matrix L, ``F_i`` lies within ``L tau +- |e_i - L A| F_max``. The dual solutions of the
program are inverses of six rows of A, so the best of these is its optimum; only near a singular posture, where
``F_max`` counts, it needs a solver, and an inexact one only widens the bounds.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.contact.external_torque import ExternalTorque
from sysid_ros.core.estimation.bounds.closed_form import bound_with
from sysid_ros.core.estimation.bounds.set_membership import solve_exactly
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_MOST_JOINTS = 8
"""With more joints there are too many sets of six."""
_WORST_CONDITION = 1e3
"""Above this condition number of the best six rows a posture counts as singular."""
_SMALLEST = 1e-3
"""Smallest bound on a component of the wrench that the second round scales by [N, Nm]."""


@dataclass(frozen=True)
class ContactSettings(Settings):
    """Assumptions about contacts."""

    reference_duration: float = setting(30.0, "s", lower=0.0, upper=86400.0)
    """No contact for this long after a start or reset: these windows are the reference of external torques.
    0: no reference, only prior and boxes of the robot."""

    largest_force: float = setting(300.0, "N", lower=1.0, upper=1e5)
    """No component of the force is larger."""
    largest_moment: float = setting(100.0, "Nm", lower=0.1, upper=1e5)
    """No component of the moment is larger."""
    force_change: float = setting(10.0, "N", lower=0.0, upper=1e5)
    """Within a window no component of the force departs from its mean by more."""
    moment_change: float = setting(1.0, "Nm", lower=0.0, upper=1e5)
    """Within a window no component of the moment departs from its mean by more."""

    @property
    def largest(self) -> Array:
        """Largest wrench, (6,) [N, Nm]."""
        return np.repeat([self.largest_force, self.largest_moment], 3)

    @property
    def change(self) -> Array:
        """Largest change within a window, (6,) [N, Nm]."""
        return np.repeat([self.force_change, self.moment_change], 3)


@dataclass(frozen=True)
class ToolWrench:
    """Mean wrench at the origin of the tool frame over a window, in axes of that frame; force before moment.

    Attributes:
        lower: (6,) [N, Nm].
        upper: (6,) [N, Nm].
        is_elsewhere: Whether no wrench at the tool explains the external torques: the arm is touched elsewhere, too.
            The bounds are NaN then.
    """

    lower: Array
    upper: Array
    is_elsewhere: bool

    @property
    def value(self) -> Array:
        """Middle of the bounds, (6,) [N, Nm]."""
        return np.asarray(0.5 * (self.lower + self.upper))

    @property
    def is_proven(self) -> NDArray[np.bool_]:
        """Which components are not zero for certain, (6,)."""
        return np.asarray((self.lower > 0.0) | (self.upper < 0.0))


class WrenchObserver:
    """Turns external joint torques into the wrench at the tool.

    Args:
        robot: The arm; the wrench acts at its tool frame.
        settings: Assumptions about the wrench.
        acceleration: Largest acceleration between samples, (n,) [rad/s^2]; by default three times the planning limit.
    """

    def __init__(
        self, robot: RobotModel, settings: ContactSettings | None = None, acceleration: ArrayLike | None = None
    ):
        self._settings = settings or ContactSettings()
        largest = 3.0 * robot.limits.a_max if acceleration is None else np.asarray(acceleration, dtype=float)
        self._acceleration = float(np.sum(largest))
        self._model = robot.pin_model
        self._data = self._model.createData()
        self._frame = self._model.getFrameId(robot.tool_frame)
        self._position_error = 0.5 * float(np.sum(robot.link_sensors.position_resolution))
        self._reach = _reach(robot)

    def jacobian(self, q: ArrayLike) -> Array:
        """Compute the Jacobian of the tool's origin in axes of the tool, (6, n), linear before angular."""
        local, posture = pin.ReferenceFrame.LOCAL, np.asarray(q, dtype=float)
        return np.array(pin.computeFrameJacobian(self._model, self._data, posture, self._frame, local))

    def observe(self, external: ExternalTorque) -> ToolWrench:
        """Bound the wrench at the tool by external torques, assuming no contact elsewhere."""
        mean, departure, sensitivity = self._mean_jacobian(external)
        change, largest = departure.T @ self._settings.change, self._settings.largest
        for _ in range(2):  # the bounds are proven, so the next round may take them as the largest wrench
            slack = change + float(sensitivity @ largest)
            wrench = bound_wrench(mean.T, external.lower - slack, external.upper + slack, largest)
            if wrench.is_elsewhere:
                break
            largest = np.maximum(np.maximum(np.abs(wrench.lower), np.abs(wrench.upper)), _SMALLEST)
        return wrench

    def smallest_detectable(self, external: ExternalTorque) -> Array:
        """Compute the smallest force and moment along each axis of the tool that a window would have proven, (6,).

        An interval contains the true external torque, so it excludes 0 whenever that is larger than the whole width.
        """
        return smallest_detectable(self._mean_jacobian(external)[0], external.width, np.eye(6))

    def _mean_jacobian(self, external: ExternalTorque) -> tuple[Array, Array, Array]:
        """Return the mean Jacobian of a window, its largest variation, both (6, n), and its error by row, (6,).

        The variation counts times the change of the wrench, the error of the mean times the wrench itself. J consists
        of screws S; its derivatives are brackets ``[S_l, S_j]`` and ``[S_m, [S_l, S_j]]``, with linear parts below two
        and three reaches. A step of the sum ``d`` of the joints' turns and of length h departs from the chord of J by
        the second derivative times ``d^2 / 8`` and from the chord of q by ``acceleration h^2 / 8``.
        """
        q, steps = external.q, len(external.q) - 1
        jacobians = np.array([self.jacobian(row) for row in q])
        mean = (jacobians[1:] + jacobians[:-1]).mean(axis=0) / 2.0
        turn = float(np.abs(np.diff(q, axis=0)).sum(axis=1).max())
        seconds = 1e-9 * (external.stop - external.start) / steps
        chord = self._position_error + (turn**2 + self._acceleration * seconds**2) / 8.0
        sensitivity = np.repeat([3.0 * self._reach, 1.0], 3)
        departure = np.abs(jacobians - mean).max(axis=0) + (sensitivity * (chord + turn))[:, None]
        return mean, departure, chord * sensitivity


def _reach(robot: RobotModel) -> float:
    """Return a bound on the distance of the tool from any joint axis [m]."""
    model = robot.pin_model
    lengths = [float(np.linalg.norm(model.jointPlacements[k].translation)) for k in range(2, model.njoints)]
    return sum(lengths) + float(np.linalg.norm(model.frames[model.getFrameId(robot.tool_frame)].placement.translation))


def bound_wrench(matrix: ArrayLike, lower: ArrayLike, upper: ArrayLike, largest: ArrayLike) -> ToolWrench:
    """Bound every wrench F with ``lower <= matrix F <= upper`` and ``|F| <= largest``.

    Args:
        matrix: (n, 6).
        lower: (n,) [Nm].
        upper: (n,) [Nm].
        largest: (6,) [N, Nm], positive.
    """
    a, low, high, size = (np.asarray(value, dtype=float) for value in (matrix, lower, upper, largest))
    problem = Problem.of_rows(a, Box(low, high), Box(-size, size), np.eye(6))
    inverses, condition = _inverses(a)
    if condition > _WORST_CONDITION:
        inverses += solve_exactly(problem)
    lowest, highest = -size, size
    if inverses:
        every = replace(problem, objectives=np.tile(np.eye(6), (len(inverses), 1)))
        bounds = bound_with(every, np.concatenate(inverses))
        below, above = bounds.center - bounds.radius, bounds.center + bounds.radius
        lowest = np.maximum(lowest, np.nextafter(np.max(below.reshape(-1, 6), axis=0), -np.inf))
        highest = np.minimum(highest, np.nextafter(np.min(above.reshape(-1, 6), axis=0), np.inf))
    if np.any(lowest > highest):
        nothing = np.full(6, np.nan)
        return ToolWrench(nothing, nothing, is_elsewhere=True)
    return ToolWrench(lowest, highest, is_elsewhere=False)


def _inverses(a: Array) -> tuple[list[Array], float]:
    """Return matrices L (6, n) with ``L a = 1`` that use six rows each, and the best condition number of six rows."""
    n, best = len(a), np.inf
    result: list[Array] = []
    if n > _MOST_JOINTS:
        return result, best
    for rows in itertools.combinations(range(n), 6):
        chosen = list(rows)
        condition = float(np.linalg.cond(a[chosen]))
        best = min(best, condition)
        if condition < 1e12:  # otherwise there is no inverse
            inverse = np.zeros((6, n))
            inverse[:, chosen] = np.linalg.inv(a[chosen])
            result.append(inverse)
    return result, best


def smallest_detectable(jacobian: ArrayLike, width: ArrayLike, directions: ArrayLike) -> Array:
    """Compute the smallest wrench along each direction that is detected for certain.

    Args:
        jacobian: (6, n), in the axes of the directions.
        width: Upper less lower bound of each external torque, (n,) [Nm].
        directions: Unit wrenches, (K, 6).

    Returns:
        Factors of the directions, (K,); infinite where no joint torque shows it.

    Raises:
        ParameterOutOfRange: A direction is zero.
    """
    unit = np.atleast_2d(np.asarray(directions, dtype=float))
    if not np.all(np.any(unit != 0.0, axis=1)):
        raise ParameterOutOfRange("directions", unit.tolist(), "wrenches that are not zero")
    torques = np.abs(unit @ np.asarray(jacobian, dtype=float))
    widths = np.broadcast_to(np.asarray(width, dtype=float), torques.shape)
    factors = np.divide(widths, torques, out=np.full_like(torques, np.inf), where=torques > 1e-12)
    return np.asarray(factors.min(axis=1))
