"""Small quadratic programs with soft rows, solved by an active-set method."""

from __future__ import annotations

import casadi as ca
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SLACK_CURVATURE = 1e-6


class StepProblem:
    """``min g d + d H d / 2 + penalty t`` with ``values + slopes d <= t``, ``t >= 0`` and bounds of d.

    Built once: the number of unknowns and of rows is fixed.

    Args:
        size: Number of unknowns n.
        rows: Number of rows m.
        penalty: Weight of the largest violation t.
    """

    def __init__(self, size: int, rows: int, penalty: float):
        self._size, self._penalty = size, penalty
        pattern = {"h": ca.Sparsity.dense(size + 1, size + 1), "a": ca.Sparsity.dense(rows, size + 1)}
        self._solver = ca.conic("step", "daqp", pattern, {"error_on_fail": False})
        self._h = np.zeros((size + 1, size + 1))
        self._h[size, size] = _SLACK_CURVATURE
        self._a = np.full((rows, size + 1), -1.0)

    def solve(
        self, gradient: Array, hessian: Array, values: Array, slopes: Array, lower: Array, upper: Array
    ) -> Array | None:
        """The step d (n,), or None if the solver fails.

        Args:
            gradient: g, (n,).
            hessian: H, positive definite, (n, n).
            values: Rows at d = 0, (m,).
            slopes: Their derivatives, (m, n).
            lower: Lower bounds of d, (n,).
            upper: Upper bounds of d, (n,).
        """
        n = self._size
        self._h[:n, :n] = hessian
        self._a[:, :n] = slopes
        result = self._solver(
            h=self._h,
            g=np.append(gradient, self._penalty),
            a=self._a,
            uba=-values,
            lba=-np.inf,
            lbx=np.append(lower, 0.0),
            ubx=np.append(upper, np.inf),
        )
        step = np.array(result["x"]).ravel()[:n]
        is_solved = self._solver.stats()["success"] and np.isfinite(step).all()
        return np.clip(step, lower, upper) if is_solved else None
