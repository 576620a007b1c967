"""Adaptive baselines: Slotine and Li's law, and composite adaptation, for the payload of an arm.

With ``e = q_d - q``, ``v_r = v_d + K e``, ``a_r = a_d + K de`` and ``r = v_r - v`` the torque is

    tau = Y_SL(q, v, v_r, a_r) theta + friction + K_D r,

where the arm's own parameters are the nominal ones and the payload is adapted: ``d theta/dt = Gamma Y_SL' r``, the
direct law. The composite one also learns from the prediction of torques: with the low-pass filter ``(.)_f`` of rate
lambda the momentum equation ``dp/dt = W_c theta + tau`` becomes ``(lambda (W_m - (W_m)_f) - (W_c)_f) theta = tau_f``
without any acceleration, and its least squares with forgetting give gain and direction.

Adapted parameters stay in their box. No tracking bound is proven here: the errors converge while parameters are wrong.

Source: Slotine and Li 1987 (adap-1 of SAFE-ID Table II) and 1989.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import ControlLaw, RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

Array = NDArray[np.float64]
_EVERY = 5
"""Cycles between two corrections by prediction: each evaluates the momentum regressor."""


@dataclass(frozen=True)
class AdaptiveSettings(Settings, library_only=True):
    """Gains of :class:`AdaptiveController`; feedback of the robust controller by default."""

    bandwidth: float = setting(RobustSettings().bandwidth, "1/s", lower=1.0, upper=1000.0)
    """c: the damping is ``K_D = c H_jj`` with the nominal inertia at home."""
    position_gain: float = setting(RobustSettings().position_gain, "1/s", lower=0.1, upper=100.0)
    """K, rate at which the position error follows the sliding variable."""
    adaptation: float = setting(0.1, "1/Nms", lower=0.0, upper=1e4)
    """Gain of the direct law: in every second a torque error of 1 Nm that acts for as long as the sliding variable is
    1 rad/s moves the payload by this share of its box."""
    prediction: float = setting(0.0, "-", lower=0.0, upper=1e4)
    """Weight of the prediction error against the box, for a torque error of 1 Nm in a second; 0 is the direct law."""
    filter_rate: float = setting(10.0, "1/s", lower=0.1, upper=200.0)
    """lambda, of the filter of the prediction."""
    forgetting: float = setting(0.05, "1/s", lower=0.0, upper=10.0)
    """Rate at which predictions are forgotten."""
    period: float = setting(1e-3, "s", lower=1e-4, upper=0.02)
    """Sampling period."""

    @property
    def law(self) -> ControlLaw:
        """The control law with these settings."""
        return ControlLaw.of("adaptive", self)


class AdaptiveController:
    """Slotine and Li's adaptive control of an arm with an unknown payload, composite where predictions count.

    Args:
        robot: The arm; its nominal parameters and payload prior are the model until :meth:`set_model` is called.
        settings: Gains.

    Attributes:
        blend_left: See :class:`Controller`: 0, another model is used at once.
    """

    blend_left = 0.0

    def __init__(self, robot: RobotModel, settings: AdaptiveSettings | None = None):
        self.robot = robot
        self.settings = settings or AdaptiveSettings()
        self.law, self.is_integrating = self.settings.law, True
        self._regressor = SlotineLiRegressor(robot)
        self._momentum = MomentumRegressor(robot)
        self._body = robot.inertial_slice(robot.n)
        self._friction = RobustSettings()
        self._use(ControlModel.of_boxes(robot))

    @property
    def model(self) -> ControlModel:
        """The model adaptation begins with."""
        return self._model

    @property
    def payload(self) -> Array:
        """The payload as adapted so far, (10,)."""
        return np.array(self._payload)

    def reset(self, balance: Array | None = None) -> None:
        """Discard the adaptation; call it before taking the arm over. The balance is not used: no integral state."""
        self._payload = self._clip(self._model.payload)
        self._gain: Array = np.diag(self._box.radius**2)
        self.pause()

    def pause(self) -> None:
        """Begin a motion with the present adaptation: only the filters are reset."""
        self._cycle = 0
        self._filtered: tuple[Array, Array, Array] | None = None
        self._tau = np.zeros(self.robot.n)
        self._mean = np.zeros(self.robot.n)

    def set_model(self, theta_arm: Array, theta_arm_box: Box, payload: Array, payload_box: Box) -> None:
        """Change the model, and begin to adapt again; see :meth:`Controller.set_model`."""
        self._use(ControlModel(theta_arm, theta_arm_box, payload, payload_box))

    def compute(self, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array) -> Array:
        """Compute the torque of one cycle, and adapt; see :meth:`Controller.compute`.

        Raises:
            ParameterOutOfRange: A measurement or reference is not finite.
        """
        gains = self.settings
        e, de = q_d - q, v_d - v
        v_r, a_r = v_d + gains.position_gain * e, a_d + gains.position_gain * de
        if not (np.isfinite(v_r).all() and np.isfinite(a_r).all()):
            raise ParameterOutOfRange("measurements and references", [q, v, q_d, v_d, a_d], "finite numbers")
        if gains.prediction > 0.0:
            self._predict(q, v)
        r = v_r - v
        direction = self._friction.friction_share(v_d)
        y = self._regressor.evaluate_one(q, v, v_r, a_r, direction)
        payload_columns = y[:, self._body]
        tau = y @ self._model.theta + payload_columns @ self._payload + self._damping * r
        limit = self.robot.limits.tau_max
        if self.is_integrating and np.all(np.abs(tau) <= limit):
            step = gains.period * gains.adaptation * self._scale**2 * (payload_columns.T @ r)
            self._payload = self._clip(self._payload + step)
        self._tau = np.clip(tau, -limit, limit)
        return np.asarray(tau)

    def _predict(self, q: Array, v: Array) -> None:
        """Correct the payload by the error of the filtered torque: least squares with forgetting."""
        gains = self.settings
        self._mean += self._tau / _EVERY
        self._cycle += 1
        if self._cycle % _EVERY:
            return
        period = _EVERY * gains.period
        momentum, rate = (part[0] for part in self._momentum.evaluate(q[None], v[None]))
        effort, self._mean = self._mean, np.zeros(self.robot.n)
        if self._filtered is None:
            self._filtered = momentum.copy(), rate.copy(), effort
            return
        share = 1.0 - np.exp(-gains.filter_rate * period)
        new = zip(self._filtered, (momentum, rate, effort), strict=True)
        slow_momentum, slow_rate, slow_effort = (old + share * (one - old) for old, one in new)
        self._filtered = slow_momentum, slow_rate, slow_effort
        if self._cycle * gains.period < 3.0 / gains.filter_rate:
            return  # the filters have not forgotten their start
        rows = gains.filter_rate * (momentum - slow_momentum) - slow_rate
        w = rows[:, self._body]
        error = slow_effort - rows @ self._model.theta - w @ self._payload
        noise = np.eye(self.robot.n) / (gains.prediction * period)
        widened = self._gain * np.exp(gains.forgetting * period)
        # Forgetting stops where the box is narrower than the data.
        self._gain = widened if np.all(np.diag(widened) <= self._scale**2) else self._gain
        reach = self._gain @ w.T
        blended = np.linalg.solve(noise + w @ reach, np.column_stack([reach.T, error]))
        self._payload = self._clip(self._payload + reach @ blended[:, -1])
        gain = self._gain - reach @ blended[:, :-1]
        self._gain = 0.5 * (gain + gain.T)

    def _clip(self, payload: Array) -> Array:
        return np.asarray(np.clip(payload, self._box.lower, self._box.upper))

    def _use(self, model: ControlModel) -> None:
        self._model, self._box = model, model.payload_box
        self._scale = np.maximum(self._box.radius, 1e-9)
        inertia = np.diag(ArmDynamics(self.robot, model.total, armature=True).inertia(self.robot.home))
        self._damping = self.settings.bandwidth * inertia
        self.reset()
