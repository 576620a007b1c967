"""Covariance of the rows of a problem, factorised.

``diag(error) + v diag(ends) v^T + b diag(delta) b^T``: the middle part couples only rows of neighbouring windows,
so the first two form a banded matrix, and the last one has few columns (Woodbury identity).
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from sysid_ros.core.estimation.problem import Problem

Array = NDArray[np.float64]


class RowBands:
    """Where the banded part of the covariance of a problem has its entries.

    Rows must come window by window, all joints of each, compacted rows before them.

    Args:
        problem: The problem.
        n: Rows per window.
    """

    def __init__(self, problem: Problem, n: int):
        self._size, self._n = len(problem.r), n
        self._first = int(np.count_nonzero(problem.end_index[:, 0] < 0))
        shape = ((self._size - self._first) // n, n, 2)
        self._gains = problem.ends[self._first :].reshape(*shape, -1)
        self._instant = problem.end_index[self._first :].reshape(shape)[:, 0]
        self._is_joined = self._instant[1:, 0] == self._instant[:-1, 1]

    def assemble(self, error: Array, ends: Array) -> Array:
        """Lower bands (2 n, R) for variances ``error`` (R,) of rows and ``ends`` (instants x m,) of velocities."""
        n, first = self._n, self._first
        bands = np.zeros((2 * n, self._size))
        bands[0] = error
        if not len(self._gains):
            return bands
        at_start, at_stop = self._gains[:, :, 0], self._gains[:, :, 1]
        variances = ends.reshape(-1, at_start.shape[2])[self._instant]
        own = (at_start * variances[:, None, 0]) @ at_start.transpose(0, 2, 1)
        own += (at_stop * variances[:, None, 1]) @ at_stop.transpose(0, 2, 1)
        joint = (at_start[1:] * variances[1:, None, 0]) @ at_stop[:-1].transpose(0, 2, 1)
        joint *= self._is_joined[:, None, None]
        for row, column in itertools.product(range(n), range(n)):
            if row >= column:
                bands[row - column, first + column :: n] += own[:, row, column]
            bands[n + row - column, first + column : self._size - n : n] = joint[:, row, column]
        return bands


class Covariance:
    """The factorised covariance.

    Args:
        bands: Structure of the problem's rows.
        b: Gains of the shared nuisance, (R, M).
        error: Variance of each row by itself, (R,), positive.
        delta: Variances of the shared nuisance, (M,).
        ends: Variances of the velocity errors, (instants x m,).
    """

    def __init__(self, bands: RowBands, b: Array, error: Array, delta: Array, ends: Array):
        self._bands = scipy.linalg.cholesky_banded(bands.assemble(error, ends), lower=True, check_finite=False)
        self._b = self._forward(b * np.sqrt(delta)) if b.shape[1] else None  # LAPACK must not see empty matrices
        if self._b is not None:
            small = np.eye(len(delta)) + self._b.T @ self._b
            self._small = scipy.linalg.cho_factor(small, lower=True, check_finite=False)

    def solve(self, columns: Array) -> Array:
        """``S^-1 columns``, (R, k)."""
        forward = self._forward(columns)
        if self._b is not None:
            forward -= self._b @ scipy.linalg.cho_solve(self._small, self._b.T @ forward, check_finite=False)
        return lapack.dtbtrs(self._bands, forward, uplo="L", trans="T")[0]

    def _forward(self, columns: Array) -> Array:
        return lapack.dtbtrs(self._bands, columns, uplo="L")[0]
