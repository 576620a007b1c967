"""The topics of an arm under ros2_control, for the process of the torque loop: the ROS side of a ``JointLink``.

The loop's process has a ROS context and a node of its own. The loop asks for states when it wants one, and nothing else
runs in this node: no executor, no timers, no parameter services.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import rclpy
from rcl_interfaces.srv import GetParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from sysid_msgs.msg import SampleBatch
from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers.ros2_control.settings import Interface
from sysid_ros.drivers.ros2_control.states import ControllerInfo, JointStates
from sysid_ros.ros import qos
from sysid_ros.ros.subscriptions import Inbox

NODE_NAME = "arm_driver_loop"
_COMMANDING_ACTIVE = 4
_SESSION_STATES = ("IDLE", "MONITORING_WAIT", "MONITORING_READY", "COMMANDING_WAIT", "COMMANDING_ACTIVE")
_RESEND_SECONDS = 0.002
_OLDEST_ANSWERED, _OLDEST_WATCHED = 100, 1000
"""States that wait at most, where they are answered and where they are only watched; older ones are missing then."""


@dataclass(frozen=True)
class LinkSetup:
    """Names of everything; fully resolved.

    Attributes:
        joint_names: Joints of the model, for messages that have no names.
        interface: Which messages the arm speaks.
        namespace: Namespace of the node of the loop.
        states: Topic of the states.
        commands: Topic of the commands; None where nothing is commanded.
        effort_controller: Name of the effort controller's node.
        hold_controller: Controller that holds the arm otherwise, as the controller manager knows it; None for none.
        controller_manager: Name of the controller manager's node.
    """

    joint_names: tuple[str, ...]
    interface: Interface = Interface.FORWARD
    namespace: str = "/"
    states: str = "/joint_states"
    commands: str | None = None
    effort_controller: str = "/effort_controller"
    hold_controller: str | None = None
    controller_manager: str = "/controller_manager"

    def require_packages(self) -> None:
        """Check that the needed messages are installed, and that the arm takes the commands."""
        if self.interface is Interface.LBR:
            _require("lbr_fri_idl", "it is part of lbr_fri_ros2_stack and needed for arm_interface: lbr_fri_idl")
        if self.interface is Interface.BROADCASTER and self.commands:
            raise SysidError("arm_interface: sample_broadcaster only publishes states; use it with mode:=monitor_only")
        if self.commands and self.hold_controller:
            _require("controller_manager_msgs", "it is part of ros2_control and needed for hold_controller")


class RosJointLink:
    """See :class:`sysid_ros.drivers.ros2_control.states.JointLink`.

    Args:
        setup: Names.

    Raises:
        SysidError: The messages of the arm are not there.
    """

    def __init__(self, setup: LinkSetup):
        setup.require_packages()
        self._setup = setup
        self.states_name, self.commands_name = setup.states, setup.commands or ""
        self._context = Context()
        rclpy.init(args=[], context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = Node(
            NODE_NAME, context=self._context, namespace=setup.namespace, use_global_arguments=False,
            start_parameter_services=False, enable_rosout=False,
        )  # fmt: skip
        self._queue: deque[JointStates] = deque(maxlen=_OLDEST_ANSWERED if setup.commands else _OLDEST_WATCHED)
        state_type, self._convert, profile = self._state_type()
        self._inbox = Inbox(self._node, state_type, setup.states, profile)
        self._command: Any = None
        self._publisher: Any = None
        if setup.commands:
            self._command = self._command_type()()
            self._publisher = self._node.create_publisher(type(self._command), setup.commands, qos.EFFORT_COMMANDS)

    # States

    def now(self) -> float:
        """Time on this computer [s]."""
        return time.monotonic()

    def next(self, timeout: float) -> JointStates | None:
        """Return the next message."""
        self._drain()
        if not self._queue and timeout > 0.0:
            self._inbox.wait(timeout)
            self._drain()
        return self._queue.popleft() if self._queue else None

    def waiting(self) -> int:
        """Messages that have arrived and were not taken yet."""
        return len(self._queue)

    def describe_timeout(self) -> str:
        """Who publishes states."""
        found = self._node.get_publishers_info_by_topic(self._setup.states)
        if not found:
            return f"no publisher on {self._setup.states}"
        names = ", ".join(sorted({f"{one.node_name} ({one.topic_type})" for one in found}))
        return f"{self._setup.states} is published by {names}, but nothing arrives"

    def _drain(self) -> None:
        for message in self._inbox.take():
            self._queue.extend(self._convert(message))

    def _state_type(self) -> tuple[type, Callable[[Any], Iterable[JointStates]], QoSProfile]:
        if self._setup.interface is Interface.BROADCASTER:
            return SampleBatch, from_sample_batch, qos.SAMPLES
        if self._setup.interface is Interface.LBR:
            names, kind = self._setup.joint_names, importlib.import_module("lbr_fri_idl.msg").LBRState
            return kind, lambda message: [from_lbr_state(message, names)], qos.JOINT_STATES_SUBSCRIBER
        return JointState, lambda message: [from_joint_state(message)], qos.JOINT_STATES_SUBSCRIBER

    # Commands

    def send(self, torque: Sequence[float], position: Sequence[float]) -> None:
        """Publish a command."""
        if self._setup.interface is Interface.LBR:
            self._command.joint_position, self._command.torque = position, torque
        else:
            self._command.data = torque
        self._publisher.publish(self._command)

    def find_command_problem(self) -> str | None:
        """Why commands would not arrive, or not only ours."""
        topic = self.commands_name
        if not self._publisher.get_subscription_count():
            return f"no subscriber on {topic}; is the effort controller loaded and configured?"
        if self._node.count_publishers(topic) > 1:
            others = sorted(
                one.node_name for one in self._node.get_publishers_info_by_topic(topic) if one.node_name != NODE_NAME
            )
            return f"{topic} has another publisher: {', '.join(others) or 'another driver'}"
        return None

    def ask_controller(self, timeout: float) -> ControllerInfo | None:
        """Asks the controller's parameter service for ``joints`` and ``interface_name``."""
        joints = self._get_parameter("joints", timeout)
        if joints is None:
            return None
        # Group effort controllers have no such parameter: they always write efforts.
        interface = self._get_parameter("interface_name", timeout)
        name = interface.string_value if interface is not None else ""
        return ControllerInfo(tuple(joints.string_array_value), name or "effort")

    @property
    def has_hold_controller(self) -> bool:
        """Whether there is a controller that holds the arm when ours does not."""
        return bool(self._setup.hold_controller)

    def switch(self, is_torque: bool, timeout: float) -> str | None:
        """Asks the controller manager; meanwhile the latest command is repeated."""
        if not self._setup.hold_controller:
            return None
        kind = importlib.import_module("controller_manager_msgs.srv").SwitchController
        names = [self._setup.effort_controller.rsplit("/", 1)[-1], self._setup.hold_controller]
        active, inactive = names if is_torque else reversed(names)
        request = kind.Request()
        request.activate_controllers, request.deactivate_controllers = [active], [inactive]
        request.strictness = kind.Request.STRICT
        request.activate_asap = True
        request.timeout.sec = int(timeout) + 1
        service = f"{self._setup.controller_manager}/switch_controller"
        response = self._call(kind, service, request, timeout, resends=True)
        if response is None:
            return f"{service} did not answer within {timeout:g} s"
        if not response.ok:
            words = getattr(response, "message", "")  # newer versions say why
            return f"{service} refused to activate {active} and deactivate {inactive} {words}"
        return None

    def _command_type(self) -> type:
        if self._setup.interface is Interface.LBR:
            return importlib.import_module("lbr_fri_idl.msg").LBRTorqueCommand
        return Float64MultiArray

    def _get_parameter(self, name: str, timeout: float) -> Any:
        service = f"{self._setup.effort_controller}/get_parameters"
        response = self._call(GetParameters, service, GetParameters.Request(names=[name]), timeout)
        has_value = response is not None and len(response.values) == 1 and response.values[0].type != 0
        return response.values[0] if has_value else None

    def _call(self, kind: type, name: str, request: Any, timeout: float, resends: bool = False) -> Any:
        """Return the answer of a service; None if there was none in time."""
        client: Any = self._node.create_client(kind, name)
        executor = SingleThreadedExecutor(context=self._context)
        executor.add_node(self._node)
        deadline = time.monotonic() + timeout
        try:
            future = None
            while time.monotonic() < deadline and not (future is not None and future.done()):
                if future is None and client.service_is_ready():
                    future = client.call_async(request)
                executor.spin_once(timeout_sec=_RESEND_SECONDS)
                if resends:
                    self._publisher.publish(self._command)
            return future.result() if future is not None and future.done() else None
        finally:
            executor.remove_node(self._node)
            executor.shutdown(timeout_sec=0.5)
            self._node.destroy_client(client)

    def close(self) -> None:
        """End the node and its context."""
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)


def from_joint_state(message: JointState) -> JointStates:
    """Convert a ``sensor_msgs/JointState`` for the driver."""
    stamp = message.header.stamp
    return JointStates(
        stamp.sec * 1_000_000_000 + stamp.nanosec, tuple(message.name), message.position, message.velocity,
        message.effort,
    )  # fmt: skip


def from_lbr_state(message: Any, joint_names: tuple[str, ...]) -> JointStates:
    """Convert a ``lbr_fri_idl/LBRState`` for the driver; its joints are the arm's, from base to flange."""
    state = message.session_state
    alarm = None
    if state != _COMMANDING_ACTIVE:
        name = _SESSION_STATES[state] if 0 <= state < len(_SESSION_STATES) else str(state)
        alarm = f"the FRI session is in {name}"
    stamp = message.time_stamp_sec * 1_000_000_000 + message.time_stamp_nano_sec
    return JointStates(stamp, joint_names, message.measured_joint_position, (), message.measured_torque, alarm)


def from_sample_batch(message: SampleBatch) -> Iterator[JointStates]:
    """Convert a ``sysid_msgs/SampleBatch`` of a broadcaster for the driver, sample by sample, without invalid ones."""
    names, n = tuple(message.joint_names), len(message.joint_names)
    for k, stamp in enumerate(message.stamps):
        row = slice(k * n, (k + 1) * n)
        states = JointStates(stamp, names, message.positions[row], message.velocities[row], message.efforts[row])
        # Of numbers that are not finite the driver says which.
        if all(message.valid[k : k + 1]) or not all(map(math.isfinite, (*states.position, *states.effort))):
            yield states


def _require(package: str, reason: str) -> None:
    try:
        is_there = importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        is_there = False
    if not is_there:
        raise SysidError(f"the ROS package {package} is not installed here; {reason}")
