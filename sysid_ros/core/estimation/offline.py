"""Estimation from recorded samples: the streaming estimator fed at once, and how well it explains the torques."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WindowResiduals:
    """Mean torques of W windows, measured and explained, and how far apart they are.

    Attributes:
        times: Middle of each window since the first sample, (W,) [s].
        measured: Measured mean torque, less what the nominal arm needs, (W, n) [Nm].
        explained: What the estimated payload adds, (W, n) [Nm]; NaN without an estimate.
        allowed: What errors and the uncertain arm can explain of the difference, (W, n) [Nm].
    """

    times: Array
    measured: Array
    explained: Array
    allowed: Array

    @property
    def rms(self) -> Array:
        """Root mean square of measured minus explained per joint, (n,) [Nm]."""
        return np.asarray(np.sqrt(np.mean((self.measured - self.explained) ** 2, axis=0)))


def estimate_from_samples(
    robot: RobotModel,
    blocks: Iterable[SampleBlock],
    settings: EstimatorSettings | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> tuple[ParameterEstimate, list[ParameterEstimate], WindowResiduals]:
    """Estimates a payload from recorded samples; the same numbers as the streaming estimator gives online.

    Args:
        robot: The arm and what is known of it and of the payload.
        blocks: The samples, in the order they were taken, in blocks of any length.
        settings: Method and assumptions.
        on_notice: Called with every notice (gaps, restarts, alarms).

    Returns:
        The final estimate, the estimates after each renewal of the bounds, and the residuals of the windows.

    Raises:
        InvalidSamples: The blocks have another number of joints than the robot.
    """
    history: list[ParameterEstimate] = []
    windows: list[Rows] = []
    origin: int | None = None
    estimator = StreamingEstimator(robot, settings, on_rows=windows.append, on_update=history.append)
    for block in blocks:
        if origin is None and len(block):
            origin = int(block.stamps[0])
        for notice in estimator.add(block):
            if on_notice:
                on_notice(notice)
    estimate = estimator.estimate()
    return estimate, history, _residuals(robot, windows, estimate, estimator.nuisance_radius, origin or 0)


def _residuals(
    robot: RobotModel, windows: list[Rows], estimate: ParameterEstimate, delta_radius: Array, origin: int
) -> WindowResiduals:
    if not windows:
        none = np.zeros((0, robot.n))
        return WindowResiduals(np.zeros(0), none, none, none)
    rows = Rows.stack(windows)
    seconds = rows.duration
    shape = (-1, robot.n)
    allowed = np.abs(rows.b) @ delta_radius + rows.error
    middle = (0.5 * ((rows.start - origin) + (rows.stop - origin)) * 1e-9).reshape(shape)[:, 0]
    return WindowResiduals(
        times=np.asarray(middle, dtype=np.float64),
        measured=(rows.u / seconds).reshape(shape),
        explained=(rows.y @ estimate.values / seconds).reshape(shape),
        allowed=(allowed / seconds).reshape(shape),
    )
