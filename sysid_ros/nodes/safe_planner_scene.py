"""The scene of the safe planner: from a file, from parameters, and from the topic ``obstacles``."""

from __future__ import annotations

from pathlib import Path

import yaml
from visualization_msgs.msg import MarkerArray

from sysid_ros.core.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.loader import config_directories
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.scene import Obstacle, Scene
from sysid_ros.core.planning.verifier import require_scene
from sysid_ros.ros.conversions.obstacles import Key, obstacles_from_markers


class SceneBook:
    """Keeps what is known of the surroundings. Where a message cannot be used, nothing is known until a good one comes.

    Args:
        robot: The arm.
        fixed: What is there whatever the topic says.

    Attributes:
        fault: Why the surroundings are not known; empty if they are.
    """

    def __init__(self, robot: RobotModel, fixed: Scene):
        self._robot = robot
        self._heard: dict[Key, Obstacle] = {}
        self.fault = ""
        self.fix(fixed)

    def fix(self, fixed: Scene) -> None:
        """Changes what is there whatever the topic says.

        Raises:
            ParameterOutOfRange: Something of it is where the base of the arm stands.
        """
        require_scene(self._robot, fixed)
        self._fixed = fixed

    @property
    def scene(self) -> Scene:
        """The scene.

        Raises:
            ParameterOutOfRange: The surroundings are not known.
        """
        if self.fault:
            raise ParameterOutOfRange("the scene", f"not known ({self.fault})", "obstacles that can be used")
        return self._joined(self._heard)

    @property
    def best(self) -> Scene:
        """The last scene that was known, for pictures."""
        return self._joined(self._heard)

    def hear(self, message: MarkerArray) -> bool:
        """Takes obstacles; returns whether anything has changed."""
        was_known, before = not self.fault, self.best.hash()
        try:
            heard = obstacles_from_markers(message, self._heard, self._robot.base_frame)
            require_scene(self._robot, self._joined(heard))
        except SysidError as error:
            changed, self.fault = self.fault != str(error), str(error)
            return changed
        self._heard, self.fault = heard, ""
        return not was_known or self.best.hash() != before

    def _joined(self, heard: dict[Key, Obstacle]) -> Scene:
        fixed = self._fixed
        return Scene((*fixed.obstacles, *heard.values()), fixed.ground_height, fixed.payload_spheres, fixed.clearance)


def load_scene(name: str) -> Scene:
    """A scene of ``config/scenes`` by name, or a YAML file by path; empty for nothing at all.

    Raises:
        ParameterOutOfRange: There is none, or it cannot be used.
    """
    if not name:
        return Scene()
    files = {file.stem: file for folder in config_directories() for file in sorted((folder / "scenes").glob("*.yaml"))}
    path = files.get(name, Path(name).expanduser())
    if not path.is_file():
        known = sorted(files)
        raise ParameterOutOfRange("scene", name, f"one of {', '.join(known)}, or the path of a YAML file")
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ParameterOutOfRange("scene", str(path), f"a readable YAML file ({error})") from error
    if not isinstance(data, dict):
        raise ParameterOutOfRange("scene", str(path), "a file with obstacles, ground_height, ...")
    return Scene.from_dict(data)
