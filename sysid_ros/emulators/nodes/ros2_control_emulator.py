"""An emulated arm under ros2_control: two nodes that behave like its controllers, and a simulated arm.

``sysid emulate ros2_control --robot kinova_gen3_2f85 --payload dumbbell_4lb``. The node ``joint_state_broadcaster``
publishes ``joint_states``; the node ``effort_controller`` takes ``~/commands`` and has the parameter ``joints``.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import rclpy
from rclpy.exceptions import InvalidNamespaceException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.validate_namespace import validate_namespace
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from sysid_ros.core.common.command_line import require_numbers
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.modes import TorqueCommand
from sysid_ros.drivers.pacing import request_scheduling
from sysid_ros.drivers.ros2_control.states import JointStates
from sysid_ros.emulators.arguments import ros2_control_parser
from sysid_ros.emulators.program import CyclicServer, EmulatorSetup, pick, require_real_time_factor, run_program
from sysid_ros.emulators.ros2_control.controllers import (
    FIELDS,
    Broadcaster,
    BroadcastFaults,
    EmulatedHardware,
    ForwardController,
    HardwareSettings,
    HomeMotion,
)
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import stamp_to_message
from sysid_ros.ros.parameters import NodeParameters, ParameterServer, parameter, parameters_from
from sysid_ros.ros.subscriptions import Inbox

_SERVE_SECONDS = 0.02
"""How often the parameter services of both nodes are served [s]: an executor costs a third of a period at 1 kHz."""
_REST_SECONDS = 2.0
"""How long the arm rests before the motion of ``--motion`` begins [s]."""


@dataclass(frozen=True)
class BroadcasterParameters(NodeParameters):
    """Faults of the emulated states, to be set while it runs."""

    faults: BroadcastFaults = parameters_from(BroadcastFaults, prefix="fault_", rename={"is_silent": "fault_silent"})
    fault_controller_dead: bool = parameter(False)
    """The effort controller takes no commands any more."""


@dataclass(frozen=True)
class ControllerSettings:
    """The emulated controllers."""

    state_joints: tuple[str, ...] = ()
    """Joints in the order of the states, others among them; empty for the model's."""
    command_joints: tuple[str, ...] = ()
    """Joints in the order of the commands; empty for the model's."""
    motion: bool = False
    """Whether a controller of its own moves the arm; commands have no effect then."""
    patience: float = 0.0
    """Time that emulated time waits for the answer of a slow driver [s]."""
    real_time_factor: float = 1.0
    """Speed of emulated time [-]; stamps and periods are in emulated time."""
    hardware: HardwareSettings = field(default_factory=HardwareSettings)

    def __post_init__(self) -> None:
        if not 0.0 <= self.patience <= 10.0:
            raise ParameterOutOfRange("patience [s]", self.patience, "0 to 10")
        require_real_time_factor(self.real_time_factor)


class Ros2ControlEmulator(CyclicServer[ForwardController]):
    """The emulated arm; its cycles are the controller manager's."""

    cycles_between_polls = 1

    def __init__(self, setup: EmulatorSetup, settings: ControllerSettings, namespace: str = ""):
        robot = load_robot(setup.robot)
        arm = setup.build_arm(robot, time.time_ns())
        super().__init__(ForwardController(robot, settings.command_joints), arm)
        self._hardware = EmulatedHardware(arm, settings.hardware)
        self._broadcaster = Broadcaster(robot, settings.state_joints)
        self._motion = HomeMotion(robot, setup.plant.seed, start=_REST_SECONDS) if settings.motion else None
        self._patience, self._period = settings.patience, settings.hardware.period
        self._real_period = self._period / settings.real_time_factor
        self._is_answered = False
        self._start_ns = arm.stamp_ns
        self._state_node = Node("joint_state_broadcaster", namespace=namespace)
        self._faults = ParameterServer(self._state_node, BroadcasterParameters)
        self._faults.on_change(self._change_faults)
        self._publisher = self._state_node.create_publisher(JointState, "joint_states", qos.JOINT_STATES)
        self._command_node = Node("effort_controller", namespace=namespace)
        self._command_node.declare_parameter("joints", list(self._controller.joints))
        self._command_node.declare_parameter("interface_name", "effort")
        self._commands = Inbox(self._command_node, Float64MultiArray, "~/commands", qos.EFFORT_COMMANDS)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._state_node)
        self._executor.add_node(self._command_node)
        self._served_at = self._deadline = time.monotonic()

    @property
    def is_in_use(self) -> bool:
        """Whether a driver commands the arm just now."""
        return self._is_answered

    def cycle(self) -> None:
        """Update, and wait for the end of the period."""
        taken = self._controller.taken
        self._update()
        self._deadline += self._real_period
        self._wait(self._deadline, taken)
        self._deadline = max(self._deadline, time.monotonic() - self._real_period)

    def close(self) -> None:
        """End both nodes."""
        self._executor.shutdown(timeout_sec=1.0)
        self._state_node.destroy_node()
        self._command_node.destroy_node()

    def _update(self) -> None:
        """Read, update and write, in the order of a controller manager."""
        hardware = self._hardware
        for states in self._broadcaster.messages(hardware.measure()):
            self._publisher.publish(to_message(states))
        if self._motion is not None:
            elapsed = 1e-9 * (hardware.arm.stamp_ns - self._start_ns)
            hardware.follow(*self._motion.evaluate(elapsed + self._period))
        elif self._controller.command is None:
            hardware.hold()
        else:
            hardware.apply(self._controller.command)

    def _wait(self, deadline: float, taken: int) -> None:
        """Sleep until the deadline, and then, with patience, wait until the state has been answered.

        Without patience a late answer acts one period later, as on a real arm.
        """
        self._serve()
        time.sleep(max(0.0, deadline - time.monotonic()))
        self._take()
        spent = 0.0  # in slices: where this computer stands still meanwhile, only one of them is lost
        while self._is_answered and self._controller.taken == taken and spent < self._patience:
            started = time.monotonic()
            self._commands.wait(_SERVE_SECONDS)
            spent += min(time.monotonic() - started, _SERVE_SECONDS)
            self._take()
            self._serve()
        self._is_answered = self._controller.taken != taken

    def _take(self) -> None:
        for message in self._commands.take():
            complaint = self._controller.take(message.data)
            if complaint is not None:
                self._command_node.get_logger().warning(complaint, throttle_duration_sec=1.0)

    def _serve(self) -> None:
        if time.monotonic() - self._served_at > _SERVE_SECONDS:
            self._executor.spin_once(timeout_sec=0.0)
            self._served_at = time.monotonic()

    def _change_faults(self, values: BroadcasterParameters) -> None:
        self._broadcaster.faults = values.faults
        self._controller.is_dead = values.fault_controller_dead


def to_message(states: JointStates) -> JointState:
    """States as a ``sensor_msgs/JointState``."""
    columns = (array("d", np.asarray(values).tobytes()) for values in (states.position, states.velocity, states.effort))
    message = JointState(name=list(states.names), **dict(zip(FIELDS, columns, strict=True)))
    message.header.stamp = stamp_to_message(states.stamp_ns)
    return message


def setup_of(options: argparse.Namespace) -> tuple[EmulatorSetup, ControllerSettings]:
    """Return arm and controllers of the options.

    Raises:
        SysidError: A value is not allowed.
    """
    require_numbers(options, "update_rate", least=50.0, most=1000.0)
    try:
        validate_namespace(f"/{options.namespace.strip('/')}")
    except InvalidNamespaceException:
        raise ParameterOutOfRange("--namespace", options.namespace, "letters, digits, _ and /, as in left") from None
    values = vars(options) | {
        "period": 1.0 / options.update_rate,
        "torque_command": TorqueCommand(options.torque_command),
        **{name: tuple(filter(None, getattr(options, name).split(","))) for name in ("state_joints", "command_joints")},
    }
    arm = EmulatorSetup.of(options, load_robot(options.robot).sensors.effort_sign)
    hardware = HardwareSettings(**pick(HardwareSettings, values))
    return arm, ControllerSettings(**pick(ControllerSettings, values), hardware=hardware)


def run(options: argparse.Namespace) -> int:
    """Run the emulator until it has to end; return the exit status."""

    def build(_: Callable[[str], None]) -> tuple[Ros2ControlEmulator, str]:
        setup = setup_of(options)
        request_scheduling(options.real_time_priority)  # before the threads of DDS begin, which inherit it
        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        return Ros2ControlEmulator(*setup, options.namespace), f"{options.robot} at {options.update_rate:g} Hz"

    try:
        return run_program("ros2_control_emulator", options, build)
    finally:
        rclpy.try_shutdown()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator as a program of its own."""
    return run(ros2_control_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
