"""The robot as every other module sees it: kinematics, limits, nominal parameters and their boxes.

``theta`` of an arm with n joints is ``[inertial (10 n) | friction (4 n)]``: the ten inertial parameters of each moving
body (everything fixed to it merged in, about its joint frame), then ``[F_c, F_v, I_a, beta]`` of each joint. The
payload is not part of it: ten parameters of their own, about the frame of the last joint, which add to the last body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.calibration import ArmCalibration
from sysid_ros.core.model.friction_names import FRICTION_NAMES as FRICTION_NAMES
from sysid_ros.core.model.friction_names import FRICTION_UNITS as FRICTION_UNITS
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS, to_com_form

Array = NDArray[np.float64]

INERTIAL = 10
"""Inertial parameters of a body."""
FRICTION = 4
"""Friction parameters of a joint: Coulomb F_c [Nm], viscous F_v [Nm s/rad], armature I_a [kg m^2], offset beta [Nm]."""
_ROUNDING = 1e-9
"""By how much a payload may be outside its shape for rounding [m], and as a share of its moments of inertia."""


_HELD = 0.99
"""Share of the continuous torque that is planned with; proofs overestimate mean squares by up to 1.7 % [-]."""


class EffortMeaning(Enum):
    """Side of the gear at which the effort signal is measured.

    ``MOTOR_SIDE``: torque before friction and armature, so ``H a + C v + g + friction + I_a a = effort``
        (SAFE-ID (5), (6)).
    ``GEAR_SIDE``: torque behind the rotor, before friction, ``H a + C v + g + friction = effort``.
    ``LINK_SIDE``: torque after the gear: friction and armature are not in it, ``H a + C v + g = effort``.
    """

    MOTOR_SIDE = "motor_side"
    GEAR_SIDE = "gear_side"
    LINK_SIDE = "link_side"

    @property
    def has_friction(self) -> bool:
        """Whether friction is in the effort."""
        return self is not EffortMeaning.LINK_SIDE

    @property
    def has_armature(self) -> bool:
        """Whether the torque that accelerates the rotor is in it."""
        return self is EffortMeaning.MOTOR_SIDE


@dataclass(frozen=True)
class JointLimits:
    """Limits of the n joints.

    Attributes:
        q_lower: Lower positions, (n,) [rad]; -inf for a continuous joint.
        q_upper: Upper positions, (n,) [rad]; +inf for a continuous joint.
        v_max: Speeds, (n,) [rad/s].
        a_max: Accelerations for planning, (n,) [rad/s^2].
        tau_max: Peak torques, (n,) [Nm].
        tau_continuous: Root mean square of the torques over any minute, (n,) [Nm].
    """

    q_lower: Array
    q_upper: Array
    v_max: Array
    a_max: Array
    tau_max: Array
    tau_continuous: Array

    @property
    def tau_held(self) -> Array:
        """Torques to plan with that may be held for ever, (n,) [Nm]: a little less than a proof allows."""
        return np.where(self.tau_continuous < self.tau_max, _HELD * self.tau_continuous, self.tau_max)


_AVERAGING = 0.5
"""Longest time over which torques that vibrate are averaged before they are judged by themselves [s]."""


@dataclass(frozen=True)
class SensorModel:
    """Guaranteed errors of the joint sensors, used in the error budget of the bounds and by the simulated arm.

    Attributes:
        effort_meaning: Side of the gear at which the effort is measured.
        effort_sign: Multiply the vendor's effort by this (+1 or -1) to get the torque in joint direction. For hardware
            drivers only: samples, and the simulated arm, are in joint direction already.
        effort_relative_error: Largest relative torque error, (n,) [-].
        effort_absolute_error: Largest absolute torque error, (n,) [Nm].
        effort_is_held: Whether an effort sample is the mean torque since the previous sample (a held command, an
            averaging sensor); otherwise it is the torque at the stamp.
        position_resolution: Encoder step, (n,) [rad]; the position error is at most half of it.
        velocity_error: Largest velocity error, (n,) [rad/s].
        stamp_jitter: Largest error of a stamp [s].
        velocity_is_difference: Whether a velocity is the difference of the last two positions over the period, as for
            arms that send none; ``velocity_error`` bounds its error all the same.
        effort_gain_error: How much of ``effort_relative_error`` is a gain error that stays constant, (n,) [-]; the
            rest may change from sample to sample.
        effort_mean_error: The lasting part m of the absolute torque error, (n,) [Nm], at most
            ``effort_absolute_error``: where efforts are held, the error integrates to at most ``m T + I`` over any T.
        effort_integral_error: The part I of that integral that does not grow with time, (n,) [Nms]: vibration.
        effort_drift: Largest rate at which the torque offset changes, (n,) [Nm/s].
        velocity_mean_error: The same for the velocity error, (n,) [rad/s]; at most ``velocity_error``.
        velocity_integral_error: The same for the velocity error, (n,) [rad].
        effort_friction: Largest friction behind a sensor on the link side, of bearings, seals and cables, as a share of
            the largest Coulomb and viscous friction in the box of the gear [-].
    """

    effort_meaning: EffortMeaning
    effort_sign: float
    effort_relative_error: Array
    effort_absolute_error: Array
    effort_is_held: bool
    position_resolution: Array
    velocity_error: Array
    stamp_jitter: float
    velocity_is_difference: bool = False
    effort_gain_error: Array | float = 0.0
    effort_mean_error: Array | float = np.inf
    effort_integral_error: Array | float = 0.0
    effort_drift: Array | float = 0.0
    velocity_mean_error: Array | float = np.inf
    velocity_integral_error: Array | float = 0.0
    effort_friction: float = 0.0

    @property
    def gain_radius(self) -> Array:
        """Largest ``|g|`` of true torque ``(1 + g)`` times the measured one, without other errors, (n,) [-].

        From ``measured = (1 + c) true`` with ``|c| <= effort_gain_error`` follows ``g = -c / (1 + c)``.
        """
        gain = np.broadcast_to(self.effort_gain_error, self.velocity_error.shape)
        return np.asarray(gain / (1.0 - gain))

    def sample_error(self, tau: Array) -> tuple[Array, Array]:
        """Return the relative and absolute part of the largest error of torque samples, each (N, n) [Nm].

        Errors beyond a constant gain c with ``|c| <= C`` count, ``true = (1 + g) measured + error`` with the unknown
        ``g = -c / (1 + c)``. The relative error rho may refer to the true or to the measured torque; both are covered
        by ``|error| <= (rho |measured| / (1 - C) + a) / (1 - C - rho)``, see docs/theory/bounds.md.
        """
        gain, total = self.effort_gain_error, self.effort_relative_error
        relative = (total - gain) / (1.0 - gain) / (1.0 - total) * np.abs(tau)
        return relative, np.broadcast_to(self.effort_absolute_error / (1.0 - total), tau.shape)

    @property
    def _held(self) -> tuple[Array, Array]:
        """``effort_mean_error`` and ``effort_integral_error`` where they count, else the bound of a sample and zero."""
        is_bounded = (self.effort_mean_error < self.effort_absolute_error) & self.effort_is_held
        mean = np.where(is_bounded, self.effort_mean_error, self.effort_absolute_error)
        return mean, np.where(is_bounded, self.effort_integral_error, 0.0)

    @property
    def effort_integral(self) -> tuple[Array, Array]:
        """Bounds m [Nm] and I [Nms], (n,) each, of the integral ``m T + I`` of torque errors besides a constant gain.

        They bound ``true - (1 + g) measured``, see :attr:`gain_radius`, without the part that grows with the measured
        torque. Where efforts are not held, or the integral of errors is not stated, I is zero and m a sample's bound.
        """
        gain, total, sample = self.effort_gain_error, self.effort_relative_error, self.effort_absolute_error
        mean, integral = self._held
        # The part relative to the true torque grows with the error of each sample.
        growth = (total - gain) / (1.0 - total) * sample
        return np.minimum((mean + growth) / (1.0 - gain), sample / (1.0 - total)), integral / (1.0 - gain)

    @property
    def lasting_error(self) -> Array:
        """Largest absolute part of the error of a torque that is averaged over ``averaging_time``, (n,) [Nm]."""
        mean, integral = self._held
        return np.minimum(self.effort_absolute_error, mean + integral / max(self.averaging_time, 1e-9))

    @property
    def averaging_time(self) -> float:
        """Time to average torques until vibration counts no more than lasting errors [s], half a second at most."""
        mean, integral = self._held
        return float(np.max(np.where(integral > 0.0, np.minimum(integral / np.maximum(mean, 1e-9), _AVERAGING), 0.0)))


def integral_bound(sample: Array, mean: Array | float, integral: Array | float, seconds: float) -> Array:
    """Bound the integral over some time [s] of an error of at most ``sample``, whose integral is ``mean T + integral``.

    Such an error is one of at most ``mean`` plus one whose integral over any time is at most ``integral``, and the
    other way round: with E its integral from any time on, ``S(t) = min_s E(s) + mean |t - s|`` changes no faster than
    ``mean``, and ``S <= E <= S + integral``.

    Args:
        sample: Largest error, (n,).
        mean: Its lasting part, (n,).
        integral: Rest of its integral, (n,) [unit of the error times s].
        seconds: The time [s].

    Returns:
        The bound, (n,) [unit of the error times s].
    """
    return np.asarray(np.minimum(sample * seconds, np.minimum(mean, sample) * seconds + integral))


class PositionSide(Enum):
    """Side of an elastic gear at which positions and velocities are measured."""

    MOTOR = "motor"
    LINK = "link"


@dataclass(frozen=True)
class JointElasticity:
    """Elastic gears: motor and link of a joint are two bodies with a spring between them.

    ``I_a dv_m + F_c sign(v_m) + F_v v_m + beta + tau_J = tau - torque_damping k (v_m - v)`` for the motor at ``q_m``,
    ``H a + C v + g = tau_J`` without armature for the link at q, and ``tau_J = k (q_m - q) + d (v_m - v)``. The last
    term of the first equation is the inner torque loop of arms with joint torque sensors; friction and armature of the
    robot file are the motor's as reduced by it.

    Attributes:
        stiffness: k, (n,) [Nm/rad].
        stiffness_error: Largest relative error of the stiffness [-].
        damping: d, (n,) [Nm s/rad].
        position_side: Where positions and velocities are measured.
        torque_damping: Gain of the rate of the joint torque in the inner torque loop, (n,) [s].
        actuator_lag: Time constant with which torques follow commands [s].
        torque_rate: Largest rate of ``k (q_m - q)`` while the arm moves, oscillations included, (n,) [Nm/s].

    Source: M. W. Spong, Modeling and Control of Elastic Joint Robots, 1987, eq. (9).
    """

    stiffness: Array
    stiffness_error: float
    damping: Array
    position_side: PositionSide
    torque_damping: Array
    actuator_lag: float
    torque_rate: Array

    @property
    def deflection_rate(self) -> Array:
        """Largest ``|v_m - v|`` while the arm moves, (n,) [rad/s], of the softest possible gears."""
        return self.deflection(self.torque_rate)

    @property
    def numbers(self) -> tuple[Array, ...]:
        """All of it as arrays, for hashes."""
        scalars = [self.stiffness_error, self.actuator_lag, float(self.position_side is PositionSide.LINK)]
        return self.stiffness, self.damping, self.torque_damping, self.torque_rate, np.array(scalars)

    def within(self, share: float) -> JointElasticity:
        """Return the elasticity with a stiffness off by this share of its error, from -1 to 1."""
        return replace(self, stiffness=self.stiffness * (1.0 + share * self.stiffness_error))

    def deflection(self, torque: Array) -> Array:
        """Return the largest deflection of gears that carry at most some torque, (n,) [Nm] to (n,) [rad]."""
        return np.asarray(torque / (self.stiffness * (1.0 - self.stiffness_error)))

    def natural_frequencies(self, inertia: Array, armature: Array) -> Array:
        """Return the natural frequencies of the free arm without damping, (n,) [rad/s]; the lowest first.

        ``inertia`` is the links' without armature, (n, n) [kg m^2], ``armature`` the motors', (n,) [kg m^2].
        """
        # tau_J / k = deflection: its acceleration is -(H^-1 + I_a^-1) tau_J.
        root = np.sqrt(self.stiffness)
        compliance = np.linalg.inv(inertia) + np.diag(1.0 / armature)
        return np.sqrt(np.linalg.eigvalsh(root[:, None] * compliance * root))


@dataclass(frozen=True)
class Sphere:
    """A collision sphere fixed to a moving body (0 = base, i = body moved by joint i).

    Attributes:
        body: Index of the body.
        center: Centre in the body's joint frame, (3,) [m].
        radius: Radius [m].
        link: Name of the link it covers.
    """

    body: int
    center: Array
    radius: float
    link: str


@dataclass(frozen=True)
class TurnedBox:
    """Box about the origin of the frame of the last joint, with sides along other axes.

    Attributes:
        axes: Those axes in the frame of the last joint, the columns of a rotation (3, 3).
        box: Where ``axes^T c`` lies for every point c of the box, (3,) [m].
    """

    axes: NDArray[np.float64]
    box: Box


@dataclass(frozen=True)
class PayloadShape:
    """Shape of a payload as an object: with its mass, a much smaller set than the box of its parameters.

    Attributes:
        com: Box of its CoM in the frame of the last joint, (3,) [m].
        gyration: Largest radius of gyration about any axis through its CoM [m].
        turned: Smaller box of its CoM, where the prior was written in a frame with other axes than the joint's.
    """

    com: Box
    gyration: float
    turned: TurnedBox | None = None

    def contains(self, parameters: Array) -> bool:
        """Test whether a body with these parameters (10,) has its CoM and radii of gyration in the ranges."""
        mass, com, inertia = to_com_form(parameters)
        if mass == 0.0:
            return not np.any(parameters)
        is_inside = np.all((self.com.lower - _ROUNDING <= com) & (com <= self.com.upper + _ROUNDING))
        largest = mass * self.gyration**2 * (1.0 + _ROUNDING)
        return bool(is_inside and np.linalg.eigvalsh(inertia)[-1] <= largest)


@dataclass(frozen=True)
class PayloadPrior:
    """Prior of a payload, before any measurement.

    Attributes:
        box: Box of its ten parameters about the frame of the last joint.
        nominal: A physically consistent point of the box, (10,).
        name: Its name, for reports.
        target: Body of the ten parameters: ``payload``, or ``end_effector`` (last body and payload together, the
            theta_e of SAFE-ID).
        spheres: Collision spheres that cover the unknown object itself, fixed to the last body.
        shape: The same payload as an object, where the prior was given as one.
    """

    box: Box
    nominal: Array
    name: str = "default"
    target: str = "payload"
    spheres: tuple[Sphere, ...] = ()
    shape: PayloadShape | None = None

    def contains(self, parameters: Array) -> bool:
        """Test whether the prior allows for a payload with these parameters, (10,)."""
        return self.box.contains(parameters) and (self.shape is None or self.shape.contains(parameters))


@dataclass(frozen=True)
class GripperState:
    """Parameters of the last body, with the gripper that is part of it in a known state.

    Attributes:
        nominal: Nominal parameters, (10,).
        box: Box that contains the true ones; part of the box of the robot, which holds for every state.
        change: Largest difference by the gripper from the URDF's parameters, (10,); where the arm is calibrated, from
            the parameters in its rows.
    """

    nominal: Array
    box: Box
    change: Box


@dataclass(frozen=True)
class InertiaOrder:
    """Bounds of all bodies of an arm in the order of pseudo-inertias: ``(1 - s) J_0 <= J <= (1 + s) J_0``.

    So no body has less kinetic energy in any motion than with ``lower``, nor more than with ``upper``. A box of ten
    parameters is much weaker: most of its corners are no body, or move the centre of mass and leave the rest.

    Attributes:
        nominal: Parameters of the bodies with J_0, (10 n,).
        share: s [-], below 1.
    """

    nominal: Array
    share: float

    @property
    def lower(self) -> Array:
        """Parameters with the smallest pseudo-inertias, (10 n,)."""
        return (1.0 - self.share) * self.nominal

    @property
    def upper(self) -> Array:
        """Parameters with the largest ones, (10 n,)."""
        return (1.0 + self.share) * self.nominal


AS_CALIBRATED = "as_calibrated"
"""State of a gripper that has not moved since the arm was calibrated."""


PROTOCOLS = FRI, KORTEX = "fri", "kortex"
"""Of KUKA's LBR and of Kinova's Gen3."""


@dataclass(frozen=True, eq=False)
class RobotModel:
    """An arm: kinematics, limits, sensors, nominal parameters and their boxes. It equals itself alone.

    Attributes:
        name: Name of the model, as in ``config/<name>.yaml``.
        pin_model: Pinocchio model of the arm with its tool and without payload; all n joints have one position and one
            velocity (continuous joints are plain revolute ones), in the order of ``joint_names``; gravity included.
        joint_names: Names of the n joints.
        base_frame: Name of the fixed link.
        flange_frame: Name of the link tools are mounted to.
        tool_frame: Name of the link a payload is held in (where reports express the payload).
        limits: Joint limits.
        theta_nominal: Nominal parameters, (14 n,) (see the module).
        theta_box: Box that contains the true parameters, (14 n,).
        sensors: Guarantees of the sensors.
        spheres: Collision spheres.
        payload_prior: Prior of an unknown payload, the default one.
        rated_payload: Payload the arm is rated for [kg].
        home: Posture identification starts from, (n,) [rad].
        urdf: The URDF text (meshes may be missing).
        warnings: Faults of the description mended while loading.
        payload_priors: All priors by name; see :meth:`prior`.
        never_touch: Pairs of links that cannot touch each other although their spheres may overlap.
        assumptions: Sentences on numbers that are assumed, not measured, for reports and hardware drivers.
        protocol: Protocol of the arm's own controller, one of :data:`PROTOCOLS`; empty where there is no driver for it.
        calibration: Its calibration, already part of box and nominal parameters; None where it was not calibrated.
        elasticity: Elasticity of the joints; None for rigid ones.
        uncalibrated: The arm without its calibration; None where it has none.
        gripper_states: The last body by the state of the gripper; see :meth:`gripper_state`.
        gripper_change: The change that any of these states may make, see :class:`GripperState`; None without states.
        inertia_order: Bounds of whole bodies, beside the boxes of their parameters; None without any.
    """

    name: str
    pin_model: pin.Model
    joint_names: tuple[str, ...]
    base_frame: str
    flange_frame: str
    tool_frame: str
    limits: JointLimits
    theta_nominal: Array
    theta_box: Box
    sensors: SensorModel
    spheres: tuple[Sphere, ...]
    payload_prior: PayloadPrior
    rated_payload: float
    home: Array
    urdf: str = field(repr=False, default="")
    warnings: tuple[str, ...] = ()
    payload_priors: Mapping[str, PayloadPrior] = field(default_factory=lambda: MappingProxyType({}))
    never_touch: tuple[tuple[str, str], ...] = ()
    assumptions: tuple[str, ...] = ()
    protocol: str = ""
    calibration: ArmCalibration | None = field(repr=False, default=None)
    elasticity: JointElasticity | None = None
    uncalibrated: RobotModel | None = field(repr=False, default=None)
    gripper_states: Mapping[str, GripperState] = field(default_factory=lambda: MappingProxyType({}))
    gripper_change: Box | None = None
    inertia_order: InertiaOrder | None = None

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joint_names)

    @property
    def gravity(self) -> Array:
        """Gravity in the base frame, (3,) [m/s^2]."""
        base = self.pin_model.frames[self.pin_model.getFrameId(self.base_frame)]
        return np.array(base.placement.rotation.T @ self.pin_model.gravity.linear)

    @property
    def deflection(self) -> Array:
        """Largest angle between motor and link where a gear carries its torque limit, (n,) [rad]; 0 if rigid."""
        if self.elasticity is None:
            return np.zeros(self.n)
        return self.elasticity.deflection(self.limits.tau_max)

    @property
    def link_sensors(self) -> SensorModel:
        """Guarantees about positions and velocities of the links; where motors are measured, gears deflect besides."""
        elasticity, sensors = self.elasticity, self.sensors
        if elasticity is None or elasticity.position_side is PositionSide.LINK:
            return sensors
        is_bounded = sensors.velocity_mean_error < sensors.velocity_error
        return replace(
            sensors,
            position_resolution=sensors.position_resolution + 2.0 * self.deflection,
            velocity_error=sensors.velocity_error + elasticity.deflection_rate,
            # Deflections change at most from one end of their range to the other.
            velocity_mean_error=np.minimum(sensors.velocity_mean_error, sensors.velocity_error),
            velocity_integral_error=sensors.velocity_integral_error * is_bounded + 2.0 * self.deflection,
        )

    def prior(self, name: str | None = None) -> PayloadPrior:
        """Return a payload prior by name, the default one without a name.

        Raises:
            ParameterOutOfRange: There is none of that name; lists the names.
        """
        if name is None or name == self.payload_prior.name:
            return self.payload_prior
        if name not in self.payload_priors:
            known = ", ".join({self.payload_prior.name: None, **dict.fromkeys(self.payload_priors)})
            raise ParameterOutOfRange("payload prior", name, f"one of {known}")
        return self.payload_priors[name]

    def gripper_state(self, name: str) -> GripperState:
        """Return the last body while the gripper is in a state; an empty name means any of them.

        Raises:
            ParameterOutOfRange: There is none of that name; lists the names.
        """
        if not name:
            last = self.inertial_slice(self.n)
            none = Box(np.zeros(INERTIAL), np.zeros(INERTIAL))
            return GripperState(self.theta_nominal[last], self.theta_box.select(last), self.gripper_change or none)
        if name not in self.gripper_states:
            known = ", ".join(self.gripper_states)
            allowed = f"one of {known}" if known else f"empty: {self.name} has no gripper whose states are known"
            raise ParameterOutOfRange("gripper", name, allowed)
        return self.gripper_states[name]

    def with_gripper(self, name: str) -> RobotModel:
        """Return the robot with its gripper in a state; an empty name means any of them.

        Raises:
            ParameterOutOfRange: There is none of that name; lists the names.
        """
        if not name:
            return self
        state, last = self.gripper_state(name), self.inertial_slice(self.n)
        lower, upper, nominal = self.theta_box.lower.copy(), self.theta_box.upper.copy(), self.theta_nominal.copy()
        lower[last], upper[last], nominal[last] = state.box.lower, state.box.upper, state.nominal
        nominal.setflags(write=False)
        return replace(self, theta_box=Box(lower, upper), theta_nominal=nominal)

    def inertial_slice(self, body: int) -> slice:
        """Return the entries of ``theta`` that belong to body ``body`` (1..n)."""
        return slice(INERTIAL * (body - 1), INERTIAL * body)

    def friction(self, theta: Array) -> Array:
        """Return the friction part of ``theta`` as (n, 4): F_c, F_v, I_a, beta."""
        return np.asarray(theta)[INERTIAL * self.n :].reshape(self.n, FRICTION)


def parameter_names(robot: RobotModel) -> tuple[str, ...]:
    """List the 14 n names of ``theta``: ``joint_1.m`` to ``joint_n.Izz``, ``joint_1.F_c`` to ``joint_n.beta``."""
    inertial = [f"{joint}.{name}" for joint in robot.joint_names for name in PARAMETER_NAMES]
    return (*inertial, *(f"{joint}.{name}" for joint in robot.joint_names for name in FRICTION_NAMES))


def parameter_units(robot: RobotModel) -> tuple[str, ...]:
    """List the units of the 14 n entries of ``theta``."""
    return PARAMETER_UNITS * robot.n + FRICTION_UNITS * robot.n


def frame_placement(robot: RobotModel, frame: str) -> tuple[Array, Array]:
    """Return the placement of a frame fixed to the last body in the frame of the last joint.

    Returns:
        Rotation (3, 3) and translation (3,) [m]. With them ``transform_parameters`` brings parameters from that frame
        to the frame of the last joint, and with their ``inverse_placement`` the other way.

    Raises:
        ModelError: There is no such frame, or it is not fixed to the last body.
    """
    model = robot.pin_model
    if not model.existFrame(frame):
        raise ModelError(f"frame '{frame}' is unknown; this robot has {', '.join(f.name for f in model.frames)}")
    found = model.frames[model.getFrameId(frame)]
    if found.parentJoint != model.njoints - 1:
        raise ModelError(f"frame '{frame}' is not fixed to the last body (the one moved by {robot.joint_names[-1]})")
    return np.array(found.placement.rotation), np.array(found.placement.translation)


def tool_transform(robot: RobotModel) -> tuple[Array, Array]:
    """Return the placement of the tool frame in the frame of the last joint: rotation (3, 3), translation (3,) [m]."""
    return frame_placement(robot, robot.tool_frame)
