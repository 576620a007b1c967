"""The rows of a problem as the matrix of a linear program, with products and factorisations that use its structure.

``A z`` with ``z = (x, delta, eta, e)``, each variable divided by its radius, so that it lies between -1 and 1. The
velocity errors eta couple only the rows of neighbouring windows.

Block-tridiagonal matrices are factorised by cyclic reduction, many at once: eliminating every other block leaves a
block-tridiagonal matrix of half the length. That is a Cholesky factorisation in another order of the blocks, as stable
as any; it turns a chain of W small steps into log2 W large ones.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from sysid_ros.core.estimation.lp.problem import Problem, floored, gains_by_instant

Array = NDArray[np.float64]

_FEW_ROWS = 1000
"""Matrices of so many rows may be factorised as a whole: that takes 8 MB and some ten milliseconds each."""


class RowChain:
    """The matrix A (R, T) of a problem; its rows are divided by their error bounds.

    Rows must come window by window, all joints of each; rows without velocity errors (compacted ones) before them.

    Args:
        problem: The problem.
        negligible: Shared errors that together never reach this part of the error of a row are left out [-].
        counted: Share of the omitted errors that counts as independent errors of each row [-].

    Attributes:
        error: Error bounds by which the rows were divided, (R,).
        shared: Columns of x, delta and extra, (R, N).
        size: Number of variables T.
    """

    def __init__(self, problem: Problem, negligible: float = 0.0, counted: float = 0.0):
        n = self._n = problem.joints
        inverse = 1.0 / floored(problem.error)
        used = _noticeable(np.max(np.abs(problem.b) * inverse[:, None], axis=0) * problem.delta_radius, negligible)
        gains = np.max(np.abs(problem.ends) * inverse[:, None, None], axis=(0, 1))
        moving = _noticeable(2.0 * gains * problem.end_radius, negligible)
        self._problem, self._used, self._moving = problem, used, moving
        left_out = np.abs(problem.b[:, ~used]) @ problem.delta_radius[~used]
        left_out += np.abs(problem.ends[..., ~moving]).sum(axis=1) @ problem.end_radius[~moving]
        self.error = floored(problem.error + counted * left_out)
        columns = [problem.y * floored(problem.radius), problem.b[:, used] * problem.delta_radius[used]]
        self.shared = np.concatenate(columns, axis=1) / self.error[:, None]
        ends = problem.ends[..., moving] * problem.end_radius[moving] / self.error[:, None, None]
        self._first, instant, self._gains = gains_by_instant(problem, ends, n)
        self._windows, self._instants = len(instant), len(self._gains)
        self._start, self._stop = instant[:, 0], instant[:, 1]
        self._next = np.flatnonzero(self._stop[:-1] == self._start[1:]) + 1
        self._transposed = np.ascontiguousarray(self._gains.transpose(0, 2, 1))
        self._low, self._high = np.tril_indices(2 * n)
        self._products = self._gains[:, self._low] * self._gains[:, self._high]
        self._ends = self._instants * ends.shape[2]
        self.size = self.shared.shape[1] + self._ends + len(problem.r)

    def extended(self, extra: Array) -> RowChain:
        """Return the matrix with more shared columns behind those of x and delta, (R, k) in units of the rows."""
        result = copy(self)
        result.shared = np.concatenate([self.shared, extra / self.error[:, None]], axis=1)
        result.size = self.size + extra.shape[1]
        return result

    def values(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """Split z (T,) into x (P,), delta (M,), the extra variables and the last velocity errors (m,)."""
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
        return values[self._first :].reshape(self._windows, self._n, values.shape[1])

    def times(self, z: Array) -> Array:
        """Return ``A z``, (R, S), for z (T, S)."""
        shared, ends, own = self._split(z)
        result = self.shared @ shared + own
        moved = self._gains @ ends
        self._by_window(result)[:] += moved[self._stop, : self._n] + moved[self._start, self._n :]
        return result

    def transposed(self, dual: Array) -> Array:
        """Return ``A^T l``, (T, S), for l (R, S)."""
        at = np.zeros((self._instants, 2 * self._n, dual.shape[1]))
        at[self._stop, : self._n] = self._by_window(dual)
        at[self._start, self._n :] = self._by_window(dual)
        return np.concatenate([self.shared.T @ dual, (self._transposed @ at).reshape(self._ends, dual.shape[1]), dual])

    def factorise(self, weight: Array, is_hard: NDArray[np.bool_] | None = None) -> Factor:
        """Factorise ``A diag(w) A^T`` for each column w of the weights (T, S).

        Args:
            weight: The weights.
            is_hard: Columns (S,) that are to be solved accurately, which takes longer: few rows are factorised as a
                whole, the solutions of many are refined. None unless given.
        """
        if is_hard is None or not np.any(is_hard):
            return self._factorise_shared(weight)
        if np.all(is_hard):
            return self._factorise_accurately(weight)
        hard, easy = self._factorise_accurately(weight[:, is_hard]), self._factorise_shared(weight[:, ~is_hard])
        return PartedFactor(is_hard, hard, easy)

    def _factorise_accurately(self, weight: Array) -> Factor:
        if len(self.shared) <= _FEW_ROWS:
            return self._factorise_rows(weight)
        return RefinedFactor(self, weight, self._factorise_shared(weight))

    def _factorise_shared(self, weight: Array) -> Factor:
        shared, ends, own = self._split(weight)
        n, first, windows = self._n, self._first, np.arange(self._windows)
        diagonal, below = self._blocks(ends)
        places = np.arange(n)
        diagonal[:, windows[:, None], places, places] += own[first:].T.reshape(own.shape[1], self._windows, n)
        return ChainFactor(self.shared, shared.T, own[:first].T, diagonal, below)

    def _factorise_rows(self, weight: Array) -> Factor:
        """Factorise as a whole: accurate, and slow, with the cube of the number of rows."""
        shared, ends, own = self._split(weight)
        n, first, windows = self._n, self._first, np.arange(self._windows)
        factors = []
        for s, (diagonal, below) in enumerate(zip(*self._blocks(ends), strict=True)):
            columns = self.shared * np.sqrt(shared[:, s])
            # Only the lower triangle of the Fortran matrix counts.
            matrix = blas.dsyrk(1.0, columns.T, trans=1, lower=1)
            tail = matrix[first:, first:].T  # C-ordered view of the transpose: fills LAPACK's lower triangle
            tail = tail.reshape(self._windows, n, self._windows, n)
            tail[windows, :, windows, :] += diagonal
            tail[self._next - 1, :, self._next, :] += below[self._next].transpose(0, 2, 1)
            matrix[np.diag_indices(len(matrix))] += own[:, s]
            factors.append(_cholesky(matrix))
        return RowFactor(factors)

    def _blocks(self, ends: Array) -> tuple[Array, Array]:
        """Return the blocks of the velocity errors within windows and to the one before each, (S, W, n, n) each."""
        n = self._n
        packed = (self._products @ ends).transpose(2, 0, 1)
        blocks = np.empty((packed.shape[0], self._instants, 2 * n, 2 * n))
        blocks[:, :, self._low, self._high] = packed
        blocks[:, :, self._high, self._low] = packed
        diagonal = blocks[:, self._stop, :n, :n] + blocks[:, self._start, n:, n:]
        below = np.zeros_like(diagonal)
        below[:, self._next] = blocks[:, self._start[self._next], n:, :n]
        return diagonal, below


class Factor(Protocol):
    """Factorised matrices, one for each column."""

    def solve(self, right: Array) -> Array:
        """Solve for each column of ``right`` (R, S); NaN where there is no factor."""


class PartedFactor:
    """Factors of some of the columns of the weights, and of the others.

    Args:
        is_first: Which columns the first factor is of, (S,).
        first: Factor of those columns.
        second: Factor of the others.
    """

    def __init__(self, is_first: NDArray[np.bool_], first: Factor, second: Factor):
        self._parts = ((is_first, first), (~is_first, second))

    def solve(self, right: Array) -> Array:
        """Solve for each column of ``right`` (R, S); NaN where there is no factor."""
        result = np.empty_like(right)
        for chosen, factor in self._parts:
            result[:, chosen] = factor.solve(right[:, chosen])
        return result


class RowFactor:
    """Factorised matrices of all rows.

    Args:
        factors: Lower Cholesky factors, None where there is none.
    """

    def __init__(self, factors: list[Array | None]):
        self._factors = factors

    def solve(self, right: Array) -> Array:
        """Solve for each column of ``right`` (R, S); NaN where there is no factor."""
        result = np.full_like(right, np.nan)
        for s, factor in enumerate(self._factors):
            if factor is not None:
                result[:, s] = lapack.dpotrs(factor, right[:, s], lower=1)[0]
        return result


class RefinedFactor:
    """Solutions of a factor, corrected by their residuals (iterative refinement).

    Args:
        chain: The matrix A.
        weight: The weights w, (T, S).
        factor: An inexact factor of ``A diag(w) A^T``.
    """

    def __init__(self, chain: RowChain, weight: Array, factor: Factor):
        self._chain, self._weight, self._factor = chain, weight, factor

    def solve(self, right: Array) -> Array:
        """Solve for each column of ``right`` (R, S); NaN where there is no factor."""
        result = self._factor.solve(right)
        missing = self._missing(right, result)
        for _ in range(2):  # corrections
            refined = result + self._factor.solve(missing)
            left = self._missing(right, refined)
            is_better = np.abs(left).max(axis=0) < np.abs(missing).max(axis=0)
            result, missing = np.where(is_better, refined, result), np.where(is_better, left, missing)
        return result

    def _missing(self, right: Array, found: Array) -> Array:
        return right - self._chain.times(self._weight * self._chain.transposed(found))


class ChainFactor:
    """Factorised matrices ``T + S diag(w) S^T``, S of them, by their shared columns (Woodbury identity).

    With ``T = L L^T`` and ``X = L^-1 S`` the solution for r is ``y = L^-T (f - X v)`` with ``f = L^-1 r`` and
    ``(diag(1 / w) + X^T X) v = X^T f``. T is diagonal in the rows before the windows and couples neighbouring windows,
    so that it costs next to nothing; the matrix to factorise has the size of the shared columns, not of the rows.

    Args:
        columns: The shared columns S, (R, N).
        weight: Their weights w, (S, N).
        own: T in the rows before the windows, (S, F).
        diagonal: T within the W windows, (S, W, n, n).
        below: T from the rows of each window to those of the one before, (S, W, n, n).
    """

    def __init__(self, columns: Array, weight: Array, own: Array, diagonal: Array, below: Array):
        count, windows, n, _ = diagonal.shape
        good = np.isfinite(weight).all(1) & np.isfinite(own).all(1) & np.isfinite(diagonal).all((1, 2, 3))
        bad: NDArray[np.bool_] = ~np.asarray(good & (weight > 0.0).all(1) & (own > 0.0).all(1))
        if bad.any():
            weight, own = np.where(bad[:, None], 1.0, weight), np.where(bad[:, None], 1.0, own)
            diagonal = np.where(bad[:, None, None, None], np.eye(n), diagonal)
            below = np.where(bad[:, None, None, None], 0.0, below)
        first = self._first = own.shape[1]
        self._root = 1.0 / np.sqrt(own)
        self._chain = BlockChain(diagonal, below)
        rows = columns[first:].reshape(1, windows, n, columns.shape[1])
        self._x = np.empty((count, *columns.shape))
        np.multiply(self._root[:, :, None], columns[:first], out=self._x[:, :first])
        tail = self._x[:, first:].reshape(count, *rows.shape[1:])  # a view
        self._chain.forward(np.broadcast_to(rows, tail.shape), tail)
        places = np.diag_indices(columns.shape[1])
        self._factors = []
        for x, own_weight in zip(self._x, weight, strict=True):
            gram = blas.dsyrk(1.0, x.T, lower=1)  # only the lower triangle: half the work of a product
            gram[places] += 1.0 / own_weight
            self._factors.append(_cholesky(gram))
        self._is_good = ~bad & np.array([factor is not None for factor in self._factors], dtype=bool)
        self._shape = (count, windows, n, 1)

    def solve(self, right: Array) -> Array:
        """Solve for each column of ``right`` (R, S); NaN where there is no factor."""
        (count, windows, n, _), first = self._shape, self._first
        f = np.empty((count, len(right), 1))
        f[:, :first, 0] = self._root * right[:first].T
        tail = f[:, first:].reshape(self._shape)  # a view
        self._chain.forward(np.ascontiguousarray(right[first:].T).reshape(self._shape), tail)
        target = self._x.transpose(0, 2, 1) @ f
        for s, factor in enumerate(self._factors):
            if factor is not None:
                target[s, :, 0] = lapack.dpotrs(factor, target[s, :, 0], lower=1)[0]
        f -= self._x @ target
        result = np.empty_like(right)
        result[:first] = (f[:, :first, 0] * self._root).T
        tail = self._chain.backward(f[:, first:].reshape(self._shape))
        result[first:] = tail.reshape(count, windows * n).T
        return np.where(self._is_good, result, np.nan)


def _cholesky(matrix: Array) -> Array | None:
    """Factorise a Fortran matrix (lower Cholesky factor), regularised as rounding demands; None if that fails."""
    diagonal, share = matrix.diagonal().copy(), 1e-14
    places = np.diag_indices(len(matrix))
    while share < 1e-6 and np.all(np.isfinite(diagonal)):
        matrix[places] = diagonal * (1.0 + share)
        factor, status = lapack.dpotrf(matrix, lower=1, clean=0)
        if status == 0:
            return np.asarray(factor)
        share *= 100.0
    return None


def _noticeable(shares: Array, negligible: float) -> NDArray[np.bool_]:
    """Return which of the shares (k,) remain when the smallest, up to this sum, are left out."""
    order = np.argsort(shares)
    result = np.ones(shares.size, dtype=bool)
    result[order[np.cumsum(shares[order]) <= negligible]] = False
    return result


@dataclass(frozen=True)
class _Level:
    """Blocks eliminated together: E of them, between O that stay."""

    inverse: Array  # Inverses of their lower Cholesky factors, (S, E, n, n)
    before: Array  # Coupling of each block that stays to the one before it, times the inverse factor, (S, O, n, n)
    after: Array  # The same for the one after it; zero where there is none


class BlockChain:
    """Factors L of S matrices ``T = L L^T`` of W blocks of size n.

    Args:
        diagonal: Blocks on the diagonal, (S, W, n, n), symmetric.
        below: Blocks from each to the one before, (S, W, n, n); the first does not count.

    Raises:
        LinAlgError: A matrix is not positive definite, nor nearly.
    """

    def __init__(self, diagonal: Array, below: Array):
        self._levels: list[_Level] = []
        while diagonal.shape[1]:
            inverse = _invert_lower(_lower(diagonal[:, 0::2]))
            transposed = inverse.transpose(0, 1, 3, 2)
            staying = diagonal[:, 1::2]
            count = staying.shape[1]
            before = below[:, 1::2] @ transposed[:, :count]
            after = np.zeros_like(before)
            links = below[:, 2::2].transpose(0, 1, 3, 2)
            after[:, : links.shape[1]] = links @ transposed[:, 1:]
            self._levels.append(_Level(inverse, before, after))
            diagonal = staying - before @ before.transpose(0, 1, 3, 2) - after @ after.transpose(0, 1, 3, 2)
            below = np.zeros_like(before)
            below[:, 1:] = -before[:, 1:] @ after[:, :-1].transpose(0, 1, 3, 2)

    def forward(self, right: Array, out: Array) -> None:
        """Write ``L^-1 r`` for r (S, W, n, k) into an array of that shape, its blocks in the order of elimination."""
        start = 0
        for level in self._levels:
            done = out[:, start : start + level.inverse.shape[1]]
            np.matmul(level.inverse, right[:, 0::2], out=done)
            start += done.shape[1]
            right = right[:, 1::2] - level.before @ done[:, : right.shape[1] // 2]
            following = done[:, 1:]
            right[:, : following.shape[1]] -= level.after[:, : following.shape[1]] @ following

    def backward(self, right: Array) -> Array:
        """Return ``L^-T f`` for f (S, W, n, k) in the order of elimination, its blocks in their own order."""
        stop, result = right.shape[1], right[:, :0]
        for level in reversed(self._levels):
            count, staying = level.inverse.shape[1], result
            part = right[:, stop - count : stop].copy()
            stop -= count
            part[:, : staying.shape[1]] -= level.before.transpose(0, 1, 3, 2) @ staying
            following = min(count - 1, staying.shape[1])
            part[:, 1 : 1 + following] -= level.after[:, :following].transpose(0, 1, 3, 2) @ staying[:, :following]
            result = np.empty((right.shape[0], count + staying.shape[1], *right.shape[2:]))
            result[:, 0::2] = level.inverse.transpose(0, 1, 3, 2) @ part
            result[:, 1::2] = staying
        return result


def _lower(blocks: Array) -> Array:
    """Return the lower Cholesky factors of blocks (S, W, n, n), regularised as far as rounding demands."""
    places, share = np.arange(blocks.shape[2]), 1e-15
    size = np.abs(blocks[:, :, places, places])
    while True:
        padded = blocks.copy()
        padded[:, :, places, places] += share * size
        try:
            return np.asarray(np.linalg.cholesky(padded), dtype=np.float64)
        except np.linalg.LinAlgError:
            share *= 100.0
            if share > 1e-3:
                raise


def _invert_lower(factors: Array) -> Array:
    """Return the inverses of lower triangular blocks (S, W, n, n), all at once; LAPACK's calls cost more than blocks.

    Row i of the inverse X is ``(e_i - sum_j L_ij X_j) / L_ii``.
    """
    n = factors.shape[-1]
    parts = np.ascontiguousarray(factors.reshape(-1, n, n).transpose(1, 2, 0))
    result = np.zeros_like(parts)
    for i in range(n):
        over = 1.0 / parts[i, i]
        result[i, i] = over
        if i:
            np.einsum("jb,jkb->kb", parts[i, :i], result[:i, :i], out=result[i, :i])
            result[i, :i] *= -over
    return np.ascontiguousarray(result.transpose(2, 0, 1)).reshape(factors.shape)
