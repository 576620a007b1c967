"""How an arm is held whose loop has let go of it, where nobody else holds it.

An effort controller goes on with the last command for ever, so "commanding nothing any more" is no stop. As long as the
driver runs it holds the arm where it was, softly; without measurements it sends what balances the arm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import pinocchio as pin

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmState, Array

_REST_SPEED = 0.02
"""Speed, beyond the error of its measurement, below which the arm counts as resting [rad/s]."""
_REST_SECONDS = 0.1
_CREEP_SPEED = 0.003
"""Speed, beyond the same error, above which a joint certainly slides [rad/s]."""
_HOLD_RATE = 20.0
"""Natural frequency of the hold [rad/s] ..."""
_LARGEST_PULL = 0.05
"""Distance beyond which the hold pulls no more than at it [rad]: an arm that has moved far comes back slowly."""
_RATE_TIMES_PERIOD = 0.1
"""... and its largest product with the period, for a delay of up to two periods [-]."""


class PositionHold:
    """Averages the torques that have held the arm, and holds it with them after the loop has let go.

    Args:
        robot: Inertia, friction and torque limits.
        period: Time between two commands [s].
        gravity: Torque that balances the arm as the model knows it, of positions, (n,) -> (n,) [Nm].
    """

    def __init__(self, robot: RobotModel, period: float, gravity: Callable[[Array], Array]):
        self._robot = robot
        self._gravity = gravity
        friction, sensors = robot.friction(robot.theta_nominal), robot.sensors
        self._friction = friction[:, :2].T
        self._effort_error = friction[:, 0] + np.abs(friction[:, 3]) + sensors.effort_absolute_error
        self._sent: Array | None = None
        self._creep_speed = _CREEP_SPEED + sensors.velocity_error
        self._rest_speed = _REST_SPEED + sensors.velocity_error
        self._rate = min(_HOLD_RATE, _RATE_TIMES_PERIOD / period)
        self._latest: deque[Array] = deque(maxlen=max(5, round(_REST_SECONDS / period)))
        self._unmodelled, self._posture = np.zeros(robot.n), np.array(robot.home)
        self._target = np.array(robot.home)
        self._balance = np.zeros(robot.n)
        self._gravity_there = np.zeros(robot.n)
        self._inertia = np.ones(robot.n)

    def update(self, state: ArmState, tau: Array) -> None:
        """Add a cycle: the latest state and the whole torque that was commanded, (n,) [Nm]."""
        if (np.abs(state.v) > self._rest_speed).any() or not self._is_obeyed(state.tau):
            self._store_unmodelled()
            self._latest.clear()
        else:
            # A joint that still creeps is pushed against its friction, which must not go on once it is not measured.
            coulomb, viscous = self._friction
            self._latest.append(tau - coulomb * np.tanh(state.v / self._creep_speed) - viscous * state.v)
            self._posture = state.q
        self._sent = tau

    def _is_obeyed(self, effort: Array) -> bool:
        """Whether efforts (n,) [Nm] are those of the last command, as far as friction and sensors let one say.

        A controller that hangs goes on with an old command; what it is sent meanwhile does not hold the arm.
        """
        if self._sent is None:
            return True
        allowed = self._effort_error + self._robot.sensors.effort_relative_error * np.abs(effort)
        return bool((np.abs(effort - self._sent) <= allowed).all())

    def _store_unmodelled(self) -> None:
        """Store what the model lacks, as it was when the arm rested last: mostly what it carries."""
        settled = self.settled
        if settled is not None:
            self._unmodelled = settled - self._gravity(self._posture)

    @property
    def settled(self) -> Array | None:
        """Mean of the commands that have held the arm at rest, (n,) [Nm]; None where it has not rested long enough."""
        return np.mean(self._latest, axis=0) if len(self._latest) == self._latest.maxlen else None

    def start(self, q: Array) -> None:
        """Begin to hold the arm at ``q`` (n,) [rad].

        Where the arm has rested for a while, what balances it is the mean of the commands that held it there, whatever
        it carries. Else it is the model's gravity, with what it lacked where the arm rested last.
        """
        robot = self._robot
        self._target, self._sent = np.array(q), None
        self._gravity_there = self._gravity(q)
        self._store_unmodelled()
        settled = self.settled
        self._balance = self._gravity_there + self._unmodelled if settled is None else settled
        inertia = np.diag(pin.crba(robot.pin_model, robot.pin_model.createData(), q))
        self._inertia = inertia + robot.friction(robot.theta_nominal)[:, 2]
        self._latest.clear()

    def torque(self, state: ArmState | None) -> Array:
        """Return the whole torque that holds the arm, (n,) [Nm]; without a state what balances it where it was held."""
        limit = self._robot.limits.tau_max
        tau = self._balance
        if state is not None:
            rate = self._rate
            pull = np.clip(self._target - state.q, -_LARGEST_PULL, _LARGEST_PULL)
            feedback = rate**2 * pull - 2.0 * rate * state.v
            tau = tau + self._gravity(state.q) - self._gravity_there + self._inertia * feedback
        return np.clip(tau, -limit, limit)
