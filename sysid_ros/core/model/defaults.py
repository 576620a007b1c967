"""Settings of an arm derived from its URDF alone.

They have the form of a settings file, so a user can write them out (``yaml.safe_dump``) and go on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from urdf_parser_py.urdf import Joint

from sysid_ros.core.model.builder import urdf_position_limits, urdf_rate_limits
from sysid_ros.core.model.spheres import cover_links
from sysid_ros.core.model.urdf import ROTARY, InvalidUrdf, UrdfDescription

_RISE_TIME = 0.25  # [s] from rest to top speed, sets the acceleration limit
_INERTIAL_UNCERTAINTY = 0.05  # [-] SAFE-ID section VI
_FRICTION_UNCERTAINTY = 0.5  # [-] of the URDF's friction tags, which are mostly placeholders
_PAYLOAD_MASS_MAX = 5.0  # [kg]
_ASSUMPTIONS = (
    "acceleration limits: top speed within 0.25 s",
    "link inertias: the URDF's, each within 5 %",
    "friction: the URDF's damping and friction tags, each within 50 %; no armature, no torque offset",
    "sensors: torque within 2.5 % and 0.05 Nm, measured before friction, in joint direction; encoder step 1e-4 rad",
    "payload: up to 5 kg, CoM within 0.3 m of the tool frame, radius of gyration up to 0.15 m",
    "home posture: the middle of each joint's range",
)


def default_settings(
    description: UrdfDescription, joint_names: Sequence[str] | None = None, tool_frame: str | None = None
) -> dict[str, Any]:
    """Derive settings from a URDF.

    Args:
        description: The URDF.
        joint_names: Joints of the arm from the base on; without them, those of the path to the tool.
        tool_frame: Link the payload is held in; without it the last link after the last joint.

    Returns:
        Settings as in a settings file.

    Raises:
        InvalidUrdf: The URDF branches and neither joints nor tool are given, or it has no rotary joint.
        MissingLimit: A joint of the arm lacks a limit.
    """
    names = list(joint_names) if joint_names is not None else _find_arm(description, tool_frame)
    joints = [description.joint(name) for name in names]
    spheres = cover_links(description.text)
    uncovered = [joint.child for joint in joints if joint.child not in spheres]
    unseen = [f"no collision spheres: {', '.join(uncovered)} (no simple shapes)"] if uncovered else []
    tool = tool_frame or _last_fixed_link(description, joints[-1].child)
    return {
        "frames": {"base": joints[0].parent, "flange": tool, "tool": tool},
        "joints": {joint.name: _joint_settings(joint) for joint in joints},
        "friction": {joint.name: _friction(joint) for joint in joints},
        "inertial_uncertainty": {"relative": _INERTIAL_UNCERTAINTY},
        "sensors": {
            "effort_meaning": "motor_side",
            "effort_sign": 1,
            "effort_relative_error": 0.025,
            "effort_absolute_error": 0.05,
            "effort_is_held": True,
            "position_resolution": 1.0e-4,
            "velocity_error": 0.002,
            "stamp_jitter": 2.0e-5,
        },
        "rated_payload": _PAYLOAD_MASS_MAX,
        "payload_prior": "anything",
        "payload_priors": {
            "anything": {
                "mass": [0.0, _PAYLOAD_MASS_MAX],
                "center_of_mass": {"lower": [-0.3, -0.3, -0.3], "upper": [0.3, 0.3, 0.3]},
                "radius_of_gyration": 0.15,
            }
        },
        "spheres": spheres,
        "assumptions": [f"the arm: joints {', '.join(names)}, tool frame {tool}", *_ASSUMPTIONS, *unseen],
    }


def _find_arm(description: UrdfDescription, tool_frame: str | None) -> list[str]:
    """List the rotary joints on the path to the tool, or on the only path there is."""
    robot = description.robot
    if tool_frame is not None:
        names = description.path_to(tool_frame)
    else:
        movable = [j.name for j in robot.joints if j.type in ROTARY and j.mimic is None]
        paths = [
            [name for name in description.path_to(robot.joint_map[last].child) if name in movable] for last in movable
        ]
        names = max(paths, key=len, default=[])
        if set(names) != set(movable):
            ends = [path[-1] for path in paths if not any(len(p) > len(path) and p[: len(path)] == path for p in paths)]
            problem = f"branches into {', '.join(ends)}; name the joints of the arm, or the link of its tool"
            raise InvalidUrdf("robot", problem)
    if not names:
        raise InvalidUrdf("robot", "has no revolute or continuous joint to form an arm")
    return names


def _last_fixed_link(description: UrdfDescription, link: str) -> str:
    """Follow fixed joints outwards while there is exactly one."""
    children = description.robot.child_map.get(link, [])
    while len(children) == 1 and description.robot.joint_map[children[0][0]].type == "fixed":
        link = children[0][1]
        children = description.robot.child_map.get(link, [])
    return link


def _joint_settings(joint: Joint) -> dict[str, float]:
    lower, upper = urdf_position_limits(joint)
    velocity, _ = urdf_rate_limits(joint)
    return {"home": 0.0 if joint.type == "continuous" else 0.5 * (lower + upper), "acceleration": velocity / _RISE_TIME}


def _friction(joint: Joint) -> dict[str, list[float]]:
    coulomb = float(getattr(joint.dynamics, "friction", None) or 0.0)
    viscous = float(getattr(joint.dynamics, "damping", None) or 0.0)
    share = _FRICTION_UNCERTAINTY
    return {"nominal": [coulomb, viscous, 0.0, 0.0], "radius": [share * coulomb, share * viscous, 0.0, 0.0]}
