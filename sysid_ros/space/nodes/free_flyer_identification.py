"""Node ``free_flyer_identification``: plans, moves and estimates a free-flying robot: the action users call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from rclpy.node import Node
from visualization_msgs.msg import MarkerArray

from sysid_msgs.action import Identify
from sysid_msgs.msg import IdentifiabilityReport, NamedArray
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_ros.adapters.goals import Goal, GoalServer, Make
from sysid_ros.core.common.optional import require_module
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.node import create_timer, spin_main
from sysid_ros.ros.parameters import ParameterServer
from sysid_ros.space.adapters.goal import FreeFlyerGoal, FreeFlyerIdentificationParameters, HeldObjectGoal
from sysid_ros.space.adapters.link import FreeFlyerLink
from sysid_ros.space.adapters.messages import draw_free_flyer, minimal_to_message
from sysid_ros.space.core.identification import FreeFlyerIdentification
from sysid_ros.space.core.robot import load_free_flyer

CLOSE_TIMEOUT = 15.0
"""How long the end of the node waits for a running goal to bring the robot to rest [s]."""


class FreeFlyerIdentificationNode(Node):
    """Offers the actions ``~/identify``, of the robot, and ``~/identify_object``, of its load; one goal at a time.

    ``~/estimate`` has names, combinations, standard deviations and guaranteed bounds of the minimal parameters,
    ``~/values`` their values in the same order, ``~/object`` the load; pictures are on ``~/markers``.
    """

    def __init__(self) -> None:
        super().__init__("free_flyer_identification")
        self._config = ParameterServer(self, FreeFlyerIdentificationParameters)
        if self._config.values.record:
            require_module("mcap_ros2")
        self._robot = load_free_flyer(self._config.values.model)
        self._goal: FreeFlyerGoal | None = None
        self._identification: FreeFlyerIdentification | None = None
        self._held: ParameterEstimate | None = None
        self._link = FreeFlyerLink(self, self._robot, self._config.values.driver_timeout, self._record)
        self._estimate_publisher = self.create_publisher(IdentifiabilityReport, "~/estimate", qos.LATCHED)
        self._values_publisher = self.create_publisher(NamedArray, "~/values", qos.LATCHED)
        self._object_publisher = self.create_publisher(EstimateMessage, "~/object", qos.LATCHED)
        self._marker_publisher = self.create_publisher(MarkerArray, "~/markers", qos.MARKERS)
        # Details of a search change all the time.
        self._goals = GoalServer(self, done=self._publish, headline=lambda text: text.partition(":")[0])
        self._goals.serve(Identify, "~/identify", self._make(FreeFlyerGoal))
        self._goals.serve(Identify, "~/identify_object", self._make(HeldObjectGoal))
        create_timer(self, 0.2, self._draw)
        self.get_logger().info(f"ready: send a goal to ~/identify, robot '{self._robot.name}'")

    def close(self) -> None:
        """Cancel the goal and wait until the robot rests and the answer has been sent."""
        self._goals.close(CLOSE_TIMEOUT)

    def _record(self, topic: str, kind: str, message: object, stamp_ns: int) -> None:
        if self._goal is not None:
            self._goal.record(topic, kind, message, stamp_ns)

    def _make(self, kind: type[FreeFlyerGoal]) -> Make:
        def make(goal: Identify.Goal, is_cancelled: Callable[[], bool]) -> Goal:
            values = self._config.values
            self._link.timeout = values.driver_timeout
            self._goal = kind(self._robot, self._link, values, goal, is_cancelled, self._identification)
            return self._goal

        return make

    def _publish(self, goal: FreeFlyerGoal) -> None:
        self._goal, found, stamp_ns = None, goal.found, self.get_clock().now().nanoseconds
        if isinstance(found, FreeFlyerIdentification):
            self._identification, values = found, found.estimate.values
            self._estimate_publisher.publish(minimal_to_message(found, stamp_ns))
            self._values_publisher.publish(NamedArray(name="minimal", shape=[values.size], data=values.tolist()))
        elif found is not None:
            self._held = found.as_estimate()
            self._object_publisher.publish(estimate_to_message(self._held, stamp_ns))

    def _draw(self) -> None:
        position = self._link.latest()
        if position is not None and self._marker_publisher.get_subscription_count():
            self._marker_publisher.publish(draw_free_flyer(self._robot, position, self._link.planned, self._held))


main = partial(spin_main, FreeFlyerIdentificationNode)

if __name__ == "__main__":
    sys.exit(main())
