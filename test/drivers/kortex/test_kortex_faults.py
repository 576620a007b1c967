"""Bad networks, in lock-step: whatever happens to datagrams, the arm stays within its limits and comes to rest.

The same campaign over real sockets and in real time is bench/bench_kortex.py.
"""

import numpy as np
import pytest
from kortex_bench import PERIOD, ROBOT, RunningEmulator, make_arm, make_base, make_loop, run

from sysid_ros.core.planning.certificate import Certificate, box_hash
from sysid_ros.core.planning.trajectory import BezierTrajectory
from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.kortex.arm import KortexArm
from sysid_ros.drivers.kortex.client import KortexClient
from sysid_ros.drivers.kortex.emulator.base import TCP, UDP
from sysid_ros.drivers.kortex.enums import FrameType, Function
from sysid_ros.drivers.kortex.frame import Frame, decode_frame, encode_frame
from sysid_ros.drivers.kortex.settings import KortexSettings, StampSource
from sysid_ros.drivers.kortex.tcp import TcpCall, session_request
from sysid_ros.drivers.loop_types import LoopMode, LoopRefusal
from sysid_ros.drivers.network.faults import FaultyDirection, NetworkFaults
from sysid_ros.drivers.network.relay import FaultyRelay

FAULTS = {
    "loss 0.1 %": NetworkFaults(loss=0.001),
    "loss 5 %": NetworkFaults(loss=0.05),
    "loss 20 %": NetworkFaults(loss=0.2),
    "bursts of 20": NetworkFaults(loss=0.02, burst=20.0),
    "reordering": NetworkFaults(reorder=0.01),
    "duplication": NetworkFaults(duplicate=0.2),
    "delay 1 ms": NetworkFaults(delay=0.001),
    "delay 50 ms": NetworkFaults(delay=0.05),
    "delays 0 to 0.6 ms": NetworkFaults(delay_spread=0.0006),
    "delays 0 to 6 ms": NetworkFaults(delay_spread=0.006),
    "truncation": NetworkFaults(truncate=0.02),
    "corruption": NetworkFaults(corrupt=0.02),
    "random datagrams": NetworkFaults(insert=0.3),
    "everything is lost": NetworkFaults(loss=1.0),
}
_WAIT = 0.75 * PERIOD


class Memory:
    """Both ends of the cyclic connection in one thread: every request starts a period of the base."""

    def __init__(self, base, waits=_WAIT):
        """``waits``: how long a cycle waits for its reply [s]; None as long as the client says."""
        self.base, self.waits = base, waits
        self.ignored, self.peer = 0, None
        self.landed, self.flying, self.time, self.order = [], [], 0.0, 0
        self.fastest = self.farthest = 0.0
        self.change(NetworkFaults())

    def change(self, faults, seed=0):
        self.up, self.down = FaultyDirection(faults, seed), FaultyDirection(faults, seed + 1)

    def send(self, data):
        self.time += PERIOD
        self.base.advance()
        arm = self.base.arm
        self.fastest = max(self.fastest, float((np.abs(arm.v) / ROBOT.limits.v_max).max()))
        self.farthest = max(self.farthest, float(np.abs(arm.q - ROBOT.home).max()))
        self.launch(self.up.pass_on(data), self.time, True)
        return True

    def launch(self, deliveries, start, is_to_base):
        for one in deliveries:
            self.order += 1
            self.flying.append((start + one.delay, self.order, is_to_base, one.data))

    def receive(self, timeout):
        end = self.time + (timeout if self.waits is None else self.waits)
        while not self.landed:
            due = [one for one in self.flying if one[0] <= end]
            if not due:
                return None
            one = min(due)
            self.flying.remove(one)
            when, _, is_to_base, data = one
            if is_to_base:
                answer = self.base.answer(UDP, "memory", data)
                if answer is not None:
                    self.launch(self.down.pass_on(answer), when, False)
            else:
                self.landed.append(data)
        return self.landed.pop(0)

    def close(self):
        for _, _, is_to_base, data in self.flying:  # what was sent before arrives, nobody hears the answer
            if is_to_base:
                self.base.answer(UDP, "memory", data)
        self.landed, self.flying = [], []


class MemoryTcp:
    """The TCP session without a socket; every answer is there at once."""

    is_open, silence, reason = True, 0.0, ""

    def __init__(self, base, settings):
        self.base, self.settings, self.frames, self.message, self.session = base, settings, {}, 0, 0

    def open(self):
        self.start(Function.CREATE_SESSION, session_request(self.settings))
        self.session = self.frames.popitem()[1].session

    def start(self, function, payload=b"", device=0, read=lambda _: None):
        self.message = (self.message + 1) % 65536
        frame = Frame(FrameType.REQUEST, function, self.session, self.message, device, payload)
        self.frames[self.message] = decode_frame(self.base.answer(TCP, "memory", encode_frame(frame)))
        return TcpCall(self, function.name, self.message, read)

    def take(self, message):
        return self.frames.pop(message, None)

    def poll(self):
        pass

    def keep_alive(self):
        self.start(Function.KEEP_ALIVE)
        self.frames.clear()

    def close(self):
        if self.session:
            self.start(Function.CLOSE_SESSION)
        self.base.disconnect("memory")


class Patient:
    """No clock is read."""

    def wait(self):
        return 0.0


class MemoryArm(KortexArm):
    def __init__(self, memory, robot=ROBOT, **changes):
        self.memory = memory
        times = {"rest_time": 0.03, "hold_time": 0.03, "close_time": 0.0, "connect_timeout": 0.5, "probe_torque": 0.0}
        super().__init__(robot, KortexSettings(**{"stamps": StampSource.FRAMES, **times, **changes}))

    def _open(self):
        memory, settings = self.memory, self.settings

        class Client(KortexClient):
            def _open_endpoint(self):
                return memory

        client = Client(settings, 7)
        client._tcp = MemoryTcp(memory.base, settings)
        return client

    def connect(self):
        self._pacer = Patient()
        super().connect()

    def __setattr__(self, name, value):
        super().__setattr__(name, Patient() if name == "_pacer" else value)


def start_move(loop, direction):
    q, zero = loop.status().reference, np.zeros(7)
    plan = BezierTrajectory(q, zero, zero, ROBOT.home + 0.1 * direction, 0.8)
    bound = np.full(7, 0.09)
    loop.execute(plan, Certificate(plan.hash(), box_hash(*loop.boxes), q, "sampled", "test", {}, bound, 0.0, 1e12))


def campaign(loop, seconds):
    """Moves to and fro, and takes the arm over again where it was lost; returns the modes it was in."""
    modes, direction = set(), 1.0
    for _ in range(round(seconds / PERIOD)):
        loop.heartbeat()
        loop.step()
        modes.add(loop.mode)
        try:
            if loop.mode is LoopMode.HOLD:
                start_move(loop, direction)
                direction = -direction
            elif loop.is_given_up:
                loop.connect()
        except (LoopRefusal, ArmError):
            if loop.is_given_up:
                break  # it cannot be taken over on such a network
    return modes


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_network_never_makes_the_arm_run_away(name):
    base = make_base(payload="0.6")
    memory = Memory(base)
    loop = make_loop(MemoryArm(memory))
    loop.connect()
    run(loop, 0.3)
    memory.change(FAULTS[name], seed=3)
    modes = campaign(loop, 0.9)
    memory.change(NetworkFaults())
    assert memory.fastest < 0.6 and memory.farthest < 0.5
    if name in ("loss 0.1 %", "reordering", "duplication", "random datagrams", "delays 0 to 0.6 ms"):
        assert LoopMode.FAULT not in modes and LoopMode.TRACK in modes
    if name in ("delay 1 ms", "delay 50 ms", "everything is lost"):
        assert LoopMode.FAULT in modes
    # With the network back, the arm can be had again and holds.
    for _ in range(5):
        run(loop, 0.4)
        if not loop.is_given_up and loop.mode is LoopMode.HOLD:
            break
        try:
            loop.connect()
        except (ArmError, LoopRefusal):
            pass
    loop.brake("test")
    run(loop, 0.4)
    assert loop.mode is LoopMode.HOLD and np.abs(base.arm.v).max() < 0.02
    loop.release("test")


def test_a_lossless_campaign_moves_and_counts_nothing():
    """The baseline: otherwise the campaign could pass with an arm that never moves."""
    base = make_base(payload="0.6")
    memory = Memory(base)
    loop = make_loop(MemoryArm(memory))
    loop.connect()
    run(loop, 0.3)
    modes = campaign(loop, 0.9)
    health = loop.arm.health()
    loop.release("test")
    assert modes == {LoopMode.HOLD, LoopMode.TRACK} and memory.farthest > 0.08
    assert health["replies missing"] == health["replies late or repeated"] == health["datagrams malformed"] == 0


def test_a_bad_network_over_real_sockets_is_counted():
    base = make_base(payload="0.6")
    with RunningEmulator(base, patience=0.5) as emulator:
        with FaultyRelay(emulator.server.address_realtime, seed=1) as relay:
            ports = {"port_realtime": relay.address[1]}
            loop = make_loop(make_arm(emulator, **ports))
            loop.connect()
            relay.change(NetworkFaults(duplicate=0.1, insert=0.1))
            run(loop, 0.5)
            health = loop.arm.health()
            relay.change(NetworkFaults())
            loop.release("test")
    assert loop.status().transitions[-1].source is LoopMode.HOLD
    assert health["replies late or repeated"] > 10 and health["datagrams malformed"] > 5
    assert base.actuators.rejected > 10 and base.malformed > 5
    assert np.abs(base.arm.q - ROBOT.home).max() < 0.05
