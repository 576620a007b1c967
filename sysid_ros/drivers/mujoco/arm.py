"""The simulated arm: MuJoCo physics behind the driver interface, in lock-step or paced by its user.

Time passes only in :meth:`MujocoArm.read`: each call but the first after ``connect`` simulates one period with the
commanded torque held. It reads no clock, so the same seed gives the same numbers at any speed. Stamps are simulated
time and start at 0 by default.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import (
    Arm,
    ArmError,
    ArmLost,
    ArmState,
    Array,
    InjectedFaults,
    Pacing,
    Truth,
    require_finite_command,
)
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.physics import ArmPhysics
from sysid_ros.drivers.mujoco.simulation import SensorSimulation, draw_truth, load_payload
from sysid_ros.drivers.velocity_estimate import VelocityEstimate, plan_velocity


@dataclass(frozen=True)
class MujocoSettings(Settings, library_only=True):
    """Settings of the simulation."""

    period: float = setting(0.001, "s", lower=1e-5, upper=0.01)
    """Duration of a cycle."""
    substeps: int = setting(2, "-", lower=1, upper=100)
    """Runge-Kutta steps per cycle; test/drivers/test_momentum_of_simulation.py has their accuracy."""
    noise: Noise = setting(Noise.UNIFORM)
    """How the sensors use their allowed errors."""
    seed: int = setting(0, "-", lower=0)
    """Seed of the sensor errors and dropped cycles."""
    brake_torque_factor: float = setting(2.0, "-", lower=0.0)
    """Torque of the holding brakes over the torque limit."""
    stiffness_share: float = setting(0.0, "-", lower=-1.0, upper=1.0)
    """Where the true stiffness of elastic joints is, from the softest to the stiffest that the robot file allows."""


class MujocoArm(Arm):
    """A simulated arm with hidden true parameters, another payload or faults on demand, and its true state.

    Before ``connect`` and after ``stop`` holding brakes are closed. ``connect`` opens them with the torque that
    balances gravity, as a vendor's position hold would hand over.

    Args:
        robot: The public data of the arm: kinematics, limits, sensors.
        theta: True parameters, (14 n,); the nominal ones if None.
        payload: True payload about the frame of the last joint, (10,); None for no payload.
        start: Start position, (n,) [rad]; home if None.
        settings: Settings of the simulation.

    Attributes:
        physics: Its physics.

    Raises:
        NotPhysicallyConsistent: A body cannot have its parameters.
    """

    is_simulated = True

    def __init__(
        self,
        robot: RobotModel,
        theta: Array | None = None,
        payload: Array | None = None,
        start: Array | None = None,
        settings: MujocoSettings | None = None,
    ):
        self.settings = settings or MujocoSettings()
        self.joint_names = robot.joint_names
        self.period = self.settings.period
        self.pacing = Pacing.CLIENT
        self._robot = robot
        self._theta = np.array(robot.theta_nominal if theta is None else theta, dtype=float)
        self._payload = None if payload is None else np.array(payload, dtype=float)
        self.physics = ArmPhysics(
            robot, self._theta, self._payload, self.period, self.settings.substeps, self.settings.stiffness_share
        )
        self._friction = self.physics.friction
        self._behind = 0.5 * robot.sensors.effort_friction  # of friction, which acts behind the sensor
        self.physics.place(robot.home if start is None else np.asarray(start))
        self._sensors = SensorSimulation(robot.sensors, self.settings.noise, self.settings.seed)
        is_difference = robot.sensors.velocity_is_difference
        self._velocity = VelocityEstimate(plan_velocity(robot, self.period), self.period) if is_difference else None
        self._fault_rng = np.random.default_rng((self.settings.seed, 1))
        self._faults = InjectedFaults()
        self._start_ns = self._cycle = 0
        self._is_first_read, self._is_connected = True, False
        self._last: ArmState | None = None
        self._frozen: dict[int, float] = {}
        self._held = self._push = np.zeros(robot.n)
        self._queue: deque[Array] = deque()
        self._close_brakes()

    def connect(self) -> None:
        """See :meth:`Arm.connect`. Also restores lost power."""
        if self._faults.power_loss:
            self.inject(replace(self._faults, power_loss=False))
        self.physics.halt()
        self.physics.set_friction_loss(self._friction[:, 0])
        self._are_brakes_closed = False
        self._held = self._clip(self.physics.static_torque())
        self._queue.clear()
        if self._velocity is not None:
            self._velocity.reset()
        self._is_connected = self._is_first_read = True

    def read(self) -> ArmState:
        """See :meth:`Arm.read`."""
        if not self._is_connected:
            raise ArmError("read() needs a connected arm; call connect() first")
        if self._is_first_read:
            has_friction = self._robot.sensors.effort_meaning.has_friction
            effort = self._held if has_friction else self._held - self._friction[:, 3]
        else:
            effort = self._advance()
        self._is_first_read = False
        if self._faults.power_loss:
            raise ArmLost("power is off, the brakes are closed")
        if self._is_dropped() and self._last is not None:
            return replace(self._last, ok=False)
        self._last = self._measure(effort)
        return self._last

    def command(self, tau: Array) -> None:
        """See :meth:`Arm.command`. Torques beyond the limits are clipped, as a drive would."""
        if not self._is_connected or self._are_brakes_closed:
            raise ArmError("command() needs a connected arm; call connect() first")
        require_finite_command(tau, self.joint_names)
        self._queue.append(self._clip(tau))
        while len(self._queue) > self._faults.command_delay:
            self._held = self._queue.popleft()

    def stop(self, reason: str) -> None:
        """See :meth:`Arm.stop`. Closes the brakes."""
        self._close_brakes()

    def close(self) -> None:
        """See :meth:`Arm.close`."""
        self._close_brakes()
        self._is_connected = False

    def set_payload(self, payload: Array | None) -> None:
        """Attach, change or (None) detach the payload at once; position and velocity stay.

        It is given by its true parameters about the frame of the last joint, (10,).

        Raises:
            NotPhysicallyConsistent: The last body cannot have such a payload.
        """
        values = None if payload is None else np.array(payload, dtype=float)
        self.physics.set_payload(values)
        self._payload = values

    def inject(self, faults: InjectedFaults) -> None:
        """Replace all injected faults; raises :class:`ParameterOutOfRange` for a joint that the arm does not have."""
        faults.require_joints(self.joint_names)
        self._faults = faults
        stuck = {self.joint_names.index(name) for name in faults.stuck_encoders}
        measured = self.physics.measured[0] if self._last is None else self._last.q
        self._frozen = {joint: self._frozen.get(joint, float(measured[joint])) for joint in stuck}
        if faults.power_loss:
            self._close_brakes()

    def push(self, torque: Array) -> None:
        """Apply external joint torques (n,) [Nm] from the next cycle on: a hand or a contact; zeros end them."""
        torque = np.array(torque, dtype=float)
        if torque.shape != (self.n,) or not np.isfinite(torque).all():
            raise ParameterOutOfRange("external torque [Nm]", torque, f"{self.n} finite numbers")
        self._push = torque

    def start_clock(self, stamp_ns: int) -> None:
        """Set the present time of the simulation [ns since the epoch]; before ``connect`` only."""
        if self._is_connected:
            raise ArmError("the clock cannot be set while the arm is connected")
        self._start_ns, self._cycle = stamp_ns, 0

    def truth(self) -> Truth:
        """Return the exact parameters and state."""
        payload = None if self._payload is None else self._payload.copy()
        return Truth(self._theta.copy(), payload, self._stamp_ns, self.physics.q, self.physics.v)

    @property
    def _stamp_ns(self) -> int:
        return self._start_ns + round(self._cycle * self.period * 1e9)

    def _advance(self) -> Array:
        """Simulate one period and return the true effort of its sensor, (n,) [Nm]."""
        physics, sensors = self.physics, self._robot.sensors
        meaning = sensors.effort_meaning
        state = None if meaning.has_armature else (physics.q, physics.v, physics.motor_speed)
        self._cycle += 1
        motor = physics.advance(self._held, self._push, not self._are_brakes_closed)
        if state is None:
            return motor
        q, v, speed = state
        rotor = self._friction[:, 2] * (physics.motor_speed - speed) / self.period
        if meaning.has_friction:
            return motor - rotor
        if sensors.effort_is_held:
            link = physics.dynamics.mean_torque((q, v), (physics.q, physics.v), self.period) - self._push
            return link + self._behind * (motor - rotor - self._friction[:, 3] - link)
        return physics.dynamics.torque(physics.q, physics.v, physics.acceleration()) - self._push

    def _measure(self, effort: Array) -> ArmState:
        stamp, q, v, tau = self._sensors.measure(self._stamp_ns, *self.physics.measured, effort)
        for joint, position in self._frozen.items():
            q[joint], v[joint] = position, 0.0
        is_exact = True
        if self._velocity is not None:
            v = self._velocity.update(stamp, q)
            is_exact = self._velocity.is_exact
        for name in self._faults.nan_torques:
            tau[self.joint_names.index(name)] = np.nan
        for name in self._faults.nan_positions:
            q[self.joint_names.index(name)] = np.nan
        return ArmState(stamp, q, v, tau, is_exact=is_exact)

    def _is_dropped(self) -> bool:
        faults = self._faults
        if faults.drop_cycles:
            self._faults = replace(faults, drop_cycles=faults.drop_cycles - 1)
            return True
        return faults.drop_probability > 0.0 and self._fault_rng.random() < faults.drop_probability

    def _close_brakes(self) -> None:
        self._are_brakes_closed = True
        self._held = np.zeros(self.n)
        self._queue.clear()
        brake = self.settings.brake_torque_factor * self._robot.limits.tau_max
        self.physics.set_friction_loss(np.maximum(brake, self._friction[:, 0]))

    def _clip(self, tau: Array) -> Array:
        limit = self._robot.limits.tau_max
        return np.minimum(np.maximum(tau, -limit), limit)


@dataclass(frozen=True)
class MockSettings:
    """The simulated arm of ``mode:=mock``."""

    truth: str = "random"
    """Choice of the arm's own parameters, one of :data:`sysid_ros.drivers.mujoco.simulation.TRUTHS`."""
    payload: str = "none"
    """Name of a payload in ``config/payloads.yaml``, a mass [kg], or ``none``."""
    noise: str = Noise.UNIFORM.value
    """Name of a :class:`Noise`."""
    seed: int = 0
    """Seed of truth and noise."""
    gripper: str = ""
    """State of its gripper, as the settings of the robot name it; empty for any of them."""


def build_mock_arm(robot: RobotModel, settings: MockSettings) -> MujocoArm:
    """Build a simulated arm with a hidden truth."""
    return MujocoArm(
        robot,
        theta=draw_truth(robot, settings.truth, settings.seed, settings.gripper),
        payload=load_payload(robot, settings.payload),
        settings=MujocoSettings(noise=Noise(settings.noise), seed=settings.seed),
    )
