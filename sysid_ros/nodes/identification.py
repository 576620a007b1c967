"""Node ``identification``: the actions users call: identify the payload, or the arm itself, and move it."""

from __future__ import annotations

import sys
import time
from functools import partial

from geometry_msgs.msg import InertiaStamped
from rclpy.node import Node
from std_msgs.msg import Empty
from std_srvs.srv import Trigger

from sysid_msgs.action import Identify, IdentifyArm, MoveTo
from sysid_ros.adapters.goals import GoalServer, Make
from sysid_ros.adapters.identification.arm import find_missing
from sysid_ros.adapters.identification.arm_goal import ArmGoalRun
from sysid_ros.adapters.identification.goals import GoalBase, GoalRun, MoveRun, TareRun, WeighRun
from sysid_ros.adapters.identification.monitor import SuiteMonitor
from sysid_ros.adapters.identification.session import IdentificationParameters, Suite, SuiteClients
from sysid_ros.core.certification.authentication import key_from_environment
from sysid_ros.core.common.optional import require_module
from sysid_ros.ros import qos
from sysid_ros.ros.node import create_long_service, create_timer, spin_main
from sysid_ros.ros.parameters import ParameterServer

READY_PERIOD, READY_PATIENCE, READY_REMINDER = 0.5, 10.0, 60.0
"""Period of the check whether a goal could begin; time until the first warning that none could, and between two
warnings [s]."""
HEARTBEAT_PERIOD = 0.1
"""Time between two heartbeats to the driver while a goal runs [s]."""
CLOSE_TIMEOUT = 10.0
"""How long the end of the node waits for a running goal to bring the arm to rest [s]."""


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
        self._payload = self.create_publisher(InertiaStamped, "~/payload", qos.LATCHED)
        self._heartbeat = self.create_publisher(Empty, "arm_driver/heartbeat", 1)
        self._beats = create_timer(self, HEARTBEAT_PERIOD, self._beat)
        self._beats.cancel()  # until a goal begins
        self._goals = GoalServer(self, key, self._beats.reset, self._beats.cancel, self._publish_payload)
        self._goals.serve(Identify, "~/identify", self._make(GoalRun))
        self._goals.serve(Identify, "~/weigh", self._make(WeighRun))
        self._goals.serve(Identify, "~/tare", self._make(TareRun))
        self._goals.serve(MoveTo, "~/move_to", self._make(MoveRun))
        self._goals.serve(IdentifyArm, "~/identify_arm", self._make(ArmGoalRun))
        create_long_service(self, Trigger, "~/identify_payload", self._trigger)
        self._patience = time.monotonic() + READY_PATIENCE
        self._readiness = create_timer(self, READY_PERIOD, self._tell_readiness)

    def close(self) -> None:
        """Cancel a running goal, wait until the arm rests and the answer is out; called before the node ends."""
        self._goals.close(CLOSE_TIMEOUT)

    def _beat(self) -> None:
        self._heartbeat.publish(Empty())
        self._goals.say_alive()

    def _make(self, kind: type[GoalBase]) -> Make:
        return lambda goal, is_cancelled: kind(self._suite, self._config.values, goal, is_cancelled)

    def _publish_payload(self, goal: GoalBase) -> None:
        if goal.payload is not None:
            self._payload.publish(goal.payload)

    def _tell_readiness(self) -> None:
        """Log once that a goal can begin; until then, periodically, the missing conditions."""
        missing, now = find_missing(self._suite, self._config.values.is_moved_by_others), time.monotonic()
        if missing is None:
            self._readiness.cancel()
            self.get_logger().info("ready: send a goal to ~/identify or call ~/identify_payload")
        elif now > self._patience:
            self._patience = now + READY_REMINDER
            self.get_logger().warning(f"not ready yet: goals wait for {missing}")

    async def _trigger(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        result = await self._goals.run(Identify, self._make(GoalRun), Identify.Goal())
        response.success = result.error_code == Identify.Result.NONE
        parts = [self._summary(result)] if response.success else []
        response.message = ". ".join(filter(None, [*parts, result.error_text]))  # a success may have doubts
        return response

    @staticmethod
    def _summary(result: Identify.Result) -> str:
        estimate = result.estimate
        text = f"mass {estimate.values[0]:.3f} kg, certainly in [{estimate.lower[0]:.3f}, {estimate.upper[0]:.3f}] kg"
        return text + (f"; files in {result.results_directory}" if result.results_directory else "")


main = partial(spin_main, IdentificationNode)

if __name__ == "__main__":
    sys.exit(main())
