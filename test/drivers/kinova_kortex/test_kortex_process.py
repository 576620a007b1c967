"""The loop as a process of its own and the emulator as another, as users start them."""

import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from driver_doubles import make_certificate
from kortex_bench import ROBOT

from sysid_ros.core.trajectories.serialization import BezierTrajectory
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings, StampSource
from sysid_ros.drivers.loop_types import LoopMode, LoopModel, LoopRefusal, LoopSettings
from sysid_ros.drivers.network import free_port
from sysid_ros.drivers.process import LoopProcess, LoopProcessError
from sysid_ros.drivers.registry import Driver, LoopSetup, build_loop

TIMES = "wait_time", "session_timeout", "late_limit", "call_timeout", "connect_timeout"
PATIENT = dict.fromkeys(TIMES, 10.0)


@pytest.fixture
def ports():
    return {"port": free_port(), "port_realtime": free_port()}


@pytest.fixture
def emulator(ports):
    command = [sys.executable, "-m", "sysid_ros.emulation.kortex", "--payload", "0.6", "--patience", "8.0"]
    command += ["--port", str(ports["port"]), "--port-realtime", str(ports["port_realtime"]), "--while-stdin"]
    command += ["--watchdog-time", "10"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    process.stdin.close()
    assert process.wait(30) in (0, -9)
    process.stderr.close()


def setup_of(ports, **settings):
    kortex = KortexSettings("127.0.0.1", **ports, stamps=StampSource.FRAMES, rest_time=0.05, **settings)
    return LoopSetup(
        "kinova_gen3_2f85", Driver.KORTEX, (kortex,), loop=LoopSettings(heartbeat_timeout=10.0, late_limit=10.0)
    )


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_takes_over_moves_and_notices_the_end_of_the_base(emulator, ports):
    setup = setup_of(ports, **{**PATIENT, "wait_time": 1.5, "session_timeout": 3.0})
    model = LoopModel.nominal(ROBOT)
    with LoopProcess(partial(build_loop, setup), 7) as loop:
        wait_for(lambda: not loop.status().is_taking_over)
        start, zero = loop.status().reference, np.zeros(7)
        plan = BezierTrajectory(start, zero, zero, start + 0.05, 1.0)
        own = {"control_law": loop.status().law, "nominal_payload": model.payload}
        boxes = (model.theta_box, model.payload_box)
        loop.execute(plan, make_certificate(boxes, plan, 0.09, ROBOT, **own))
        wait_for(lambda: (loop.heartbeat(), loop.status().mode is LoopMode.HOLD)[1])
        status, health = loop.status(), loop.health()
        assert not status.has_failed and np.abs(status.tracking_error_max).max() < 0.02
        assert health["arm state"] == "SERVOING_LOW_LEVEL" and health["replies missing"] == 0
        samples = loop.read_samples()
        np.testing.assert_allclose(samples.block.q[-1], start + 0.05, atol=0.02)
        assert np.diff(samples.block.stamps).min() > 0
        with pytest.raises(LoopRefusal, match="not simulated"):
            loop.truth()
        emulator.kill()
        wait_for(lambda: loop.status().mode is LoopMode.FAULT)
        assert "no reply of the base" in loop.status().reason or "no usable measurement" in loop.status().reason


def test_a_loop_that_ends_hands_the_arm_back(emulator, ports):
    setup = setup_of(ports, **PATIENT)
    with LoopProcess(partial(build_loop, setup), 7) as loop:
        assert loop.status().mode is LoopMode.HOLD
    said = [emulator.stderr.readline() for _ in range(4)]
    assert "the base holds the arm: asked for" in said[-1], said


def test_the_emulator_outlives_its_parent_until_the_arm_is_handed_back(emulator, ports):
    """Ctrl-C reaches the parent of the emulator and the driver together."""
    setup = setup_of(ports, **PATIENT)
    with LoopProcess(partial(build_loop, setup), 7) as loop:
        emulator.stdin.close()
        time.sleep(0.7)
        assert emulator.poll() is None and loop.status().mode is LoopMode.HOLD
    assert emulator.wait(30.0) == 0
    assert "the base holds the arm: asked for" in emulator.stderr.read()


def test_a_refusal_to_take_over_reaches_the_caller_in_words(ports):
    with pytest.raises(LoopProcessError, match=f"TCP 127.0.0.1:{ports['port']}.*refused"):
        LoopProcess(partial(build_loop, setup_of(ports, connect_timeout=0.2)), 7).start()
