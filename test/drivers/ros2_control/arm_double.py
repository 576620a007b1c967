"""An arm under ros2_control in lock-step, without ROS: emulated controllers and hardware behind the driver's link."""

import numpy as np

from sysid_ros.core.control import GravityPid, PidSettings
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.modes import Noise, TorqueCommand
from sysid_ros.drivers.mujoco.simulation import draw_truth, load_payload
from sysid_ros.drivers.ros2_control.arm import Ros2ControlArm
from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings
from sysid_ros.drivers.ros2_control.states import ControllerInfo
from sysid_ros.emulators.plant import EmulatedArm, PlantSettings
from sysid_ros.emulators.ros2_control.controllers import (
    Broadcaster,
    EmulatedHardware,
    ForwardController,
    HardwareSettings,
)

START_NS = 1_000_000_000_000


class PlantLink:
    """Waiting for a message lets simulated time pass, and no other; a command takes effect one period later."""

    states_name, commands_name = "/joint_states", "/effort_controller/commands"

    def __init__(self, robot, payload="none", truth="nominal", order=(), joints=(), **plant):
        component = {name: plant.pop(name) for name in ("period", "torque_command") if name in plant}
        plant = PlantSettings(**{"noise": Noise.NONE, "seed": 3, "measured_sign": 1.0, **plant})
        self.robot = robot
        arm = EmulatedArm(robot, draw_truth(robot, truth, 3), load_payload(robot, payload), plant, START_NS)
        self.hardware = EmulatedHardware(arm, HardwareSettings(**component))
        self.broadcaster = Broadcaster(robot, order)
        self.controller = ForwardController(robot, joints)
        self.motion = None
        self.told = ControllerInfo(self.controller.joints)
        self.command_problem = None
        self.has_hold_controller = False
        self.switch_problem = None
        self.is_torque = True
        self.switches, self.complaints, self.sent, self.queue = [], [], [], []
        self.is_closed = False
        self.updates = 0

    def now(self):
        return self.hardware.arm.stamp_ns * 1e-9

    def next(self, timeout):
        end = self.now() + timeout
        while not self.queue:
            self.queue = self.broadcaster.messages(self.update())
            if self.now() >= end:
                break
        return self.queue.pop(0) if self.queue else None

    def update(self):
        """Read, update, write, as a controller manager does."""
        hardware, command = self.hardware, self.controller.command if self.is_torque else None
        measured = hardware.measure()
        self.updates += 1
        if self.motion is not None:
            hardware.follow(*self.motion.evaluate(1e-9 * (hardware.arm.stamp_ns - START_NS) + hardware.settings.period))
        elif command is None:
            hardware.hold()
        else:
            hardware.apply(command)
        return measured

    def waiting(self):
        return len(self.queue)

    def send(self, torque, position):
        self.sent.append((list(torque), list(position)))
        complaint = self.controller.take(torque)
        if complaint is not None:
            self.complaints.append(complaint)

    def describe_timeout(self):
        return "no publisher on /joint_states"

    def find_command_problem(self):
        return self.command_problem

    def ask_controller(self, timeout):
        return self.told

    def switch(self, is_torque, timeout):
        self.switches.append(is_torque)
        if not self.switch_problem:
            self.is_torque = is_torque
        return self.switch_problem

    def close(self):
        self.is_closed = True


FAST = {"rest_time": 0.05, "hold_time": 0.1, "connect_timeout": 0.3, "session_timeout": 0.03}


def connection(**changes):
    return Ros2ControlSettings(**{"torque_command": TorqueCommand.FULL, **FAST, **changes})


def make_arm(robot, link, **changes):
    return Ros2ControlArm(robot, connection(**changes), lambda: link)


def make_loop(robot, link, **changes):
    """A loop with a simple controller, which needs no proof."""
    arm = make_arm(robot, link, **changes)
    return ControlLoop(arm, GravityPid(robot, PidSettings(period=arm.period)), robot, LoopSettings())


def run(loop, seconds):
    """Steps for a while; the samples."""
    return [loop.step() for _ in range(round(seconds / loop.arm.period))]


def speed(link):
    return float(np.abs(link.hardware.arm.v).max())
