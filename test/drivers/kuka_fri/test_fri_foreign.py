"""Datagrams nobody should send, at an arm that is held under torque."""

import numpy as np
import pytest
from fri_bench import make_controller, run
from fri_memory import Memory, connected, use_clock_of

from sysid_ros.drivers.kuka_fri.messages import SessionState
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.modes import FriVersion

PER_CYCLE = 100
LARGEST = 0.01
"""How far the arm may go [rad]."""


class Held:
    """A held arm, and how far it went from where it was held."""

    def __init__(self, version, monkeypatch):
        self.memory = Memory(make_controller(payload="0.6", version=version))
        use_clock_of(self.memory, monkeypatch)
        self.loop = connected(self.memory, version)
        run(self.loop, 0.1)
        self.q, self.moved, self.lost = self.memory.controller.arm.q, 0.0, 0

    def cycle(self, datagrams):
        loop, arm = self.loop, self.memory.controller.arm
        self.memory.to_client.extend(datagrams)
        loop.heartbeat()
        loop.step()
        self.moved = max(self.moved, float(np.abs(arm.q - self.q).max()))
        if loop.is_handed_back:
            self.lost += 1
            loop.connect()
            self.q = arm.q


def changed(data, rng):
    data = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        data[rng.integers(len(data))] = rng.integers(256)
    return bytes(data)


@pytest.mark.slow
def test_a_hundred_thousand_random_datagrams_do_not_disturb_a_held_arm(monkeypatch):
    rng, held = np.random.default_rng(0), Held(FriVersion.V1_15, monkeypatch)
    pool = rng.bytes(100_000)
    for _ in range(1000):
        starts, sizes = rng.integers(99_000, size=PER_CYCLE), rng.integers(600, size=PER_CYCLE)
        held.cycle([pool[start : start + size] for start, size in zip(starts, sizes, strict=True)])
    health = held.loop.arm.health()
    assert health["messages malformed"] == 100_000 and health["messages lost"] == 0
    assert held.lost == 0 and held.loop.mode is LoopMode.HOLD and held.moved < LARGEST
    assert held.memory.controller.state is SessionState.COMMANDING_ACTIVE


@pytest.mark.parametrize("version", list(FriVersion))
def test_messages_with_changed_bytes_never_move_a_held_arm(monkeypatch, version):
    """1.15 and 2.5 have no checksum: some can be read, and where one is believed the controller may hold the arm."""
    rng, held = np.random.default_rng(1), Held(version, monkeypatch)
    controller = held.memory.controller
    for k in range(300):
        good = controller._codec.encode_monitoring(controller._message(controller._state))
        held.cycle([changed(good, rng) for _ in range(PER_CYCLE if k % 30 == 29 else 1)])
    sent, refused = 290 + 10 * PER_CYCLE, held.loop.arm.health()["messages malformed"]
    assert held.moved < LARGEST and refused > 700
    if version is FriVersion.V2_7:
        assert held.lost == 0 and refused > 0.99 * sent  # a byte may be changed into itself
    else:
        assert refused < 0.8 * sent
    run(held.loop, 0.1)
    assert held.loop.mode is LoopMode.HOLD
