"""Node ``arm_emulator``: runs the emulated controller of an arm in a process, and publishes the truth about it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from rclpy.node import Node

from sysid_msgs.msg import SimulationTruth
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import KORTEX
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.modes import TRUTHS, Noise
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.emulators.program import HAND_BACK_SECONDS
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import truth_to_message
from sysid_ros.ros.node import create_timer, spin_main
from sysid_ros.ros.parameters import ParameterServer, parameter, parameter_like
from sysid_ros.ros.robot import RobotParameters

_WATCH_SECONDS = 0.2
_END_SECONDS = HAND_BACK_SECONDS + 1.0


@dataclass(frozen=True)
class ArmEmulatorParameters(RobotParameters):
    """Parameters of the node ``arm_emulator``."""

    mode: str = parameter(
        "emulated", choices=("emulated", "emulated_ros2_control", "emulated_monitor_only"), read_only=True
    )
    """The controller: emulated: the vendor's; emulated_ros2_control, emulated_monitor_only: controllers of an arm under
    ros2_control, in the second case with a motion of its own."""
    payload: str = parameter("none", read_only=True)
    """Load of the arm: a name from config/payloads.yaml, a mass [kg], a mass at X Y Z [kg, m], or none."""
    controller_load: str = parameter("none", read_only=True)
    """Load configured on the controller, in the same words."""
    truth: str = parameter("random", choices=TRUTHS, read_only=True)
    """How the arm's own parameters are chosen in their box."""
    noise: str = parameter("uniform", choices=tuple(one.value for one in Noise), read_only=True)
    """How the sensors use their allowed errors."""
    seed: int = parameter(0, "-", lower=0, upper=2**31 - 1, read_only=True)
    """Seed of truth and noise."""
    gripper: str = parameter("", read_only=True)
    """State of the gripper, as the settings of the robot name it, such as open; empty: any of them."""
    patience: float = parameter(0.0, "s", lower=0.0, upper=10.0, read_only=True)
    """How long emulated time waits for a slow driver."""
    real_time_factor: float = parameter(1.0, "-", lower=0.01, upper=1.0, read_only=True)
    """LBR, ros2_control: how fast emulated time passes; below 1 where processors are few."""
    fri_version: str = parameter_like(FriSettings, "version", read_only=True)
    """LBR: version of FRI."""
    port_id: int = parameter_like(FriSettings, "port", read_only=True)
    """LBR: UDP port of the driver on this computer."""
    send_period: float = parameter_like(FriSettings, "period", read_only=True)
    """LBR: time between messages, in steps of 0.001."""
    friction_compensation: float = parameter(0.0, "-", lower=0.0, upper=1.0, read_only=True)
    """LBR: share of friction the controller compensates."""
    port: int = parameter_like(KortexSettings, "port", read_only=True)
    """Kinova: TCP port of the base."""
    port_realtime: int = parameter_like(KortexSettings, "port_realtime", read_only=True)
    """Kinova: UDP port of the base."""
    username: str = parameter_like(KortexSettings, "username", read_only=True)
    """Kinova: user of the base."""
    password: str = parameter_like(KortexSettings, "password", read_only=True)
    """Kinova: password of that user."""
    serial_number: str = parameter("emulated", read_only=True)
    """Kinova: serial number that the base reports."""
    update_rate: float = parameter(1000.0, "Hz", lower=50.0, upper=1000.0, read_only=True)
    """ros2_control: rate of states and commands; 1000 over a whole number."""
    torque_command: str = parameter("full", choices=("full", "overlay_gravity", "overlay"), read_only=True)
    """ros2_control: torques that the arm adds to effort commands, as in arm_driver."""
    state_joints: tuple[str, ...] = parameter((), read_only=True)
    """ros2_control: joints in the order of joint_states, others among them; empty for the model's."""
    command_joints: tuple[str, ...] = parameter((), read_only=True)
    """ros2_control: joints in the order of the commands; empty for the model's."""

    def command(self, namespace: str = "") -> list[str]:
        """Return the command that starts the emulated controller, in a ROS namespace for one that has nodes."""
        options = {
            "robot": self.model, "payload": self.payload, "truth": self.truth, "noise": self.noise, "seed": self.seed,
            "patience": self.patience, "gripper": self.gripper,
        }  # fmt: skip
        if self.mode != "emulated":
            module = "nodes.ros2_control_emulator"
            options |= {
                "update-rate": self.update_rate, "torque-command": self.torque_command, "namespace": namespace,
                "real-time-factor": self.real_time_factor,
                "state-joints": ",".join(self.state_joints), "command-joints": ",".join(self.command_joints),
            }  # fmt: skip
        elif load_robot(self.model).protocol == KORTEX:
            module = "kortex"
            options |= {
                "port": self.port, "port-realtime": self.port_realtime, "username": self.username,
                "password": self.password, "serial-number": self.serial_number,
            }  # fmt: skip
        else:
            module = "fri"
            options |= {
                "version": self.fri_version, "port": self.port_id, "send-period": self.send_period,
                "load": self.controller_load, "friction-compensation": self.friction_compensation,
                "real-time-factor": self.real_time_factor,
            }  # fmt: skip
        words = [f"--{name}={value}" for name, value in options.items()]
        motion = ["--motion"] if self.mode == "emulated_monitor_only" else []
        return [sys.executable, "-m", f"sysid_ros.emulators.{module}", *words, *motion, "--while-stdin"]


class ArmEmulatorNode(Node):
    """Starts and monitors the emulated controller, and publishes the load of its arm."""

    def __init__(self) -> None:
        super().__init__("arm_emulator")
        values = ParameterServer(self, ArmEmulatorParameters).values
        robot = values.load_robot(self.get_logger())
        payload = load_payload(robot, values.payload)
        load_payload(robot, values.controller_load)
        robot.gripper_state(values.gripper)
        # A session of its own: Ctrl-C in the terminal must not end the controller before its driver has released the
        # arm.
        command = values.command(self.get_namespace().strip("/"))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self._truth_publisher = self.create_publisher(SimulationTruth, "arm_driver/truth", qos.LATCHED)
        now = self.get_clock().now().nanoseconds
        self._truth_publisher.publish(truth_to_message(payload, now, robot.joint_names[-1]))
        self._timer = create_timer(self, _WATCH_SECONDS, self._watch)

    def _watch(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise SysidError(f"the emulated controller has ended with exit status {code}")

    def close(self) -> None:
        """End the emulated controller as soon as its driver has handed the arm back."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(argv: list[str] | None = None) -> int:
    """Run the node until it is stopped; return the exit status."""
    return spin_main(ArmEmulatorNode, argv)


if __name__ == "__main__":
    sys.exit(main())
