"""Loads a robot: a URDF plus the settings of ``config/<name>.yaml`` (docs/robots.md describes them)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pinocchio as pin
import yaml
from numpy.typing import NDArray

from sysid_ros.core.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.defaults import default_settings
from sysid_ros.core.model.inertia import require_physically_consistent
from sysid_ros.core.model.limits import read_limits
from sysid_ros.core.model.payload import read_prior
from sysid_ros.core.model.robot import EffortMeaning, PayloadPrior, RobotModel, SensorModel, Sphere
from sysid_ros.core.model.settings import Section
from sysid_ros.core.model.spheres import read_sphere_rows
from sysid_ros.core.model.urdf import InvalidUrdf, UrdfDescription, build_arm_xml, read_urdf

Array = NDArray[np.float64]

_STANDARD_GRAVITY = (0.0, 0.0, -9.81)  # [m/s^2]
_GRAVITY_MAX = 30.0  # [m/s^2]
_TORQUE_MAX = 1e5  # [Nm]
_VELOCITY_MAX = 100.0  # [rad/s]


def config_directories() -> tuple[Path, ...]:
    """Where robot settings are looked for: the checkout, then ``share/sysid_ros/config`` of every install prefix."""
    parents = Path(__file__).resolve().parents
    prefixes = [*parents, *(Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p)]
    shared = [prefix / "share" / "sysid_ros" / "config" for prefix in prefixes]
    return tuple(path for path in (parents[3] / "config", *shared) if path.is_dir())


def available_robots() -> tuple[str, ...]:
    """Names :func:`load_robot` knows: the settings files beside whose folder ``urdf/<name>.urdf`` exists."""
    files = [file for folder in config_directories() for file in sorted(folder.glob("*.yaml"))]
    return tuple(dict.fromkeys(f.stem for f in files if (f.parent.parent / "urdf" / f"{f.stem}.urdf").is_file()))


def load_robot(
    robot: str | Path = "kinova_gen3_2f85", urdf_text: str | None = None, *, snap_angles: bool = True
) -> RobotModel:
    """Loads a robot by name or from its settings file.

    Args:
        robot: A name of :func:`available_robots`, or the path of a YAML file of that form.
        urdf_text: URDF to use instead of the one the settings name, such as the content of ``robot_description``.
        snap_angles: See :func:`sysid_ros.core.model.urdf.read_urdf`.

    Returns:
        The robot.

    Raises:
        ModelError: Unknown name, unreadable file, or a URDF that cannot be used (the message names what is wrong).
        JointNotFound: The settings name a joint the URDF has not.
        ParameterOutOfRange: A setting is unknown, missing or out of range.
        NotPhysicallyConsistent: An inertia no body can have.
    """
    path = _find_settings(robot)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ModelError(f"cannot read the robot settings {path}: {error}") from error
    settings = Section(values, path.name)
    urdf_path = path.parent / settings.text("urdf")
    if urdf_text is None:
        try:
            urdf_text = urdf_path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise ModelError(f"cannot read the URDF that {path} names: {error}") from error
    return build_robot(path.stem, read_urdf(urdf_text, snap_angles), settings)


def load_robot_from_urdf(
    urdf_text: str,
    *,
    name: str | None = None,
    joint_names: Sequence[str] | None = None,
    tool_frame: str | None = None,
    settings: Mapping[str, Any] | None = None,
    snap_angles: bool = True,
) -> RobotModel:
    """Loads any arm from its URDF alone; what the URDF does not say is assumed (see ``assumptions`` of the result).

    Args:
        urdf_text: The URDF, with xacro macros expanded. Meshes may be missing.
        name: Name of the robot; the URDF's own without it.
        joint_names: Joints of the arm from the base on; without them all of the path to the tool. Other joints are
            fixed at zero.
        tool_frame: Link the payload is held in; without it the last link of the only path with movable joints.
        settings: Sections of a settings file that replace the derived ones.
        snap_angles: See :func:`sysid_ros.core.model.urdf.read_urdf`.

    Returns:
        The robot.

    Raises:
        ModelError: As :func:`load_robot`; also where the URDF branches and neither joints nor tool are given.
    """
    description = read_urdf(urdf_text, snap_angles)
    derived = default_settings(description, joint_names, tool_frame)
    merged = {**derived, **(settings or {})}
    label = name or description.robot.name
    return build_robot(label, description, Section(merged, label))


def build_robot(name: str, description: UrdfDescription, settings: Section) -> RobotModel:
    """Puts a checked URDF and settings together; raises as :func:`load_robot` does."""
    settings.get("urdf", "")
    joints = settings.section("joints")
    joint_names = tuple(joints.keys)
    notes = _check_chain(description, joint_names)
    sections = joints.sections_by_joint(joint_names)
    limits = read_limits(description, joint_names, sections)
    home = np.array([s.number("home", "rad", -np.inf, np.inf) for s in sections])
    for section in sections:
        section.finish()
    for joint, q, lower, upper in zip(joint_names, home, limits.q_lower, limits.q_upper, strict=True):
        if not lower <= q <= upper:
            raise ParameterOutOfRange(f"{joints.path}.{joint}.home", float(q), f"{lower:g} to {upper:g} [rad]")

    frames = settings.section("frames")
    base, flange, tool = (frames.text(key) for key in ("base", "flange", "tool"))
    frames.finish()
    model = _build_model(description, joint_names, base, settings)
    for frame in (flange, tool):
        _require_fixed_to(model, frame, model.njoints - 1, "the last body")
    theta, box = _read_parameters(settings, model, joint_names)

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
    )
    settings.finish()
    for array in (theta, home, *vars(limits).values()):
        array.setflags(write=False)
    return robot


def _find_settings(robot: str | Path) -> Path:
    path = Path(robot)
    if path.suffix in (".yaml", ".yml"):
        return path
    for folder in config_directories():
        if (folder / f"{robot}.yaml").is_file() and robot in available_robots():
            return folder / f"{robot}.yaml"
    raise ModelError(f"robot '{robot}' is unknown; known are {', '.join(available_robots())}, or give a .yaml file")


def _check_chain(description: UrdfDescription, joint_names: Sequence[str]) -> list[str]:
    """Checks that the joints are rotary and follow each other from the base on; tells which others are fixed."""
    if not joint_names:
        raise ParameterOutOfRange("joints", [], "at least one joint")
    for name in joint_names:
        joint = description.joint(name)
        if joint.type not in ("revolute", "continuous"):
            raise InvalidUrdf(f"joint '{name}'", f"is {joint.type}; joints of the arm must be revolute or continuous")
        if joint.mimic is not None:
            raise InvalidUrdf(f"joint '{name}'", f"mimics '{joint.mimic.joint}' and cannot be a joint of the arm")
    path = description.path_to(description.joint(joint_names[-1]).child)
    in_order = [name for name in path if name in joint_names]
    if in_order != list(joint_names):
        off_path = [name for name in joint_names if name not in path]
        problem = f"are not one chain: on the path to '{joint_names[-1]}' they come as {', '.join(in_order)}"
        if off_path:
            problem += f", and {', '.join(off_path)} is not on it"
        raise InvalidUrdf(f"joints {', '.join(joint_names)}", problem)
    others = [j.name for j in description.robot.joints if j.type != "fixed" and j.name not in joint_names]
    return [f"joints fixed at zero, not part of the arm: {', '.join(others)}"] if others else []


def _build_model(description: UrdfDescription, joint_names: Sequence[str], base: str, settings: Section) -> pin.Model:
    model = pin.buildModelFromXML(build_arm_xml(description, joint_names))
    model.name = description.robot.name
    _require_fixed_to(model, base, 0, "what stands still")
    rotation = model.frames[model.getFrameId(base)].placement.rotation
    gravity = settings.vector("gravity", 3, "m/s^2", -_GRAVITY_MAX, _GRAVITY_MAX, default=list(_STANDARD_GRAVITY))
    model.gravity.linear = rotation @ gravity
    return model


def _require_fixed_to(model: pin.Model, frame: str, joint: int, body: str) -> None:
    links = [f.name for f in model.frames if f.parentJoint == joint and f.type == pin.FrameType.BODY]
    if frame not in links:
        raise ModelError(f"frame '{frame}' is not a link fixed to {body}; links there are {', '.join(links)}")


def _read_parameters(settings: Section, model: pin.Model, joint_names: Sequence[str]) -> tuple[Array, Box]:
    """Nominal theta (14 n,) and its box."""
    n = len(joint_names)
    inertial = np.stack([model.inertias[i + 1].toDynamicParameters() for i in range(n)])
    for i, name in enumerate(joint_names):
        require_physically_consistent(inertial[i], f"everything moved by {name}")
    section = settings.section("inertial_uncertainty")
    radius = section.number("relative", "-", 0.0, 1.0) * np.abs(inertial)
    absolute = section.section("absolute", {})
    for key in absolute.keys:
        if key not in joint_names:
            absolute.sections_by_joint(joint_names)
        radius[joint_names.index(key)] += absolute.vector(key, 10, "SI", 0.0)
    section.finish()

    friction, friction_radius = np.empty((n, 4)), np.empty((n, 4))
    for i, entry in enumerate(settings.section("friction").sections_by_joint(joint_names)):
        friction[i] = entry.vector("nominal", 4, "SI", -_TORQUE_MAX, _TORQUE_MAX)
        friction_radius[i] = entry.vector("radius", 4, "SI", 0.0, _TORQUE_MAX)
        entry.finish()
        if np.any(friction[i, :3] < friction_radius[i, :3]):
            allowed = "at most nominal for F_c, F_v and I_a, which are never negative"
            raise ParameterOutOfRange(f"{entry.path}.radius", friction_radius[i].tolist(), allowed)
    theta = np.concatenate([inertial.ravel(), friction.ravel()])
    return theta, Box.around(theta, np.concatenate([radius.ravel(), friction_radius.ravel()]))


def _read_sensors(settings: Section, n: int) -> SensorModel:
    meanings = [meaning.value for meaning in EffortMeaning]
    sign = settings.number("effort_sign", "-", -1.0, 1.0)
    if abs(sign) != 1.0:
        raise ParameterOutOfRange(f"{settings.path}.effort_sign", sign, "1 or -1")
    sensors = SensorModel(
        effort_meaning=EffortMeaning(settings.text("effort_meaning", choices=meanings)),
        effort_sign=sign,
        effort_relative_error=settings.per_joint("effort_relative_error", n, "-", 0.0, 0.5),
        effort_absolute_error=settings.per_joint("effort_absolute_error", n, "Nm", 0.0, _TORQUE_MAX),
        effort_is_held=settings.flag("effort_is_held"),
        position_resolution=settings.per_joint("position_resolution", n, "rad", 0.0, 0.1),
        velocity_error=settings.per_joint("velocity_error", n, "rad/s", 0.0, _VELOCITY_MAX),
        stamp_jitter=settings.number("stamp_jitter", "s", 0.0, 0.1),
    )
    settings.finish()
    return sensors


def _read_spheres(settings: Section, model: pin.Model) -> tuple[Sphere, ...]:
    """Spheres of the links, centres brought to the joint frame of the body they belong to."""
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
