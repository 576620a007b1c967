"""What the tests with emulated controllers share: bad networks, motion to and fro on them, programs as processes."""

import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from driver_doubles import make_certificate, run, start_move

from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.loop_types import LoopMode, LoopModel, LoopRefusal
from sysid_ros.emulators.relays.faults import NetworkFaults
from sysid_ros.ros.other_nodes import wait_until

FAULTS = {
    "loss 0.1 %": NetworkFaults(loss=0.001),
    "loss 5 %": NetworkFaults(loss=0.05),
    "loss 20 %": NetworkFaults(loss=0.2),
    "bursts of 20": NetworkFaults(loss=0.02, burst=20.0),
    "reordering": NetworkFaults(reorder=0.01),
    "duplication": NetworkFaults(duplicate=0.2),
    "delay 50 ms": NetworkFaults(delay=0.05),
    "delays 0 to 6 ms": NetworkFaults(delay_spread=0.006),
    "truncation": NetworkFaults(truncate=0.02),
    "corruption": NetworkFaults(corrupt=0.02),
    "random datagrams": NetworkFaults(insert=0.3),
    "everything is lost": NetworkFaults(loss=1.0),
}
"""Datagrams lost, late, repeated or damaged; each protocol adds the delays that matter to it."""
HARMLESS = ("loss 0.1 %", "reordering", "duplication", "random datagrams")
"""Those under which motion goes on."""


def campaign(loop, seconds):
    """Moves to and fro, and takes the arm over again where it was lost; returns the modes it was in."""
    modes, direction = set(), 1.0
    for _ in range(round(seconds / loop.arm.period)):
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


def require_safe(loop, memory, arm, faults, seconds):
    """A bad network never makes the arm run away, and with a good one it can be had again; returns the modes."""
    run(loop, 0.4)
    memory.change(faults, seed=3)
    modes = campaign(loop, seconds)
    memory.change(NetworkFaults())
    assert memory.fastest < 0.6 and memory.farthest < 0.5
    for _ in range(10):
        run(loop, 0.5)
        if not loop.is_handed_back and loop.mode is LoopMode.HOLD:
            break
        try:
            loop.connect()
        except (ArmError, LoopRefusal):
            pass
    loop.brake("test")
    run(loop, 0.5)
    assert loop.mode is LoopMode.HOLD and np.abs(arm.v).max() < 0.02
    return modes


def require_forgives_itself(emulator, loop):
    """An emulator that stands still itself does not blame its client."""
    emulator.server.patience = 0.5
    emulator.now(lambda _: time.sleep(0.8))
    emulator.server.patience = emulator.PATIENCE
    run(loop, 0.05)
    assert loop.mode is LoopMode.HOLD and emulator.has_client
    emulator.lose_patience()
    assert not emulator.has_client


@contextmanager
def emulator_process(package, *options):
    """The program of an emulator, whose standard input is ours."""
    command = [sys.executable, "-m", f"sysid_ros.emulators.{package}", *map(str, options), "--while-stdin"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.stdin.close()
        code = process.wait(30)
        process.stderr.close()
    assert code in (0, -9)


def require_certified_move(loop, robot):
    """Waits until the arm is taken over, moves it by 0.05 rad, and returns the health of the connection then."""
    model = LoopModel.nominal(robot)
    assert wait_until(lambda: not loop.status().is_taking_over, 60.0)
    start, zero = loop.status().reference, np.zeros(robot.n)
    plan = BezierTrajectory(start, zero, zero, start + 0.05, 1.0)
    own = {"now": 1e-9 * loop.status().stamp_ns}
    own |= {"control_law": loop.status().law, "nominal_payload": model.payload}
    loop.execute(plan, make_certificate((model.theta_box, model.payload_box), plan, 0.09, robot, **own))
    assert wait_until(lambda: (loop.heartbeat(), loop.status().mode is LoopMode.HOLD)[1], 60.0)
    status, health = loop.status(), loop.health()
    assert not status.has_failed and np.abs(status.tracking_error_max).max() < 0.02
    samples = loop.read_samples()
    np.testing.assert_allclose(samples.block.q[-1], start + 0.05, atol=0.02)
    assert np.diff(samples.block.stamps).min() > 0
    with pytest.raises(LoopRefusal, match="not simulated"):
        loop.truth()
    return health


def require_fault_after_end(loop, emulator, reason):
    """The emulator is killed: the loop says so, in words of its protocol or for want of measurements."""
    emulator.kill()
    assert wait_until(lambda: loop.status().mode is LoopMode.FAULT, 60.0)
    assert reason in loop.status().reason or "no usable measurement" in loop.status().reason


def require_outlives_parent(loop, emulator):
    """Ctrl-C reaches the parent of the emulator and the driver together; the emulator goes on until the arm is free."""
    emulator.stdin.close()
    time.sleep(0.7)
    assert emulator.poll() is None and loop.status().mode is LoopMode.HOLD
