"""From ROS to the loop: motions, models, payloads, scenes and heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from rclpy.impl.rcutils_logger import RcutilsLogger
from std_msgs.msg import Empty
from std_srvs.srv import SetBool, Trigger

from sysid_msgs.msg import Scene as SceneMessage
from sysid_msgs.srv import ApplyEstimate, ExecuteTrajectory, SetPayload
from sysid_ros.adapters.arm_driver.outputs import ArmOutputs, DrivenArm
from sysid_ros.adapters.arm_driver.parameters import ArmDriverParameters
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.drivers import admission
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.loop_types import LoopCode, LoopModel, LoopRefusal, LoopStatus, RefusalCode
from sysid_ros.drivers.process import LoopProcessError
from sysid_ros.drivers.ros2_control.arm import NO_GUARANTEE
from sysid_ros.drivers.ros2_control.monitor import ONLY_MONITORED
from sysid_ros.ros.conversions import (
    certified_from_message,
    estimate_from_message,
    nominal_payload_from_message,
    scene_from_message,
)

R = TypeVar("R", Trigger.Response, ApplyEstimate.Response, SetPayload.Response)


class SceneGuard(admission.SceneGuard):
    """The guard of the driver, fed by messages: certificates must be about the scene, and a motion ends with it.

    Args:
        n: Number of joints; what is carried hangs on the last one.
    """

    def __init__(self, n: int):
        super().__init__()
        self._n = n

    def on_scene(self, message: SceneMessage) -> str | None:
        """Take a scene and return why what moves now must stop; None if it may go on."""
        conflict = self.find_conflict(message.source, time.monotonic())
        if conflict is not None:
            return self.invalidate(conflict)
        try:
            scene = scene_from_message(message, self._n)
        except SysidError as error:
            return self.invalidate(str(error))
        return self.update(scene) if message.is_known else self.invalidate(message.fault)


class ArmCommands:
    """Hand on to the loop what other nodes ask of the arm: callbacks of services, subscriptions and timers.

    Args:
        arm: The arm, whose loop runs.
        outputs: What is published of it.
        logger: Logger of the node.

    Attributes:
        scene: What is known of the scene.
    """

    def __init__(self, arm: DrivenArm, outputs: ArmOutputs, logger: RcutilsLogger):
        self._arm, self._loop, self._outputs, self._log = arm, arm.loop, outputs, logger
        self.scene = SceneGuard(arm.robot.n)
        self._commander_time = -np.inf
        self._is_silent = False  # the commander, and the arm was told to brake for it
        self._is_moving = False
        self._must_forget = False  # the controller still has the model of the last payload
        self._faults = InjectedFaults()

    # Motion

    def execute(
        self, request: ExecuteTrajectory.Request, response: ExecuteTrajectory.Response
    ) -> ExecuteTrajectory.Response:
        """Start a certified trajectory, or have it wait to take over."""
        try:
            self._require_command("trajectory")
            if self._must_forget:
                raise LoopRefusal("trajectory", "the controller still has the model of the last payload; try again")
            trajectory, certificate = certified_from_message(request.plan, self._arm.robot.joint_names)
            if certificate is None:
                text = "it has no certificate; let the safe planner certify it"
                raise LoopRefusal("trajectory", text, RefusalCode.NO_CERTIFICATE)
            model = self._model_of(request)
            if certificate.predecessor is None and model is not None:
                raise ParameterOutOfRange("estimate", "given", "none where nothing is taken over: use ~/set_model")
            now = time.monotonic()
            self.scene.admit(certificate, now)
            self._commander_time = now
            self._loop.execute(trajectory, certificate, model)
        except SysidError as error:
            self._log.error(str(error))
            response.accepted, response.message, response.code = False, str(error), _code_of(error)
            return response
        self._is_moving = True
        words = "moving" if certificate.predecessor is None else "waits to take over"
        if self._arm.values.is_ros2_control:
            words += f" {NO_GUARANTEE}: that torques act within one period is assumed by its certificate, not known"
        response.accepted, response.message = True, words
        return response

    def brake(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Bring the arm to rest."""

        def brake() -> None:
            self._require_command("brake")
            self._loop.brake("a brake was requested")

        return self._answer(response, brake, "braking or at rest")

    def guide(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        """Let a person lead the arm by its tool, or end that; the caller sends heartbeats meanwhile."""
        try:
            self._require_command("guiding")
            if request.data:
                self._commander_time = time.monotonic()
                self._loop.guide()
                self._is_moving = True
            else:
                self._loop.brake("guiding was ended")
        except SysidError as error:
            self._log.error(str(error))
            response.success, response.message = False, str(error)
            return response
        response.success = True
        response.message = "guided by hand, without a certificate" if request.data else "braking or at rest"
        return response

    def reconnect(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Take the arm over again after a fault."""
        return self._answer(response, self._loop.reconnect, "holding again")

    def _require_command(self, what: str) -> None:
        """Refuse what would move an arm that is only monitored."""
        if self._arm.values.is_monitor:
            raise LoopRefusal(what, ONLY_MONITORED)

    def _stop(self, reason: str) -> None:
        """Brake an arm that moves on grounds that do not hold any more."""
        try:
            self._loop.brake(reason, LoopCode.STALE)
        except SysidError as error:
            self._log.fatal(str(error), throttle_duration_sec=2.0)

    # Model and payload

    def set_model(self, request: ApplyEstimate.Request, response: ApplyEstimate.Response) -> ApplyEstimate.Response:
        """Give the controller another model; the prior's where the request has no estimate."""

        def apply() -> None:
            model = self._model_of(request)
            if model is None:
                self._loop.set_model(LoopModel.nominal(self._arm.robot), is_reset=True)
            else:
                self._loop.set_model(model)

        self._answer(response, apply, "in use")
        status = self._outputs.read_status()
        response.model_box_hash = status.model_box_hash if status is not None else ""
        return response

    def set_payload(self, request: SetPayload.Request, response: SetPayload.Response) -> SetPayload.Response:
        """Change what a simulated arm holds."""

        def change() -> None:
            is_detach = request.operation == SetPayload.Request.DETACH
            last = self._loop.set_payload(None if is_detach else np.array(request.payload, dtype=float))
            if request.announce:
                self._arm.epochs.begin(last + 1)
                self._forget_payload()
            self._outputs.publish_truth()

        self._answer(response, change, "done")
        response.payload_epoch = self._arm.epochs.present
        return response

    def _model_of(self, request: ApplyEstimate.Request | ExecuteTrajectory.Request) -> LoopModel | None:
        """Return the model with the payload of an estimate; None where there is none."""
        estimate = estimate_from_message(request.estimate)
        if estimate is None:
            return None
        if estimate.target != "payload":
            raise ParameterOutOfRange("estimate.target", estimate.target, "payload")
        nominal = nominal_payload_from_message(type(request).__name__, request.nominal_payload)
        return LoopModel.of_payload(self._arm.robot, estimate.box, np.array(estimate.values), nominal)

    def _forget_payload(self) -> None:
        """Go back to the payload's prior: what the controller was told was about another payload."""
        try:
            self._loop.set_model(LoopModel.nominal(self._arm.robot), is_reset=True)
            self._must_forget = False
        except SysidError as error:
            # Its certificate is about the last payload: nothing moves on with it, and nothing again before it is gone.
            self._must_forget = True
            self._log.warning(f"the model of the last payload stays until the arm rests: {error}")
            self._stop("the payload was changed")

    # What goes on around the arm

    def on_status(self, status: LoopStatus) -> None:
        """Note whether the arm moves, and do what had to wait for its rest."""
        self._is_moving = status.is_moving
        if self._must_forget and not status.is_moving:
            self._forget_payload()

    def on_scene(self, message: SceneMessage) -> None:
        """Take the scene; an arm that moves in another one brakes."""
        before = self.scene.fault
        reason = self.scene.on_scene(message)
        if self.scene.fault not in (before, None):
            self._log.error(f"nothing may move: {self.scene.fault}")
        if reason is not None:
            self._stop(reason)

    def on_heartbeat(self, _: Empty) -> None:
        """Note that whoever started the motion is alive."""
        self._commander_time = time.monotonic()

    def keep_alive(self) -> None:
        """Pass heartbeats on to the loop, but only while whoever started the motion sends them."""
        timeout = self._arm.values.commander_timeout
        age = time.monotonic() - self._commander_time
        is_silent = bool(timeout) and self._is_moving and age > timeout
        try:
            if not is_silent:
                self._loop.heartbeat()
            elif not self._is_silent:
                text = f"no heartbeat of the commanding node for {age:.2f} s (allowed {timeout:g} s)"
                self._loop.brake(text, LoopCode.STALE)
            self._is_silent = is_silent
        except SysidError as error:
            self._log.fatal(str(error), throttle_duration_sec=2.0)

    def change_faults(self, values: ArmDriverParameters) -> None:
        """Inject the faults of the parameters into a simulated arm, those that are new."""
        faults = values.faults
        if not values.is_mock or faults == self._faults or not self._loop.is_alive:
            return
        is_repeated = faults.drop_cycles == self._faults.drop_cycles
        self._faults = faults
        try:
            self._loop.inject(replace(faults, drop_cycles=0) if is_repeated else faults)
            self._log.warning(f"injected into the simulated arm: {faults}")
        except SysidError as error:
            self._log.error(str(error))

    def _answer(self, response: R, action: Callable[[], object], done: str) -> R:
        try:
            action()
            response.success, response.message = True, done
        except SysidError as error:
            self._log.error(str(error))
            response.success, response.message = False, str(error)
        return response


def _code_of(error: SysidError) -> RefusalCode:
    """Return the number of a refusal: what is not refused by the loop could not be read."""
    if isinstance(error, LoopProcessError):
        return RefusalCode.INTERNAL
    return error.code if isinstance(error, LoopRefusal) else RefusalCode.MALFORMED
