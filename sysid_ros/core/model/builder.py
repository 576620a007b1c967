"""Builds a robot from a checked URDF and its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray
from urdf_parser_py.urdf import Joint

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import MISSING, ModelError, ParameterOutOfRange, raise_together
from sysid_ros.core.model.inertia import PARAMETER_NAMES, radius_of_share, require_physically_consistent
from sysid_ros.core.model.payload import read_prior
from sysid_ros.core.model.robot import (
    AS_CALIBRATED,
    PROTOCOLS,
    EffortMeaning,
    GripperState,
    InertiaOrder,
    JointElasticity,
    JointLimits,
    PayloadPrior,
    PositionSide,
    RobotModel,
    SensorModel,
    Sphere,
)
from sysid_ros.core.model.settings import Section
from sysid_ros.core.model.spheres import read_sphere_rows
from sysid_ros.core.model.urdf import ROTARY, UrdfDescription, build_arm_model

Array = NDArray[np.float64]

_ANY_STATE = "any_state"
_ROUNDING = 1e-9  # settings may exceed the URDF by this share, the rounding of a decimal number


def _joint_limits(joint: Joint, section: Section) -> tuple[float, float, float, float, float, float]:
    """Read position (lower, upper), speed, acceleration, peak and continuous torque limit of a joint.

    The URDF sets the outer limits of position, speed and torque; settings ``position``, ``velocity`` and ``torque`` may
    only tighten them. A URDF has one torque, which is peak and continuous limit; where the settings state both, it
    bounds ``continuous_torque``, and ``torque`` is a peak above it. ``acceleration`` exists in the settings only.
    """
    lower, upper = urdf_position_limits(joint)
    velocity, torque = urdf_rate_limits(joint)
    if "position" in section:
        position = section.vector("position", 2, "rad", _loosen(lower, -1), _loosen(upper, 1))
        if not position[0] < position[1]:
            raise ParameterOutOfRange(f"{section.path}.position", position.tolist(), "lower below upper [rad]")
        lower, upper = max(lower, position[0]), min(upper, position[1])
    velocity = min(velocity, section.number("velocity", "rad/s", 1e-6, _loosen(velocity, 1), default=velocity))
    continuous = min(torque, section.number("continuous_torque", "Nm", 1e-6, _loosen(torque, 1), default=torque))
    if "continuous_torque" in section:
        torque = section.number("torque", "Nm", 1e-6, _TORQUE_MAX, default=torque)
        continuous = min(continuous, torque)
    else:
        peak = section.number("torque", "Nm", 1e-6, _TORQUE_MAX, default=torque)
        if peak > _loosen(torque, 1):
            allowed = (
                f"at most {torque:g} [Nm], the effort in the URDF; for a peak above it state continuous_torque, too"
            )
            raise ParameterOutOfRange(f"{section.path}.torque", peak, allowed)
        torque = continuous = min(torque, peak)
    acceleration = section.number("acceleration", "rad/s^2", 1e-6, 1000.0)
    return lower, upper, velocity, acceleration, torque, continuous


def urdf_position_limits(joint: Joint) -> tuple[float, float]:
    """Return the lower and upper position [rad] of a rotary joint; infinite for a continuous one.

    Raises:
        ModelError: A revolute joint without limits.
    """
    if joint.type == "continuous":
        return -math.inf, math.inf
    if joint.limit is None or not joint.limit.lower < joint.limit.upper:
        problem = "has no position (lower < upper) [rad] limit; add it to the joint's <limit> in the URDF"
        raise ModelError(f"joint '{joint.name}' {problem}")
    return float(joint.limit.lower), float(joint.limit.upper)


def urdf_rate_limits(joint: Joint) -> tuple[float, float]:
    """Return the speed [rad/s] and torque [Nm] limit of a joint.

    Raises:
        ModelError: One of them is missing or not above zero.
    """
    for value, missing in (("velocity", "velocity [rad/s]"), ("effort", "effort [Nm]")):
        if joint.limit is None or not getattr(joint.limit, value, 0.0) > 0.0:
            raise ModelError(f"joint '{joint.name}' has no {missing} limit; add it to the joint's <limit> in the URDF")
    return float(joint.limit.velocity), float(joint.limit.effort)


def _loosen(limit: float, side: int) -> float:
    return limit + side * _ROUNDING * abs(limit) if math.isfinite(limit) else limit


_STANDARD_GRAVITY = (0.0, 0.0, -9.81)  # [m/s^2]
_GRAVITY_MAX = 30.0  # [m/s^2]
_TORQUE_MAX = 1e5  # [Nm]


def build_robot(name: str, description: UrdfDescription, settings: Section) -> RobotModel:
    """Build the robot from a checked URDF and settings; raises as :func:`load_robot` does."""
    raise_together(description.problems)
    settings.get("urdf", "")
    joints = settings.section("joints")
    joint_names = tuple(joints.keys)
    notes = _check_chain(description, joint_names)
    sections = joints.sections_by_joint(joint_names)
    rows = [_joint_limits(description.joint(name), own) for name, own in zip(joint_names, sections, strict=True)]
    limits = JointLimits(*np.array(rows, dtype=float).T.copy())
    home = np.array([s.number("home", "rad", -np.inf, np.inf) for s in sections])
    for section in sections:
        section.finish()
    for joint, q, lower, upper in zip(joint_names, home, limits.q_lower, limits.q_upper, strict=True):
        if not lower <= q <= upper:
            raise ParameterOutOfRange(f"{joints.path}.{joint}.home", float(q), f"{lower:g} to {upper:g} [rad]")

    frames = settings.section("frames")
    base, flange, tool = (frames.text(key) for key in ("base", "flange", "tool"))
    frames.finish()
    require_locked(description, joint_names, tool)
    model = _build_model(description, joint_names, base, settings)
    for frame in (flange, tool):
        _require_fixed_to(model, frame, model.njoints - 1, "the last body")
    theta, box, order = _read_parameters(settings, model, joint_names)

    grippers, change = _read_grippers(settings, theta, box, joint_names)
    priors, default = _read_priors(settings, model, tool)
    robot = RobotModel(
        name=name,
        pin_model=model,
        joint_names=joint_names,
        base_frame=base,
        flange_frame=flange,
        tool_frame=tool,
        limits=limits,
        theta_nominal=theta,
        theta_box=box,
        sensors=_read_sensors(settings.section("sensors"), len(joint_names)),
        spheres=_read_spheres(settings.section("spheres", {}), model),
        payload_prior=priors[default],
        rated_payload=settings.number("rated_payload", "kg", 0.0),
        home=home,
        urdf=description.text,
        warnings=(*description.warnings, *notes),
        payload_priors=MappingProxyType(priors),
        never_touch=_read_pairs(settings, model),
        assumptions=_read_assumptions(settings),
        protocol=settings.text("protocol", "", ("", *PROTOCOLS)),
        elasticity=_read_elasticity(settings.section("elasticity", {}), theta[-4 * len(joint_names) :].reshape(-1, 4)),
        gripper_states=MappingProxyType(grippers),
        gripper_change=change,
        inertia_order=order,
    )
    settings.finish()
    for array in (theta, home, *vars(limits).values()):
        array.setflags(write=False)
    return robot


def _check_chain(description: UrdfDescription, joint_names: Sequence[str]) -> list[str]:
    """Require rotary joints in series from the base on, and return the names of the fixed ones."""
    if not joint_names:
        raise ParameterOutOfRange("joints", [], "at least one joint")
    for name in joint_names:
        joint = description.joint(name)
        if joint.type not in ROTARY:
            raise ModelError(
                f"URDF, joint '{name}'", f"is {joint.type}; joints of the arm must be revolute or continuous"
            )
        if joint.mimic is not None:
            raise ModelError(f"URDF, joint '{name}'", f"mimics '{joint.mimic.joint}' and cannot be a joint of the arm")
    paths = [description.path_to(description.joint(name).child) for name in joint_names]
    path = next((one for one in paths if set(joint_names) <= set(one)), paths[-1])
    in_order = [name for name in path if name in joint_names]
    if in_order != list(joint_names):
        off_path = [name for name in joint_names if name not in path]
        problem = f"are not one chain: on the path to '{in_order[-1]}' they come as {', '.join(in_order)}"
        problem += f", and {', '.join(off_path)} is not on it" if off_path else "; name them in this order"
        raise ModelError(f"URDF, joints {', '.join(joint_names)}", problem)
    others = [j.name for j in description.robot.joints if j.type != "fixed" and j.name not in joint_names]
    return [f"joints fixed at zero, not part of the arm: {', '.join(others)}"] if others else []


def require_locked(description: UrdfDescription, joint_names: Sequence[str], tool: str) -> None:
    """Raise an error that names all joints between base and tool that move and are not joints of the arm."""
    joints = [description.joint(name) for name in description.path_to(tool) if name not in joint_names]
    joints = [joint for joint in joints if joint.type in (*ROTARY, "prismatic")]
    if joints:
        names = ", ".join(f"{joint.name} ({joint.type})" for joint in joints)
        locks = " ".join(f"{joint.name}=POSITION" for joint in joints)
        problem = "between base and tool, but no joint of the arm, which are revolute or continuous; if at rest in all "
        problem += f"recordings, lock: sysid new-robot URDF --lock {locks}"
        raise ModelError(f"URDF, {names}", problem)


def _build_model(description: UrdfDescription, joint_names: Sequence[str], base: str, settings: Section) -> pin.Model:
    model = build_arm_model(description, joint_names)
    model.name = description.robot.name
    _require_fixed_to(model, base, 0, "the world")
    rotation = model.frames[model.getFrameId(base)].placement.rotation
    gravity = settings.vector("gravity", 3, "m/s^2", -_GRAVITY_MAX, _GRAVITY_MAX, default=list(_STANDARD_GRAVITY))
    model.gravity.linear = rotation @ gravity
    return model


def _require_fixed_to(model: pin.Model, frame: str, joint: int, body: str) -> None:
    links = [f.name for f in model.frames if f.parentJoint == joint and f.type == pin.FrameType.BODY]
    if frame not in links:
        raise ModelError(f"frame '{frame}' is not a link fixed to {body}; links there are {', '.join(links)}")


def _read_parameters(
    settings: Section, model: pin.Model, joint_names: Sequence[str]
) -> tuple[Array, Box, InertiaOrder | None]:
    """Build the nominal theta (14 n,), its box, and the bounds of whole bodies."""
    n = len(joint_names)
    inertial = np.stack([model.inertias[i + 1].toDynamicParameters() for i in range(n)])
    require_masses(model, joint_names)
    for i, name in enumerate(joint_names):
        require_physically_consistent(inertial[i], f"everything moved by {name}")
    section = settings.section("inertial_uncertainty")
    order = _read_order(section, settings, inertial)
    if order is None or "relative" in section:
        radius = section.number("relative", "-", 0.0, 1.0) * np.abs(inertial)
    else:  # bodies within a share of the nominal ones lie in a box that follows
        radius = np.full(inertial.shape, np.inf)
    absolute = section.section("absolute", {})
    for key in absolute.keys:
        if key not in joint_names:
            absolute.sections_by_joint(joint_names)
        radius[joint_names.index(key)] += absolute.vector(key, 10, "SI", 0.0)
    ranges = _read_ranges(section.section("range", {}), settings, joint_names, inertial)
    section.finish()
    radius[-1] += _any_state(settings)
    if order is not None:
        following = [radius_of_share(body, order.share) * (1.0 + _ROUNDING) for body in inertial]
        radius = np.minimum(radius, np.array(following))

    friction, friction_radius = np.empty((n, 4)), np.empty((n, 4))
    for i, entry in enumerate(settings.section("friction").sections_by_joint(joint_names)):
        friction[i] = entry.vector("nominal", 4, "SI", -_TORQUE_MAX, _TORQUE_MAX)
        friction_radius[i] = entry.vector("radius", 4, "SI", 0.0, _TORQUE_MAX)
        entry.finish()
        if np.any(friction[i, :3] < friction_radius[i, :3]):
            allowed = "at most nominal for F_c, F_v and I_a, which are never negative"
            raise ParameterOutOfRange(f"{entry.path}.radius", friction_radius[i].tolist(), allowed)
    theta = np.concatenate([inertial.ravel(), friction.ravel()])
    box = Box.around(theta, np.concatenate([radius.ravel(), friction_radius.ravel()]))
    lower, upper = box.lower.copy(), box.upper.copy()
    for i, own in ranges.items():
        lower[10 * i : 10 * i + 10], upper[10 * i : 10 * i + 10] = own.lower, own.upper
    return theta, Box(lower, upper), order


def _read_ranges(section: Section, settings: Section, joint_names: Sequence[str], inertial: Array) -> dict[int, Box]:
    """Read the boxes of bodies, by their place in the arm, that replace shares of the nominal parameters (n, 10)."""
    if not set(section.keys) <= set(joint_names):
        section.sections_by_joint(joint_names)
    ranges = {}
    for i, name in enumerate(joint_names):
        if name not in section:
            continue
        entry = section.section(name)
        lower, upper = (entry.vector(key, 10, "SI") for key in ("lower", "upper"))
        entry.finish()
        if not np.all((lower <= inertial[i]) & (inertial[i] <= upper)):
            raise ParameterOutOfRange(entry.path, inertial[i].tolist(), "the body of the URDF between lower and upper")
        if "gripper" in settings:
            raise ParameterOutOfRange(entry.path, name, "absent where a gripper has states")
        ranges[i] = Box(lower, upper)
    return ranges


def require_masses(model: pin.Model, joint_names: Sequence[str]) -> None:
    """Raise an error that names all joints that move no mass."""
    names = [f"'{name}'" for i, name in enumerate(joint_names) if not model.inertias[i + 1].toDynamicParameters().any()]
    if names:
        who, verb = ("joint", "moves") if len(names) == 1 else ("joints", "move")
        problem = (
            f"{verb} nothing that has mass: give its links <inertial> with <mass> and <inertia>; xacro files may write "
            "them only when asked (Franka's with gazebo:=true); where they are unpublished, type the mass of the data "
            "sheet: sysid new-robot URDF --total-mass KG"
        )
        raise ModelError(f"URDF, {who} {', '.join(names)}", problem)


def _read_order(section: Section, settings: Section, inertial: Array) -> InertiaOrder | None:
    """Read the share of the nominal pseudo-inertias (n, 10) within which the bodies' lie; None if not stated."""
    key = "pseudo_inertia"
    section.get(key, None)
    if key not in section:
        return None
    share = section.number(key, "-", 0.0, 0.9)  # above, bodies may have hardly any inertia
    if "gripper" in settings:
        raise ParameterOutOfRange(f"{section.path}.{key}", share, "absent where a gripper has states")
    nominal = inertial.ravel()
    nominal.setflags(write=False)
    return InertiaOrder(nominal, share)


def _read_grippers(
    settings: Section, theta: Array, box: Box, joint_names: Sequence[str]
) -> tuple[dict[str, GripperState], Box | None]:
    """Read the states of the gripper; the box of the last body must hold for all of them.

    Returns:
        The states, and the largest change of the last body by any of them; None without states.
    """
    section, last = settings.section("gripper", {}), slice(10 * (len(joint_names) - 1), 10 * len(joint_names))
    uncertainty, largest = settings.section("inertial_uncertainty"), _any_state(settings)
    relative = uncertainty.number("relative", "-", 0.0, 1.0) if section.keys else 0.0
    constant = uncertainty.section("absolute", {}).vector(joint_names[-1], 10, "SI", 0.0, default=[0.0] * 10)
    states = {}
    for name in section.keys:
        if name == _ANY_STATE:
            continue
        if name == AS_CALIBRATED:
            raise ParameterOutOfRange(f"{section.path}.{name}", name, "another name: this one is of calibrated arms")
        state = section.section(name)
        change = state.vector("change", 10, "SI", -np.inf, np.inf, default=[0.0] * 10)
        radius = state.vector("radius", 10, "SI", 0.0, default=[0.0] * 10)
        state.finish()
        nominal = theta[last] + change
        require_physically_consistent(nominal, f"{state.path}: everything moved by {joint_names[-1]}")
        whole = box.select(last)
        # The same relative part as in the box for any state, so that how large it is does not decide.
        least = Box.around(nominal, relative * np.abs(theta[last]) + constant + radius)
        outside = (least.lower < whole.lower - 1e-15) | (least.upper > whole.upper + 1e-15)
        if outside.any():
            k = int(np.flatnonzero(outside)[0])
            allowed = (
                f"within the box for any state: {PARAMETER_NAMES[k]} from {whole.lower[k]:.6g} to "
                f"{whole.upper[k]:.6g}; enlarge gripper.{_ANY_STATE}"
            )
            raise ParameterOutOfRange(state.path, [float(least.lower[k]), float(least.upper[k])], allowed)
        own = Box.around(nominal, relative * np.abs(nominal) + constant + radius).intersect(whole)
        assert own is not None  # noqa: S101  # the nominal parameters are in both
        nominal.setflags(write=False)
        states[name] = GripperState(nominal, own, Box.around(change, radius + relative * np.abs(change)))
    return states, Box.around(np.zeros(10), largest) if states else None


def _any_state(settings: Section) -> Array:
    """Read the largest change of the last body by any state of the gripper, (10,)."""
    return settings.section("gripper", {}).vector(_ANY_STATE, 10, "SI", 0.0, default=[0.0] * 10)


def _read_elasticity(settings: Section, friction: Array) -> JointElasticity | None:
    """Read the elasticity of the joints; None without the section, or for rigid joints."""
    if not settings.keys:
        return None
    n, sides = len(friction), [side.value for side in PositionSide]
    is_elastic = settings.flag("is_elastic")
    elasticity = JointElasticity(
        stiffness=settings.per_joint("stiffness", n, "Nm/rad", 1.0, 1e7),
        stiffness_error=settings.number("stiffness_error", "-", 0.0, 0.9),
        damping=settings.per_joint("damping", n, "Nm s/rad", 0.0, _TORQUE_MAX),
        position_side=PositionSide(settings.text("position_side", choices=sides)),
        torque_damping=settings.per_joint("torque_damping", n, "s", 0.0, 0.1, 0.0),
        actuator_lag=settings.number("actuator_lag", "s", 0.0, 0.1, 0.0),
        torque_rate=settings.per_joint("torque_rate", n, "Nm/s", 0.0, 100.0 * _TORQUE_MAX),
    )
    settings.finish()
    if is_elastic and not np.all(friction[:, 2] > 0.0):
        raise ParameterOutOfRange(f"{settings.path}.is_elastic", True, "false where a motor has no armature I_a")
    return elasticity if is_elastic else None


def _read_sensors(settings: Section, n: int) -> SensorModel:
    meanings = [meaning.value for meaning in EffortMeaning]
    sign = settings.number("effort_sign", "-", -1.0, 1.0)
    if abs(sign) != 1.0:
        raise ParameterOutOfRange(f"{settings.path}.effort_sign", sign, "1 or -1")
    if "error_window" in settings:
        # A mean over windows of one length does not bound means over shorter and longer times.
        allowed = (
            "none: say how far errors integrate, at most mean T + integral over any time T (sysid calibrate sensors)"
        )
        raise ParameterOutOfRange(f"{settings.path}.error_window", settings.get("error_window", None), allowed)
    relative = settings.per_joint("effort_relative_error", n, "-", 0.0, 0.5)
    absolute = settings.per_joint("effort_absolute_error", n, "Nm", 0.0, _TORQUE_MAX)
    velocity = settings.per_joint("velocity_error", n, "rad/s", 0.0, 100.0)
    sensors = SensorModel(
        effort_meaning=EffortMeaning(settings.text("effort_meaning", choices=meanings)),
        effort_sign=sign,
        effort_relative_error=relative,
        effort_absolute_error=absolute,
        effort_is_held=settings.flag("effort_is_held"),
        position_resolution=settings.per_joint("position_resolution", n, "rad", 0.0, 0.1),
        velocity_error=velocity,
        stamp_jitter=settings.number("stamp_jitter", "s", 0.0, 0.1),
        velocity_is_difference=settings.flag("velocity_is_difference", False),
        effort_gain_error=_part_of(settings, "effort_gain_error", "-", relative, 0.0),
        effort_mean_error=_part_of(settings, "effort_mean_error", "Nm", absolute, np.inf),
        effort_integral_error=_integral_of(settings, "effort", n, "Nms"),
        effort_drift=settings.per_joint("effort_drift", n, "Nm/s", 0.0, _TORQUE_MAX, 0.0),
        velocity_mean_error=_part_of(settings, "velocity_mean_error", "rad/s", velocity, np.inf),
        velocity_integral_error=_integral_of(settings, "velocity", n, "rad"),
        effort_friction=settings.number("effort_friction", "-", 0.0, 1.0, 0.0),
    )
    settings.finish()
    if sensors.effort_friction and sensors.effort_meaning.has_friction:
        allowed = f"0 for {sensors.effort_meaning.value}, which has all of it in its effort"
        raise ParameterOutOfRange(f"{settings.path}.effort_friction", sensors.effort_friction, allowed)
    return sensors


def _part_of(settings: Section, key: str, unit: str, whole: Array, default: float) -> Array:
    if key not in settings:
        settings.get(key, None)
        return np.full(whole.size, default)
    part = settings.per_joint(key, whole.size, unit, 0.0)
    if np.any(part > whole):
        allowed = f"at most the whole error of each joint, {np.round(whole, 6).tolist()} [{unit}]"
        raise ParameterOutOfRange(f"{settings.path}.{key}", part.tolist(), allowed)
    return part


def _integral_of(settings: Section, what: str, n: int, unit: str) -> Array:
    """Read the bounded part of an error's integral, (n,); it comes together with the lasting part."""
    mean, key = f"{what}_mean_error", f"{what}_integral_error"
    if (mean in settings) != (key in settings):
        missing = key if mean in settings else mean
        raise ParameterOutOfRange(
            f"{settings.path}.{missing}", MISSING, f"both {mean} and {key}: the error integrates to mean T + integral"
        )
    return settings.per_joint(key, n, unit, 0.0, default=0.0)


def _read_spheres(settings: Section, model: pin.Model) -> tuple[Sphere, ...]:
    links = [f.name for f in model.frames if f.type == pin.FrameType.BODY]
    spheres = []
    for link in settings.keys:
        if link not in links:
            raise ParameterOutOfRange(f"{settings.path}.{link}", link, f"a link; this robot has {', '.join(links)}")
        frame = model.frames[model.getFrameId(link)]
        for row in read_sphere_rows(settings, link):
            spheres.append(Sphere(frame.parentJoint, frame.placement.act(row[:3]), float(row[3]), link))
    return tuple(spheres)


def _read_assumptions(settings: Section) -> tuple[str, ...]:
    sentences = settings.get("assumptions", [])
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise ParameterOutOfRange(f"{settings.path}.assumptions", sentences, "a list of sentences")
    return tuple(sentences)


def _read_pairs(settings: Section, model: pin.Model) -> tuple[tuple[str, str], ...]:
    links = [f.name for f in model.frames if f.type == pin.FrameType.BODY]
    pairs = settings.get("never_touch", [])
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        if not isinstance(pair, list) or len(pair) != 2 or not set(pair) <= set(links):
            raise ParameterOutOfRange(f"{settings.path}.never_touch", pair, f"pairs of the links {', '.join(links)}")
    return tuple((first, second) for first, second in pairs)


def _read_priors(settings: Section, model: pin.Model, tool: str) -> tuple[dict[str, PayloadPrior], str]:
    section = settings.section("payload_priors")
    placement = model.frames[model.getFrameId(tool)].placement
    tool_placement = (np.array(placement.rotation), np.array(placement.translation))
    last = model.njoints - 1
    priors = {name: read_prior(section.section(name), name, tool_placement, last) for name in section.keys}
    return priors, settings.text("payload_prior", choices=list(priors))
