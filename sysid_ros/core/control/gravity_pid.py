"""Gravity-compensated PID control, the baseline most arms are driven with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel, PassiveDynamics
from sysid_ros.core.control.settings import describe_law
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PidSettings:
    """Gains of :class:`GravityPid`, scaled by each joint's nominal inertia at the arm's home posture.

    Attributes:
        frequency: Natural frequency of each joint [rad/s].
        damping: Damping ratio [-].
        integral_gain: Rate of the integral action [1/s].
        integral_share: Largest share of a torque limit the integral may take [-].
        period: Sampling period [s].

    Raises:
        ParameterOutOfRange: A setting is out of range.
    """

    frequency: float = 20.0
    damping: float = 1.0
    integral_gain: float = 2.0
    integral_share: float = 0.3
    period: float = 1e-3

    def __post_init__(self) -> None:
        ranges = {
            "frequency [rad/s]": (self.frequency, 1.0, 200.0),
            "damping [-]": (self.damping, 0.1, 5.0),
            "integral_gain [1/s]": (self.integral_gain, 0.0, 50.0),
            "integral_share [-]": (self.integral_share, 0.0, 1.0),
            "period [s]": (self.period, 1e-4, 0.02),
        }
        for name, (value, lower, upper) in ranges.items():
            if not lower <= value <= upper:
                raise ParameterOutOfRange(name, value, f"{lower} to {upper}")

    @property
    def law(self) -> str:
        """The control law with these settings, in words."""
        return describe_law("gravity_pid", self)


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
