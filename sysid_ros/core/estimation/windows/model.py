"""Basis of windows: constants of a robot (regressors, error bounds, curvature), and the signals of one window.

The bounds on second derivatives of momentum and force hold for every parameter in a box and every posture.

With ``u_j(x)`` the velocity of a point x per unit speed of joint j, ``H_jk`` is the integral of ``u_j . u_k`` over the
mass. Turning joint l maps ``u_j`` to ``z x u_max(l, j)`` with a unit vector z, so every derivative of ``u_j`` is again
affine in x, with a lever no longer than joint ``max(l, m, .., j)`` has, and a table of products of levers bounds all
derivatives. docs/theory/bounds.md gives the proof. These bounds enter only remainders, so that it does not matter if
they are several times too large.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns, unseen_friction
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import EffortMeaning, PositionSide, RobotModel
from sysid_ros.core.regressors.momentum import MomentumRegressor, RegressorDerivatives

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SecondDerivatives:
    """Bounds on the second derivatives of n components; the axes are component, first and second joint.

    Attributes:
        qq: Twice by positions, (n, n, n).
        qv: By a position (second axis) and a velocity (third axis), (n, n, n).
        vv: Twice by velocities, (n, n, n).
    """

    qq: Array
    qv: Array
    vv: Array


class CurvatureBounds:
    """Bounds on second derivatives of ``p = W_m theta`` and ``c = W_c theta`` without friction and armature.

    Args:
        model: Serial arm with revolute joints.
        inertial: Box of the ten inertial parameters of each body, payload included, (10 n,).
        gravity: Largest magnitude of gravity [m/s^2].

    Raises:
        ModelError: The arm is not a chain of revolute joints.
    """

    def __init__(self, model: pin.Model, inertial: Box, gravity: float):
        n = model.nv
        _require_revolute_chain(model)
        lengths = np.array([np.linalg.norm(model.jointPlacements[i + 1].translation) for i in range(n)])
        reach = np.cumsum(lengths)
        lever = np.maximum(reach[None, :] - reach[:, None], 0.0) * (1.0 + 1e-12)
        mass, moment, spread = _body_moments(inertial, n)
        later = np.triu(np.ones((n, n)))  # (joint, body): body moves with joint
        product = mass * lever[:, None] * lever[None] + moment * (lever[:, None] + lever[None]) + spread
        table = np.sum(later[:, None] * later[None] * product, axis=2)
        index = np.arange(n)
        self.first = _sum_over_splits(table, index, turned=1)
        """Bound of ``dH_jk / dq_l`` in any posture, (l, j, k)."""
        self.second = _sum_over_splits(table, index, turned=2)
        """The same for second derivatives, (l, m, j, k)."""
        self._third = _sum_over_splits(table, index, turned=3)
        self.first_moment = np.sum(later * (mass * lever + moment), axis=1)
        """Bound on the first moment of everything beyond each joint, (n,) [kg m]."""
        largest = np.maximum(np.maximum(index[:, None, None], index[None, :, None]), index)
        self._gravity = gravity * self.first_moment[largest]

    def momentum(self, speed: Array, first: Array) -> SecondDerivatives:
        """Return bounds for p where no joint is faster than ``speed``, (n,) [rad/s].

        ``first`` is :attr:`first`, or a narrower bound for the postures that count.
        """
        qq = np.einsum("lmik,k->ilm", self.second, speed)
        return SecondDerivatives(qq, first.transpose(1, 0, 2), np.zeros_like(qq))

    def force(self, speed: Array, first: Array) -> SecondDerivatives:
        """Return bounds for c; see :meth:`momentum`."""
        qq = 0.5 * np.einsum("ilmjk,j,k->ilm", self._third, speed, speed) + self._gravity
        return SecondDerivatives(qq, np.einsum("ilmk,k->ilm", self.second, speed), first)


def _body_moments(inertial: Box, n: int) -> tuple[Array, Array, Array]:
    """Return the largest |mass|, |first moment| and nuclear norm of the second moment of each body, each (n,)."""
    absolute = np.maximum(np.abs(inertial.lower), np.abs(inertial.upper)).reshape(n, 10)
    low, high = inertial.lower.reshape(n, 10), inertial.upper.reshape(n, 10)
    squares = 2.0 * np.sum(absolute[:, [5, 7, 8]] ** 2, axis=1)
    for plus, other, minus in ((6, 9, 4), (4, 9, 6), (4, 6, 9)):
        top = high[:, plus] + high[:, other] - low[:, minus]
        bottom = low[:, plus] + low[:, other] - high[:, minus]
        squares = squares + (0.5 * np.maximum(np.abs(top), np.abs(bottom))) ** 2
    return absolute[:, 0], np.linalg.norm(absolute[:, 1:4], axis=1), np.sqrt(3.0 * squares)


def _sum_over_splits(table: Array, index: NDArray[np.intp], turned: int) -> Array:
    """Bound the derivative of ``H_jk`` by ``turned`` joints; axes (turned joints.., j, k)."""
    axes = np.meshgrid(*[index] * (turned + 2), indexing="ij")
    *joints, left, right = axes
    total = np.zeros(left.shape)
    for split in range(2**turned):
        a, b = left, right
        for bit, joint in enumerate(joints):
            if split >> bit & 1:
                a = np.maximum(a, joint)
            else:
                b = np.maximum(b, joint)
        total += table[a, b]
    # Turning a joint before both j and k turns everything H_jk depends on: it does not change.
    moves = np.min(joints, axis=0) > np.minimum(left, right)
    return np.asarray(total * moves)


def _require_revolute_chain(model: pin.Model) -> None:
    for i in range(1, model.njoints):
        if model.parents[i] != i - 1 or not model.joints[i].shortname().startswith("JointModelR"):
            raise ModelError(
                f"joint '{model.names[i]}' ({model.joints[i].shortname()}) is not the next revolute joint of a chain; "
                "the error bounds of the estimator hold for serial arms with revolute joints only"
            )


class WindowModel:
    """Constants of the momentum windows of one robot.

    Args:
        robot: The arm, its parameter box and the guarantees of its sensors.
        settings: Quadrature, error terms and assumptions.
        unknowns: Split of the parameters (``describe_unknowns`` of the same robot and settings).
    """

    def __init__(self, robot: RobotModel, settings: EstimatorSettings, unknowns: Unknowns):
        self.n = robot.n
        self.settings = settings
        self.sensors, self.measured = robot.link_sensors, robot.sensors
        """Guarantees about the links, and about the measured side of the gears, which may be the motors."""
        self.joint_names = robot.joint_names
        self.unseen_friction = unseen_friction(robot, settings)
        """Which of ``[F_c, F_v, I_a, beta]`` are not in the efforts."""
        self.position_error = 0.5 * self.sensors.position_resolution
        """Largest position error, (n,) [rad]."""
        self.elastic_momentum, self.elastic_turn, self.friction_rate = _elastic_terms(robot, unknowns)
        """Bounds of what elastic gears add to a row, (n,) [Nms], to it per deflection, (n,) [Nms/rad], and to the speed
        at which friction acts over the measured one, (n,) [rad/s]."""
        self.gears = Gears.of(robot)
        """Elastic gears behind which positions are measured; None without."""
        self.acceleration = settings.acceleration_factor * robot.limits.a_max
        """Largest acceleration between samples, (n,) [rad/s^2]."""
        self.acceleration_change = settings.acceleration_change * robot.limits.a_max
        """Largest change of acceleration between two samples while no joint may stick or reverse, (n,) [rad/s^2]."""
        self.regressor = MomentumRegressor(robot, EffortMeaning.LINK_SIDE)
        strength = float(np.linalg.norm(robot.gravity))
        self.tilt = strength * 2.0 * np.sin(0.5 * settings.gravity_cone)
        """Largest distance of the true gravity vector from the nominal one [m/s^2]."""
        self._pin_model, self._strength = robot.pin_model, strength
        self._set_box(unknowns)
        self.tilted = tilted_regressors(robot) if settings.gravity_cone > 0.0 else []
        """Regressors for unit gravity across (two) and along nominal gravity; ``W_c`` is affine in gravity."""

    def _set_box(self, unknowns: Unknowns) -> None:
        self.unknowns = unknowns
        self.center, self.radius = unknowns.total.center, unknowns.total.radius
        self.curvature = CurvatureBounds(self._pin_model, unknowns.total, self._strength + self.tilt)

    def narrowed(self, box: Box) -> WindowModel:
        """Return the same with error budgets that hold for a target in a narrower box, (P,), only."""
        result = copy(self)
        result._set_box(self.unknowns.narrowed(box))
        return result

    def magnitude(self, columns: Array) -> Array:
        """Return the largest ``|columns @ theta|`` over the box of all inertial parameters, (..., p) to (...)."""
        return np.asarray(np.abs(columns @ self.center) + np.abs(columns) @ self.radius)

    def sign_slack(self, signals: WindowSignals) -> Array:
        """Return the measured speed from which the sign of the speed in friction is certain meanwhile, (n,) [rad/s]."""
        drift = signals.velocity_drift - self.sensors.velocity_error + self.measured.velocity_error
        return np.asarray(drift + self.friction_rate + self.settings.stiction_speed)

    def largest_position_error(self, tau: Array, speed: Array, step: float) -> Array:
        """Bound the position errors while gears carry the measured torques (N, n) [Nm], (n,) [rad].

        ``speed`` bounds the speeds meanwhile, (n,) [rad/s], ``step`` is the longest time between two samples [s].
        """
        gears, settings, unknowns = self.gears, self.settings, self.unknowns
        if gears is None:
            return self.position_error
        largest = (1.0 + self.sensors.gain_radius) * np.abs(tau) + np.sum(self.sensors.sample_error(tau), axis=0)
        torque = (1.0 + settings.load_friction) * np.max(largest, axis=0)
        torque += unknowns.coulomb_upper * (1.0 + settings.stribeck_friction + settings.friction_ripple)
        torque += unknowns.viscous_upper * (1.0 + settings.friction_asymmetry) * speed
        torque += unknowns.offset_upper + unknowns.armature_upper * self.acceleration
        late = step + 2.0 * self.sensors.stamp_jitter + gears.lag + settings.torque_lag_tolerance
        deflection = (gears.compliance + gears.compliance_radius) * torque + gears.rate * late
        return np.asarray(np.minimum(0.5 * self.measured.position_resolution + deflection, self.position_error))


def _elastic_terms(robot: RobotModel, unknowns: Unknowns) -> tuple[Array, Array, Array]:
    """Return the terms that rows with a torque before friction and armature add up where motors are not at their links.

    Friction and armature act at the motors, the rest at the links; only one of both is measured. The difference is at
    most the armature times the difference of the speeds at either end, and the viscous friction times the change of the
    deflection. Torque behind the gear has neither in it, and friction behind its sensor acts at the links.
    """
    elasticity, none = robot.elasticity, np.zeros(robot.n)
    if elasticity is None:
        return none, none, none
    on_links, rate = elasticity.position_side is PositionSide.LINK, elasticity.deflection_rate
    if not robot.sensors.effort_meaning.has_friction:
        return none, none, none if on_links else rate
    viscous, momentum = unknowns.viscous_upper, 2.0 * unknowns.armature_upper * rate
    return (momentum + 2.0 * viscous * robot.deflection, none, rate) if on_links else (momentum, 2.0 * viscous, none)


@dataclass(frozen=True)
class Gears:
    """Gears between links and motors whose positions are measured.

    A gear that carries tau_J is deflected by ``tau_J / k``, besides what its damping carries.

    Attributes:
        compliance: Middle of the possible ``1 / k``, (n,) [rad/Nm].
        compliance_radius: Its radius, (n,).
        rate: Largest rate of the deflection, (n,) [rad/s].
        lag: Time constant of the damping, of the inner torque loop as well where the torque is before it, (n,) [s].
    """

    compliance: Array
    compliance_radius: Array
    rate: Array
    lag: Array

    @classmethod
    def of(cls, robot: RobotModel) -> Gears | None:
        """Return the gears of an arm; None where its joints are rigid, or links are measured."""
        elasticity, meaning = robot.elasticity, robot.sensors.effort_meaning
        if elasticity is None or elasticity.position_side is PositionSide.LINK:
            return None
        softest, stiffest = (elasticity.within(share).stiffness for share in (-1.0, 1.0))
        loop = elasticity.torque_damping * stiffest / softest * meaning.has_friction
        return cls(
            compliance=0.5 * (1.0 / softest + 1.0 / stiffest),
            compliance_radius=0.5 * (1.0 / softest - 1.0 / stiffest),
            rate=elasticity.deflection_rate,
            lag=elasticity.damping / softest + loop,
        )


def tilt_axes(robot: RobotModel) -> Array:
    """Return two unit vectors across nominal gravity and one along it, rows (3, 3) in the base frame."""
    along = robot.gravity / np.linalg.norm(robot.gravity)
    first = np.cross(along, np.eye(3)[int(np.argmin(np.abs(along)))])
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(along, first), along])


def tilted_regressors(robot: RobotModel) -> list[MomentumRegressor]:
    """Return the robot's regressors for unit gravity along :func:`tilt_axes`."""
    base = robot.pin_model.frames[robot.pin_model.getFrameId(robot.base_frame)]
    regressors = []
    for axis in tilt_axes(robot) @ base.placement.rotation.T:  # gravity of a model is seen from its root
        model = pin.Model(robot.pin_model)
        model.gravity = pin.Motion(axis, np.zeros(3))
        regressors.append(MomentumRegressor(model, EffortMeaning.LINK_SIDE))
    return regressors


@dataclass(frozen=True)
class WindowSignals:
    """Signals of one window of N samples; times count from its first sample.

    Attributes:
        start_stamp: First stamp [ns].
        stop_stamp: Last stamp [ns].
        times: Stamps, (N,) [s].
        q: Positions, (N, n) [rad].
        v: Velocities, (N, n) [rad/s].
        torque_times: Stamps of the torque samples, which extend beyond the window where the torque lags, (N',) [s].
        tau: Torques, (N', n) [Nm].
        points: Samples at which the regressors and their derivatives are known: both ends and some between, (K,).
        derivatives: The inertial columns of the regressors and their derivatives there.
        inertial: Inertial columns of the rows, (n, 10 n).
        tilted: The same for unit gravity in three directions (none if gravity is known), each (n, 10 n).
        speed: Bound on the speed during the window, (n,) [rad/s].
        slope: Bound on the mean acceleration between two samples, (n,) [rad/s^2].
        velocity_drift: Bound on the distance of the true velocity from the nearest measured one, (n,) [rad/s].
        position_drift: The same for positions, (n,) [rad].
        position_error: Bound of the position errors in the window, (n,) [rad].
    """

    start_stamp: int
    stop_stamp: int
    times: Array
    q: Array
    v: Array
    torque_times: Array
    tau: Array
    points: NDArray[np.intp]
    derivatives: RegressorDerivatives
    inertial: Array
    tilted: tuple[Array, ...]
    speed: Array
    slope: Array
    velocity_drift: Array
    position_drift: Array
    position_error: Array

    @classmethod
    def of(cls, model: WindowModel, window: Window) -> WindowSignals:
        """Evaluate the signals of a window."""
        block, start, stop = window.block, window.start, window.stop
        seconds = (block.stamps - block.stamps[start]).astype(float) * 1e-9
        times, q, v = (array[start : stop + 1] for array in (seconds, block.q, block.v))
        points = choose_points(times, model.settings.derivative_spacing)
        derivatives = model.regressor.differentiate(q[points], v[points])
        change = derivatives.momentum[-1] - derivatives.momentum[0]
        inertial = change.shape[-1]
        weights = quadrature_weights(times, model.settings.quadrature)
        steps = np.diff(times)
        half_step = 0.5 * float(steps.max()) + model.sensors.stamp_jitter
        shortest = max(float(steps.min()) - 2.0 * model.sensors.stamp_jitter, 1e-9)
        slope = (np.max(np.abs(np.diff(v, axis=0)), axis=0) + 2.0 * model.sensors.velocity_error) / shortest
        velocity_drift = model.sensors.velocity_error + model.acceleration * half_step
        speed = np.max(np.abs(v), axis=0) + velocity_drift
        longest = float(np.diff(seconds[start:]).max())  # torques may be of later steps
        position_error = model.largest_position_error(block.tau[start:], speed, longest)
        return cls(
            start_stamp=int(block.stamps[start]),
            stop_stamp=int(block.stamps[stop]),
            times=times,
            q=q,
            v=v,
            torque_times=seconds[start:],
            tau=block.tau[start:],
            points=points,
            derivatives=derivatives,
            inertial=change - model.regressor.integrate(q, v, weights)[:, :inertial],
            tilted=tuple(-regressor.integrate(q, 0.0 * v, weights)[:, :inertial] for regressor in model.tilted),
            speed=speed,
            slope=np.minimum(slope, model.acceleration),
            velocity_drift=velocity_drift,
            position_drift=position_error + speed * half_step,
            position_error=position_error,
        )

    @property
    def steps(self) -> Array:
        """Step lengths, (N - 1,) [s]."""
        return np.diff(self.times)

    @property
    def duration(self) -> float:
        """Length of the window [s]."""
        return float(self.times[-1])


@dataclass(frozen=True)
class Window:
    """One window: samples ``start`` to ``stop`` (both included) of contiguous samples.

    Attributes:
        block: Contiguous samples; where the torque lags, they extend beyond ``stop``.
        start: First sample of the window.
        stop: Last sample of the window.
        number: Number of the window, from 0.
    """

    block: SampleBlock
    start: int
    stop: int
    number: int
    _known: dict[int, tuple[MomentumRegressor, WindowSignals]] = field(
        default_factory=dict, repr=False, compare=False, init=False
    )

    @property
    def start_stamp(self) -> int:
        """Stamp of its first sample [ns]."""
        return int(self.block.stamps[self.start])

    def signals(self, model: WindowModel) -> WindowSignals:
        """Return the signals; computed once for all models that differ in their error budgets only."""
        key = id(model.regressor)
        if key not in self._known:
            self._known[key] = model.regressor, WindowSignals.of(model, self)
        return self._known[key][1]


def choose_points(times: Array, spacing: float) -> NDArray[np.intp]:
    """Choose samples about ``spacing`` [s] apart, both ends included."""
    count = max(int(np.ceil((times[-1] - times[0]) / spacing)) + 1, 2)
    return np.unique(np.linspace(0, len(times) - 1, count).round().astype(int))


def quadrature_weights(times: Array, quadrature: str) -> Array:
    """Return the weights (N,) [s] of the samples in the integral from the first to the last of ``times``."""
    steps = np.diff(times)
    if quadrature == "forward_euler":
        return np.append(steps, 0.0)
    return np.asarray(0.5 * (np.append(steps, 0.0) + np.append(0.0, steps)))
