"""External joint torques without bounds, from the momentum of a nominal model, as in vendors' controllers.

    r = gain (p - p_0 - int (tau + C'v - g - friction + r) dt),    so that    dr/dt = gain (tau_ext - r)

for the true model; every error of the model appears in r like an external torque. It is the baseline for the intervals
of :mod:`~sysid_ros.core.contact.external_torque`, and fast enough for the torque loop, which guiding by hand needs.

Source: A. De Luca, A. Albu-Schaeffer, S. Haddadin, G. Hirzinger, "Collision Detection and Safe Reaction with the
DLR-III Lightweight Manipulator Arm", IROS 2006; EXCITE (1) is its counterpart with accelerations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_REST_SPEED = 0.01
"""Speed at which three quarters of Coulomb friction are taken off [rad/s]."""


class MomentumObserver:
    """First-order estimate of external joint torques with one model, cycle by cycle.

    Args:
        robot: The arm; its effort meaning says whether friction is in the measured torque.
        theta: Parameters of the model with the load, (14 n,).
        period: Time between cycles [s].
        gain: Rate at which the estimate follows [1/s]; it must be less than 1 over the period.

    Raises:
        ParameterOutOfRange: The parameters are not 14 n finite numbers with positive masses, or the gain is too large.
    """

    def __init__(self, robot: RobotModel, theta: ArrayLike, period: float, gain: float = 50.0):
        if not 0.0 < gain * period < 1.0:
            raise ParameterOutOfRange("gain of the momentum observer [1/s]", gain, f"above 0, below {1.0 / period:g}")
        self._period, self._gain = period, gain
        self._meaning = robot.sensors.effort_meaning
        self._robot = robot
        self._dynamics = ArmDynamics(robot, robot.theta_nominal, armature=self._meaning.has_armature)
        self.set_model(theta)
        self.reset()

    def set_model(self, theta: ArrayLike) -> None:
        """Use other parameters (14 n,); the estimate goes on."""
        theta, robot = np.array(theta, dtype=float), self._robot
        if theta.shape != robot.theta_nominal.shape or not np.isfinite(theta).all():
            raise ParameterOutOfRange("theta", theta, f"{robot.theta_nominal.size} finite numbers")
        self._dynamics.change(theta)
        self._friction = robot.friction(theta) * float(self._meaning.has_friction)

    def reset(self) -> None:
        """Begin again with an estimate of zero, after a gap."""
        self._integral: Array | None = None
        self._estimate = np.zeros(self._robot.n)

    def update(self, q: ArrayLike, v: ArrayLike, effort: ArrayLike) -> Array:
        """Add a cycle.

        Args:
            q: Measured positions, (n,) [rad].
            v: Measured velocities, (n,) [rad/s].
            effort: Mean effort since the cycle before, (n,) [Nm].

        Returns:
            Estimate of the external torques on the joints, (n,) [Nm].
        """
        q, v, effort = (np.asarray(part, dtype=float) for part in (q, v, effort))
        momentum, rate = self._dynamics.momentum(q, v)
        coulomb, viscous, _, offset = self._friction.T
        rate = rate + effort - coulomb * np.tanh(v / _REST_SPEED) - viscous * v - offset
        if self._integral is None:
            self._integral = momentum
        else:
            self._integral = self._integral + self._period * (rate + self._estimate)
        self._estimate = self._gain * (momentum - self._integral)
        return np.array(self._estimate)
