"""The rows of a problem as the matrix of a linear programme, with products that use its structure.

``A z`` with ``z = (x, delta, eta, e)``, each variable divided by its half width, so that it lies between -1 and 1. The
velocity errors eta couple only the rows of neighbouring windows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from sysid_ros.core.estimation.problem import Problem

Array = NDArray[np.float64]

_REGULARISATION = 1e-14
"""Relative to the diagonal; a hundred times more with every failure."""


class RowChain:
    """The matrix A (R, T) of a problem; its rows are divided by their error bounds.

    Rows must come window by window, all joints of each; rows without velocity errors (compacted ones) before them.

    Args:
        problem: The problem.
        extra: More shared columns behind those of x and delta, (R, k).

    Attributes:
        error: Error bounds by which the rows were divided, (R,).
        shared: Columns of x, delta and extra, (R, N).
        size: Number of variables T.
    """

    def __init__(self, problem: Problem, extra: Array | None = None):
        n = self._n = problem.joints
        used, moving = problem.delta_radius > 0.0, problem.end_radius > 0.0
        self._problem, self._used, self._moving = problem, used, moving
        self.error = _floored(problem.error)
        columns = [problem.y * _floored(problem.radius), problem.b[:, used] * problem.delta_radius[used]]
        columns += [] if extra is None else [extra]
        self.shared = np.concatenate(columns, axis=1) / self.error[:, None]
        first = self._first = int(np.count_nonzero(problem.end_index[:, 0] < 0))
        windows = self._windows = (len(problem.r) - first) // n
        gains = problem.ends[first:][..., moving] * problem.end_radius[moving] / self.error[first:, None, None]
        gains = gains.reshape(windows, n, 2, gains.shape[2])
        instant = problem.end_index[first:].reshape(windows, n, 2)[:, 0]
        self._start, self._stop = instant[:, 0], instant[:, 1]
        self._next = np.flatnonzero(self._stop[:-1] == self._start[1:]) + 1
        # Gains of each instant: first on the rows of the window that stops there, then of the one that starts.
        self._instants = int(instant.max(initial=-1)) + 1
        self._gains = np.zeros((self._instants, 2 * n, gains.shape[3]))
        self._gains[self._stop, :n] = gains[:, :, 1]
        self._gains[self._start, n:] = gains[:, :, 0]
        self._transposed = np.ascontiguousarray(self._gains.transpose(0, 2, 1))
        self._low, self._high = np.tril_indices(2 * n)
        self._products = self._gains[:, self._low] * self._gains[:, self._high]
        self._ends = self._instants * gains.shape[3]
        self.size = self.shared.shape[1] + self._ends + len(problem.r)

    def values(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """Of variables z (T,): x (P,), delta (M,), the extra ones, the velocity errors at the last instant (m,)."""
        shared, ends, _ = self._split(z[:, None])
        problem, size = self._problem, self._problem.radius.size
        delta, end = np.zeros_like(problem.delta_radius), np.zeros_like(problem.end_radius)
        count = int(np.count_nonzero(self._used))
        delta[self._used] = shared[size : size + count, 0] * problem.delta_radius[self._used]
        if self._instants:
            end[self._moving] = ends[-1, :, 0] * problem.end_radius[self._moving]
        return shared[:size, 0] * problem.radius, delta, shared[size + count :, 0], end

    def _split(self, z: Array) -> tuple[Array, Array, Array]:
        count = self.shared.shape[1]
        middle = z[count : count + self._ends].reshape(self._instants, self._gains.shape[2], z.shape[1])
        return z[:count], middle, z[count + self._ends :]

    def _by_window(self, values: Array) -> Array:
        """A view of rows (R, S) as (W, n, S)."""
        return values[self._first :].reshape(self._windows, self._n, values.shape[1])

    def times(self, z: Array) -> Array:
        """``A z`` for z (T, S), (R, S)."""
        shared, ends, own = self._split(z)
        result = self.shared @ shared + own
        moved = self._gains @ ends
        self._by_window(result)[:] += moved[self._stop, : self._n] + moved[self._start, self._n :]
        return result

    def transposed(self, dual: Array) -> Array:
        """``A^T l`` for l (R, S), (T, S)."""
        at = np.zeros((self._instants, 2 * self._n, dual.shape[1]))
        at[self._stop, : self._n] = self._by_window(dual)
        at[self._start, self._n :] = self._by_window(dual)
        return np.concatenate([self.shared.T @ dual, (self._transposed @ at).reshape(self._ends, dual.shape[1]), dual])

    def factorise(self, weight: Array) -> ChainFactor:
        """Factorises ``A diag(w) A^T`` for each column w of the weights (T, S)."""
        shared, ends, own = self._split(weight)
        n, first = self._n, self._first
        packed = (self._products @ ends).transpose(2, 0, 1)
        blocks = np.empty((weight.shape[1], self._instants, 2 * n, 2 * n))
        blocks[:, :, self._low, self._high] = packed
        blocks[:, :, self._high, self._low] = packed
        factors, follows, windows = [], self._next, np.arange(self._windows)
        for s, block in enumerate(blocks):
            columns = self.shared * np.sqrt(shared[:, s])
            # Only the lower triangle of the Fortran matrix counts.
            matrix = blas.dsyrk(1.0, columns.T, trans=1, lower=1)
            tail = matrix[first:, first:].T  # C-ordered view of the transpose: fills what LAPACK calls lower
            tail = tail.reshape(self._windows, n, self._windows, n)
            tail[windows, :, windows, :] += block[self._stop, :n, :n] + block[self._start, n:, n:]
            tail[follows - 1, :, follows, :] += block[self._start[follows], :n, n:]
            matrix[np.diag_indices(len(matrix))] += own[:, s]
            factors.append(_cholesky(matrix))
        return ChainFactor(factors)


class ChainFactor:
    """Factorised matrices ``A diag(w) A^T``, one for each column.

    Args:
        factors: Lower Cholesky factors, None where there is none.
    """

    def __init__(self, factors: list[Array | None]):
        self._factors = factors

    def solve(self, right: Array) -> Array:
        """The solution for each column of ``right`` (R, S); not a number where there is no factor."""
        result = np.full_like(right, np.nan)
        for s, factor in enumerate(self._factors):
            if factor is not None:
                result[:, s] = lapack.dpotrs(factor, right[:, s], lower=1)[0]
        return result


def _cholesky(matrix: Array) -> Array | None:
    """Lower Cholesky factor of a Fortran matrix with a regularisation that rounding asks for."""
    diagonal, share = matrix.diagonal().copy(), _REGULARISATION
    places = np.diag_indices(len(matrix))
    while share < 1e-6 and np.all(np.isfinite(diagonal)):
        matrix[places] = diagonal * (1.0 + share)
        factor, status = lapack.dpotrf(matrix, lower=1, clean=0)
        if status == 0:
            return factor
        share *= 100.0
    return None


def _floored(sizes: Array) -> Array:
    """The sizes, (k,), with zeros replaced by something negligible."""
    return np.maximum(sizes, max(1e-9 * float(sizes.max(initial=0.0)), 1e-15))
