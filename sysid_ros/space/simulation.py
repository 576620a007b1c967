"""Simulated free-flying robots: rigid bodies in MuJoCo, or conservation of momentum where bodies cannot be rigid ones.

Gravity and other external forces are zero, and joints and wheels follow their references: MuJoCo's by computed torques
between the bodies, which leave the momentum alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike

from sysid_ros.core.common.errors import NotPhysicallyConsistent, ParameterOutOfRange
from sysid_ros.core.common.optional import optional_module
from sysid_ros.core.model.inertia import from_com_form, require_physically_consistent, to_com_form
from sysid_ros.drivers.arm import Array
from sysid_ros.space.core.measurements import integrate_rotations
from sysid_ros.space.core.momentum import compute_base_twist, joint_axis, system_kinematic_matrix
from sysid_ros.space.core.robot import FreeFlyer

mujoco = optional_module("mujoco")

_WHEEL_RADIUS = 0.15
"""Radius of the discs that wheels are simulated as [m]."""
_TRANSVERSE = 0.55
"""Their inertia across their axis, as a share of that about it; half of it is a disc without thickness."""
_BANDWIDTH = 100.0
"""Bandwidth of the joints' servos [rad/s]."""
_POSE_STEPS = 4
"""Iterations of pose and twist of a step with momentum; each gains a factor of the length of the step."""


@dataclass(frozen=True, eq=False)
class FloatingState:
    """State of a free-flying robot; inertial axes are the base's at the start.

    Attributes:
        time: Since the start [s].
        rotation: Axes of the base, (3, 3).
        position: Origin of the base, (3,) [m].
        twist: Linear and angular velocity of the base in its own axes, (6,) [m/s, rad/s].
        q: Positions of joints, then angles of wheels, (n + W,) [rad].
        v: Their rates, (n + W,) [rad/s].
    """

    time: float
    rotation: Array
    position: Array
    twist: Array
    q: Array
    v: Array


class ConservationSimulation:
    """A robot that starts at home, with joints and wheels at rest, which follow exactly; the momentum stays.

    Masses enter by their momentum only, so they need not belong to rigid bodies: the paper's robot is of this kind.

    Args:
        robot: The robot.
        parameters: True inertial parameters, (10 B,).
        timestep: Length of a step [s]; None for the default of the kind of simulation.
        momentum: Momentum at the start, about the origin of the base, (6,) [kg m/s, kg m^2/s].
    """

    usual_timestep: ClassVar[float] = 0.01

    def __init__(
        self, robot: FreeFlyer, parameters: ArrayLike, timestep: float | None = None, momentum: ArrayLike = (0.0,) * 6
    ):
        timestep = self.usual_timestep if timestep is None else timestep
        if not 1e-5 <= timestep <= 0.1:
            raise ParameterOutOfRange("timestep [s]", timestep, "1e-5 to 0.1")
        self.robot, self.timestep = robot, timestep
        self.parameters = np.asarray(parameters, dtype=float)
        rest = np.zeros(robot.n + robot.wheels.count)
        angles = np.concatenate([robot.home, np.zeros(robot.wheels.count)])
        self._total = np.array(momentum, dtype=float)
        twist = self.twist_with(self._total, angles, rest)
        self._state = FloatingState(0.0, np.eye(3), np.zeros(3), twist, angles, rest)

    def twist_with(self, momentum: ArrayLike, q: Array, v: Array) -> Array:
        """Compute the twist of the base at joints and wheels (n + W,) that gives a momentum in its axes, (6,)."""
        n = self.robot.n
        wheels = self.robot.wheels.momentum(v[None, n:])
        left = np.asarray(momentum, dtype=float) - wheels
        twist: Array = compute_base_twist(self.robot.tree, self.parameters, q[None, :n], v[None, :n], left)[0]
        return twist

    def change(self, parameters: ArrayLike) -> None:
        """Change the inertial parameters of the robot, (10 B,), at unchanged velocities.

        Raises:
            NotPhysicallyConsistent: A body cannot have them.
        """
        self.parameters = np.asarray(parameters, dtype=float)
        self._total = self.momentum()

    @property
    def state(self) -> FloatingState:
        """The present state."""
        return self._state

    def step(self, q: Array, v: Array, a: Array) -> None:
        """Advance to these positions, rates and accelerations of joints and wheels after a step, (n + W,) each.

        The pose follows by the trapezoidal rule.
        """
        before = self._state
        rotation, position = before.rotation, before.position
        times = np.array([0.0, self.timestep])
        for _ in range(_POSE_STEPS if np.any(self._total) else 1):
            linear, angular = self._total[:3], self._total[3:] - np.cross(position, self._total[:3])
            twist = self.twist_with(np.concatenate([rotation.T @ linear, rotation.T @ angular]), q, v)
            rotation = before.rotation @ integrate_rotations(times, np.stack([before.twist[3:], twist[3:]]))[1]
            shift = 0.5 * self.timestep * (before.rotation @ before.twist[:3] + rotation @ twist[:3])
            position = before.position + shift
        self._state = FloatingState(before.time + self.timestep, rotation, position, twist, np.array(q), np.array(v))

    def momentum(self) -> Array:
        """Compute the momentum of robot and wheels in inertial axes, about the inertial origin, (6,).

        Changes since the start come from the integration, or from changed parameters.
        """
        state, n = self.state, self.robot.n
        matrix = system_kinematic_matrix(self.robot.tree, state.q[None, :n], state.v[None, :n], state.twist[None])[0]
        wheels = self.robot.wheels
        own = matrix @ self.parameters
        own[3:] += (state.v[n:] * wheels.inertias) @ wheels.axes
        linear = state.rotation @ own[:3]
        return np.concatenate([linear, state.rotation @ own[3:] + np.cross(state.position, linear)])


class MujocoSimulation(ConservationSimulation):
    """Rigid bodies in MuJoCo, without gravity and contacts.

    Raises:
        NotPhysicallyConsistent: A body cannot have its parameters.
    """

    usual_timestep = 0.002

    def __init__(
        self, robot: FreeFlyer, parameters: ArrayLike, timestep: float | None = None, momentum: ArrayLike = (0.0,) * 6
    ):
        super().__init__(robot, parameters, timestep, momentum)
        self._model = build_mujoco_free_flyer(robot, self.parameters, self.timestep)
        self._data = mujoco.MjData(self._model)
        # At the start inertial axes are the base's.
        self._data.qpos[7:], self._data.qvel[:6] = self._state.q, self._state.twist
        mujoco.mj_forward(self._model, self._data)
        self._inertia, self._units = np.zeros((self._model.nv, self._model.nv)), np.eye(self._model.nv)

    def change(self, parameters: ArrayLike) -> None:
        """See :meth:`ConservationSimulation.change`."""
        model = build_mujoco_free_flyer(self.robot, np.asarray(parameters, dtype=float), self.timestep)
        data = mujoco.MjData(model)
        data.time, data.qpos[:], data.qvel[:] = self._data.time, self._data.qpos, self._data.qvel
        mujoco.mj_forward(model, data)
        self.parameters, self._model, self._data = np.asarray(parameters, dtype=float), model, data

    @property
    def state(self) -> FloatingState:
        """See :attr:`ConservationSimulation.state`."""
        data = self._data
        w, x, y, z = data.qpos[3:7]
        rotation = pin.Quaternion(w, x, y, z).toRotationMatrix()
        # A free joint has its linear velocity in inertial axes and its angular velocity in body axes.
        twist = np.concatenate([rotation.T @ data.qvel[:3], data.qvel[3:6]])
        return FloatingState(
            float(data.time), rotation, data.qpos[:3].copy(), twist, data.qpos[7:].copy(), data.qvel[6:].copy()
        )

    def step(self, q: Array, v: Array, a: Array) -> None:
        """See :meth:`ConservationSimulation.step`: torques bring the joints there while the base floats."""
        data, h = self._data, self.timestep
        mujoco.mj_fwdPosition(self._model, data)
        mujoco.mj_fwdVelocity(self._model, data)
        for column, unit in zip(self._inertia, self._units, strict=True):  # symmetric, so rows are columns
            mujoco.mj_mulM(self._model, data, column, unit)
        # Desired state after the step, seen from now.
        position, velocity = q - h * v, v - h * a
        wanted = a + 2.0 * _BANDWIDTH * (velocity - data.qvel[6:]) + _BANDWIDTH**2 * (position - data.qpos[7:])
        m, bias = self._inertia, data.qfrc_bias
        base = -np.linalg.solve(m[:6, :6], m[:6, 6:] @ wanted + bias[:6])
        data.qfrc_applied[:6] = 0.0
        data.qfrc_applied[6:] = m[6:, :6] @ base + m[6:, 6:] @ wanted + bias[6:]
        mujoco.mj_step(self._model, data)


def build_mujoco_free_flyer(robot: FreeFlyer, parameters: ArrayLike, timestep: float) -> Any:
    """Build the MuJoCo model of a free-flying robot, with its wheels as discs at the origin of the base.

    Args:
        robot: The robot.
        parameters: True inertial parameters, (10 B,); the base includes the wheels, see ``ReactionWheels``.
        timestep: Integration step [s].

    Returns:
        A free joint, then the joints in their order, then the wheels; without gravity and contacts, Runge-Kutta steps.

    Raises:
        NotPhysicallyConsistent: A body cannot have its parameters.
    """
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.option.timestep, spec.option.gravity = timestep, np.zeros(3)
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    tree, wheels = robot.tree, robot.wheels
    inertial = np.array(parameters, dtype=float).reshape(tree.count, 10)
    discs = [_disc(axis, inertia) for axis, inertia in zip(wheels.axes, wheels.inertias, strict=True)]
    inertial[0] -= np.sum(discs, axis=0) if discs else 0.0
    bodies: list[Any] = []
    for index, (name, values) in enumerate(zip(tree.body_names, inertial, strict=True)):
        require_physically_consistent(values, name if index else "base without its wheels")
        if index == 0:
            body = spec.worldbody.add_body(name=name)
            body.add_freejoint()
        else:
            placement, joint = tree.model.jointPlacements[index + 1], tree.model.joints[index + 1]
            turn = pin.Quaternion(np.ascontiguousarray(placement.rotation))
            quaternion = (turn.w, turn.x, turn.y, turn.z)
            body = bodies[tree.parents[index]].add_body(name=name, pos=placement.translation, quat=quaternion)
            kind = mujoco.mjtJoint.mjJNT_SLIDE if joint.shortname().startswith("JointModelP") else (
                mujoco.mjtJoint.mjJNT_HINGE
            )  # fmt: skip
            body.add_joint(name=name, type=kind, axis=joint_axis(joint))
        _give_inertia(body, values)
        bodies.append(body)
    for name, axis, disc in zip(wheels.names, wheels.axes, discs, strict=True):
        body = bodies[0].add_body(name=name)
        body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=axis)
        _give_inertia(body, disc)
    return spec.compile()


def simulate_free_flyer(
    robot: FreeFlyer, parameters: ArrayLike, momentum: ArrayLike = (0.0,) * 6
) -> ConservationSimulation:
    """Return the possible simulation of a robot: MuJoCo for rigid bodies, else conservation of momentum."""
    try:
        return MujocoSimulation(robot, parameters, momentum=momentum)
    except NotPhysicallyConsistent:
        return ConservationSimulation(robot, parameters, momentum=momentum)


def _give_inertia(body: Any, parameters: Array) -> None:
    mass, com, inertia = to_com_form(parameters)
    body.mass, body.ipos = mass, com
    xx, yy, zz = np.diag(inertia)
    body.fullinertia = (xx, yy, zz, inertia[0, 1], inertia[0, 2], inertia[1, 2])
    body.explicitinertial = True


def _disc(axis: Array, inertia: float) -> Array:
    """Return the parameters (10,) of a disc at the origin with an axis (3,) and an inertia about it [kg m^2]."""
    across = _TRANSVERSE * inertia
    tensor = across * np.eye(3) + (inertia - across) * np.outer(axis, axis)
    return np.asarray(from_com_form(2.0 * inertia / _WHEEL_RADIUS**2, np.zeros(3), tensor), dtype=float)
