"""What the tests of the Kortex driver share: an emulated base in a thread, whose time waits for its client."""

import sys

from driver_doubles import run
from emulator_thread import EmulatorThread
from textbook import load_textbook

from sysid_ros.core.control import RobustController
from sysid_ros.drivers.kinova_kortex.arm import KortexArm
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings, StampSource
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.mujoco.simulation import draw_truth, load_payload
from sysid_ros.emulators.kortex.base import BaseSettings, KortexBase
from sysid_ros.emulators.kortex.server import EmulatorServer
from sysid_ros.emulators.plant import EmulatedArm

__all__ = ["run"]
ROBOT = load_textbook()
PERIOD = 0.001
LONGEST_WATCHDOG = 10.0
# Client and base are threads here: waiting for each other must not take the 5 ms that is Python's default.
sys.setswitchinterval(5e-5)


def make_base(payload="none", truth="random", plant=None, robot=ROBOT, **settings):
    reports, refusals = [], []
    arm = EmulatedArm(robot, draw_truth(robot, truth, 3), load_payload(robot, payload), plant)
    base = KortexBase(
        arm, BaseSettings(**settings), lambda text: (refusals if text.startswith("refused") else reports).append(text)
    )
    base.reports, base.refusals = reports, refusals
    return base


class RunningEmulator(EmulatorThread):
    """A base in a thread."""

    def __init__(self, base, tcp_delay=0.0):
        self.base = base
        # Only while torques act does the base wait for its client.
        base.actuators.watchdog_time = LONGEST_WATCHDOG
        self.server = EmulatorServer(base, patience=self.PATIENCE, tcp_delay=tcp_delay)
        self.ports = {"port": self.server.address[1], "port_realtime": self.server.address_realtime[1]}

    def __enter__(self):
        self.start(self.server)
        return self

    @property
    def has_client(self):
        return self.base.is_waiting_for_client


def make_arm(emulator, robot=ROBOT, **settings):
    values = {
        "robot_ip": "127.0.0.1", **emulator.ports, "wait_time": 10.0, "session_timeout": 10.0, "late_limit": 10.0,
        "call_timeout": 10.0, "connect_timeout": 30.0, "rest_time": 0.03, "hold_time": 0.02, "close_time": 0.0,
        "probe_torque": 0.0, "stamps": StampSource.FRAMES,
    }  # fmt: skip
    return KortexArm(robot, KortexSettings(**{**values, **settings}))


def make_loop(arm, **settings):
    return ControlLoop(arm, RobustController(arm.robot), arm.robot, LoopSettings(**settings))
