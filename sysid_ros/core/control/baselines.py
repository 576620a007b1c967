"""Baselines for the robust controller: gravity-compensated PID, and computed torque with a model that is fitted online.

Most arms are driven with the first. The second is

    tau = Y(q, v, a_cmd) theta,    a_cmd = a_d + 2 zeta omega de + omega^2 e,

where theta is the nominal model until the buffer of the online fit is full and the coefficient of determination of
every joint is high enough; then the torque changes smoothly to that of the identified model, and back when the fit gets
worse. No tracking bound is proven for it: a good fit of past torques guarantees nothing about the next motion.

Source: SVA (109) and section VI; hysteresis, smooth change, check of the inertia and patience are our own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.model_fitter import FittedModel, ModelFitter, require_fitted
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.core.online_model.least_squares import Observation, OnlineFitSettings
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]
_REST_SPEED = 0.01
"""Desired speed at which three quarters of Coulomb friction are compensated [rad/s]."""
ONLINE_MODEL = "online_model"
"""Name of the control law with a model that is fitted online."""


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
        self._ki = self.settings.integral_gain * self._kp
        self._integral_limit = self.settings.integral_share * robot.limits.tau_continuous
        self.reset()

    @property
    def model(self) -> ControlModel:
        """The model in use."""
        return self._model

    def reset(self, balance: Array | None = None) -> None:
        """Reset the integral, to the balance of the arm (n,) [Nm] where that is known; see :meth:`Controller.reset`."""
        self._integral, self._balance = np.zeros(self.robot.n), balance

    def set_model(self, theta_arm: Array, theta_arm_box: Box, payload: Array, payload_box: Box) -> None:
        """Change the model; only gravity and torque offset of the nominal parameters are used.

        See :meth:`Controller.set_model`.
        """
        self._use(ControlModel(theta_arm, theta_arm_box, payload, payload_box))

    def compute(self, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array) -> Array:
        """Compute the torque of one cycle; see :meth:`Controller.compute`. ``a_d`` is not used.

        Raises:
            ParameterOutOfRange: A measurement or reference is not finite.
        """
        e = q_d - q
        tau = self._dynamics.gravity(q) + self._model.friction[:, 3]
        if self._balance is not None:
            unknown, self._balance = self._balance - tau, None
            self._integral = np.clip(unknown, -self._integral_limit, self._integral_limit)
        tau += self._kp * e + self._kd * (v_d - v) + self._integral
        if not np.isfinite(tau).all():
            raise ParameterOutOfRange("measurements and references", [q, v, q_d, v_d], "finite numbers")
        if self.is_integrating:
            self._integral = np.clip(
                self._integral + self.settings.period * self._ki * e, -self._integral_limit, self._integral_limit
            )
        return tau

    def _use(self, model: ControlModel) -> None:
        self._dynamics = ArmDynamics(self.robot, model.total, armature=True)
        self._model = model


@dataclass(frozen=True)
class GateSettings(Settings, library_only=True):
    """Conditions for using the identified model."""

    determination: float = setting(0.95, "-", lower=0.0, upper=1.0)
    """Coefficient of determination that every joint must reach."""
    hysteresis: float = setting(0.02, "-", lower=0.0, upper=0.5)
    """By how much it must fall below that before the nominal model is used again."""
    blend_time: float = setting(0.5, "s", lower=0.0, upper=60.0)
    """Time of a change from one model to the other, and time constant at which the identified one follows new fits."""
    inertia_ratio: float = setting(10.0, "-", lower=1.0)
    """Largest ratio of identified and nominal inertia in any direction, either way; infinite
    as in the paper, which asks for nothing."""
    patience: float = setting(3.0, "s", above=0.0)
    """How long the arm may move without a new fit before the nominal model is used again."""

    def allows_inertia(self, model: FittedModel) -> bool:
        """Return whether the inertia of a model is positive, and near enough to the nominal one; not if unknown."""
        low, high = model.inertia
        return self.inertia_ratio == np.inf or (low >= 1.0 / self.inertia_ratio and high <= self.inertia_ratio)


class ModelGate:
    """Decides between the nominal and the identified model, with hysteresis.

    Attributes:
        is_open: Whether the identified model is used.
        share: Share of the identified model in the torque, from 0 to 1: follows ``is_open`` within the blend time.
    """

    def __init__(self, settings: GateSettings | None = None):
        self.settings = settings or GateSettings()
        self.reset()

    def reset(self) -> None:
        """Close at once."""
        self.is_open, self.share, self._age = False, 0.0, 0.0

    @property
    def least(self) -> float:
        """Coefficient of determination required of every joint now [-]."""
        return self.settings.determination - (self.settings.hysteresis if self.is_open else 0.0)

    def judge(self, model: FittedModel) -> None:
        """Open or close, by a new fit."""
        # Written so that NaN, a joint without any torque, keeps it closed.
        fits = bool((model.fit.determination >= self.least).all())
        self.is_open = model.fit.is_full and fits and self.settings.allows_inertia(model)
        self._age = 0.0

    def advance(self, duration: float, is_moving: bool = False) -> None:
        """Let the share follow for a time [s], in which the arm was commanded to move or not."""
        if is_moving:
            self._age += duration
            if self._age > self.settings.patience:
                self.is_open = False
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
    """Time constant of the exponential moving average, of accelerations and all that goes with them."""
    observation: Observation = setting(Observation.ACCELERATION)
    """Where the equations of the fit come from."""
    fit: OnlineFitSettings = field(default_factory=OnlineFitSettings)
    gate: GateSettings = field(default_factory=GateSettings)

    @property
    def law(self) -> ControlLaw:
        """The control law with its gains."""
        numbers = {name: float(getattr(self, name)) for name in ("frequency", "damping", "period")}
        return ControlLaw(ONLINE_MODEL, tuple(numbers.items()))

    def make_fitter(self, robot: RobotModel, model: ControlModel) -> ModelFitter:
        """Make the fitter of this controller's models, beside it or in it."""
        return ModelFitter(robot, model, self.fit, self.period, self.observation, self.acceleration_time)


@dataclass(frozen=True)
class OnlineModelStatus:
    """Decision of the gate, and its basis.

    Attributes:
        model: The newest fit; None before the first.
        is_open: Whether the identified model is used.
        share: Its share in the torque, from 0 to 1.
        least: Coefficient of determination required of every joint now.
        joints: Names of the joints whose coefficient of determination is too low.
        nominal: Parameters of the nominal model, payload included, (14 n,).
        settings: Gains, fit and gate.
    """

    model: FittedModel | None
    is_open: bool
    share: float
    least: float
    joints: tuple[str, ...]
    nominal: Array
    settings: OnlineModelSettings


class OnlineModelController:
    """Computed torque with the nominal model, or with the one fitted online where the gate is open.

    Args:
        robot: The arm; its nominal parameters and payload prior are the nominal model until :meth:`set_model`.
        settings: Gains, fit and gate.
        learns: Whether it fits models itself, from its measurements and commands, which is possible without a deadline
            per cycle. In a torque loop, models come from beside it by :meth:`offer`.

    Attributes:
        blend_left: See :class:`Controller`: 0, another nominal model is used at once.
    """

    blend_left = 0.0

    def __init__(self, robot: RobotModel, settings: OnlineModelSettings | None = None, learns: bool = True):
        self.robot = robot
        self.settings = settings or OnlineModelSettings()
        self.law, self.is_integrating = self.settings.law, True
        self.gate = ModelGate(self.settings.gate)
        self._regressor = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE)  # of the commanded torque
        model = ControlModel.of_boxes(robot)
        commanded = replace(robot, sensors=replace(robot.sensors, effort_meaning=EffortMeaning.MOTOR_SIDE))
        self._fitter = self.settings.make_fitter(commanded, model) if learns else None
        self._use(model)

    @property
    def model(self) -> ControlModel:
        """The nominal model."""
        return self._model

    @property
    def status(self) -> OnlineModelStatus:
        """Decision of the gate, and its basis."""
        low: tuple[str, ...] = ()
        if self._newest is not None:
            is_low = ~(self._newest.fit.determination >= self.gate.least)
            low = tuple(name for name, one in zip(self.robot.joint_names, is_low, strict=True) if one)
        gate = self.gate
        return OnlineModelStatus(self._newest, gate.is_open, gate.share, gate.least, low, self._nominal, self.settings)

    def reset(self, balance: Array | None = None) -> None:
        """Discard samples and fits, and return to the nominal model; call it before taking the arm over."""
        if self._fitter is not None:
            self._fitter.reset(self._model)
        self.gate.reset()
        self._newest: FittedModel | None = None
        self._identified = self._goal = self._nominal
        self._last: Array | None = None

    def set_model(self, theta_arm: Array, theta_arm_box: Box, payload: Array, payload_box: Box) -> None:
        """Change the nominal model, and begin the fit again; see :meth:`Controller.set_model`.

        Raises:
            ParameterOutOfRange: A length is wrong, a nominal parameter is not finite or, if of the arm, outside its
                box, or a body has no mass.
        """
        model = ControlModel(theta_arm, theta_arm_box, payload, payload_box)
        ArmDynamics(self.robot, model.total, armature=True)  # refuses impossible parameters
        self._use(model)

    def offer(self, model: FittedModel) -> bool:
        """Judge a fit, between two cycles; where the gate is open, the torque follows it smoothly.

        Returns:
            Whether it was judged; not where it departs from another nominal model than the one in use.

        Raises:
            ParameterOutOfRange: A length is wrong, or a parameter is not finite.
        """
        if not np.array_equal(model.nominal, self._nominal):
            return False
        require_fitted(model, self.robot.n)
        self._newest = model
        self.gate.judge(model)
        if self.gate.is_open:  # else the last good one stays, while the torque returns to the nominal model
            self._goal = np.array(model.fit.theta)
            if self.gate.share == 0.0:
                self._identified = self._goal
        return True

    def compute(self, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array) -> Array:
        """Compute the torque of one cycle, and learn from the one before; see :meth:`Controller.compute`.

        Raises:
            ParameterOutOfRange: A measurement or reference is not finite.
        """
        gains = self.settings
        a = a_d + 2.0 * gains.damping * gains.frequency * (v_d - v) + gains.frequency**2 * (q_d - q)
        if not (np.isfinite(q).all() and np.isfinite(a).all()):
            raise ParameterOutOfRange("measurements and references", [q, v, q_d, v_d, a_d], "finite numbers")
        if self._fitter is not None and self._last is not None:
            fitted = self._fitter.note(q, v, self._last)
            if fitted is not None:
                self.offer(fitted)
        self.gate.advance(gains.period, bool(v_d.any()))
        # Linear in theta, so blending parameters is blending torques. Desired velocities do not chatter about zero.
        theta = self._nominal
        if self.gate.share > 0.0:
            rate = gains.period / max(gains.gate.blend_time, gains.period)
            self._identified = self._identified + rate * (self._goal - self._identified)
            theta = theta + self.gate.share * (self._identified - theta)
        tau = self._regressor.evaluate(q[None], v[None], a[None], np.tanh(v_d / _REST_SPEED)[None])[0] @ theta
        limit = self.robot.limits.tau_max
        self._last = np.clip(tau, -limit, limit)
        return np.asarray(tau)

    def _use(self, model: ControlModel) -> None:
        self._model, self._nominal = model, model.total
        self.reset()
