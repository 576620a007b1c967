"""Tare: rows of a motion with the empty hand, kept for payloads that are identified later.

With nothing in the hand every row reads ``b delta = u + e``: it bounds the arm, its friction, gains and offsets, which
the rows of a payload share. Friction and offsets drift: the rows widen with the time since (:meth:`Tare.rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.bounds.consistency import check_sensors
from sysid_ros.core.estimation.bounds.state import combine
from sysid_ros.core.estimation.calibration import empty_hand, find_share, join_recordings
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, PAYLOAD, SHARED_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns, describe_unknowns, shared_center
from sysid_ros.core.estimation.windows.model import Window, WindowModel
from sysid_ros.core.estimation.windows.rows import TARED, Rows, build_rows, calibration_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import RowStream
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

LONGEST_TARE = 300.0
"""Of the samples, rests to plan in included [s]; they are kept until its end, some 200 kB a second."""
_MOST_WINDOWS = 20
"""Of a tare; in longer ones windows are longer. Bounds take time that grows with their rows."""
_LEAST_SECONDS = 2.0
"""Least motion: less does not determine friction and gains [s]."""
_DRIFT, _ROUNDING = ERROR_TERMS.index("torque_drift"), ERROR_TERMS.index("rounding")


@dataclass(frozen=True)
class Tare:
    """Rows of the arm with the empty hand.

    Attributes:
        rows: They hold for the arm as it was; one window after the other.
        wear: Largest sum of friction and offset in each row, (R,) [Nms].
        center: Origin of the shared unknowns of the rows, in absolute values, (M,).
        gripper: State of the gripper that was assumed.
        seconds: Duration of the windows [s].
        share: Share of the allowed errors that the samples use [-].
    """

    rows: Rows
    wear: Array
    center: Array
    gripper: str
    seconds: float
    share: float

    def __str__(self) -> str:
        """Describe it in a clause."""
        state = f", gripper {self.gripper}" if self.gripper else ""
        return f"tare of {self.seconds:.1f} s{state}, {100.0 * self.share:.0f} % of the allowed errors used"

    def rows_at(self, robot: RobotModel, unknowns: Unknowns, settings: EstimatorSettings, stamp_ns: int) -> Rows:
        """Return its rows for the shared unknowns at another time.

        Args:
            robot: The arm.
            unknowns: Shared unknowns of the rows that these are combined with.
            settings: Their settings; the state of the gripper may differ from the tare's.
            stamp_ns: The time [ns].
        """
        rows, last = self.rows, robot.inertial_slice(robot.n)
        now, then = (robot.gripper_state(name).change for name in (settings.gripper, self.gripper))
        moved, radius = now.center - then.center, now.radius + then.radius  # of the last body, since
        center = shared_center(unknowns, settings)
        age = 1e-9 * np.maximum(np.abs(rows.start - stamp_ns), np.abs(rows.stop - stamp_ns))
        errors = rows.errors.copy()
        errors[:, ERROR_TERMS.index("calibration")] += np.abs(rows.b[:, last]) @ radius
        offset = np.broadcast_to(robot.sensors.effort_drift, robot.n)[rows.joint] * rows.duration
        errors[:, _DRIFT] += age * (settings.tare_drift * self.wear + offset)
        errors[:, _ROUNDING] += 1e-14 * (np.abs(rows.b) @ (np.abs(center) + np.abs(self.center) + unknowns.radius))
        none = np.zeros(len(rows), dtype=np.int64)
        return replace(
            rows,
            u=rows.u + rows.b @ (self.center - center) + rows.b[:, last] @ moved,
            errors=errors,
            window=none + TARED,
        )


def known_rows(
    robot: RobotModel, unknowns: Unknowns, settings: EstimatorSettings, rows: Sequence[Rows], tare: Tare | None
) -> list[Rows]:
    """Return the rows of a calibration and of a tare that hold where these windows begin."""
    calibrated = calibration_rows(robot, unknowns, settings)
    result = [] if calibrated is None else [calibrated]
    if tare is not None and rows:
        result.append(tare.rows_at(robot, unknowns, settings, int(rows[0].start[0])))
    return result


def make_tare(robot: RobotModel, blocks: Sequence[SampleBlock], settings: EstimatorSettings) -> Tare:
    """Make a tare of samples with the empty hand.

    Args:
        robot: The arm.
        blocks: The samples, in the order they were taken.
        settings: Windows and assumptions of the estimator, and the state of the gripper.

    Raises:
        SysidError: The samples are too few, contradict the empty hand, or the settings are not about a payload.
    """
    if not {settings.body, settings.target, robot.payload_prior.target} == {PAYLOAD}:
        raise SysidError("a tare is for an estimator of the payload by itself, and a payload prior that is about it")
    settings = _with_few_windows(robot, blocks, settings)
    empty = replace(robot, payload_prior=empty_hand().prior)
    unknowns = describe_unknowns(empty, settings)
    stream = RowStream(empty, settings, unknowns)
    rows: list[Rows] = []
    wear: list[Array] = []
    moving = 0.0
    for block in blocks:
        for window in stream.add(block)[0]:
            if stream.is_redundant(window):
                continue
            alarm = check_sensors(stream.model, window)
            if alarm is not None:
                raise SysidError(f"{alarm}")
            rows.append(build_rows(stream.model, window))  # with the offset of its own time: drift is added later
            wear.append(_wear(unknowns, window, stream.model))
            moving += 0.0 if stream.is_at_rest(window) else float(rows[-1].duration[0])
    if moving < _LEAST_SECONDS:
        why = "" if rows else f" ({stream.describe_shortfall('the arm')})"
        raise SysidError(f"the arm moved for {moving:.1f} s; a tare takes {_LEAST_SECONDS:g} s at least{why}")
    stacked = Rows.stack(rows)
    joint = join_recordings([(stacked, unknowns, empty.payload_prior.box)], np.zeros(robot.n))
    share = find_share(joint)
    if share > 1.0:
        raise SysidError(
            f"the samples use {100.0 * share:.0f} % of the errors that are allowed with an empty hand: something was in"
            " the hand or touched the arm, or the robot file is of another arm; empty the hand and take the tare again"
        )
    none, last = np.zeros(unknowns.nominal.size), slice((len(SHARED_TERMS) - 1) * robot.n, None)
    # Of the errors that windows share, only the torque integral's stay shared.
    own_error, ends = unknowns.end_error.copy(), np.zeros_like(stacked.ends)
    own_error[last], ends[:, :, last, -2] = 0.0, stacked.ends[:, :, last, -2]
    own = combine(stacked, Problem.build(stacked, none, none, unknowns.radius, own_error), np.eye(len(stacked)))
    kept = replace(
        own, y=np.zeros_like(own.y), tilt=np.zeros_like(own.tilt), ends=ends, joint=stacked.joint,
        start=stacked.start, stop=stacked.stop,
    )  # fmt: skip
    center, gripper = shared_center(unknowns, settings), settings.gripper
    return Tare(kept, np.concatenate(wear), center, gripper, float(stacked.duration[:: robot.n].sum()), share)


def _with_few_windows(
    robot: RobotModel, blocks: Sequence[SampleBlock], settings: EstimatorSettings
) -> EstimatorSettings:
    """Return settings with windows longer by a factor, so that there are not too many."""
    own = max(settings.window_duration, robot.sensors.averaging_time)
    slow = robot.sensors.velocity_error + settings.stiction_speed
    moving = sum(
        float(block.seconds[-1] - block.seconds[0]) for block in blocks if len(block) and np.any(np.abs(block.v) > slow)
    )
    return replace(settings, window_duration=max(1.0, np.ceil(moving / own / _MOST_WINDOWS)) * own)


def _wear(unknowns: Unknowns, window: Window, model: WindowModel) -> Array:
    """Bound the sum of friction and offset of each joint over a window, (n,) [Nms]."""
    block = window.block.slice(window.start, window.stop + 1)
    steps = np.diff(block.seconds) + 2.0 * model.sensors.stamp_jitter
    speed = np.maximum(np.abs(block.v[1:]), np.abs(block.v[:-1])) + model.sensors.velocity_error
    travel = steps @ (speed + 0.5 * steps[:, None] * model.acceleration)
    lasting = unknowns.coulomb_upper + unknowns.offset_upper
    return np.asarray(lasting * steps.sum() + unknowns.viscous_upper * travel)
