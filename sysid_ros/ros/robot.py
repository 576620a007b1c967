"""The parameters by which every node knows its robot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.ros.parameters import NodeParameters, parameter


@dataclass(frozen=True)
class RobotParameters(NodeParameters):
    """Parameters of a node that needs the robot's model."""

    model: str = parameter("kinova_gen3_2f85", read_only=True)
    """Robot: a name from config/ or the path of a robot YAML file."""

    def load_robot(self, logger: Any) -> RobotModel:
        """Load the robot; what was noticed on the way goes into the log.

        Raises:
            SysidError: The robot cannot be used; names what is wrong.
        """
        robot = load_robot(self.model)
        for warning in robot.warnings:
            logger.warning(warning)
        return robot


@dataclass(frozen=True)
class FrameParameters(NodeParameters):
    """Parameters of a node that tells others in which frame something is."""

    tf_prefix: str = parameter("", read_only=True)
    """Put before the names of frames, as in left/base_link; that of robot_state_publisher."""


@dataclass(frozen=True)
class SceneParameters(RobotParameters):
    """Parameters of a node that needs to know what is around the arm; planner and checker must agree on them."""

    has_ground: bool = parameter(True, guards_motion=True)
    """Whether there is a ground below the arm."""
    ground_height: float = parameter(0.0, "m", lower=-10.0, upper=10.0, guards_motion=True)
    """Height of the ground in the base frame."""

    @property
    def ground(self) -> float | None:
        """Height of the ground in the base frame [m]; None for no ground."""
        return self.ground_height if self.has_ground else None
