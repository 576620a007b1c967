"""Bad networks, in lock-step: whatever happens to datagrams, the arm stays within its limits and comes to rest.

The same campaign over real sockets and in real time is bench/bench_fri.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from driver_doubles import start_move
from emulated_campaign import FAULTS, HARMLESS, require_safe
from fri_bench import PERIOD, ROBOT, RunningEmulator, make_arm, make_controller, make_loop, run
from fri_memory import Memory, connected, use_clock_of

from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.windows.stream import SampleStream
from sysid_ros.drivers.channel import collect_samples
from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.messages import Monitoring, Quality, SessionState
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.emulators.relays.faults import NetworkFaults
from sysid_ros.emulators.relays.relay import FaultyRelay

FAULTS = {**FAULTS, "delay 4 ms": NetworkFaults(delay=0.004)}


class LosesEvery:
    """A direction that loses every n-th datagram."""

    def __init__(self, n, direction):
        self.n, self.direction, self.count = n, direction, 0

    def pass_on(self, data):
        self.count += 1
        return self.direction.pass_on(data) if self.count % self.n else []


def test_what_is_learnt_never_reaches_across_a_lost_message(monkeypatch):
    """Stamps of every window follow each other, and its velocities are as good as the robot file promises."""
    controller = make_controller(payload="0.6")
    memory = Memory(controller)
    use_clock_of(memory, monkeypatch)
    loop = connected(memory)
    arm = loop.arm
    run(loop, 0.4)
    start_move(loop, 1.0)
    memory.down = LosesEvery(61, memory.down)
    block = collect_samples(run(loop, 0.8), 7).block
    assert arm.health()["messages lost"] == 6
    assert loop.status().invalid_cycles == 0  # the next message is there before the cycle has waited long enough
    steady = replace(ROBOT, sensors=replace(ROBOT.sensors, effort_mean_error=np.full(7, np.inf)))  # windows of 0.1 s
    windows, notices = SampleStream(steady, EstimatorSettings()).add(block)
    assert len(windows) == 6
    speed = []
    for window in windows:
        part = window.block
        assert (np.abs(np.diff(part.stamps) * 1e-9 / PERIOD - 1.0) < 0.1).all()
        true = [memory.velocities[round((stamp - arm._offset_ns) / (1e9 * PERIOD))] for stamp in part.stamps]
        assert (np.abs(part.v - true) <= ROBOT.sensors.velocity_error).all()
        speed.append(np.abs(part.v).max())
    assert max(speed) > 0.1
    assert notices[0].startswith("12 samples missing (6 places")  # those lost, and those whose velocities are worse
    loop.release("test")


def test_messages_in_idle_need_not_say_where_the_arm_is(monkeypatch):
    controller = make_controller()
    memory = Memory(controller)
    use_clock_of(memory, monkeypatch)
    loop = connected(memory)
    run(loop, 0.1)
    codec, last = FriCodec(FriVersion.V1_15), controller._sequence
    for k in range(1, 4):
        message = Monitoring(last + k, 0, SessionState.IDLE, Quality.POOR, PERIOD)
        memory.to_client.append(codec.encode_monitoring(message))
        assert (loop.step() is None) == (k == 1)  # the arm is lost, and then only read
    status = loop.status()
    assert status.mode is LoopMode.FAULT and "fell back to IDLE" in status.reason
    loop.release("test")


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, FriVersion.V1_15) for name in FAULTS] + [(name, FriVersion.V2_7) for name in ("truncation", "corruption")],
)
def test_a_bad_network_never_makes_the_arm_run_away(name, version, monkeypatch):
    controller = make_controller(payload="0.6", version=version)
    memory = Memory(controller)
    use_clock_of(memory, monkeypatch)
    loop = connected(memory, version)
    modes = require_safe(loop, memory, controller.arm, FAULTS[name], 1.2)
    if name in HARMLESS:
        assert LoopMode.FAULT not in modes and LoopMode.TRACK in modes
    if name in ("loss 20 %", "delay 50 ms", "everything is lost"):
        assert LoopMode.FAULT in modes
    loop.release("test")


def test_a_lossy_network_over_real_sockets(port):
    controller = make_controller(payload="0.6")
    with FaultyRelay(("127.0.0.1", port), seed=1) as relay:
        with RunningEmulator(controller, relay.address[1]) as emulator:
            loop = make_loop(make_arm(port, wait_time=0.1))
            loop.connect()
            emulator.server.patience = 0.05  # from here on answers that are lost are to be missed
            relay.change(NetworkFaults(0.02, 2.0, 0.05, 0.02, 0.0, 0.0, 0.02, 0.0, 0.05))
            run(loop, 1.0)
            health = loop.arm.health()
            loop.release("test")
    assert health["messages lost"] > 0 and health["messages malformed"] > 0 and health["messages duplicated"] > 0
    assert np.abs(controller.arm.q - ROBOT.home).max() < 0.1
