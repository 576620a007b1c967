"""The arm behind the emulated controller: MuJoCo physics, and the controller's own inner loop at 1 kHz.

The inner loop compensates gravity and Coriolis torques of *its* model (the published parameters and the load that is
configured), which is not the truth: the true parameters are drawn inside the robot's box, and what the arm holds need
not be what is configured. On top of that it holds positions, or is a joint impedance, or lays a wrench over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pinocchio as pin

from sysid_ros.core.common.errors import require_ranges
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.arm_dynamics import ArmDynamics
from sysid_ros.emulation import plant as emulated_plant
from sysid_ros.emulation.plant import PERIOD, EmulatedPlant

_FRICTION_SPEED = 0.02
_SAME_POSITION = 1e-4
"""A position sent that is nearer to the measured one than this switches friction compensation off [rad]."""


_RANGES = {"friction_compensation": (0.0, 1.0), "stiffness": (0.0, 5000.0), "damping_ratio": (0.0, 1.0)}


class Compensation(Enum):
    """What the controller adds to the client's torques: gravity and Coriolis torques of its model, or nothing."""

    MODEL = "model"
    NONE = "none"


@dataclass(frozen=True)
class PlantSettings(emulated_plant.PlantSettings):
    """How arm and inner loop are simulated.

    Attributes:
        compensation: What the controller adds to the client's torques.
        friction_compensation: Share of the friction it compensates while it is switched on [-], 0 to 1.
        stiffness: Stiffness of the joint impedance [Nm/rad].
        damping_ratio: Damping of the joint impedance over the critical one [-].
    """

    compensation: Compensation = Compensation.MODEL
    friction_compensation: float = 0.0
    stiffness: float = 0.0
    damping_ratio: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_ranges(self, _RANGES)


@dataclass(frozen=True)
class Overlay:
    """What the inner loop is told for the next period.

    Attributes:
        q: Commanded positions, (7,) [rad].
        is_compliant: Whether the arm is a joint impedance around ``q``; else it is held there.
        tau: Torques to lay over, (7,) [Nm].
        wrench: Force and torque on the flange to lay over, in the base frame, (6,) [N, Nm].
    """

    q: Array
    is_compliant: bool = False
    tau: Array | None = None
    wrench: Array | None = None


@dataclass(frozen=True)
class PlantState:
    """What the controller measures and computes at the end of a period. Arrays are (7,).

    Attributes:
        stamp_ns: When [ns].
        q: Measured positions [rad].
        tau: Measured torques with the sign that is reported [Nm].
        tau_external: Joint torques the controller's model cannot explain, positive in joint direction [Nm].
        tau_commanded: Client's torques that are applied [Nm].
    """

    stamp_ns: int
    q: Array
    tau: Array
    tau_external: Array
    tau_commanded: Array


class EmulatedArm(EmulatedPlant):
    """One simulated arm with the inner loop of its controller.

    Args:
        robot: What is known of the arm; the controller's model has its nominal parameters.
        theta: True parameters, (14 n,).
        payload: True payload about the frame of the last joint, (10,); None for none.
        load: Load that is configured on the controller, (10,); None for none.
        settings: How it is simulated.
        stamp_ns: Time of its start [ns].
    """

    def __init__(
        self,
        robot: RobotModel,
        theta: Array,
        payload: Array | None = None,
        load: Array | None = None,
        settings: PlantSettings | None = None,
        stamp_ns: int = 0,
    ):
        super().__init__(robot, theta, payload, settings or PlantSettings())
        self._own = ArmDynamics(robot, robot.theta_nominal, load)
        self._load = load
        self._flange = robot.pin_model.getFrameId(robot.flange_frame)
        self._stamp_ns = stamp_ns

    @property
    def stamp_ns(self) -> int:
        """Simulated time [ns]."""
        return self._stamp_ns

    def advance(self, overlay: Overlay, cycles: int) -> PlantState:
        """Simulates some cycles of the inner loop with the same commands, and measures.

        Args:
            overlay: What the inner loop is told.
            cycles: Number of its cycles.
        """
        before = (self.q, self.v)
        applied = np.zeros(self.robot.n) if overlay.tau is None else np.array(overlay.tau)
        limit = self.robot.limits.tau_max
        for _ in range(cycles):
            torque = self._inner_torque(self.q, self.v, overlay, applied)
            self._step(np.clip(torque, -limit, limit))
        self._stamp_ns += round(cycles * PERIOD * 1e9)
        return self._measure(before, cycles * PERIOD, applied)

    def _inner_torque(self, q: Array, v: Array, overlay: Overlay, applied: Array) -> Array:
        settings = self.settings
        if not overlay.is_compliant:
            return self._holding_torque(q, v, overlay.q)
        torque = settings.command_sign * applied
        if settings.compensation is Compensation.MODEL:
            torque = torque + self._own.torque(q, v, np.zeros_like(v))
        if settings.stiffness or settings.damping_ratio:
            damping = 2.0 * settings.damping_ratio * np.sqrt(max(settings.stiffness, 1.0) * self._inertia(q))
            torque = torque + settings.stiffness * (overlay.q - q) - damping * v
        if overlay.wrench is not None:
            torque = torque + self._jacobian(q).T @ overlay.wrench
        is_on = np.abs(overlay.q - q) > _SAME_POSITION
        friction = self._friction[:, 0] * np.tanh(v / _FRICTION_SPEED) + self._friction[:, 1] * v
        return torque + settings.friction_compensation * is_on * friction

    def _measure(self, before: tuple[Array, Array], period: float, applied: Array) -> PlantState:
        q, v = self.q, self.v
        effort = self._true.mean_torque(before, (q, v), period)
        stamp, position, _, effort = self._sensors.measure(self._stamp_ns, q, v, effort)
        acceleration = (v - before[1]) / period
        external = self._own.torque(q, v, acceleration) - effort
        return PlantState(stamp, position, self.settings.measured_sign * effort, external, applied)

    def _jacobian(self, q: Array) -> Array:
        """Jacobian of the flange, axes of the base, (6, 7)."""
        model, frame = self.robot.pin_model, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        return pin.computeFrameJacobian(model, self._pin_data, q, self._flange, frame)
