"""The robust control law of SAFE-ID's experiments, ARMOUR's: no integral, and a robust input from an interval bound.

With ``e = q_d - q``, ``v_a = v_d + K_r e``, ``a_a = a_d + K_r de`` and ``r = de + K_r e`` the torque is

    tau = Y_SL(q, v, v_a, a_a) theta_0 + lambda r / |r|,    lambda = max(0, |w| - alpha (V_max - V) / |r|),

where ``w`` bounds the torques of all parameters in the box less the nominal ones, joint by joint, and ``V`` bounds
``r^T H r / 2``. So there is no robust input while ``V`` is well below ``V_max``, and errors at rest do not vanish.

Source: SAFE-ID section V-A; Michaux et al. 2023 (ARMOUR), and the authors' configuration.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.baselines import GravityPid
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

Array = NDArray[np.float64]

POSITION_GAIN = np.array([5.0] * 4 + [7.0] * 3)
"""K_r [1/s]."""
ALPHA, V_MAX, LEAST_NORM = 20.0, 0.02, 1e-8
"""alpha [1/s], V_max [J], and the norm of r below which there is no robust input [rad/s]."""
PID_GAINS = np.array([[75.0] * 4 + [20.0] * 3, [0.01] * 7, [5.0] * 4 + [1.0] * 3])
"""K_p [Nm/rad], K_i [Nm/(rad s)] and K_d [Nm s/rad] of grav-pid, (3, 7)."""


class ArmourController:
    """ARMOUR's robust passivity-based control, as the authors of SAFE-ID have configured it.

    Args:
        robot: The arm, of seven joints; its nominal parameters and payload prior are the model until :meth:`set_model`
            is called.

    Attributes:
        blend_left: See :class:`Controller`: 0, another model is used at once.
        model: The model in use.
    """

    blend_left = 0.0

    def __init__(self, robot: RobotModel):
        self.robot = robot
        self.law, self.is_integrating = ControlLaw("armour", (("alpha", ALPHA), ("v_max", V_MAX))), True
        self._regressor = SlotineLiRegressor(robot)
        self._use(ControlModel.of_boxes(robot))

    def reset(self, balance: Array | None = None) -> None:
        """Do nothing: the law has no state."""

    def set_model(self, theta_arm: Array, theta_arm_box: Box, payload: Array, payload_box: Box) -> None:
        """Change the model at once; see :meth:`Controller.set_model`."""
        self._use(ControlModel(theta_arm, theta_arm_box, payload, payload_box))

    def compute(self, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array) -> Array:
        """Compute the torque of one cycle; see :meth:`Controller.compute`.

        Raises:
            ParameterOutOfRange: A measurement or reference is not finite.
        """
        e, de = q_d - q, v_d - v
        r = de + POSITION_GAIN * e
        if not np.isfinite(r).all():
            raise ParameterOutOfRange("measurements and references", [q, v, q_d, v_d], "finite numbers")
        rest = np.zeros_like(r)
        y, moved, held = self._regressor.evaluate(
            [q, q, q],
            [v, rest, rest],
            [v_d + POSITION_GAIN * e, rest, rest],
            [a_d + POSITION_GAIN * de, r, rest],
        )
        tau = y @ self._theta
        norm = float(np.linalg.norm(r))
        if norm <= LEAST_NORM:
            return np.asarray(tau)
        error = np.maximum(self._beyond(y), self._beyond(-y))
        inertia = r[:, None] * (moved - held)
        energy = 0.5 * float(np.sum(inertia @ self._theta + self._beyond(inertia)))
        share = float(np.linalg.norm(error)) - ALPHA * (V_MAX - energy) / norm
        return np.asarray(tau + max(0.0, share) / norm * r)

    def _beyond(self, rows: Array) -> Array:
        """Return the largest ``rows @ (theta - theta_0)`` of each row over the box."""
        return np.asarray(np.maximum(rows, 0.0) @ self._above + np.maximum(-rows, 0.0) @ self._below)

    def _use(self, model: ControlModel) -> None:
        self.model, self._theta = model, model.total
        last = self.robot.inertial_slice(self.robot.n)
        self._above, self._below = model.theta_box.upper - model.theta, model.theta - model.theta_box.lower
        self._above[last] += np.maximum(model.payload_box.upper - model.payload, 0.0)
        self._below[last] += np.maximum(model.payload - model.payload_box.lower, 0.0)


class PublishedPid(GravityPid):
    """PID with compensation of gravity and the gains of the authors: Nm/rad instead of shares of an inertia.

    Source: "grav-pid" of SAFE-ID Table II.
    """

    def __init__(self, robot: RobotModel):
        super().__init__(robot)
        self._kp, self._ki, self._kd = PID_GAINS
