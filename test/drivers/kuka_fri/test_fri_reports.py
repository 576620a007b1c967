"""What messages report while the arm moves under torque: it brakes along its path, still obeying, and says why."""

import numpy as np
import pytest
from driver_doubles import start_move
from fri_bench import PERIOD, ROBOT, make_controller, run
from fri_memory import Memory, connected, use_clock_of

from sysid_ros.drivers.kuka_fri.messages import DriveState, Quality, SafetyState, SessionState
from sysid_ros.drivers.loop_types import LoopCode, LoopMode

ACTIVE = (DriveState.ACTIVE,)
REPORTS = {
    "safety stop SAFETY_STOP_LEVEL_2": {"safety": SafetyState.SAFETY_STOP_LEVEL_2},
    "drives not active: A2 OFF, A7 TRANSITIONING": {
        "drives": ACTIVE + (DriveState.OFF,) + 4 * ACTIVE + (DriveState.TRANSITIONING,)
    },
    "the connection's quality is FAIR": {"quality": Quality.FAIR},
    "the connection's quality is POOR": {"quality": Quality.POOR},
    "a message came 21.0 ms late": {"late": 0.021},
    "safety stop SAFETY_STOP_LEVEL_1, drives not active: A1 OFF": {
        "safety": SafetyState.SAFETY_STOP_LEVEL_1, "drives": (DriveState.OFF,) + 6 * ACTIVE,
    },
}  # fmt: skip
HARMLESS = ({}, {"late": 0.019}, {"quality": Quality.GOOD}, {"safety": None, "drives": ()})


@pytest.fixture
def moving(monkeypatch):
    controller = make_controller(payload="0.6")
    memory = Memory(controller)
    use_clock_of(memory, monkeypatch)
    loop = connected(memory, late_limit=0.02)
    run(loop, 0.3)
    start_move(loop, 1.0)
    run(loop, 0.3)
    assert loop.mode is LoopMode.TRACK and np.abs(controller.arm.v).max() > 0.1
    yield memory, loop
    loop.release("test")


def receive_once(memory, loop, late=0.0, **changes):
    """The next message says something else, or takes longer; all others are as they were."""
    link, memory.time = loop.arm._link, memory.time + late
    link.next = lambda timeout: type(link).next(link, timeout)._replace(**changes)
    run(loop, PERIOD)
    del link.next


@pytest.mark.parametrize("words", REPORTS)
def test_what_is_reported_brakes_the_arm_which_still_obeys(moving, words):
    memory, loop = moving
    receive_once(memory, loop, **REPORTS[words])
    status = loop.status()
    assert (status.mode, status.code) == (LoopMode.BRAKE, LoopCode.HARDWARE)
    assert status.reason == f"the arm reports: {words}"
    answered = loop.arm.health()["commands sent"]
    run(loop, 0.6)
    assert loop.mode is LoopMode.HOLD and np.abs(memory.controller.arm.v).max() < 0.02
    assert memory.controller.state is SessionState.COMMANDING_ACTIVE
    assert loop.arm.health()["commands sent"] == answered + round(0.6 / PERIOD)  # never silent meanwhile
    moved = memory.controller.arm.q - ROBOT.home
    assert (moved > 0.01).all() and (moved < 0.09).all()  # stopped on its way
    assert "the arm reports: " + words in loop.status().reason


def test_what_is_no_fault_does_not_brake_and_without_torque_nothing_is_one(moving):
    memory, loop = moving
    for changes in HARMLESS:
        receive_once(memory, loop, **changes)
        assert loop.mode is LoopMode.TRACK and loop.status().code is LoopCode.OK
    loop.arm.stop("test")
    message = loop.arm._link.session.last
    assert loop.arm._faults(loop.arm._link, message._replace(safety=SafetyState.SAFETY_STOP_LEVEL_1)) == ()
