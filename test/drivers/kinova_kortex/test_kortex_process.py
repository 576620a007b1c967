"""The loop as a process of its own and the emulator as another, as users start them."""

from functools import partial

import pytest
from emulated_campaign import emulator_process, require_certified_move, require_fault_after_end, require_outlives_parent
from kortex_bench import ROBOT
from textbook import textbook_file

from sysid_ros.drivers.child import ChildProcessFailed
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings, StampSource
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.network import free_port
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.drivers.registry import Driver, LoopSetup, build_loop

TIMES = "wait_time", "session_timeout", "late_limit", "call_timeout", "connect_timeout"
PATIENT = dict.fromkeys(TIMES, 10.0)


@pytest.fixture
def ports():
    return {"port": free_port(), "port_realtime": free_port()}


@pytest.fixture
def emulator(ports):
    options = ("--robot", textbook_file(), "--payload", "0.6", "--patience", "8.0", "--watchdog-time", "10")
    with emulator_process(
        "kortex", *options, "--port", ports["port"], "--port-realtime", ports["port_realtime"]
    ) as process:
        yield process


def setup_of(ports, **settings):
    kortex = KortexSettings(robot_ip="127.0.0.1", **ports, stamps=StampSource.FRAMES, rest_time=0.05, **settings)
    return LoopSetup(
        textbook_file(), Driver.KORTEX, (kortex,), loop=LoopSettings(heartbeat_timeout=10.0, late_limit=10.0)
    )


def test_takes_over_moves_and_notices_the_end_of_the_base(emulator, ports):
    setup = setup_of(ports, **{**PATIENT, "wait_time": 1.5, "session_timeout": 3.0})
    with LoopProcess(partial(build_loop, setup), 7) as loop:
        health = require_certified_move(loop, ROBOT)
        assert health["arm state"] == "SERVOING_LOW_LEVEL" and health["replies missing"] == 0
        require_fault_after_end(loop, emulator, "no reply of the base")


def test_the_emulator_outlives_its_parent_until_the_arm_is_handed_back(emulator, ports):
    setup = setup_of(ports, **PATIENT)
    with LoopProcess(partial(build_loop, setup), 7) as loop:
        require_outlives_parent(loop, emulator)
    assert emulator.wait(30.0) == 0
    assert "the base holds the arm: asked for" in emulator.stderr.read()


def test_a_refusal_to_take_over_reaches_the_caller_in_words(ports):
    with pytest.raises(ChildProcessFailed, match=f"TCP 127.0.0.1:{ports['port']}.*refused"):
        LoopProcess(partial(build_loop, setup_of(ports, connect_timeout=0.2)), 7).start()
