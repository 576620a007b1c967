"""What the tests of the FRI driver share: an emulated controller in a thread, as fast as its client."""

from dataclasses import replace

from driver_doubles import run
from emulator_thread import EmulatorThread
from textbook import load_textbook

from sysid_ros.core.control import RobustController, RobustSettings
from sysid_ros.drivers.kuka_fri.arm import FriArm
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.mujoco.simulation import draw_truth, load_payload
from sysid_ros.emulators.fri.controller import ControllerSettings, FriController
from sysid_ros.emulators.fri.inner_loop import InnerLoop
from sysid_ros.emulators.fri.server import EmulatorServer
from sysid_ros.emulators.plant import EmulatedArm

__all__ = ["run"]
PERIOD = 0.002
ROBOT = load_textbook("kuka_lbr_med7")


def make_controller(payload="none", load="none", truth="random", plant=None, inner=None, robot=ROBOT, **settings):
    settings = {"send_period": PERIOD, "start_time": 0.05, "restart_time": 0.2, "wait_answers": 10, **settings}
    theta = draw_truth(robot, truth, 3)
    arm = EmulatedArm(robot, theta, load_payload(robot, payload), plant, 1_700_000_000_000_000_000)
    reports = []
    controller = FriController(
        InnerLoop(arm, load_payload(robot, load), inner), ControllerSettings(**settings), reports.append
    )
    controller.reports = reports
    return controller


class RunningEmulator(EmulatorThread):
    """A controller in a thread."""

    def __init__(self, controller, port):
        self.controller, self.port = controller, port

    def __enter__(self):
        address = ("127.0.0.1", self.port)
        self.start(EmulatorServer(self.controller, address, patience=self.PATIENCE, is_paced=False), pause=1e-4)
        return self

    @property
    def has_client(self):
        return self.server._was_answered


def make_arm(port, robot=ROBOT, **settings):
    return FriArm(robot, FriSettings(**{
        "port": port, "period": PERIOD, "wait_time": 10.0, "session_timeout": 10.0, "late_limit": 10.0,
        "connect_timeout": 30.0, "rest_time": 0.05, "hold_time": 0.05, **settings,
    }))  # fmt: skip


def make_loop(arm, **settings):
    robot = arm._robot
    gains = RobustSettings(period=arm.period, delay=arm.period, bandwidth=100.0)
    return ControlLoop(arm, RobustController(robot, gains), robot, LoopSettings(**settings))


def with_sensors(robot, **changes):
    return replace(robot, sensors=replace(robot.sensors, **changes))
