"""How well the windows of the estimator agree with a payload: which joints and windows contradict the assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.consistency import row_allowance
from sysid_ros.core.estimation.problem import Problem
from sysid_ros.core.estimation.rows import Rows
from sysid_ros.core.estimation.samples import SampleBlock
from sysid_ros.core.estimation.settings import EstimatorSettings
from sysid_ros.core.estimation.stream import SampleStream
from sysid_ros.core.estimation.unknowns import describe_unknowns
from sysid_ros.core.estimation.window_model import WindowModel
from sysid_ros.core.estimation.windows import build_rows
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WindowCheck:
    """Mean torques of W windows beside what one payload explains of them.

    Attributes:
        times: Middle of each window since the first sample, (W,) [s].
        residual: Measured mean torque less what the nominal arm and the payload explain, (W, n) [Nm].
        allowed: What the errors of the sensors and the uncertainty of the arm may cause of it, (W, n) [Nm].
        payload: The payload, (10,), in the form of the estimate.
        is_estimate: Whether it is the estimate; otherwise the least-squares fit to all windows, for diagnosis only.
    """

    times: Array
    residual: Array
    allowed: Array
    payload: Array
    is_estimate: bool

    def contradictions(self, names: Sequence[str]) -> list[str]:
        """A sentence for every joint with windows whose residual nothing allowed explains, the worst joint first."""
        excess = np.abs(self.residual) - self.allowed
        order = np.argsort(-excess.max(axis=0, initial=-np.inf))
        sentences = []
        for joint in order:
            bad = np.flatnonzero(excess[:, joint] > 0.0)
            if bad.size:
                worst = bad[np.argmax(excess[bad, joint])]
                sentences.append(
                    f"{names[joint]}: {bad.size} of {len(self.times)} windows; worst at {self.times[worst]:.2f} s, "
                    f"{self.residual[worst, joint]:+.3f} Nm where {self.allowed[worst, joint]:.3f} Nm are allowed"
                )
        return sentences


def collect_rows(robot: RobotModel, settings: EstimatorSettings, blocks: Iterable[SampleBlock]) -> list[Rows]:
    """Rows of all windows, those too at which an estimator would have raised the alarm."""
    stream, model = SampleStream(robot, settings), WindowModel(robot, settings, describe_unknowns(robot, settings))
    rows = []
    for block in blocks:
        for window in stream.add(block)[0]:
            rows.append(build_rows(model, window.block, window.start, window.stop, window.number))
    return rows


def check_windows(
    robot: RobotModel, settings: EstimatorSettings, rows: Sequence[Rows], estimate: Array | None, origin_ns: int
) -> WindowCheck | None:
    """Compares the windows with a payload.

    Args:
        robot: The arm.
        settings: Those the rows were made with.
        rows: Rows of the windows.
        estimate: Point estimate, (10,); None takes the least-squares fit to all rows, for diagnosis.
        origin_ns: Stamp of the first sample [ns].

    Returns:
        The comparison, None without windows.
    """
    if not rows:
        return None
    stacked = Rows.stack(rows)
    payload = _least_squares(stacked) if estimate is None else np.asarray(estimate, dtype=float)
    unknowns = describe_unknowns(robot, settings)
    velocity_error = robot.sensors.velocity_error * ("velocity" in settings.error_terms)
    problem = Problem.build(stacked, payload, np.zeros(10), unknowns.radius, velocity_error)
    middle = 0.5e-9 * ((stacked.start - origin_ns) + (stacked.stop - origin_ns))
    return WindowCheck(
        times=middle.reshape(-1, robot.n)[:, 0],
        residual=(problem.r / stacked.duration).reshape(-1, robot.n),
        allowed=(row_allowance(problem, np.zeros(10)) / stacked.duration).reshape(-1, robot.n),
        payload=payload,
        is_estimate=estimate is not None,
    )


def _least_squares(rows: Rows) -> Array:
    """The target that fits all rows best, each weighted by its error, (10,); no body need have these parameters."""
    weights = 1.0 / np.maximum(rows.error, 1e-12)
    return np.linalg.lstsq(weights[:, None] * rows.y, weights * rows.u, rcond=None)[0]
