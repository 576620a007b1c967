"""The robust passivity-based controller.

With ``e = q_d - q``, ``r = de + K e``, ``v_a = v_d + K e``, ``a_a = a_d + K de`` the torque is

    tau = Y_SL(q, v, v_a, a_a) theta_0 + friction_0 + nu,    nu = H_0(q) (c r + eta),    d eta/dt = integral_gain c r,

where ``H_0`` is the nominal inertia and the integral state ``eta`` follows the constant part of the model error. As the
robust term is shaped by the same inertia as the acceleration, all of it is one evaluation with the acceleration
``a_a + c r + eta``. Its tracking bound is computed by :mod:`sysid_ros.core.tracking_bound`, with the proof in
docs/theory/tracking_bound.md.

Source: SAFE-ID section V-A, design section 7; the robust term and its bound are our own.
"""

from __future__ import annotations

from math import isfinite

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]


class RobustController:
    """Robust passivity-based control with inertia-shaped damping and integral action.

    Args:
        robot: The arm; its nominal parameters and payload prior are the model until :meth:`set_model` is called.
        settings: Gains and timing.

    Attributes:
        saturated_cycles: Torques since the last reset beyond the arm's limits, for which no bound holds.
    """

    def __init__(self, robot: RobotModel, settings: RobustSettings | None = None):
        self.robot = robot
        self.settings = settings or RobustSettings()
        self.law, self.is_integrating = self.settings.law, True
        self._limit: Array = robot.limits.tau_max
        self._model = ControlModel.of_boxes(robot)
        self._dynamics = ArmDynamics(robot, self._model.total, armature=True)
        self.reset()

    @property
    def model(self) -> ControlModel:
        """The model in use."""
        return self._model

    @property
    def blend_left(self) -> float:
        """Time until the controller uses the model it was given last [s]; 0 where it does."""
        if self._blended == np.inf:
            return 0.0
        return max(0.0, self.settings.blend_time - self._blended) + self.settings.period

    def reset(self, balance: Array | None = None) -> None:
        """Reset the integral state; call it before taking the arm over.

        Args:
            balance: Torque that balances the resting arm now, as measured, (n,) [Nm], the first torque: without it the
                arm sinks until the integral state carries the model error. None if unknown.
        """
        self._eta = np.zeros(self.robot.n)
        self._balance = balance
        self._blended = np.inf  # time since the model was changed, while that is not complete
        self._use(self._model.total)
        self._before = self._total
        self._has_begun, self.saturated_cycles = False, 0

    def set_model(self, theta_arm: Array, theta_arm_box: Box, payload: Array, payload_box: Box) -> None:
        """Blend to another model within ``blend_time``, without a jump of the torque; at once before the first cycle.

        With the same nominal parameters, other boxes change nothing, not even blending that is under way.
        See :meth:`Controller.set_model`.
        """
        model = ControlModel(theta_arm, theta_arm_box, payload, payload_box)
        ArmDynamics(self.robot, model.total, armature=True)  # refuses impossible parameters
        is_same, self._model = np.array_equal(model.total, self._model.total), model
        if is_same:
            return  # blending that is under way goes on, as tracking bounds assume
        self._before, self._blended = self._total, 0.0
        if np.array_equal(model.total, self._total):
            self._blended = np.inf
        if not self._has_begun:
            self._use(model.total)
            self._blended = np.inf

    def compute(self, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array) -> Array:
        """Compute the torque of one cycle; call it once per period. See :meth:`Controller.compute`.

        Raises:
            ParameterOutOfRange: A measurement or reference is not finite.
        """
        gains = self.settings
        e, de = q_d - q, v_d - v
        r = de + gains.position_gain * e
        v_a = v_d + gains.position_gain * e
        feedback = a_d + gains.position_gain * de + gains.bandwidth * r
        if not isfinite(feedback.dot(feedback)):
            raise ParameterOutOfRange("measurements and references", [q, v, q_d, v_d, a_d], "finite numbers")
        if self._blended < np.inf:
            # Blend one cycle further from the previous model to the new one
            share = min(1.0, self._blended / self.settings.blend_time) if self.settings.blend_time > 0.0 else 1.0
            self._use(self._before + share * (self._model.total - self._before))
            self._blended = self._blended + self.settings.period if share < 1.0 else np.inf
        coulomb, viscous, _, offset = self._friction
        if self._balance is not None:
            unknown, self._balance = self._balance - self._dynamics.gravity(q) - offset, None
            self._eta = np.linalg.solve(self._dynamics.inertia(q), unknown)
        tau = self._dynamics.passive_torque(q, v, v_a, feedback + self._eta)
        tau += coulomb * gains.friction_share(v_d) + viscous * v + offset
        self._has_begun = True
        if not (np.abs(tau) <= self._limit).all():
            self.saturated_cycles += 1  # and the integral state is held
        elif self.is_integrating:
            self._eta = self._eta + gains.period * gains.integral_gain * gains.bandwidth * r
        return tau

    def _use(self, total: Array) -> None:
        self._total = total
        self._dynamics.change(total)
        self._friction = self.robot.friction(total).T
