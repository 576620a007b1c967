"""The error budget of the rows of a window: everything that makes the momentum equation inexact.

Each function bounds one source of error for every parameter in the box; docs/bounds.md has the derivations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.coulomb import SignIntegral
from sysid_ros.core.estimation.sensitivity import Sensitivity
from sysid_ros.core.estimation.settings import ERROR_TERMS
from sysid_ros.core.estimation.signals import WindowSignals
from sysid_ros.core.estimation.torque import TorqueIntegral, range_around, sample_torque
from sysid_ros.core.estimation.window_model import WindowModel
from sysid_ros.core.model.robot import FRICTION, INERTIAL

Array = NDArray[np.float64]

ROUNDING = 1e-12
"""Bound on the relative rounding error of a computed row: some thousand operations of 1.1e-16 each."""


def compute_errors(
    model: WindowModel, signals: WindowSignals, sensitivity: Sensitivity, torque: TorqueIntegral, sign: SignIntegral
) -> Array:
    """Error budget of the rows of a window, (n, K) [Nms], one column for each of ``ERROR_TERMS``.

    The velocity errors at the ends of the window are not in it, see :func:`velocity_gains`.

    Args:
        model: Constants of the robot's windows.
        signals: Signals of the window.
        sensitivity: Largest derivatives in the window.
        torque: Integral of the torque over the window.
        sign: Integral of the signs of the speeds over the window.
    """
    terms = {
        "torque_relative": torque.relative,
        "torque_absolute": torque.absolute,
        "torque_interpolation": torque.interpolation,
        "torque_lag": lag_error(model, signals),
        "encoder": encoder_error(model, sensitivity),
        "velocity": velocity_error(model, sensitivity),
        "jitter": jitter_error(model, signals, sensitivity, torque, sign),
        "quadrature": quadrature_error(model, signals, sensitivity, sign.is_steady),
        "coulomb": model.unknowns.coulomb_upper * sign.uncertain,
        "gravity": gravity_error(model, signals),
        "rounding": rounding_error(model, signals, sensitivity),
    }
    counted = [name in model.settings.error_terms for name in ERROR_TERMS]
    return np.stack([terms[name] for name in ERROR_TERMS], axis=1) * counted


def encoder_error(model: WindowModel, sensitivity: Sensitivity) -> Array:
    """Effect of position errors, (n,) [Nms]; viscous friction integrates to a difference of positions."""
    error = model.position_error
    return (sensitivity.momentum_q + sensitivity.force_q) @ error + 2.0 * model.unknowns.viscous_upper * error


def velocity_error(model: WindowModel, sensitivity: Sensitivity) -> Array:
    """Effect of velocity errors inside the window, (n,) [Nms]."""
    return sensitivity.force_v @ model.sensors.velocity_error


def velocity_gains(model: WindowModel, sensitivity: Sensitivity) -> Array:
    """Gain from the velocity errors at start and stop to each row, (n, 2, n, C + 2); see :class:`~.rows.Rows`."""
    unknowns, n = model.unknowns, model.n
    coupled = unknowns.target.columns[: unknowns.target.coupled]
    columns = sensitivity.momentum_v.transpose(1, 0, 3, 2)  # (row, end, joint, parameter)
    gains = np.empty((n, 2, n, coupled.size + 2))
    gains[..., : coupled.size] = columns[..., coupled]
    gains[..., -2] = columns @ unknowns.rest_center[: INERTIAL * n]
    gains[..., -1] = np.abs(columns) @ unknowns.rest_radius[: INERTIAL * n]
    armature = slice(INERTIAL * n + 2, None, FRICTION)
    joints = np.arange(n)
    gains[joints, :, joints, -2] += unknowns.rest_center[armature][:, None]
    gains[joints, :, joints, -1] += unknowns.rest_radius[armature][:, None]
    return gains * ("velocity" in model.settings.error_terms)


def quadrature_error(
    model: WindowModel, signals: WindowSignals, sensitivity: Sensitivity, is_steady: NDArray[np.bool_]
) -> Array:
    """Error of the quadrature for any motion with bounded acceleration, (n,) [Nms].

    Within a step the velocity leaves the straight line between its ends, by an area of ``change h^2 / 8`` where the
    acceleration changes by at most ``change``; it may jump at any time.
    """
    steps = signals.steps + 2.0 * model.sensors.stamp_jitter
    span = float(np.sum(steps))
    change = np.where(is_steady[:, None], model.acceleration_change, 2.0 * model.acceleration)
    mean_v = steps**2 @ change / 8.0 / span
    mean_q = np.sum(steps**3) * model.acceleration / 12.0 / span
    chord = np.sum(steps**3) / 12.0 * sensitivity.chord_curvature
    error = sensitivity.force_v @ mean_v + sensitivity.force_q @ mean_q + chord
    if model.settings.quadrature == "forward_euler":
        error = error + 0.5 * float(steps.max()) * sensitivity.force_variation
    return error


def jitter_error(
    model: WindowModel, signals: WindowSignals, sensitivity: Sensitivity, torque: TorqueIntegral, sign: SignIntegral
) -> Array:
    """Effect of wrong stamps on every integral, (n,) [Nms]."""
    unknowns = model.unknowns
    force = sensitivity.force_ends + 2.0 * sensitivity.force_variation
    friction = unknowns.coulomb_upper * sign.jitter_gain + 2.0 * unknowns.offset_upper
    return torque.jitter + model.sensors.stamp_jitter * (force + friction)


def lag_error(model: WindowModel, signals: WindowSignals) -> Array:
    """What is left of a wrong torque lag after its shared first-order effect, (n,) [Nms]."""
    tolerance, lag = model.settings.torque_lag_tolerance, model.settings.torque_lag
    total = np.zeros(model.n)
    if tolerance == 0.0:
        return total
    for time in (lag, signals.duration + lag):
        lower, upper = range_around(signals.torque_times, signals.tau, time, tolerance, model.sensors)
        value = sample_torque(signals.torque_times, signals.tau, time)
        total += tolerance * np.maximum(upper - value, value - lower)
    return total


def gravity_error(model: WindowModel, signals: WindowSignals) -> Array:
    """Uncertain gravity direction times uncertain parameters of the rest of the arm, (n,) [Nms]."""
    total, unknowns = np.zeros(model.n), model.unknowns
    for axis, columns in enumerate(signals.tilted):
        spread = np.abs(columns) @ unknowns.rest_radius[: INERTIAL * model.n]
        total += unknowns.radius[unknowns.groups["gravity_direction"][axis]] * spread
    return total


def rounding_error(model: WindowModel, signals: WindowSignals, sensitivity: Sensitivity) -> Array:
    """Rounding of the computed rows, (n,) [Nms]."""
    size = np.abs(model.center) + model.radius
    ends = [0, -1]
    momentum = np.abs(signals.derivatives.momentum[ends]).sum(axis=0) @ size
    force = np.abs(signals.derivatives.force[ends]).sum(axis=0) @ size + sensitivity.force_variation
    return ROUNDING * (momentum + signals.duration * (force + np.max(np.abs(signals.tau), axis=0)))
