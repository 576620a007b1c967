"""What happens to the controller in the middle of a motion: no torque after it, none of before, and the arm again."""

import numpy as np
import pytest
from driver_doubles import start_move
from fri_bench import PERIOD, make_controller, run
from fri_memory import Memory, connected, use_clock_of

from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.messages import SessionState
from sysid_ros.drivers.loop_types import LoopCode, LoopMode
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.drivers.takeover import TakeoverRefused

pytestmark = pytest.mark.slow
VERSION = FriVersion.V2_5


class Moving:
    """A loop in the middle of a motion, whose commands are recorded with the state they answer."""

    def __init__(self, monkeypatch):
        self.memory = Memory(make_controller(payload="0.6", version=VERSION))
        use_clock_of(self.memory, monkeypatch)
        self.loop = connected(self.memory, VERSION)
        run(self.loop, 0.3)
        start_move(self.loop, 1.0)
        run(self.loop, 0.4)
        assert self.loop.mode is LoopMode.TRACK and np.abs(self.memory.controller.arm.v).max() > 0.1
        self.codec, self.sent = FriCodec(VERSION), []
        self.before = self.memory.controller.arm.q
        send = self.memory.send
        self.memory.send = lambda data: (self.sent.append((self.loop.arm._link.session.state, data)), send(data))[1]

    def replace(self, silence=0, **settings):
        """Another controller with the same arm, which brakes have held meanwhile; its counters begin again.

        Args:
            silence: For how many cycles of the loop there is none.
            settings: Of the other one.
        """
        successor = make_controller(payload="0.6", version=VERSION, **settings)
        successor.arm.place(self.memory.controller.arm.q)
        successor.restart()
        late = list(self.memory.to_server)
        self.memory.controller = successor
        self.memory.to_client.clear()
        self.memory.to_server = late  # what was on its way arrives at the successor
        self.memory.step = self.pass_time
        for _ in range(silence):
            self.loop.step()
        del self.memory.step

    def pass_time(self):
        self.memory.time += PERIOD

    def torques(self):
        """States in which torques other than zero have been sent."""
        commands = [(state, self.codec.decode_command(data).tau) for state, data in self.sent]
        return {state for state, tau in commands if tau is not None and np.abs(tau).max() > 0.0}

    def expect_lost(self, words, cycles=150):
        self.sent.clear()
        moved = 0.0
        for _ in range(cycles):
            run(self.loop, PERIOD)
            moved = max(moved, float(np.abs(self.memory.controller.arm.q - self.before).max()))
        status = self.loop.status()
        assert status.mode is LoopMode.FAULT and self.loop.is_handed_back
        assert status.code is (LoopCode.INVALID_MEASUREMENT if "usable" in words else LoopCode.HARDWARE)
        assert words in status.reason, status.reason
        assert self.torques() <= {SessionState.COMMANDING_ACTIVE} and len(self.sent) > 10
        assert moved < 0.01 and np.abs(self.memory.controller.arm.v).max() < 0.02

    def expect_had_again(self):
        rest = self.memory.controller.arm.q
        self.sent.clear()
        self.loop.connect()
        run(self.loop, 0.3)
        controller = self.memory.controller
        assert self.loop.mode is LoopMode.HOLD and controller.state is SessionState.COMMANDING_ACTIVE
        assert np.abs(controller.arm.q - rest).max() < 5e-3 and not controller.rejected
        assert self.torques() == {SessionState.COMMANDING_ACTIVE}
        start_move(self.loop, 0.0)
        run(self.loop, 1.0)
        assert self.loop.mode is LoopMode.HOLD and self.loop.status().reason == "trajectory done"
        self.loop.release("test")


@pytest.fixture
def moving(monkeypatch):
    return Moving(monkeypatch)


EVENTS = {
    "fall back": (lambda m: m.memory.controller.end_motion("stopped"), "fell back to MONITORING_READY"),
    "quality": (lambda m: m.memory.controller.lose_quality(), "fell back to MONITORING_READY (quality POOR)"),
    "application": (lambda m: m.memory.controller.restart(), "fell back to MONITORING_WAIT"),
    "controller at once": (lambda m: m.replace(), "fell back to MONITORING_WAIT"),
    "controller later": (lambda m: m.replace(silence=60), "no usable measurement in 10 cycles"),
}


@pytest.mark.parametrize("name", EVENTS)
def test_torque_ends_at_once_in_a_motion_and_the_same_loop_has_the_arm_again(moving, name):
    act, words = EVENTS[name]
    act(moving)
    moving.expect_lost(words)
    moving.expect_had_again()
    restarts = moving.loop.arm.health()["controller restarts"]
    assert restarts == (name.startswith(("application", "controller")))


def test_another_robot_in_its_place_is_refused_with_its_number_of_joints(moving):
    moving.replace(joint_count=6)
    run(moving.loop, 0.3)
    arm = moving.memory.controller.arm
    assert moving.loop.mode is LoopMode.FAULT
    with pytest.raises(TakeoverRefused, match="an arm with 6 joints; FRI arms have 7"):
        moving.loop.connect()
    assert not moving.torques() and np.abs(arm.q - moving.before).max() < 1e-3
    moving.replace()
    moving.expect_had_again()


def test_a_session_that_falls_back_while_it_waits_is_followed_into_the_next_motion(monkeypatch):
    """From COMMANDING_WAIT, twice: nothing has acted yet, so the driver waits for the motion to be started again."""
    memory = Memory(make_controller(payload="0.6", version=VERSION, restart_time=0.1))
    use_clock_of(memory, monkeypatch)
    controller, left = memory.controller, [3, 3]
    begin = controller.begin

    def interrupted(datagrams):
        message = begin(datagrams)
        if controller._answers_in_wait and controller.state is SessionState.COMMANDING_WAIT and left:
            left[0] -= 1
            if not left[0]:
                left.pop(0)
                controller.end_motion("stopped")
        return message

    controller.begin = interrupted
    loop = connected(memory, VERSION)
    run(loop, 0.1)
    assert not left and loop.mode is LoopMode.HOLD and memory.farthest < 5e-3
    assert sum("stopped" in report for report in controller.reports) == 2
    loop.release("test")
