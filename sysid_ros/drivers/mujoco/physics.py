"""The moving parts of a simulated arm: links and, with elastic joints, motors behind springs; no sensors, no driver."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.common.optional import optional_module
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import JointElasticity, PositionSide, RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.mujoco.simulation import build_mujoco_model, set_inertial_parameters

mujoco = optional_module("mujoco")

_PHASE = 0.8
"""Longest step of the integration in terms of the phase of the fastest oscillation [rad]."""
_MOST_SUBSTEPS = 50


class ArmPhysics:
    """An arm driven by the torques of its motors.

    Rigid joints are integrated by MuJoCo alone. With elastic joints the inner torque loop and the lag of the actuators
    act between the steps, so they are sampled with the step of the integration, as in a real drive.

    Args:
        robot: The arm; its joints are elastic where it has an elasticity.
        theta: True parameters, (14 n,).
        payload: True payload about the frame of the last joint, (10,); None for none.
        period: Time of :meth:`advance` [s].
        substeps: Least number of integration steps in it.
        stiffness_share: Where in its range the true stiffness is, from -1 to 1.

    Attributes:
        dynamics: Torques of the links.
        friction: True friction of the joints, (n, 4).

    Raises:
        NotPhysicallyConsistent: A body cannot have its parameters.
    """

    def __init__(
        self,
        robot: RobotModel,
        theta: Array,
        payload: Array | None,
        period: float,
        substeps: int = 2,
        stiffness_share: float = 0.0,
    ):
        self._robot, self._theta, self._period = robot, np.array(theta, dtype=float), period
        self.friction = robot.friction(self._theta)
        elasticity = self._elasticity = robot.elasticity and robot.elasticity.within(stiffness_share)
        self._n, self._substeps = robot.n, max(substeps, self._count_substeps())
        self._step = period / self._substeps
        self._model = build_mujoco_model(robot, self._theta, payload, self._step, elasticity)
        self._data = mujoco.MjData(self._model)
        self._motors = slice(0, robot.n) if elasticity is None else slice(robot.n, 2 * robot.n)
        measures_motors = elasticity is None or elasticity.position_side is PositionSide.MOTOR
        self._measured = self._motors if measures_motors else slice(0, robot.n)
        self._applied = np.zeros(robot.n)
        self.set_payload(payload)

    @property
    def q(self) -> Array:
        """Positions of the links, (n,) [rad]."""
        return np.array(self._data.qpos[: self._n])

    @property
    def v(self) -> Array:
        """Velocities of the links, (n,) [rad/s]."""
        return np.array(self._data.qvel[: self._n])

    @property
    def measured(self) -> tuple[Array, Array]:
        """Positions [rad] and velocities [rad/s] on the side of the gears at which they are measured, (n,) each."""
        return np.array(self._data.qpos[self._measured]), np.array(self._data.qvel[self._measured])

    @property
    def motor_speed(self) -> Array:
        """Velocities of the motors, (n,) [rad/s]."""
        return np.array(self._data.qvel[self._motors])

    @property
    def deflection(self) -> tuple[Array, Array]:
        """Position [rad] and velocity [rad/s] of the motors less the links', (n,) each; zero if rigid."""
        data, links = self._data, slice(0, self._n)
        return data.qpos[self._motors] - data.qpos[links], data.qvel[self._motors] - data.qvel[links]

    def set_payload(self, payload: Array | None) -> None:
        """Attach, change or (None) detach the payload; positions and velocities stay.

        Raises:
            NotPhysicallyConsistent: The last body cannot have such a payload.
        """
        set_inertial_parameters(self._model, self._robot, self._theta, payload)
        self.dynamics = ArmDynamics(self._robot, self._theta, payload)

    def place(self, q: Array) -> None:
        """Put the links somewhere at rest, (n,) [rad], with the gears deflected as gravity demands."""
        self._data.qpos[: self._n] = q
        if self._elasticity is not None:
            self._data.qpos[self._n :] = q + self.dynamics.gravity(np.array(q)) / self._elasticity.stiffness
        self.halt()

    def halt(self) -> None:
        """Remove all velocities and pending effects of the actuators; the motors then balance gravity."""
        self._data.qvel[:] = 0.0
        self._applied = self.static_torque()

    def widen_stops(self, margin: float) -> None:
        """Move the mechanical stops beyond the position limits of the robot file by ``margin`` [rad]."""
        self._model.jnt_range[: self._n] += margin * np.array([-1.0, 1.0])

    def set_friction_loss(self, torque: Array) -> None:
        """Set the Coulomb friction of the motors, closed brakes' for instance, (n,) [Nm]."""
        self._model.dof_frictionloss[self._motors] = torque

    def scale_friction(self, factor: float) -> None:
        """Multiply the present Coulomb and viscous friction; opening brakes undoes the first."""
        self._model.dof_frictionloss[self._motors] *= factor
        self._model.dof_damping[self._motors] *= factor

    def static_torque(self) -> Array:
        """Motor torque that balances gravity and offset, (n,) [Nm]."""
        return self.dynamics.gravity(self.q) + self.friction[:, 3]

    def advance(self, tau: Array, push: Array | None = None, is_powered: bool = True) -> Array:
        """Simulate one period and return the mean torque of the motors, without the push, (n,) [Nm].

        Args:
            tau: Commanded torque, (n,) [Nm].
            push: External torque on the links, (n,) [Nm].
            is_powered: Whether the drives act, with their torque offset; else brakes hold the motors.
        """
        data = self._data
        data.qfrc_applied[: self._n] = 0.0 if push is None else push
        offset = self.friction[:, 3] if is_powered else np.zeros(self._n)
        if self._elasticity is None:
            data.qfrc_applied[self._motors] += tau - offset
            mujoco.mj_step(self._model, data, self._substeps)
            return tau
        return self._advance_elastic(self._elasticity, tau if is_powered else np.zeros(self._n), offset)

    def acceleration(self) -> Array:
        """Accelerations of the links now, (n,) [rad/s^2]."""
        mujoco.mj_forward(self._model, self._data)
        return np.array(self._data.qacc[: self._n])

    def _advance_elastic(self, elasticity: JointElasticity, tau: Array, offset: Array) -> Array:
        data, lag = self._data, elasticity.actuator_lag
        gain = elasticity.torque_damping * elasticity.stiffness
        if lag == 0.0 and not gain.any():
            data.qfrc_applied[self._motors] = tau - offset
            mujoco.mj_step(self._model, data, self._substeps)
            self._applied = tau
            return tau
        share = 1.0 if lag == 0.0 else -np.expm1(-self._step / lag)
        total, velocity = np.zeros(self._n), data.qvel
        for _ in range(self._substeps):
            self._applied = self._applied + share * (tau - self._applied)
            motor = self._applied - gain * (velocity[self._motors] - velocity[: self._n])
            data.qfrc_applied[self._motors] = motor - offset
            mujoco.mj_step(self._model, data)
            total += motor / self._substeps
        return total

    def _count_substeps(self) -> int:
        """Count the steps that follow the fastest oscillation of elastic joints, the hand empty; 1 for rigid ones."""
        elasticity, robot = self._elasticity, self._robot
        if elasticity is None:
            return 1
        links = ArmDynamics(robot, self._theta).inertia(robot.home)
        fastest = elasticity.natural_frequencies(links, self.friction[:, 2])[-1]
        return min(int(np.ceil(self._period * fastest / _PHASE)), _MOST_SUBSTEPS)
