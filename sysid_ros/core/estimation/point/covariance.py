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

from sysid_ros.core.estimation.lp.problem import Problem

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
        windows = (self._size - self._first) // n
        gains = problem.ends[self._first :].reshape(windows, n, 2, problem.ends.shape[2])
        instant = problem.end_index[self._first :].reshape(windows, n, 2)[:, 0]
        # The gains of each instant: first on the rows of the window that stops there, then of the one that starts.
        self._gains = np.zeros((int(instant.max(initial=-1)) + 1, 2 * n, gains.shape[3]))
        self._gains[instant[:, 1], :n] = gains[:, :, 1]
        self._gains[instant[:, 0], n:] = gains[:, :, 0]
        self._instant = instant

    def assemble(self, error: Array, ends: Array) -> Array:
        """Return the lower bands (2 n, R) for variances ``error`` (R,) of rows and ``ends`` (instants x m,)."""
        n, first = self._n, self._first
        bands = np.zeros((2 * n, self._size))
        bands[0] = error
        if not len(self._instant):
            return bands
        scaled = self._gains * np.sqrt(ends).reshape(len(self._gains), 1, self._gains.shape[2])
        blocks = scaled @ scaled.transpose(0, 2, 1)
        own = blocks[self._instant[:, 1], :n, :n] + blocks[self._instant[:, 0], n:, n:]
        joint = blocks[self._instant[:-1, 1], n:, :n]  # zero where the next window starts at another instant
        joint = np.where((self._instant[:-1, 1] == self._instant[1:, 0])[:, None, None], joint, 0.0)
        for row, column in itertools.product(range(n), range(n)):
            if row >= column:
                bands[row - column, first + column :: n] += own[:, row, column]
            bands[n + row - column, first + column : self._size - n : n] = joint[:, row, column]
        return bands


class Covariance:
    """The factorised covariance S of the rows, and what least squares needs of it.

    Args:
        bands: Structure of the problem's rows.
        y: Gains of the unknowns, (R, k).
        b: Gains of the shared nuisance parameters, (R, M).
        error: Variance of each row by itself, (R,), positive.
        delta: Variances of the shared nuisance parameters, (M,).
        ends: Variances of the velocity errors, (instants x m,).
    """

    def __init__(self, bands: RowBands, y: Array, b: Array, error: Array, delta: Array, ends: Array):
        self._bands = scipy.linalg.cholesky_banded(bands.assemble(error, ends), lower=True, check_finite=False)
        unknowns = y.shape[1]
        forward = lapack.dtbtrs(self._bands, np.concatenate([y, b * np.sqrt(delta)], axis=1), uplo="L")[0]
        y, b = forward[:, :unknowns], forward[:, unknowns:]
        if b.shape[1]:  # Woodbury identity; LAPACK must not see empty matrices
            small = np.eye(len(delta)) + b.T @ b
            y = y - b @ scipy.linalg.solve(small, b.T @ y, assume_a="pos", check_finite=False)
        gram = forward[:, :unknowns].T @ y
        self.gram = 0.5 * (gram + gram.T)
        """``y^T S^-1 y``, (k, k)."""
        self._y = y

    def solve(self, combination: Array) -> Array:
        """Return ``S^-1 y combination``, (R, j), for a combination (k, j)."""
        return np.asarray(lapack.dtbtrs(self._bands, self._y @ combination, uplo="L", trans="T")[0])
