"""The rows centred on a box of the target, a linear system with independent and shared errors, and its covariance.

With radii as standard deviations the covariance of the rows is ``diag(error) + v diag(ends) v^T + b diag(delta) b^T``:
the middle part couples only rows of neighbouring windows, so the first two form a banded matrix, and the last one has
few columns (Woodbury identity).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from scipy.linalg import lapack

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, SHARED_TERMS
from sysid_ros.core.estimation.windows.rows import TARED, Rows
from sysid_ros.core.model.robot import INERTIAL

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """``y x + b delta + v eta = r + e`` for the unknown ``x = theta_e - center`` with ``|x| <= radius``.

    Attributes:
        center: Middle of a box known to hold the target, (P,).
        radius: Its radii, (P,).
        y: (R, P).
        b: (R, M). Where the direction of gravity is uncertain, the last 3 C columns belong to the products of its three
            deviations with the first C entries of x.
        delta_radius: Radii of the shared nuisance parameters ``delta``, (M,).
        ends: Gains of the ``eta`` at start and stop of each row, signs included, (R, 2, m) with m = C n + E: of the
            velocity error of each joint and of its products with the first C entries of x, then of the other errors
            that rows share; their products with x are independent errors.
        end_index: Number of the instant of start and stop, (R, 2); rows of neighbouring windows share one. -1 if none.
        end_radius: Radii of the m entries of eta at each instant, (m,).
        r: (R,) [Nms].
        errors: Largest independent error of each row by term, (R, K) [Nms].
        theta_size: Largest magnitude of ``theta_e``, (P,).
        joints: Number of joints, which is the number of rows of a window.
        objectives: Combinations to bound: ``objectives @ theta_e``, (K, P).
        end_term: Entry of ``SHARED_TERMS`` that each of the m entries of eta belongs to, (m,).
    """

    center: Array
    radius: Array
    y: Array
    b: Array
    delta_radius: Array
    ends: Array
    end_index: NDArray[np.int64]
    end_radius: Array
    r: Array
    errors: Array
    theta_size: Array
    joints: int
    objectives: Array
    end_term: NDArray[np.int64]

    @classmethod
    def build(
        cls,
        rows: Rows,
        center: Array,
        radius: Array,
        delta_radius: Array,
        end_error: Array,
        objectives: Array | None = None,
    ) -> Problem:
        """Centre the rows on a box of the target and evaluate the gains of the errors that rows share there.

        Args:
            rows: The rows.
            center: Middle of a box known to hold the target, (P,).
            radius: Its radii, (P,).
            delta_radius: Radii of the shared nuisance parameters, (M,).
            end_error: Largest of the E errors that rows share, (E,) [rad/s, rad].
            objectives: Combinations to bound, (K, P); by default each entry of the target.
        """
        coupled = rows.ends.shape[-1] - 2
        joints = int(rows.joint.max(initial=0)) + 1
        middle = rows.ends[..., :coupled] @ center[:coupled] + rows.ends[..., -2]
        products = np.concatenate([middle[..., :joints, None], rows.ends[:, :, :joints, :coupled]], axis=3)
        products = products.reshape(len(rows), 2, (coupled + 1) * joints)
        gains = np.concatenate([products, middle[..., joints:]], axis=2)
        end_radius = np.outer(end_error[:joints], np.append(1.0, radius[:coupled])).ravel()
        end_radius = np.concatenate([end_radius, end_error[joints:]])
        errors = rows.errors.copy()
        loose = rows.ends[..., -1].copy()
        loose[:, :, joints:] += np.abs(rows.ends[:, :, joints:, :coupled]) @ radius[:coupled]
        kinds = np.arange(end_error.size) * len(SHARED_TERMS) // max(end_error.size, 1)
        for kind, name in enumerate(SHARED_TERMS):
            errors[:, ERROR_TERMS.index(name)] += np.einsum("rel,l->r", loose, end_error * (kinds == kind))
        instants = np.stack([rows.start, rows.stop], axis=1)
        _, index = np.unique(instants, return_inverse=True)
        is_window = (rows.window >= 0) | (rows.window == TARED)
        index = np.where(is_window[:, None], index.reshape(-1, 2), -1)
        b = rows.b
        if rows.tilt.shape[1]:
            b = np.concatenate([b, rows.tilt.reshape(len(rows), 3 * coupled)], axis=1)
            b[:, delta_radius.size - 3 : delta_radius.size] += rows.tilt @ center[:coupled]
            delta_radius = np.concatenate([delta_radius, np.outer(delta_radius[-3:], radius[:coupled]).ravel()])
        return cls(
            center=center,
            radius=radius,
            y=rows.y,
            b=b,
            delta_radius=delta_radius,
            ends=gains * np.array([-1.0, 1.0])[:, None],
            end_index=index,
            end_radius=end_radius,
            r=rows.u - rows.y @ center,
            errors=errors,
            theta_size=np.abs(center) + radius,
            joints=joints,
            objectives=np.eye(center.size) if objectives is None else objectives,
            end_term=np.concatenate([np.zeros((1 + coupled) * joints, dtype=np.int64), kinds[joints:]]),
        )

    @classmethod
    def of_rows(cls, matrix: Array, rows: Box, box: Box, objectives: Array) -> Problem:
        """Build the problem of rows without shared errors: ``rows.lower <= matrix x <= rows.upper`` for x in a box.

        Args:
            matrix: (R, P).
            rows: Bounds of the R rows.
            box: Box of x, (P,).
            objectives: Combinations to bound, (K, P).
        """
        count, none = len(matrix), np.zeros(0)
        center, radius = box.center, box.radius
        return cls(
            center=center,
            radius=radius,
            y=matrix,
            b=np.zeros((count, 0)),
            delta_radius=none,
            ends=np.zeros((count, 2, 0)),
            end_index=np.full((count, 2), -1),
            end_radius=none,
            r=rows.center - matrix @ center,
            errors=rows.radius[:, None],
            theta_size=np.abs(center) + radius,
            joints=1,
            objectives=objectives,
            end_term=np.zeros(0, dtype=np.int64),
        )

    def without_negligible(self, share: float) -> Problem:
        """Leave out shared errors that never reach this share of the independent error of a row; not for bounds."""
        error = np.maximum(self.error, 1e-300)
        delta = np.max(np.abs(self.b) / error[:, None], axis=0, initial=0.0) * self.delta_radius > share
        ends = np.max(np.abs(self.ends) / error[:, None, None], axis=(0, 1), initial=0.0) * self.end_radius > share
        return replace(
            self,
            b=self.b[:, delta],
            delta_radius=self.delta_radius[delta],
            ends=self.ends[..., ends],
            end_radius=self.end_radius[ends],
            end_term=self.end_term[ends],
        )

    def select(self, index: NDArray[np.bool_]) -> Problem:
        """Select some of the rows, (R,)."""
        rows = {name: getattr(self, name)[index] for name in ("y", "b", "ends", "end_index", "r", "errors")}
        return replace(self, **rows)

    @property
    def bodies(self) -> int:
        """Number of bodies whose inertial parameters come first in the target; friction may follow."""
        return min(self.center.size // INERTIAL, self.joints)

    @property
    def error(self) -> Array:
        """Largest independent error of each row, (R,) [Nms]."""
        return np.asarray(self.errors.sum(axis=1))

    @property
    def content(self) -> Array:
        """Sum of the magnitudes of all summands of each row, (R,) [Nms]; rounding is relative to it."""
        content = np.abs(self.r) + 2.0 * np.abs(self.y) @ self.theta_size
        content += np.abs(self.b) @ self.delta_radius
        return np.asarray(content + np.abs(self.ends).sum(axis=1) @ self.end_radius + self.error)

    @property
    def rounding_unit(self) -> float:
        """Relative rounding error that is allowed for sums over the rows, or over the entries of the target [-].

        Sums of k products: |computed - exact| <= k eps sum |a| |b| / (1 - k eps), in any order; four times that is
        ample.
        """
        return float(4.0 * (max(len(self.r), self.center.size) + 64) * np.finfo(float).eps)

    @cached_property
    def end_matrix(self) -> scipy.sparse.csr_array:
        """The gains of all velocity errors as one matrix v, (R, instants x m)."""
        count, _, m = self.ends.shape
        instants = int(self.end_index.max(initial=-1)) + 1
        is_shared = self.end_index >= 0
        column = self.end_index[is_shared][:, None] * m + np.arange(m)
        stops = np.concatenate([[0], np.cumsum(m * np.count_nonzero(is_shared, axis=1))])
        return scipy.sparse.csr_array(
            (self.ends[is_shared].ravel(), column.ravel(), stops), shape=(count, instants * m)
        )

    @property
    def end_radii(self) -> Array:
        """Radii of ``eta``, (instants x m,)."""
        return np.tile(self.end_radius, int(self.end_index.max(initial=-1)) + 1)

    def shared_error(self, inverse: Array) -> Array:
        """Return the largest sum of shared errors in combinations of rows (K, R), by term, (K, S) [Nms]."""
        shared = np.abs(inverse @ self.end_matrix) * self.end_radii
        size = self.end_radius.size
        parts = shared.reshape(len(inverse), len(self.end_radii) // max(size, 1), size).sum(axis=1)
        return np.asarray(parts @ (self.end_term[:, None] == np.arange(len(SHARED_TERMS))))


def gains_by_instant(problem: Problem, ends: Array, n: int) -> tuple[int, NDArray[np.int64], Array]:
    """Sort the gains of the errors that rows share by instants; windows come one by one, compacted rows before them.

    Args:
        problem: The problem.
        ends: Its ``ends``, or some of them, in any unit, (R, 2, m).
        n: Rows per window.

    Returns:
        The number of rows before the windows, the instants at start and stop of each window, (W, 2), and the gains of
        each instant: first on the rows of the window that stops there, then of the one that starts, (instants, 2 n, m).
    """
    first = int(np.count_nonzero(problem.end_index[:, 0] < 0))
    windows = (len(problem.r) - first) // n
    gains = ends[first:].reshape(windows, n, 2, ends.shape[2])
    instant = problem.end_index[first:].reshape(windows, n, 2)[:, 0]
    result = np.zeros((int(instant.max(initial=-1)) + 1, 2 * n, ends.shape[2]))
    result[instant[:, 1], :n] = gains[:, :, 1]
    result[instant[:, 0], n:] = gains[:, :, 0]
    return first, instant, result


class RowBands:
    """Where the banded part of the covariance of a problem has its entries.

    Rows must come window by window, all joints of each, compacted rows before them.
    """

    def __init__(self, problem: Problem, n: int):
        self._size, self._n = len(problem.r), n
        self._first, self._instant, self._gains = gains_by_instant(problem, problem.ends, n)

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
    """The factorised covariance S of the rows, for least squares.

    Args:
        bands: Its banded part (:meth:`RowBands.assemble`); the variance of each row by itself is positive.
        y: Gains of the unknowns, (R, k).
        b: Gains of the shared nuisance parameters, (R, M).
        delta: Variances of the shared nuisance parameters, (M,).
    """

    def __init__(self, bands: Array, y: Array, b: Array, delta: Array):
        self._bands = scipy.linalg.cholesky_banded(bands, lower=True, check_finite=False)
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

    @classmethod
    def of(cls, problem: Problem, y: Array) -> Covariance:
        """Factorise the covariance with every radius as a standard deviation, for gains y (R, k) of the unknowns."""
        bands = RowBands(problem, problem.joints).assemble(floored(problem.error) ** 2, problem.end_radii**2)
        return cls(bands, y, problem.b, problem.delta_radius**2)

    def solve(self, combination: Array) -> Array:
        """Return ``S^-1 y combination``, (R, j), for a combination (k, j)."""
        return np.asarray(lapack.dtbtrs(self._bands, self._y @ combination, uplo="L", trans="T")[0])


def floored(sizes: Array) -> Array:
    """Return the sizes, (k,), with zeros replaced by something negligible."""
    return np.maximum(sizes, max(1e-9 * float(sizes.max(initial=0.0)), 1e-15))
