"""The arm behind every emulated controller: physics with a hidden truth, sensors, and holding a posture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.drivers.arm import ArmState, Array
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.physics import ArmPhysics
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

PERIOD = 0.001
"""Period of an emulated controller's own loop [s]."""
_SUBSTEPS = 2
_STOP_MARGIN = np.radians(3.0)
"""How far the mechanical stops are beyond the limits of position [rad]: controllers monitor those."""
_HOLD_RATE = 40.0
"""Natural frequency of the position controller [rad/s]."""


@dataclass(frozen=True)
class PlantSettings(Settings, library_only=True):
    """Settings of the simulation of an arm."""

    noise: Noise = setting(Noise.UNIFORM)
    """How the sensors use their allowed errors."""
    seed: int = setting(0, "-", lower=0)
    """Of their errors."""
    measured_sign: float = setting(-1.0, "-", choices=(-1.0, 1.0))
    """Sign of the torque that is reported; -1 is the reaction, as KUKA and Kinova report it."""
    command_sign: float = setting(1.0, "-", choices=(-1.0, 1.0))
    """Sign with which torques are applied."""
    stiffness_share: float = setting(0.0, "-", lower=-1.0, upper=1.0)
    """Where the true stiffness of elastic joints is, from the softest to the stiffest that the robot file allows."""


class EmulatedArm:
    """One simulated arm, moved by its controller, with true parameters (14 n,) and payload (10,) or None.

    It starts at a time [ns]; the payload is about the frame of the last joint.
    """

    def __init__(
        self,
        robot: RobotModel,
        theta: Array,
        payload: Array | None = None,
        settings: PlantSettings | None = None,
        stamp_ns: int = 0,
    ):
        self.robot, self.theta = robot, np.array(theta, dtype=float)
        self.settings = settings = settings or PlantSettings()
        self._start_ns, self._periods = stamp_ns, 0
        self._sensors = SensorSimulation(robot.sensors, settings.noise, settings.seed)
        self.is_link_side = robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE
        self._armature = robot.friction(robot.theta_nominal)[:, 2]
        self._physics = ArmPhysics(robot, self.theta, payload, PERIOD, _SUBSTEPS, settings.stiffness_share)
        self.friction = self._physics.friction
        self._physics.widen_stops(_STOP_MARGIN)
        self._pin_data = robot.pin_model.createData()
        self.set_payload(payload)
        self.place(robot.home)

    def set_payload(self, payload: Array | None) -> None:
        """Attach, change or (None) detach the load, unknown to the controller.

        Raises:
            NotPhysicallyConsistent: The last body cannot have such a payload.
        """
        self._physics.set_payload(payload)
        self.payload = None if payload is None else np.array(payload, dtype=float)

    def place(self, q: Array) -> None:
        """Put the arm at rest at positions (n,) [rad], where brakes held it while its controller was off."""
        self._physics.place(q)

    @property
    def dynamics(self) -> ArmDynamics:
        """Torques of the links with their true parameters."""
        return self._physics.dynamics

    @property
    def q(self) -> Array:
        """True positions where they are measured, (n,) [rad]: of the links, or of elastic joints' motors."""
        return self._physics.measured[0]

    @property
    def v(self) -> Array:
        """True velocities there, (n,) [rad/s]."""
        return self._physics.measured[1]

    @property
    def stamp_ns(self) -> int:
        """Simulated time [ns]."""
        return self._start_ns + round(self._periods * PERIOD * 1e9)

    def advance(self, torque: Callable[[Array, Array], Array], periods: int = 1) -> Array:
        """Simulate some periods of a controller's inner loop, and return the mean exact torque at the sensors.

        It is in joint direction, (n,) [Nm]. ``torque`` is the motors', of positions and velocities where they are
        measured, (n,), (n,) -> (n,) [Nm]; called once per period.
        """
        physics, applied = self._physics, np.zeros(self.robot.n)
        before = (physics.q, physics.v)
        for _ in range(periods):
            applied += physics.advance(torque(*physics.measured)) / periods
        self._periods += periods
        if not self.is_link_side:
            return applied
        return physics.dynamics.mean_torque(before, (physics.q, physics.v), periods * PERIOD)

    def clip(self, tau: Array) -> Array:
        """Return torques within the limits of the robot file, (n,) [Nm]."""
        limit = self.robot.limits.tau_max
        return np.clip(tau, -limit, limit)

    def measure(self, tau: Array) -> ArmState:
        """Measure now, torques with the reported sign; ``tau`` (n,) [Nm] is the last result of :meth:`advance`."""
        stamp, q, v, measured = self._sensors.measure(self.stamp_ns, *self._physics.measured, tau)
        return ArmState(stamp, q, v, self.settings.measured_sign * measured)

    def holding_torque(self, q: Array, v: Array, q_hold: Array) -> Array:
        """Return the torque of a position controller, (n,) [Nm].

        It knows the true gravity, which the integral part of a real one would have found.
        """
        feedback = _HOLD_RATE**2 * (q_hold - q) - 2.0 * _HOLD_RATE * v
        return self.dynamics.gravity(q) + self.friction[:, 3] + self.inertia(q) * feedback

    def inertia(self, q: Array) -> Array:
        """Return the diagonal of the nominal inertia matrix with armature, (n,) [kg m^2]."""
        return np.diag(pin.crba(self.robot.pin_model, self._pin_data, q)) + self._armature
