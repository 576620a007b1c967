"""Node ``arm_driver``: owns the arm. The torque loop is a process of its own; this node is its ROS side."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty, String
from std_srvs.srv import Trigger

from sysid_msgs.msg import ControlLaw, DriverStatus, SampleBatch, SimulationTruth
from sysid_msgs.msg import Scene as SceneMessage
from sysid_msgs.srv import ApplyEstimate, ExecuteTrajectory, SetPayload
from sysid_ros.adapters.arm_driver.connection import ConnectionParameters
from sysid_ros.adapters.arm_driver.samples import PayloadEpochs, split_samples
from sysid_ros.adapters.arm_driver.scene import SceneGuard
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.channel import LoopSamples
from sysid_ros.drivers.loop_types import LoopCode, LoopModel, LoopRefusal, LoopStatus
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.drivers.ros2_control.arm import NO_GUARANTEE
from sysid_ros.drivers.ros2_control.monitor import ONLY_MONITORED
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import (
    certified_from_message,
    control_law_to_message,
    driver_status_message,
    estimate_from_message,
    joint_state_message,
    nominal_payload_from_message,
    samples_to_message,
    truth_to_message,
)
from sysid_ros.ros.diagnostics import Level, diagnostic_message
from sysid_ros.ros.node import spin_main
from sysid_ros.ros.parameters import ParameterServer, parameter, parameters_from

_COMMANDER_PERIOD = 0.02


@dataclass(frozen=True)
class ArmDriverParameters(ConnectionParameters):
    """Parameters of the node ``arm_driver``."""

    autostart: bool = parameter(True, read_only=True)
    """Take the arm over as soon as the node runs."""
    batch_rate: float = parameter(50.0, "Hz", lower=5.0, upper=200.0, read_only=True)
    """How often a batch of samples is published."""
    joint_state_rate: float = parameter(50.0, "Hz", lower=1.0, upper=1000.0, read_only=True)
    """How often joint_states is published; at most the rate of samples."""
    status_rate: float = parameter(10.0, "Hz", lower=1.0, upper=50.0, read_only=True)
    """How often the status is published."""
    commander_timeout: float = parameter(0.5, "s", lower=0.0, upper=10.0)
    """Silence on ~/heartbeat after which a moving arm brakes; 0 needs no heartbeat."""
    faults: InjectedFaults = parameters_from(InjectedFaults, prefix="fault_", note="mock: ")

    def check(self) -> None:
        """Refuse a heartbeat the timers of this node could not keep."""
        super().check()
        if self.commander_timeout and self.commander_timeout < 0.2:
            raise ParameterOutOfRange("parameter 'commander_timeout' [s]", self.commander_timeout, "0, or 0.2 to 10")


class ArmDriverNode(LifecycleNode):
    """Publishes what the loop measures; starts only what is certified."""

    def __init__(self) -> None:
        super().__init__("arm_driver")
        self._config = ParameterServer(self, ArmDriverParameters)
        self._config.on_change(self._change_faults)
        self.add_on_set_parameters_callback(self._check_joints_of_faults)
        self._robot: RobotModel | None = None
        self._loop: LoopProcess | None = None
        self._description = self._status_publisher = None
        self._faults = InjectedFaults()
        self._epochs = PayloadEpochs()
        self._dropped = 0
        self._timing = DriverStatus.TIMING_UNKNOWN
        self._last_text = ""
        self._joint_state_ns = 0
        self._commander_time = -np.inf
        self._silence_reported = False
        self._is_moving = False
        self._must_forget = False
        self._active_things: list[Any] = []

    # Lifecycle

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the robot and prepare the loop; nothing moves."""
        values = self._config.values
        try:
            self._robot = values.load_robot(self.get_logger())
            load_payload(self._robot, values.payload)
            values.faults.require_joints(self._robot.joint_names)
            self._loop = LoopProcess(values.build(self._robot, self.resolve_topic_name), self._robot.n)
            self._scene = SceneGuard(self._robot.n)
        except SysidError as error:
            self.get_logger().fatal(str(error))
            return TransitionCallbackReturn.FAILURE
        if values.is_simulated or not values.is_ros2_control:  # else those who run the arm publish theirs
            self._description = self.create_publisher(String, "robot_description", qos.LATCHED)
            self._description.publish(String(data=self._robot.urdf))
        self._status_publisher = self.create_publisher(DriverStatus, "~/status", qos.STATUS)
        self._publish_no_loop(DriverStatus.MODE_IDLE, DriverStatus.CODE_OK, "configured, the arm is not under control")
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start the loop, which takes the arm over and holds it."""
        self._publish_no_loop(
            DriverStatus.MODE_IDLE, DriverStatus.CODE_OK, "the arm is taken over", is_taking_over=True
        )
        try:
            self._loop.start()
            self._begin()
        except Exception as error:  # noqa: BLE001 - rclpy would swallow it
            text = f"the arm cannot be taken over: {error}"
            self.get_logger().fatal(text)
            self._release("the driver could not be activated")
            self._publish_no_loop(DriverStatus.MODE_FAULT, DriverStatus.CODE_HARDWARE, text)
            return TransitionCallbackReturn.FAILURE
        self.get_logger().info(
            f"{'monitoring' if self._config.values.is_monitor else 'holding'} {self._robot.name} "
            f"({self._config.values.mode}); scheduling: {self._loop.scheduling}"
        )
        return TransitionCallbackReturn.SUCCESS

    def _begin(self) -> None:
        # Over topics, real-time priority of the loop alone means nothing.
        if self._config.values.is_ros2_control:
            self._timing = DriverStatus.TIMING_TOPICS
        else:
            self._timing = DriverStatus.TIMING_REAL_TIME if self._has_priority else DriverStatus.TIMING_NO_PRIORITY
        self._epochs.restart()  # a new loop counts from 1 and a simulated arm holds its first payload again
        self._dropped, self._joint_state_ns, self._is_moving, self._must_forget = 0, 0, False, False
        self._faults = InjectedFaults()
        self._change_faults(self._config.values)
        self._offer()

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Brakes, hands the arm back and ends the loop."""
        self._release("the driver is deactivated")
        return TransitionCallbackReturn.SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Forgets the robot."""
        for publisher in (self._description, self._status_publisher):
            if publisher is not None:
                self.destroy_publisher(publisher)
        self._loop = self._description = self._status_publisher = None
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Brakes, hands the arm back and ends the loop."""
        self._release("the driver is shut down")
        return TransitionCallbackReturn.SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Brakes, hands the arm back and forgets the robot: the node can be configured again."""
        self._release("the driver has an error")
        return self.on_cleanup(state)

    def close(self) -> None:
        """Stop the arm before the node ends."""
        self._release("the driver ends")

    def _offer(self) -> None:
        """Create everything that exists only while the arm is held."""
        values = self._config.values
        self._samples_publisher = self.create_publisher(SampleBatch, "~/samples", qos.SAMPLES)
        self._truth_publisher = self.create_publisher(SimulationTruth, "~/truth", qos.LATCHED)
        law_publisher = self.create_publisher(ControlLaw, "~/control_law", qos.LATCHED)
        law_publisher.publish(control_law_to_message(self._loop.status().law))
        self._joint_state_publisher = None
        own_topic = self.resolve_topic_name("joint_states")
        if not values.is_ros2_control or values.states_topic(self.resolve_topic_name) != own_topic:
            self._joint_state_publisher = self.create_publisher(JointState, "joint_states", qos.JOINT_STATES)
        self._diagnostics_publisher = self.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
        self._active_things = [
            (self.destroy_timer, self.create_timer(1.0 / values.batch_rate, self._publish_samples)),
            (self.destroy_timer, self.create_timer(1.0 / values.status_rate, self._publish_status)),
            (self.destroy_timer, self.create_timer(_COMMANDER_PERIOD, self._keep_alive)),
            (self.destroy_timer, self.create_timer(1.0, self._publish_diagnostics)),
            (self.destroy_service, self.create_service(ExecuteTrajectory, "~/execute", self._execute)),
            (self.destroy_service, self.create_service(Trigger, "~/brake", self._brake)),
            (self.destroy_service, self.create_service(Trigger, "~/reconnect", self._reconnect)),
            (self.destroy_service, self.create_service(ApplyEstimate, "~/set_model", self._set_model)),
            (self.destroy_service, self.create_service(SetPayload, "~/set_payload", self._set_payload)),
            (self.destroy_subscription, self.create_subscription(Empty, "~/heartbeat", self._hear_commander, 1)),
            (
                self.destroy_subscription,
                self.create_subscription(SceneMessage, "safe_planner/scene", self._hear_scene, qos.SCENE),
            ),
            (self.destroy_publisher, self._samples_publisher),
            (self.destroy_publisher, self._truth_publisher),
            (self.destroy_publisher, law_publisher),
            (self.destroy_publisher, self._diagnostics_publisher),
        ]
        if self._joint_state_publisher is not None:
            self._active_things.append((self.destroy_publisher, self._joint_state_publisher))
        self._publish_truth()

    def _release(self, reason: str) -> None:
        things, self._active_things = self._active_things, []
        if self._loop is not None:
            self._loop.stop(reason)
        if things:
            self.get_logger().info(f"the arm rests and is handed back: {reason}")
            self._publish_no_loop(DriverStatus.MODE_IDLE, DriverStatus.CODE_OK, reason)
        for destroy, thing in things:
            destroy(thing)

    # From the loop to ROS

    def _publish_samples(self) -> None:
        samples = self._loop.read_samples()
        self._dropped = samples.dropped
        for part in split_samples(samples, self._epochs):
            self._samples_publisher.publish(samples_to_message(part, self._robot.joint_names, self._robot.base_frame))
        if self._joint_state_publisher is not None:
            self._publish_joint_states(samples)

    def _publish_joint_states(self, samples: LoopSamples) -> None:
        block = samples.block
        period_ns = round(1e9 / self._config.values.joint_state_rate)
        for k in range(len(block)):
            if block.stamps[k] - self._joint_state_ns >= period_ns:
                self._joint_state_ns = int(block.stamps[k])
                self._joint_state_publisher.publish(
                    joint_state_message(
                        self._joint_state_ns, self._robot.joint_names, block.q[k], block.v[k], block.tau[k]
                    )
                )

    def _publish_status(self) -> None:
        status = self._loop_status()
        if status is None:
            return
        self._is_moving = status.is_moving
        if self._must_forget and not status.is_moving:
            self._forget_payload()
        if status.reason != self._last_text:
            self._last_text = status.reason
            # rclpy wants one call site per severity.
            if status.has_failed:
                self.get_logger().error(f"{status.mode.name}: {status.reason}")
            else:
                self.get_logger().info(f"{status.mode.name}: {status.reason}")
        self._status_publisher.publish(
            driver_status_message(
                status,
                self._loop.timing(),
                self._robot.joint_names,
                self._robot.base_frame,
                is_simulated=self._config.values.is_simulated,
                timing=self._timing,
                payload_epoch=self._epochs.present,
                dropped=self._dropped,
                scene_hash=self._scene.hash,
            )  # fmt: skip
        )

    def _publish_no_loop(self, mode: int, code: int, text: str, is_taking_over: bool = False) -> None:
        """Publish a status without a loop to ask."""
        status = DriverStatus(
            mode=mode,
            code=code,
            text=text,
            joint_names=list(self._robot.joint_names),
            is_simulated=self._config.values.is_simulated,
            is_taking_over=is_taking_over,
            payload_epoch=self._epochs.present,
        )
        status.header.stamp = self.get_clock().now().to_msg()
        self._status_publisher.publish(status)

    def _loop_status(self) -> LoopStatus | None:
        values = self._config.values
        try:
            status = self._loop.status()
            if values.is_ros2_control and not values.is_monitor:
                status = replace(status, reason=f"{status.reason} ({NO_GUARANTEE})")
            return status
        except SysidError as error:
            self.get_logger().fatal(str(error), throttle_duration_sec=2.0)
            self._publish_no_loop(DriverStatus.MODE_FAULT, DriverStatus.CODE_INTERNAL, str(error))
            return None

    def _publish_diagnostics(self) -> None:
        status = self._loop_status()
        if status is None:
            self._diagnose(self.get_clock().now().nanoseconds, Level.ERROR, "the loop process does not answer", {})
            return
        timing = self._loop.timing()
        level, text = self._judge(status)
        values = {
            "mode": status.mode.name,
            "cycles": status.cycles,
            "missed deadlines": status.missed_deadlines,
            "saturated cycles": status.saturated_cycles,
            "cycles without measurement": status.invalid_cycles,
            "period p99 [s]": timing.period_p99,
            "period max [s]": timing.period_max,
            "compute p99 [s]": timing.compute_p99,
            "scheduling": self._loop.scheduling.text,
            **self._arm_health(),
        }
        self._diagnose(status.stamp_ns, level, text, values)

    @property
    def _has_priority(self) -> bool:
        """Whether the loop was given real-time priority."""
        return self._loop.scheduling.has_priority

    def _judge(self, status: LoopStatus) -> tuple[Level, str]:
        """How good or bad it is, and why."""
        values = self._config.values
        if status.has_failed:
            return Level.ERROR, status.reason
        if values.is_simulated or values.is_monitor or self._has_priority:
            return Level.OK, status.reason
        return Level.WARN, f"{status.reason}; no real-time priority: {self._loop.scheduling}"

    def _arm_health(self) -> dict[str, object]:
        try:
            return self._loop.health()
        except SysidError as error:
            return {"connection": str(error)}

    def _diagnose(self, stamp_ns: int, level: Level, text: str, values: dict[str, object]) -> None:
        name = f"{self.get_name()}: control loop"
        self._diagnostics_publisher.publish(diagnostic_message(stamp_ns, name, self._robot.name, level, text, values))

    def _publish_truth(self) -> None:
        if not self._config.values.is_mock:
            return
        truth = self._loop.truth()
        frame = self._robot.joint_names[-1]
        self._truth_publisher.publish(truth_to_message(truth.payload, truth.stamp_ns, frame, self._epochs.present))

    # From ROS to the loop

    def _keep_alive(self) -> None:
        """Pass heartbeats on, but only while whoever started the motion sends them."""
        timeout = self._config.values.commander_timeout
        silence = time.monotonic() - self._commander_time
        is_silent = bool(timeout) and self._is_moving and silence > timeout
        try:
            if not is_silent:
                self._loop.heartbeat()
            elif not self._silence_reported:
                text = f"no heartbeat of the commanding node for {silence:.2f} s (allowed {timeout:g} s)"
                self._loop.brake(text, LoopCode.STALE)
            self._silence_reported = is_silent
        except SysidError as error:
            self.get_logger().fatal(str(error), throttle_duration_sec=2.0)

    def _hear_commander(self, _: Empty) -> None:
        self._commander_time = time.monotonic()

    def _execute(
        self, request: ExecuteTrajectory.Request, response: ExecuteTrajectory.Response
    ) -> ExecuteTrajectory.Response:
        try:
            self._require_command("trajectory")
            if self._must_forget:
                raise LoopRefusal("trajectory", "the controller still has the model of the last payload; try again")
            trajectory, certificate = certified_from_message(request.plan, self._robot.joint_names)
            if certificate is None:
                raise LoopRefusal("trajectory", "it has no certificate; let the safe planner certify it")
            model = self._model_of(request)
            if certificate.predecessor is None and model is not None:
                raise ParameterOutOfRange("estimate", "given", "none where nothing is taken over: use ~/set_model")
            self._scene.admit(certificate)
            self._commander_time = time.monotonic()
            self._loop.execute(trajectory, certificate, model)
        except SysidError as error:
            self.get_logger().error(str(error))
            response.accepted, response.message = False, str(error)
            return response
        self._is_moving = True
        words = "moving" if certificate.predecessor is None else "waits to take over"
        if self._config.values.is_ros2_control:
            words += f" {NO_GUARANTEE}: that torques act within one period is assumed by its certificate, not known"
        response.accepted, response.message = True, words
        return response

    def _require_command(self, what: str) -> None:
        """Refuses what would move an arm that is only monitored."""
        if self._config.values.is_monitor:
            raise LoopRefusal(what, ONLY_MONITORED)

    def _model_of(self, request: ApplyEstimate.Request | ExecuteTrajectory.Request) -> LoopModel | None:
        """Model with the payload of an estimate; None where there is none."""
        message = request.estimate
        estimate = estimate_from_message(message)
        if estimate is None:
            return None
        if estimate.target != "payload":
            raise ParameterOutOfRange("estimate.target", estimate.target, "payload")
        nominal = nominal_payload_from_message(type(request).__name__, request.nominal_payload)
        return LoopModel.of_payload(self._robot, estimate.box, np.array(estimate.values), nominal)

    def _hear_scene(self, message: SceneMessage) -> None:
        before = self._scene.fault
        reason = self._scene.on_scene(message)
        if self._scene.fault not in (before, None):
            self.get_logger().error(f"nothing may move: {self._scene.fault}")
        if reason is not None:
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        """Brakes an arm that moves on grounds that do not hold any more."""
        try:
            self._loop.brake(reason, LoopCode.STALE)
        except SysidError as error:
            self.get_logger().fatal(str(error), throttle_duration_sec=2.0)

    def _brake(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        def brake() -> None:
            self._require_command("brake")
            self._loop.brake("a brake was requested")

        return self._answer(response, brake, "braking or at rest")

    def _reconnect(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, self._loop.reconnect, "holding again")

    def _set_model(self, request: ApplyEstimate.Request, response: ApplyEstimate.Response) -> ApplyEstimate.Response:
        def apply() -> None:
            model = self._model_of(request)
            if model is None:
                self._loop.set_model(LoopModel.nominal(self._robot), is_reset=True)
            else:
                self._loop.set_model(model)

        self._answer(response, apply, "in use")
        status = self._loop_status()
        response.model_box_hash = status.model_box_hash if status is not None else ""
        return response

    def _set_payload(self, request: SetPayload.Request, response: SetPayload.Response) -> SetPayload.Response:
        def change() -> None:
            is_detach = request.operation == SetPayload.Request.DETACH
            last = self._loop.set_payload(None if is_detach else np.array(request.payload, dtype=float))
            if request.announce:
                self._epochs.begin(last + 1)
                self._forget_payload()
            self._publish_truth()

        self._answer(response, change, "done")
        response.payload_epoch = self._epochs.present
        return response

    def _forget_payload(self) -> None:
        """Back to the payload's prior: what the controller was told was about another payload."""
        try:
            self._loop.set_model(LoopModel.nominal(self._robot), is_reset=True)
            self._must_forget = False
        except SysidError as error:
            # Its certificate is about the last payload: nothing moves on with it, and nothing again before it is gone.
            self._must_forget = True
            self.get_logger().warning(f"the model of the last payload stays until the arm rests: {error}")
            self._stop("the payload was changed")

    def _check_joints_of_faults(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        names = [
            name
            for one in parameters
            if one.name in ("fault_stuck_encoders", "fault_nan_torques")
            for name in one.value
        ]
        try:
            if self._robot is not None:
                InjectedFaults(stuck_encoders=tuple(filter(None, names))).require_joints(self._robot.joint_names)
        except SysidError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _change_faults(self, values: ArmDriverParameters) -> None:
        faults = values.faults
        if not values.is_mock or faults == self._faults or self._loop is None or not self._loop.is_alive:
            return
        is_repeated = faults.drop_cycles == self._faults.drop_cycles
        self._faults = faults
        try:
            self._loop.inject(replace(faults, drop_cycles=0) if is_repeated else faults)
            self.get_logger().warning(f"injected into the simulated arm: {faults}")
        except SysidError as error:
            self.get_logger().error(str(error))

    def _answer(self, response: Any, action: Any, done: str) -> Any:
        try:
            action()
            response.success, response.message = True, done
        except SysidError as error:
            self.get_logger().error(str(error))
            response.success, response.message = False, str(error)
        return response


def main(argv: list[str] | None = None) -> int:
    """Run the node until it is stopped; return the exit status."""
    return spin_main(ArmDriverNode, argv)


if __name__ == "__main__":
    sys.exit(main())
