"""One momentum window: measured signals to rows ``Y theta_e + B delta = u`` with their error budget.

``(W_m(stop) - W_m(start) - int W_c dt) theta = int tau dt`` (SAFE-ID (13)), split into the target and the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.budget import compute_errors, velocity_gains
from sysid_ros.core.estimation.coulomb import integrate_sign
from sysid_ros.core.estimation.rows import Rows
from sysid_ros.core.estimation.samples import SampleBlock
from sysid_ros.core.estimation.sensitivity import Sensitivity
from sysid_ros.core.estimation.signals import WindowSignals
from sysid_ros.core.estimation.torque import integrate_torque, sample_torque
from sysid_ros.core.estimation.window_model import WindowModel
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning

Array = NDArray[np.float64]


def build_rows(model: WindowModel, block: SampleBlock, start: int, stop: int, number: int) -> Rows:
    """Rows of the window from sample ``start`` to sample ``stop``, one per joint.

    Args:
        model: Constants of the robot's windows.
        block: Contiguous samples; where the torque lags it goes on behind ``stop`` for as long as the lag.
        start: First sample of the window.
        stop: Last sample of the window.
        number: Number of the window.
    """
    signals = WindowSignals.of(model, block, start, stop)
    n, lag = model.n, model.settings.torque_lag
    torque = integrate_torque(signals.torque_times, signals.tau, lag, signals.duration + lag, model.sensors)
    slack = signals.velocity_drift + model.settings.stiction_speed
    sign = integrate_sign(signals.v, signals.steps, slack)
    unknowns = model.unknowns
    target = unknowns.target
    b = np.zeros((n, unknowns.radius.size))
    b[:, : INERTIAL * n] = signals.inertial
    friction = friction_columns(signals, sign.value)
    if model.sensors.effort_meaning is EffortMeaning.LINK_SIDE:
        friction[:, np.arange(FRICTION * n) % FRICTION < 3] = 0.0  # only the zero of the sensor is left
    b[:, INERTIAL * n : 14 * n] = friction
    at_start = sample_torque(signals.torque_times, signals.tau, lag)
    at_stop = sample_torque(signals.torque_times, signals.tau, signals.duration + lag)
    b[:, 14 * n : 15 * n] = np.diag(at_start - at_stop)
    for axis, columns in enumerate(signals.tilted):
        b[:, 15 * n + axis] = columns @ unknowns.rest_center[: INERTIAL * n]
    u = torque.value - b[:, : 14 * n] @ unknowns.center
    y = b[:, target.columns].copy()
    if not target.is_added:
        b[:, target.columns] = 0.0
    sensitivity = Sensitivity.of(model, signals)
    errors = compute_errors(model, signals, sensitivity, torque, sign)
    errors[:, -1] += 1e-12 * (np.abs(b[:, : 14 * n]) @ np.abs(unknowns.center))
    stamps = (np.full(n, signals.start_stamp), np.full(n, signals.stop_stamp))
    coupled = target.columns[: target.coupled]
    tilt = np.stack([columns[:, coupled] for columns in signals.tilted], axis=1) if signals.tilted else None
    tilt = np.zeros((n, 0, coupled.size)) if tilt is None else tilt
    gains = velocity_gains(model, sensitivity)
    return Rows(y, b, u, errors, gains, tilt, np.full(n, number), np.arange(n), *stamps)


def friction_columns(signals: WindowSignals, sign_integral: Array) -> Array:
    """Columns of ``[F_c, F_v, I_a, beta]`` of each joint, (n, 4 n); all but the first are exact integrals."""
    n = signals.q.shape[1]
    columns = np.zeros((n, n, FRICTION))
    joints = np.arange(n)
    columns[joints, joints, 0] = sign_integral
    columns[joints, joints, 1] = signals.q[-1] - signals.q[0]
    columns[joints, joints, 2] = signals.v[-1] - signals.v[0]
    columns[joints, joints, 3] = signals.duration
    return columns.reshape(n, FRICTION * n)
