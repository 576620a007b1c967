"""Costs of a plan as functions of the end offsets of many motions, with exact gradients.

The information of a plan is that of all windows collected so far plus the executed part of the plan,
``G = G_collected + sum of row^T row``, in the unit of :meth:`StreamingEstimator.information` (rows are mean torques).
Before any measurement G can be close to singular, so the optimised matrix contains the prior too:
``G + s^2 diag(radius)^-2``, the information of ten rows that measure each parameter to within its radius in the
payload's prior with the torque error s. Reported condition numbers are of G itself.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.excitation.criteria import BoundsCriterion, ErrorModel, measured_radius
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.planning.motions import MotionBasis
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import State

Array = NDArray[np.float64]

_LITTLE = 5e-3
"""Gain of the logarithm of a condition number, a determinant or widths that is not worth a step."""


class PlanCost(Protocol):
    """A number per motion to be minimised.

    Attributes:
        little: Gain of it that is not worth a step of a search.
    """

    little: float

    def evaluate(self, x: Array) -> Array:
        """Compute values (B,) at end offsets x (B, n) [rad]."""

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """Compute values (B,) and gradients (B, n) at end offsets x (B, n) [rad]."""


class WindowRule:
    """Times and weights of a Gauss rule for the windows that the executed part of a motion fills.

    A window's row divided by its length is the mean of the torque regressor over it (SAFE-ID (21): the momentum
    equation is the integral of the torque equation), which two nodes integrate to about 1e-5.

    Args:
        regressor: Regressor of the last body, whose columns are the payload's.
        duration: Length of the executed part, from the start on [s].
        window: Length of a window [s]; a rest at the end that is shorter is left out.
        nodes: Nodes of the Gauss rule in each window.
    """

    def __init__(self, regressor: TorqueRegressor, duration: float, window: float, nodes: int = 2):
        self.regressor = regressor
        self.windows = max(int(duration / window + 1e-9), 1)
        length = min(window, duration)
        points, weights = np.polynomial.legendre.leggauss(nodes)
        self.weights = 0.5 * weights
        """Weights of the nodes of a window, adding up to 1."""
        starts = length * np.arange(self.windows)
        self.times: Array = (starts[:, None] + 0.5 * length * (points + 1.0)).ravel()
        """Times the motions are needed at, (T,) [s]."""


class WindowRows:
    """Mean rows of the momentum windows that motions from one state fill, with exact reverse derivatives.

    Args:
        rule: The windows.
        start: Position, velocity and acceleration, each (n,).
        duration: Duration of the motions [s].
    """

    def __init__(self, rule: WindowRule, start: State, duration: float):
        self.rule = rule
        self.basis = MotionBasis.of(start, duration, rule.times)

    def evaluate(self, x: Array) -> tuple[Array, State]:
        """Compute the rows (B, windows n, 10) of motions with end offsets x (B, n) [rad], and the states there."""
        rule, states = self.rule, self.basis.states(x)
        values = rule.regressor.inertial(*states)
        shape = (len(x), rule.windows, rule.weights.size, x.shape[1], INERTIAL)
        rows = np.einsum("bwgip,g->bwip", values.reshape(shape), rule.weights)
        return rows.reshape(len(x), -1, INERTIAL), states

    def information(self, x: Array) -> Array:
        """Compute the Gram matrices of the rows, (B, 10, 10)."""
        rows, _ = self.evaluate(x)
        gram: Array = rows.transpose(0, 2, 1) @ rows
        return gram

    def pull_back(self, states: State, weight: Array) -> Array:
        """Compute the gradients along x, (B, n), of ``sum(weight * rows)``; weight is (B, windows n, 10)."""
        rule, count = self.rule, len(weight)
        by_window = weight.reshape(count, rule.windows, 1, -1, INERTIAL)
        spread = by_window * rule.weights[:, None, None]
        dq, dv, da = rule.regressor.pull_back(*states, spread.reshape(count * rule.times.size, -1, INERTIAL))
        shape = (count, rule.times.size, -1)
        return self.basis.chain(dq.reshape(shape), dv.reshape(shape), da.reshape(shape))


def prior_information(radius: Array, error: float) -> Array:
    """Compute the information of ten rows that measure each parameter to within its radius, (10, 10).

    The radii are the payload prior's, (10,); the rows have this torque error [Nm].
    """
    scale = np.maximum(radius, 1e-6 * max(float(radius.max()), 1e-6))
    return np.diag((error / scale) ** 2)


class InformationCost:
    """A function of the information at the end of the executed part.

    Args:
        rows: Windows of the part of the plan that will be executed.
        collected: Information collected so far, (10, 10).
        prior: The prior's, see :func:`prior_information`.
        kind: "condition" or "determinant".

    Source: SAFE-ID (30), with the data collected before.
    """

    little = _LITTLE

    def __init__(self, rows: WindowRows, collected: Array, prior: Array, kind: str):
        self._rows, self._kind = rows, kind
        self.collected, self._prior = collected, prior

    def information(self, x: Array) -> Array:
        """Compute the information with the motions', without the prior's, (B, 10, 10)."""
        return self.collected + self._rows.information(x)

    def evaluate(self, x: Array) -> Array:
        """See :class:`PlanCost`."""
        return self._function(self.information(x) + self._prior)[0]

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """See :class:`PlanCost`."""
        rows, samples = self._rows.evaluate(x)
        values, slope = self._function(self.collected + self._prior + rows.transpose(0, 2, 1) @ rows)
        return values, self._rows.pull_back(samples, 2.0 * rows @ slope)

    def _function(self, information: Array) -> tuple[Array, Array]:
        if self._kind == "determinant":
            logarithm: Array = -np.linalg.slogdet(information)[1]
            return logarithm, -np.asarray(np.linalg.inv(information), dtype=np.float64)
        return smooth_condition(information)


class GoalCost:
    """Squared distance of the end posture to a goal.

    Args:
        start: Position, velocity and acceleration, each (n,).
        goal: Posture to get to, (n,) [rad].
    """

    little = 1e-4  # [rad^2]

    def __init__(self, start: State, goal: Array):
        self._offset = goal - start[0]

    def evaluate(self, x: Array) -> Array:
        """See :class:`PlanCost`."""
        squares: Array = ((x - self._offset) ** 2).sum(axis=1)
        return squares

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """See :class:`PlanCost`."""
        return self.evaluate(x), 2.0 * (x - self._offset)


def smooth_condition(information: Array, power: int = 4) -> tuple[Array, Array]:
    """Compute a smooth upper bound of the logarithm of the condition number of the rows, and its derivative.

    ``log(tr(G^p) tr(G^-p)) / (2 p)``: where eigenvalues meet, the condition number has no gradient and a solver stalls;
    this function has one everywhere and exceeds ``log sqrt(l_max / l_min)`` by at most ``log(10) / p``.

    Args:
        information: Positive definite matrices G, (B, 10, 10).
        power: The power p; 2 to 8 were found equally good.

    Returns:
        Values (B,) and derivatives (B, 10, 10).
    """
    values, vectors = np.linalg.eigh(information)
    smallest, largest = values[:, :1], values[:, -1:]
    high, low = (values / largest) ** power, (smallest / values) ** power
    sum_high, sum_low = high.sum(axis=1), low.sum(axis=1)
    ratio = np.log(largest[:, 0] / smallest[:, 0]) + np.log(sum_high * sum_low) / power
    slope = 0.5 * (high / sum_high[:, None] - low / sum_low[:, None]) / values
    return 0.5 * ratio, (vectors * slope[:, None]) @ vectors.transpose(0, 2, 1)


def condition_number(information: Array) -> float:
    """Compute the condition number of rows with this Gram matrix (10, 10); inf where they leave parameters open."""
    values = np.linalg.eigvalsh(information)
    floor = INERTIAL * np.finfo(float).eps * values[-1]
    return float(np.sqrt(values[-1] / values[0])) if values[0] > floor else float("inf")


_TYPICAL_SHARE = 0.1
"""Share of the torque limits taken as the torque of rows collected earlier, of which only the Gram matrix is known."""


class WidthCost:
    """Sum of the logarithms of the widths expected of an estimate of payload and arm together.

    The criterion is :class:`~sysid_ros.core.excitation.criteria.BoundsCriterion` at the mean rows of the windows. Its
    gradient is that of the torques of arms whose parameters are the criterion's weights.

    Args:
        rows: Windows of the part of the plan that will be executed.
        collected: Information collected so far, (10, 10).
        assumptions: The arm, the boxes of its and its payload's parameters, and the nominal payload.
    """

    little = _LITTLE

    def __init__(self, rows: WindowRows, collected: Array, assumptions: Assumptions):
        robot, boxes = assumptions.robot, assumptions.boxes
        sensors = robot.sensors
        typical = sensors.effort_relative_error * _TYPICAL_SHARE * robot.limits.tau_continuous
        self._criterion = BoundsCriterion(
            ErrorModel(
                theta=np.concatenate([boxes[0].center, assumptions.nominal]),
                radius=measured_radius(robot, boxes[0].radius, boxes[1].radius),
                relative=sensors.effort_relative_error,
                absolute=sensors.lasting_error,
                weight=1.0,
                row_error=float(np.mean(typical + sensors.lasting_error)),
            ),
            collected,
        )
        self._n, self._rule, self._basis = robot.n, rows.rule, rows.basis
        self._regressor = TorqueRegressor(robot)

    def evaluate(self, x: Array) -> Array:
        """See :class:`PlanCost`."""
        return np.array([self._evaluate_one(states)[0] for states in self._states(x)])

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """See :class:`PlanCost`."""
        values, gradients = zip(*[self._gradient_one(states) for states in self._states(x)], strict=True)
        return np.array(values), np.array(gradients)

    def _states(self, x: Array) -> list[State]:
        return [self._basis.states(one[None]) for one in x]

    def _evaluate_one(self, states: State) -> tuple[float, Array]:
        arm = self._regressor.evaluate(*states)
        last = arm[..., INERTIAL * (self._n - 1) : INERTIAL * self._n]
        samples = np.concatenate([arm, last], axis=-1).reshape(
            self._rule.windows, -1, self._n, arm.shape[-1] + INERTIAL
        )
        return self._criterion.evaluate(np.einsum("wgip,g->wip", samples, self._rule.weights))

    def _gradient_one(self, states: State) -> tuple[float, Array]:
        value, slope = self._evaluate_one(states)
        parameters = slope[..., :-INERTIAL].copy()
        parameters[..., INERTIAL * (self._n - 1) : INERTIAL * self._n] += slope[..., -INERTIAL:]
        nodes = self._rule.weights.size
        weighted = parameters[:, None] * self._rule.weights[:, None, None]
        weighted = np.broadcast_to(weighted, (len(parameters), nodes, *parameters.shape[1:]))
        slopes = self._regressor.pull_back(*states, weighted.reshape(-1, *parameters.shape[1:]))
        return value, self._basis.chain(*slopes)
