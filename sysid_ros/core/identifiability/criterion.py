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
        directions: Changes of the parameters the columns belong to, one in each row, each as long as one deviation of
            what was known before, (d, k).
        known: Information along them so far, (d, d) [-].
        columns: Columns of the regressor that belong to these k parameters, (k,).
        deviation: Standard deviation of a mean torque, (n,) [Nm].
        weight: Windows of momentum one sample of the regressor stands for [-].

    Raises:
        ParameterOutOfRange: A shape is wrong, or a deviation is not positive.
    """

    def __init__(
        self, directions: ArrayLike, known: ArrayLike, columns: ArrayLike, deviation: ArrayLike, weight: float
    ):
        self._directions = np.array(directions, dtype=float)
        self._columns = np.asarray(columns, dtype=int)
        self._deviation = np.asarray(deviation, dtype=float)
        self._weight = float(weight)
        count = len(self._directions)
        if self._directions.shape != (count, len(self._columns)) or not count:
            raise ParameterOutOfRange("directions", self._directions.shape, f"(d, {len(self._columns)}), d at least 1")
        if not np.all(self._deviation > 0.0):
            raise ParameterOutOfRange("deviation [Nm]", self._deviation.tolist(), "positive")
        self._known = np.eye(count) + np.asarray(known, dtype=float)

    @classmethod
    def of_analysis(
        cls, analysis: DataAnalysis, columns: ArrayLike, deviation: ArrayLike, weight: float, count: int = 3
    ) -> WeakestDirections:
        """The cost of the combinations that an analysis of data knows least.

        Args:
            analysis: What the data know so far.
            columns: Columns of the regressor that belong to the P parameters of the analysis, (P,).
            deviation: Standard deviation of a mean torque, (n,) [Nm].
            weight: Windows of momentum one sample of the regressor stands for [-].
            count: Number of combinations.

        Returns:
            The cost.

        Raises:
            ParameterOutOfRange: More combinations are asked for than there are.
        """
        structure = analysis.structure
        if not 1 <= count <= structure.count:
            raise ParameterOutOfRange("count", count, f"1 to {structure.count}")
        known = np.diag(analysis.singular_values[::-1][:count] ** 2)
        return cls(analysis.weakest(count), known, np.asarray(columns)[list(structure.chosen)], deviation, weight)

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
