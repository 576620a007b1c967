"""A network that ends at any packet of taking the Gen3 over or handing it back: the arm is held where it is."""

from types import SimpleNamespace

import numpy as np
import pytest
from kortex_bench import PERIOD, make_base
from kortex_memory import Clock, Memory, MemoryArm, MemoryTcp

from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.kinova_kortex.enums import ControlMode, FrameType, Function, KortexConnectionLost, ServoingMode
from sysid_ros.drivers.kinova_kortex.frame import Frame, decode_frame, encode_frame
from sysid_ros.drivers.kinova_kortex.tcp import TcpCall, session_request
from sysid_ros.emulators.kortex.base import TCP, UDP

LARGEST_MOVE = 2e-3
"""How far the arm may move [rad]."""
CALL_TIME = 0.005
"""How long a call over TCP takes [s]; the cyclic service goes on meanwhile."""


class CutMemory(Memory):
    """Both connections; a request and its reply are a packet each. From one of them on nothing passes any more.

    Time passes with the deadlines of the driver, whether it sends something or not.
    """

    def __init__(self, base, cut):
        super().__init__(base)
        self.cut, self.count, self.last, self.cut_time = cut, 0, np.inf, np.inf

    def passes(self, transport):
        if self.cut not in (transport, "both"):
            return True
        self.count += 1
        if self.count > self.last:
            self.cut_time = min(self.cut_time, self.time)
        return self.count <= self.last

    def pass_period(self):
        self.time += PERIOD
        self.base.advance()
        self.farthest = max(self.farthest, float(np.abs(self.base.arm.q - self.start).max()))

    def send(self, data):
        if self.passes("udp"):
            answer = self.base.answer(UDP, "memory", data)
            if answer is not None and self.passes("udp"):
                self.landed = [answer]
        return True


class CutTcp(MemoryTcp):
    def __init__(self, memory, settings):
        super().__init__(memory.base, settings)
        self.memory, self.owed_since, self.next_sign = memory, np.inf, 0.0

    def open(self):
        self.start(Function.CREATE_SESSION, session_request(self.settings))
        self.frames.clear()
        if not self.session:
            raise KortexConnectionLost("no answer to CREATE_SESSION")

    def start(self, function, payload=b"", device=0, read=lambda _: None):
        self.message = (self.message + 1) % 65536
        if self.memory.passes("tcp"):
            frame = Frame(FrameType.REQUEST, function, self.session, self.message, device, payload)
            answer = decode_frame(self.base.answer(TCP, "memory", encode_frame(frame)))
            if self.memory.passes("tcp"):
                self.frames[self.message], self.session = (self.memory.time + CALL_TIME, answer), answer.session
        if self.message not in self.frames:
            self.owed_since = min(self.owed_since, self.memory.time)
        return TcpCall(self, function.name, self.message, read)

    def take(self, message):
        due, _ = self.frames.get(message, (np.inf, None))
        return self.frames.pop(message)[1] if self.memory.time >= due else None

    def keep_alive(self):
        if self.memory.time >= self.next_sign:
            self.next_sign = self.memory.time + self.settings.connection_inactivity_timeout / 4.0
            self.frames.pop(self.start(Function.KEEP_ALIVE).message, None)

    @property
    def overdue(self):
        return max(0.0, self.memory.time - self.owed_since)

    def close(self):
        if self.session:
            self.start(Function.CLOSE_SESSION)
        if self.owed_since == np.inf:  # else the base does not hear that the connection is closed
            self.base.disconnect("memory")


class CutArm(MemoryArm):
    """Its clock is that of its base."""

    def __init__(self, monkeypatch, memory):
        for user in ("arm", "exchange", "client", "tcp"):
            monkeypatch.setattr(f"sysid_ros.drivers.kinova_kortex.{user}.time", Clock(memory))
        super().__init__(memory, call_timeout=0.1, connect_timeout=0.2, rest_time=0.02, hold_time=0.02)

    def _open(self):
        client = super()._open()
        client._tcp = CutTcp(self.memory, self.settings)
        return client

    def _make_pacer(self):
        return SimpleNamespace(wait=self.memory.pass_period, restart=lambda: None)


def run_once(monkeypatch, cut, phase, last=np.inf):
    """Takes the arm over and hands it back; the network ends after so many packets of one phase.

    Returns:
        The base's end, the arm, and what the user is told.
    """
    base = make_base(payload="dumbbell_4lb")
    memory = CutMemory(base, cut)
    memory.start = base.arm.q.copy()
    arm, said = CutArm(monkeypatch, memory), ""
    memory.last = last if phase == "connect" else np.inf
    try:
        arm.connect()
        for _ in range(20):
            memory.pass_period()
            arm.read()
            arm.command(arm._exchange.torque)
    except ArmError as error:
        said = str(error)
    if phase == "stop":
        memory.count, memory.last = 0, last
        arm.stop("test")
        said = said or arm.health()["last problem of handing back"].replace("none", "")
    memory.packets = memory.count
    arm.close()
    memory.torque_joints = base.actuators.modes.count(ControlMode.TORQUE)
    for _ in range(150):  # the driver is gone, the base goes on
        memory.pass_period()
    return memory, arm, said


def count_packets(monkeypatch, cut, phase):
    memory, _, said = run_once(monkeypatch, cut, phase)
    assert not said and not memory.base.actuators.faults.any()
    return memory.packets


@pytest.mark.slow
@pytest.mark.parametrize(("cut", "step", "is_told"), [("tcp", 1, True), ("udp", 2, False), ("both", 13, False)])
@pytest.mark.parametrize("phase", ["connect", "stop"])
def test_a_network_that_ends_at_any_packet_leaves_the_arm_held_where_it_is(monkeypatch, cut, step, is_told, phase):
    """The base holds it by its own rules; calls that were not answered are told to the user."""
    told, torque_joints, packets = 0, set(), count_packets(monkeypatch, cut, phase)
    for last in range(0, packets, step):
        memory, arm, said = run_once(monkeypatch, cut, phase, last)
        base = memory.base
        assert memory.farthest < LARGEST_MOVE and np.abs(base.arm.v).max() < 1e-3, (last, said)
        assert base.servoing is ServoingMode.SINGLE_LEVEL, (last, said, base.reports)
        assert set(base.actuators.modes) == {ControlMode.POSITION}, (last, said)
        assert not said or "no connection to the base: " in said or "UDP" in said, (last, said)
        told += bool(said)
        torque_joints.add(memory.torque_joints)
    assert told == len(range(0, packets, step)) or not is_told
    if cut == "tcp":  # the driver was gone with any number of joints still in torque mode
        assert torque_joints == set(range(8))
    # With the network back the arm can be had again.
    memory.last = np.inf
    arm.connect()
    arm.close()
    assert base.servoing is ServoingMode.SINGLE_LEVEL and memory.farthest < LARGEST_MOVE
