"""Disturbances of the error dynamics: the smooth model error and the residual disturbance (step 1 of the proof).

The smooth model error ``M^-1 Y(q_d, v_d, v_d, a_d) (theta - theta_0)`` is a function of time and linear in the unknown
parameters, so its rate is bounded too, and the integral action suppresses it. The residual disturbance is bounded in
magnitude only: friction near rest, and the effects of the errors themselves, of measuring, delay and sampling. Norms
are defined in :mod:`model_terms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound.between import ModelRates, MotionRates
from sysid_ros.core.tracking_bound.inertia_columns import largest_eigenvalue
from sysid_ros.core.tracking_bound.model_terms import ModelTerms
from sysid_ros.core.tracking_bound.motion import MotionSamples, larger_neighbour
from sysid_ros.core.tracking_bound.uncertainty import InertialUncertainty

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Signal:
    """Bounds of a vector signal, sample by sample: the magnitude of each entry, (N, n), and the norm, (N,)."""

    entries: Array
    norm: Array


@dataclass(frozen=True)
class SmoothDisturbance:
    """Bounds of the smooth model error between nodes: a polygon, and the difference from it.

    Attributes:
        size: Magnitude of the polygon, at its N nodes [rad/s^2].
        rate: Its rate, over the intervals; the norm uses the mean of the inertias at both ends [rad/s^3].
        missed: Torque by which the model error differs from the polygon, in the intervals, (N - 1, n) [Nm].
    """

    size: Signal
    rate: Signal
    missed: Array


@dataclass(frozen=True)
class ControlledArm:
    """An arm under the robust controller.

    Attributes:
        robot: The arm.
        model: Nominal parameters of the controller, and boxes that contain the true ones.
        settings: Gains and timing.
    """

    robot: RobotModel
    model: ControlModel
    settings: RobustSettings


def compute_smooth_disturbance(
    arm: ControlledArm,
    regressor: TorqueRegressor,
    uncertainty: InertialUncertainty,
    samples: MotionSamples,
    nominal: tuple[Array, ModelRates],
) -> SmoothDisturbance:
    """Bound the smooth model error over all parameters in the boxes.

    It is linear in them, so the vertices and the radii of the boxes give its largest entries exactly.

    Args:
        arm: The arm, with the boxes of its friction and the controller's friction compensation.
        regressor: Torque of the arm, motor side.
        uncertainty: Deviation of the true inertial parameters from the nominal ones.
        samples: The motion, N nodes.
        nominal: Nominal inertia at the nodes, (N, n, n), and bounds of the rates of the model in the intervals.
    """
    n, model, settings, (inertia, rates) = samples.q.shape[1], arm.model, arm.settings, nominal
    split = INERTIAL * n
    lower, upper = (bound[split:] - model.theta[split:] for bound in (model.theta_box.lower, model.theta_box.upper))
    friction, friction_radius = 0.5 * (lower + upper), np.nextafter(0.5 * (upper - lower), np.inf)
    radius = np.concatenate([uncertainty.spread[:split], friction_radius])

    def bound(center: Array, values: Array, metric: Array) -> Signal:
        vertices, last, width = uncertainty.vertices, values[..., uncertainty.last], np.abs(values) @ radius
        norm, entries = vertices.largest_vectors(center, last, metric)
        norm += np.sqrt(np.einsum("ti,tij,tj->t", width, np.abs(metric), width, optimize=True))
        return Signal(entries + width, norm)

    share = settings.friction_share(samples.v)
    torques = regressor.evaluate(samples.q, samples.v, samples.a, direction=share)
    values = np.asarray(np.linalg.solve(inertia, torques), dtype=np.float64)
    center = values[..., :split] @ uncertainty.center[:split] + values[..., split:] @ friction
    size = bound(center, values, inertia)
    rate = bound(samples.slopes(center), samples.slopes(values), 0.5 * (inertia[1:] + inertia[:-1]))
    most = np.maximum(np.abs(lower), np.abs(upper)).reshape(n, FRICTION)
    missed = rates.missed_torque(larger_neighbour(size.entries), rate.entries) + _missed_friction(
        most, settings, samples, rates.curvature
    )
    return SmoothDisturbance(size, rate, missed)


def _missed_friction(friction: Array, settings: RobustSettings, samples: MotionSamples, rates: MotionRates) -> Array:
    """Bound the difference of friction errors of at most (n, 4) from straight lines between the nodes, (N - 1, n)."""
    sag, slope = samples.step**2 / 8.0, 2.0 / settings.friction_speed
    speeds = speed_range(samples.v, sag * rates.jerk)
    # The ramp bends where the speed passes half of its end and its end; otherwise it is a straight line.
    bends = np.zeros(speeds[0].shape, dtype=bool)
    for bend in (0.5 * settings.friction_speed, settings.friction_speed):
        bends |= (speeds[0] <= bend) & (bend <= speeds[1])
    ramp = slope * np.where(bends, 0.5 * samples.step * rates.a, sag * rates.jerk)
    missed: Array = friction[:, 0] * np.minimum(ramp, 2.0) + friction[:, 1] * sag * rates.jerk
    return missed


def speed_range(v_d: Array, sag: Array) -> tuple[Array, Array]:
    """Bound the smallest and largest speeds in the intervals between nodes, (N - 1, n) each [rad/s].

    ``v_d`` is at the nodes, (N, n) [rad/s]; ``sag`` is its largest difference from straight lines, (N - 1, n) [rad/s].
    """
    speed = np.abs(v_d)
    turns = v_d[:-1] * v_d[1:] <= 0.0
    slowest = np.where(turns, 0.0, np.maximum(np.minimum(speed[:-1], speed[1:]) - sag, 0.0))
    return slowest, larger_neighbour(speed) + sag


def bound_friction(
    model: ControlModel, settings: RobustSettings, speeds: tuple[Array, Array], velocity: Array
) -> Array:
    """Bound the Coulomb friction that is not compensated, (N, n) [Nm].

    Where the desired speed exceeds the velocity error, the true velocity has its sign, and only the share that the ramp
    holds back is missing; elsewhere friction may have either sign, or any value in between at rest.

    Args:
        model: Boxes of the friction.
        settings: Friction compensation of the controller.
        speeds: Smallest and largest desired speeds in the intervals, (N, n) each [rad/s].
        velocity: Bound of the velocity error in the intervals, (N, n) [rad/s].
    """
    slowest, fastest = speeds
    missing = np.where(
        slowest > velocity,
        1.0 - settings.friction_share(slowest),
        1.0 + settings.friction_share(np.minimum(fastest, velocity)),
    )
    return model.friction_upper()[:, 0] * missing


def bound_torques(inverse: Array, torques: Array) -> Signal:
    """Bound ``M^-1 h`` for every torque ``|h| <= torques``, (N, n) [Nm]; ``inverse`` is ``M^-1``, (N, n, n)."""
    return Signal((np.abs(inverse) @ torques[..., None])[..., 0], largest_norm(inverse, torques))


def largest_norm(metric: Array, sizes: Array) -> Array:
    """Compute the largest ``(x^T G x)^1/2`` for ``|x| <= sizes``, (N, n), with a positive definite G (N, n, n), (N,).

    A corner attains it: ``sum_ij s_i s_j x_i x_j G_ij`` for the signs s of its entries.
    """
    n = sizes.shape[1]
    rows, columns = np.triu_indices(n)
    terms = sizes[:, rows] * sizes[:, columns] * metric[:, rows, columns] * np.where(rows == columns, 1.0, 2.0)
    signs = np.array(list(product((1.0,), *((1.0, -1.0),) * (n - 1))))
    norm: Array = np.sqrt(np.maximum((terms @ (signs[:, rows] * signs[:, columns]).T).max(axis=1), 0.0))
    return norm


@dataclass(frozen=True)
class ResidualDisturbance:
    """Bound of the residual disturbance without Coulomb friction, in S intervals of a motion.

    Its norm is at most ``constant + (position + position_velocity |de| + position_acceleration |dde|) |e| +
    (velocity + velocity_squared |de|) |de| + acceleration |dde| + (feedback + feedback_velocity |de|) |f|``, each
    factor (S,). The table in docs/theory/tracking_bound.md, "Error dynamics", has the terms one by one.
    """

    constant: Array
    position: Array
    velocity: Array
    velocity_squared: Array
    position_velocity: Array
    position_acceleration: Array
    acceleration: Array
    feedback: Array
    feedback_velocity: Array

    def evaluate(self, position: Array, velocity: Array, acceleration: Array, feedback: Array) -> Array:
        """Return the bound for norms of the errors and of the feedback, (S,) each."""
        return (
            self.constant
            + (self.position + self.position_velocity * velocity + self.position_acceleration * acceleration) * position
            + (self.velocity + self.velocity_squared * velocity) * velocity
            + self.acceleration * acceleration
            + (self.feedback + self.feedback_velocity * velocity) * feedback
        )


def compute_residual(arm: ControlledArm, terms: ModelTerms, inverses: Array, rates: MotionRates) -> ResidualDisturbance:
    """Compute the factors in S intervals.

    Args:
        arm: The arm, with its sensors, under its controller.
        terms: Terms in the intervals.
        inverses: Inverse inertias of which a convex combination bounds the one in the interval, (K, S, n, n).
        rates: Largest rates of the motion there; the jerk covers the age of a held measurement.
    """
    robot, model, settings, v, a = arm.robot, arm.model, arm.settings, rates.v, rates.a
    k, age = settings.position_gain, settings.period + settings.delay

    def norm(values: Array) -> Array:
        size = np.broadcast_to(np.abs(values), v.shape)
        norms: Array = np.sqrt(np.einsum("si,sij,sj->s", size, np.abs(terms.inertia), size))
        return norms

    def damping(values: Array) -> Array:
        root = np.sqrt(values)
        largest: Array = largest_eigenvalue(root[:, None] * inverses * root).max(axis=0)
        return largest

    coulomb, viscous = np.abs(model.friction[:, 0]), np.abs(model.friction[:, 1])
    viscous_radius = robot.friction(np.maximum(*(np.abs(bound) for bound in model.deviation)))[:, 1]
    error_q, error_v = norm(0.5 * robot.sensors.position_resolution), norm(robot.sensors.velocity_error)
    stale_v = error_v + age * norm(a)
    late_friction = age * a * (2.0 * coulomb / settings.friction_speed + viscous)
    late_friction = late_friction + viscous * robot.sensors.velocity_error
    late_torque = np.max([bound_torques(one, late_friction).norm for one in inverses], axis=0)
    stale_reference = age * norm(a) + k * error_q  # of v_d + K e
    return ResidualDisturbance(
        constant=terms.torque_slope * error_q
        + age * terms.torque_rate
        + terms.coriolis_rate * (stale_v + stale_reference)
        + age * norm(rates.jerk)
        + late_torque,
        position=terms.model_slope + k * (terms.coriolis_rate + terms.coriolis_slope * stale_v),
        velocity=terms.torque_slope * age
        + terms.drag_rate
        + damping(viscous_radius)
        + terms.coriolis_rate * k * age
        + terms.coriolis_slope * stale_reference,
        velocity_squared=terms.drag_slope + terms.coriolis_slope * k * age,
        position_velocity=k * terms.coriolis_slope,
        position_acceleration=k * terms.coriolis_slope * age,
        acceleration=age * (terms.coriolis_rate + damping(viscous)),
        feedback=terms.inertia_slope * error_q + age * terms.inertia_rate,
        feedback_velocity=terms.inertia_slope * age,
    )
