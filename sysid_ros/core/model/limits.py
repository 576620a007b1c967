"""Joint limits: the URDF's, tightened by the settings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from urdf_parser_py.urdf import Joint

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import JointLimits
from sysid_ros.core.model.settings import Section
from sysid_ros.core.model.urdf import UrdfDescription
from sysid_ros.core.model.urdf_checks import MissingLimit

_ACCELERATION_MAX = 1000.0  # [rad/s^2]
_ROUNDING = 1e-9  # settings may exceed the URDF by this share, the rounding of a decimal number


def read_limits(description: UrdfDescription, joint_names: Sequence[str], sections: Sequence[Section]) -> JointLimits:
    """Limits of the arm's joints.

    The URDF sets the outer limits of position, speed and torque; settings ``position``, ``velocity`` and ``torque`` may
    only tighten them. ``acceleration`` exists in the settings only.

    Args:
        description: The URDF.
        joint_names: Joints of the arm, (n,).
        sections: Settings of each joint, (n,).

    Raises:
        MissingLimit: The URDF has no limit (or one of zero) where one is needed.
        ParameterOutOfRange: A setting is looser than the URDF.
    """
    rows = [
        _joint_limits(description.joint(name), section) for name, section in zip(joint_names, sections, strict=True)
    ]
    return JointLimits(*np.array(rows, dtype=float).T.copy())


def _joint_limits(joint: Joint, section: Section) -> tuple[float, float, float, float, float]:
    lower, upper = urdf_position_limits(joint)
    velocity, torque = urdf_rate_limits(joint)
    if "position" in section:
        position = section.vector("position", 2, "rad", _loosen(lower, -1), _loosen(upper, 1))
        if not position[0] < position[1]:
            raise ParameterOutOfRange(f"{section.path}.position", position.tolist(), "lower below upper [rad]")
        lower, upper = max(lower, position[0]), min(upper, position[1])
    velocity = min(velocity, section.number("velocity", "rad/s", 1e-6, _loosen(velocity, 1), default=velocity))
    torque = min(torque, section.number("torque", "Nm", 1e-6, _loosen(torque, 1), default=torque))
    acceleration = section.number("acceleration", "rad/s^2", 1e-6, _ACCELERATION_MAX)
    return lower, upper, velocity, acceleration, torque


def urdf_position_limits(joint: Joint) -> tuple[float, float]:
    """Lower and upper position [rad] of a rotary joint; infinite for a continuous one.

    Raises:
        MissingLimit: A revolute joint without limits.
    """
    if joint.type == "continuous":
        return -math.inf, math.inf
    if joint.limit is None or not joint.limit.lower < joint.limit.upper:
        raise MissingLimit(joint.name, "position (lower < upper) [rad]")
    return float(joint.limit.lower), float(joint.limit.upper)


def urdf_rate_limits(joint: Joint) -> tuple[float, float]:
    """Speed [rad/s] and torque [Nm] limit of a joint.

    Raises:
        MissingLimit: One of them is missing or not above zero.
    """
    for value, missing in (("velocity", "velocity [rad/s]"), ("effort", "effort [Nm]")):
        if joint.limit is None or not getattr(joint.limit, value, 0.0) > 0.0:
            raise MissingLimit(joint.name, missing)
    return float(joint.limit.velocity), float(joint.limit.effort)


def _loosen(limit: float, side: int) -> float:
    return limit + side * _ROUNDING * abs(limit) if math.isfinite(limit) else limit
