"""The scene of the safe planner: from a file, from parameters, and from the topic ``obstacles``."""

from __future__ import annotations

import time
import uuid
from collections import deque
from typing import Any

import numpy as np
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from visualization_msgs.msg import Marker, MarkerArray

from sysid_msgs.msg import Scene as SceneMessage
from sysid_ros.core.certification.verify import require_scene
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.admission import SCENE_PERIOD
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.plans import Key, key_of, obstacles_from_markers, scene_to_message
from sysid_ros.ros.node import Interfaces

_REMEMBERED_MESSAGES = 1000


class SceneStore:
    """Keeps the known scene.

    After an unusable message the scene is unknown until good messages have updated or deleted all of its obstacles.

    Args:
        robot: The arm.
        fixed: Scene independent of the topic.
        timeout: Longest time without a message [s], from the start on; 0: no limit.
        tf_prefix: Prefix of the name of the base frame, in which obstacles have to be given.

    Raises:
        ParameterOutOfRange: Something fixed is where the base of the arm stands.
    """

    def __init__(self, robot: RobotModel, fixed: Scene, timeout: float = 0.0, tf_prefix: str = ""):
        self._robot, self._timeout, self._frame = robot, timeout, tf_prefix + robot.base_frame
        self._received: dict[Key, Obstacle] = {}
        self._received_at = -np.inf
        self._topic_fault: str | None = None
        self._timeout_fault: str | None = None
        self._unclear: set[Key] = set()  # obstacles of messages that could not be used
        require_scene(robot, fixed)
        self._fixed = fixed
        self.check_timeout(0.0)

    @property
    def fault(self) -> str | None:
        """Why the scene is not known; None if it is."""
        return "; ".join(filter(None, (self._topic_fault, self._timeout_fault))) or None

    def check_timeout(self, now: float) -> bool:
        """Check how long ago obstacles were received, at a steady time [s]; return whether the fault has changed."""
        before, age = self._timeout_fault, now - self._received_at
        if not self._timeout or age <= self._timeout:
            self._timeout_fault = None
        elif np.isinf(age):
            self._timeout_fault = "no obstacles have been received yet, and obstacles_timeout requires them"
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
            received = obstacles_from_markers(message, self._received, self._frame)
            require_scene(self._robot, self._joined(received))
        except SysidError as error:
            self._topic_fault = str(error)
            self._unclear.update(key_of(marker) for marker in message.markers)
        else:
            self._received, self._received_at = received, now
            # A good message about one obstacle does not place the one that could not be read.
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


class SceneFeed:
    """Keep the scene up to date by the topic ``obstacles`` and publish it, again and again.

    Args:
        node: The node.
        robot: The arm.
        store: The known scene; attribute too.
    """

    def __init__(self, node: Node, robot: RobotModel, store: SceneStore):
        self.store = store
        self._log, self._frame = node.get_logger(), robot.base_frame
        self._source = f"{node.get_fully_qualified_name()} {uuid.uuid4().hex[:8]}"
        self._latched_marks: deque[tuple[object, ...]] = deque(maxlen=_REMEMBERED_MESSAGES)
        self._topics = Interfaces(node)
        self._publisher = self._topics.create_publisher(SceneMessage, "~/scene", qos.SCENE)
        # A transient local subscription does not match publishers with the defaults of ROS.
        quiet = SubscriptionEventCallbacks(use_default_callbacks=False)  # the other one matches those
        self._topics.create_subscription(
            MarkerArray, "obstacles", self._on_latched_obstacles, qos.OBSTACLES, event_callbacks=quiet
        )
        self._topics.create_subscription(MarkerArray, "obstacles", self._on_obstacles, qos.OBSTACLES_VOLATILE)
        self._topics.create_timer(SCENE_PERIOD, self._repeat)
        self._publish()

    def close(self) -> None:
        """Destroy publishers and subscriptions."""
        self._topics.destroy()

    def describe(self) -> str:
        """Return the scene in a few words."""
        scene = self.store.latest
        ground = "no ground" if scene.ground_height is None else f"ground at {scene.ground_height:g} m"
        return f"{ground}, {len(scene.obstacles)} obstacles"

    def _on_latched_obstacles(self, message: MarkerArray, info: dict[str, Any]) -> None:
        self._latched_marks.append(_mark_of(message, info))
        self._update(message)

    def _on_obstacles(self, message: MarkerArray, info: dict[str, Any]) -> None:
        # Else it came by the other subscription before.
        if not info["source_timestamp"] or _mark_of(message, info) not in self._latched_marks:
            self._update(message)

    def _update(self, message: MarkerArray) -> None:
        if not self.store.update(message, time.monotonic()):
            return
        if self.store.fault is not None:
            self._log.error(f"nothing is certified until obstacles can be used again: {self.store.fault}")
        else:
            self._log.info(f"obstacles have changed: {self.describe()}")
        self._publish()

    def _repeat(self) -> None:
        """Publish the scene again: a receiver of two planners then detects both and trusts neither."""
        if self.store.check_timeout(time.monotonic()) and self.store.fault is not None:
            self._log.error(f"nothing is certified: {self.store.fault}")
        self._publish()

    def _publish(self) -> None:
        store = self.store
        self._publisher.publish(scene_to_message(store.latest, time.time_ns(), self._frame, self._source, store.fault))


def _mark_of(message: MarkerArray, info: dict[str, Any]) -> tuple[object, ...]:
    return info["source_timestamp"], *(key_of(one) for one in message.markers)
