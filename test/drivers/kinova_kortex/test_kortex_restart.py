"""What happens to the base in the middle of a motion: no torque after it, none of before, and the arm again."""

from types import SimpleNamespace

import numpy as np
import pytest
from driver_doubles import start_move, started
from kortex_bench import PERIOD, make_base, make_loop, run
from kortex_memory import Memory, MemoryArm

from sysid_ros.drivers.kinova_kortex.enums import ControlMode, Function, ServoingMode
from sysid_ros.drivers.kinova_kortex.frame import decode_frame
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.takeover import TakeoverRefused
from sysid_ros.emulators.kortex.base import TCP, UDP

pytestmark = pytest.mark.slow


class Moving:
    """A loop in the middle of a motion; requests with torques are recorded with whether they were accepted."""

    def __init__(self):
        self.memory = Memory(make_base(payload="0.6"))
        self.loop = started(make_loop(MemoryArm(self.memory, late_limit=10.0, session_timeout=10.0)), 0.25)
        start_move(self.loop, 1.0)
        run(self.loop, 0.4)
        assert self.loop.mode is LoopMode.TRACK and np.abs(self.base.arm.v).max() > 0.1
        self.before, self.accepted = self.base.arm.q, []
        self.record(self.base)

    @property
    def base(self):
        return self.memory.base

    def record(self, base):
        """Notes every Refresh: whether it was accepted, and whether an actuator follows torques then."""
        answer = base.answer

        def listen(transport, client, data):
            response = answer(transport, client, data)
            if transport == UDP and decode_frame(data).function == Function.REFRESH:
                is_accepted = response is not None and not decode_frame(response).error
                self.accepted.append((is_accepted, base.actuators.is_tracking))
            return response

        base.answer = listen

    def replace(self, absence=0, **settings):
        """Another base with the same arm, which brakes have held meanwhile; it knows no session.

        Args:
            absence: For how many cycles of the loop there is none.
            settings: Of the other one.
        """
        successor = make_base(payload="0.6", **settings)
        successor.arm.place(self.base.arm.q)
        successor.restart()
        tcp = self.loop.arm._exchange.client._tcp if self.loop.arm._exchange else SimpleNamespace()
        tcp.is_open, tcp.overdue, tcp.reason = False, np.inf, "the base has closed the TCP connection"
        self.record(successor)
        whole, self.memory.send = self.memory.send, lambda data: True
        run(self.loop, absence * PERIOD)
        self.memory.send, self.memory.base = whole, successor

    def expect_lost(self, words, largest_move=0.01):
        run(self.loop, 20 * PERIOD)
        status = self.loop.status()
        assert status.mode is LoopMode.FAULT and self.loop.is_handed_back and words in status.reason, status.reason
        for _ in range(300):
            self.base.advance()
        base = self.base
        assert not any(is_accepted and acts for is_accepted, acts in self.accepted) and len(self.accepted) <= 2
        assert np.abs(base.arm.q - self.before).max() < largest_move and np.abs(base.arm.v).max() < 0.01
        assert base.servoing is ServoingMode.SINGLE_LEVEL and set(base.actuators.modes) == {ControlMode.POSITION}

    def expect_had_again(self, moves=False):
        rest = self.base.arm.q
        self.accepted.clear()
        self.loop.connect()
        run(self.loop, 0.25)
        assert self.loop.mode is LoopMode.HOLD and np.abs(self.base.arm.q - rest).max() < 5e-3
        assert all(is_accepted for is_accepted, _ in self.accepted) and len(self.base.sessions) == 2
        if moves:
            start_move(self.loop, 0.0)
            run(self.loop, 1.0)
            assert self.loop.mode is LoopMode.HOLD and self.loop.status().reason == "trajectory done"
        self.loop.release("test")


@pytest.fixture
def moving():
    return Moving()


EVENTS = {
    "base at once": (lambda m: m.replace(), "INVALID_SESSION"),
    "base later": (lambda m: m.replace(absence=60), "no usable measurement in 10 cycles"),
    "base restarts": (lambda m: m.base.restart(), "INVALID_SESSION"),
    "sessions": (lambda m: m.base.sessions.clear(), "INVALID_SESSION"),
    "TCP session": (lambda m: m.base.sessions.time_out(TCP), "WRONG_SERVOING_MODE"),
    "UDP session": (lambda m: m.base.sessions.time_out(UDP), "INVALID_SESSION"),
    "low level": (lambda m: m.base.leave_low_level("joystick"), "WRONG_SERVOING_MODE"),
}


@pytest.mark.parametrize("name", EVENTS)
def test_torque_ends_at_once_in_a_motion_and_the_same_loop_has_the_arm_again(moving, name):
    act, words = EVENTS[name]
    act(moving)
    # A base that knows no session any more cannot be told to hold the arm: it does so when its watchdog runs out.
    moving.expect_lost(words, 0.05 if name == "sessions" else 0.01)
    moving.expect_had_again(moves=name == "base at once")


def test_another_robot_in_its_place_is_refused_with_its_number_of_actuators(moving):
    moving.replace(joint_count=6)
    moving.expect_lost("INVALID_SESSION")
    with pytest.raises(TakeoverRefused, match="has 6 actuators .*kinova_gen3_2f85 has 7"):
        moving.loop.connect()
    assert np.abs(moving.base.arm.q - moving.before).max() < 1e-3 and moving.base.servoing is ServoingMode.SINGLE_LEVEL
    moving.replace()
    moving.expect_had_again()
