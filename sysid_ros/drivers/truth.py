"""The hidden truth of simulated arms: their parameters, drawn in their box, and payloads by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.inertia import from_com_form, require_physically_consistent, transform_parameters
from sysid_ros.core.model.loader import config_directories
from sysid_ros.core.model.robot import RobotModel, tool_transform
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.drivers.arm import Array

TRUTHS = ("nominal", "random", "corner")
"""How the simulated arm's own parameters are chosen inside their box."""


class UnknownPayload(SysidError):
    """A payload that is not in ``config/payloads.yaml``.

    Args:
        name: The unknown name.
        valid_names: Names of the payloads there are.
    """

    def __init__(self, name: str, valid_names: tuple[str, ...]):
        self.name = name
        self.valid_names = valid_names
        listed = ", ".join(valid_names)
        super().__init__(f"payload '{name}' is unknown; allowed: {listed}, 'none', or a mass [kg]")


def load_payload(robot: RobotModel, name: str) -> Array | None:
    """Load a payload of ``config/payloads.yaml`` held in the robot's tool.

    Args:
        robot: The robot.
        name: Its name there; ``none``; or a mass [kg], which gives the first one there that mass, its shape kept.

    Returns:
        Its parameters about the frame of the last joint, (10,); None for ``none``.

    Raises:
        UnknownPayload: There is none of this name.
        NotPhysicallyConsistent: No body has the listed inertia.
    """
    if name == "none":
        return None
    payloads = yaml.safe_load(_payload_file().read_text())
    scale = 1.0
    if _is_mass(name):
        shape = next(iter(payloads))
        scale, name = float(name) / payloads[shape]["mass"], shape
    if name not in payloads:
        raise UnknownPayload(name, tuple(payloads))
    entry = payloads[name]
    xx, xy, yy, xz, yz, zz = entry["inertia"]
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    in_tool = scale * from_com_form(entry["mass"], entry["com"], inertia)
    parameters = transform_parameters(in_tool, *tool_transform(robot))
    require_physically_consistent(parameters, name)
    return parameters


def draw_truth(robot: RobotModel, truth: str, seed: int) -> Array:
    """Choose the true parameters of a simulated arm, (14 n,), in the box of the robot.

    Args:
        robot: The arm.
        truth: How, one of :data:`TRUTHS`.
        seed: Of the random choice.

    Raises:
        ParameterOutOfRange: There is no such way.
    """
    if truth not in TRUTHS:
        raise ParameterOutOfRange("truth", truth, "one of " + ", ".join(TRUTHS))
    if truth == "nominal":
        return robot.theta_nominal
    return sample_parameters(robot, np.random.default_rng((seed, 7)), corner=truth == "corner")


def _is_mass(text: str) -> bool:
    try:
        return 0.0 < float(text) < np.inf
    except ValueError:
        return False


def _payload_file() -> Path:
    for directory in config_directories():
        if (directory / "payloads.yaml").is_file():
            return directory / "payloads.yaml"
    raise SysidError(f"payloads.yaml is in none of {', '.join(map(str, config_directories()))}")
