"""From ROS to the loop: motions, models, payloads, scenes and heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from rclpy.node import Node
from std_msgs.msg import Empty
from std_srvs.srv import SetBool, Trigger

from sysid_msgs.msg import CertifiedTrajectory
from sysid_msgs.msg import Scene as SceneMessage
from sysid_msgs.srv import ApplyEstimate, ExecuteTrajectory, SetPayload
from sysid_ros.adapters.arm_driver.outputs import ArmOutputs, DrivenArm
from sysid_ros.adapters.arm_driver.parameters import ArmDriverParameters
from sysid_ros.core.certification.authentication import NotAuthentic
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.drivers.admission import SceneGuard, admit_trajectory
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.child import ChildProcessFailed
from sysid_ros.drivers.gate import Authenticator, Conditions, OfferedPlan, PlanGate
from sysid_ros.drivers.loop_types import LoopCode, LoopModel, LoopRefusal, LoopStatus, RefusalCode
from sysid_ros.drivers.modes import Mode
from sysid_ros.drivers.proof import OwnAssumptions
from sysid_ros.drivers.ros2_control.arm import NO_GUARANTEE
from sysid_ros.drivers.ros2_control.monitor import ONLY_MONITORED
from sysid_ros.ros.conversions.authentication import require_authentic
from sysid_ros.ros.conversions.estimate import estimate_from_message, nominal_payload_from_message
from sysid_ros.ros.conversions.plans import (
    authentication_from_message,
    certified_from_message,
    certified_plan_from_message,
    scene_from_message,
)
from sysid_ros.ros.node import run_in_thread, start_in_thread

R = TypeVar("R", Trigger.Response, SetBool.Response, ApplyEstimate.Response, SetPayload.Response)


def take_scene(guard: SceneGuard, message: SceneMessage, n: int) -> str | None:
    """Take a scene of an arm with n joints; return why the present motion must stop, None if it may go on."""
    conflict = guard.find_conflict(message.source, time.monotonic())
    if conflict is not None:
        return guard.invalidate(conflict)
    try:
        scene = scene_from_message(message, n)
    except SysidError as error:
        return guard.invalidate(str(error))
    return guard.update(scene) if message.is_known else guard.invalidate(message.fault)


class ArmCommands:
    """Pass requests of other nodes on to the loop: callbacks of services, subscriptions and timers.

    Attributes:
        scene: The known scene.
        authenticator: Checks the signatures of certificates.
        is_proving: Whether a plan is being proven.
    """

    def __init__(self, node: Node, arm: DrivenArm, outputs: ArmOutputs):
        self._node, self._log = node, node.get_logger()
        self._arm, self._loop, self._outputs = arm, arm.loop, outputs
        self.scene = SceneGuard(arm.values.fixed_scene())
        self.authenticator = Authenticator(arm.key, arm.values.allow_unauthenticated)
        self._gate = PlanGate(arm.robot, self.authenticator, self.scene, arm.prover)
        self.is_proving = self._is_over = False
        self._commander_time = -np.inf
        self._is_silent = False  # the commander, so a brake was commanded
        self._is_moving = False
        self._must_forget = False  # the controller still has the model of the last payload
        self._faults = InjectedFaults()

    def close(self) -> None:
        """Allow no motion any more, not even a plan that is being proven."""
        self._is_over = True

    # Motion

    async def execute(
        self, request: ExecuteTrajectory.Request, response: ExecuteTrajectory.Response
    ) -> ExecuteTrajectory.Response:
        """Prove a plan; then start it, or have it wait to take over."""
        if self.is_proving:
            return self._refuse(response, LoopRefusal("trajectory", "another one is being proven; try again then"))
        self.is_proving = True
        try:
            certificate = await self._execute(request, response)
        except Exception as error:  # noqa: BLE001 - the arm is held whatever a request contains
            return self._refuse(response, error)
        finally:
            self.is_proving = False
        self._is_moving = True
        if certificate is None:
            words = f"moving without a certificate: {self._arm.values.controller} has no proven bound"
        else:
            words = "moving" if certificate.predecessor is None else "waits to take over"
        if self._arm.values.kind.is_ros2_control:
            words += f" {NO_GUARANTEE}: that torques act within one period is assumed by its certificate, not known"
        response.accepted, response.code, response.message = True, ExecuteTrajectory.Response.OK, words
        return response

    async def _execute(
        self, request: ExecuteTrajectory.Request, response: ExecuteTrajectory.Response
    ) -> Certificate | None:
        """Begin a motion, and return its certificate; None where a simulated arm may do without."""
        self._require_command("trajectory")
        if self._must_forget:
            raise LoopRefusal("trajectory", "the controller still has the model of the last payload; try again")
        robot, plan = self._arm.robot, request.plan
        trajectory, certificate = certified_from_message(plan, robot.joint_names)
        if certificate is None:  # the loop itself refuses that, except in simulation under laws without a bound
            self._commander_time = self._now()
            self._loop.follow_uncertified(trajectory)
            return None
        model = self._model_of(request)
        if certificate.predecessor is None and model is not None:
            raise ParameterOutOfRange("estimate", "given", "none where nothing is taken over: use ~/set_model")
        offered, loop = OfferedPlan(trajectory, certificate, authentication_from_message(plan)), self._loop

        def admit() -> float:
            status = loop.status()
            in_use = loop.model() if model is None else model
            return self._gate.admit(offered, Conditions(in_use, status.law, 1e-9 * status.stamp_ns, time.monotonic()))

        response.proof_time = await run_in_thread(self._node, admit)
        if self._is_over:
            raise LoopRefusal("trajectory", "the arm was handed back meanwhile")
        self.scene.admit(certificate, time.monotonic())  # it may have changed
        self._commander_time = self._now()
        response.time_left = loop.execute(trajectory, certificate, model)
        self.authenticator.note_used(certificate, 1e-9 * loop.status().stamp_ns)
        return certificate

    def on_plan(self, message: CertifiedTrajectory) -> None:
        """Prove a plan of the safe planner ahead of its execution, so that no execution has to wait for the proof.

        Any fault is reported when its execution is requested. The bounds of the payload are the planner's here; the
        driver compares them with its own before the plan moves the arm.
        """
        robot, scene = self._arm.robot, self.scene.present
        if scene is None or self.authenticator.fault is not None:
            return

        def prove() -> None:
            try:
                plan = certified_plan_from_message(message, robot.joint_names)
                self.authenticator.admit(plan.certificate, plan.authentication)
                boxes, status = (robot.theta_box, plan.boxes[1]), self._loop.status()
                admit_trajectory(robot, plan.trajectory, plan.certificate, boxes, 1e-9 * status.stamp_ns)
                own = OwnAssumptions(boxes, plan.certificate.nominal_payload, scene, status.law)
                self._arm.prover.prove(plan.trajectory, plan.certificate, own)
            except Exception as error:  # noqa: BLE001 - reported when execution is requested
                self._log.debug(f"a plan was not proven ahead: {error}")

        start_in_thread(self._node, prove)

    def _refuse(self, response: ExecuteTrajectory.Response, error: Exception) -> ExecuteTrajectory.Response:
        text = str(error) if isinstance(error, SysidError) else f"internal error: {error!r}"
        response.accepted, response.code, response.message = False, _code_of(error), text
        if response.code in _ROUTINE:
            self._log.warning(text)
        else:
            self._log.error(text)
        return response

    def brake(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Bring the arm to rest."""

        def brake() -> None:
            self._require_command("brake")
            self._loop.brake("a brake was requested")

        return self._answer(response, brake, "braking or at rest")

    def guide(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        """Start or end hand guiding at the tool; the caller sends heartbeats meanwhile."""

        def guide() -> None:
            self._require_command("guiding")
            if request.data:
                self._commander_time = self._now()
                self._loop.guide()
                self._is_moving = True
            else:
                self._loop.brake("guiding was ended")

        done = "guided by hand, without a certificate" if request.data else "braking or at rest"
        return self._answer(response, guide, done)

    def reconnect(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Take the arm over again after a fault."""
        return self._answer(response, self._loop.reconnect, "holding again")

    def _require_command(self, what: str) -> None:
        if self._arm.values.kind.is_monitor:
            raise LoopRefusal(what, ONLY_MONITORED)

    def _stop(self, reason: str) -> None:
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
                # The payload may be another one: estimates until now are not about it.
                self._arm.epochs.begin(self._loop.status().cycles + 1)
            else:
                self._loop.set_model(model)

        self._answer(response, apply, "in use")
        status = self._outputs.read_status()
        response.model_box_hash = status.model_box_hash if status is not None else ""
        response.payload_epoch = self._arm.epochs.present
        return response

    def set_payload(self, request: SetPayload.Request, response: SetPayload.Response) -> SetPayload.Response:
        """Change the payload of a simulated arm."""

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
        estimate = estimate_from_message(request.estimate)
        if estimate is None:
            return None
        if estimate.target != "payload":
            raise ParameterOutOfRange("estimate.target", estimate.target, "payload")
        if self._arm.key is not None:
            require_authentic(request.estimate, self._arm.key, self.authenticator.session, self._arm.epochs.present)
        elif self.authenticator.fault is not None:
            raise LoopRefusal("model", self.authenticator.fault, RefusalCode.NOT_AUTHENTIC)
        nominal = nominal_payload_from_message(type(request).__name__, request.nominal_payload)
        return LoopModel.of_payload(self._arm.robot, estimate.box, np.array(estimate.values), nominal)

    def _forget_payload(self) -> None:
        """Go back to the payload's prior: the model of the controller was about another payload."""
        try:
            self._loop.set_model(LoopModel.nominal(self._arm.robot), is_reset=True)
            self._must_forget = False
        except SysidError as error:
            # Its certificate is about the last payload: nothing moves on with it, and nothing again before it is gone.
            self._must_forget = True
            self._log.warning(f"the model of the last payload stays until the arm rests: {error}")
            self._stop("the payload was changed")

    # Surroundings of the arm

    def on_status(self, status: LoopStatus) -> None:
        """Note whether the arm moves, and do the work that had to wait for its rest."""
        self._is_moving = status.is_moving
        if self._must_forget and not status.is_moving:
            self._forget_payload()

    def on_scene(self, message: SceneMessage) -> None:
        """Take the scene; an arm that moves in another one brakes."""
        before = self.scene.fault
        reason = take_scene(self.scene, message, self._arm.robot.n)
        if self.scene.fault not in (before, None):
            self._log.error(f"nothing may move: {self.scene.fault}")
        if reason is not None:
            self._stop(reason)

    def on_heartbeat(self, _: Empty) -> None:
        """Note a heartbeat of the commander."""
        self._commander_time = self._now()

    def _now(self) -> float:
        """Return the clock that times the commander [s]; on a busy machine the time of a simulated arm is slow."""
        return 1e-9 * self._loop.latest_stamp_ns() if self._arm.values.kind.is_simulated else time.monotonic()

    def keep_alive(self) -> None:
        """Pass heartbeats on to the loop, but only while the commander sends them."""
        timeout = self._arm.values.commander_timeout
        age = self._now() - self._commander_time
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
        """Inject new faults of the parameters into a simulated arm."""
        faults = values.faults
        if values.kind is not Mode.MOCK or faults == self._faults or not self._loop.is_alive:
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


_ROUTINE = (RefusalCode.NOT_READY, RefusalCode.TOO_LATE)
"""Refusals that belong to a normal run: the arm rests, or comes to rest on the plan it follows."""


def _code_of(error: Exception) -> RefusalCode:
    """Return the number of a refusal; errors from outside the loop mean an unreadable request."""
    if isinstance(error, LoopRefusal):
        return error.code
    if isinstance(error, NotAuthentic):
        return RefusalCode.REPLAYED if error.is_replayed else RefusalCode.NOT_AUTHENTIC
    is_of_request = isinstance(error, SysidError | ValueError) and not isinstance(error, ChildProcessFailed)
    return RefusalCode.MALFORMED if is_of_request else RefusalCode.INTERNAL
