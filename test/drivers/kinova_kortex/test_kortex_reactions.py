"""What Gen3 and driver do when something goes wrong: the table of docs/howto/kinova_gen3.md, without sockets."""

import numpy as np
import pytest
from driver_doubles import start_move, started
from kortex_bench import PERIOD, ROBOT, make_base, make_loop, run
from kortex_memory import Clock, Memory, MemoryArm

from sysid_ros.drivers.kinova_kortex.enums import ControlMode, Safety, ServoingMode
from sysid_ros.drivers.kinova_kortex.settings import StampSource
from sysid_ros.drivers.loop_types import LoopCode, LoopMode

pytestmark = pytest.mark.slow


@pytest.fixture
def moving(monkeypatch):
    """A loop in the middle of a motion, the arm in memory, and one clock for all."""
    memory = Memory(make_base(payload="0.6"))
    for user in ("arm", "exchange", "client"):
        monkeypatch.setattr(f"sysid_ros.drivers.kinova_kortex.{user}.time", Clock(memory))
    loop = started(make_loop(MemoryArm(memory, stamps=StampSource.CLOCK)), 0.3)
    start_move(loop, 1.0)
    run(loop, 0.4)
    assert loop.mode is LoopMode.TRACK and np.abs(memory.base.arm.v).max() > 0.1
    return loop, memory


def is_at_rest(memory):
    return float(np.abs(memory.base.arm.v).max()) < 0.02


def of_feedback(**changes):
    """Changes what the base sends."""

    def inject(_, memory):
        feedback = memory.base._feedback
        memory.base._feedback = lambda frame: feedback(frame)._replace(**changes)

    return inject


def pause(loop, memory):
    """The computer stands still for 30 ms; the base goes on."""
    memory.time += 0.03
    for _ in range(30):
        memory.base.advance()


def no_answer_over_tcp(loop, _):
    loop.arm._exchange.client._tcp.overdue = 2.1


@pytest.mark.parametrize(
    ("inject", "words"),
    [
        (of_feedback(base_faults=0x40), "the arm reports: base faults 0x40"),
        (of_feedback(warnings=(0, 0, int(Safety.FOLLOWING_ERROR), 0, 0, 0, 0)), "joint_3 warns of FOLLOWING_ERROR"),
        (pause, "the arm reports: no fresh state for 31.0 ms"),
        (no_answer_over_tcp, "the arm reports: the base does not answer over TCP: it cannot be handed back in order"),
    ],
    ids=["fault of the base", "warning of an actuator", "no fresh state for late_limit", "TCP dead"],
)
def test_what_the_arm_reports_brakes_it_along_its_path_to_rest(moving, inject, words):
    loop, memory = moving
    reached, target = memory.base.arm.q.copy(), ROBOT.home + 0.1
    inject(loop, memory)
    run(loop, 3 * PERIOD)
    status = loop.status()
    assert status.mode is LoopMode.BRAKE and status.code is LoopCode.HARDWARE
    assert words in status.reason, status.reason
    run(loop, 0.5)
    q = memory.base.arm.q
    # Still under torque control, at rest, between where it was and where the motion would have ended.
    assert memory.base.servoing is ServoingMode.LOW_LEVEL and is_at_rest(memory) and not loop.is_handed_back
    assert (q > reached - 0.01).all() and (q < target - 0.01).all()
    assert memory.fastest < 0.6


def test_the_emergency_stop_is_named_to_the_user_and_the_base_holds_the_arm(moving):
    loop, memory = moving
    memory.base.press_emergency_stop()
    run(loop, 3 * PERIOD)
    status = loop.status()
    assert status.mode is LoopMode.FAULT and status.code is LoopCode.HARDWARE and loop.is_handed_back
    assert "EMERGENCY_LINE_ASSERTED" in status.reason and "WRONG_SERVOING_MODE" in status.reason, status.reason
    for _ in range(300):
        memory.base.advance()
    base = memory.base
    assert base.servoing is ServoingMode.SINGLE_LEVEL and set(base.actuators.modes) == {ControlMode.POSITION}
    assert is_at_rest(memory)


# Sessions that end because the base hears nothing


@pytest.mark.parametrize(
    ("transport", "changes", "words"),
    [
        ("tcp", {"connection_inactivity_timeout": 0.3}, "WRONG_SERVOING_MODE"),
        ("tcp", {"session_inactivity_timeout": 1.0, "connection_inactivity_timeout": 60.0}, "WRONG_SERVOING_MODE"),
        ("udp", {"connection_inactivity_timeout": 0.3}, "INVALID_SESSION"),
    ],
)
def test_a_session_that_expires_loses_the_arm_which_is_held_and_taken_over_again(transport, changes, words):
    """By the base's own time-outs, as they were asked for when the sessions were opened."""
    memory = Memory(make_base(payload="0.6", watchdog_time=10.0))
    base, timeout = memory.base, min(changes.values())
    loop = make_loop(MemoryArm(memory, **changes))
    loop.connect()
    run(loop, timeout + 0.1)
    assert loop.mode is LoopMode.HOLD and len(base.sessions) == 2  # while both are heard, none expires
    if transport == "tcp":
        loop.arm._exchange.client._tcp.keep_alive = lambda: None
        run(loop, timeout - 0.05)
        assert loop.mode is LoopMode.HOLD
        run(loop, 0.1)
    else:  # the loop stands still, TCP goes on
        for _ in range(round((timeout + 0.05) / PERIOD)):
            base.advance()
            loop.arm._exchange.client._tcp.keep_alive()
        run(loop, 0.01)
    assert f"{transport} session ended: timeout" in base.reports, base.reports
    assert loop.mode is LoopMode.FAULT and words in loop.status().reason, loop.status().reason
    q = base.arm.q.copy()
    for _ in range(200):
        base.advance()
    np.testing.assert_allclose(base.arm.q, q, atol=2e-3)
    assert base.servoing is ServoingMode.SINGLE_LEVEL and is_at_rest(memory)
    loop.connect()
    run(loop, 0.1)
    assert loop.mode is LoopMode.HOLD
    loop.release("test")
