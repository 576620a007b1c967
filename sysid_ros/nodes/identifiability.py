"""Node ``identifiability``: identifiable parameters, by the structure of the robot and from the data at hand.

With options of its own, as in ``ros2 run sysid_ros identifiability --urdf robot.urdf``, the executable is the command
:mod:`sysid_ros.cli.identifiability`, which needs no running system.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.task import Future
from rclpy.utilities import remove_ros_args
from std_msgs.msg import String

from sysid_msgs.msg import IdentifiabilityReport
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.srv import AnalyzeIdentifiability
from sysid_ros.adapters.identifiability import Answer, PayloadAnswers, answer_structure
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange, SysidError
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import InvalidMessage, stamp_from_message
from sysid_ros.ros.conversions.estimate import estimate_from_message, information_from_message
from sysid_ros.ros.conversions.identifiability import (
    analysis_from_request,
    no_report,
    report_to_message,
    require_no_mechanism,
)
from sysid_ros.ros.node import create_long_service, create_timer, run_in_thread, spin_main, spin_while, start_in_thread
from sysid_ros.ros.other_nodes import no_messages
from sysid_ros.ros.parameters import ParameterServer, parameter
from sysid_ros.ros.robot import RobotParameters

DESCRIPTION_PATIENCE = 10.0
"""After this long without a robot description the log says so [s]."""
CLOSE_TIMEOUT = 2.0
"""How long the end of the node waits for running analyses [s]."""


@dataclass(frozen=True)
class IdentifiabilityParameters(RobotParameters):
    """Parameters of the node ``identifiability``."""

    model: str = parameter("kinova_gen3_2f85", read_only=True)
    """Robot: a name from config/ or the path of a robot YAML file; empty: the one in robot_description, without
    data."""
    data_interval: float = parameter(5.0, "s", lower=0.5, upper=3600.0)
    """Rate of the report on data while data arrive and the topic has subscribers."""
    advice: bool = parameter(True)
    """Whether the report on data names a motion that would determine the parameters they do not."""


class IdentifiabilityNode(Node):
    """Publish two reports and answer ``~/analyze``.

    ``~/structure`` is made once for every robot on ``robot_description``; ``~/data`` from the data of the estimator. An
    analysis takes a thread of its own; both reports and the service take one at a time each.
    """

    def __init__(self) -> None:
        super().__init__("identifiability")
        self._config = ParameterServer(self, IdentifiabilityParameters)
        values = self._config.values
        self._payload = PayloadAnswers(values.load_robot(self.get_logger())) if values.model else None
        self._description: str | None = None
        self._estimate: EstimateMessage | None = None
        self._reported: EstimateMessage | None = None
        self._running: set[str] = set()
        self._structure_publisher = self.create_publisher(IdentifiabilityReport, "~/structure", qos.LATCHED)
        self._data_publisher = self.create_publisher(IdentifiabilityReport, "~/data", qos.LATCHED)
        self.create_subscription(String, "robot_description", self._take_description, qos.LATCHED)
        self.create_subscription(EstimateMessage, "estimator/estimate", self._take_estimate, qos.LATCHED)
        create_long_service(self, AnalyzeIdentifiability, "~/analyze", self._analyze)
        self._timer = create_timer(self, values.data_interval, self._report_data)
        self._config.on_change(lambda new: setattr(self._timer, "timer_period_ns", round(1e9 * new.data_interval)))
        self._patience = create_timer(self, DESCRIPTION_PATIENCE, self._miss_description)
        self.get_logger().info("ready: call ~/analyze; the report on ~/structure follows the robot description")

    def close(self) -> None:
        """Wait for running analyses."""
        spin_while(self, lambda: bool(self._running), CLOSE_TIMEOUT)

    # Subscriptions

    def _take_description(self, message: String) -> None:
        self._patience.cancel()
        if message.data != self._description:
            self._description = message.data
            work = partial(self._structural_message, message.data, self._config.values.model or None)
            # A newer description may have come meanwhile; then it counts.
            self._start("structure", work, lambda: self._description != message.data, self._structure_publisher)

    def _miss_description(self) -> None:
        self._patience.cancel()
        self.get_logger().warning(f"{self._no_description()}; ~/structure waits for it")

    def _no_description(self) -> SysidError:
        return no_messages(self, "robot_description", "robot description", DESCRIPTION_PATIENCE, qos.LATCHED)

    def _take_estimate(self, message: EstimateMessage) -> None:
        self._estimate = message

    # The reports

    def _structural_message(self, text: str, model: str | None) -> IdentifiabilityReport:
        now = self.get_clock().now().nanoseconds
        try:
            report = answer_structure(text, model).report
            self.get_logger().info(report.text)
            return report_to_message(report, now)
        except SysidError as error:
            reason = f"robot_description cannot be analysed{f' with the settings of {model}' if model else ''}: {error}"
            self.get_logger().error(reason)
            return no_report("structural", reason, now)

    def _report_data(self) -> None:
        message = self._estimate
        if message is None or message is self._reported or not self._data_publisher.get_subscription_count():
            return
        if self._payload is None or "data" in self._running:
            return
        self._reported = message
        work = partial(self._data_message, message, self._config.values.advice)
        self._start("data", work, lambda: False, self._data_publisher)

    def _data_message(self, message: EstimateMessage, with_advice: bool) -> IdentifiabilityReport:
        stamp = stamp_from_message(message.header.stamp)
        try:
            report = self._answer_data(message, with_advice).report
            return report_to_message(report, stamp, message.header.frame_id)
        except SysidError as error:
            self.get_logger().error(f"estimator/estimate: {error}", throttle_duration_sec=10.0)
            return no_report("data", str(error), stamp)

    def _answer_data(self, message: EstimateMessage | None, with_advice: bool) -> Answer:
        if self._payload is None:
            raise ParameterOutOfRange("parameter 'model'", "", "the arm the estimator works for, for reports on data")
        estimate = None if message is None else estimate_from_message(message)
        if message is None or estimate is None:
            raise SysidError("there are no data: the estimator has published nothing")
        return self._payload.answer(estimate, information_from_message(message), with_advice)

    def _start(
        self,
        name: str,
        work: Callable[[], IdentifiabilityReport],
        is_outdated: Callable[[], bool],
        publisher: Publisher,
    ) -> None:
        """Run an analysis in a thread and publish its report from the executor."""

        def finish(future: Future) -> None:
            self._running.discard(name)
            if future.exception() is not None:
                self.get_logger().error(f"~/{name}: internal error: {future.exception()!r}")
            elif not is_outdated():
                publisher.publish(future.result())

        self._running.add(name)
        start_in_thread(self, work).add_done_callback(finish)

    # The service

    async def _analyze(
        self, request: AnalyzeIdentifiability.Request, response: AnalyzeIdentifiability.Response
    ) -> AnalyzeIdentifiability.Response:
        if "analyze" in self._running:
            response.success, response.message = False, "another analysis is running; try again when it has ended"
            return response
        self._running.add("analyze")
        try:
            answer, stamp, frame = await run_in_thread(self, lambda: self._answer(request))
            response.success, response.message = True, answer.report.text
            response.report, response.markdown = report_to_message(answer.report, stamp, frame), answer.markdown
        except Exception as error:  # noqa: BLE001 - a failed analysis is an answer, not the end of the node
            text = str(error) if isinstance(error, SysidError) else f"internal error: {error!r}"
            response.success, response.message = False, text
            self.get_logger().error(f"~/analyze: {text}")
        finally:
            self._running.discard("analyze")
        return response

    def _answer(self, request: AnalyzeIdentifiability.Request) -> tuple[Answer, int, str]:
        if request.method == request.DATA:
            require_no_mechanism(request)
            message = self._estimate
            answer = self._answer_data(message, self._config.values.advice)
            header = EstimateMessage().header if message is None else message.header
            return answer, stamp_from_message(header.stamp), header.frame_id
        if request.method != request.STRUCTURE:
            raise InvalidMessage("AnalyzeIdentifiability", "method", f"is {request.method}; STRUCTURE is 0, DATA is 1")
        text, model = (request.urdf, None) if request.urdf else (self._description, self._config.values.model or None)
        if text is None:
            raise ModelError(f"no urdf is given, and {self._no_description()}")
        answer = answer_structure(text, model, *analysis_from_request(request))
        return answer, self.get_clock().now().nanoseconds, ""


def main(argv: list[str] | None = None) -> int:
    """Run the node until it is stopped, or the command if there are options for it; return the exit status."""
    words = remove_ros_args(sys.argv if argv is None else argv)[1:]
    if not words:
        return spin_main(IdentifiabilityNode, argv)
    from sysid_ros.cli.main import main as run_command

    return run_command(["identifiability", *words])


if __name__ == "__main__":
    sys.exit(main())
