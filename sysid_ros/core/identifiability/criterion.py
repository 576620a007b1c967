"""The weakest directions of what is known as a cost for the planner of exciting motions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.data import DataAnalysis

Array = NDArray[np.float64]


class WeakestDirections:
    """How much a motion would add to what is known along the directions that are known least.

    It has the form of the criteria of :mod:`sysid_ros.core.excitation.criteria`: a number to be minimised and its
    gradient. The number is ``-log det(1 + D (G + w W^T diag(deviation)^-2 W) D^T)``, with the weakest directions D as
    rows, each one prior deviation long. Knowledge along other directions does not count.

    Args:
        analysis: What the data know so far.
        information: The information it was made of, (P, P).
        columns: Columns of the regressor that belong to the P parameters, (P,).
        deviation: Standard deviation of a mean torque, (n,) [Nm].
        weight: Windows of momentum one sample of the regressor stands for [-].
        count: Number of directions.

    Raises:
        ParameterOutOfRange: More directions are asked for than there are, or a shape is wrong.
    """

    def __init__(
        self,
        analysis: DataAnalysis,
        information: ArrayLike,
        columns: ArrayLike,
        deviation: ArrayLike,
        weight: float,
        count: int = 3,
    ):
        structure = analysis.structure
        if not 1 <= count <= structure.count:
            raise ParameterOutOfRange("count", count, f"1 to {structure.count}")
        chosen = list(structure.chosen)
        self._columns = np.asarray(columns, dtype=int)[chosen]
        self._deviation = np.asarray(deviation, dtype=float)
        self._weight = float(weight)
        self._directions = np.array(analysis.weakest(count))
        known = np.asarray(information, dtype=float)[np.ix_(chosen, chosen)]
        self._known = np.eye(count) + self._directions @ known @ self._directions.T

    def evaluate(self, regressor: Array) -> tuple[float, Array]:
        """The cost and its derivative (N, n, k) at a regressor (N, n, k)."""
        rows = regressor[..., self._columns] / self._deviation[:, None]
        seen = rows @ self._directions.T
        flat = seen.reshape(-1, seen.shape[-1])
        information = self._known + self._weight * (flat.T @ flat)
        value = -float(np.linalg.slogdet(information)[1])
        d_seen = -2.0 * self._weight * seen @ np.linalg.inv(information)
        gradient = np.zeros_like(regressor)
        gradient[..., self._columns] = (d_seen @ self._directions) / self._deviation[:, None]
        return value, gradient
