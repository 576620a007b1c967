"""Gravity-compensated PID control, the baseline most arms are driven with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.control.law import ControlLaw
from sysid_ros.core.control.model import ControlModel, PassiveDynamics
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]


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
        self._dynamics = PassiveDynamics(self.robot, model.total)
        self._model = model
