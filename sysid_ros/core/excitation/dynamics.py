"""Regressor, worst-case torque and clearances of an arm at many samples, with their derivatives."""

from __future__ import annotations

import casadi as ca
import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.excitation.symbolic import build_torque_regressor
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel

Array = NDArray[np.float64]

_DISTANCE_SMOOTHING = 0.004
"""Length s over which the minimum of distances is smoothed [m]."""
_SMOOTHING = 1e-3
"""``|x|`` is replaced by ``sqrt(x^2 + s^2) >= |x|``: s in Nm for torques, in units of the regressor for its entries."""


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
        self._state, self._symbol = state, regressor

    def regressor(self, q: Array, v: Array, a: Array) -> Array:
        """The regressor at the samples, (N, n, 14 n + 10); q, v, a are (N, n)."""
        result = np.zeros((self.samples, self.n, self.columns))
        values = np.array(self._regressor(q.T, v.T, a.T).nonzeros())
        result[:, self._rows, self._cols] = values.reshape(self.samples, -1)
        return result

    def pull_back(self, q: Array, v: Array, a: Array, weight: Array) -> tuple[Array, Array, Array]:
        """Gradient of ``sum(weight * regressor)`` with respect to q, v and a, each (N, n); weight as the regressor."""
        values = ca.DM(self._weight_pattern, weight[:, self._rows, self._cols].ravel())
        dq, dv, da = self._pull_back(q.T, v.T, a.T, values)
        return dq.full().T, dv.full().T, da.full().T

    def build_worst_torque(self, center: Array, radius: Array) -> WorstTorque:
        """The largest torque of any parameters ``center +- radius``, (14 n + 10,), as a smooth function.

        Coulomb friction counts in the worst direction.
        """
        sliding = np.zeros(self.columns, dtype=bool)
        sliding[INERTIAL * self.n : (INERTIAL + FRICTION) * self.n : FRICTION] = True
        coulomb = np.abs(center[sliding]) + radius[sliding]
        torque = self._symbol @ ca.DM(np.where(sliding, 0.0, center))
        size = [ca.sqrt(entry**2 + _SMOOTHING**2) for entry in self._symbol.nonzeros()]
        spread = ca.SX(self._symbol.sparsity(), ca.vertcat(*size)) @ ca.DM(np.where(sliding, 0.0, radius))
        worst = ca.sqrt(torque**2 + _SMOOTHING**2) + spread + ca.DM(coulomb)
        return WorstTorque(worst, self._state, self.samples)


class WorstTorque:
    """``|W center| + |W| radius`` at N samples: the worst case over a box of parameters, rounded up to be smooth.

    Args:
        expression: The worst torque, (n,).
        state: Symbols of q, v and a, each (n,).
        samples: Number of samples N.
    """

    def __init__(self, expression: ca.SX, state: list[ca.SX], samples: int):
        self._shape = (samples, expression.numel())
        jacobian = ca.densify(ca.jacobian(expression, ca.vertcat(*state)))
        self._value = ca.Function("worst_torque", state, [expression]).map(samples)
        self._jacobian = ca.Function("worst_torque_jacobian", state, [jacobian]).map(samples)

    def value(self, q: Array, v: Array, a: Array) -> Array:
        """Worst torques, (N, n) [Nm]; q, v, a are (N, n)."""
        return self._value(q.T, v.T, a.T).full().T

    def jacobian(self, q: Array, v: Array, a: Array) -> Array:
        """Derivatives with respect to q, v, a, (N, n, 3 n)."""
        samples, n = self._shape
        return self._jacobian(q.T, v.T, a.T).full().reshape(n, samples, 3 * n).transpose(1, 0, 2)


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
        """Smallest distances, (N, 1) [m]; q is (N, n)."""
        return self._value(q.T).full().T

    def jacobian(self, q: Array) -> Array:
        """Derivatives with respect to q, (N, 1, n)."""
        return self._jacobian(q.T).full().reshape(self._shape)
