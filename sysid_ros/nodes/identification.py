"""Node ``identification``: the actions users call: identify the payload, or the arm itself, and move it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from geometry_msgs.msg import InertiaStamped
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node
from std_msgs.msg import Empty
from std_srvs.srv import Trigger

from sysid_msgs.action import Identify, IdentifyArm, MoveTo
from sysid_ros.adapters.identification.arm import find_missing
from sysid_ros.adapters.identification.arm_goal import ArmGoalRun
from sysid_ros.adapters.identification.goals import GoalBase, GoalRun, MoveRun, NewsFilter, TareRun, WeighRun
from sysid_ros.adapters.identification.monitor import SuiteMonitor
from sysid_ros.adapters.identification.session import IdentificationParameters, Suite, SuiteClients
from sysid_ros.core.certification.authentication import key_from_environment
from sysid_ros.core.common.optional import require_module
from sysid_ros.core.procedure import Phase, Progress
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.authentication import sign
from sysid_ros.ros.node import create_long_service, create_timer, end_goal, run_in_thread, spin_main, spin_while
from sysid_ros.ros.parameters import ParameterServer

READY_PERIOD, READY_PATIENCE, READY_REMINDER = 0.5, 10.0, 60.0
"""Period of the check whether a goal could begin; time until the first warning that none could, and between two
warnings [s]."""
HEARTBEAT_PERIOD = 0.1
"""Time between two heartbeats to the driver while a goal runs [s]."""
ALIVE_PERIOD = 5.0
"""Longest time without a progress message [s]; then the last one is repeated, with its age."""
CLOSE_TIMEOUT = 10.0
"""How long the end of the node waits for a running goal to bring the arm to rest [s]."""
ANSWER_TIME = 0.2
"""How long it then waits for the answer to go out [s]."""


class IdentificationNode(Node):
    """Offers ``~/identify``, ``~/weigh``, ``~/tare``, ``~/identify_arm``, ``~/move_to`` and ``~/identify_payload``.

    One at a time. ``~/identify`` identifies the payload by exciting motions, ``~/weigh`` by slow ones; ``~/tare`` makes
    the slow ones with the empty hand first, for narrower bounds; ``~/identify_arm`` calibrates the arm itself, with a
    known load. The trigger ``~/identify_payload`` is an empty goal of ``~/identify``.
    """

    def __init__(self) -> None:
        super().__init__("identification")
        self._config = ParameterServer(self, IdentificationParameters)
        if self._config.values.record:
            require_module("mcap_ros2")
        self._robot = self._config.values.load_robot(self.get_logger())
        key = key_from_environment()
        self._suite = Suite(self, self._robot, SuiteMonitor(self, self._robot, key), SuiteClients(self), key)
        self._busy = threading.Lock()
        self._stop = threading.Event()
        self._phase = "it begins"
        self._said = 0.0  # time of the last progress message, steady [s]
        self._told: tuple[float, Progress, Callable[[Progress], None]] | None = None  # since when, progress, receiver
        # Every goal is accepted, for it is answered with a numbered code and a sentence, which a rejection lacks.
        self._servers = [
            self._serve(Identify, "~/identify", GoalRun),
            self._serve(Identify, "~/weigh", WeighRun),
            self._serve(Identify, "~/tare", TareRun),
            self._serve(MoveTo, "~/move_to", MoveRun),
            self._serve(IdentifyArm, "~/identify_arm", ArmGoalRun),
        ]
        create_long_service(self, Trigger, "~/identify_payload", self._trigger)
        self._payload = self.create_publisher(InertiaStamped, "~/payload", qos.LATCHED)
        self._heartbeat = self.create_publisher(Empty, "arm_driver/heartbeat", 1)
        self._beats = create_timer(self, HEARTBEAT_PERIOD, self._beat)
        self._beats.cancel()  # until a goal begins
        self._patience = time.monotonic() + READY_PATIENCE
        self._readiness = create_timer(self, READY_PERIOD, self._tell_readiness)

    def close(self) -> None:
        """Cancel a running goal, wait until the arm rests and the answer is out; called before the node ends."""
        self._stop.set()
        spin_while(self, self._busy.locked, CLOSE_TIMEOUT)
        spin_while(self, lambda: True, ANSWER_TIME)

    def _beat(self) -> None:
        self._heartbeat.publish(Empty())
        self._say_alive()

    def _say_alive(self) -> None:
        """Repeat the latest progress, in the log and to the client, after a while without news."""
        told, now = self._told, time.monotonic()
        if told is None or now - self._said < ALIVE_PERIOD:
            return
        self._said = now
        since, progress, on_progress = told
        if progress.phase != Phase.MOVING:
            self.get_logger().info(f"{progress.text}: for {now - since:.0f} s now")
        on_progress(progress)

    def _tell_readiness(self) -> None:
        """Log once that a goal can begin; until then, periodically, the missing conditions."""
        missing, now = find_missing(self._suite, self._config.values.is_moved_by_others), time.monotonic()
        if missing is None:
            self._readiness.cancel()
            self.get_logger().info("ready: send a goal to ~/identify or call ~/identify_payload")
        elif now > self._patience:
            self._patience = now + READY_REMINDER
            self.get_logger().warning(f"not ready yet: goals wait for {missing}")

    # Action

    def _serve(self, action: Any, name: str, kind: type[GoalBase]) -> ActionServer:
        async def execute(handle: ServerGoalHandle) -> Any:
            """Run a goal beside the executor, one at a time, and end it as its result says."""
            if not self._busy.acquire(blocking=False):
                handle.abort()
                text = f"another goal is running ({self._phase}); cancel it or wait for its end"
                return self._signed(action.Result(error_code=Identify.Result.BUSY, error_text=text))
            self._beats.reset()
            try:
                return await run_in_thread(self, lambda: self._end(handle, kind))
            finally:
                self._beats.cancel()
                self._busy.release()

        return ActionServer(self, action, name, execute, cancel_callback=lambda _: CancelResponse.ACCEPT)

    def _end(self, handle: ServerGoalHandle, kind: type[GoalBase]) -> Any:
        try:
            result = self._run(handle, kind)
        finally:
            self._told = None
        return end_goal(handle, self._signed(self._name_end(handle, result)))

    def _signed(self, result: Any) -> Any:
        if self._suite.key is not None and not isinstance(result, MoveTo.Result):
            sign(result, self._suite.key)
        return result

    def _name_end(self, handle: ServerGoalHandle, result: Any) -> Any:
        if result.error_code == Identify.Result.CANCELED and self._stop.is_set() and not handle.is_cancel_requested:
            result.error_code = Identify.Result.INTERRUPTED
            result.error_text = (
                f"identification was asked to end before the goal was done ({result.error_text}): the suite ends, "
                "or a node that it needs has ended; the log of the launch names it"
            )
        return result

    def _run(self, handle: ServerGoalHandle, kind: type[GoalBase]) -> Any:
        run, news = self._new_run(kind, handle.request, lambda: handle.is_cancel_requested), NewsFilter()

        def report(progress: Progress) -> None:
            if news.is_news(progress):
                handle.publish_feedback(run.feedback(progress))

        return self._work(run, report)

    # Trigger

    async def _trigger(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if not self._busy.acquire(blocking=False):
            response.success, response.message = False, f"another goal is running ({self._phase})"
            return response
        self._beats.reset()
        try:
            run = self._new_run(GoalRun, Identify.Goal(), lambda: False)
            result = await run_in_thread(self, lambda: self._work(run, lambda _: None))
        finally:
            self._told = None
            self._beats.cancel()
            self._busy.release()
        response.success = result.error_code == Identify.Result.NONE
        parts = [self._summary(result)] if response.success else []
        response.message = ". ".join(filter(None, [*parts, result.error_text]))  # a success may have doubts
        return response

    @staticmethod
    def _summary(result: Identify.Result) -> str:
        estimate = result.estimate
        text = f"mass {estimate.values[0]:.3f} kg, certainly in [{estimate.lower[0]:.3f}, {estimate.upper[0]:.3f}] kg"
        return text + (f"; files in {result.results_directory}" if result.results_directory else "")

    # The work, in a thread of its own

    def _new_run(self, kind: type[GoalBase], goal: Any, is_cancelled: Callable[[], bool]) -> GoalBase:
        return kind(self._suite, self._config.values, goal, lambda: self._stop.is_set() or is_cancelled())

    def _work(self, run: GoalBase, on_progress: Callable[[Progress], None]) -> Any:
        result = run.run(self._reporter(on_progress))
        if run.payload is not None:
            self._payload.publish(run.payload)
        return result

    def _reporter(self, on_progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
        def report(progress: Progress) -> None:
            now, told = time.monotonic(), self._told
            is_new = told is None or progress.text != told[1].text
            if is_new and progress.phase != Phase.MOVING:
                self.get_logger().info(progress.text)
            self._phase, self._said = progress.text, now
            self._told = (now if told is None or is_new else told[0], progress, on_progress)
            on_progress(progress)

        return report


def main(argv: list[str] | None = None) -> int:
    """Run the node until it is stopped; return the exit status."""
    return spin_main(IdentificationNode, argv)


if __name__ == "__main__":
    sys.exit(main())
