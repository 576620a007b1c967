"""The inner loop of the emulated controller at 1 kHz: position hold, joint impedance, overlaid torques or wrench.

It compensates gravity and Coriolis torques of *its* model (the published parameters and the configured load), which is
not the truth: the true parameters are drawn inside the robot's box, and the true load may differ from the configured
one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.drivers.arm import ArmState, Array
from sysid_ros.emulators.arguments import Compensation
from sysid_ros.emulators.plant import PERIOD, EmulatedArm

_FRICTION_SPEED = 0.02
_SINGULAR = 1e-3
"""Share of the largest singular value below which the Jacobian does not determine a force in that direction [-]."""
_SAME_POSITION = 1e-4
"""A position sent that is nearer to the measured one than this switches friction compensation off [rad]."""


@dataclass(frozen=True)
class InnerLoopSettings(Settings, library_only=True):
    """The joint impedance of the controller."""

    compensation: Compensation = setting(Compensation.MODEL)
    """Compensation added to the client's torques."""
    friction_compensation: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Share of the friction it compensates while it is switched on."""
    stiffness: float = setting(0.0, "Nm/rad", lower=0.0, upper=5000.0)
    """Stiffness of the joint impedance."""
    damping_ratio: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Damping of the joint impedance over the critical one."""


@dataclass(frozen=True)
class Overlay:
    """Command of the inner loop for the next period."""

    q: Array
    """Commanded positions, (7,) [rad]."""
    is_compliant: bool = False
    """Whether the arm is a joint impedance around ``q``; else it is held there."""
    tau: Array | None = None
    """Torques to lay over, (7,) [Nm]."""
    wrench: Array | None = None
    """Force and torque on the flange to lay over, in the base frame, (6,) [N, Nm]."""


@dataclass(frozen=True)
class LbrState:
    """Measured and computed values of the controller at the end of a period. Arrays are (7,)."""

    measured: ArmState
    """Measurements of the sensors."""
    tau_external: Array
    """Joint torques the controller's model cannot explain, positive in joint direction [Nm]."""
    tau_commanded: Array
    """Client's torques that are applied [Nm]."""
    flange: Array
    """Measured position of the flange [mm] and its quaternion (w, x, y, z), in the base frame, (7,)."""
    force: Array
    """Force and torque on the flange that fit the external torques best, in the base frame, (6,) [N, Nm]."""


class InnerLoop:
    """The controller's inner loop, which moves the arm; its model has nominal parameters and a load, (10,) or None."""

    def __init__(self, arm: EmulatedArm, load: Array | None = None, settings: InnerLoopSettings | None = None):
        robot = arm.robot
        self.arm, self.load, self.settings = arm, load, settings or InnerLoopSettings()
        self._model = ArmDynamics(robot, robot.theta_nominal, load)
        self._pin_data = robot.pin_model.createData()
        self._flange = robot.pin_model.getFrameId(robot.flange_frame)

    def advance(self, overlay: Overlay, cycles: int) -> LbrState:
        """Simulate some cycles with the same commands, and measure."""
        arm = self.arm
        v_before = arm.v
        applied = np.zeros(arm.robot.n) if overlay.tau is None else np.array(overlay.tau)
        measured = arm.measure(arm.advance(lambda q, v: arm.clip(self._torque(q, v, overlay, applied)), cycles))
        acceleration = (arm.v - v_before) / (cycles * PERIOD)
        effort = arm.settings.measured_sign * measured.tau
        external = self._model.torque(arm.q, arm.v, acceleration) - effort
        jacobian, pose = self._jacobian(measured.q), self._pin_data.oMf[self._flange]
        flange = np.concatenate([1e3 * pose.translation, np.roll(pin.Quaternion(pose.rotation).coeffs(), 1)])
        force = np.linalg.lstsq(jacobian.T, external, rcond=_SINGULAR)[0]
        return LbrState(measured, external, applied, flange, force)

    def _torque(self, q: Array, v: Array, overlay: Overlay, applied: Array) -> Array:
        arm, settings = self.arm, self.settings
        if not overlay.is_compliant:
            return arm.holding_torque(q, v, overlay.q)
        torque = arm.settings.command_sign * applied
        if settings.compensation is Compensation.MODEL:
            torque = torque + self._model.torque(q, v, np.zeros_like(v))
        if settings.stiffness or settings.damping_ratio:
            damping = 2.0 * settings.damping_ratio * np.sqrt(max(settings.stiffness, 1.0) * arm.inertia(q))
            torque = torque + settings.stiffness * (overlay.q - q) - damping * v
        if overlay.wrench is not None:
            torque = torque + self._jacobian(q).T @ overlay.wrench
        is_on = np.abs(overlay.q - q) > _SAME_POSITION
        friction = arm.friction[:, 0] * np.tanh(v / _FRICTION_SPEED) + arm.friction[:, 1] * v
        return torque + settings.friction_compensation * is_on * friction

    def _jacobian(self, q: Array) -> Array:
        """Return the Jacobian of the flange, axes of the base, (6, 7)."""
        model, frame = self.arm.robot.pin_model, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        return pin.computeFrameJacobian(model, self._pin_data, q, self._flange, frame)
