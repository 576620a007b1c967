"""Consistency of data, assumptions and bounds: proofs of infeasibility, and a check of every new window.

Unknowns within their bounds that satisfy all rows so far, a feasible point, show joint consistency if they also satisfy
the next window, which costs a small least-squares problem. Otherwise all rows are searched for another feasible point,
or for a proof that there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.lp.interior_point import solve_for_scale
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.lp.row_chain import RowChain
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode
from sysid_ros.core.estimation.windows.model import Window, WindowModel
from sysid_ros.core.estimation.windows.rows import CALIBRATED, TARED, Rows

Array = NDArray[np.float64]

_ROOM = 4.0
"""A feasible point keeps all unknowns within one over this of their bounds, if it can."""
_EXACT = 1e-9
_TOLERANCES = (0.1, 1e-3)
"""Of the search for a feasible point; the first suffices where the rows are far from infeasible, or from feasible."""
_NAMED = 4
"""Rows named in an alarm."""
_CAUSES = (
    "The payload has changed or lies outside its prior, or an assumption is violated: robot and friction parameters in "
    "their box, error bounds of the sensors, meaning and sign of the torque, direction of gravity, no contact"
)

_EMPTY_HAND = (
    "nothing in the hand at the tare, and friction and offsets no further from what they were then than tare_drift "
    "allows; take the tare again with the empty hand (sysid tare)"
)


def largest_residual(problem: Problem, radius: Array) -> Array:
    """Return the largest ``|r|`` of each row for any target within ``radius`` (P,) of the centre, (R,) [Nms]."""
    allowed = np.abs(problem.y) @ radius + np.abs(problem.b) @ problem.delta_radius + problem.error
    allowed += np.abs(problem.ends).sum(axis=1) @ problem.end_radius
    return np.asarray(allowed * (1.0 + 1e-12))


def find_inconsistent_rows(problem: Problem) -> NDArray[np.intp]:
    """Return the rows that are infeasible for every target in the box, worst first."""
    allowed = largest_residual(problem, problem.radius)
    rows = np.flatnonzero(np.abs(problem.r) > allowed)
    return rows[np.argsort(-np.abs(problem.r[rows]) / np.maximum(allowed[rows], 1e-300))]


def find_infeasibility_proof(problem: Problem, multipliers: Array | None = None) -> Array | None:
    """Search for a combination of rows that is infeasible for every target in the box, (R,); None if none was found.

    Candidates are the differences of the given multipliers (2 K, R) of lower and upper bounds, then the solution of
    ``max tau`` subject to ``A z = tau r``, whose multipliers are such a combination if tau stays below one. A candidate
    counts only if :func:`infeasibility_margin` proves it.
    """
    candidates: list[Array] = [] if multipliers is None else list(np.subtract(*np.split(multipliers, 2)))
    chain, solution = solve_for_scale(RowChain(problem), -problem.r, np.zeros(len(problem.r)), 1e-3)
    candidates.append(solution.dual[:, 0] / chain.error)
    candidates = [one for one in candidates if np.all(np.isfinite(one)) and np.any(one)]
    margins = [infeasibility_margin(problem, candidate) for candidate in candidates]
    if not candidates or max(margins) <= 0.0:
        return None
    return candidates[int(np.argmax(margins))]


def infeasibility_margin(problem: Problem, combination: Array) -> float:
    """Compute the relative excess of a combination ``l`` (R,) of rows over its feasible range.

    ``|l r| <= |l| E + |l b| rad(delta) + |l v| rad(eta) + |l y| rad(x)`` holds for every target in the box and all
    errors within their bounds, so a positive margin, rounding included, proves that there are none.
    """
    size = np.abs(combination)
    allowed = size @ problem.error + np.abs(combination @ problem.b) @ problem.delta_radius
    allowed += np.abs(combination @ problem.end_matrix) @ problem.end_radii
    allowed += np.abs(combination @ problem.y) @ problem.radius
    allowed = allowed * (1.0 + problem.rounding_unit) + problem.rounding_unit * (size @ problem.content)
    value = abs(float(combination @ problem.r))
    return (value - float(allowed)) / max(value, 1e-300)


@dataclass(frozen=True)
class FeasiblePoint:
    """Unknowns within their bounds that satisfy all rows so far.

    Attributes:
        target: The target, (P,).
        delta: The shared nuisance parameters, (M,).
        end: Velocity errors at the last instant, (m,).
        stamp: That instant [ns].
    """

    target: Array
    delta: Array
    end: Array
    stamp: int

    def extend(self, window: Problem, start: int, stop: int) -> FeasiblePoint | None:
        """Extend the point by the errors of one more window; None if they exceed their bounds or the box is left.

        The errors have the smallest sum of squares, in units of their bounds; others might be feasible.

        Args:
            window: The rows of one window.
            start: Its start [ns]; if it is ``stamp`` the velocity errors there are fixed.
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
        return FeasiblePoint(self.target, self.delta, end, stop)


def _solve_within(matrix: Array, rest: Array) -> Array | None:
    """Solve ``matrix s = rest`` with ``|s| <= 1``, (k,); None if no solution was found.

    Start from the smallest sum of squares; fix entries that exceed their bound there, and solve again for the others.
    """
    sizes, fixed = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], dtype=bool)
    for _ in range(8):
        part = matrix[:, ~fixed]
        gram = part @ part.T
        gram[np.diag_indices(len(gram))] += 1e-14 * np.trace(gram) + 1e-300
        try:
            sizes[~fixed] = part.T @ np.linalg.solve(gram, rest - matrix[:, fixed] @ sizes[fixed])
        except np.linalg.LinAlgError:
            return None
        beyond = np.abs(sizes) > 1.0
        if not np.any(beyond):
            # With too many fixed, the others may be unable to solve it.
            missing = np.abs(matrix @ sizes - rest)
            return sizes if np.all(missing <= _EXACT * np.abs(matrix).sum(axis=1)) else None
        fixed |= beyond
        sizes = np.clip(sizes, -1.0, 1.0)
    return None


def find_feasible_point(problem: Problem, stamp: int) -> tuple[FeasiblePoint | None, Array | None]:
    """Search for unknowns that satisfy all rows, or for a proof that there are none.

    The unknowns with the smallest sum of squares, in units of their bounds, often do. Otherwise the linear program
    ``max tau`` subject to ``A z = tau r`` with all z within their bounds decides: ``z / tau`` is feasible if tau is
    above one; if it is below, the multipliers of the rows are a candidate for a proof. Rounding and an inexact solver
    can leave both out.

    Returns:
        The feasible point at the last instant ``stamp`` [ns] and the combination of rows that proves infeasibility,
        (R,), either or both None.
    """
    chain = RowChain(problem, negligible=1e-3)
    right = problem.r[:, None] / chain.error[:, None]
    z = chain.transposed(chain.factorise(np.ones((chain.size, 1))).solve(right))
    if np.all(np.abs(z) <= 1.0) and np.all(np.abs(chain.times(z) - right) <= _EXACT):
        x, delta, _, end = chain.values(z[:, 0])
        return FeasiblePoint(problem.center + x, delta, end, stamp), None
    dual = None
    for tolerance in _TOLERANCES:
        wide, solution = solve_for_scale(chain, -_ROOM * problem.r, np.zeros(len(problem.r)), tolerance, dual)
        dual = solution.dual
        combination = dual[:, 0] / chain.error
        if np.all(np.isfinite(combination)) and infeasibility_margin(problem, combination) > 0.0:
            return None, combination
        z = solution.variables[:, 0]
        x, delta, extra, end = wide.values(z)
        size = _ROOM * float(extra[0])
        # The point must be feasible by its unknowns, not by the residual of the rows.
        missing = np.abs(wide.times(z[:, None])).max()
        if size * (1.0 - missing) >= 1.0:
            return FeasiblePoint(problem.center + x / size, delta / size, end / size, stamp), None
    return None, None


class JointConsistency:
    """A feasible point of all rows, kept from window to window."""

    def __init__(self) -> None:
        self._point: FeasiblePoint | None = None
        self.searches = 0
        """Number of searches of all rows so far."""

    def check(self, window: Problem, rows: Rows, build_all: Callable[[], Problem]) -> Array | None:
        """Return a combination of all rows that proves them jointly infeasible, (R,); None if none was found.

        Args:
            window: The rows of the next window.
            rows: The same with their stamps.
            build_all: Builds the problem of all rows, the window's last.
        """
        start, stop = int(rows.start[0]), int(rows.stop[0])
        if self._point is not None:
            self._point = self._point.extend(window, start, stop)
        if self._point is not None:
            return None
        self.searches += 1
        self._point, combination = find_feasible_point(build_all(), stop)
        return combination


@dataclass(frozen=True)
class RowLabels:
    """Names of rows in alarms.

    Attributes:
        rows: The rows.
        joint_names: Names of the joints.
        origin: Stamp from which times are counted [ns].
    """

    rows: Rows
    joint_names: tuple[str, ...]
    origin: int

    def joint(self, row: int) -> str | None:
        """Return the joint of a row; None for compacted rows."""
        return None if self.rows.window[row] < 0 else self.joint_names[self.rows.joint[row]]

    def window(self, row: int) -> int | None:
        """Return the window of a row; None for compacted rows."""
        return None if self.rows.window[row] < 0 else int(self.rows.window[row])

    def place(self, row: int) -> str:
        """Describe joint, window and time of a row."""
        rows = self.rows
        start, stop = ((stamps[row] - self.origin) * 1e-9 for stamps in (rows.start, rows.stop))
        name = "earlier windows together"
        if rows.window[row] == CALIBRATED:
            return "the calibration of the arm"
        if rows.window[row] == TARED:
            return "the tare"
        if rows.window[row] >= 0:
            name = f"{self.joint(row)} in window {rows.window[row]}"
        return f"{name} ({start:.3f} to {stop:.3f} s)"


def describe_inconsistency(problem: Problem, labels: RowLabels, combination: Array | None = None) -> Alarm:
    """Name the rows that show an inconsistency most.

    Rows that are infeasible by themselves come first; if only several rows together are infeasible, the rows with the
    largest share in the combination (R,) that proves it; without one, the rows furthest from the best target in the
    box.
    """
    worst = find_inconsistent_rows(problem)
    code = AlarmCode.WINDOW_INCONSISTENT if worst.size else AlarmCode.JOINTLY_INCONSISTENT
    if not worst.size and combination is not None:
        return _describe_shares(labels, np.abs(combination) * problem.error)
    offset, allowed = problem.r, largest_residual(problem, problem.radius)
    if not worst.size:
        best = np.linalg.lstsq(problem.y / problem.error[:, None], problem.r / problem.error, rcond=None)[0]
        offset = problem.r - problem.y @ np.clip(best, -problem.radius, problem.radius)
        allowed = largest_residual(problem, np.zeros_like(problem.radius))
        worst = np.argsort(-np.abs(offset) / allowed)
    texts = []
    seconds = labels.rows.duration
    for row in worst[:_NAMED]:
        text = labels.place(row)
        if labels.window(row) is not None:
            text += f": mean torque off by {abs(offset[row]) / seconds[row]:.4g} Nm"
            text += f", {allowed[row] / seconds[row]:.4g} Nm can be explained"
        texts.append(text)
    first = int(worst[0])
    excess = float((np.abs(offset[first]) - allowed[first]) / seconds[first])
    return Alarm(code, "; ".join(texts), labels.joint(first), labels.window(first), excess)


def _describe_shares(labels: RowLabels, parts: Array) -> Alarm:
    """Name the rows whose error bounds carry a proof of infeasibility, by their parts (R,)."""
    order = np.argsort(-parts)
    largest = order[:_NAMED]
    shares = 100.0 * parts[largest] / max(float(parts.sum()), 1e-300)
    texts = [f"{labels.place(row)} with {share:.0f} %" for row, share in zip(largest, shares, strict=True)]
    rows = "windows"
    if np.any(parts[labels.rows.window == CALIBRATED] > 0.0):
        rows += " and the calibration of the arm"
    if np.any(parts[labels.rows.window == TARED] > 0.0):
        rows += " and the tare"
    text = f"the {rows} are jointly infeasible, the largest shares have " + "; ".join(texts)
    first = next((int(row) for row in order if labels.joint(row) is not None), int(order[0]))
    return Alarm(AlarmCode.JOINTLY_INCONSISTENT, text, labels.joint(first), labels.window(first))


def check_sensors(model: WindowModel, window: Window) -> Alarm | None:
    """Compare positions with the integral of the velocities over a window.

    Returns:
        An alarm if they do not belong together (a stuck encoder, wrong units, velocities of another joint).
    """
    block = window.block.slice(window.start, window.stop + 1)
    times, q, v = block.seconds, block.q, block.v
    steps = np.diff(times)
    travel = steps @ (0.5 * (v[1:] + v[:-1]))
    jitter = model.sensors.stamp_jitter
    long_steps = steps + 2.0 * jitter
    allowed = model.measured.position_resolution + long_steps.sum() * model.measured.velocity_error
    allowed = allowed + np.sum(long_steps**2) * model.acceleration / 4.0
    allowed = allowed + 2.0 * jitter * (np.max(np.abs(v), axis=0) + np.abs(np.diff(v, axis=0)).sum(axis=0)) + 1e-12
    excess = np.abs(q[-1] - q[0] - travel) - allowed
    if not np.any(excess > 0.0):
        return None
    joint = int(np.argmax(excess))
    name = model.joint_names[joint]
    text = (
        f"window {window.number}: positions and velocities of {name} disagree: it moved "
        f"{q[-1, joint] - q[0, joint]:.4g} rad, its velocities add up to {travel[joint]:.4g} rad, "
        f"{allowed[joint]:.2g} rad can be explained (stuck encoder, wrong units or joints mixed up)"
    )
    return Alarm(AlarmCode.SENSOR_MISMATCH, text, name, window.number, float(excess[joint]))


def with_causes(alarm: Alarm, subject: str, has_tare: bool = False) -> Alarm:
    """Add subject (``payload`` or ``parameters``) and possible causes to an alarm about an inconsistency."""
    verb = "is" if subject == "payload" else "are"
    causes = f"{_CAUSES}, {_EMPTY_HAND}" if has_tare else _CAUSES
    return replace(alarm, text=f"no {subject} {verb} consistent with all the data: {alarm.text}. {causes}.")
