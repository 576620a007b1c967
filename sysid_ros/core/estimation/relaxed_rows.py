"""Rows whose errors are all independent, for hypotheses: small linear programs in place of large ones.

Shared errors count for each row separately, ``|r - y x - b delta| <= allowed``, so fewer data are infeasible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.windows.errors import SignIntegral, integrate_sign
from sysid_ros.core.estimation.windows.model import Window, WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import SampleStream
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

MAX_WINDOWS = 80
"""Windows that count, spread evenly over the recording; the others are left out."""
_CONE = 1e-9
"""Cone around gravity with which rows have columns for a tilt, but no noticeable radius [rad]."""


@dataclass(frozen=True)
class RelaxedRows:
    """Rows with independent errors, and the data that changed assumptions need.

    Attributes:
        robot: The arm.
        prior: Box of the target, (P,).
        shared: Number of nuisance parameters that all recordings share, the first; others are of one recording.
        y: Gains of the target in radii, (R, P).
        b: Gains of the nuisance parameters that have a radius, in radii, (R, m).
        r: Right-hand side, (R,) [Nms].
        allowed: Largest error, (R,) [Nms].
        joint: Joint of each row, (R,).
        torque: Integral of the measured torque, (R,) [Nms].
        sign: Integral of the sign of the velocity, (R,) [s].
        unsure: Time during which it is not known, (R,) [s].
        travel: Change of position, (R,) [rad].
        seconds: Duration, (R,) [s].
        tilt: Gains of gravity along two axes across it and along it with the target in the middle of its box, (R, 3),
            and of the target, (R, 3, C).
        tilted: The latter.
        spans: Start and stop, (R, 2) [s] since the first sample.
        lagged: Maps a lag [s] to the change of the torque integrals, (R,) [Nms], NaN beyond the recording.
        speed: Largest speed of each joint, (n,) [rad/s].
        before_solving: Called before every linear program; may raise to end a search.
    """

    robot: RobotModel
    prior: Box
    shared: int
    y: Array
    b: Array
    r: Array
    allowed: Array
    joint: NDArray[np.int64]
    torque: Array
    sign: Array
    unsure: Array
    travel: Array
    seconds: Array
    tilt: Array
    tilted: Array
    spans: Array
    lagged: Callable[[float], Array]
    speed: Array
    before_solving: Callable[[], None] = lambda: None

    @classmethod
    def collect(cls, robot: RobotModel, settings: EstimatorSettings, samples: SampleBlock) -> RelaxedRows | None:
        """Build the rows of windows spread over the samples; None without any."""
        settings = replace(settings, gravity_cone=max(settings.gravity_cone, _CONE))
        unknowns = describe_unknowns(robot, settings)
        model = WindowModel(robot, settings, unknowns)
        windows = _choose(SampleStream(robot, settings).add(samples)[0])
        if not windows:
            return None
        rows = Rows.stack([build_rows(model, window) for window in windows])
        prior = unknowns.prior
        problem = Problem.build(rows, prior.center, prior.radius, unknowns.radius, unknowns.end_error)
        n = robot.n
        signs = [_signs(model, window) for window in windows]
        travel = [_travel(window) for window in windows]
        first = unknowns.groups["gravity_direction"][0]
        is_open = problem.delta_radius > 0.0
        is_open[first : first + 3] &= settings.gravity_cone > _CONE
        origin = int(samples.stamps[0])
        spans = np.asarray(1e-9 * np.stack([rows.start - origin, rows.stop - origin], axis=1), dtype=np.float64)
        ends = np.abs(problem.ends).sum(axis=1) @ problem.end_radius
        return cls(
            robot=robot,
            prior=prior,
            shared=int(np.count_nonzero(is_open[: first + 3])),
            y=problem.y * problem.radius,
            b=(problem.b * problem.delta_radius)[:, is_open],
            r=problem.r,
            allowed=problem.error + ends,
            joint=rows.joint,
            torque=-rows.b[np.arange(len(rows)), 15 * n + rows.joint],
            sign=np.concatenate([one.value for one in signs]),
            unsure=np.concatenate([one.uncertain for one in signs]),
            travel=np.concatenate(travel),
            seconds=rows.duration,
            tilt=problem.b[:, first : first + 3],
            tilted=rows.tilt,
            spans=spans,
            lagged=_lagged_torque(robot, samples, spans, rows.joint),
            speed=np.max(np.abs(samples.v), axis=0),
        )

    @classmethod
    def join(cls, parts: Sequence[RelaxedRows]) -> RelaxedRows:
        """Join recordings of one arm, each with a target of its own."""
        if len(parts) == 1:
            return parts[0]
        first, count = parts[0], parts[0].shared
        names = ("r", "allowed", "joint", "torque", "sign", "unsure", "travel", "seconds", "tilt", "spans")
        stacked: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        tilted = [scipy.linalg.block_diag(*(part.tilted[:, axis] for part in parts)) for axis in range(3)]
        own = scipy.linalg.block_diag(*(part.b[:, count:] for part in parts))
        return replace(
            first,
            prior=Box(*(np.concatenate([getattr(part.prior, side) for part in parts]) for side in ("lower", "upper"))),
            y=scipy.linalg.block_diag(*(part.y for part in parts)),
            b=np.concatenate([np.concatenate([part.b[:, :count] for part in parts]), own], axis=1),
            tilted=np.stack(tilted, axis=1),
            lagged=lambda lag: np.concatenate([part.lagged(lag) for part in parts]),
            speed=np.max([part.speed for part in parts], axis=0),
            **stacked,
        )

    @property
    def windows(self) -> int:
        """Number of windows."""
        return int(len(self.r) // self.robot.n)

    def misfit(self, r: Array, keep: NDArray[np.bool_] | None = None) -> float:
        """Return the least scale of all errors with which rows ``r`` (R,), or those in ``keep``, are feasible."""
        return self.best(r, np.zeros((len(r), 0)), keep)[0]

    def best(self, r: Array, extra: Array, keep: NDArray[np.bool_] | None = None) -> tuple[float, Array]:
        """Return the least scale of all errors, and the unknowns without bounds with which it is reached.

        ``extra`` (R, k) has the gains of the unknowns without bounds; ``keep`` (R,) selects rows.
        """
        self.before_solving()
        rows = np.isfinite(r) if keep is None else keep & np.isfinite(r)
        if not rows.any():
            return np.inf, np.full(extra.shape[1], np.nan)
        size = self.allowed[rows]
        columns = np.concatenate([self.y, self.b, extra], axis=1)[rows] / size[:, None]
        right, count = r[rows] / size, columns.shape[1]
        inner = count - extra.shape[1]
        a = np.block([[columns, -np.ones((len(right), 1))], [-columns, -np.ones((len(right), 1))]])
        bounds = [(-1.0, 1.0)] * inner + [(None, None)] * extra.shape[1] + [(0.0, None)]
        found = linprog(
            np.append(np.zeros(count), 1.0), a, np.concatenate([right, -right]), bounds=bounds, method="highs"
        )
        if found.status != 0:
            return np.inf, np.full(extra.shape[1], np.nan)
        return float(found.x[-1]), np.asarray(found.x[inner:count])

    def least(self, change: Change, scale: float) -> tuple[Array, Array] | None:
        """Return the smallest change with which all rows are feasible, and the target; None if none is.

        Args:
            change: Gains and costs of a change.
            scale: Of all error bounds; 1, or less where errors that rows share show the inconsistency [-].
        """
        self.before_solving()
        rows = np.isfinite(change.r)
        size = self.allowed[rows]
        known = np.concatenate([self.y, self.b], axis=1)[rows] / size[:, None]
        gains, widens = change.gains[rows] / size[:, None], change.widens[rows] / size[:, None]
        right = change.r[rows] / size
        a = np.block([[known, gains - widens], [-known, -gains - widens]])
        limits = np.concatenate([scale + right, scale - right])
        cost = np.concatenate([np.zeros(known.shape[1]), change.cost])
        bounds = [(-1.0, 1.0)] * known.shape[1] + [(0.0, upper) for upper in change.upper]
        found = linprog(cost, a, limits, bounds=bounds, method="highs")
        if found.status != 0:
            return None
        return found.x[known.shape[1] :], self.prior.center + self.prior.radius * found.x[: self.y.shape[1]]


@dataclass(frozen=True)
class Change:
    """A change with k parts that are not negative.

    Attributes:
        r: Right-hand sides, (R,) [Nms].
        gains: Gains of the parts, (R, k).
        widens: By how much a part widens the error bounds, (R, k).
        cost: Costs, minimised, (k,).
        upper: Largest parts, (k,); infinite where there is no limit.
    """

    r: Array
    gains: Array
    widens: Array
    cost: Array
    upper: Array

    @classmethod
    def both_ways(cls, r: Array, gain: Array) -> Change:
        """Return a change of one size (R,) with either sign, as two parts."""
        gains = np.stack([gain, -gain], axis=1)
        return cls(r, gains, np.zeros_like(gains), np.ones(2), np.full(2, np.inf))


def join_blocks(blocks: Iterable[SampleBlock]) -> SampleBlock | None:
    """Join the samples since the clock was last set back; None without any."""
    kept: list[SampleBlock] = []
    for block in blocks:
        if not len(block):
            continue
        if kept and block.stamps[0] <= kept[-1].stamps[-1]:
            kept = []
        kept.append(block)
    return SampleBlock.concatenate(kept) if kept else None


def _choose(windows: Sequence[Window]) -> list[Window]:
    if len(windows) <= MAX_WINDOWS:
        return list(windows)
    return [windows[k] for k in np.unique(np.linspace(0, len(windows) - 1, MAX_WINDOWS).round().astype(int))]


def _signs(model: WindowModel, window: Window) -> SignIntegral:
    signals = window.signals(model)
    return integrate_sign(signals.v, signals.steps, model.sign_slack(signals))


def _travel(window: Window) -> Array:
    return np.asarray(window.block.q[window.stop] - window.block.q[window.start])


def _lagged_torque(
    robot: RobotModel, samples: SampleBlock, spans: Array, joint: NDArray[np.int64]
) -> Callable[[float], Array]:
    """Return how the integrals of torque over windows change when the torque is read later by a lag."""
    times = samples.seconds
    steps = np.diff(times)[:, None]
    held = samples.tau[1:] if robot.sensors.effort_is_held else 0.5 * (samples.tau[1:] + samples.tau[:-1])
    total = np.concatenate([np.zeros((1, robot.n)), np.cumsum(held * steps, axis=0)])

    def at(seconds: Array) -> Array:
        columns = np.stack(
            [np.interp(seconds, times, total[:, j], left=np.nan, right=np.nan) for j in range(robot.n)], 1
        )
        return np.asarray(columns[np.arange(len(joint)), joint])

    now = at(spans[:, 1]) - at(spans[:, 0])
    return lambda lag: at(spans[:, 1] + lag) - at(spans[:, 0] + lag) - now
