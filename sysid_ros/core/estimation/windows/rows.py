"""Rows of the linear system for the target: ``Y theta_e + B delta = u`` within an error bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, PAYLOAD, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns, shared_center
from sysid_ros.core.estimation.windows.errors import (
    DerivativeBounds,
    compute_errors,
    drift_error,
    integrate_sign,
    integrate_torque,
    position_integral,
    shared_gains,
    torque_change,
    velocity_integral,
)
from sysid_ros.core.estimation.windows.model import Window, WindowModel, WindowSignals
from sysid_ros.core.model.calibration import opened_settings
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel

Array = NDArray[np.float64]

COMPACTED = -1
"""Window number of compacted rows."""
CALIBRATED = -3
"""Window number of the rows of a calibration."""
TARED = -4
"""Window number of the rows of a tare."""
BOUNDS_ONLY = -2
"""Window number of compacted rows that repeat others for certain bounds; a point estimate leaves them out."""
_FIELDS = ("y", "b", "u", "errors", "ends", "tilt", "window", "joint", "start", "stop")


@dataclass(frozen=True)
class Rows:
    """R rows ``y theta_e + b delta = u + e`` with ``|e| <= errors.sum(axis=1)``; ``delta`` is shared by all rows.

    ``delta`` (M,), the nuisance parameters, collects everything that is unknown but the same in every row: the rest of
    the robot and its friction relative to the centre of their box, and, where asked for, torque lags and the direction
    of gravity.

    Shared errors are kept apart from the others: with ``theta_e`` known they act like
    ``sum_l (arm_l + target_l theta_e) (e_stop,l - e_start,l)``. ``target_l`` has C columns: ten if the target is one
    body, none if it is all of them; then ``arm_l`` is all bodies. The E = 5 n errors l are the velocity errors at the
    two ends of the window and the position errors there, which the window before and after share, the integrals of both
    over the window, which its rows share and which stand with its stop, and the integral of a torque that vibrates up
    to the two ends, again shared with the windows before and after; in units of the largest single error.

    Attributes:
        y: (R, P).
        b: (R, M).
        u: (R,) [Nms].
        errors: (R, K) [Nms], one column for each of ``settings.ERROR_TERMS``.
        ends: Gain of these errors at start and stop, (R, 2, E, C + 2): columns for the target, then centre and radius
            of the rest of the arm.
        tilt: Effect of another direction of gravity by the target: columns for unit gravity along three axes, (R, 3,
            C), or (R, 0, C) where the direction of gravity is known.
        window: Number of the window of each row, (R,); ``COMPACTED`` or ``BOUNDS_ONLY`` for compacted rows,
            ``CALIBRATED`` and ``TARED`` for rows of a calibration and of a tare.
        joint: Joint of each row, counted from 0, (R,); -1 for rows of no window.
        start: Start of the window, (R,) int64 [ns].
        stop: End of the window, (R,) int64 [ns].
    """

    y: Array
    b: Array
    u: Array
    errors: Array
    ends: Array
    tilt: Array
    window: NDArray[np.int64]
    joint: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.u.size)

    @property
    def error(self) -> Array:
        """Error bound of each row, (R,) [Nms]."""
        return np.asarray(self.errors.sum(axis=1))

    @property
    def duration(self) -> Array:
        """Duration of each row's window, (R,) [s]."""
        return np.asarray((self.stop - self.start) * 1e-9)

    def select(self, index: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Rows:
        """Select some of the rows."""
        return Rows(*(getattr(self, name)[index] for name in _FIELDS))

    @classmethod
    def stack(cls, parts: Sequence[Rows]) -> Rows:
        """Join the rows of some parts (one at least), in their order."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS))


def build_rows(model: WindowModel, window: Window, reference: int | None = None) -> Rows:
    """Build the rows of a window, one per joint.

    Args:
        model: Constants of the robot's windows.
        window: The window.
        reference: Stamp at which the torque offset is the one in ``delta``, from which it may have drifted [ns]; the
            start of the window by default.
    """
    signals = window.signals(model)
    n, lag = model.n, model.settings.torque_lag
    torque = integrate_torque(signals.torque_times, signals.tau, lag, signals.duration + lag, model.sensors)
    sign = integrate_sign(signals.v, signals.steps, model.sign_slack(signals))
    unknowns = model.unknowns
    target = unknowns.target
    derivatives = DerivativeBounds.of(model, signals)
    reference = signals.start_stamp if reference is None else reference
    age = 1e-9 * max(abs(signals.start_stamp - reference), abs(signals.stop_stamp - reference))
    errors = compute_errors(model, signals, derivatives, torque, sign)
    errors[:, ERROR_TERMS.index("torque_drift")] += drift_error(model, signals, age)
    known, radii = zip(
        velocity_integral(model, signals, sign.is_steady),
        position_integral(model, signals, torque, errors),
        strict=True,
    )
    b = np.zeros((n, unknowns.radius.size))
    # The known part of the mean errors is taken out.
    b[:, : INERTIAL * n] = signals.inertial + derivatives.mean_v @ known[0] + derivatives.mean_q @ known[1]
    friction = friction_columns(signals, sign.value)
    friction[:, np.isin(np.arange(FRICTION * n) % FRICTION, model.unseen_friction)] = 0.0
    b[:, INERTIAL * n : 14 * n] = friction
    b[:, 14 * n : 15 * n] = np.diag(-torque_change(model, signals))
    b[:, 15 * n : 16 * n] = np.diag(-torque.value)
    for axis, columns in enumerate(signals.tilted):
        b[:, 16 * n + axis] = columns @ unknowns.rest_center[: INERTIAL * n]
    u = torque.value - b[:, : 14 * n] @ unknowns.center
    y = b[:, target.columns].copy()
    if not target.is_added:
        b[:, target.columns] = 0.0
    errors[:, -1] += 1e-12 * (np.abs(b[:, : 14 * n]) @ np.abs(unknowns.center))
    stamps = (np.full(n, signals.start_stamp), np.full(n, signals.stop_stamp))
    coupled = target.columns[: target.coupled]
    tilt = np.stack([columns[:, coupled] for columns in signals.tilted], axis=1) if signals.tilted else None
    tilt = np.zeros((n, 0, coupled.size)) if tilt is None else tilt
    gains = shared_gains(model, derivatives, radii)
    return Rows(y, b, u, errors, gains, tilt, np.full(n, window.number), np.arange(n), *stamps)


def calibration_rows(robot: RobotModel, unknowns: Unknowns, settings: EstimatorSettings) -> Rows | None:
    """Return the calibration of the arm as rows of the nuisance parameters; None without information on them.

    A calibration is about the arm alone: it does not apply to a target that includes part of the arm, nor where the
    hand may hold something besides the target. An unknown offset on top of the arm's widens its rows, and so does a
    gripper that may have moved since.
    """
    known, target, n = robot.calibration, unknowns.target, robot.n
    if known is None or not target.is_added or (settings.payload_in_hand and settings.body != PAYLOAD):
        return None
    opened = opened_settings(known.record.openings)
    late = settings.torque_lag - opened.get("torque_lag", settings.torque_lag)
    if late > settings.torque_lag_tolerance or any(getattr(settings, name) < value for name, value in opened.items()):
        needed = " ".join(f"{name}={value:.4g}" for name, value in opened.items())
        raise ParameterOutOfRange(
            "settings for this calibration", "others", f"--set {needed.replace(' ', ' --set ')}: its recordings need it"
        )
    matrix, center = known.matrix, shared_center(unknowns, settings)
    moved, last = robot.gripper_state(settings.gripper).change, matrix[:, robot.inertial_slice(n)]
    offsets = matrix[:, INERTIAL * n + 3 : 14 * n : FRICTION]
    count, size = matrix.shape
    rounding = 1e-14 * (np.abs(matrix) @ (np.abs(center) + unknowns.radius))
    errors = np.zeros((count, len(ERROR_TERMS)))
    errors[:, ERROR_TERMS.index("calibration")] = 0.5 * (known.upper - known.lower) + np.abs(last) @ moved.radius
    errors[:, ERROR_TERMS.index("torque_drift")] = np.abs(offsets).sum(axis=1) * settings.torque_offset
    errors[:, ERROR_TERMS.index("rounding")] = rounding
    none = np.zeros(count, dtype=np.int64)
    return Rows(
        y=np.zeros((count, target.columns.size)),
        b=matrix,
        u=0.5 * (known.lower + known.upper) + last @ moved.center - matrix @ center,
        errors=errors,
        ends=np.zeros((count, 2, unknowns.end_error.size, target.coupled + 2)),
        tilt=np.zeros((count, 3 if settings.gravity_cone > 0.0 else 0, target.coupled)),
        window=none + CALIBRATED,
        joint=none - 1,
        start=none,
        stop=none,
    )


def friction_columns(signals: WindowSignals, sign_integral: Array) -> Array:
    """Return the columns of ``[F_c, F_v, I_a, beta]`` of each joint, (n, 4 n); all but ``F_c`` are exact integrals."""
    n = signals.q.shape[1]
    columns = np.zeros((n, n, FRICTION))
    joints = np.arange(n)
    columns[joints, joints, 0] = sign_integral
    columns[joints, joints, 1] = signals.q[-1] - signals.q[0]
    columns[joints, joints, 2] = signals.v[-1] - signals.v[0]
    columns[joints, joints, 3] = signals.duration
    return columns.reshape(n, FRICTION * n)
