"""Controller and driver in one thread, in lock-step and without sockets."""

import time
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from fri_bench import PERIOD, ROBOT, make_loop

from sysid_ros.drivers import network as deadlines
from sysid_ros.drivers.kuka_fri import arm, link
from sysid_ros.drivers.kuka_fri.arm import FriArm
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.emulators.relays.faults import FaultyDirection, NetworkFaults


class Memory:
    """Both ends of a connection in one thread: waiting for a datagram lets the controller do its next cycles."""

    def __init__(self, controller):
        self.controller = controller
        self.ignored, self.first_ignored, self.peer, self.address = 0, None, None, ("memory", 0)
        self.to_client, self.to_server = deque(), []
        self.fastest = self.farthest = 0.0
        self.time = 0.0
        self.velocities = {}
        self.change(NetworkFaults())

    def change(self, faults, seed=0):
        self.down, self.up = FaultyDirection(faults, seed), FaultyDirection(faults, seed + 1)
        self.flying = []

    def step(self):
        self.time += PERIOD
        self.land()
        inbox, self.to_server = self.to_server, []
        for one in self.down.pass_on(self.controller.cycle(inbox)):
            self.flying.append((self.time + one.delay, True, one.data))
        self.land()
        arm = self.controller.arm
        self.velocities[round(arm.stamp_ns / (1e9 * PERIOD))] = arm.v
        self.fastest = max(self.fastest, float((np.abs(arm.v) / ROBOT.limits.v_max).max()))
        self.farthest = max(self.farthest, float(np.abs(arm.q - ROBOT.home).max()))

    def land(self):
        due = sorted((one for one in self.flying if one[0] <= self.time), key=lambda one: one[0])
        self.flying = [one for one in self.flying if one[0] > self.time]
        for _, is_to_client, data in due:
            (self.to_client if is_to_client else self.to_server).append(data)

    def receive(self, timeout):
        for _ in range(max(1, round(min(timeout, 0.1) / PERIOD))):
            if self.to_client:
                return self.to_client.popleft()
            self.step()
        return self.to_client.popleft() if self.to_client else None

    def receive_all(self):
        found = list(self.to_client)
        self.to_client.clear()
        return found

    def send(self, data):
        for one in self.up.pass_on(data):
            self.flying.append((self.time + one.delay, False, one.data))
        return True

    def forget_peer(self):
        pass

    def close(self):
        pass


class MemoryArm(FriArm):
    def __init__(self, memory, version, **settings):
        self.memory = memory
        times = {"rest_time": 0.05, "hold_time": 0.05, "connect_timeout": 1.5, "late_limit": 10.0}
        super().__init__(ROBOT, FriSettings(version=version, period=PERIOD, **{**times, **settings}))

    def _open(self):
        return self.memory


def use_clock_of(memory, monkeypatch):
    """The driver's time is that of the emulated controller, so nothing depends on how busy the computer is."""
    clock = SimpleNamespace(
        monotonic=lambda: memory.time, monotonic_ns=lambda: round(1e9 * memory.time), time_ns=time.time_ns
    )
    for module in (link, arm, deadlines):
        monkeypatch.setattr(module, "time", clock)


def connected(memory, version=FriVersion.V1_15, **settings):
    """A loop that holds the arm; from then on it gives up soon where the network does not allow to take it over."""
    arm = MemoryArm(memory, version, **settings)
    loop, arm.settings = make_loop(arm), replace(arm.settings, connect_timeout=30.0)
    loop.connect()
    arm.settings = replace(arm.settings, connect_timeout=1.5)
    return loop
