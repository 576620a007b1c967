"""Bad networks, in lock-step: whatever happens to datagrams, the arm stays within its limits and comes to rest.

The same campaign over real sockets and in real time is bench/bench_kortex.py.
"""

import numpy as np
import pytest
from kortex_bench import PERIOD, ROBOT, RunningEmulator, make_arm, make_base, make_loop, run
from kortex_memory import Memory, MemoryArm, start_move, use_clock_of

from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.loop_types import LoopMode, LoopRefusal
from sysid_ros.emulation.relays.faults import NetworkFaults
from sysid_ros.emulation.relays.relay import FaultyRelay

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
            elif loop.is_handed_back:
                loop.connect()
        except (LoopRefusal, ArmError):
            if loop.is_handed_back:
                break  # it cannot be taken over on such a network
    return modes


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_network_never_makes_the_arm_run_away(name, monkeypatch):
    base = make_base(payload="0.6")
    memory = Memory(base)
    use_clock_of(memory, monkeypatch)
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
        if not loop.is_handed_back and loop.mode is LoopMode.HOLD:
            break
        try:
            loop.connect()
        except (ArmError, LoopRefusal):
            pass
    loop.brake("test")
    run(loop, 0.4)
    assert loop.mode is LoopMode.HOLD and np.abs(base.arm.v).max() < 0.02
    loop.release("test")


def test_a_lossless_campaign_moves_and_counts_nothing(monkeypatch):
    """The baseline: otherwise the campaign could pass with an arm that never moves."""
    base = make_base(payload="0.6")
    memory = Memory(base)
    use_clock_of(memory, monkeypatch)
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
