"""The loop as a process of its own and the emulator as another, as users start them."""

import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from driver_doubles import make_certificate
from fri_bench import ROBOT

from sysid_ros.core.control import RobustSettings, build_controller
from sysid_ros.core.trajectories.serialization import BezierTrajectory
from sysid_ros.drivers.kuka_fri.messages import FriVersion
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.loop_types import LoopMode, LoopModel, LoopRefusal, LoopSettings
from sysid_ros.drivers.process import LoopProcess, LoopProcessError
from sysid_ros.drivers.registry import Driver, LoopSetup, build_loop
from sysid_ros.emulation.fri.__main__ import main


@pytest.fixture
def emulator(port):
    command = [sys.executable, "-m", "sysid_ros.emulation.fri", "--port", str(port), "--version", "2.7"]
    command += ["--payload", "0.6", "--send-period", "0.002", "--patience", "3.0"]
    command += ["--start-time", "0.2", "--while-stdin"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    process.stdin.close()
    assert process.wait(30) in (0, -9)
    process.stderr.close()


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_takes_over_moves_and_notices_the_end_of_the_controller(emulator, port):
    fri = FriSettings(
        FriVersion.V2_7, "127.0.0.1", port, 0.002, wait_time=1.5, session_timeout=3.0, late_limit=10.0, rest_time=0.05
    )  # fmt: skip
    setup = LoopSetup("kuka_lbr_med7", Driver.FRI, (fri,), loop=LoopSettings(heartbeat_timeout=10.0, late_limit=10.0))
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
        assert health["session state"] == "COMMANDING_ACTIVE" and health["session fall-backs"] == 0
        samples = loop.read_samples()
        np.testing.assert_allclose(samples.block.q[-1], start + 0.05, atol=0.02)
        assert np.diff(samples.block.stamps).min() > 0
        with pytest.raises(LoopRefusal, match="not simulated"):
            loop.truth()
        emulator.kill()
        wait_for(lambda: loop.status().mode is LoopMode.FAULT)
        assert "no usable measurement" in loop.status().reason or "no message" in loop.status().reason


def test_the_emulator_outlives_its_parent_until_the_arm_is_handed_back(emulator, port):
    """Ctrl-C reaches the parent of the emulator and the driver together."""
    fri = FriSettings(
        FriVersion.V2_7, "127.0.0.1", port, 0.002, wait_time=10.0, session_timeout=10.0, late_limit=10.0, rest_time=0.05
    )  # fmt: skip
    setup = LoopSetup("kuka_lbr_med7", Driver.FRI, (fri,), loop=LoopSettings(heartbeat_timeout=10.0, late_limit=10.0))
    with LoopProcess(partial(build_loop, setup), 7) as loop:
        emulator.stdin.close()
        time.sleep(0.7)
        assert emulator.poll() is None and loop.status().mode is LoopMode.HOLD
    assert emulator.wait(30.0) == 0
    assert "the motion is ended: no answer" in emulator.stderr.read()


def test_a_refusal_to_take_over_reaches_the_caller_in_words(port):
    setup = LoopSetup("kuka_lbr_med7", Driver.FRI, (FriSettings(port=port, connect_timeout=0.2),))
    with pytest.raises(LoopProcessError, match=f"not taken over: no message of an FRI 1.15.*port {port}"):
        LoopProcess(partial(build_loop, setup), 7).start()


def test_laws_for_other_periods_have_other_names():
    assert build_controller("robust", ROBOT, 0.001).law != build_controller("robust", ROBOT, 0.002).law
    assert build_controller("gravity_pid", ROBOT, 0.002).settings.period == 0.002
    # What the planner reads from the law is what the driver runs.
    control = build_controller("robust", ROBOT, 0.002)
    assert RobustSettings.of_law(control.law) == control.settings and control.settings.period == 0.002
    with pytest.raises(Exception, match="one of robust, gravity_pid"):
        build_controller("bang_bang", ROBOT, 0.001)


def test_the_emulator_refuses_in_one_sentence(capsys):
    assert main(["--robot", "kinova_gen3"]) == 2
    assert "'protocol: fri'" in capsys.readouterr().err
    assert main(["--send-period", "0.0005"]) == 2
