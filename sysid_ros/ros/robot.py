"""The parameters by which every node knows its robot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.robot_files import config_directories
from sysid_ros.ros.parameters import NodeParameters, parameter


@dataclass(frozen=True)
class RobotParameters(NodeParameters):
    """Parameters of a node that needs the robot's model."""

    model: str = parameter("kinova_gen3_2f85", read_only=True)
    """Robot: a name from config/ or the path of a robot YAML file."""

    def load_robot(self, logger: Any) -> RobotModel:
        """Load the robot; its warnings go into the log."""
        robot = load_robot(self.model)
        for warning in robot.warnings:
            logger.warning(warning)
        return robot


@dataclass(frozen=True)
class FrameParameters(NodeParameters):
    """Parameters of a node that publishes frames."""

    tf_prefix: str = parameter("", read_only=True)
    """Prefix of frame names, as in left/base_link; the same as of robot_state_publisher."""


@dataclass(frozen=True)
class SceneParameters(RobotParameters):
    """Parameters of a node that needs the scene; planners and driver must agree on them."""

    has_ground: bool = parameter(True, read_only=True)
    """Whether there is a ground below the arm."""
    ground_height: float = parameter(0.0, "m", lower=-10.0, upper=10.0, read_only=True)
    """Height of the ground in the base frame."""

    @property
    def ground(self) -> float | None:
        """Height of the ground in the base frame [m]; None for no ground."""
        return self.ground_height if self.has_ground else None


@dataclass(frozen=True)
class FixedSceneParameters(SceneParameters):
    """Parameters of the fixed scene, independent of ``obstacles``; the same for planner and driver."""

    scene: str = parameter("", read_only=True)
    """Obstacles: a name from config/scenes or the path of a YAML file; empty for none."""
    clearance: float = parameter(0.01, "m", lower=0.0, upper=1.0, read_only=True)
    """Distance to keep between spheres, to the ground and to obstacles; a scene may ask for more."""

    def fixed_scene(self) -> Scene:
        """Return the fixed scene, independent of the topic; a ground in its file overrides the parameter."""
        scene = load_scene(self.scene)
        ground = self.ground if scene.ground_height is None else scene.ground_height
        return replace(scene, ground_height=ground, clearance=max(scene.clearance, self.clearance))


def load_scene(name: str) -> Scene:
    """Load a scene of ``config/scenes`` by name, or a YAML file by path; empty for nothing at all."""
    if not name:
        return Scene()
    files = {file.stem: file for folder in config_directories() for file in sorted((folder / "scenes").glob("*.yaml"))}
    path = files.get(name, Path(name).expanduser())
    if not path.is_file():
        known = sorted(files)
        raise ParameterOutOfRange("scene", name, f"one of {', '.join(known)}, or the path of a YAML file")
    try:
        data = read_yaml(path)
    except ModelError as error:
        raise ParameterOutOfRange("scene", str(path), f"a readable YAML file ({error})") from error
    if not isinstance(data, dict):
        raise ParameterOutOfRange("scene", str(path), "a file with obstacles, ground_height, ...")
    return Scene.from_dict(data)
