"""Effort commands of an arm under ros2_control: the arm's own torques, the order, the delay, the hold.

An effort controller repeats the last command for ever, so "no more commands" is no stop. If the loop has released the
arm and no other controller holds it, the driver holds it, softly, as long as it runs; without measurements by torques
that balance the arm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import pinocchio as pin

from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmState, Array
from sysid_ros.drivers.modes import TorqueCommand
from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings
from sysid_ros.drivers.ros2_control.states import JointLink, JointStream

_LISTENER_PERIOD = 0.5
"""How often subscribers and publishers of commands are counted [s]."""
_POSITION_STEP = 1.5
"""Largest step of the position sent with torques, in steps at the speed limit."""


class Compensation:
    """Torques that the arm or its controller adds to effort commands."""

    def __init__(self, robot: RobotModel, settings: Ros2ControlSettings):
        self._kind = settings.torque_command
        self._own = ArmDynamics(robot, robot.theta_nominal, settings.controller_load)
        self._nominal = ArmDynamics(robot, robot.theta_nominal, robot.payload_prior.nominal)
        self._offset = robot.friction(robot.theta_nominal)[:, 3]

    def torque(self, q: Array, v: Array) -> Array:
        """Return the torque added by the arm, (n,) [Nm], at positions [rad] and velocities [rad/s]."""
        if self._kind is TorqueCommand.OVERLAY:
            return self._own.torque(q, v, np.zeros_like(v))
        if self._kind is TorqueCommand.OVERLAY_GRAVITY:
            return self._own.gravity(q)
        return np.zeros_like(q)

    def balance(self, q: Array) -> Array:
        """Return the whole torque that balances the arm by its model, (n,) [Nm]; an overlay is then zero."""
        if self._kind is not TorqueCommand.FULL:
            return self._own.gravity(q)
        return self._nominal.gravity(q) + self._offset


class CommandSender:
    """Turns whole torques into effort commands.

    Attributes:
        order: Index of the model's joint for each entry of a command, (n,).
        position: Position sent with the last torques, (n,) [rad].
        taken_at: Time of the state that is not answered yet [s]; None without one.
        count: Commands sent.
        late_answers: Commands that left later than a period after the state they answer.
    """

    def __init__(self, robot: RobotModel, settings: Ros2ControlSettings, compensation: Compensation):
        self._compensation, self._period = compensation, settings.period
        self._step = _POSITION_STEP * robot.limits.v_max * settings.period
        self.order: tuple[int, ...] = tuple(range(robot.n))
        self.position = np.array(robot.home)
        self.taken_at: float | None = None
        self.count = self.late_answers = 0
        self._reactions: deque[float] = deque(maxlen=5000)

    def send(self, link: JointLink, tau: Array, state: ArmState) -> None:
        """Send whole torques, (n,) [Nm], as the arm expects them in a state."""
        command = tau - self._compensation.torque(state.q, state.v)
        self.position = self.position + np.clip(state.q - self.position, -self._step, self._step)
        order = list(self.order)
        link.send(command[order].tolist(), self.position[order].tolist())
        self.count += 1
        if self.taken_at is not None:
            reaction = link.now() - self.taken_at
            self._reactions.append(reaction)
            self.late_answers += reaction > self._period
            self.taken_at = None

    def send_zero(self, link: JointLink) -> None:
        """Send commands of zero [Nm]."""
        link.send([0.0] * len(self.order), self.position[list(self.order)].tolist())

    def describe_reactions(self) -> str:
        """Describe the latest reaction times, from receiving a state to publishing its command."""
        if not self._reactions:
            return "unknown"
        return " / ".join(f"{1e6 * value:.0f}" for value in np.quantile(self._reactions, (0.5, 0.99, 1.0)))


class DelayMonitor:
    """Finds states that are late, missing or waiting, and commands without a receiver.

    Attributes:
        most_waiting: Largest number of states that waited.
    """

    def __init__(self, settings: Ros2ControlSettings):
        self._settings = settings
        self._waiting: deque[int] = deque(maxlen=20)
        self.most_waiting = 0
        self._cycles = 0
        self._listener_problem: str | None = None

    def update(self, waiting: int) -> None:
        """Record how many states were waiting when one was taken."""
        self._waiting.append(waiting)
        self.most_waiting = max(self.most_waiting, waiting)

    def find_faults(self, link: JointLink, stream: JointStream) -> tuple[str, ...]:
        """Return faults, in words; called once per cycle under control."""
        faults, settings = [], self._settings
        delay = stream.stamps.gap - settings.period
        if delay > settings.late_limit:
            faults.append(f"a state came {1e3 * delay:.1f} ms after it was due")
        share = stream.stamps.missing_share
        if share > settings.missing_share:
            faults.append(f"{100.0 * share:.0f} % of the states of the last second are missing")
        lag = min(self._waiting) * settings.period
        if len(self._waiting) == self._waiting.maxlen and lag > settings.late_limit:
            faults.append(f"states wait for {1e3 * lag:.1f} ms: the loop is too slow for their rate")
        self._cycles += 1
        if self._cycles % max(1, round(_LISTENER_PERIOD / settings.period)) == 0:
            self._listener_problem = link.find_command_problem()
        if self._listener_problem is not None:
            faults.append(self._listener_problem)
        return tuple(faults)


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
    """Averages the torques that have held the arm, and holds it with them after the loop has released it.

    ``gravity`` is the torque that balances the arm by its model, of positions, (n,) -> (n,) [Nm].
    """

    def __init__(self, robot: RobotModel, period: float, gravity: Callable[[Array], Array]):
        self._robot, self._gravity = robot, gravity
        friction, sensors = robot.friction(robot.theta_nominal), robot.sensors
        self._friction = friction[:, :2].T
        self._effort_error = friction[:, 0] + np.abs(friction[:, 3]) + sensors.lasting_error  # it rests
        self._sent: Array | None = None
        self._creep_speed = _CREEP_SPEED + sensors.velocity_error
        self._rest_speed = _REST_SPEED + sensors.velocity_error
        self._rate = min(_HOLD_RATE, _RATE_TIMES_PERIOD / period)
        self._latest: deque[Array] = deque(maxlen=max(5, round(_REST_SECONDS / period)))
        self._unmodelled, self._posture = np.zeros(robot.n), np.array(robot.home)
        self._target, self._inertia = np.array(robot.home), np.ones(robot.n)
        self._balance = self._gravity_there = np.zeros(robot.n)

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
        """Whether efforts (n,) [Nm] match the last command, within friction and sensor errors.

        A controller that hangs repeats an old command; newer ones do not hold the arm.
        """
        if self._sent is None:
            return True
        allowed = self._effort_error + self._robot.sensors.effort_relative_error * np.abs(effort)
        return bool((np.abs(effort - self._sent) <= allowed).all())

    def _store_unmodelled(self) -> None:
        """Store the error of the model at the last rest: mostly the payload."""
        settled = self.settled
        if settled is not None:
            self._unmodelled = settled - self._gravity(self._posture)

    @property
    def settled(self) -> Array | None:
        """Mean of the commands that have held the arm at rest, (n,) [Nm]; None where it has not rested long enough."""
        return np.mean(self._latest, axis=0) if len(self._latest) == self._latest.maxlen else None

    def start(self, q: Array) -> None:
        """Begin to hold the arm at ``q`` (n,) [rad].

        After a long enough rest, the balance is the mean of the commands that held it there, whatever its payload. Else
        it is the model's gravity, with its error at the last rest.
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
        """Return the whole torque that holds the arm, (n,) [Nm]; without a state the balance at the held position."""
        limit = self._robot.limits.tau_max
        tau = self._balance
        if state is not None:
            rate = self._rate
            pull = np.clip(self._target - state.q, -_LARGEST_PULL, _LARGEST_PULL)
            feedback = rate**2 * pull - 2.0 * rate * state.v
            tau = tau + self._gravity(state.q) - self._gravity_there + self._inertia * feedback
        return np.clip(tau, -limit, limit)
