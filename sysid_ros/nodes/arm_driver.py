"""Node ``arm_driver``: owns the arm. The torque loop is a process of its own; this node is its ROS side."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial

from rcl_interfaces.msg import SetParametersResult
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from std_msgs.msg import Empty
from std_srvs.srv import SetBool, Trigger

from sysid_msgs.msg import CertifiedTrajectory, DriverStatus
from sysid_msgs.msg import Scene as SceneMessage
from sysid_msgs.srv import ApplyEstimate, ExecuteTrajectory, SetPayload
from sysid_ros.adapters.arm_driver.commands import ArmCommands
from sysid_ros.adapters.arm_driver.outputs import ArmOutputs, DrivenArm, PayloadEpochs
from sysid_ros.adapters.arm_driver.parameters import ArmDriverParameters
from sysid_ros.core.certification.authentication import key_from_environment
from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.gate import AuthenticationState
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.drivers.proof import ProofProcess
from sysid_ros.ros import qos
from sysid_ros.ros.node import Interfaces, share_repeats, spin_main
from sysid_ros.ros.parameters import ParameterServer

_FAULTS_OF_JOINTS = ("fault_stuck_encoders", "fault_nan_torques")


class ArmDriverNode(LifecycleNode):
    """Publishes the measurements of the loop; starts only motions with a signed certificate that it has re-verified.

    Args:
        make_prover: Makes the prover of plans, for a robot as :func:`load_robot` takes it.
    """

    def __init__(self, make_prover: Callable[[str], ProofProcess] = ProofProcess) -> None:
        super().__init__("arm_driver")
        self._make_prover = make_prover
        self._config = ParameterServer(self, ArmDriverParameters)
        self.add_on_set_parameters_callback(self._check_joints_of_faults)
        self._config.on_change(self._on_change)
        self._epochs = PayloadEpochs()
        self._arm: DrivenArm | None = None  # from configuration on, as its outputs
        self._outputs: ArmOutputs | None = None
        self._commands: ArmCommands | None = None  # while the arm is held
        self._is_proving = False
        self._inputs, self._lasting = Interfaces(self), Interfaces(self)

    # Lifecycle

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the robot and prepare the loop; nothing moves."""
        values = self._config.values
        try:
            robot = values.load_robot(self.get_logger())
            load_payload(robot, values.payload)
            values.faults.require_joints(robot.joint_names)
            values.fixed_scene()  # refuses an unusable scene
            is_real_time = values.real_time_priority or not values.kind.is_simulated
            loop = LoopProcess(values.build(robot, self.resolve_topic_name), robot.n, is_real_time=is_real_time)
            key = key_from_environment()
        except SysidError as error:
            self.get_logger().fatal(str(error))
            return TransitionCallbackReturn.FAILURE
        self._arm = DrivenArm(robot, loop, self._epochs, self._config, self._make_prover(values.model), key)
        if not values.kind.is_monitor:
            self._arm.prover.start()
        self._outputs = ArmOutputs(self, self._arm)
        text = "configured, the arm is not under control"
        self._outputs.publish_state(DriverStatus.MODE_IDLE, DriverStatus.CODE_OK, text)
        self._lasting.create_long_service(ExecuteTrajectory, "~/execute", share_repeats(self._execute))
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start the loop, which takes the arm over and holds it."""
        arm, outputs = self._arm, self._outputs
        if arm is None or outputs is None:
            return TransitionCallbackReturn.FAILURE
        outputs.publish_state(
            DriverStatus.MODE_IDLE, DriverStatus.CODE_OK, "the arm is taken over", is_taking_over=True
        )
        try:
            arm.loop.start()
            self._epochs.restart()  # a new loop counts from 1 and a simulated arm holds its first payload again
            self._begin(arm, outputs)
        except Exception as error:  # noqa: BLE001 - rclpy would swallow it
            text = f"the arm cannot be taken over: {error}"
            self.get_logger().fatal(text)
            self._release("the driver could not be activated")
            outputs.publish_state(DriverStatus.MODE_FAULT, DriverStatus.CODE_HARDWARE, text)
            return TransitionCallbackReturn.FAILURE
        values = self._config.values
        self.get_logger().info(
            f"{'monitoring' if values.kind.is_monitor else 'holding'} {arm.robot.name} ({values.mode}); "
            f"scheduling: {arm.loop.scheduling}"
        )
        return TransitionCallbackReturn.SUCCESS

    def _begin(self, arm: DrivenArm, outputs: ArmOutputs) -> None:
        commands = self._commands = ArmCommands(self, arm, outputs)
        values = arm.values
        commands.change_faults(values)
        outputs.begin(commands.authenticator)
        if not values.kind.is_monitor:
            if commands.authenticator.fault is not None:
                self.get_logger().error(f"nothing may move: {commands.authenticator.fault}")
            elif commands.authenticator.state is AuthenticationState.OFF:
                self.get_logger().warning("any program on this network can move the arm (allow_unauthenticated)")

        def report() -> None:
            status = outputs.read_status()
            if status is not None:
                commands.on_status(status)
                outputs.publish_status(status, commands.scene.hash)

        turns, status_turns = itertools.count(), max(1, round(values.batch_rate / values.status_rate))

        def take_turn() -> None:
            # One timer for all: a turn of the executor costs more than the work in it.
            commands.keep_alive()
            outputs.publish_samples()
            if next(turns) % status_turns == 0:
                report()

        inputs = self._inputs
        inputs.create_subscription(SceneMessage, "safe_planner/scene", commands.on_scene, qos.SCENE)
        if not values.kind.is_monitor:
            inputs.create_subscription(CertifiedTrajectory, "safe_planner/plan", commands.on_plan, qos.LATCHED)
        inputs.create_subscription(Empty, "~/heartbeat", commands.on_heartbeat, 1)
        inputs.create_service(Trigger, "~/brake", commands.brake)
        inputs.create_service(SetBool, "~/guide", commands.guide)
        inputs.create_service(Trigger, "~/reconnect", commands.reconnect)
        inputs.create_service(ApplyEstimate, "~/set_model", commands.set_model)
        inputs.create_service(SetPayload, "~/set_payload", commands.set_payload)
        inputs.create_timer(1.0 / values.batch_rate, take_turn)
        inputs.create_timer(1.0, outputs.publish_diagnostics)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Brake, hand the arm back and end the loop."""
        self._release("the driver is deactivated")
        return TransitionCallbackReturn.SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Forget the robot."""
        if self._is_proving:
            self.get_logger().error("cannot clean up while a plan is being proven; try again")
            return TransitionCallbackReturn.FAILURE
        self._lasting.destroy()
        if self._outputs is not None:
            self._outputs.close()
        if self._arm is not None:
            self._arm.prover.stop()
        self._arm = self._outputs = None
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Brake, hand the arm back and end the loop."""
        self._release("the driver is shut down")
        return TransitionCallbackReturn.SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Brake, hand the arm back and forget the robot: the node can be configured again."""
        self._release("the driver has an error")
        return self.on_cleanup(state)

    def close(self) -> None:
        """Stop the arm before the node ends."""
        self._release("the driver ends")
        if self._arm is not None:
            self._arm.prover.stop()

    def _release(self, reason: str) -> None:
        if self._arm is None or self._outputs is None:
            return
        self._arm.loop.stop(reason)
        if self._commands is not None:
            self.get_logger().info(f"the arm rests and is handed back: {reason}")
            self._commands.close()
            self._outputs.end()
            self._outputs.publish_state(DriverStatus.MODE_IDLE, DriverStatus.CODE_OK, reason)
        self._commands = None
        self._inputs.destroy()
        self._outputs.end()

    # Motion

    async def _execute(
        self, request: ExecuteTrajectory.Request, response: ExecuteTrajectory.Response
    ) -> ExecuteTrajectory.Response:
        if self._commands is not None:
            self._is_proving = True
            try:
                return await self._commands.execute(request, response)
            finally:
                self._is_proving = False
        response.code = ExecuteTrajectory.Response.NOT_READY
        response.message = "trajectory refused: the arm is not under control; activate arm_driver"
        return response

    # Parameters

    def _check_joints_of_faults(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        names = [name for one in parameters if one.name in _FAULTS_OF_JOINTS for name in one.value]
        try:
            if self._arm is not None:
                InjectedFaults(stuck_encoders=tuple(filter(None, names))).require_joints(self._arm.robot.joint_names)
        except SysidError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _on_change(self, values: ArmDriverParameters) -> None:
        if self._commands is not None:
            self._commands.change_faults(values)


main = partial(spin_main, ArmDriverNode)

if __name__ == "__main__":
    sys.exit(main())
