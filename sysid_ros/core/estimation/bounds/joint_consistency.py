"""Whether all rows so far can be true together, asked anew with every window.

One set of unknowns that agrees with all rows answers the question as long as it also agrees with the next window, which
costs a small least-squares problem. Only where it does not, all rows are looked at for another one, or for a proof that
there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.bounds.set_membership import contradiction_margin
from sysid_ros.core.estimation.lp.interior_point import solve
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.lp.row_chain import RowChain
from sysid_ros.core.estimation.windows.rows import Rows

Array = NDArray[np.float64]

_ROOM = 4.0
"""All unknowns are asked to stay within one over this of their bounds, if they can."""
_ROUNDS = 8
"""Rounds in which errors of a window may reach their bounds."""
_EXACT = 1e-9
_TOLERANCES = (0.1, 1e-3)
"""Of the programme: the first is enough where all rows agree well or not at all."""
_NEGLIGIBLE = 1e-3
_MAX_STEPS = 60
MEMORY = 100
"""Windows that are kept for this as they are, while the bounds go on with compacted ones: compacted rows say what
matters for the bounds, but less of what a window with another payload would contradict."""


@dataclass(frozen=True)
class Explanation:
    """Unknowns within their bounds that agree with all rows so far.

    Attributes:
        target: The target, (P,).
        delta: The shared nuisance, (M,).
        end: Velocity errors at the last instant, (m,).
        stamp: That instant [ns].
    """

    target: Array
    delta: Array
    end: Array
    stamp: int

    def extended(self, window: Problem, start: int, stop: int) -> Explanation | None:
        """The explanation with one more window, None if its errors would have to be too large or the box is left.

        The errors are those with the smallest sum of squares, in units of their bounds; others might do.

        Args:
            window: The rows of one window.
            start: Its start [ns]; where that is ``stamp`` the velocity errors are known.
            stop: Its end [ns].
        """
        ends = window.ends * window.end_radius  # in units of the bounds
        x = self.target - window.center
        if np.any(np.abs(x) > window.radius):
            return None
        rest = window.r - window.y @ x - window.b @ self.delta
        free = ends[:, 1]
        if start == self.stamp:
            rest = rest - window.ends[:, 0] @ self.end
        else:
            free = np.concatenate([ends[:, 0], free], axis=1)
        sizes = _solve_within(np.concatenate([free, np.diag(window.error)], axis=1), rest)
        if sizes is None:
            return None
        first = free.shape[1] - ends.shape[2]
        end = sizes[first : free.shape[1]] * window.end_radius
        return Explanation(self.target, self.delta, end, stop)


def _solve_within(matrix: Array, rest: Array) -> Array | None:
    """A solution of ``matrix s = rest`` with ``|s| <= 1``, (k,); None if none was found.

    The one with the smallest sum of squares; what is beyond its bound stays there, and the others are solved for again.
    """
    sizes, fixed = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], dtype=bool)
    for _ in range(_ROUNDS):
        part = matrix[:, ~fixed]
        gram = part @ part.T
        gram[np.diag_indices(len(gram))] += 1e-14 * np.trace(gram) + 1e-300
        try:
            sizes[~fixed] = part.T @ np.linalg.solve(gram, rest - matrix[:, fixed] @ sizes[fixed])
        except np.linalg.LinAlgError:
            return None
        beyond = np.abs(sizes) > 1.0
        if not np.any(beyond):
            # With too much at its bounds the rest may not be able to solve it.
            missing = np.abs(matrix @ sizes - rest)
            return sizes if np.all(missing <= _EXACT * np.abs(matrix).sum(axis=1)) else None
        fixed |= beyond
        sizes = np.clip(sizes, -1.0, 1.0)
    return None


class Agreement:
    """Keeps an explanation of all rows."""

    def __init__(self) -> None:
        self._explanation: Explanation | None = None
        self.searches = 0
        """How often all rows were looked at so far."""

    def contradiction(self, window: Problem, rows: Rows, build_all: Callable[[], Problem]) -> Array | None:
        """A combination of all rows that proves that they cannot be true together, (R,); None where none was found.

        Args:
            window: The rows of the next window.
            rows: The same with their stamps.
            build_all: Makes the problem of all rows, those of the window last.
        """
        start, stop = int(rows.start[0]), int(rows.stop[0])
        if self._explanation is not None:
            self._explanation = self._explanation.extended(window, start, stop)
        if self._explanation is not None:
            return None
        self.searches += 1
        self._explanation, combination = explain_rows(build_all(), stop)
        return combination


def explain_rows(problem: Problem, stamp: int) -> tuple[Explanation | None, Array | None]:
    """Unknowns that agree with all rows, or a proof that none do.

    The unknowns with the smallest sum of squares, in units of their bounds, often do. Otherwise the linear programme
    ``max tau`` subject to ``A z = tau r`` with all z within their bounds decides: ``z / tau`` is an explanation if tau
    is above one; if it is below, the multipliers of the rows are a candidate for a proof. Rounding and an inexact
    solver can leave both out.

    Args:
        problem: The rows.
        stamp: The last instant [ns].

    Returns:
        The explanation and the combination of rows that proves the contradiction, (R,), either or both None.
    """
    chain = RowChain(problem, negligible=_NEGLIGIBLE)
    right = problem.r[:, None] / chain.error[:, None]
    z = chain.transposed(chain.factorise(np.ones((chain.size, 1))).solve(right))
    if np.all(np.abs(z) <= 1.0) and np.all(np.abs(chain.times(z) - right) <= _EXACT):
        x, delta, _, end = chain.values(z[:, 0])
        return Explanation(problem.center + x, delta, end, stamp), None
    return _explain_by_programme(problem, stamp)


def _explain_by_programme(problem: Problem, stamp: int) -> tuple[Explanation | None, Array | None]:
    chain = RowChain(problem, extra=-_ROOM * problem.r[:, None], negligible=_NEGLIGIBLE)
    cost, dual = np.zeros((chain.shared.shape[1], 1)), None
    cost[-1] = -1.0
    for tolerance in _TOLERANCES:
        solution = solve(chain, np.zeros(len(problem.r)), cost, tolerance, _MAX_STEPS, dual, maxima=False)
        dual = solution.dual
        combination = dual[:, 0] / chain.error
        if np.all(np.isfinite(combination)) and contradiction_margin(problem, combination) > 0.0:
            return None, combination
        z = solution.variables[:, 0]
        x, delta, extra, end = chain.values(z)
        size = _ROOM * float(extra[0])
        # What is missing of the rows must not be what makes them agree.
        missing = np.abs(chain.times(z[:, None])).max()
        if size * (1.0 - missing) >= 1.0:
            return Explanation(problem.center + x / size, delta / size, end / size, stamp), None
    return None, None
