"""The cable breaks, or one datagram is lost, at any moment of take-over and hand-back: the controller holds the arm."""

import numpy as np
import pytest
from driver_doubles import start_move
from fri_bench import PERIOD, make_controller, run
from fri_memory import Memory, MemoryArm, connected, use_clock_of

from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.kuka_fri.messages import SessionState
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.emulators.relays.faults import Delivery

STOPPING = 0.3
"""How long the controller goes on alone [s]."""
FOREVER = 10**9
VERSIONS = list(FriVersion)


class Cable:
    """Both directions of a connection; loses ``count`` of the datagrams that pass, the first being 1."""

    def __init__(self, memory, first, count):
        self.lost = range(first, first + count)
        self.passed = 0
        self.memory, self.q = memory, None
        memory.down = memory.up = self

    def pass_on(self, data):
        self.passed += 1
        if self.passed in self.lost:
            self.q = self.memory.controller.arm.q if self.q is None else self.q
            return []
        return [Delivery(0.0, data)]


def settle(memory):
    """How far the arm goes, with the controller alone, from where it was when the first datagram was lost [rad]."""
    for _ in range(round(STOPPING / PERIOD)):
        memory.step()
    assert np.abs(memory.controller.arm.v).max() < 0.01 and not memory.controller.state.is_commanding
    return float(np.abs(memory.controller.arm.q - memory.down.q).max())


def take_over(monkeypatch, first, count, version=FriVersion.V1_15):
    memory = Memory(make_controller(payload="0.6", version=version, restart_time=np.inf))
    use_clock_of(memory, monkeypatch)
    cable = Cable(memory, first, count)
    arm = MemoryArm(memory, version, connect_timeout=0.6)
    try:
        arm.connect()
    except ArmError:
        return memory, cable, None
    return memory, cable, arm


def hand_back(monkeypatch, first, count, version=FriVersion.V1_15):
    """Brakes to rest out of a motion, then releases; datagrams are counted from the beginning of braking."""
    memory = Memory(make_controller(payload="0.6", version=version, restart_time=np.inf))
    use_clock_of(memory, monkeypatch)
    loop = connected(memory, version)
    run(loop, 0.2)
    start_move(loop, 1.0)
    run(loop, 0.3)
    cable = Cable(memory, first, count)
    loop.brake("test")
    for _ in range(500):
        run(loop, PERIOD)
        if loop.is_at_rest or loop.is_handed_back:
            break
    mode = loop.mode
    loop.release("test")
    return memory, cable, mode


def version_of(number):
    return VERSIONS[number % len(VERSIONS)]


def moments(passed, step):
    """Numbers of datagrams of both directions in turn, the first and the last among them."""
    return [*range(1, passed, step), passed]


@pytest.mark.slow
def test_a_cable_that_breaks_during_take_over_leaves_the_arm_with_its_controller(monkeypatch):
    _, whole, arm = take_over(monkeypatch, 0, 0)
    assert whole.passed > 300 and arm is not None
    refused = []
    for first in moments(whole.passed, 25):
        memory, _, arm = take_over(monkeypatch, first, FOREVER, version_of(first))
        refused.append(arm is None)
        if arm is not None:  # broken in the last 0.1 s, which only silence will tell
            arm.close()
        assert settle(memory) < 0.002 and memory.farthest < 0.005, first  # the test of the sign moves it by 1.7 mrad
    assert sum(refused) >= len(refused) - 3


def test_any_one_datagram_may_be_lost_during_take_over(monkeypatch):
    for first in moments(330, 55):
        memory, cable, arm = take_over(monkeypatch, first, 1, version_of(first))
        assert cable.passed > 300 and arm is not None, first
        assert memory.controller.state is SessionState.COMMANDING_ACTIVE
        arm.close()
        assert settle(memory) < 0.005 and memory.farthest < 0.005, first


@pytest.mark.slow
def test_a_cable_that_breaks_during_hand_back_leaves_the_arm_with_its_controller(monkeypatch):
    """At 0.15 rad/s at first: what it goes is that times the controller's 6 ms, and what its own braking takes."""
    for first in (1, 62, 153, 299):
        memory, cable, mode = hand_back(monkeypatch, first, FOREVER, version_of(first))
        assert mode is (LoopMode.FAULT if first < 270 else mode) and cable.q is not None, first
        assert settle(memory) < 0.005, first


@pytest.mark.slow
def test_any_one_datagram_may_be_lost_during_hand_back(monkeypatch):
    ends = []
    for first in (0, 1, 150):  # none, and some of the 300 there are
        memory, _, mode = hand_back(monkeypatch, first, 1)
        assert mode is LoopMode.HOLD, first
        ends.append(memory.controller.arm.q)
        assert first == 0 or settle(memory) < 0.05  # along its path to rest
    assert np.ptp(ends, axis=0).max() < 2e-3
