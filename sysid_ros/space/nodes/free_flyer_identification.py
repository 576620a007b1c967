"""Node ``free_flyer_identification``: plans, moves and estimates a free-flying robot: the action users call."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node
from visualization_msgs.msg import MarkerArray

from sysid_msgs.action import Identify
from sysid_msgs.msg import IdentifiabilityReport, NamedArray
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_ros.core.common.optional import require_module
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.node import create_timer, end_goal, run_in_thread, spin_main, spin_while
from sysid_ros.ros.parameters import NodeParameters, ParameterServer, parameter, parameters_from
from sysid_ros.space.adapters.goal import FreeFlyerGoal, GoalFiles
from sysid_ros.space.adapters.link import FreeFlyerLink
from sysid_ros.space.adapters.messages import draw_free_flyer, minimal_to_message
from sysid_ros.space.core.assumptions import Assumptions
from sysid_ros.space.core.excitation import ExcitationSettings
from sysid_ros.space.core.identification import (
    FreeFlyerIdentification,
    KnownRobot,
    ObjectSettings,
    ProcedureSettings,
    Task,
    known_before,
)
from sysid_ros.space.core.robot import load_free_flyer
from sysid_ros.space.report import SimulationTruth, read_known_robot

CLOSE_TIMEOUT = 15.0
"""How long the end of the node waits for a running goal to bring the robot to rest [s]."""


@dataclass(frozen=True)
class FreeFlyerIdentificationParameters(NodeParameters):
    """Parameters of the node ``free_flyer_identification``."""

    model: str = parameter("servicer", read_only=True)
    """Robot: a name from config/space/ or the path of such a YAML file."""
    procedure: ProcedureSettings = parameters_from(ProcedureSettings)
    assumptions: Assumptions = parameters_from(Assumptions)
    held: ObjectSettings = parameters_from(ObjectSettings, prefix="object_")
    known_robot: str = parameter("")
    """Bounds of the robot without its load, an ``estimate.yaml``; empty: of this node's last identification, else the
    ranges in the robot's settings."""
    excitation: ExcitationSettings = parameters_from(ExcitationSettings, prefix="excitation_")
    driver_timeout: float = parameter(30.0, "s", lower=0.1, upper=600.0)
    """How long the driver may be silent."""
    results_root: str = parameter("~/sysid_results", read_only=True)
    """Folder below which all results lie: goals and results_directory name folders in it, or are refused."""
    results_directory: str = parameter("")
    """Where a goal that names no folder makes one, named after the time; empty: no files."""
    record: bool = parameter(True)
    """Write recording.mcap with the other files."""


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
        self._simulated: dict[str, np.ndarray] = {}
        self._identification: FreeFlyerIdentification | None = None
        self._held: ParameterEstimate | None = None
        self._busy, self._stop = threading.Lock(), threading.Event()
        self._link = FreeFlyerLink(self, self._robot, self._config.values.driver_timeout, self._record)
        self._estimate_publisher = self.create_publisher(IdentifiabilityReport, "~/estimate", qos.LATCHED)
        self._values_publisher = self.create_publisher(NamedArray, "~/values", qos.LATCHED)
        self._object_publisher = self.create_publisher(EstimateMessage, "~/object", qos.LATCHED)
        self._marker_publisher = self.create_publisher(MarkerArray, "~/markers", qos.MARKERS)
        # Truth of a simulated robot; only compared with at the end, in the files.
        self.create_subscription(NamedArray, "free_flyer_driver/truth", self._take_simulated, qos.LATCHED)
        self.create_subscription(NamedArray, "free_flyer_driver/held", self._take_simulated, qos.LATCHED)
        self.create_subscription(NamedArray, "free_flyer_driver/drift", self._take_simulated, qos.LATCHED)
        self._server: Any = ActionServer(
            self, Identify, "~/identify", execute_callback=self._execute_identify,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
        )  # fmt: skip
        self._object_server: Any = ActionServer(
            self, Identify, "~/identify_object", execute_callback=self._execute_identify_object,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
        )  # fmt: skip
        create_timer(self, 0.2, self._draw)
        self.get_logger().info(f"ready: send a goal to ~/identify, robot '{self._robot.name}'")

    def close(self) -> None:
        """Cancel the goal and wait until the robot rests and the answer has been sent."""
        self._stop.set()
        spin_while(self, self._busy.locked, CLOSE_TIMEOUT)
        spin_while(self, lambda: True, 0.2)

    def _record(self, topic: str, kind: str, message: object, stamp_ns: int) -> None:
        if self._goal is not None:
            self._goal.record(topic, kind, message, stamp_ns)

    def _take_simulated(self, message: NamedArray) -> None:
        self._simulated[message.name] = np.array(message.data)

    def _truth(self) -> SimulationTruth | None:
        parameters = self._simulated.get("parameters")
        if parameters is None:
            return None
        held = self._simulated.get("held", np.zeros_like(parameters))
        return SimulationTruth(parameters, held, self._simulated.get("drift"))

    async def _execute_identify(self, handle: ServerGoalHandle) -> Identify.Result:
        return await self._execute(handle, self._identify)

    async def _execute_identify_object(self, handle: ServerGoalHandle) -> Identify.Result:
        return await self._execute(handle, self._identify_object)

    async def _execute(
        self, handle: ServerGoalHandle, run: Callable[[ServerGoalHandle], Identify.Result]
    ) -> Identify.Result:
        if not self._busy.acquire(blocking=False):
            handle.abort()
            return Identify.Result(error_code=Identify.Result.BUSY, error_text="another goal is running")
        try:
            return await run_in_thread(self, lambda: run(handle))
        finally:
            self._goal = None
            self._busy.release()

    def _identify(self, handle: ServerGoalHandle) -> Identify.Result:
        goal = self._make_goal(handle)
        result = goal.identify(handle.request)
        if goal.identification is not None:
            self._identification = goal.identification
            self._publish(goal.identification)
        return end_goal(handle, result)

    def _identify_object(self, handle: ServerGoalHandle) -> Identify.Result:
        goal = self._make_goal(handle)
        result = goal.identify_object(handle.request, self._config.values.held, self._known_robot)
        if goal.held is not None:
            self._held = goal.held.as_estimate()
            self._object_publisher.publish(estimate_to_message(self._held, self.get_clock().now().nanoseconds))
        return end_goal(handle, result)

    def _make_goal(self, handle: ServerGoalHandle) -> FreeFlyerGoal:
        values, started = self._config.values, time.monotonic()
        self._link.timeout = values.driver_timeout
        excitation = replace(values.excitation, seed=int(handle.request.seed))
        self._goal = FreeFlyerGoal(
            Task(self._robot, values.procedure, excitation, values.assumptions),
            self._link,
            GoalFiles(values.results_root, values.results_directory, values.record, self._truth),
            lambda: self._stop.is_set() or handle.is_cancel_requested,
            self._reporter(handle, started),
        )
        return self._goal

    def _known_robot(self) -> KnownRobot:
        path = self._config.values.known_robot
        if path:
            return read_known_robot(path, self._robot)
        if self._identification is not None and self._identification.bounds is not None:
            return self._identification.known_robot
        return known_before(self._robot)

    def _reporter(self, handle: ServerGoalHandle, started: float) -> Callable[[Identify.Feedback], None]:
        said = None

        def report(feedback: Identify.Feedback) -> None:
            nonlocal said
            stage = feedback.phase, feedback.trajectory_number
            if stage != said:
                self.get_logger().info(feedback.text)
                said = stage
            feedback.elapsed = time.monotonic() - started
            handle.publish_feedback(feedback)

        return report

    def _publish(self, identification: FreeFlyerIdentification) -> None:
        stamp_ns = self.get_clock().now().nanoseconds
        self._estimate_publisher.publish(minimal_to_message(identification, stamp_ns))
        values = identification.estimate.values
        self._values_publisher.publish(NamedArray(name="minimal", shape=[values.size], data=values.tolist()))

    def _draw(self) -> None:
        position = self._link.latest()
        if position is not None and self._marker_publisher.get_subscription_count():
            self._marker_publisher.publish(draw_free_flyer(self._robot, position, self._link.planned, self._held))


def main(argv: list[str] | None = None) -> int:
    """Run the node until it is stopped and return the exit status."""
    return spin_main(FreeFlyerIdentificationNode, argv)


if __name__ == "__main__":
    sys.exit(main())
