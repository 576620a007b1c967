"""The loop as a process of its own and the emulator as another, as users start them."""

from functools import partial

import pytest
from emulated_campaign import emulator_process, require_certified_move, require_fault_after_end, require_outlives_parent
from fri_bench import ROBOT
from textbook import textbook_file

from sysid_ros.core.control import build_controller
from sysid_ros.drivers.child import ChildProcessFailed
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.drivers.registry import Driver, LoopSetup, build_loop
from sysid_ros.emulators.fri.__main__ import main

MODEL = textbook_file("kuka_lbr_med7")


@pytest.fixture
def emulator(port):
    options = ("--robot", MODEL, "--port", port, "--version", "2.7", "--payload", "0.6", "--send-period", "0.002")
    with emulator_process("fri", *options, "--patience", "3.0", "--start-time", "0.2") as process:
        yield process


def setup_of(port, **settings):
    fixed = {"version": FriVersion.V2_7, "robot_ip": "127.0.0.1", "port": port, "period": 0.002, "late_limit": 10.0}
    fri = FriSettings(**fixed, rest_time=0.05, **settings)
    patient = LoopSettings(heartbeat_timeout=10.0, late_limit=10.0)
    return LoopSetup(MODEL, Driver.FRI, (fri,), loop=patient)


def test_takes_over_moves_and_notices_the_end_of_the_controller(emulator, port):
    setup = setup_of(port, wait_time=1.5, session_timeout=3.0)
    with LoopProcess(partial(build_loop, setup), 7) as loop:
        health = require_certified_move(loop, ROBOT)
        assert health["session state"] == "COMMANDING_ACTIVE" and health["session fall-backs"] == 0
        require_fault_after_end(loop, emulator, "no message")


def test_the_emulator_outlives_its_parent_until_the_arm_is_handed_back(emulator, port):
    setup = setup_of(port, wait_time=10.0, session_timeout=10.0)
    with LoopProcess(partial(build_loop, setup), 7) as loop:
        require_outlives_parent(loop, emulator)
    assert emulator.wait(30.0) == 0
    assert "the motion is ended: no answer" in emulator.stderr.read()


def test_a_refusal_to_take_over_reaches_the_caller_in_words(port):
    setup = LoopSetup("kuka_lbr_med7", Driver.FRI, (FriSettings(port=port, connect_timeout=0.2),))
    with pytest.raises(ChildProcessFailed, match=f"not taken over: no message of an FRI 1.15.*port {port}"):
        LoopProcess(partial(build_loop, setup), 7).start()


def test_the_controller_is_built_for_the_period_of_the_driver():
    for name in ("robust", "gravity_pid"):
        assert build_controller(name, ROBOT, 0.002).settings.period == 0.002


def test_the_emulator_refuses_in_one_sentence(capsys):
    assert main(["--robot", "kinova_gen3"]) == 2
    assert "'protocol: fri'" in capsys.readouterr().err
    assert main(["--send-period", "0.0005"]) == 2
