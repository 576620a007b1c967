"""Node ``safe_planner``: plans and certifies motions. Nothing moves without a certificate of it."""

from __future__ import annotations

import sys
from functools import partial

from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from sysid_ros.adapters.safe_planner.scene import SceneFeed, SceneStore
from sysid_ros.adapters.safe_planner.service import PlanRequests, PlanService, SafePlannerParameters
from sysid_ros.core.certification.authentication import key_from_environment
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.optional import require_module
from sysid_ros.ros.node import spin_main, spin_while
from sysid_ros.ros.parameters import ParameterServer

CLOSE_TIMEOUT = 2.0
"""How long the end of the node waits for a running search [s]."""


class SafePlannerNode(LifecycleNode):
    """Serves ``~/plan_next``, ``~/plan_to`` and ``~/certify``; publishes the scene, plans and judgements."""

    def __init__(self) -> None:
        super().__init__("safe_planner")
        self._config = ParameterServer(self, SafePlannerParameters)
        self._known: SceneStore | None = None  # survives clean-up: obstacles stay until they are deleted
        self._scene: SceneFeed | None = None
        self._service: PlanService | None = None

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load robot and scene and offer the services, which refuse everything until the node is active."""
        values = self._config.values
        try:
            require_module("casadi")
            robot = values.load_robot(self.get_logger())
            if self._known is None:
                self._known = SceneStore(robot, values.fixed_scene(), values.obstacles_timeout, values.tf_prefix)
            self._scene = SceneFeed(self, robot, self._known)
            requests = PlanRequests(robot, self._scene.store, values, key_from_environment())
        except SysidError as error:
            self.get_logger().fatal(str(error))
            self._close_parts()
            return TransitionCallbackReturn.FAILURE
        self._service = PlanService(self, robot, requests)
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Plan and certify motions from now on."""
        if self._scene is None or self._service is None:
            return TransitionCallbackReturn.FAILURE
        self._service.is_open = True
        bounds = ", tracking bounds throughout" if self._config.values.planner.proves_throughout else ""
        self.get_logger().info(f"ready: {self._scene.describe()}; plans are proven over continuous time{bounds}")
        return TransitionCallbackReturn.SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Certify nothing any more, so that nothing new can move; a running search ends in a refusal."""
        if self._service is not None:
            self._service.is_open = False
        return TransitionCallbackReturn.SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Forget the robot."""
        if self._service is not None and self._service.running:
            self.get_logger().error("cannot clean up while a trajectory is being checked; try again")
            return TransitionCallbackReturn.FAILURE
        self._close_parts()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Certify nothing any more."""
        return self.on_deactivate(state)

    def _close_parts(self) -> None:
        for part in (self._service, self._scene):
            if part is not None:
                part.close()
        self._service = self._scene = None

    def close(self) -> None:
        """End a running search and wait for it."""
        service = self._service
        if service is not None:
            service.is_open = False
            spin_while(self, lambda: service.running > 0, CLOSE_TIMEOUT)


main = partial(spin_main, SafePlannerNode)

if __name__ == "__main__":
    sys.exit(main())
