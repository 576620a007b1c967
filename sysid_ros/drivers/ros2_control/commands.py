"""Effort commands of an arm under ros2_control: what the arm adds to them, their order, and how late they are."""

from __future__ import annotations

from collections import deque

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmState, Array
from sysid_ros.drivers.arm_dynamics import ArmDynamics
from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings, TorqueCommand
from sysid_ros.drivers.ros2_control.states import JointLink, JointStream, Measured

_LISTENER_PERIOD = 0.5
"""How often subscribers and publishers of commands are counted [s]."""
_POSITION_STEP = 1.5
"""Largest step of the position sent with torques, in steps at the speed limit."""


class Compensation:
    """What the arm or its controller adds to effort commands.

    Args:
        robot: The arm.
        settings: What an effort command is, and the load the arm compensates.
    """

    def __init__(self, robot: RobotModel, settings: Ros2ControlSettings):
        self._kind = settings.torque_command
        self._own = ArmDynamics(robot, robot.theta_nominal, settings.controller_load)
        self._nominal = ArmDynamics(robot, robot.theta_nominal, robot.payload_prior.nominal)
        self._offset = robot.friction(robot.theta_nominal)[:, 3]

    def torque(self, q: Array, v: Array) -> Array:
        """Return what the arm adds, (n,) [Nm], at positions [rad] and velocities [rad/s]."""
        if self._kind is TorqueCommand.OVERLAY:
            return self._own.torque(q, v, np.zeros_like(v))
        if self._kind is TorqueCommand.OVERLAY_GRAVITY:
            return self._own.gravity(q)
        return np.zeros_like(q)

    def balance(self, q: Array) -> Array:
        """Return the whole torque that balances the arm as far as is known, (n,) [Nm]; an overlay is nothing then."""
        if self._kind is not TorqueCommand.FULL:
            return self._own.gravity(q)
        return self._nominal.gravity(q) + self._offset


class CommandSender:
    """Turns whole torques into effort commands.

    Args:
        robot: Limits of speed.
        settings: Period.
        compensation: What the arm adds.

    Attributes:
        order: Index of the model's joint for each entry of a command, (n,).
        position: Position sent with the last torques, (n,) [rad].
        taken_at: When the state was taken that is not answered yet [s]; None where there is none.
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
        """Send whole torques, (n,) [Nm], as the arm wants them in a state."""
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
        """Describe how soon commands have answered states lately, from taking the one to publishing the other."""
        if not self._reactions:
            return "unknown"
        return " / ".join(f"{1e6 * value:.0f}" for value in np.quantile(self._reactions, (0.5, 0.99, 1.0)))


class DelayMonitor:
    """Finds states that are late, missing or waiting, and commands that nobody takes.

    Args:
        settings: Limits.

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
        """Note how many states were waiting when one was taken."""
        self._waiting.append(waiting)
        self.most_waiting = max(self.most_waiting, waiting)

    def find_faults(self, link: JointLink, stream: JointStream, measured: Measured) -> tuple[str, ...]:
        """Return what is wrong, in words; to be called once per cycle under control."""
        faults, settings = [], self._settings
        delay = measured.gap - settings.period
        if delay > settings.late_limit:
            faults.append(f"a state came {1e3 * delay:.1f} ms after it was due")
        share = stream.missing_share
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
