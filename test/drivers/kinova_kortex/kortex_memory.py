"""Base and driver in one thread, in lock-step and without sockets."""

from types import SimpleNamespace

import numpy as np
from kortex_bench import PERIOD, ROBOT

from sysid_ros.drivers.kinova_kortex.arm import KortexArm
from sysid_ros.drivers.kinova_kortex.client import KortexClient
from sysid_ros.drivers.kinova_kortex.enums import FrameType, Function
from sysid_ros.drivers.kinova_kortex.frame import Frame, decode_frame, encode_frame
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings, StampSource
from sysid_ros.drivers.kinova_kortex.tcp import TcpCall, session_request
from sysid_ros.emulators.kortex.base import TCP, UDP
from sysid_ros.emulators.relays.faults import FaultyDirection, NetworkFaults

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

    is_open, overdue, reason = True, 0.0, None

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

    def restart(self):
        pass


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

    def _make_pacer(self):
        return Patient()


class Clock:
    """The module ``time`` for the driver: it passes with the requests of the cyclic service, and while it sleeps."""

    def __init__(self, memory):
        self.memory = memory

    def monotonic(self):
        return self.memory.time

    def monotonic_ns(self):
        return round(1e9 * self.memory.time)

    time_ns = monotonic_ns

    def sleep(self, seconds):
        self.memory.time += seconds


def use_clock_of(memory, monkeypatch):
    """One clock for all: whatever the computer does meanwhile, a timeout is one only if the base did not answer.

    How long a cycle waits for its reply is the memory's business, so the client has no clock at all.
    """
    for user in ("arm", "exchange"):
        monkeypatch.setattr(f"sysid_ros.drivers.kinova_kortex.{user}.time", Clock(memory))
    monkeypatch.setattr("sysid_ros.drivers.kinova_kortex.client.time", SimpleNamespace(monotonic=lambda: 0.0))
