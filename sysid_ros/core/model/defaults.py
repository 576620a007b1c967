"""Settings of an arm derived from its URDF alone.

They have the form of a settings file (``sysid new-robot`` writes one). Facts that a URDF does not have are unknown
within a wide box, never zero or exact: a box that misses the truth turns good data into an alarm, or into wrong bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray
from urdf_parser_py.urdf import Joint

from sysid_ros.core.common.errors import ModelError, raise_together
from sysid_ros.core.model.builder import require_locked, require_masses, urdf_position_limits, urdf_rate_limits
from sysid_ros.core.model.spheres import cover_links
from sysid_ros.core.model.urdf import ROTARY, UrdfDescription, build_arm_model

RISE_TIME = 0.25
"""From rest to top speed, sets the acceleration limit [s]."""
INERTIAL_UNCERTAINTY = 0.1
"""Share of each inertial parameter by which the URDF may be wrong [-]; SAFE-ID section VI has 0.05."""
COM_UNCERTAINTY = 0.01
"""Distance by which a CoM may be elsewhere besides [m]."""
PRODUCT_UNCERTAINTY = 0.05
"""Products of inertia, often left at zero in a URDF, may be off by this share of the largest moment besides [-]."""
COULOMB_SHARE, VISCOUS_SHARE, OFFSET_SHARE = 0.1, 0.1, 0.02
"""Largest Coulomb torque, viscous torque at top speed, and torque offset, as shares of the torque limit [-]."""
ARMATURE_SHARE = 0.5
"""Share of the torque limit that the rotors may need for the acceleration limit [-]."""
TAG_FACTOR = 2.0
"""The URDF's friction tags, which are mostly placeholders, may be too small by this factor [-]."""
EFFORT_SHARE, EFFORT_LEAST = 0.005, 0.05
"""Absolute torque error: share of the torque limit [-], and the least [Nm]."""
PAYLOAD_MASS_MAX = 5.0
"""Largest mass of a payload [kg]."""
_LEAST_ARM = 3
"""Chains of fewer joints are no arm with a hand behind it."""
HOME_ASSUMED = "home posture: the middle of each joint's range"
_ASSUMPTIONS = (
    f"acceleration limits: top speed within {RISE_TIME:g} s",
    f"link inertias that the URDF states: each parameter within {100 * INERTIAL_UNCERTAINTY:g} %, the CoM of "
    f"everything a joint moves within {1e3 * COM_UNCERTAINTY:g} mm more, products of inertia within "
    f"{100 * PRODUCT_UNCERTAINTY:g} % of the largest moment more",
    f"friction is unknown: Coulomb torque and viscous torque at top speed each up to {100 * COULOMB_SHARE:g} % of the "
    f"torque limit, or twice the URDF's tags; rotors take up to {100 * ARMATURE_SHARE:g} % of it at the acceleration "
    f"limit; torque offsets within {100 * OFFSET_SHARE:g} % of it",
    f"sensors: torque within a constant gain of 2.5 %, 0.5 % of it and {100 * EFFORT_SHARE:g} % of the limit, measured "
    "before friction, in joint direction; velocity within 0.005 rad/s, encoder step 1e-4 rad, stamps within 0.1 ms",
    f"payload: up to {PAYLOAD_MASS_MAX:g} kg, CoM within 0.3 m of the tool frame, radius of gyration up to 0.15 m",
    HOME_ASSUMED,
)


def default_settings(
    description: UrdfDescription,
    joint_names: Sequence[str] | None = None,
    tool_frame: str | None = None,
    spheres: Mapping[str, list[list[float]]] | None = None,
) -> dict[str, Any]:
    """Derive settings from a URDF.

    Args:
        description: The URDF.
        joint_names: Joints of the arm from the base on; by default those on the path to the tool.
        tool_frame: Link the payload is held in; by default the last link after the last joint.
        spheres: Collision spheres by link, as in a settings file; by default over the simple shapes.

    Returns:
        Settings as in a settings file.

    Raises:
        ModelError: The URDF branches and neither joints nor tool are given, or it has no rotary joint.
        ModelError: Joints of the arm lack limits or masses, or bodies cannot exist: all of it at once.
    """
    names = list(joint_names) if joint_names is not None else find_arm(description, tool_frame)
    joints = [description.joint(name) for name in names]
    tool = tool_frame or last_fixed_link(description, joints[-1].child)
    model = build_arm_model(description, names)
    _require_all(description, model, names, tool)
    spheres = cover_links(description.text) if spheres is None else dict(spheres)
    uncovered = [joint.child for joint in joints if joint.child not in spheres]
    unseen = [f"no collision spheres: {', '.join(uncovered)} (no simple shapes)"] if uncovered else []
    efforts = [max(EFFORT_LEAST, round(EFFORT_SHARE * urdf_rate_limits(joint)[1], 3)) for joint in joints]
    return {
        "frames": {"base": joints[0].parent, "flange": tool, "tool": tool},
        "gravity": [0.0, 0.0, -9.81],
        "rated_payload": PAYLOAD_MASS_MAX,
        "joints": {joint.name: _joint_settings(joint) for joint in joints},
        "friction": {joint.name: unknown_friction(joint) for joint in joints},
        "inertial_uncertainty": {
            "relative": INERTIAL_UNCERTAINTY,
            "absolute": {
                name: absolute_uncertainty(model.inertias[body].toDynamicParameters())
                for body, name in enumerate(names, start=1)
            },
        },
        "sensors": {
            "effort_meaning": "motor_side",
            "effort_sign": 1,
            "effort_relative_error": 0.03,
            "effort_gain_error": 0.025,
            "effort_absolute_error": efforts,
            "effort_is_held": True,
            "position_resolution": 1.0e-4,
            "velocity_error": 0.005,
            "stamp_jitter": 1.0e-4,
        },
        "payload_prior": "anything",
        "payload_priors": {
            "anything": {
                "mass": [0.0, PAYLOAD_MASS_MAX],
                "center_of_mass": {"lower": [-0.3, -0.3, -0.3], "upper": [0.3, 0.3, 0.3]},
                "radius_of_gyration": 0.15,
            }
        },
        "spheres": spheres,
        "assumptions": [f"the arm: joints {', '.join(names)}, tool frame {tool}", *_ASSUMPTIONS, *unseen],
    }


def _require_all(description: UrdfDescription, model: pin.Model, joint_names: Sequence[str], tool: str) -> None:
    """Raise an error with all faults of the bodies and joints of an arm."""
    problems, joints = list(description.problems), [description.joint(name) for name in joint_names]
    limits = [partial(check, joint) for joint in joints for check in (urdf_position_limits, urdf_rate_limits)]
    masses, locks = partial(require_masses, model, joint_names), partial(require_locked, description, joint_names, tool)
    checks: tuple[Callable[[], object], ...] = (*limits, masses, locks)
    for check in checks:
        try:
            check()
        except ModelError as problem:
            problems.append(problem)
    raise_together(problems)


def unknown_friction(joint: Joint) -> dict[str, list[float]]:
    """Return friction in a wide box from zero up, as nominal and radius, from the limits of a joint of the URDF.

    Raises:
        ModelError: A limit is missing.
    """
    speed, torque = urdf_rate_limits(joint)
    tags = (float(getattr(joint.dynamics, name, None) or 0.0) for name in ("friction", "damping"))
    coulomb, viscous = (TAG_FACTOR * tag for tag in tags)
    upper = [
        max(COULOMB_SHARE * torque, coulomb),
        max(VISCOUS_SHARE * torque / speed, viscous),
        ARMATURE_SHARE * torque / (speed / RISE_TIME),
    ]
    half = [_digits(0.5 * value) for value in upper]
    return {"nominal": [*half, 0.0], "radius": [*half, _digits(OFFSET_SHARE * torque)]}


def absolute_uncertainty(theta: NDArray[np.float64]) -> list[float]:
    """Return how wrong the parameters (10,) of a stated body may be besides a share of each, (10,)."""
    moment, product = COM_UNCERTAINTY * theta[0], PRODUCT_UNCERTAINTY * float(np.max(theta[[4, 6, 9]]))
    parts = [0.0, moment, moment, moment, 0.0, product, 0.0, product, product, 0.0]
    return [_digits(max(part, 0.0)) for part in parts]


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def find_arm(description: UrdfDescription, tool_frame: str | None) -> list[str]:
    """List the rotary joints on the path to the tool (with None on the only path there is).

    Raises:
        ModelError: There is none, or several; with all faults of bodies.
    """
    robot = description.robot
    if tool_frame is not None:
        names = [name for name in description.path_to(tool_frame) if description.joint(name).type in ROTARY]
    else:
        copied = {j.mimic.joint for j in robot.joints if j.mimic is not None}
        movable = [j.name for j in robot.joints if j.type in ROTARY and j.mimic is None]
        # Behind an arm, a joint that others mimic and that has none of its own behind it moves fingers.
        own = {name for name in movable if name not in copied}
        inner = {name for last in own for name in description.path_to(robot.joint_map[last].child)}
        movable = [name for name in movable if name in inner or len(inner) < _LEAST_ARM]
        paths = [
            [name for name in description.path_to(robot.joint_map[last].child) if name in movable] for last in movable
        ]
        names = max(paths, key=len, default=[])
        if set(names) != set(movable):
            ends = [path[-1] for path in paths if not any(len(p) > len(path) and p[: len(path)] == path for p in paths)]
            problem = f"branches into {', '.join(ends)}; name the joints of the arm, or the link of its tool"
            raise_together([*description.problems, ModelError("URDF, robot", problem)])
    if not names:
        problem = "has no revolute or continuous joint to form an arm"
        raise_together([*description.problems, ModelError("URDF, robot", problem)])
    return names


def last_fixed_link(description: UrdfDescription, link: str) -> str:
    """Return the link at the end of fixed joints, followed outwards while there is exactly one."""
    children = description.robot.child_map.get(link, [])
    while len(children) == 1 and description.robot.joint_map[children[0][0]].type == "fixed":
        link = children[0][1]
        children = description.robot.child_map.get(link, [])
    return link


def _joint_settings(joint: Joint) -> dict[str, float]:
    lower, upper = urdf_position_limits(joint)
    velocity, _ = urdf_rate_limits(joint)
    home = 0.0 if joint.type == "continuous" else 0.5 * (lower + upper)
    return {"home": home, "acceleration": velocity / RISE_TIME}
