"""Bases of linear spans, with every decision about rank in one place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.identifiability.settings import TOLERANCE

Array = NDArray[np.float64]


class Spans:
    """Bases with one tolerance relative to the largest singular value, and how clear the decisions about rank were.

    Attributes:
        weakest: Smallest singular value that was accepted, relative to the largest; 1 before the first decision.
    """

    def __init__(self, tolerance: float = TOLERANCE):
        self.tolerance = tolerance
        self.weakest = 1.0

    def basis(self, matrix: Array) -> Array:
        """Compute an orthonormal basis (rows, rank) of the column span of a matrix (rows, columns)."""
        if not matrix.size:
            return matrix.reshape(len(matrix), 0)
        left, values, _ = np.linalg.svd(matrix, full_matrices=False)
        return left[:, : self._rank(values, max(1.0, float(values[0])))]

    def row_basis(self, matrix: Array) -> Array:
        """Compute an orthonormal basis (rank, columns) of the row span of a matrix (rows, columns)."""
        result: Array = self.basis(matrix.T).T
        return result

    def invariant(self, operators: Sequence[Array], start: Array) -> Array:
        """Compute a basis of the smallest span that contains ``start`` and is invariant under all operators.

        Args:
            operators: Matrices (rows, rows); several are the switched linear system of RPNA section 7.2.
            start: Columns to begin with, (rows, k).

        Returns:
            Orthonormal basis (rows, rank).

        Source: the range of ``Ctrb`` in RPNA Lemmas 1 and 2; only new directions are propagated.
        """
        result = new = self.basis(start)
        scale = max([1.0, *(float(np.abs(operator).sum(axis=1).max()) for operator in operators)])
        while new.shape[1] and result.shape[1] < len(result) and operators:
            reached = np.concatenate([operator @ new for operator in operators], axis=1)
            for _ in range(2):  # twice, because once leaves rounding errors along the basis
                reached = reached - result @ (result.T @ reached)
            left, values, _ = np.linalg.svd(reached, full_matrices=False)
            new = left[:, : self._rank(values, scale)]
            result = np.concatenate([result, new], axis=1)
        return result

    def first_columns(self, rows: Array) -> list[int]:
        """Select the columns of orthonormal rows (r, n) that do not depend on columns before them: r of them, rising.

        Source: the rule of RPNA section 9.1, the parameter that appears first is chosen.
        """
        count = len(rows)
        chosen: list[int] = []
        basis = np.zeros((count, 0))
        for k in range(rows.shape[1]):
            column = rows[:, k]
            for _ in range(2):
                column = column - basis @ (basis.T @ column)
            size = float(np.linalg.norm(column))
            if size > self.tolerance and len(chosen) < count:
                chosen.append(k)
                basis = np.concatenate([basis, column[:, None] / size], axis=1)
        return chosen

    def _rank(self, values: Array, scale: float) -> int:
        # Bases are orthonormal and lengths are scaled, so entries are of order one: anything far below it is noise.
        rank = int(np.count_nonzero(values > self.tolerance * scale))
        if rank:
            self.weakest = min(self.weakest, float(values[rank - 1]) / scale)
        return rank
