"""The scene of the safe planner: from a file, from parameters, and from the topic ``obstacles``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml
from visualization_msgs.msg import Marker, MarkerArray

from sysid_ros.core.certification.verify import require_scene
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.loader import config_directories
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.ros.conversions.obstacles import Key, key_of, obstacles_from_markers


class SceneStore:
    """Keeps what is known of the scene.

    Where a message cannot be used, nothing is known until good ones have come about all of its obstacles, or have
    deleted them.

    Args:
        robot: The arm.
        fixed: What is there whatever the topic says.
        timeout: Longest time without a message [s]; 0 where none need come, from the start and for ever.

    Raises:
        ParameterOutOfRange: Something fixed is where the base of the arm stands.
    """

    def __init__(self, robot: RobotModel, fixed: Scene, timeout: float = 0.0):
        self._robot, self._timeout = robot, timeout
        self._received: dict[Key, Obstacle] = {}
        self._received_at = -np.inf
        self._fixed_fault: str | None = None
        self._topic_fault: str | None = None
        self._timeout_fault: str | None = None
        self._unclear: set[Key] = set()  # obstacles of messages that could not be used
        require_scene(robot, fixed)
        self._fixed = fixed
        self.check_timeout(0.0)

    @property
    def fault(self) -> str | None:
        """Why the scene is not known; None if it is."""
        return "; ".join(filter(None, (self._fixed_fault, self._topic_fault, self._timeout_fault))) or None

    def change_fixed(self, make: Callable[[], Scene]) -> None:
        """Change what is there whatever the topic says; where it cannot be used, nothing is known until it can.

        Args:
            make: Gives the scene, or raises what is wrong with it.
        """
        try:
            fixed = make()
            require_scene(self._robot, fixed)
        except SysidError as error:
            self._fixed_fault = str(error)
            return
        self._fixed, self._fixed_fault = fixed, None

    def check_timeout(self, now: float) -> bool:
        """Check how long ago obstacles were received, at a steady time [s]; return whether the fault has changed."""
        before, age = self._timeout_fault, now - self._received_at
        if not self._timeout or age <= self._timeout:
            self._timeout_fault = None
        elif np.isinf(age):
            self._timeout_fault = "no obstacles have been received yet, and obstacles_timeout asks for them"
        else:
            self._timeout_fault = (
                f"no obstacles were received for more than the {self._timeout:g} s of obstacles_timeout"
            )
        return before != self._timeout_fault

    @property
    def scene(self) -> Scene:
        """The scene.

        Raises:
            ParameterOutOfRange: The scene is not known.
        """
        if self.fault is not None:
            raise ParameterOutOfRange("the scene", f"not known ({self.fault})", "obstacles that can be used")
        return self._joined(self._received)

    @property
    def latest(self) -> Scene:
        """The last scene that was known, for pictures."""
        return self._joined(self._received)

    def update(self, message: MarkerArray, now: float = 0.0) -> bool:
        """Take obstacles at a steady time [s]; return whether anything has changed."""
        fault, before = self.fault, self.latest.hash()
        try:
            received = obstacles_from_markers(message, self._received, self._robot.base_frame)
            require_scene(self._robot, self._joined(received))
        except SysidError as error:
            self._topic_fault = str(error)
            self._unclear.update(key_of(marker) for marker in message.markers)
        else:
            self._received, self._received_at = received, now
            # A good message about one obstacle does not say where the one is that could not be understood.
            for marker in message.markers:
                self._unclear = set() if marker.action == Marker.DELETEALL else self._unclear - {key_of(marker)}
            self._topic_fault = self._topic_fault if self._unclear else None
            self.check_timeout(now)
        return fault != self.fault or self.latest.hash() != before

    def _joined(self, received: dict[Key, Obstacle]) -> Scene:
        fixed = self._fixed
        return Scene(
            (*fixed.obstacles, *received.values()), fixed.ground_height, fixed.payload_spheres, fixed.clearance
        )


def load_scene(name: str) -> Scene:
    """Load a scene of ``config/scenes`` by name, or a YAML file by path; empty for nothing at all.

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
