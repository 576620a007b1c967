"""The MuJoCo model of an arm, built from the same robot model as everything else, and the hidden truth in it.

Every MuJoCo body frame lies on the Pinocchio frame of the joint that moves it, so inertial parameters carry over
without a transformation. The simulated equation of motion is SAFE-ID (5), (6):
``H a + C v + g + F_c sign(v) + F_v v + I_a a + beta = tau``. The offset beta is not part of the MuJoCo model; the user
of the model subtracts it from the torque applied.

Elastic joints have a motor of their own, a body without mass that turns about its own axis with the joint's armature
and friction; a tendon whose length is the deflection couples it to the link.

MuJoCo's friction loss is a constraint: it applies exactly F_c against the motion, except in the step in which the joint
comes to rest or reverses; at rest it applies the holding torque, at most F_c. There is no stiction band to tune.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pinocchio as pin

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange, SysidError
from sysid_ros.core.common.optional import optional_module
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.model.inertia import from_com_form, require_physically_consistent, to_com_form, transform_parameters
from sysid_ros.core.model.robot import AS_CALIBRATED, JointElasticity, RobotModel, SensorModel, tool_transform
from sysid_ros.core.model.robot_files import config_directories
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.modes import TRUTHS, Noise

mujoco = optional_module("mujoco")

_FRICTION_IMPEDANCE = 0.9999
"""Share of the motion friction takes away while it holds a joint; the rest lets it creep."""
_FRICTION_TIME_STEPS = 0.8
"""Time constant of stopping, in steps: short, so that friction reverses no earlier than the motion. Runge-Kutta is
stable from 0.72 on; MuJoCo's own limit of 2 (for Euler's method) has to be off."""
_UNUSED = ("CONTACT", "ISLAND", "SENSOR", "ACTUATION", "AUTORESET", "REFSAFE")
_ROTOR_INERTIA = 1e-9
"""Inertia of a motor's body beside its armature, which MuJoCo demands [kg m^2]."""


def build_mujoco_model(
    robot: RobotModel, theta: Array, payload: Array | None, timestep: float, elasticity: JointElasticity | None = None
) -> Any:
    """Build the simulation model of an arm, without contacts; classical Runge-Kutta integration.

    Its n hinges have the order of ``robot.joint_names``. With elastic joints n hinges of the motors follow, which have
    friction and armature.

    Args:
        robot: Kinematics, gravity and position limits.
        theta: True parameters of the arm, (14 n,).
        payload: True parameters of the payload about the frame of the last joint, (10,); None for no payload.
        timestep: Integration step [s].
        elasticity: Stiffness and damping of the gears; None for rigid ones.

    Raises:
        ModelError: A joint is not a plain revolute one, or the arm branches.
        NotPhysicallyConsistent: A body cannot have its parameters.
    """
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.option.timestep = timestep
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.gravity = robot.pin_model.gravity.linear
    for bit in _UNUSED:
        spec.option.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{bit}"))
    body = spec.worldbody
    for index in range(1, robot.n + 1):
        body = _add_body(body, robot, index)
    if elasticity is not None:
        _add_motors(spec, robot)
    model = spec.compile()
    if elasticity is not None:
        model.tendon_stiffness[:], model.tendon_damping[:] = elasticity.stiffness, elasticity.damping
    motors = slice(None if elasticity is None else robot.n, None)
    friction = robot.friction(theta)
    model.dof_frictionloss[motors], model.dof_damping[motors], model.dof_armature[motors] = friction[:, :3].T
    model.dof_solref[:] = (_FRICTION_TIME_STEPS * timestep, 1.0)
    model.dof_solimp[:, :2] = _FRICTION_IMPEDANCE
    set_inertial_parameters(model, robot, theta, payload)
    return model


def set_inertial_parameters(model: Any, robot: RobotModel, theta: Array, payload: Array | None) -> None:
    """Give the bodies of a compiled model of a robot their parameters; the state of the simulation is not touched.

    ``theta`` (14 n,) is the arm's, ``payload`` (10,) about the frame of the last joint, or None.

    Raises:
        NotPhysicallyConsistent: A body cannot have its parameters; the model is unchanged.
    """
    inertial = np.array(theta[: 10 * robot.n], dtype=float).reshape(robot.n, 10)
    if payload is not None:
        inertial[-1] += payload
    for joint, parameters in zip(robot.joint_names, inertial, strict=True):
        require_physically_consistent(parameters, f"body moved by {joint}")
    for body, parameters in enumerate(inertial, start=1):
        model.body_mass[body], model.body_ipos[body], inertia = to_com_form(parameters)
        model.body_inertia[body], axes = np.linalg.eigh(inertia)
        axes[:, 0] *= np.sign(np.linalg.det(axes))
        model.body_iquat[body] = _quaternion(axes)
    # Derived constants (subtree masses, inverse weights); the data is scratch because this call overwrites it.
    mujoco.mj_setConst(model, mujoco.MjData(model))


def _add_body(parent: Any, robot: RobotModel, index: int) -> Any:
    pin_model, name = robot.pin_model, robot.joint_names[index - 1]
    if pin_model.parents[index] != index - 1:
        raise ModelError(
            f"joint '{name}' is not moved by the joint before it; only arms without branches are simulated"
        )
    placement = pin_model.jointPlacements[index]
    body = parent.add_body(name=f"moved_by_{name}", pos=placement.translation, quat=_quaternion(placement.rotation))
    # Off-centre and rotated, so that the compiler flags no shortcut that real parameters would not allow.
    body.mass, body.inertia, body.ipos, body.iquat = 1.0, (1.0, 1.0, 1.0), (0.1, 0.2, 0.3), (0.5, 0.5, 0.5, 0.5)
    body.explicitinertial = True
    joint = body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=_revolute_axis(pin_model, index))
    lower, upper = robot.limits.q_lower[index - 1], robot.limits.q_upper[index - 1]
    if np.isfinite(lower) and np.isfinite(upper):
        joint.limited, joint.range = True, (lower, upper)
    return body


def _add_motors(spec: Any, robot: RobotModel) -> None:
    for name in robot.joint_names:
        rotor = spec.worldbody.add_body(name=f"motor_of_{name}")
        rotor.mass, rotor.inertia, rotor.explicitinertial = _ROTOR_INERTIA, (_ROTOR_INERTIA,) * 3, True
        rotor.add_joint(name=f"motor_of_{name}", type=mujoco.mjtJoint.mjJNT_HINGE, axis=(0.0, 0.0, 1.0))
        gear = spec.add_tendon(name=f"deflection_of_{name}")
        gear.wrap_joint(f"motor_of_{name}", 1.0)
        gear.wrap_joint(name, -1.0)


def _revolute_axis(pin_model: pin.Model, index: int) -> Array:
    joint, name = pin_model.joints[index], pin_model.names[index]
    subspace = np.asarray(joint.createData().S).reshape(6, -1)
    if joint.nq != 1 or subspace.shape[1] != 1 or np.any(subspace[:3]):
        raise ModelError(f"joint '{name}' is a {joint.shortname()}; only revolute joints are simulated")
    return subspace[3:, 0]


def _quaternion(rotation: Array) -> Array:
    quaternion = pin.Quaternion(np.ascontiguousarray(rotation))
    return np.array([quaternion.w, quaternion.x, quaternion.y, quaternion.z])


_BLOCK = 1024
_USUAL = 0.2
"""Share of the largest vibration that errors have which do not use their bounds up [-]."""
_VIBRATION = 5.0
"""Frequency of the vibration in the sensors [Hz], as of a real Gen3."""
_SLOWEST = 0.01
"""Longest period of samples for which errors keep the bounds of their integrals [s]."""


class _Bound:
    """Bounds of an error, (n,) or one for all: of a sample, of its lasting part, and of the integral of vibration."""

    def __init__(self, sample: Array, mean: Array | float, integral: Array | float):
        self.sample = sample
        self.is_mean_smaller = np.asarray(mean < sample)
        self.is_any_mean_smaller = bool(self.is_mean_smaller.any())
        self.steady = np.minimum(mean, sample)
        # Half a period of vibration integrates to the whole of its bound, less one sample at its end.
        self.swing = np.minimum(sample - self.steady, integral / (0.5 / _VIBRATION + _SLOWEST))


class SensorSimulation:
    """Turns true joint values into measured ones.

    The errors obey ``|error of q| <= position_resolution / 2``, ``|error of v| <= velocity_error``,
    ``|error of tau| <= effort_relative_error |true tau| + effort_absolute_error`` and
    ``|error of the stamp| <= stamp_jitter``. Of the relative error ``effort_gain_error`` is a constant gain of each
    joint. Where the integral of an error is bounded too, it is a lasting part and a square wave that keep both bounds,
    for samples at 100 Hz and faster. The torque offset drifts steadily from the start.
    """

    def __init__(self, sensors: SensorModel, noise: Noise, seed: int):
        self._noise = noise
        self._sensors = sensors
        self._rng = np.random.default_rng(seed)
        self._n = sensors.velocity_error.size
        self._is_quantised = sensors.position_resolution > 0.0
        self._is_all_quantised = bool(np.all(self._is_quantised))
        self._resolution = np.where(self._is_quantised, sensors.position_resolution, 1.0)
        # One sign per joint for the gain, the offset and the velocity error.
        self._signs = self._rng.choice((-1.0, 1.0), size=(3, self._n))
        self._random: Iterator[Array] = iter(())
        self._gain, self._drift = np.zeros(self._n), np.zeros(self._n)
        if np.any(np.asarray(sensors.effort_gain_error) > 0.0) or np.any(np.asarray(sensors.effort_drift) > 0.0):
            sizes = self._rng.uniform(-1.0, 1.0, (2, self._n)) if noise is Noise.UNIFORM else self._signs[:2]
            self._gain, self._drift = sizes * np.array(
                [np.broadcast_to(part, self._n) for part in (sensors.effort_gain_error, sensors.effort_drift)]
            )
        self._right_gain = 1.0 + self._gain
        self._rest = sensors.effort_relative_error - sensors.effort_gain_error
        self._has_drift = bool(np.any(self._drift))
        self._effort_bound = _Bound(
            sensors.effort_absolute_error, sensors.effort_mean_error, sensors.effort_integral_error
        )
        self._velocity_bound = _Bound(
            sensors.velocity_error, sensors.velocity_mean_error, sensors.velocity_integral_error
        )
        self._first_ns: int | None = None

    @property
    def gain_error(self) -> Array:
        """The constant part of the relative torque error, (n,) [-]."""
        return self._gain.copy()

    def measure(self, stamp_ns: int, q: Array, v: Array, tau: Array) -> tuple[int, Array, Array, Array]:
        """Return measured from true time [ns], positions [rad], velocities [rad/s] and efforts [Nm], (n,) each."""
        if self._noise is Noise.NONE:
            return stamp_ns, q.copy(), v.copy(), tau.copy()
        n, random = self._n, self._draw()
        jitter_ns = int(random[-1] * self._sensors.stamp_jitter * 1e9)
        position = np.rint(q / self._resolution) * self._resolution
        if not self._is_all_quantised:
            position = np.where(self._is_quantised, position, q)
        gain, offset, speed = random[: 3 * n].reshape(3, n) if self._noise is Noise.UNIFORM else self._signs
        if self._noise is Noise.ADVERSARIAL:
            gain = np.sign(tau) * offset
        effort = tau * (self._right_gain + self._rest * gain)
        self._first_ns = stamp_ns if self._first_ns is None else self._first_ns
        seconds = (stamp_ns - self._first_ns) * 1e-9
        if self._has_drift:
            effort += self._drift * seconds
        sign = 1.0 if seconds * _VIBRATION % 1.0 < 0.5 else -1.0
        effort += self._within_integral(offset, self._effort_bound, sign)
        velocity = v + self._within_integral(speed, self._velocity_bound, sign)
        # No time before the epoch, which ROS could not express.
        return max(0, stamp_ns + jitter_ns), position, velocity, effort

    def _within_integral(self, share: Array, bound: _Bound, sign: float) -> Array:
        """Error of a share in [-1, 1] of the bound of a sample, or of the lasting part, and vibration of a sign."""
        if not bound.is_any_mean_smaller:
            return bound.sample * share
        swing = self._signs[2] * (sign * (_USUAL if self._noise is Noise.UNIFORM else 1.0)) * bound.swing
        return np.where(bound.is_mean_smaller, bound.steady * share + swing, bound.sample * share)

    def _draw(self) -> Array:
        """Random numbers of one sample, (3 n + 1,) in [-1, 1); drawn in blocks, which is ten times as fast."""
        row = next(self._random, None)
        if row is None:
            self._random = iter(self._rng.uniform(-1.0, 1.0, (_BLOCK, 3 * self._n + 1)))
            row = next(self._random)
        return row


def load_payload(robot: RobotModel, name: str) -> Array | None:
    """Load a payload of ``config/payloads.yaml`` held in the robot's tool.

    Args:
        robot: The robot.
        name: Its name there; ``none``; a mass [kg], which gives the first one there that mass, its shape kept, or,
            where the prior excludes that, the prior's nominal payload; or a mass and its CoM in the tool frame [m], as
            in ``1.5 at 0 0 0.1``.

    Returns:
        Its parameters about the frame of the last joint, (10,); None for ``none``.

    Raises:
        ParameterOutOfRange: There is none of this name.
        NotPhysicallyConsistent: No body has the listed inertia.
    """
    if name == "none":
        return None
    folders = [folder for folder in config_directories() if (folder / "payloads.yaml").is_file()]
    if not folders:
        raise SysidError(f"payloads.yaml is in none of {', '.join(map(str, config_directories()))}")
    payloads = read_yaml(folders[0] / "payloads.yaml")
    mass, com = _mass_and_com(name)
    shape = name if mass is None else next(iter(payloads))
    if shape not in payloads:
        expected = f"{', '.join(payloads)}, 'none', a mass [kg], as in 1.5, or a mass and its CoM in the tool frame [m]"
        raise ParameterOutOfRange("payload", name, f"{expected}, as in 1.5 at 0 0 0.1")
    entry = payloads[shape]
    scale = 1.0 if mass is None else mass / entry["mass"]
    xx, xy, yy, xz, yz, zz = entry["inertia"]
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    in_tool = scale * from_com_form(entry["mass"], entry["com"] if com is None else com, inertia)
    parameters = transform_parameters(in_tool, *tool_transform(robot))
    require_physically_consistent(parameters, name)
    prior = robot.payload_prior
    if mass is not None and com is None and prior.target == "payload" and not prior.contains(parameters):
        scaled: Array = mass / prior.nominal[0] * prior.nominal
        return scaled if prior.contains(scaled) else parameters
    return parameters


def draw_truth(robot: RobotModel, truth: str, seed: int, gripper: str = "") -> Array:
    """Choose the true parameters of a simulated arm, (14 n,), in the box of the robot; ``truth`` is of :data:`TRUTHS`.

    A calibration narrows the bounds of the arm and does not change it: the same seed gives the same arm with and
    without. The state of the gripper is empty for any of them.

    Raises:
        ParameterOutOfRange: There is no such way, or state.
    """
    if truth not in TRUTHS:
        raise ParameterOutOfRange("truth", truth, "one of " + ", ".join(TRUTHS))
    if gripper == AS_CALIBRATED and robot.calibration is not None:
        gripper = robot.calibration.record.gripper
    robot = (robot.uncalibrated or robot).with_gripper(gripper)
    if truth == "nominal":
        return robot.theta_nominal
    return sample_parameters(robot, np.random.default_rng((seed, 7)), corner=truth == "corner")


def _mass_and_com(text: str) -> tuple[float | None, tuple[float, ...] | None]:
    """Read ``MASS`` or ``MASS at X Y Z`` [kg, m]; without a mass, the text is a name."""
    first, _, place = text.partition(" at ")
    try:
        mass, com = float(first), tuple(map(float, place.split()))
    except ValueError:
        return None, None
    if not 0.0 < mass < np.inf or not np.all(np.isfinite(com)) or len(com) not in (0, 3):
        return None, None
    return mass, com or None
