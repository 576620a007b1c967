"""Bad networks, in lock-step: whatever happens to datagrams, the arm stays within its limits and comes to rest.

The same campaign over real sockets and in real time is bench/bench_kortex.py.
"""

import numpy as np
import pytest
from emulated_campaign import FAULTS, HARMLESS, require_safe
from kortex_bench import ROBOT, RunningEmulator, make_arm, make_base, make_loop, run
from kortex_memory import Memory, MemoryArm, use_clock_of

from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.emulators.relays.faults import NetworkFaults
from sysid_ros.emulators.relays.relay import FaultyRelay

FAULTS = {
    **FAULTS, "delay 1 ms": NetworkFaults(delay=0.001), "delays 0 to 0.6 ms": NetworkFaults(delay_spread=0.0006)
}  # fmt: skip


@pytest.fixture
def memory(monkeypatch):
    memory = Memory(make_base(payload="0.6"))
    use_clock_of(memory, monkeypatch)
    return memory


@pytest.fixture
def loop(memory):
    loop = make_loop(MemoryArm(memory))
    loop.connect()
    yield loop
    loop.release("test")


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_network_never_makes_the_arm_run_away(name, memory, loop):
    modes = require_safe(loop, memory, memory.base.arm, FAULTS[name], 0.9)
    if name in (*HARMLESS, "delays 0 to 0.6 ms"):
        assert LoopMode.FAULT not in modes and LoopMode.TRACK in modes
    if name in ("delay 1 ms", "delay 50 ms", "everything is lost"):
        assert LoopMode.FAULT in modes


def test_a_lossless_campaign_moves_and_counts_nothing(memory, loop):
    """The baseline: otherwise the campaign could pass with an arm that never moves."""
    modes = require_safe(loop, memory, memory.base.arm, NetworkFaults(), 0.9)
    health = loop.arm.health()
    assert modes == {LoopMode.HOLD, LoopMode.TRACK} and memory.farthest > 0.08
    assert health["replies missing"] == health["replies late or repeated"] == health["datagrams malformed"] == 0


def test_a_bad_network_over_real_sockets_is_counted():
    base = make_base(payload="0.6")
    with RunningEmulator(base) as emulator:
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
