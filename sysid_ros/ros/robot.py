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

    model: str = parameter(
        "kinova_gen3_2f85", "", "Robot: a name from config/ or the path of a robot YAML file", read_only=True
    )

    def load_robot(self, logger: Any) -> RobotModel:
        """Loads the robot; what was noticed on the way goes into the log.

        Raises:
            SysidError: The robot cannot be used; names what is wrong.
        """
        robot = load_robot(self.model)
        for warning in robot.warnings:
            logger.warning(warning)
        return robot
