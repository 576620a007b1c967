"""Baselines for the robust controller: gravity-compensated PID, and computed torque with a model that is fitted online.

Most arms are driven with the first. The second is

    tau = Y(q, v, a_cmd) theta,    a_cmd = a_d + 2 zeta omega de + omega^2 e,

where theta is the nominal model until the buffer of the online fit is full and the coefficient of determination of
every joint is high enough; then the torque changes smoothly to that of the identified model, and back when the fit gets
worse. No tracking bound is proven for it: a good fit of past torques says nothing certain of the next motion.

Source: SVA (109) and section VI; the hysteresis and the smooth change are our own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.online_model.least_squares import (
    ModelObserver,
    Observation,
    OnlineFit,
    OnlineFitSettings,
    OnlineLeastSquares,
)
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]
_REST_SPEED = 0.01
"""Desired speed at which three quarters of Coulomb friction are compensated [rad/s]."""
_KNOWN = 1e-6
"""Scale of parameters whose box is a point, in their units."""


@dataclass(frozen=True)
class PidSettings(Settings, library_only=True):
    """Gains of :class:`GravityPid`, scaled by each joint's nominal inertia at the arm's home posture."""

    frequency: float = setting(20.0, "rad/s", lower=1.0, upper=200.0)
    """Natural frequency of each joint."""
    damping: float = setting(1.0, "-", lower=0.1, upper=5.0)
    """Damping ratio."""
    integral_gain: float = setting(2.0, "1/s", lower=0.0, upper=50.0)
    """Rate of the integral action."""
    integral_share: float = setting(0.3, "-", lower=0.0, upper=1.0)
    """Largest share of a torque limit the integral may take."""
    period: float = setting(1e-3, "s", lower=1e-4, upper=0.02)
    """Sampling period."""

    @property
    def law(self) -> ControlLaw:
        """The control law with these settings."""
        return ControlLaw.of("gravity_pid", self)


class GravityPid:
    """``tau = g_0(q) + beta + k_p e + k_d de + k_i int e dt``; no bound is proven for it.

    Args:
        robot: The arm; its nominal parameters and payload prior are the model until :meth:`set_model` is called.
        settings: Gains.

    Attributes:
        blend_left: See :class:`Controller`: 0, another model is used at once.

    Source: the baseline "grav-pid" of SAFE-ID Table II.
    """

    blend_left = 0.0

    def __init__(self, robot: RobotModel, settings: PidSettings | None = None):
        self.robot = robot
        self.settings = settings or PidSettings()
        self.law, self.is_integrating = self.settings.law, True
        self._use(ControlModel.of_boxes(robot))
        inertia = np.diag(self._dynamics.inertia(robot.home))
        self._kp = self.settings.frequency**2 * inertia
        self._kd = 2.0 * self.settings.damping * self.settings.frequency * inertia
        self._integral_limit = self.settings.integral_share * robot.limits.tau_max
        self.reset()

    @property
    def model(self) -> ControlModel:
        """The model in use."""
        return self._model

    def reset(self) -> None:
        """Reset the integral; call it before taking the arm over."""
        self._integral = np.zeros(self.robot.n)

    def set_model(self, theta_arm: Array, theta_arm_box: Box, payload: Array, payload_box: Box) -> None:
        """Change the model; only gravity and torque offset of the nominal parameters are used.

        Args:
            theta_arm: Nominal parameters of the arm, (14 n,).
            theta_arm_box: Box that contains the true ones.
            payload: Nominal payload about the frame of the last joint, (10,).
            payload_box: Box that contains the true one.

        Raises:
            ParameterOutOfRange: A length is wrong, a nominal parameter is not finite or, if of the arm, outside its
                box, or a body has no mass.
        """
        self._use(ControlModel(theta_arm, theta_arm_box, payload, payload_box))

    def compute(self, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array) -> Array:
        """Compute the torque of one cycle; see :meth:`Controller.compute`. ``a_d`` is not used.

        Raises:
            ParameterOutOfRange: A measurement or reference is not finite.
        """
        e = q_d - q
        tau = self._dynamics.gravity(q) + self._model.friction[:, 3]
        tau += self._kp * e + self._kd * (v_d - v) + self._integral
        if not np.isfinite(tau).all():
            raise ParameterOutOfRange("measurements and references", [q, v, q_d, v_d], "finite numbers")
        if self.is_integrating:
            step = self.settings.period * self.settings.integral_gain * self._kp * e
            self._integral = np.clip(self._integral + step, -self._integral_limit, self._integral_limit)
        return tau

    def _use(self, model: ControlModel) -> None:
        self._dynamics = ArmDynamics(self.robot, model.total, armature=True)
        self._model = model


@dataclass(frozen=True)
class GateSettings(Settings, library_only=True):
    """When the identified model is used."""

    determination: float = setting(0.95, "-", lower=0.0, upper=1.0)
    """Coefficient of determination that every joint must reach."""
    hysteresis: float = setting(0.02, "-", lower=0.0, upper=0.5)
    """By how much it must fall below that before the nominal model is used again."""
    blend_time: float = setting(0.5, "s", lower=0.0, upper=60.0)
    """Time of a change from one model to the other."""


class ModelGate:
    """Decides between the nominal and the identified model, with hysteresis.

    Args:
        settings: When the identified model is used.

    Attributes:
        is_open: Whether the identified model is used.
        share: Share of the identified model in the torque, from 0 to 1: follows ``is_open`` within the blend time.
    """

    def __init__(self, settings: GateSettings | None = None):
        self.settings = settings or GateSettings()
        self.reset()

    def reset(self) -> None:
        """Close at once."""
        self.is_open, self.share = False, 0.0

    def judge(self, fit: OnlineFit) -> None:
        """Open or close, by a new fit."""
        least = self.settings.determination - (self.settings.hysteresis if self.is_open else 0.0)
        # Written so that NaN, a joint without any torque, keeps it closed.
        self.is_open = fit.is_full and bool((fit.determination >= least).all())

    def advance(self, duration: float) -> None:
        """Let the share follow for a time [s]."""
        step = 1.0 if self.settings.blend_time == 0.0 else duration / self.settings.blend_time
        self.share = min(1.0, self.share + step) if self.is_open else max(0.0, self.share - step)


@dataclass(frozen=True)
class OnlineModelSettings(Settings, library_only=True):
    """Gains, fit and gate of :class:`OnlineModelController`."""

    frequency: float = setting(20.0, "rad/s", lower=1.0, upper=200.0)
    """Natural frequency of the error of each joint."""
    damping: float = setting(1.0, "-", lower=0.1, upper=5.0)
    """Damping ratio."""
    period: float = setting(1e-3, "s", lower=1e-4, upper=0.02)
    """Sampling period."""
    acceleration_time: float = setting(0.02, "s", lower=1e-3, upper=1.0)
    """Time constant of the exponential moving average of accelerations."""
    observation: Observation = setting(Observation.ACCELERATION)
    """Where the equations of the fit come from."""
    fit: OnlineFitSettings = field(default_factory=OnlineFitSettings)
    gate: GateSettings = field(default_factory=GateSettings)

    @property
    def law(self) -> ControlLaw:
        """The control law with its gains."""
        numbers = {name: float(getattr(self, name)) for name in ("frequency", "damping", "period")}
        return ControlLaw("online_model", tuple(numbers.items()))


@dataclass(frozen=True)
class OnlineModelStatus:
    """What the gate has decided, and on what.

    Attributes:
        fit: The newest fit; None before the first sample.
        is_open: Whether the identified model is used.
        share: Its share in the torque, from 0 to 1.
        joints: Names of the joints whose coefficient of determination is too low.
    """

    fit: OnlineFit | None
    is_open: bool
    share: float
    joints: tuple[str, ...]


class OnlineModelController:
    """Computed torque with the nominal model, or with the one fitted online where the gate is open.

    Args:
        robot: The arm; its nominal parameters and payload prior are the nominal model until :meth:`set_model`.
        settings: Gains, fit and gate.

    Attributes:
        blend_left: See :class:`Controller`: 0, another nominal model is used at once.
    """

    blend_left = 0.0

    def __init__(self, robot: RobotModel, settings: OnlineModelSettings | None = None):
        self.robot = robot
        self.settings = settings or OnlineModelSettings()
        self.law, self.is_integrating = self.settings.law, True
        self.gate = ModelGate(self.settings.gate)
        every = max(1, round(1.0 / (self.settings.fit.rate * self.settings.period)))
        self._observer = ModelObserver(
            robot, self.settings.observation, self.settings.period, every, self.settings.acceleration_time
        )
        self._regressor = TorqueRegressor(robot)
        self._use(ControlModel.of_boxes(robot))

    @property
    def model(self) -> ControlModel:
        """The nominal model."""
        return self._model

    @property
    def status(self) -> OnlineModelStatus:
        """What the gate has decided, and on what."""
        low: tuple[str, ...] = ()
        if self._fitted is not None:
            is_low = ~(self._fitted.determination >= self.settings.gate.determination)
            low = tuple(name for name, one in zip(self.robot.joint_names, is_low, strict=True) if one)
        return OnlineModelStatus(self._fitted, self.gate.is_open, self.gate.share, low)

    def reset(self) -> None:
        """Forget samples and fit, and return to the nominal model; call it before taking the arm over."""
        self._fit.reset()
        self._observer.reset()
        self.gate.reset()
        self._fitted: OnlineFit | None = None
        self._last: Array | None = None

    def set_model(self, theta_arm: Array, theta_arm_box: Box, payload: Array, payload_box: Box) -> None:
        """Change the nominal model, and begin the fit again; see :meth:`Controller.set_model`."""
        self._use(ControlModel(theta_arm, theta_arm_box, payload, payload_box))

    def compute(self, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array) -> Array:
        """Compute the torque of one cycle, and learn from the one before; see :meth:`Controller.compute`.

        Raises:
            ParameterOutOfRange: A measurement or reference is not finite.
        """
        gains = self.settings
        a = a_d + 2.0 * gains.damping * gains.frequency * (v_d - v) + gains.frequency**2 * (q_d - q)
        if not (np.isfinite(q).all() and np.isfinite(a).all()):
            raise ParameterOutOfRange("measurements and references", [q, v, q_d, v_d, a_d], "finite numbers")
        if self._last is not None:
            self._learn(q, v, self._last)
        self.gate.advance(gains.period)
        # Linear in theta, so blending parameters is blending torques. Desired velocities do not chatter about zero.
        theta = self._model.total
        if self._fitted is not None and self.gate.share > 0.0:
            theta = theta + self.gate.share * (self._fitted.theta - theta)
        tau = self._regressor.evaluate(q[None], v[None], a[None], np.tanh(v_d / _REST_SPEED)[None])[0] @ theta
        limit = self.robot.limits.tau_max
        self._last = np.clip(tau, -limit, limit)
        return np.asarray(tau)

    def _learn(self, q: Array, v: Array, effort: Array) -> None:
        equation = self._observer.note(q, v, effort)
        if equation is not None and self._fit.add(*equation):
            self._fitted = self._fit.solve()
            self.gate.judge(self._fitted)

    def _use(self, model: ControlModel) -> None:
        self._model = model
        # What the boxes allow is the natural size of a departure; what they call known hardly moves.
        reach = np.max(np.abs(model.deviation), axis=0)
        scale = np.maximum(reach, _KNOWN)
        self._fit = OnlineLeastSquares(model.total, self.robot.n, self.settings.fit, scale)
        self.reset()
