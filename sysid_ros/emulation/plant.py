"""What the arms behind emulated controllers have in common: physics with a hidden truth, and holding a posture."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import pinocchio as pin

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.arm_dynamics import ArmDynamics
from sysid_ros.drivers.mujoco.simulation import Noise, SensorSimulation, build_mujoco_model, set_inertial_parameters

PERIOD = 0.001
"""Period of an emulated controller's own loop [s]."""
_SUBSTEPS = 2
_STOP_MARGIN = np.radians(3.0)
"""How far the mechanical stops are beyond the limits of position [rad]: controllers watch those."""
_HOLD_RATE = 40.0
"""Natural frequency of the position controller [rad/s]."""


@dataclass(frozen=True)
class PlantSettings:
    """How an arm is simulated.

    Attributes:
        noise: How the sensors use their allowed errors.
        seed: Of their errors.
        measured_sign: Sign of the torque that is reported, 1 or -1; -1 is the reaction, as KUKA and Kinova report it.
        command_sign: Sign with which torques are applied, 1 or -1.
    """

    noise: Noise = Noise.UNIFORM
    seed: int = 0
    measured_sign: float = -1.0
    command_sign: float = 1.0

    def __post_init__(self) -> None:
        for name in ("measured_sign", "command_sign"):
            if getattr(self, name) not in (-1.0, 1.0):
                raise ParameterOutOfRange(name, getattr(self, name), "-1 or 1")


class EmulatedPlant:
    """One simulated arm; what its controller does with it is up to those who derive from it.

    Args:
        robot: What is known of the arm.
        theta: Its true parameters, (14 n,).
        payload: Its true payload about the frame of the last joint, (10,); None for none.
        settings: How it is simulated.
    """

    def __init__(self, robot: RobotModel, theta: Array, payload: Array | None, settings: PlantSettings):
        self.robot, self.theta, self.settings = robot, np.array(theta, dtype=float), settings
        self._sensors = SensorSimulation(robot.sensors, settings.noise, settings.seed)
        self._is_link_side = robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE
        self._friction = robot.friction(self.theta)
        self._armature = robot.friction(robot.theta_nominal)[:, 2]
        self._model = build_mujoco_model(robot, self.theta, payload, PERIOD / _SUBSTEPS)
        self._model.jnt_range[:] += _STOP_MARGIN * np.array([-1.0, 1.0])
        self._data = mujoco.MjData(self._model)
        self._data.qpos[:] = robot.home
        self._pin_data = robot.pin_model.createData()
        self.set_payload(payload)

    def set_payload(self, payload: Array | None) -> None:
        """Attaches, changes or (None) detaches what the arm holds; the controller is not told.

        Raises:
            NotPhysicallyConsistent: The last body cannot have such a payload.
        """
        set_inertial_parameters(self._model, self.robot, self.theta, payload)
        self.payload = None if payload is None else np.array(payload, dtype=float)
        self._true = ArmDynamics(self.robot, self.theta, payload)

    def place(self, q: Array) -> None:
        """Puts the arm somewhere at rest: where brakes held it while its controller was off.

        Args:
            q: Positions, (n,) [rad].
        """
        self._data.qpos[:], self._data.qvel[:] = q, 0.0

    @property
    def q(self) -> Array:
        """True positions, (n,) [rad]."""
        return np.array(self._data.qpos)

    @property
    def v(self) -> Array:
        """True velocities, (n,) [rad/s]."""
        return np.array(self._data.qvel)

    def _step(self, torque: Array) -> None:
        """Simulates one period with a motor torque, (n,) [Nm]."""
        self._data.qfrc_applied[:] = torque - self._friction[:, 3]
        mujoco.mj_step(self._model, self._data, _SUBSTEPS)

    def _holding_torque(self, q: Array, v: Array, q_hold: Array) -> Array:
        """Torque of a position controller, (n,) [Nm]; with true gravity, which its integral part would have found."""
        feedback = _HOLD_RATE**2 * (q_hold - q) - 2.0 * _HOLD_RATE * v
        return self._true.gravity(q) + self._friction[:, 3] + self._inertia(q) * feedback

    def _inertia(self, q: Array) -> Array:
        """Diagonal of the nominal inertia matrix with armature, (n,) [kg m^2]."""
        return np.diag(pin.crba(self.robot.pin_model, self._pin_data, q)) + self._armature
